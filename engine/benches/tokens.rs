//! What the forward pass makes of a core: `cargo bench -p ebbtide-engine --bench tokens`.
//!
//! A prompt and 32 tokens that follow it, then 16 sequences that decode together against one alone, on one thread and
//! in its processor time; then the same on two threads against one, by the clock, which on a machine that is busy with
//! something else says little. The model is the file that `EBBTIDE_SMOLLM2` names, or a stand-in with the sizes of
//! SmolLM2-135M and random weights: what is computed does not depend on their values. Each figure is the best of a few
//! rounds. Exits with 1 where a limit is not kept.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on fails, and prints a table"
)]

use std::num::NonZeroU16;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ebbtide_engine::forward::{Forward, Item, Logits, Options, Transformer};
use ebbtide_engine::kv::{Backing, Format, Pool, PoolOptions, SequenceId, Token};
use ebbtide_engine::model::{self, Geometry, RopeStyle, Weights, synthetic};

const SMOLLM2: Geometry = Geometry {
    hidden: 576,
    layers: 30,
    heads: 9,
    kv_heads: 3,
    head_dim: 64,
    ffn: 1536,
    vocab: 49152,
    context: 8192,
    rope_base: 100_000.0,
    rope_style: RopeStyle::Interleaved,
    rms_eps: 1e-5,
    tied: true,
};
const DECODED: usize = 32;
const BATCH: usize = 16;
/// Tokens of a prompt, and what 16 sequences that follow such prompts should bring over one. At 512 tokens each, the
/// keys and values of 16 sequences are more than the weights, and nobody shares them.
const LENGTHS: [(usize, Option<f64>); 2] = [(512, None), (128, Some(5.0))];
const ROUNDS: usize = 5;
const TWO: NonZeroU16 = NonZeroU16::new(2).unwrap();

fn main() -> ExitCode {
    let options = Options::from_environment().unwrap();
    let begun = processor_time();
    let weights: Box<dyn Weights> = match std::env::var_os("EBBTIDE_SMOLLM2") {
        Some(path) => model::open(Path::new(&path)).unwrap().weights,
        None => Box::new(synthetic(SMOLLM2, 1).unwrap()),
    };
    let mut forward = Transformer::load(weights.as_ref(), options).unwrap();
    println!(
        "{} kernels, one thread; read and quantised in {:.1} s, {:.0} MB of weights",
        options.kernels.tier(),
        (processor_time() - begun).as_secs_f64(),
        forward.weight_bytes() as f64 / 1e6
    );
    let mut is_kept = true;
    for (tokens, wanted) in LENGTHS {
        let mut subject = Subject::new(&mut forward, tokens, processor_time);
        (0..ROUNDS).for_each(|_| subject.round());
        let Rates { prompt, alone, together } = subject.best;
        let gain = together / alone;
        println!("prompt of {tokens}: {prompt:.0} tokens/s");
        println!("decode after it: {alone:.1} tokens/s");
        let limit = wanted.map_or_else(String::new, |wanted| format!(", {wanted:.1} wanted"));
        println!("decode of {BATCH} such: {together:.1} tokens/s, {gain:.2} times one{limit}");
        is_kept &= wanted.is_none_or(|wanted| gain >= wanted);
    }
    let mut pair = Transformer::load(weights.as_ref(), Options { threads: TWO, ..options }).unwrap();
    compare(&mut forward, &mut pair);
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a second thread brings, round by round in turn.
fn compare(one: &mut Transformer, two: &mut Transformer) {
    let tokens = LENGTHS[0].0;
    let begun = Instant::now();
    let mut one = Subject::new(one, tokens, || begun.elapsed());
    let mut two = Subject::new(two, tokens, || begun.elapsed());
    for _ in 0..ROUNDS {
        one.round();
        two.round();
    }
    println!("two threads over one, by the clock, after prompts of {tokens}:");
    let rows = [
        ("prompt", one.best.prompt, two.best.prompt),
        ("decode", one.best.alone, two.best.alone),
        ("decode of 16", one.best.together, two.best.together),
    ];
    for (what, one, two) in rows {
        println!("{what}: {one:.0} and {two:.0} tokens/s, {:.2} times", two / one);
    }
}

/// Tokens a second, the best round of each.
#[derive(Default)]
struct Rates {
    prompt: f64,
    alone: f64,
    together: f64,
}

/// A model with room for a batch behind prompts, and what tells the time.
struct Subject<'a, C> {
    forward: &'a mut Transformer,
    pool: Pool,
    tokens: usize,
    clock: C,
    best: Rates,
}

impl<'a, C: Fn() -> Duration> Subject<'a, C> {
    fn new(forward: &'a mut Transformer, tokens: usize, clock: C) -> Self {
        let blocks = BATCH * (tokens + 2 * DECODED).div_ceil(16);
        let options = PoolOptions { high_water: true, ..PoolOptions::with_capacity(blocks as u32) };
        let kept = forward.geometry().kv();
        let pool = Pool::on_host(kept, Format::F16, Backing::Anonymous, options).unwrap();
        Self { forward, pool, tokens, clock, best: Rates::default() }
    }

    fn round(&mut self) {
        let sequences: Vec<SequenceId> = (0..BATCH).map(|_| self.pool.open()).collect();
        for sequence in &sequences {
            self.best.prompt = self.best.prompt.max(self.prompt(*sequence));
        }
        self.best.alone = self.best.alone.max(self.decode(&sequences[..1]));
        self.best.together = self.best.together.max(self.decode(&sequences));
        sequences.into_iter().for_each(|sequence| self.pool.close(sequence).unwrap());
    }

    /// Tokens a second of a whole prompt, up to the logits of its last token.
    fn prompt(&mut self, sequence: SequenceId) -> f64 {
        let tokens: Vec<Token> = (0..self.tokens).map(|at| (at * 7 % 251) as Token).collect();
        let begun = (self.clock)();
        self.pool.append(sequence, self.tokens).unwrap();
        let item = Item { sequence, tokens: &tokens, start: 0, logits: Logits::Last };
        assert_eq!(self.forward.step(&mut self.pool, &[item]).unwrap().len(), 1);
        self.tokens as f64 / ((self.clock)() - begun).as_secs_f64()
    }

    /// Tokens a second of all `sequences`, a token each a step.
    fn decode(&mut self, sequences: &[SequenceId]) -> f64 {
        let begun = (self.clock)();
        let mut tokens: Vec<[Token; 1]> = vec![[11]; sequences.len()];
        for _ in 0..DECODED {
            let mut items = Vec::with_capacity(sequences.len());
            for (sequence, tokens) in sequences.iter().zip(&tokens) {
                let start = self.pool.table(*sequence).unwrap().tokens();
                self.pool.append(*sequence, 1).unwrap();
                items.push(Item { sequence: *sequence, tokens, start, logits: Logits::Last });
            }
            let rows = self.forward.step(&mut self.pool, &items).unwrap();
            tokens = rows.iter().map(|row| [largest(row)]).collect();
        }
        (DECODED * sequences.len()) as f64 / ((self.clock)() - begun).as_secs_f64()
    }
}

fn largest(row: &[f32]) -> Token {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(token, _)| token as Token)
}

/// Processor time of this thread, which neighbours on a busy machine do not add to.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
