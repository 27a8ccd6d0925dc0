//! One series, sample by sample.

use ebbtide_core::{
    Absent, ByteRate, Bytes, Diagnosis, Evidence, FindingEvent, FindingKind, Judgement, RateBand, Reading,
    SeriesRef, Tick, Ts, units::MIB,
};

use crate::blocks::{Block, KvBlock};
use crate::config::DetectConfig;
use crate::explain::Explainer;
use crate::findings::Findings;
use crate::forecast::{self, Headroom};
use crate::ladder::{Closed, Ladder, RING};
use crate::observation::{Load, Observation};
use crate::report::{self, Now, Report};
use crate::scene::{Scene, detectable};
use crate::sentence::{self, Silence, amount};
use crate::trend::theil_sen;
use crate::verdict::Verdict;

/// After an event nothing is called steady for so long, in seconds.
const SETTLE_S: f64 = 60.0;
/// An absence this long is worth saying, in seconds; shorter ones are a missed poll.
const MISSING_S: f64 = 30.0;
/// Steady wants a filled window of blocks of 2 s at least: 64 s.
const STEADY_RUNG: usize = 1;
/// The floor and the slope that are shown come from windows of at most 34 min.
const SHOWN_RUNG: usize = 6;
/// A fall below this share of all that was held in the last minutes is a restart, if it is also a real amount.
const RESTART_SHARE: f64 = 0.6;
/// The least fall of a restart, as a share of the capacity.
const RESTART_OF_CAPACITY: f64 = 0.02;
/// What stands is drawn up anew each 8 s, and at once when the cause changes.
const REPORT_RUNG: usize = 3;
/// The rung whose ring (4 min) says what was held in the last minutes.
const RESTART_RUNG: usize = 3;

/// The most that warm-up is believed to add where the capacity is not known, in MiB. Measured warm-ups of engines
/// (first long prompts, graph capture, autotuning) add 0.5 to 6 GiB.
const WARM_UP_MIB: f64 = 8192.0;
/// The same as a share of the capacity: what is captured and tuned grows with the model, and that with the card.
const WARM_UP_SHARE: f64 = 0.1;
/// The least of it, in MiB.
const LEAST_WARM_UP_MIB: f64 = 2048.0;

fn warm_up_mib(capacity: Reading<Bytes>) -> f64 {
    capacity.map_or(WARM_UP_MIB, |capacity| (WARM_UP_SHARE * capacity.mib()).max(LEAST_WARM_UP_MIB))
}

/// A life of the series: from its first sample, or from a restart, on.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    began_mono_ms: u64,
    origin: Bytes,
    is_restart: bool,
}

/// The newest sample that had a value.
#[derive(Debug, Clone, Copy)]
struct Last {
    tick: Tick,
    value: Bytes,
    capacity: Reading<Bytes>,
    load: Load,
}

/// The least that was held in the last minutes, in MiB above the origin: all of it, and what KV does not account for.
#[derive(Debug, Clone, Copy)]
struct Held {
    floor: f32,
    residual: Option<f32>,
}

/// What is shown of a calm series, worked out when a block closes.
#[derive(Debug, Clone, Copy)]
struct Shown {
    floor: Reading<Bytes>,
    slope: Reading<RateBand>,
    detectable: Reading<ByteRate>,
    rung: Option<usize>,
    is_filled: bool,
}

impl Shown {
    const NOTHING: Self = Self {
        floor: Err(Absent::NotYet),
        slope: Err(Absent::NotYet),
        detectable: Err(Absent::NotYet),
        rung: None,
        is_filled: false,
    };
}

/// Judges one series. Pure: the same observations in the same order give the same findings.
#[derive(Debug, Clone)]
pub struct Detector {
    series: SeriesRef,
    config: DetectConfig,
    ladder: Box<Ladder>,
    explainer: Explainer,
    verdict: Verdict,
    findings: Findings,
    epoch: Option<Epoch>,
    last: Option<Last>,
    missing: Option<(Absent, Tick)>,
    event: Option<(&'static str, Tick)>,
    held: Option<Held>,
    shown: Shown,
    report: Option<Report>,
    standing: (Diagnosis, Ts),
    now: Tick,
}

impl Detector {
    /// A detector that has seen nothing.
    #[must_use]
    pub fn new(series: SeriesRef, config: &DetectConfig) -> Self {
        Self {
            series,
            config: *config,
            ladder: Box::new(Ladder::new()),
            explainer: Explainer::new(),
            verdict: Verdict::new(),
            findings: Findings::default(),
            epoch: None,
            last: None,
            missing: None,
            event: None,
            held: None,
            shown: Shown::NOTHING,
            report: None,
            standing: (Diagnosis::Inconclusive, Ts::default()),
            now: Tick::default(),
        }
    }

    /// Takes one tick; says which findings opened, changed or resolved. Constant time on average. An absent value
    /// changes no finding; a tick that is not later than the one before it is ignored, unless its clock began anew.
    pub fn observe(&mut self, observation: &Observation<'_>) -> Vec<FindingEvent> {
        let tick = observation.tick;
        self.now = tick;
        if let Some(kind) = observation.events.last() {
            self.event = Some((sentence::event(kind), tick));
        }
        let value = match observation.value {
            Ok(value) => value,
            Err(why) => {
                let since = self.missing.map_or(tick, |(_, since)| since);
                self.missing = Some((why, since));
                self.settle_standing();
                return Vec::new();
            }
        };
        self.missing = None;
        let last = Last { tick, value, capacity: observation.capacity, load: observation.load };
        match self.last.replace(last) {
            Some(old) if tick.mono_ms == old.tick.mono_ms => return Vec::new(),
            Some(old) if tick.mono_ms < old.tick.mono_ms => self.begin(last, false),
            Some(_) => {}
            None => self.begin(last, false),
        }
        let closed = self.take(last);
        let events = if closed.is_empty() { Vec::new() } else { self.judge(last, closed) };
        self.settle_standing();
        events
    }

    /// The process has ended or the device is gone for good: what is open resolves.
    pub fn close(&mut self, tick: Tick) -> Vec<FindingEvent> {
        self.now = tick;
        self.report = None;
        self.verdict = Verdict::new();
        self.settle_standing();
        self.findings.sync(Vec::new(), tick.at)
    }

    /// The cause that stands now, without the words of [`Self::judgement`].
    #[must_use]
    pub const fn diagnosis(&self) -> Diagnosis {
        self.standing.0
    }

    /// What is said of the series now.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        let (summary, evidence) = self.words();
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
            slope: report.and_then(|report| report.band).map_or(self.shown.slope, Ok),
            detectable: self.shown.detectable,
            forecast: report.and_then(|report| report.forecast),
            evidence,
        }
    }

    /// A new life: blocks, load and verdicts of the old one say nothing about it.
    fn begin(&mut self, first: Last, is_restart: bool) {
        self.epoch = Some(Epoch { began_mono_ms: first.tick.mono_ms, origin: first.value, is_restart });
        self.ladder.clear();
        self.explainer = Explainer::new();
        self.verdict = Verdict::new();
        self.held = None;
        self.shown = Shown::NOTHING;
        // What lies in the future of a clock that began anew is of another life too.
        self.event = self.event.filter(|(_, tick)| tick.mono_ms <= first.tick.mono_ms);
    }

    /// Seconds since the epoch began.
    fn at(&self, mono_ms: u64) -> f64 {
        let began = self.epoch.map_or(mono_ms, |epoch| epoch.began_mono_ms);
        mono_ms.saturating_sub(began) as f64 / 1000.0
    }

    fn origin(&self) -> Bytes {
        self.epoch.map_or(Bytes::ZERO, |epoch| epoch.origin)
    }

    /// Puts a sample on the ladder.
    fn take(&mut self, last: Last) -> Closed {
        let at = self.at(last.tick.mono_ms);
        let kv = last.load.kv_used.ok().map(Bytes::mib);
        let running = last.load.running.ok().map(f64::from);
        let peak = self.explainer.note(at, kv, running);
        let height = last.value.signed_sub(self.origin()).mib();
        let value = height as f32;
        let closed = self.ladder.push(Block {
            at,
            floor: value,
            mid: value,
            ceil: value,
            kv: kv.map(|kv| KvBlock {
                residual: (height - kv) as f32,
                calm: (height - kv) as f32,
                beyond_peak: (height - peak) as f32,
            }),
            running: running.map(|running| running as f32),
        });
        self.explainer.learn(&self.ladder, closed);
        closed
    }

    /// Judges what the closed blocks show.
    fn judge(&mut self, last: Last, closed: Closed) -> Vec<FindingEvent> {
        if closed.holds(0) && self.has_restarted(last.capacity) {
            self.begin(last, true);
            self.report = None;
            return self.findings.sync(Vec::new(), last.tick.at);
        }
        let scene = Scene {
            ladder: &self.ladder,
            explainer: &self.explainer,
            account: self.explainer.account(self.at(last.tick.mono_ms)),
            warm_up_s: self.config.warm_up_ms as f64 / 1000.0,
            warm_up_mib: warm_up_mib(last.capacity),
            origin_mib: self.origin().mib(),
            disturbed_at: self.event.map(|(_, tick)| self.at(tick.mono_ms)),
        };
        self.verdict.step(&scene, closed);
        let cause = self.verdict.cause();
        let imminent = self.findings.is_open(FindingKind::Imminent);
        let is_new = cause.kind() != self.report.as_ref().and_then(|report| report.cause);
        let report = if is_new || closed.holds(REPORT_RUNG) {
            report::draw(&self.series, &cause, &scene, &self.now_of(last), imminent)
        } else {
            self.report.take()
        };
        if self.shown.rung.is_none_or(|rung| closed.holds(rung) || closed.holds(rung + 1)) {
            self.shown = self.show(&scene);
        }
        self.report = report;
        if self.held.is_none() || closed.holds(RESTART_RUNG) {
            self.held = self.least_held();
        }
        if !is_new && !closed.holds(REPORT_RUNG) {
            return Vec::new();
        }
        let wanted = self.report.as_ref().map_or_else(Vec::new, |report| report.findings.clone());
        self.findings.sync(wanted, last.tick.at)
    }
}

/// What stands, in numbers and words.
impl Detector {
    /// Whether the newest block lies so far below all of the last minutes that the memory's owner must have begun
    /// anew. A tide that the counter accounts for is none, however far it falls.
    fn has_restarted(&self, capacity: Reading<Bytes>) -> bool {
        let (Some(newest), Some(held)) = (self.ladder.newest(0), self.held) else { return false };
        let height = |mib: f32| amount(self.origin(), f64::from(mib)).mib();
        if height(newest.ceil) >= RESTART_SHARE * height(held.floor) {
            return false;
        }
        let least_fall = RESTART_OF_CAPACITY * capacity.map_or_else(|_| height(held.floor), Bytes::mib);
        let left = held.residual.zip(newest.kv.map(|kv| kv.residual));
        let is_tide = left.is_some_and(|(old, new)| f64::from(old - new) <= least_fall);
        f64::from(held.floor - newest.ceil) > least_fall && !is_tide
    }

    /// The least that was held in the last minutes, from the closed blocks.
    fn least_held(&self) -> Option<Held> {
        let rung = if self.ladder.newest(RESTART_RUNG).is_some() { RESTART_RUNG } else { 0 };
        let residual = |block: &Block| block.kv.map(|kv| kv.residual);
        Some(Held {
            floor: self.ladder.blocks(rung).map(|block| block.floor).reduce(f32::min)?,
            residual: self.ladder.blocks(rung).filter_map(residual).reduce(f32::min),
        })
    }

    fn now_of(&self, last: Last) -> Now {
        let ceiling = self.ladder.blocks(0).map(|block| block.ceil).reduce(f32::max);
        let high_water =
            ceiling.map_or(last.value, |ceil| amount(self.origin(), f64::from(ceil)).max(last.value));
        Now {
            tick: last.tick,
            at: self.at(last.tick.mono_ms),
            room: last.capacity.ok().map(|capacity| Headroom { capacity, high_water }),
            full_pool: last
                .load
                .kv_pool
                .ok()
                .zip(last.load.kv_used.ok())
                .map(|(pool, used)| last.value.saturating_sub(used).saturating_add(pool)),
            horizon_s: self.config.horizon_ms as f64 / 1000.0,
        }
    }

    /// Floor, slope and the least visible leak, from the longest window that is filled.
    fn show(&self, scene: &Scene<'_>) -> Shown {
        let filled = (STEADY_RUNG..=SHOWN_RUNG)
            .rev()
            .find_map(|rung| Some((rung, scene.series(rung, RING, scene.shown_basis(rung))?)));
        let floors = |rung: usize| self.ladder.blocks(rung).rev().take(RING / 4).map(|block| block.floor);
        let longest = filled.as_ref().map_or(0, |(rung, _)| *rung);
        let floor = floors(longest).reduce(f32::min).ok_or(Absent::NotYet);
        Shown {
            floor: floor.map(|floor| amount(self.origin(), f64::from(floor))),
            slope: filled.map(|(_, series)| forecast::band(&theil_sen(&series))).ok_or(Absent::NotYet),
            detectable: detectable(scene).map(|rate| ByteRate(rate * MIB as f64)).ok_or(Absent::NotYet),
            rung: filled.map(|(rung, _)| rung),
            is_filled: filled.is_some() || self.is_filled_above(),
        }
    }

    /// Whether a longer window is filled, as with an interval of minutes.
    fn is_filled_above(&self) -> bool {
        (SHOWN_RUNG + 1..crate::ladder::RUNGS)
            .any(|rung| self.ladder.series(rung, RING, |_| Some(0.0)).is_some())
    }

    fn settle_standing(&mut self) {
        let diagnosis = match self.report.as_ref().and_then(|report| report.findings.first()) {
            Some(finding) => match finding.key.kind {
                FindingKind::Leak => Diagnosis::Leak,
                FindingKind::SlopeChange => Diagnosis::SlopeChange,
                FindingKind::HostLeak => Diagnosis::HostLeak,
                FindingKind::KvPoolLeak => Diagnosis::KvPoolLeak,
                FindingKind::NotReleased => Diagnosis::NotReleased,
                FindingKind::Orphan => Diagnosis::Orphan,
                FindingKind::Growth | FindingKind::Imminent | FindingKind::ThinHeadroom => Diagnosis::Growth,
            },
            None if self.silence().is_some() => Diagnosis::Inconclusive,
            None => Diagnosis::Steady,
        };
        if self.standing.0 != diagnosis || self.standing.1 == Ts::default() {
            self.standing = (diagnosis, self.now.at);
        }
    }

    /// Why nothing can be said, if so.
    fn silence(&self) -> Option<Silence> {
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
        let age = self.at(self.now.mono_ms);
        match (self.shown.is_filled, epoch.is_restart) {
            (true, _) => None,
            (false, true) => Some(Silence::Restarted(age)),
            (false, false) if self.ladder.blocks(0).count() < RING => Some(Silence::TooShort(age)),
            (false, false) => Some(Silence::Sparse),
        }
    }

    fn words(&self) -> (String, Vec<Evidence>) {
        if let Some(report) = &self.report {
            return (report.summary.clone(), report.evidence.clone());
        }
        match self.silence() {
            Some(silence) => (sentence::inconclusive(silence), Vec::new()),
            None => {
                let rate = self.shown.detectable.ok();
                let evidence = rate.map(|rate| Evidence::new("detectable", rate.mib_per_min(), "MiB/min"));
                (sentence::steady(rate), evidence.into_iter().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_costs_less_than_24_kib() {
        let heap = size_of::<Ladder>() + 16 * size_of::<(f64, f64)>();
        assert!(size_of::<Detector>() + heap <= 24 * 1024, "{} + {heap}", size_of::<Detector>());
    }
}
