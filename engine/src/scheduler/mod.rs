//! Continuous batching: which sequences go through the model in the next step, and with how many tokens.
//!
//! ```text
//! submit -> Queue -> admit -> running -> [Item] -> Forward::step -> sample -> Step { tokens, finished }
//!             ^                  |
//!             +---- preempt -----+      the youngest gives way; the oldest always goes on
//! ```
//!
//! A step has a budget of tokens. Sequences that generate take one each, prompts share the rest, the oldest first, so
//! that a long prompt is taken in portions beside the others' answers. There is one path for all strategies: paged
//! and contiguous placement differ in what is reserved at admission, dynamic and static batches in when admission is
//! open. Nothing here knows what computes ([`Forward`]) or where blocks lie ([`kv::Memory`](crate::kv::Memory)):
//! those two are where a GPU can stand.
//!
//! **Fairness.** Clients take turns, each client's requests come in their order, and nobody overtakes the one whose
//! turn it is, however little he needs. Who was preempted comes before all who never ran. Running requests end,
//! because their length is bounded, so every request is served.

mod admission;
mod preemption;
mod queue;
mod request;
mod sampling;
#[cfg(test)]
mod tests;

use std::num::NonZeroU64;

pub use request::{ClientId, Finish, Request, RequestId};
pub use sampling::Sampling;

use crate::forward::{Forward, Item, Logits, StepError};
use crate::kv::{Discrepancy, Pool, PoolError, SequenceId, Token, Window};
use queue::Queue;
use request::Job;

/// Requests that may wait: at a hundred bytes and a prompt each they are a few MiB, and whoever comes later is better
/// told so than served an hour later.
pub const WAITING_MAX: usize = 4096;

/// What happens to a sequence that gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preemption {
    /// It is computed anew later, but for what is still cached then.
    #[default]
    Recompute,
    /// Its blocks wait in host memory.
    Swap,
    /// Its blocks wait in the pool's host file, where it has one and that has room; else it is computed anew.
    Offload,
}

/// When requests are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Batching {
    /// Whenever there is room.
    #[default]
    Dynamic,
    /// When the whole batch before has ended; until then who has ended keeps what he holds.
    Static,
}

/// What is taken for a sequence at admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Nothing ahead: blocks come as tokens do.
    #[default]
    Paged,
    /// The model's whole context at once, in one piece where the pool's extents are that large, and nothing shared.
    Contiguous,
}

/// How requests are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Tokens a step takes; at least [`Self::running_max`], so that nobody who generates has to stand back.
    pub step_tokens: usize,
    /// Sequences that run at once.
    pub running_max: usize,
    /// Tokens a sequence may have.
    pub context: usize,
    /// Who is shared with whom: nobody, or whoever begins with the same tokens.
    pub is_sharing: bool,
    /// What attention still looks at; all where there is none.
    pub window: Option<Window>,
    /// What happens to a sequence that gives way.
    pub preemption: Preemption,
    /// When requests are admitted.
    pub batching: Batching,
    /// What is taken at admission.
    pub placement: Placement,
    /// Whether the pool's books are gone through after every step; debug builds do so at every operation.
    pub is_audited: bool,
}

impl Options {
    /// Dynamic batches of 16 over a paged cache with shared prefixes, for a model of `context` tokens.
    #[must_use]
    pub const fn of_context(context: usize) -> Self {
        Self {
            step_tokens: 256,
            running_max: 16,
            context,
            is_sharing: true,
            window: None,
            preemption: Preemption::Recompute,
            batching: Batching::Dynamic,
            placement: Placement::Paged,
            is_audited: cfg!(debug_assertions),
        }
    }
}

/// A step that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// The pool failed in another way than by being full.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The model could not be computed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The pool's books do not balance.
    #[error(transparent)]
    Audit(#[from] Discrepancy),
}

/// A request that is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too many wait.
    #[error("{WAITING_MAX} requests wait already; send fewer, or later")]
    Full,
    /// There is nothing to go on from.
    #[error("a prompt has at least one token")]
    Empty,
    /// The prompt leaves no room for an answer.
    #[error("the prompt has {tokens} tokens and the model's context {context}; shorten it")]
    TooLong {
        /// Of the prompt.
        tokens: usize,
        /// What the scheduler allows.
        context: usize,
    },
}

/// How often what has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Steps made.
    pub steps: u64,
    /// Tokens of prompts that went through the model, those computed anew among them.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Requests taken.
    pub submitted: u64,
    /// Requests that ended with an answer, whole or cut short by its length.
    pub served: u64,
    /// Requests that ended because there was no room for them.
    pub starved: u64,
    /// Requests given up by whoever sent them.
    pub cancelled: u64,
    /// Times a sequence gave way.
    pub preempted: u64,
}

/// What a step brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Tokens that went through the model.
    pub processed: usize,
    /// New tokens, by request.
    pub tokens: Vec<(RequestId, Token)>,
    /// Requests that ended, and how.
    pub finished: Vec<(RequestId, Finish)>,
}

/// A sequence in the pool that goes on.
#[derive(Debug)]
struct Active {
    job: Job,
    sequence: SequenceId,
    /// Tokens whose keys and values are in the pool.
    done: usize,
}

impl Active {
    const fn pending(&self) -> usize {
        self.job.tokens.len() - self.done
    }
}

/// Who waits, who runs.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    queue: Queue,
    /// By [`RequestId`]: the oldest first.
    running: Vec<Active>,
    /// Sequences of a static batch that have ended before it.
    retired: Vec<SequenceId>,
    counters: Counters,
    next: u64,
    closed: u64,
    forget_every: Option<NonZeroU64>,
}

impl Scheduler {
    /// An idle scheduler.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let options = Options { step_tokens: options.step_tokens.max(options.running_max), ..options };
        Self {
            options,
            queue: Queue::default(),
            running: Vec::new(),
            retired: Vec::new(),
            counters: Counters::default(),
            next: 0,
            closed: 0,
            forget_every: None,
        }
    }

    /// Takes `request`, to be served in turn. Its answer is cut to what the context leaves.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn submit(&mut self, request: Request) -> Result<RequestId, Refusal> {
        let (tokens, context) = (request.prompt.len(), self.options.context);
        if tokens == 0 {
            return Err(Refusal::Empty);
        } else if tokens >= context {
            return Err(Refusal::TooLong { tokens, context });
        } else if self.queue.len() >= WAITING_MAX {
            return Err(Refusal::Full);
        }
        let id = RequestId(self.next);
        self.next += 1;
        self.counters.submitted += 1;
        self.queue.push(Job::new(id, request, context));
        Ok(id)
    }

    /// Gives `request` up, wherever it is; whether it was still there.
    ///
    /// # Errors
    /// Where the pool fails.
    pub fn cancel(&mut self, pool: &mut Pool, request: RequestId) -> Result<bool, SchedulerError> {
        let place = self.running.iter().position(|active| active.job.id == request);
        let is_found = if let Some(place) = place {
            let active = self.running.remove(place);
            pool.close(active.sequence)?;
            true
        } else if let Some(held) = self.queue.remove(request) {
            held.into_iter().try_for_each(|sequence| pool.close(sequence))?;
            true
        } else {
            false
        };
        self.counters.cancelled += u64::from(is_found);
        Ok(is_found)
    }

    /// Leaks on purpose from now on: of every so many requests one loses a reference to a block when it ends.
    pub const fn forget_every(&mut self, requests: Option<NonZeroU64>) {
        self.forget_every = requests;
    }

    /// How it schedules.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Sequences that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait, those that gave way among them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queue.len() == 0
    }

    /// How often what has happened.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Admits who has room, takes one step through `forward`, and samples.
    ///
    /// # Errors
    /// Where pool or model fail. A pool that is full is no failure: somebody gives way.
    pub fn step(
        &mut self,
        pool: &mut Pool,
        forward: &mut (impl Forward + ?Sized),
    ) -> Result<Step, SchedulerError> {
        let mut step = Step::default();
        self.admit(pool, &mut step)?;
        let portions = self.make_room(pool, &mut step)?;
        if !portions.is_empty() {
            let sampled = self.compute(pool, forward, &portions)?;
            self.take(pool, &portions, sampled, &mut step)?;
        }
        if self.running.is_empty() {
            self.release_retired(pool)?;
        }
        if self.options.is_audited {
            pool.audit()?;
        }
        Ok(step)
    }

    /// One pass through the model; for each portion its next token, where it has come to its end.
    fn compute(
        &mut self,
        pool: &mut Pool,
        forward: &mut (impl Forward + ?Sized),
        portions: &[usize],
    ) -> Result<Vec<Option<Token>>, SchedulerError> {
        let portions = self.running.iter().zip(portions);
        let items: Vec<Item<'_>> = portions.map(|(active, tokens)| portion(active, *tokens)).collect();
        let wanted: Vec<bool> = items.iter().map(|item| item.logits == Logits::Last).collect();
        let items: Vec<Item<'_>> = items.into_iter().filter(|item| !item.tokens.is_empty()).collect();
        let mut rows = forward.step(pool, &items)?.iter();
        let jobs = self.running.iter_mut().zip(wanted);
        Ok(jobs
            .map(|(active, is_wanted)| {
                let row = if is_wanted { rows.next() } else { None };
                row.map(|row| active.job.sampler.next(row))
            })
            .collect())
    }

    /// Enters what a pass has brought.
    fn take(
        &mut self,
        pool: &mut Pool,
        portions: &[usize],
        sampled: Vec<Option<Token>>,
        step: &mut Step,
    ) -> Result<(), SchedulerError> {
        self.counters.steps += 1;
        let mut ended = Vec::new();
        for ((active, &tokens), sampled) in self.running.iter_mut().zip(portions).zip(sampled) {
            active.done += tokens;
            step.processed += tokens;
            let prompt = tokens - usize::from(active.done > active.job.prompt).min(tokens);
            self.counters.prompt_tokens += prompt as u64;
            if self.options.is_sharing && self.options.placement == Placement::Paged {
                pool.publish(active.sequence, &active.job.tokens[..active.done])?;
            }
            if let Some(window) = self.options.window {
                pool.slide(active.sequence, window)?;
            }
            let Some(token) = sampled else { continue };
            self.counters.generated_tokens += 1;
            let finish = active.job.push(token);
            step.tokens.push((active.job.id, token));
            ended.extend(finish.map(|finish| (active.job.id, finish)));
        }
        for (id, finish) in ended {
            self.end(pool, id, finish, step)?;
        }
        Ok(())
    }

    /// Ends a request that runs.
    fn end(
        &mut self,
        pool: &mut Pool,
        id: RequestId,
        finish: Finish,
        step: &mut Step,
    ) -> Result<(), SchedulerError> {
        let Some(place) = self.running.iter().position(|active| active.job.id == id) else { return Ok(()) };
        let active = self.running.remove(place);
        match finish {
            Finish::NoRoom => self.counters.starved += 1,
            Finish::Stop | Finish::Length => self.counters.served += 1,
        }
        step.finished.push((id, finish));
        self.closed += 1;
        if self.forget_every.is_some_and(|every| self.closed.is_multiple_of(every.get())) {
            pool.forget(active.sequence, 1)?;
        } else if self.options.batching == Batching::Static {
            self.retired.push(active.sequence);
        } else {
            pool.close(active.sequence)?;
        }
        Ok(())
    }

    fn release_retired(&mut self, pool: &mut Pool) -> Result<bool, SchedulerError> {
        let had_some = !self.retired.is_empty();
        self.retired.drain(..).try_for_each(|sequence| pool.close(sequence))?;
        Ok(had_some)
    }
}

/// What of `active` goes through the model: `tokens` that it has room for.
fn portion(active: &Active, tokens: usize) -> Item<'_> {
    let end = active.done + tokens;
    let logits = if tokens > 0 && end == active.job.tokens.len() { Logits::Last } else { Logits::None };
    Item {
        sequence: active.sequence,
        tokens: &active.job.tokens[active.done..end],
        start: active.done,
        logits,
    }
}
