//! Blocks of the KV pool that no request explains: a leak that the driver cannot see, because the pool keeps its size.

use ebbtide_core::{EngineRole, Evidence, FindingKind, KvSemantics, Severity, Tick, Tier};

use super::{Claim, Moment, bytes, seconds};
use crate::sentence;

/// With nothing running for so long, in seconds, every block should be free.
const IDLE_S: f64 = 300.0;
/// Blocks held beyond this are no rounding of a counter, in MiB.
const MIN_HELD: f64 = 16.0;
/// The same as a share of the pool: percent gauges are that coarse.
const MIN_SHARE: f64 = 0.005;
/// The same for a node that reads prompts for another that decodes: it keeps the blocks of what it has read until they
/// are fetched, and those that nobody fetches for minutes more. Well beyond such limits, in seconds.
const PREFILL_IDLE_S: f64 = 3600.0;
/// The least by which a stretch must hold more than the one before, in MiB.
const MIN_RISE: f64 = 8.0;
/// Memory that moves by this share of what the pool's use does is no pool reserved ahead.
const FOLLOWING: f64 = 0.2;

/// The calmest moment of one stretch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Calm {
    running: u32,
    kv: f64,
    memory: f64,
}

/// The calmest moments of so many stretches in a row.
#[derive(Debug, Clone)]
struct Calms<const STRETCHES: usize> {
    stretch_s: f64,
    open: Option<(Tick, Calm)>,
    /// KV cache and running requests over the open stretch, summed: what a request holds.
    held: (f64, f64),
    /// Those of the stretches before, oldest first, and of each what its requests do not explain.
    closed: [Option<(Calm, f64)>; STRETCHES],
}

/// Pools rise by the hour (stretches in which requests end), or from each day's quietest moment to the next's, where
/// no ten minutes are calm.
type Hour = Calms<6>;
/// See [`Hour`].
type Days = Calms<3>;

/// How the KV pool is used.
#[derive(Debug, Clone)]
pub(super) struct PoolUse {
    idle_since: Option<(Tick, f64)>,
    hour: Hour,
    days: Days,
    began: Option<Tick>,
}

impl Default for PoolUse {
    fn default() -> Self {
        Self { idle_since: None, hour: Calms::of(600.0), days: Calms::of(86_400.0), began: None }
    }
}

impl<const STRETCHES: usize> Calms<STRETCHES> {
    const fn of(stretch_s: f64) -> Self {
        Self { stretch_s, open: None, held: (0.0, 0.0), closed: [None; STRETCHES] }
    }

    fn sample(&mut self, tick: Tick, now: Calm) {
        match &mut self.open {
            Some((since, _)) if seconds(*since, tick) >= self.stretch_s => self.close(tick, now),
            Some((_, calm)) => {
                if (now.running, now.kv) < (calm.running, calm.kv) {
                    *calm = now;
                }
            }
            None => self.open = Some((tick, now)),
        }
        self.held.0 += now.kv;
        self.held.1 += f64::from(now.running);
    }

    fn close(&mut self, tick: Tick, now: Calm) {
        let (kv, running) = std::mem::replace(&mut self.held, (0.0, 0.0));
        // What a request holds on average takes in what is leaked: at the calmest moment, when few run, too much is
        // then explained rather than too little, and nothing where none runs.
        let each = if running > 0.0 { kv / running } else { 0.0 };
        let ended = self.open.replace((tick, now)).map(|(_, calm)| calm);
        self.closed.rotate_left(1);
        self.closed[STRETCHES - 1] = ended.map(|calm| (calm, calm.kv - each * f64::from(calm.running)));
    }

    /// What the unexplained part has risen by, where each stretch holds more than the one before, with no more
    /// requests, while memory keeps its size: an engine that allocates on demand shows such a rise in its memory.
    fn risen(&self) -> Option<f64> {
        let mut calms = [(Calm { running: 0, kv: 0.0, memory: 0.0 }, 0.0); STRETCHES];
        for (calm, kept) in calms.iter_mut().zip(self.closed) {
            *calm = kept?;
        }
        let by_the_day = self.stretch_s > 3600.0;
        let rises = |pair: &[(Calm, f64)]| {
            let ((before, left_before), (now, left)) = (pair[0], pair[1]);
            now.kv >= before.kv + MIN_RISE
                && if by_the_day { left >= left_before + MIN_RISE } else { now.running <= before.running }
        };
        let grown = calms[STRETCHES - 1].0.kv - calms[0].0.kv;
        let moved = (calms[STRETCHES - 1].0.memory - calms[0].0.memory).abs();
        (moved < FOLLOWING * grown && calms.windows(2).all(rises)).then_some(grown)
    }

    const fn span_s(&self) -> f64 {
        self.stretch_s * STRETCHES as f64
    }
}

impl PoolUse {
    /// Takes a sample.
    pub(super) fn sample(&mut self, moment: &Moment) {
        let Ok(kv) = moment.load.kv_used.map(ebbtide_core::Bytes::mib) else {
            self.idle_since = None;
            return;
        };
        let running = moment.load.running;
        let is_idle = running == Ok(0) && moment.load.waiting.unwrap_or(0) == 0;
        self.idle_since = match self.idle_since {
            Some((since, held)) if is_idle => Some((since, held.min(kv))),
            _ => is_idle.then_some((moment.tick, kv)),
        };
        self.began.get_or_insert(moment.tick);
        let now = Calm { running: running.unwrap_or(0), kv, memory: moment.value.mib() };
        self.hour.sample(moment.tick, now);
        self.days.sample(moment.tick, now);
    }

    /// Whether blocks are held without a reason.
    pub(super) fn claim(&self, moment: &Moment) -> Option<Claim> {
        if moment.load.semantics == KvSemantics::ReferencedAndCached {
            return None;
        }
        self.held_at_idle(moment).or_else(|| self.rising(moment))
    }

    fn held_at_idle(&self, moment: &Moment) -> Option<Claim> {
        let (since, held) = self.idle_since?;
        let lasted = seconds(since, moment.tick);
        let needed = moment.load.kv_pool.map_or(MIN_HELD, |pool| (MIN_SHARE * pool.mib()).max(MIN_HELD));
        let is_prefill = moment.load.role == EngineRole::Prefill;
        let idle_s = if is_prefill { PREFILL_IDLE_S } else { IDLE_S };
        (lasted >= idle_s && held >= needed).then(|| Claim {
            kind: FindingKind::KvPoolLeak,
            tier: Tier::Confirmed,
            severity: Severity::Warning,
            since,
            amount: bytes(held),
            accounts_for_rise: false,
            evidence: vec![
                Evidence::against("held-at-idle", held, "MiB", needed),
                Evidence::against("idle", lasted, "s", idle_s),
            ],
            summary: sentence::pool_at_idle(bytes(held), lasted, is_prefill),
            settle: sentence::SETTLE_POOL,
        })
    }

    fn rising(&self, moment: &Moment) -> Option<Claim> {
        let hour = self.hour.risen().map(|grown| (grown, self.hour.stretch_s, self.hour.span_s()));
        let days = || self.days.risen().map(|grown| (grown, self.days.stretch_s, self.days.span_s()));
        let (grown, stretch_s, span_s) = hour.or_else(days)?;
        let is_seen = moment.load.running.is_ok() && moment.load.semantics != KvSemantics::Unknown;
        let is_sure = is_seen && moment.load.role != EngineRole::Prefill;
        Some(Claim {
            kind: FindingKind::KvPoolLeak,
            tier: if is_sure { Tier::Confirmed } else { Tier::Early },
            severity: Severity::Warning,
            since: self.began.unwrap_or(moment.tick),
            amount: bytes(grown),
            accounts_for_rise: false,
            evidence: vec![
                Evidence::new("least-held-rose", grown, "MiB"),
                Evidence::new("stretches", (span_s / stretch_s).round(), ""),
                Evidence::new("stretch", stretch_s, "s"),
            ],
            summary: sentence::pool_rising(bytes(grown), span_s, is_seen),
            settle: sentence::SETTLE_POOL,
        })
    }
}
