//! Who may begin, or go on.

use super::queue::{Parked, Remains};
use super::request::{Finish, Job};
use super::{Active, Batching, Placement, Scheduler, SchedulerError, Step};
use crate::kv::{BLOCK_TOKENS, Pool, PoolError, SequenceId};

impl Scheduler {
    /// Lets in whose turn it is while there is room. Nobody is passed over: who does not fit waits at the head.
    pub(super) fn admit(&mut self, pool: &mut Pool, step: &mut Step) -> Result<(), SchedulerError> {
        if self.options.batching == Batching::Static && !self.running.is_empty() {
            return Ok(());
        }
        while self.running.len() < self.options.running_max {
            let is_admitted = match self.queue.pop_parked() {
                Some(parked) => self.readmit(pool, parked, step)?,
                None => self.admit_head(pool, step)?,
            };
            if !is_admitted {
                break;
            }
        }
        Ok(())
    }

    /// Whether somebody was taken out of the line, be it because even alone there is no room for him.
    fn admit_head(&mut self, pool: &mut Pool, step: &mut Step) -> Result<bool, SchedulerError> {
        let Some(job) = self.queue.head() else { return Ok(false) };
        let opened = self.open(pool, job)?;
        if opened.is_none() && !self.running.is_empty() {
            return Ok(false);
        }
        let Some(job) = self.queue.pop_head() else { return Ok(false) };
        match opened {
            Some((sequence, done)) => self.run(Active { job, sequence, done }),
            None => self.starve(&job, step),
        }
        Ok(true)
    }

    /// Goes on with one that gave way; whether it is no longer in line.
    fn readmit(&mut self, pool: &mut Pool, parked: Parked, step: &mut Step) -> Result<bool, SchedulerError> {
        let Parked { job, remains, done } = parked;
        // Room for what remains alone would bring it back only to give way again, were its prompt not all taken yet.
        let whole = self.blocks(job.tokens.len());
        let opened = match &remains {
            Remains::None => self.open(pool, &job)?,
            Remains::Swapped(swapped) if self.has_room(pool, swapped.blocks().max(whole)) => {
                full_is_none(pool.swap_in(swapped))?.map(|sequence| (sequence, done))
            }
            Remains::Offloaded(sequence) if self.has_room(pool, missing(pool, *sequence, whole)?) => {
                full_is_none(pool.restore(*sequence))?.map(|_| (*sequence, done))
            }
            Remains::Swapped(_) | Remains::Offloaded(_) => None,
        };
        if let Some((sequence, done)) = opened {
            self.run(Active { job, sequence, done });
            return Ok(true);
        }
        let is_alone = self.running.is_empty();
        match remains {
            // Even alone: what it held is given up, and so is what others hold while they wait.
            Remains::None if is_alone && !self.give_up_held(pool)? => self.starve(&job, step),
            Remains::Offloaded(sequence) if is_alone => {
                pool.close(sequence)?;
                self.queue.park(Parked { job, remains: Remains::None, done: 0 });
            }
            Remains::Swapped(_) if is_alone => {
                self.queue.park(Parked { job, remains: Remains::None, done: 0 });
            }
            remains => {
                self.queue.park(Parked { job, remains, done });
                return Ok(is_alone);
            }
        }
        Ok(true)
    }

    /// Opens a sequence for `job` where there is room for all that it has to begin with.
    fn open(&self, pool: &mut Pool, job: &Job) -> Result<Option<(SequenceId, usize)>, SchedulerError> {
        let blocks = self.blocks(job.tokens.len());
        if self.options.placement == Placement::Contiguous {
            if !self.has_room(pool, blocks) {
                return Ok(None);
            }
            let sequence = pool.open();
            return match pool.reserve(sequence, self.options.context) {
                Ok(()) => Ok(Some((sequence, 0))),
                Err(error) => {
                    pool.close(sequence)?;
                    full_is_none(Err(error)).map_err(Into::into)
                }
            };
        }
        // The last token is left out: a model needs one to go on from.
        let begin = if self.options.is_sharing { &job.tokens[..job.tokens.len() - 1] } else { &[] };
        if !self.has_room(pool, blocks.saturating_sub(pool.known_prefix(begin) / BLOCK_TOKENS)) {
            return Ok(None);
        }
        let sequence = pool.open_with_prefix(begin);
        let done = pool.table(sequence)?.tokens();
        // What was cached and is shared now was counted as room before.
        if self.has_room(pool, blocks.saturating_sub(done / BLOCK_TOKENS)) {
            Ok(Some((sequence, done)))
        } else {
            pool.close(sequence)?;
            Ok(None)
        }
    }

    /// Blocks that a sequence of `tokens` holds at most before its first new token.
    fn blocks(&self, tokens: usize) -> usize {
        let tokens = match (self.options.placement, self.options.window) {
            (Placement::Contiguous, _) => self.options.context,
            // While its prompt is taken in portions the window moves on behind them; a block is cut at either end.
            (Placement::Paged, Some(window)) => {
                tokens.min(window.sinks + window.tokens + self.options.step_tokens + 2 * BLOCK_TOKENS)
            }
            (Placement::Paged, None) => tokens,
        };
        tokens.div_ceil(BLOCK_TOKENS)
    }

    /// Whether `blocks` are to be had; beside others, without touching the watermark.
    fn has_room(&self, pool: &Pool, blocks: usize) -> bool {
        if self.running.is_empty() { blocks <= pool.available() } else { pool.can_admit(blocks) }
    }

    fn run(&mut self, active: Active) {
        let place = self.running.partition_point(|running| running.job.id < active.job.id);
        self.running.insert(place, active);
    }

    fn starve(&mut self, job: &Job, step: &mut Step) {
        self.counters.starved += 1;
        step.finished.push((job.id, Finish::NoRoom));
    }

    /// Gives up what sequences hold that do not run; whether there was any.
    pub(super) fn give_up_held(&mut self, pool: &mut Pool) -> Result<bool, SchedulerError> {
        let had_retired = self.release_retired(pool)?;
        let offloaded = self.queue.give_up_offloaded();
        offloaded.iter().try_for_each(|sequence| pool.close(*sequence))?;
        Ok(had_retired || !offloaded.is_empty())
    }
}

/// Blocks that `sequence` lacks of `whole`, and at least those of it that are in the host file.
fn missing(pool: &Pool, sequence: SequenceId, whole: usize) -> Result<usize, PoolError> {
    let table = pool.table(sequence)?;
    Ok(table.offloaded().count().max(whole.saturating_sub(table.resident().count())))
}

/// A pool that is full, or whose host has no memory for it, is no failure.
pub(super) fn full_is_none<T>(result: Result<T, PoolError>) -> Result<Option<T>, PoolError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(PoolError::Exhausted { .. } | PoolError::Memory(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
