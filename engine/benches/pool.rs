//! What the KV pool's bookkeeping costs: `cargo bench -p ebbtide-engine --bench pool`.
//!
//! Each row is the best of several rounds, so that a busy machine shows little in it. Bookkeeping is measured in
//! high-water mode, where memory stays held; what the kernel takes for handing memory out and taking it back is in
//! rows of its own, for the 360 KiB block of SmolLM2-135M at f16. Exits with 1 where a limit is not kept.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on fails, and prints a table"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ebbtide_engine::kv::{
    BLOCK_TOKENS, Backing, Format, Geometry, HostFile, Pool, PoolOptions, SequenceId, Token,
};

const ROUNDS: usize = 30;
/// Blocks a round works on: as many as a 65 000-token load takes.
const BLOCKS: usize = 4096;
/// For bookkeeping: blocks of one page, so that a large pool takes little memory.
const SMALL: Geometry = Geometry { layers: 1, kv_heads: 1, head_dim: 64 };
const SMOLLM2: Geometry = Geometry { layers: 30, kv_heads: 3, head_dim: 64 };
/// Bookkeeping of one block, to be had or let go.
const LIMIT: f64 = 100.0;
/// Sequences among which the blocks are spread, as a full batch does.
const SEQUENCES: usize = 64;

struct Line {
    what: &'static str,
    reached: f64,
    wanted: Option<f64>,
}

fn main() -> ExitCode {
    let mut lines = bookkeeping();
    lines.extend(sharing());
    lines.extend(kernel());
    println!("{:<58} {:>12} {:>12}", "one block", "reached", "wanted");
    for line in &lines {
        let wanted = line.wanted.map_or_else(String::new, |limit| format!("<= {limit:.0} ns"));
        println!("{:<58} {:>9.1} ns {:>12}", line.what, line.reached, wanted);
    }
    let is_kept = |line: &Line| line.wanted.is_none_or(|limit| line.reached <= limit);
    if lines.iter().all(is_kept) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn pool(geometry: Geometry, backing: Backing, high_water: bool) -> Pool {
    let options = PoolOptions { high_water, ..PoolOptions::with_capacity(2 * BLOCKS as u32) };
    Pool::on_host(geometry, Format::F16, backing, options).unwrap()
}

/// Nanoseconds a piece in the best round of `work`, which says how long `pieces` of it took.
fn best(pieces: usize, mut work: impl FnMut() -> Duration) -> f64 {
    let best = (0..ROUNDS).map(|_| work()).min().unwrap_or_default();
    best.as_nanos() as f64 / pieces as f64
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed()
}

fn open(pool: &mut Pool) -> Vec<SequenceId> {
    (0..SEQUENCES).map(|_| pool.open()).collect()
}

fn fill(pool: &mut Pool, sequences: &[SequenceId]) {
    for sequence in sequences.iter().cycle().take(BLOCKS) {
        pool.append(*sequence, BLOCK_TOKENS).unwrap();
    }
}

fn close(pool: &mut Pool, sequences: &[SequenceId]) {
    sequences.iter().for_each(|sequence| pool.close(*sequence).unwrap());
}

fn bookkeeping() -> Vec<Line> {
    let mut pool = pool(SMALL, Backing::File, true);
    let alloc = best(BLOCKS, || {
        let sequences = open(&mut pool);
        let spent = timed(|| fill(&mut pool, &sequences));
        close(&mut pool, &sequences);
        spent
    });
    let free = best(BLOCKS, || {
        let sequences = open(&mut pool);
        fill(&mut pool, &sequences);
        timed(|| close(&mut pool, &sequences))
    });
    let token = best(BLOCKS * BLOCK_TOKENS, || {
        let sequences = open(&mut pool);
        let spent = timed(|| {
            for sequence in sequences.iter().cycle().take(BLOCKS * BLOCK_TOKENS) {
                pool.append(*sequence, 1).unwrap();
            }
        });
        close(&mut pool, &sequences);
        spent
    });
    vec![
        Line { what: "taken by a sequence (bookkeeping only)", reached: alloc, wanted: Some(LIMIT) },
        Line { what: "let go of by a sequence (bookkeeping only)", reached: free, wanted: Some(LIMIT) },
        Line { what: "  a token appended, taking a block every 16", reached: token, wanted: None },
    ]
}

fn sharing() -> Vec<Line> {
    let mut pool = pool(SMALL, Backing::File, true);
    let tokens: Vec<Token> = (0..(BLOCKS * BLOCK_TOKENS) as u32).collect();
    let publish = best(BLOCKS, || {
        let sequence = pool.open();
        pool.append(sequence, tokens.len()).unwrap();
        let spent = timed(|| pool.publish(sequence, &tokens).unwrap());
        pool.close(sequence).unwrap();
        pool.trim();
        spent
    });
    let sequence = pool.open();
    pool.append(sequence, tokens.len()).unwrap();
    pool.publish(sequence, &tokens).unwrap();
    pool.close(sequence).unwrap();
    let hit = best(BLOCKS, || {
        let mut shared = None;
        let spent = timed(|| shared = Some(pool.open_with_prefix(&tokens)));
        pool.close(shared.unwrap()).unwrap();
        spent
    });
    let evict = best(BLOCKS, || {
        let full = pool.open();
        pool.append(full, tokens.len()).unwrap();
        // Everything that is free is taken; what comes next lies where cached content did.
        let next = pool.open();
        let spent = timed(|| pool.append(next, tokens.len()).unwrap());
        pool.close(full).unwrap();
        let again: Vec<Token> = tokens.clone();
        pool.publish(next, &again).unwrap();
        pool.close(next).unwrap();
        spent
    });
    vec![
        Line { what: "published by its content (chained hash)", reached: publish, wanted: None },
        Line { what: "found by its content and shared", reached: hit, wanted: None },
        Line { what: "taken from the oldest cached content", reached: evict, wanted: None },
    ]
}

fn kernel() -> Vec<Line> {
    const FEW: usize = 64;
    let mut lines = Vec::new();
    for (backing, take, give_back) in [
        (
            Backing::File,
            "360 KiB taken from the kernel (memory file)",
            "360 KiB given back to it (punched hole)",
        ),
        (
            Backing::Anonymous,
            "  its share of huge pages taken (anonymous)",
            "  its share of huge pages given back (MADV_DONTNEED)",
        ),
    ] {
        let mut pool = pool(SMOLLM2, backing, false);
        let taken = best(FEW, || {
            let sequence = pool.open();
            let spent = timed(|| pool.append(sequence, FEW * BLOCK_TOKENS).unwrap());
            pool.close(sequence).unwrap();
            spent
        });
        let given_back = best(FEW, || {
            let sequence = pool.open();
            pool.append(sequence, FEW * BLOCK_TOKENS).unwrap();
            timed(|| pool.close(sequence).unwrap())
        });
        lines.push(Line { what: take, reached: taken, wanted: None });
        lines.push(Line { what: give_back, reached: given_back, wanted: None });
    }
    lines.extend(host_file(FEW));
    lines
}

fn host_file(blocks: usize) -> Vec<Line> {
    let file = HostFile::create_in(&std::env::temp_dir(), blocks as u32).unwrap();
    let mut pool = pool(SMOLLM2, Backing::File, true).with_host_file(file);
    let sequence = pool.open();
    pool.append(sequence, blocks * BLOCK_TOKENS).unwrap();
    pool.offload_cold(sequence, 0).unwrap();
    pool.restore(sequence).unwrap();
    let sent = best(blocks, || {
        let spent = timed(|| pool.offload_cold(sequence, 0).unwrap());
        pool.restore(sequence).unwrap();
        spent
    });
    let fetched = best(blocks, || {
        pool.offload_cold(sequence, 0).unwrap();
        timed(|| pool.restore(sequence).unwrap())
    });
    vec![
        Line { what: "360 KiB offloaded to the host file (page cache)", reached: sent, wanted: None },
        Line { what: "360 KiB restored from the host file (page cache)", reached: fetched, wanted: None },
    ]
}
