//! What the forward pass makes of a core: `cargo bench -p ebbtide-engine --bench tokens`.
//!
//! A prompt of 512 tokens and 32 that follow it, then 16 sequences that decode together against one alone, on one
//! thread. The model is a stand-in with the sizes of SmolLM2-135M and random weights: what is computed does not depend
//! on their values. Each figure is the best of a few rounds. Exits with 1 where a limit is not kept.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on fails, and prints a table"
)]

use std::process::ExitCode;
use std::time::Duration;

use ebbtide_engine::forward::{Forward, Item, Logits, Options, Transformer};
use ebbtide_engine::kv::{Backing, Format, Pool, PoolOptions, SequenceId, Token};
use ebbtide_engine::model::{Geometry, RopeStyle, synthetic};

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
const PROMPT: usize = 512;
const DECODED: usize = 32;
const BATCH: usize = 16;
/// Tokens a second of 16 sequences over those of one.
const GAIN: f64 = 5.0;
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let options = Options::from_environment().unwrap();
    let begun = spent();
    let mut forward = Transformer::load(&synthetic(SMOLLM2, 1).unwrap(), options).unwrap();
    println!(
        "{} kernels, one thread; drawn and quantised in {:.1} s, {:.0} MB of weights",
        options.kernels.tier(),
        (spent() - begun).as_secs_f64(),
        forward.weight_bytes() as f64 / 1e6
    );
    let blocks = (BATCH + 1) * (PROMPT + DECODED) / 16 + BATCH;
    let options = PoolOptions { high_water: true, ..PoolOptions::with_capacity(blocks as u32) };
    let mut pool = Pool::on_host(SMOLLM2.kv(), Format::F16, Backing::Anonymous, options).unwrap();
    let mut best = [0f64; 3];
    for _ in 0..ROUNDS {
        let sequences: Vec<SequenceId> = (0..BATCH).map(|_| pool.open()).collect();
        let prefill = prompt(&mut forward, &mut pool, sequences[0]);
        let alone = decode(&mut forward, &mut pool, &sequences[..1]);
        sequences[1..].iter().for_each(|sequence| {
            prompt(&mut forward, &mut pool, *sequence);
        });
        let together = decode(&mut forward, &mut pool, &sequences);
        for sequence in sequences {
            pool.close(sequence).unwrap();
        }
        best.iter_mut().zip([prefill, alone, together]).for_each(|(best, rate)| *best = best.max(rate));
    }
    let [prefill, alone, together] = best;
    let gain = together / alone;
    println!("prompt of {PROMPT}:            {prefill:>8.0} tokens/s");
    println!("decode after it:          {alone:>8.1} tokens/s");
    println!(
        "decode of {BATCH} sequences:   {together:>8.1} tokens/s, {gain:.2} times one; {GAIN:.1} wanted"
    );
    if gain >= GAIN { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tokens a second of a whole prompt, up to the logits of its last token.
fn prompt(forward: &mut Transformer, pool: &mut Pool, sequence: SequenceId) -> f64 {
    let tokens: Vec<Token> = (0..PROMPT as u32).map(|at| at * 7 % 40_000).collect();
    let begun = spent();
    pool.append(sequence, PROMPT).unwrap();
    let item = Item { sequence, tokens: &tokens, start: 0, logits: Logits::Last };
    assert_eq!(forward.step(pool, &[item]).unwrap().len(), 1);
    PROMPT as f64 / (spent() - begun).as_secs_f64()
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
