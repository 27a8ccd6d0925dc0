//! What the forward pass makes of a core: `cargo bench -p ebbtide-engine --bench tokens`.
//!
//! A prompt and 32 tokens that follow it, then 16 sequences that decode together against one alone, on one thread. The model is the file that `EBBTIDE_SMOLLM2` names, or a stand-in with the sizes of SmolLM2-135M and random
//! weights: what is computed does not depend on their values. Each figure is the best of a few rounds. Exits with 1 where a limit is not kept.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on fails, and prints a table"
)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

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

fn main() -> ExitCode {
    let options = Options::from_environment().unwrap();
    let begun = spent();
    let weights: Box<dyn Weights> = match std::env::var_os("EBBTIDE_SMOLLM2") {
        Some(path) => model::open(Path::new(&path)).unwrap().weights,
        None => Box::new(synthetic(SMOLLM2, 1).unwrap()),
    };
    let mut forward = Transformer::load(weights.as_ref(), options).unwrap();
    println!(
        "{} kernels, one thread; read and quantised in {:.1} s, {:.0} MB of weights",
        options.kernels.tier(),
        (spent() - begun).as_secs_f64(),
        forward.weight_bytes() as f64 / 1e6
    );
    let mut is_kept = true;
    for (tokens, wanted) in LENGTHS {
        let Rates { prompt, alone, together } = measure(&mut forward, tokens);
        let gain = together / alone;
        println!("prompt of {tokens}: {prompt:.0} tokens/s");
        println!("decode after it: {alone:.1} tokens/s");
        let limit = wanted.map_or_else(String::new, |wanted| format!(", {wanted:.1} wanted"));
        println!("decode of {BATCH} such: {together:.1} tokens/s, {gain:.2} times one{limit}");
        is_kept &= wanted.is_none_or(|wanted| gain >= wanted);
    }
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tokens a second, the best round of each.
#[derive(Default)]
struct Rates {
    prompt: f64,
    alone: f64,
    together: f64,
}

fn measure(forward: &mut Transformer, tokens: usize) -> Rates {
    let blocks = BATCH * (tokens + 2 * DECODED).div_ceil(16);
    let options = PoolOptions { high_water: true, ..PoolOptions::with_capacity(blocks as u32) };
    let mut pool = Pool::on_host(forward.geometry().kv(), Format::F16, Backing::Anonymous, options).unwrap();
    let mut best = Rates::default();
    for _ in 0..ROUNDS {
        let sequences: Vec<SequenceId> = (0..BATCH).map(|_| pool.open()).collect();
        for sequence in &sequences {
            best.prompt = best.prompt.max(prompt(forward, &mut pool, *sequence, tokens));
        }
        best.alone = best.alone.max(decode(forward, &mut pool, &sequences[..1]));
        best.together = best.together.max(decode(forward, &mut pool, &sequences));
        sequences.into_iter().for_each(|sequence| pool.close(sequence).unwrap());
    }
    best
}

/// Tokens a second of a whole prompt, up to the logits of its last token.
fn prompt(forward: &mut Transformer, pool: &mut Pool, sequence: SequenceId, count: usize) -> f64 {
    let tokens: Vec<Token> = (0..count).map(|at| (at * 7 % 251) as Token).collect();
    let begun = spent();
    pool.append(sequence, count).unwrap();
    let item = Item { sequence, tokens: &tokens, start: 0, logits: Logits::Last };
    assert_eq!(forward.step(pool, &[item]).unwrap().len(), 1);
    count as f64 / (spent() - begun).as_secs_f64()
}

/// Tokens a second of all `sequences`, a token each a step.
fn decode(forward: &mut Transformer, pool: &mut Pool, sequences: &[SequenceId]) -> f64 {
    let begun = spent();
    let mut tokens: Vec<[Token; 1]> = vec![[11]; sequences.len()];
    for _ in 0..DECODED {
        let mut items = Vec::with_capacity(sequences.len());
        for (sequence, tokens) in sequences.iter().zip(&tokens) {
            let start = pool.table(*sequence).unwrap().tokens();
            pool.append(*sequence, 1).unwrap();
            items.push(Item { sequence: *sequence, tokens, start, logits: Logits::Last });
        }
        let rows = forward.step(pool, &items).unwrap();
        tokens = rows.iter().map(|row| [largest(row)]).collect();
    }
    (DECODED * sequences.len()) as f64 / (spent() - begun).as_secs_f64()
}

fn largest(row: &[f32]) -> Token {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(token, _)| token as Token)
}

/// Processor time of this thread, which neighbours on a busy machine do not add to.
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
