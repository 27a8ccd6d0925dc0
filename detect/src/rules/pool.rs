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
/// Stretches over which the least held is compared, in seconds: requests end within them.
const STRETCH_S: f64 = 600.0;
/// Stretches in a row that must each hold more than the one before: an hour.
const STRETCHES: usize = 6;
/// The least by which each must, in MiB.
const MIN_RISE: f64 = 8.0;

/// The calmest moment of one stretch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Calm {
    running: u32,
    kv: f64,
    memory: f64,
}

/// How the KV pool is used.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolUse {
    idle_since: Option<(Tick, f64)>,
    stretch: Option<(Tick, Calm)>,
    /// The calmest moments of the stretches before, oldest first.
    calms: [Option<Calm>; STRETCHES],
    began: Option<Tick>,
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
        match &mut self.stretch {
            Some((since, _)) if seconds(*since, moment.tick) >= STRETCH_S => self.close(moment.tick, now),
            Some((_, calm)) => {
                if (now.running, now.kv) < (calm.running, calm.kv) {
                    *calm = now;
                }
            }
            None => self.stretch = Some((moment.tick, now)),
        }
    }

    fn close(&mut self, tick: Tick, now: Calm) {
        let ended = self.stretch.replace((tick, now)).map(|(_, calm)| calm);
        self.calms.rotate_left(1);
        self.calms[STRETCHES - 1] = ended;
    }

    /// Whether blocks are held without a reason.
    pub(super) fn claim(&self, moment: &Moment) -> Option<Claim> {
        if moment.load.semantics == KvSemantics::ReferencedAndCached {
            return None;
        }
        // A prompt's blocks wait for the peer that writes the answer, and nothing runs here meanwhile.
        let idle = if moment.load.role == EngineRole::Prefill { None } else { self.held_at_idle(moment) };
        idle.or_else(|| self.rising(moment))
    }

    fn held_at_idle(&self, moment: &Moment) -> Option<Claim> {
        let (since, held) = self.idle_since?;
        let lasted = seconds(since, moment.tick);
        let needed = moment.load.kv_pool.map_or(MIN_HELD, |pool| (MIN_SHARE * pool.mib()).max(MIN_HELD));
        (lasted >= IDLE_S && held >= needed).then(|| Claim {
            kind: FindingKind::KvPoolLeak,
            tier: Tier::Confirmed,
            severity: Severity::Warning,
            since,
            amount: bytes(held),
            accounts_for_rise: false,
            evidence: vec![
                Evidence::against("held-at-idle", held, "MiB", needed),
                Evidence::against("idle", lasted, "s", IDLE_S),
            ],
            summary: sentence::pool_at_idle(bytes(held), lasted),
            settle: sentence::SETTLE_POOL,
        })
    }

    /// Each stretch holds more at its calmest than the one before, with no more requests, while memory keeps its size.
    /// An engine that allocates on demand shows such a rise in its memory.
    fn rising(&self, moment: &Moment) -> Option<Claim> {
        let mut calms = [Calm { running: 0, kv: 0.0, memory: 0.0 }; STRETCHES];
        for (calm, kept) in calms.iter_mut().zip(self.calms) {
            *calm = kept?;
        }
        let rises = |pair: &[Calm]| pair[1].kv >= pair[0].kv + MIN_RISE && pair[1].running <= pair[0].running;
        let grown = calms[STRETCHES - 1].kv - calms[0].kv;
        let is_pool = (calms[STRETCHES - 1].memory - calms[0].memory).abs() < 0.2 * grown;
        let is_seen = moment.load.running.is_ok() && moment.load.semantics != KvSemantics::Unknown;
        (is_pool && calms.windows(2).all(rises)).then(|| Claim {
            kind: FindingKind::KvPoolLeak,
            tier: if is_seen { Tier::Confirmed } else { Tier::Early },
            severity: Severity::Warning,
            since: self.began.unwrap_or(moment.tick),
            amount: bytes(grown),
            accounts_for_rise: false,
            evidence: vec![
                Evidence::new("least-held-rose", grown, "MiB"),
                Evidence::new("stretches", STRETCHES as f64, ""),
                Evidence::new("stretch", STRETCH_S, "s"),
            ],
            summary: sentence::pool_rising(bytes(grown), STRETCH_S * STRETCHES as f64, is_seen),
            settle: sentence::SETTLE_POOL,
        })
    }
}
