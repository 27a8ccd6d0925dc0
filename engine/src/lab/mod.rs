//! The laboratory: strategies of a KV cache side by side, with what each gives and what it costs.
//!
//! ```text
//! Strategy -> capacity   requests of full length that the memory holds before one is refused
//!          -> service    a load served by scheduler and model: memory by the kernel's accounts, waste, time
//!          -> pace       tokens a second of a prompt, and of the answer behind it
//!          -> judgement  how likely text is that the model has not seen, against 16-bit floats
//! ```
//!
//! Strategies are options of one scheduler over one pool ([`crate::scheduler::Options`], [`crate::kv::Layout`]), so
//! that what differs is the strategy. All of them get the same memory, the same requests, and the same text. Memory
//! and its shares follow from the arguments alone; times do not.

mod capacity;
mod figure;
mod judgement;
mod pace;
mod service;
mod strategy;
#[cfg(test)]
mod tests;

use ebbtide_core::Bytes;
use serde::Serialize;

pub use capacity::Capacity;
pub use figure::{Figure, Limit};
pub use judgement::Judgement;
pub use pace::Pace;
pub use service::{Point, Service};
pub use strategy::Strategy;

use crate::forward::{Forward, StepError};
use crate::kv::{BLOCK_TOKENS, Format, HostFileError, Pool, PoolError, Token, Window};
use crate::load::{Arrival, Lengths, Load, Texts, Trace};
use crate::scheduler::{Refusal, SchedulerError};
use crate::vram::VramError;
use judgement::Baseline;

/// Text that the bundled model was not trained on (`engine/models/tiny/README.md`).
pub const HELD_OUT: &str = include_str!("../../models/tiny/heldout.txt");

/// Sequences that run at once.
const RUNNING: usize = 16;
/// Slots of the whole context that the memory holds in 16-bit floats: few, as on a card that is filled by its model,
/// and enough for one that is refused to be one among several.
const SLOTS: usize = 4;
/// Tokens a request of the load may have, where the memory of the host allows: 97 of 100 requests of the trace are
/// shorter than half of it, so that their lengths are their own. A model that was trained on less says nothing sensible
/// beyond, and its cache fills all the same.
const CONTEXT: usize = 8192;
/// Tokens of one judged text: four windows, and no more than most models were trained on.
const JUDGED: usize = 2048;
/// First tokens that a window keeps: a block, the least that can be kept.
const SINKS: usize = BLOCK_TOKENS;

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scope {
    /// Requests that each strategy serves.
    pub requests: usize,
    /// Tokens that a request may have; longer ones of the load are cut.
    pub context: usize,
    /// Texts that are judged.
    pub texts: usize,
    /// Tokens of each.
    pub text_tokens: usize,
    /// Times that speed is measured at least, where it is more than one; the best counts.
    pub rounds: usize,
    /// Times that memory is filled with requests.
    pub draws: usize,
    /// Draws what is said in the load.
    pub seed: u64,
}

impl Scope {
    /// What takes less than a minute with the bundled model, for a model trained on `trained` tokens.
    #[must_use]
    pub fn quick(trained: usize) -> Self {
        let text_tokens = trained.clamp(8 * BLOCK_TOKENS, JUDGED);
        Self { requests: 32, context: CONTEXT, texts: 16, text_tokens, rounds: 3, draws: 8, seed: 1 }
    }

    /// All of the text as well: minutes with a model of 100 million parameters.
    #[must_use]
    pub fn full(trained: usize) -> Self {
        Self { texts: usize::MAX, ..Self::quick(trained) }
    }

    /// The window that is tried: a quarter of a judged text, by whole blocks.
    #[must_use]
    pub const fn window(&self) -> Window {
        Window { tokens: self.text_tokens / 4 / BLOCK_TOKENS * BLOCK_TOKENS, sinks: SINKS }
    }
}

/// What strategies are tried on.
pub struct Subject<'a> {
    /// What the model is called.
    pub name: &'a str,
    /// The model.
    pub forward: &'a mut dyn Forward,
    /// Text to judge, as the model's tokens.
    pub text: &'a [Token],
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Of which model.
    pub model: String,
    /// How much was tried, as far as the text and the host's memory went.
    pub scope: Scope,
    /// What each strategy may hold.
    pub memory_bytes: Bytes,
    /// Bytes that a token takes in 16-bit floats.
    pub token_bytes: Bytes,
    /// Mean lengths of the load as it was recorded.
    pub recorded: Lengths,
    /// Mean lengths of the requests that were served of it.
    pub served: Lengths,
    /// One for each strategy; [`Strategy::plain`] is among them.
    pub rows: Vec<Row>,
    /// What is reached of what is wanted.
    pub figures: Vec<Figure>,
}

/// What was found of one strategy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// What it is.
    #[serde(skip)]
    pub strategy: Strategy,
    /// What it may hold.
    pub memory_bytes: Bytes,
    /// Bytes a token takes, padding of extents included.
    pub token_bytes: f64,
    /// Requests that its memory holds.
    pub capacity: Capacity,
    /// The load.
    pub service: Service,
    /// One request.
    pub pace: Pace,
    /// Text.
    pub judgement: Judgement,
}

impl Row {
    /// Its name without the placement that most have.
    fn label(&self) -> &str {
        self.name.strip_prefix("paged, ").unwrap_or(&self.name)
    }
}

/// The laboratory cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// There is too little text.
    #[error(
        "the text has {tokens} tokens and {needed} are judged together; give a longer one, or judge fewer"
    )]
    ShortText {
        /// It has.
        tokens: usize,
        /// It needs.
        needed: usize,
    },
    /// The host has too little memory.
    #[error("a cache of {needed} is tried and the host has {available} to give; try a smaller context")]
    Room {
        /// For the smallest trial.
        needed: Bytes,
        /// Without harm.
        available: Bytes,
    },
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The kernel does not tell what is held.
    #[error(transparent)]
    Memory(#[from] VramError),
    /// The host file failed.
    #[error(transparent)]
    HostFile(#[from] HostFileError),
    /// A step of the load failed.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// A request of the load was not taken.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A step failed.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// Tries all strategies on `subject`; `told` hears what is being done.
///
/// # Errors
/// See [`LabError`].
pub fn run(subject: &mut Subject<'_>, scope: Scope, told: &mut dyn FnMut(&str)) -> Result<Outcome, LabError> {
    let bench = Bench::new(subject, scope)?;
    let strategies = Strategy::all(bench.scope.window());
    let mut rows = Vec::with_capacity(strategies.len());
    let mut tried = Tried::default();
    for (at, strategy) in (1..).zip(&strategies) {
        let mut told =
            |what: &str| told(&format!("{at} of {}: {}: {what}", strategies.len(), strategy.name()));
        rows.push(bench.row(subject, *strategy, &mut tried, &mut told)?);
    }
    let figures = figure::of(&rows);
    let (recorded, served) = (bench.load().lengths().0, bench.lengths());
    let Bench { scope, memory, .. } = bench;
    let token_bytes =
        Bytes(Strategy::plain().block_bytes(subject.forward.geometry().kv())? / BLOCK_TOKENS as u64);
    let model = subject.name.to_owned();
    Ok(Outcome { model, scope, memory_bytes: memory, token_bytes, recorded, served, rows, figures })
}

/// The same for all strategies.
struct Bench {
    scope: Scope,
    /// What a strategy may hold.
    memory: Bytes,
    vocab: usize,
    arrivals: Vec<Arrival>,
}

/// What strategies have in common is found once: texts do not see placement, nor does one request see others.
#[derive(Default)]
struct Tried {
    baseline: Option<Baseline>,
    judgements: Vec<(Kept, Judgement)>,
    paces: Vec<((Kept, bool), Pace)>,
}

/// What is kept of tokens, and how.
type Kept = (Format, Option<Window>);

impl Bench {
    fn new(subject: &Subject<'_>, mut scope: Scope) -> Result<Self, LabError> {
        let (tokens, needed) = (subject.text.len(), scope.text_tokens + 1);
        if tokens < needed {
            return Err(LabError::ShortText { tokens, needed });
        }
        scope.texts = scope.texts.clamp(1, (tokens - 1) / scope.text_tokens);
        let geometry = subject.forward.geometry();
        let block = Strategy::plain().block_bytes(geometry.kv())?;
        let memory = |context: usize| Bytes((SLOTS * context.div_ceil(BLOCK_TOKENS)) as u64 * block);
        let available = crate::room::available().unwrap_or(Bytes(u64::MAX));
        // Half of it is left to whoever else is there.
        while memory(scope.context).0 > available.0 / 2 {
            scope.context /= 2;
            if scope.context < 8 * BLOCK_TOKENS {
                return Err(LabError::Room { needed: memory(scope.context), available });
            }
        }
        let mut bench =
            Self { scope, memory: memory(scope.context), vocab: geometry.vocab, arrivals: Vec::new() };
        bench.arrivals = bench.load().due(std::time::Duration::ZERO, 0);
        Ok(bench)
    }

    /// The requests that each strategy serves.
    fn load(&self) -> Load {
        Load::closed(self.scope.requests, Trace::Chat, self.scope.context)
    }

    /// Their mean lengths.
    fn lengths(&self) -> Lengths {
        let mean = |tokens: fn(&Arrival) -> usize| {
            self.arrivals.iter().map(tokens).sum::<usize>() as f64 / self.arrivals.len().max(1) as f64
        };
        Lengths { prompt: mean(|arrival| arrival.prompt), answer: mean(|arrival| arrival.answer) }
    }

    fn texts(&self) -> Texts {
        Texts::new(self.vocab, self.scope.context, self.scope.seed)
    }

    fn row(
        &self,
        subject: &mut Subject<'_>,
        strategy: Strategy,
        tried: &mut Tried,
        told: &mut dyn FnMut(&str),
    ) -> Result<Row, LabError> {
        let layout = strategy.layout(subject.forward.geometry().kv(), self.scope.context)?;
        let extent_tokens = (layout.extent_blocks() * BLOCK_TOKENS) as f64;
        told("filling the memory");
        let capacity = capacity::measure(self, &strategy, layout)?;
        told("serving the load");
        let service = service::measure(self, &strategy, layout, subject.forward)?;
        let pace = self.pace(subject, strategy, tried, told)?;
        let judgement = self.judgement(subject, strategy, tried, told)?;
        Ok(Row {
            name: strategy.name(),
            strategy,
            memory_bytes: strategy.memory(self.memory),
            token_bytes: layout.extent_bytes() as f64 / extent_tokens,
            capacity,
            service,
            pace,
            judgement,
        })
    }

    fn pace(
        &self,
        subject: &mut Subject<'_>,
        strategy: Strategy,
        tried: &mut Tried,
        told: &mut dyn FnMut(&str),
    ) -> Result<Pace, LabError> {
        let key = ((strategy.format, strategy.window), strategy.is_contiguous());
        if let Some((_, found)) = tried.paces.iter().find(|(tried, _)| *tried == key) {
            return Ok(*found);
        }
        told("timing a prompt and an answer");
        let pace = pace::measure(&self.scope, &strategy, subject)?;
        tried.paces.push((key, pace));
        Ok(pace)
    }

    fn judgement(
        &self,
        subject: &mut Subject<'_>,
        strategy: Strategy,
        tried: &mut Tried,
        told: &mut dyn FnMut(&str),
    ) -> Result<Judgement, LabError> {
        let key = (strategy.format, strategy.window);
        if let Some((_, found)) = tried.judgements.iter().find(|(tried, _)| *tried == key) {
            return Ok(*found);
        }
        told("judging text");
        let baseline = match tried.baseline.take() {
            Some(baseline) => baseline,
            None => Baseline::of(&self.scope, subject)?,
        };
        let judgement = baseline.judge(&self.scope, &strategy, subject)?;
        tried.baseline = Some(baseline);
        tried.judgements.push((key, judgement));
        Ok(judgement)
    }
}

/// A pool that is full is no failure.
fn is_full(result: Result<(), PoolError>) -> Result<bool, PoolError> {
    match result {
        Ok(()) => Ok(false),
        Err(PoolError::Exhausted { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// A pool for one text of so many tokens and a portion to spare.
fn pool_for(strategy: &Strategy, subject: &Subject<'_>, tokens: usize) -> Result<Pool, LabError> {
    let layout = strategy.layout(subject.forward.geometry().kv(), tokens.next_multiple_of(BLOCK_TOKENS))?;
    strategy.pool(layout, strategy.pool_options(tokens.div_ceil(BLOCK_TOKENS) + 1))
}
