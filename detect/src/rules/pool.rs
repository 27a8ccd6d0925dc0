//! Blocks of the KV pool that no request explains: a leak that the driver cannot see, because the pool keeps its size.

use ebbtide_core::{EngineRole, Evidence, FindingKind, KvSemantics, Severity, Tick, Tier};

use super::{Claim, Known, Moment, bytes, seconds};
use crate::explain::Account;
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
/// Stretches in which requests end, in seconds: their calmest moments are compared with each other.
const HOURLY_S: f64 = 600.0;
/// Where no ten minutes are calm, stretches of the day are compared with the same ones of the day before, in seconds.
const DAILY_S: f64 = 10_800.0;
/// So many of them make a day.
const A_DAY: usize = 8;
/// Memory that moves by this share of what the pool's use does is no pool reserved ahead.
const FOLLOWING: f64 = 0.2;

/// The calmest moment of one stretch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Calm {
    running: u32,
    kv: f64,
}

/// What was held in the KV cache without a reason, and in memory on average; MiB.
#[derive(Debug, Clone, Copy)]
struct Held {
    kv: f64,
    memory: f64,
}

/// Stretches in a row that held more than those they are compared with.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    rises: u32,
    /// By how much, all together, in MiB.
    gained: f64,
    /// By how much memory rose meanwhile.
    moved: f64,
}

/// Whether the least that is held rises from stretch to stretch, with no more requests.
#[derive(Debug, Clone, Copy, Default)]
struct Hourly {
    open: Option<(u64, Calm, Fit)>,
    before: Option<(u32, Held)>,
    run: Run,
}

/// Whether what requests do not explain rises from day to day, at each time of the day.
#[derive(Debug, Clone, Copy, Default)]
struct Daily {
    open: Option<(u64, Fit)>,
    /// What each time of the day held when it last came.
    before: [Option<Held>; A_DAY],
    run: Run,
}

/// The line of KV cache over running requests, as the sums that it is fitted from, and memory.
#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    samples: f64,
    kv: f64,
    running: f64,
    products: f64,
    squares: f64,
    memory: f64,
}

/// How the KV pool is used.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolUse {
    idle_since: Option<(Tick, f64)>,
    hourly: Hourly,
    daily: Daily,
    began: Option<Tick>,
}

impl Run {
    /// Counts a stretch against the one that it is compared with; there may be so many such pairs at a time.
    fn compare(&mut self, before: Option<Held>, now: Held, pairs: f64) {
        let rise = before.map(|before| (now.kv - before.kv, now.memory - before.memory));
        match rise.filter(|(rise, _)| *rise >= MIN_RISE) {
            Some((rise, moved)) => {
                self.rises += 1;
                self.gained += rise / pairs;
                self.moved += moved / pairs;
            }
            None => *self = Self::default(),
        }
    }

    /// Whether memory kept its size meanwhile: an engine that allocates on demand shows such a rise in its memory.
    fn is_inside(&self) -> bool {
        self.moved.abs() < FOLLOWING * self.gained
    }
}

/// The number of the stretch that a time lies in, each of so many seconds.
fn stretch_of(at_ms: u64, each_s: f64) -> u64 {
    at_ms / (each_s * 1000.0) as u64
}

impl Hourly {
    fn sample(&mut self, at_ms: u64, now: Calm, memory: f64) {
        let stretch = stretch_of(at_ms, HOURLY_S);
        if let Some((open, calm, fit)) = self.open.take_if(|(open, ..)| *open != stretch) {
            self.close(calm, fit);
            // Over a gap nothing is compared.
            self.before = self.before.filter(|_| stretch == open + 1);
        }
        let (_, calm, fit) = self.open.get_or_insert_with(|| (stretch, now, Fit::default()));
        if (now.running, now.kv) < (calm.running, calm.kv) {
            *calm = now;
        }
        fit.take(now.kv, f64::from(now.running), memory);
    }

    fn close(&mut self, calm: Calm, fit: Fit) {
        let now = Held { kv: calm.kv, memory: fit.memory / fit.samples };
        let before = self.before.replace((calm.running, now));
        let comparable = before.filter(|(running, _)| calm.running <= *running);
        self.run.compare(comparable.map(|(_, held)| held), now, 1.0);
    }
}

impl Daily {
    fn sample(&mut self, at_ms: u64, now: Calm, memory: f64) {
        let stretch = stretch_of(at_ms, DAILY_S);
        if let Some((open, fit)) = self.open.take_if(|(open, _)| *open != stretch) {
            let held = Held { kv: fit.unexplained(), memory: fit.memory / fit.samples };
            let before = self.before[(open % A_DAY as u64) as usize].replace(held);
            self.run.compare(before, held, A_DAY as f64);
            if stretch != open + 1 {
                (self.before, self.run) = ([None; A_DAY], Run::default());
            }
        }
        let (_, fit) = self.open.get_or_insert_with(|| (stretch, Fit::default()));
        fit.take(now.kv, f64::from(now.running), memory);
    }
}

impl Fit {
    fn take(&mut self, kv: f64, running: f64, memory: f64) {
        self.samples += 1.0;
        self.kv += kv;
        self.running += running;
        self.products += kv * running;
        self.squares += running * running;
        self.memory += memory;
    }

    /// What would be held with nothing running, in MiB; all of it where their number never changed.
    fn unexplained(&self) -> f64 {
        let spread = self.squares - self.running * self.running / self.samples;
        let shared = self.products - self.kv * self.running / self.samples;
        let each = if spread > 0.5 { shared / spread } else { 0.0 };
        (self.kv - each * self.running) / self.samples
    }
}

/// Rises in a row that chance brings no more often than this, given as its natural logarithm. Each stretch is compared
/// with the one so many stretches earlier: of n that can be compared with each other, all orders are as likely where
/// nothing rises, so one in n! has each above the one before.
fn rises_beyond(chance: f64, apart: u32) -> u32 {
    let (mut rises, mut reached) = (0, 0.0);
    while reached > chance {
        reached -= f64::from(rises / apart + 2).ln();
        rises += 1;
    }
    rises
}

impl PoolUse {
    /// Takes a sample.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let Some(kv) = moment.kv_mib else {
            self.idle_since = None;
            return;
        };
        let running = moment.load.running;
        let is_idle = running == Ok(0) && moment.load.waiting.unwrap_or(0) == 0;
        self.idle_since = match self.idle_since {
            Some((since, held)) if is_idle => Some((since, held.min(kv))),
            _ => is_idle.then_some((moment.tick, kv)),
        };
        let began = *self.began.get_or_insert(moment.tick);
        let at_ms = moment.tick.mono_ms.saturating_sub(began.mono_ms);
        let (now, memory) = (Calm { running: running.unwrap_or(0), kv }, moment.mib);
        self.hourly.sample(at_ms, now, memory);
        if running.is_ok() {
            self.daily.sample(at_ms, now, memory);
        }
    }

    /// Whether blocks are held without a reason.
    pub(super) fn claim(&self, moment: &Moment<'_>, known: Known) -> Option<Claim> {
        if moment.load.semantics == KvSemantics::ReferencedAndCached {
            return None;
        }
        // Where memory follows the counter, a rise of the pool is one of memory, and judged there.
        let is_reserved = known.account == Account::Pooled;
        let rising = || self.rising(moment, known).filter(|_| is_reserved);
        self.held_at_idle(moment).or_else(rising)
    }

    fn held_at_idle(&self, moment: &Moment<'_>) -> Option<Claim> {
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
            rate: None,
            evidence: vec![
                Evidence::against("held-at-idle", held, "MiB", needed),
                Evidence::against("idle", lasted, "s", idle_s),
            ],
            summary: sentence::pool_at_idle(bytes(held), lasted, is_prefill),
            settle: sentence::SETTLE_POOL,
        })
    }

    fn rising(&self, moment: &Moment<'_>, known: Known) -> Option<Claim> {
        let is_seen = moment.load.running.is_ok();
        let needed = |stretch_s, apart| rises_beyond(known.budget.log_chance(stretch_s), apart);
        let both = [(self.hourly.run, HOURLY_S, 1), (self.daily.run, DAILY_S, A_DAY as u32)];
        let (run, stretch_s, apart) = both
            .into_iter()
            .find(|(run, stretch_s, apart)| run.is_inside() && run.rises >= needed(*stretch_s, *apart))?;
        let gained = bytes(run.gained);
        let is_sure = is_seen
            && moment.load.semantics != KvSemantics::Unknown
            && moment.load.role != EngineRole::Prefill;
        let span_s = f64::from(run.rises + apart) * stretch_s;
        Some(Claim {
            kind: FindingKind::KvPoolLeak,
            tier: if is_sure { Tier::Confirmed } else { Tier::Early },
            severity: Severity::Warning,
            since: self.began.unwrap_or(moment.tick),
            amount: gained,
            accounts_for_rise: false,
            rate: None,
            evidence: vec![
                Evidence::new("held-rose", run.gained, "MiB"),
                Evidence::against(
                    "rises-in-a-row",
                    f64::from(run.rises),
                    "",
                    f64::from(needed(stretch_s, apart)),
                ),
                Evidence::new("stretch", stretch_s, "s"),
            ],
            summary: if apart == 1 {
                sentence::pool_rising(gained, span_s, is_seen)
            } else {
                sentence::pool_rising_by_the_day(gained, span_s)
            },
            settle: sentence::SETTLE_POOL,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_rises_is_as_rare_as_its_order() {
        let one_in = |chances: f64| -chances.ln();
        // Four in order: one in 24. Of eight times of the day two in order each: one in 2^8; the ninth rise makes one
        // of them three in order: one in 6 x 2^7.
        assert_eq!((rises_beyond(one_in(23.0), 1), rises_beyond(one_in(25.0), 1)), (3, 4));
        assert_eq!((rises_beyond(one_in(255.0), 8), rises_beyond(one_in(257.0), 8)), (8, 9));
        assert_eq!((rises_beyond(one_in(767.0), 8), rises_beyond(one_in(769.0), 8)), (9, 10));
    }

    #[test]
    fn what_requests_do_not_explain_is_what_is_left_with_none() {
        let mut fit = Fit::default();
        for i in 0..100 {
            let running = f64::from(i * 7 % 9);
            fit.take(120.0 + 300.0 * running + f64::from(i % 2), running, 0.0);
        }
        assert!((fit.unexplained() - 120.5).abs() < 1.0, "{}", fit.unexplained());
        let mut constant = Fit::default();
        (0..9).for_each(|_| constant.take(500.0, 6.0, 0.0));
        assert_eq!(constant.unexplained(), 500.0);
    }
}
