//! What reading a vLLM-sized page costs: `cargo bench -p ebbtide-probe --bench exposition`. Printed, not asserted.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where its input is missing"
)]

use std::hint::black_box;
use std::time::Instant;

use ebbtide_probe::engine::exposition::Exposition;

/// The page is repeated, with another model's name each time, until it has this size.
const PAGE_BYTES: usize = 1_000_000;
/// Enough that the median is steady on a busy machine.
const ROUNDS: usize = 200;

fn main() {
    let sample = include_str!("../../tests/fixtures/engines/vllm-0.33.0.prom");
    let mut page = String::new();
    for copy in 0.. {
        if page.len() >= PAGE_BYTES {
            break;
        }
        page.push_str(&sample.replace("model_name=\"", &format!("model_name=\"{copy}-")));
    }
    let mut micros: Vec<f64> = (0..ROUNDS).map(|_| read(&page)).collect();
    micros.sort_by(f64::total_cmp);
    let series = Exposition::new(page.as_bytes()).flatten().count();
    let median = micros[ROUNDS / 2];
    println!(
        "exposition: {} bytes, {series} series: median {median:.0} us, best {:.0} us, {:.0} MB/s",
        page.len(),
        micros[0],
        page.len() as f64 / median
    );
}

fn read(page: &str) -> f64 {
    let started = Instant::now();
    let sum: f64 = Exposition::new(black_box(page.as_bytes())).map(|series| series.unwrap().value).sum();
    black_box(sum);
    started.elapsed().as_secs_f64() * 1e6
}
