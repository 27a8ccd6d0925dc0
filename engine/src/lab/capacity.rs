//! How many requests fit.

use std::time::Duration;

use serde::Serialize;

use super::{Bench, LabError, Strategy, is_full};
use crate::kv::{Layout, Pool, PoolOptions, SequenceId};
use crate::load::{Load, Trace};
use crate::scheduler::Request;

/// Requests of full length that a memory holds before one is refused; 1024 are tried at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Capacity {
    /// On average over the draws.
    pub requests: f64,
    /// In the worst of them.
    pub least: usize,
    /// In the best.
    pub most: usize,
}

/// Requests that are tried at most: a memory of four contexts holds fewer by far, whatever the strategy.
const TRIED_MAX: usize = 1024;

/// Fills the memory with requests of the trace, one after the other, none of which ends; draw follows draw along the
/// trace.
pub(super) fn measure(bench: &Bench, strategy: &Strategy, layout: Layout) -> Result<Capacity, LabError> {
    let context = bench.scope.context;
    let mut load = Load::closed(TRIED_MAX, Trace::Chat, context);
    let mut texts = bench.texts();
    // The same memory is filled again and again; what it costs to take it is not asked here.
    let options = PoolOptions { high_water: true, ..strategy.pool_options(blocks(strategy, bench, layout)) };
    let mut pool = strategy.pool(layout, options)?;
    let mut counts = Vec::with_capacity(bench.scope.draws);
    for _ in 0..bench.scope.draws {
        let (mut sequences, mut held) = (Vec::new(), 0);
        for arrival in load.due(Duration::ZERO, 0) {
            let request = texts.request(arrival);
            let (sequence, is_held) = hold(&mut pool, strategy, &request, context)?;
            sequences.push(sequence);
            if !is_held {
                break;
            }
            held += 1;
        }
        counts.push(held);
        sequences.into_iter().try_for_each(|sequence| pool.close(sequence))?;
    }
    let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
    let requests = counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
    Ok(Capacity { requests, least: least.unwrap_or(0), most: most.unwrap_or(0) })
}

/// Blocks that `strategy` may have.
pub(super) fn blocks(strategy: &Strategy, bench: &Bench, layout: Layout) -> usize {
    (strategy.memory(bench.memory).0 / layout.block_bytes() as u64) as usize
}

/// Takes what `request` holds when its answer is complete, as the scheduler does; whether there was room for it.
fn hold(
    pool: &mut Pool,
    strategy: &Strategy,
    request: &Request,
    context: usize,
) -> Result<(SequenceId, bool), LabError> {
    if strategy.is_contiguous() {
        let sequence = pool.open();
        let is_full = is_full(pool.reserve(sequence, context))?;
        return Ok((sequence, !is_full));
    }
    let begin = if strategy.is_sharing { &request.prompt[..request.prompt.len() - 1] } else { &[] };
    let sequence = pool.open_with_prefix(begin);
    let whole = request.prompt.len() + request.most;
    let portion = strategy.options(context).step_tokens;
    let mut tokens = pool.table(sequence)?.tokens();
    while tokens < whole {
        let next = portion.min(whole - tokens);
        if is_full(pool.append(sequence, next))? {
            return Ok((sequence, false));
        }
        tokens += next;
        if let Some(window) = strategy.window {
            pool.slide(sequence, window)?;
        }
    }
    if strategy.is_sharing {
        pool.publish(sequence, &request.prompt)?;
    }
    Ok((sequence, true))
}
