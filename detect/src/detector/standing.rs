//! What stands now, in numbers and words.

use std::sync::OnceLock;

use ebbtide_core::{
    Absent, ByteRate, Bytes, Diagnosis, Evidence, Judgement, RateBand, Reading, Tick, Ts, units::MIB,
};

use super::Detector;
use crate::explain::{Account, Basis};
use crate::forecast;
use crate::ladder::{RING, RUNGS};
use crate::scene::{Scene, detectable};
use crate::sentence::{self, Silence, amount};
use crate::trend::theil_sen;

/// After an event nothing is called steady for so long, in seconds.
const SETTLE_S: f64 = 60.0;
/// For so long, in seconds, what began anew is said to have, at any interval: with samples half a minute apart it takes
/// as long until a window is filled.
const RESTARTED_S: f64 = 720.0;
/// An absence this long is worth saying, in seconds; shorter ones are a missed poll.
const MISSING_S: f64 = 30.0;
/// Steady wants a filled window of blocks of 2 s at least: 64 s.
const STEADY_RUNG: usize = 1;
/// The floor and the slope that are shown come from windows of at most 34 min.
const SHOWN_RUNG: usize = 6;
/// What has more than doubled since it was first seen, and by this much at least in MiB, is warming up while it is
/// too young to be judged.
const WARMING_MIB: f64 = 256.0;
/// For so long, in seconds, a level is said to be newly found; no shorter than growth took to find it.
const SETTLED_S: f64 = 1800.0;
/// A level that was found and then lost by this share was none.
const LEVEL_LOSS: f64 = 0.02;

/// What is shown of a calm series, worked out when a block closes.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) floor: Reading<Bytes>,
    /// Of the window that is shown; the dearest figure, so nobody works it out before it is asked for.
    slope: OnceLock<Reading<RateBand>>,
    basis: Basis,
    pub(super) rung: Option<usize>,
    pub(super) is_filled: bool,
}

impl Shown {
    pub(super) const fn nothing() -> Self {
        Self {
            floor: Err(Absent::NotYet),
            slope: OnceLock::new(),
            basis: Basis::Floor,
            rung: None,
            is_filled: false,
        }
    }
}

/// A level that growth has found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// When growth ended.
    pub(super) since: Tick,
    /// How long it had lasted, in seconds.
    pub(super) grew_s: f64,
    /// At which height.
    pub(super) height: Bytes,
}

impl Detector {
    /// What is said of the series now.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        let detectable = self.detectable();
        let (summary, evidence) = self.words(detectable);
        let report = self.report.as_ref();
        Judgement {
            series: self.series.clone(),
            diagnosis: self.standing.0,
            since: self.standing.1,
            summary,
            value: match self.missing {
                Some((why, _)) => Err(why),
                None => self.last.map(|last| last.value).ok_or(Absent::NotYet),
            },
            floor: self.shown.floor,
            slope: report.and_then(|report| report.band).map_or_else(|| self.slope(), Ok),
            detectable: detectable.map(|(rate, _)| rate).ok_or(Absent::NotYet),
            forecast: report.and_then(|report| report.forecast),
            evidence,
        }
    }

    /// Floor and slope, from the longest window that is filled.
    pub(super) fn show(&self, scene: &Scene<'_>) -> Shown {
        let whole = |rung: &usize| self.ladder.filled(*rung, RING).is_some();
        let filled = (STEADY_RUNG..=SHOWN_RUNG).rev().filter(whole).find_map(|rung| {
            let basis = scene.shown_basis(rung);
            scene.ladder.has(rung, basis).then_some((rung, basis))
        });
        let floors = |rung: usize| self.ladder.blocks(rung).rev().take(RING / 4).map(|block| block.floor);
        let (longest, basis) = filled.unwrap_or((0, Basis::Floor));
        let floor = floors(longest).reduce(f32::min).ok_or(Absent::NotYet);
        Shown {
            floor: floor.map(|floor| amount(self.origin(), f64::from(floor))),
            slope: OnceLock::new(),
            basis,
            rung: filled.map(|(rung, _)| rung),
            is_filled: filled.is_some() || self.is_filled_above(),
        }
    }

    /// The slope of the window that is shown. Its ring moves only when what is shown is drawn up anew, so it is the
    /// same whenever it is asked for.
    fn slope(&self) -> Reading<RateBand> {
        *self.shown.slope.get_or_init(|| {
            let series = self.shown.rung.and_then(|rung| self.ladder.series(rung, RING, self.shown.basis));
            series.map(|series| forecast::band(&theil_sen(&series))).ok_or(Absent::NotYet)
        })
    }

    /// Whether a longer window is filled, as with an interval of minutes.
    fn is_filled_above(&self) -> bool {
        (SHOWN_RUNG + 1..RUNGS).any(|rung| self.ladder.filled(rung, RING).is_some())
    }

    pub(super) fn settle_standing(&mut self) {
        let led = self.report.as_ref().and_then(|report| report.diagnosis);
        let diagnosis = led.unwrap_or_else(|| match self.silence() {
            Some(Silence::Restarted(_)) => Diagnosis::Restarted,
            Some(Silence::TooShort(_)) if self.has_doubled() => Diagnosis::WarmingUp,
            Some(_) => Diagnosis::Inconclusive,
            None if self.found_level().is_some() => Diagnosis::Settled,
            None if self.reserved_pool().is_some() => Diagnosis::Reserved,
            None => Diagnosis::Steady,
        });
        if self.standing.0 != diagnosis || self.standing.1 == Ts::default() {
            self.standing = (diagnosis, self.now.at);
        }
    }

    /// Whether the series has grown from little to much since it was first seen.
    fn has_doubled(&self) -> bool {
        self.last.is_some_and(|last| {
            last.value.saturating_sub(self.origin()).mib() >= self.origin().mib().max(WARMING_MIB)
        })
    }

    /// The level that growth has found not long ago, and for how many seconds it has been held.
    fn found_level(&self) -> Option<(Bytes, f64)> {
        let level = self.level?;
        let held_s = self.now.mono_ms.saturating_sub(level.since.mono_ms) as f64 / 1000.0;
        let is_held =
            self.last.is_some_and(|last| last.value.mib() >= (1.0 - LEVEL_LOSS) * level.height.mib());
        (is_held && held_s <= level.grew_s.max(SETTLED_S)).then_some((level.height, held_s))
    }

    /// The pool that memory is reserved for, where the use of it is seen to move nothing.
    fn reserved_pool(&self) -> Option<Bytes> {
        let pool = self.last?.kv_pool.ok()?;
        (self.account == Account::Pooled).then_some(pool)
    }

    /// Why nothing can be said, if so.
    pub(super) fn silence(&self) -> Option<Silence> {
        let since = |tick: Tick| self.now.mono_ms.saturating_sub(tick.mono_ms) as f64 / 1000.0;
        if let Some((why, tick)) = self.missing
            && (self.last.is_none() || since(tick) >= MISSING_S)
        {
            return Some(Silence::Missing(why, since(tick)));
        }
        let (Some(epoch), Some(_)) = (self.epoch, self.last) else { return Some(Silence::Unread) };
        if let Some((event, tick)) = self.event
            && since(tick) < SETTLE_S
        {
            return Some(Silence::Disturbed(event, since(tick)));
        }
        if self.shown.is_filled && !epoch.is_restart {
            return None;
        }
        let age = self.at(self.now.mono_ms);
        if epoch.is_restart && (age < RESTARTED_S || !self.shown.is_filled) {
            return Some(Silence::Restarted(age));
        }
        match self.shown.is_filled {
            true => None,
            false if self.ladder.len(0) < RING => Some(Silence::TooShort(age)),
            false => Some(Silence::Sparse),
        }
    }

    /// The slowest leak that would have been seen, and over how many seconds. Dear, so that nobody works it out before
    /// it is asked for.
    fn detectable(&self) -> Option<(ByteRate, f64)> {
        let last = self.last?;
        let terms = self.terms(last.capacity);
        detectable(&terms.over(&self.ladder, &self.explainer, &self.work))
            .map(|(rate, over_s)| (ByteRate(rate * MIB as f64), over_s))
    }

    fn words(&self, detectable: Option<(ByteRate, f64)>) -> (String, Vec<Evidence>) {
        let leading = self.report.filter(|report| report.diagnosis.is_some()).map(|report| report.lead);
        if let Some(finding) = leading.and_then(|kind| self.findings.open(kind)) {
            return (finding.summary.clone(), finding.evidence.clone());
        }
        let seen = detectable.into_iter().flat_map(|(rate, over_s)| {
            [
                Evidence::new("detectable", rate.mib_per_min(), "MiB/min"),
                Evidence::new("detectable-over", over_s, "s"),
            ]
        });
        let summary = match (self.silence(), self.found_level(), self.reserved_pool()) {
            (Some(Silence::TooShort(age)), ..) if self.has_doubled() => {
                sentence::warming_up(self.origin(), age)
            }
            (Some(silence), ..) => return (sentence::inconclusive(silence), Vec::new()),
            (None, Some((level, held_s)), _) => sentence::settled(level, held_s),
            (None, None, Some(pool)) => {
                sentence::reserved(pool, self.last.and_then(|last| last.kv_used.ok()))
            }
            (None, None, None) => sentence::steady(detectable),
        };
        (summary, seen.collect())
    }
}
