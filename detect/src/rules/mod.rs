//! Rules that are no slopes: what happens at events, what is left after a release, who owns it, what a pool holds with
//! nothing to do, how little room is left, whether peers hold as much, whether anybody works with it. Each is constant time a sample and a few numbers of state.

mod arena;
mod ebb;
mod headroom;
mod idle;
mod peers;
mod pool;
mod quiet;
mod release;
mod stairs;
mod steps;
mod stretch;

use ebbtide_core::{
    Bytes, EventKind, Evidence, FindingKind, RateBand, Reading, SeriesPart, Severity, Tick, Tier, units::MIB,
};

use crate::budget::Budget;
use crate::explain::Account;
use crate::observation::{Load, Observation};

/// One sample as the rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// When.
    pub(crate) tick: Tick,
    /// The memory that is judged.
    pub(crate) value: Bytes,
    /// The same in MiB.
    pub(crate) mib: f64,
    /// KV cache in use, in MiB, where it is told.
    pub(crate) kv_mib: Option<f64>,
    /// What it can grow to.
    pub(crate) capacity: Reading<Bytes>,
    /// What the engine says of its load.
    pub(crate) load: &'a Load,
    /// Live processes that hold the memory.
    pub(crate) owners: Reading<u32>,
    /// What its peers hold, the median of them.
    pub(crate) peers: Reading<Bytes>,
}

impl<'a> Moment<'a> {
    /// An observation whose value is known.
    pub(crate) fn of(observation: &'a Observation<'_>, value: Bytes) -> Self {
        let load = &observation.load;
        Self {
            tick: observation.tick,
            value,
            mib: value.mib(),
            kv_mib: load.kv_used.ok().map(Bytes::mib),
            capacity: observation.capacity,
            load,
            owners: observation.owners,
            peers: observation.peers,
        }
    }
}

/// What else a rule may ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// How memory follows the KV counter.
    pub(crate) account: Account,
    /// How much evidence a page must carry.
    pub(crate) budget: Budget,
}

/// What a rule says stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    /// What about the series.
    pub(crate) kind: FindingKind,
    /// How sure it is.
    pub(crate) tier: Tier,
    /// How much it matters.
    pub(crate) severity: Severity,
    /// Since when it is so.
    pub(crate) since: Tick,
    /// How much of the memory it is about.
    pub(crate) amount: Bytes,
    /// Whether it accounts for a rise of the same series, so that no slope need be told beside it.
    pub(crate) accounts_for_rise: bool,
    /// How fast it grows, where it does so at a pace.
    pub(crate) rate: Option<RateBand>,
    /// What it rests on.
    pub(crate) evidence: Vec<Evidence>,
    /// One sentence for a person.
    pub(crate) summary: String,
    /// What would settle it.
    pub(crate) settle: &'static str,
}

/// The state of all rules of one series.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    steps: steps::Ledger,
    stairs: stairs::Stairs,
    quiet: quiet::Quiet,
    ebb: ebb::EbbTide,
    release: release::Release,
    pool: pool::PoolUse,
    headroom: headroom::ThinHeadroom,
    peers: peers::Peers,
    arena: arena::Arena,
    idle: idle::Idle,
}

impl Rules {
    /// The most that the rules keep on the heap, in bytes.
    pub(crate) const MAX_HEAP: usize = steps::MAX_HEAP;

    /// The bytes that the rules keep on the heap now.
    pub(crate) fn heap(&self) -> usize {
        self.steps.heap()
    }

    /// Takes an event, before the value that was read with it.
    pub(crate) fn event(&mut self, kind: &EventKind, tick: Tick) {
        self.steps.event(kind, tick);
        self.stairs.event(tick);
        self.release.event(kind, tick);
    }

    /// Takes a sample.
    pub(crate) fn sample(&mut self, moment: &Moment<'_>, part: SeriesPart) {
        self.steps.sample(moment);
        self.release.sample(moment);
        if !matches!(part, SeriesPart::Host(_)) {
            self.stairs.sample(moment);
            self.quiet.sample(moment);
            self.ebb.sample(moment);
            self.pool.sample(moment);
            self.peers.sample(moment);
            self.arena.sample(moment);
            self.idle.sample(moment);
        }
        if part == SeriesPart::Device {
            self.headroom.sample(moment);
        }
    }

    /// What stands now, the weightiest first.
    pub(crate) fn claims(&self, moment: &Moment<'_>, known: Known) -> Vec<Claim> {
        let of_events = self
            .steps
            .claim()
            .or_else(|| self.release.claim(moment))
            .or_else(|| self.stairs.claim(moment, known))
            .or_else(|| self.quiet.claim(moment))
            .or_else(|| self.ebb.claim(moment));
        let mut claims: Vec<Claim> = of_events.into_iter().collect();
        claims.extend(self.pool.claim(moment, known));
        claims.extend(self.peers.claim(moment));
        claims.extend(self.arena.claim(moment));
        claims.extend(self.idle.claim(moment));
        claims.extend(self.headroom.claim(moment));
        claims
    }
}

/// Seconds from one tick to a later one.
fn seconds(from: Tick, to: Tick) -> f64 {
    to.mono_ms.saturating_sub(from.mono_ms) as f64 / 1000.0
}

/// Whether at least so many whole milliseconds, given in seconds, lie between two ticks: asked with each sample, where
/// a division would be the dearest part of it.
#[inline]
fn has_lasted(from: Tick, to: Tick, least_s: f64) -> bool {
    to.mono_ms.saturating_sub(from.mono_ms) >= (least_s * 1000.0) as u64
}

/// An amount from MiB; nothing where it is negative.
fn bytes(mib: f64) -> Bytes {
    Bytes((mib.max(0.0) * MIB as f64) as u64)
}
