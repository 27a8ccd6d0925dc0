//! Room for the next step, and who gives way for it.

use super::admission::full_is_none;
use super::queue::{Parked, Remains};
use super::{Active, Finish, Preemption, Scheduler, SchedulerError, Step};
use crate::kv::{HostFileError, Pool, PoolError};

impl Scheduler {
    /// Appends room for what the next step takes; how many tokens of each that runs, the oldest first.
    ///
    /// The youngest gives way, so none that has its room already does: whoever comes later is younger.
    pub(super) fn make_room(
        &mut self,
        pool: &mut Pool,
        step: &mut Step,
    ) -> Result<Vec<usize>, SchedulerError> {
        let generating = self.running.iter().filter(|active| active.pending() == 1).count();
        let mut budget = self.options.step_tokens.saturating_sub(generating);
        let mut portions = Vec::with_capacity(self.running.len());
        while let Some(active) = self.running.get(portions.len()) {
            let wanted = match active.pending() {
                1 => 1,
                pending => pending.min(budget),
            };
            if !self.find_room(pool, portions.len(), wanted, step)? {
                continue;
            }
            if self.running[portions.len()].pending() > 1 {
                budget -= wanted;
            }
            portions.push(wanted);
        }
        Ok(portions)
    }

    /// Appends `tokens` to the sequence at `place`; whether it is still there and has them.
    fn find_room(
        &mut self,
        pool: &mut Pool,
        place: usize,
        tokens: usize,
        step: &mut Step,
    ) -> Result<bool, SchedulerError> {
        while full_is_none(pool.append(self.running[place].sequence, tokens))?.is_none() {
            if self.running.len() > 1 {
                self.preempt_youngest(pool)?;
                if self.running.len() == place {
                    return Ok(false);
                }
            } else if !self.give_up_held(pool)? {
                let id = self.running[place].job.id;
                self.end(pool, id, Finish::NoRoom, step)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn preempt_youngest(&mut self, pool: &mut Pool) -> Result<(), SchedulerError> {
        let Some(Active { job, sequence, done }) = self.running.pop() else { return Ok(()) };
        self.counters.preempted += 1;
        let remains = match self.options.preemption {
            Preemption::Recompute => Remains::None,
            Preemption::Swap => Remains::Swapped(Box::new(pool.swap_out(sequence)?)),
            Preemption::Offload => match pool.offload_cold(sequence, 0) {
                Ok(_) => Remains::Offloaded(sequence),
                Err(PoolError::NoHostFile | PoolError::HostFile(HostFileError::Full { .. })) => Remains::None,
                Err(error) => return Err(error.into()),
            },
        };
        let done = if let Remains::None = remains {
            pool.close(sequence)?;
            0
        } else {
            done
        };
        self.queue.park(Parked { job, remains, done });
        Ok(())
    }
}
