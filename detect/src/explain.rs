//! What the load accounts for: does memory follow the engine's KV counter, and is the load at a new maximum.

use crate::blocks::Block;
use crate::ladder::{Closed, Ladder};

/// The rung on which a lagging counter is compared with memory: scrapes come every 5 s at most by habit, and 8 s
/// blocks hold one each.
const COARSE_RUNG: usize = 3;
/// Increments on that rung reach over so many blocks, 32 s: where a counter is 7 s late, memory and counter then still
/// share most of a sudden drop.
const COARSE_SPAN: usize = 4;
/// A block in which the counter moved less than this tells nothing of whether memory follows, in MiB.
const MIN_MOVE: f64 = 1.0;
/// Memory and counter agree on a move if they differ by less than this share of it; what is read within a second is
/// never read at quite the same instant.
const AGREEMENT: f64 = 0.3;
/// The most by which one block moves the notion of a steady drift, in MiB: what a leak of 1 GiB/min adds in a second.
const MAX_DRIFT_STEP: f64 = 16.0;
/// What an allocator rounds to, in MiB: a difference within it is none.
const GRANULE: f64 = 2.0;
/// The share of moves that decides. Votes, not squares: one sudden drop that is read a moment apart would outweigh an
/// hour of agreement.
const MAJORITY: f64 = 0.6;
/// The share of moves below which memory does not follow the counter.
const MINORITY: f64 = 0.3;
/// A counter that has been silent for so long is gone, in seconds: failed scrapes come back sooner, and the longest
/// interval of samples is half of it.
const COUNTER_GONE_S: f64 = 600.0;
/// A load this much above the former peak is a new peak: less is jitter of the counter.
const NEW_PEAK: f64 = 1.02;

/// One quantity of a block that is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The lower envelope.
    Floor,
    /// The mean.
    Mid,
    /// The upper envelope.
    Ceil,
    /// What the KV cache in use leaves.
    Residual,
    /// The same in the calmest seconds of each block: better where the counter comes late.
    CalmResidual,
    /// What the highest KV use so far leaves.
    BeyondPeak,
}

/// How memory follows the engine's KV counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// There is no counter.
    Unknown,
    /// There is one, but it has not moved enough, or not clearly enough, to tell.
    Unlearned,
    /// Memory follows it: allocated on demand. `exact` if it does so at once, second by second.
    OnDemand {
        /// Whether counter and memory agree without lag.
        exact: bool,
    },
    /// Memory does not follow it: a pool reserved ahead, or an allocator that keeps what it once had.
    Pooled,
}

/// How increments of memory follow those of the KV counter, forgetting slowly.
#[derive(Debug, Clone)]
struct Coupling<const SPAN: usize> {
    /// Memory and counter of the blocks just before, in a ring; increments reach back over all of them.
    past: [(f64, f64); SPAN],
    next: usize,
    len: usize,
    moves: u32,
    /// Share of moves on which memory moved at least half as far the same way.
    following: f64,
    /// Share of moves on which both moved alike.
    agreeing: f64,
    drift: f64,
}

impl<const SPAN: usize> Coupling<SPAN> {
    const NEW: Self = Self {
        past: [(0.0, 0.0); SPAN],
        next: 0,
        len: 0,
        moves: 0,
        following: 0.0,
        agreeing: 0.0,
        drift: 0.0,
    };

    fn learn(&mut self, block: &Block) {
        let Some(kv) = block.kv.get() else {
            self.len = 0;
            return;
        };
        let (memory, counter) = (f64::from(block.mid), f64::from(block.mid - kv.residual));
        let (old_memory, old_counter) = std::mem::replace(&mut self.past[self.next], (memory, counter));
        self.next = (self.next + 1) % SPAN;
        if self.len < SPAN {
            self.len += 1;
            return;
        }
        let (du, dk) = (memory - old_memory, counter - old_counter);
        let left = du - dk - self.drift;
        // What is left may drift steadily (a leak does) without making the counter any less exact. A sudden drop read a
        // moment apart is no drift, hence the bound.
        self.drift += left.clamp(-MAX_DRIFT_STEP, MAX_DRIFT_STEP) / 8.0;
        if dk.abs() < MIN_MOVE {
            return;
        }
        self.moves = self.moves.saturating_add(1);
        let vote = |share: &mut f64, aye: bool| {
            let off = f64::from(u8::from(aye)) - *share;
            // The plain mean of the first moves, then one that forgets over the last 64.
            *share += if self.moves < 64 { off / f64::from(self.moves) } else { off * (1.0 / 64.0) };
        };
        vote(&mut self.following, du * dk > 0.5 * dk * dk);
        vote(&mut self.agreeing, left.abs() <= (AGREEMENT * dk.abs()).max(GRANULE));
    }

    fn is_exact(&self) -> bool {
        self.moves >= 8 && self.following >= MAJORITY && self.agreeing >= MAJORITY
    }
}

/// The highest load so far and when it last rose to a new height.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peak {
    reference: f64,
    highest: f64,
    risen_at: Option<f64>,
}

impl Peak {
    fn note(&mut self, at: f64, load: f64) {
        self.highest = self.highest.max(load);
        if load > self.reference * NEW_PEAK {
            (self.reference, self.risen_at) = (load, Some(at));
        }
    }
}

/// All that is known of the load.
#[derive(Debug, Clone)]
pub(crate) struct Explainer {
    fine: Coupling<1>,
    coarse: Coupling<COARSE_SPAN>,
    kv_peak: Peak,
    running_peak: Peak,
    kv_at: Option<f64>,
}

impl Explainer {
    /// Nothing is known of the load.
    pub(crate) fn new() -> Self {
        Self {
            fine: Coupling::NEW,
            coarse: Coupling::NEW,
            kv_peak: Peak::default(),
            running_peak: Peak::default(),
            kv_at: None,
        }
    }

    /// Takes the load of one sample, in MiB and requests; gives the highest KV use so far.
    pub(crate) fn note(&mut self, at: f64, kv: Option<f64>, running: Option<f64>) -> f64 {
        if let Some(kv) = kv {
            self.kv_peak.note(at, kv);
            self.kv_at = Some(at);
        }
        if let Some(running) = running {
            self.running_peak.note(at, running);
        }
        self.kv_peak.highest
    }

    /// Learns from the blocks that closed.
    pub(crate) fn learn(&mut self, ladder: &Ladder, closed: Closed) {
        if let Some(block) = ladder.newest(0).filter(|_| closed.holds(0)) {
            self.fine.learn(&block);
        }
        if let Some(block) = ladder.newest(COARSE_RUNG).filter(|_| closed.holds(COARSE_RUNG)) {
            self.coarse.learn(&block);
        }
    }

    /// How memory follows the KV counter.
    pub(crate) fn account(&self, now: f64) -> Account {
        if self.kv_at.is_none_or(|at| now - at > COUNTER_GONE_S) {
            Account::Unknown
        } else if self.fine.is_exact() {
            Account::OnDemand { exact: true }
        } else if self.coarse.moves < 4 {
            Account::Unlearned
        } else {
            match self.coarse.following {
                share if share >= MAJORITY => Account::OnDemand { exact: false },
                share if share <= MINORITY => Account::Pooled,
                _ => Account::Unlearned,
            }
        }
    }

    /// Share of the counter's moves that memory followed, where that has been learnt.
    pub(crate) fn followed(&self, account: Account) -> Option<f64> {
        match account {
            Account::Unknown | Account::Unlearned => None,
            Account::OnDemand { exact: true } => Some(self.fine.following),
            Account::OnDemand { exact: false } | Account::Pooled => Some(self.coarse.following),
        }
    }

    /// The quantity of a block, in MiB; `None` where the block lacks a counter that it needs.
    pub(crate) fn quantity(&self, basis: Basis, block: &Block) -> Option<f64> {
        match basis {
            Basis::Floor => Some(f64::from(block.floor)),
            Basis::Mid => Some(f64::from(block.mid)),
            Basis::Ceil => Some(f64::from(block.ceil)),
            Basis::Residual => block.kv.get().map(|kv| f64::from(kv.residual)),
            Basis::CalmResidual => block.kv.get().map(|kv| f64::from(kv.calm)),
            Basis::BeyondPeak => block.kv.get().map(|kv| f64::from(kv.beyond_peak)),
        }
    }

    /// Whether the load reached a new maximum since `at`: an allocator may then grow for good reason.
    pub(crate) fn peaked_since(&self, at: f64) -> bool {
        [self.kv_peak, self.running_peak].iter().any(|peak| peak.risen_at.is_some_and(|risen| risen > at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::KvBlock;

    fn account_of(seconds: u32, memory: impl Fn(f64) -> f64, counter: impl Fn(f64) -> f64) -> Account {
        let (mut ladder, mut explainer) = (Ladder::new(), Explainer::new());
        for i in 0..seconds {
            let at = f64::from(i);
            let (value, kv) = (memory(at) as f32, counter(at));
            let peak = explainer.note(at, Some(kv), None) as f32;
            let kv =
                KvBlock { residual: value - kv as f32, calm: value - kv as f32, beyond_peak: value - peak };
            let closed = ladder.push(&Block {
                at,
                floor: value,
                mid: value,
                ceil: value,
                kv,
                running: Some(1.0).into(),
            });
            explainer.learn(&ladder, closed);
        }
        explainer.account(f64::from(seconds))
    }

    fn tide(at: f64) -> f64 {
        500.0 * (at / 40.0).fract()
    }

    #[test]
    fn each_engine_is_told_by_how_its_memory_follows_the_counter() {
        assert_eq!(account_of(90, |t| 900.0 + tide(t), tide), Account::OnDemand { exact: true });
        assert_eq!(account_of(90, |t| 900.0 + tide(t) + 4.0 * t, tide), Account::OnDemand { exact: true });
        let lagging = |t: f64| tide(5.0 * ((t - 2.0).max(0.0) / 5.0).floor());
        assert_eq!(account_of(300, |t| 900.0 + tide(t), lagging), Account::OnDemand { exact: false });
        assert_eq!(account_of(90, |_| 900.0, tide), Account::Pooled);
        assert_eq!(account_of(90, |_| 900.0, |_| 0.0), Account::Unlearned);
    }

    #[test]
    fn a_load_that_stays_below_its_peak_is_no_new_peak() {
        let mut explainer = Explainer::new();
        for i in 0..100 {
            explainer.note(f64::from(i), Some(tide(f64::from(i))), Some(4.0));
        }
        assert!(explainer.peaked_since(38.0));
        assert!(!explainer.peaked_since(40.0));
    }
}
