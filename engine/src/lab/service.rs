//! A load, served.

use std::time::Instant;

use ebbtide_core::Bytes;
use serde::Serialize;

use super::{Bench, LabError, Strategy, capacity};
use crate::forward::Forward;
use crate::kv::{BLOCK_TOKENS, Layout, Pool};
use crate::scheduler::Scheduler;

/// What serving a load took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Service {
    /// Requests served.
    pub served: u64,
    /// Steps of the model, each over all requests that ran.
    pub steps: usize,
    /// Requests that ran in a step, on average.
    pub running: f64,
    /// Tokens of requests and answers a second.
    pub tokens_per_s: f64,
    /// Most that was held, as the kernel accounts for it.
    pub peak_bytes: Bytes,
    /// Held on average over the steps, as the kernel accounts for it.
    pub mean_bytes: Bytes,
    /// Of what was held, what was not filled: (held - filled) / held, over all steps. What is kept for others to
    /// find is filled.
    pub waste: f64,
    /// Steps after which the kernel's count was another than the pool's.
    pub unequal_steps: usize,
    /// Times a request gave way.
    pub preempted: u64,
    /// Tokens that were computed more than once because of that.
    pub recomputed_tokens: u64,
    /// Tokens of prompts that were found in the cache.
    pub found_tokens: u64,
    /// Written to the host file.
    pub written_bytes: Bytes,
    /// Read back from it.
    pub read_bytes: Bytes,
    /// Spent on both.
    pub offload_s: f64,
    /// Memory as it went on.
    pub course: Vec<Point>,
}

/// Memory after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Held, as the kernel accounts for it.
    pub held_bytes: Bytes,
    /// Of it, filled.
    pub filled_bytes: Bytes,
}

/// Points of a course: as many as a picture has room for.
const COURSE_MAX: usize = 240;

/// Serves the requests of `bench`, which all come at once, as fast as possible.
pub(super) fn measure(
    bench: &Bench,
    strategy: &Strategy,
    layout: Layout,
    forward: &mut dyn Forward,
) -> Result<Service, LabError> {
    let options = strategy.pool_options(capacity::blocks(strategy, bench, layout));
    let mut pool = strategy.pool(layout, options)?;
    let mut scheduler = Scheduler::new(strategy.options(bench.scope.context));
    let mut texts = bench.texts();
    for arrival in &bench.arrivals {
        scheduler.submit(texts.request(*arrival))?;
    }
    let (mut course, mut unequal_steps, mut running) = (Vec::new(), 0, 0);
    let begun = Instant::now();
    while !scheduler.is_idle() {
        scheduler.step(&mut pool, forward)?;
        running += scheduler.running();
        let held = pool.memory_held()?;
        unequal_steps += usize::from(held != pool.usage().held);
        course.push(Point { held_bytes: held, filled_bytes: filled(&pool) });
    }
    let seconds = begun.elapsed().as_secs_f64();
    let asked = bench.arrivals.iter().map(|arrival| (arrival.prompt + arrival.answer) as u64).sum::<u64>();
    let prompts = bench.arrivals.iter().map(|arrival| arrival.prompt as u64).sum::<u64>();
    let (counters, events, traffic) = (scheduler.counters(), pool.counters(), pool.traffic());
    let Memory { peak_bytes, mean_bytes, waste } = Memory::of(&course);
    Ok(Service {
        served: counters.served,
        steps: course.len(),
        running: running as f64 / course.len().max(1) as f64,
        tokens_per_s: asked as f64 / seconds,
        peak_bytes,
        mean_bytes,
        waste,
        unequal_steps,
        preempted: counters.preempted,
        recomputed_tokens: (counters.prompt_tokens + events.prefix_hits).saturating_sub(prompts),
        found_tokens: events.prefix_hits,
        written_bytes: traffic.written,
        read_bytes: traffic.read,
        offload_s: (traffic.writing + traffic.reading).as_secs_f64(),
        course: thinned(&course),
    })
}

/// Bytes of tokens that are in the pool: in tables, those that are shared once, and kept for others.
fn filled(pool: &Pool) -> Bytes {
    let usage = pool.usage();
    let tokens = pool.filled_tokens() + usage.cached * BLOCK_TOKENS;
    Bytes(tokens as u64 * usage.block.0 / BLOCK_TOKENS as u64)
}

/// What a course comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Memory {
    peak_bytes: Bytes,
    mean_bytes: Bytes,
    waste: f64,
}

impl Memory {
    fn of(course: &[Point]) -> Self {
        let held: Bytes = course.iter().map(|point| point.held_bytes).sum();
        let filled: Bytes = course.iter().map(|point| point.filled_bytes).sum();
        let peak_bytes = course.iter().map(|point| point.held_bytes).max().unwrap_or(Bytes::ZERO);
        let waste = held.saturating_sub(filled).0 as f64 / held.0.max(1) as f64;
        Self { peak_bytes, mean_bytes: Bytes(held.0 / course.len().max(1) as u64), waste }
    }
}

/// So many points at most, each the one of its share of the steps at which most was held.
fn thinned(course: &[Point]) -> Vec<Point> {
    let each = course.len().div_ceil(COURSE_MAX).max(1);
    course
        .chunks(each)
        .filter_map(|steps| steps.iter().max_by_key(|point| point.held_bytes).copied())
        .collect()
}
