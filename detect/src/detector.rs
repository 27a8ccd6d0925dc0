//! One series, sample by sample.

mod standing;

use ebbtide_core::{Bytes, Diagnosis, FindingEvent, FindingKind, Reading, SeriesRef, Tick, Ts};

use crate::blocks::{Block, KvBlock};
use crate::budget::Budget;
use crate::config::DetectConfig;
use crate::explain::{Account, Explainer};
use crate::findings::Findings;
use crate::forecast::{self, Headroom};
use crate::ladder::{Closed, Ladder, block_s};
use crate::observation::{Load, Observation};
use crate::report::{self, Drawing, Gist, Now, Report};
use crate::rise::Rise;
use crate::rules::{Known, Moment, Rules};
use crate::scene::Terms;
use crate::sentence::{self, amount};
use crate::verdict::Verdict;
use crate::work::WorkClock;
use standing::{Level, Shown};

/// A fall below this share of all that was held in the last minutes is a restart, if it is also a real amount.
const RESTART_SHARE: f64 = 0.6;
/// The least fall of a restart, as a share of the capacity.
const RESTART_OF_CAPACITY: f64 = 0.02;
/// Each 8 s it is asked whether what stands is news, and at once when the cause changes.
const REPORT_RUNG: usize = 3;
/// Without news it is put into words again after an eighth of the window that shows it, or after a minute.
const WORDS_BLOCKS: f64 = 4.0;
/// That minute, in seconds; the blocks of longer windows take longer, and between them nothing moves.
const WORDS_S: f64 = 64.0;
/// The rung whose ring (4 min) says what was held in the last minutes.
const RESTART_RUNG: usize = 3;
/// A counter comes so late at most, in seconds: it is scraped each 5 s by habit, and is up to 2 s old then.
const COUNTER_LATE_S: f64 = 8.0;

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

/// The least that was held in the last minutes, in MiB above the origin: all of it, and what KV does not account for.
#[derive(Debug, Clone, Copy)]
struct Held {
    floor: f32,
    residual: Option<f32>,
}

/// What stood when it was put into words, and when that was, in seconds since the epoch began.
#[derive(Debug, Clone, Copy)]
struct Told {
    gist: Gist,
    at: f64,
}

/// What is asked of the newest sample later.
#[derive(Debug, Clone, Copy)]
struct Latest {
    mono_ms: u64,
    value: Bytes,
    capacity: Reading<Bytes>,
    kv_pool: Reading<Bytes>,
    kv_used: Reading<Bytes>,
}

/// Judges one series. Pure: the same observations in the same order give the same findings.
#[derive(Debug, Clone)]
pub struct Detector {
    series: SeriesRef,
    config: DetectConfig,
    budget: Budget,
    ladder: Box<Ladder>,
    explainer: Explainer,
    work: WorkClock,
    verdict: Verdict,
    findings: Findings,
    epoch: Option<Epoch>,
    last: Option<Latest>,
    missing: Option<(ebbtide_core::Absent, Tick)>,
    event: Option<(&'static str, Tick)>,
    held: Option<Held>,
    /// When memory fell for which the counter does not account, or not yet.
    fallen_at: Option<f64>,
    rules: Rules,
    level: Option<Level>,
    shown: Shown,
    report: Option<Report>,
    told: Option<Told>,
    standing: (Diagnosis, Ts),
    now: Tick,
    /// Seconds since the epoch began, and how memory followed the KV counter, both when a block closed last.
    age: f64,
    account: Account,
}

impl Detector {
    /// The most bytes that one series keeps: this, its ladder, what rules hold. The words of open findings come on top.
    pub const MOST_BYTES: usize =
        size_of::<Self>() + size_of::<Ladder>() + Ladder::MAX_HEAP + Rules::MAX_HEAP;

    /// The bytes that it keeps now, the words of open findings included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let heap = self.ladder.heap() + self.rules.heap() + self.findings.heap();
        size_of::<Self>() + size_of::<Ladder>() + heap
    }

    /// A detector that has seen nothing.
    #[must_use]
    pub fn new(series: SeriesRef, config: &DetectConfig) -> Self {
        Self {
            series,
            config: *config,
            budget: Budget::of(config),
            ladder: Box::new(Ladder::new()),
            explainer: Explainer::new(),
            work: WorkClock::new(),
            verdict: Verdict::new(),
            findings: Findings::default(),
            epoch: None,
            last: None,
            missing: None,
            event: None,
            held: None,
            fallen_at: None,
            rules: Rules::default(),
            level: None,
            shown: Shown::nothing(),
            report: None,
            told: None,
            standing: (Diagnosis::Inconclusive, Ts::default()),
            now: Tick::default(),
            age: 0.0,
            account: Account::Unknown,
        }
    }

    /// Takes one tick; says which findings opened, changed or resolved. Constant time on average. An absent value
    /// changes no finding; a tick that is not later than the one before it is ignored, unless its clock began anew.
    pub fn observe(&mut self, observation: &Observation<'_>) -> Vec<FindingEvent> {
        let tick = observation.tick;
        self.now = tick;
        for kind in observation.events {
            self.event = Some((sentence::event(kind), tick));
            self.rules.event(kind, tick);
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
        let moment = Moment::of(observation, value);
        let Load { kv_pool, kv_used, .. } = observation.load;
        let latest =
            Latest { mono_ms: tick.mono_ms, value, capacity: observation.capacity, kv_pool, kv_used };
        let before = self.last.replace(latest).map(|last| last.mono_ms);
        match before {
            Some(before) if tick.mono_ms == before => return Vec::new(),
            Some(before) if tick.mono_ms < before => {
                // What lies in the future of a clock that began anew is of another life.
                self.rules = Rules::default();
                self.begin(&moment, false);
            }
            Some(_) => {}
            None => self.begin(&moment, false),
        }
        self.rules.sample(&moment, self.series.part);
        let closed = self.take(&moment);
        let events = if closed.is_empty() { Vec::new() } else { self.judge(&moment, closed) };
        self.settle_standing();
        events
    }

    /// The process has ended or the device is gone for good: what is open resolves.
    pub fn close(&mut self, tick: Tick) -> Vec<FindingEvent> {
        self.now = tick;
        (self.report, self.told) = (None, None);
        self.verdict = Verdict::new();
        self.settle_standing();
        self.findings.sync(Vec::new(), tick.at)
    }

    /// The cause that stands now, without the words of [`Self::judgement`].
    #[must_use]
    pub const fn diagnosis(&self) -> Diagnosis {
        self.standing.0
    }

    /// A new life: blocks, load and verdicts of the old one say nothing about it.
    fn begin(&mut self, first: &Moment<'_>, is_restart: bool) {
        self.epoch = Some(Epoch { began_mono_ms: first.tick.mono_ms, origin: first.value, is_restart });
        self.ladder.clear();
        self.explainer = Explainer::new();
        (self.age, self.account) = (0.0, Account::Unknown);
        self.work = WorkClock::new();
        self.verdict = Verdict::new();
        (self.held, self.fallen_at, self.level, self.told) = (None, None, None, None);
        self.shown = Shown::nothing();
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
    fn take(&mut self, last: &Moment<'_>) -> Closed {
        let at = self.at(last.tick.mono_ms);
        let kv = last.kv_mib;
        let running = last.load.running.ok().map(f64::from);
        let peak = self.explainer.note(at, kv, running);
        let height = last.mib - self.origin().mib();
        let value = height as f32;
        let closed = self.ladder.push(&Block {
            at,
            floor: value,
            mid: value,
            ceil: value,
            kv: kv
                .map(|kv| KvBlock {
                    residual: (height - kv) as f32,
                    calm: (height - kv) as f32,
                    beyond_peak: (height - peak) as f32,
                })
                .into(),
            running: running.map(|running| running as f32).into(),
        });
        if !closed.is_empty() {
            self.explainer.learn(&self.ladder, closed);
            self.work.close(closed);
            (self.age, self.account) = (at, self.explainer.account(at));
        }
        self.work.note(last.load.served, last.load.tokens);
        closed
    }

    /// Judges what the closed blocks show.
    fn judge(&mut self, last: &Moment<'_>, closed: Closed) -> Vec<FindingEvent> {
        if closed.holds(0) && self.has_restarted(last.capacity) {
            self.begin(last, true);
            return self.report(last);
        }
        let terms = self.terms(last.capacity);
        self.verdict.step(&terms.over(&self.ladder, &self.explainer, &self.work), closed);
        if self.shown.rung.is_none_or(|rung| closed.holds(rung) || closed.holds(rung + 1)) {
            self.shown = self.show(&terms.over(&self.ladder, &self.explainer, &self.work));
        }
        if self.fallen_at.is_none() && (self.held.is_none() || closed.holds(RESTART_RUNG)) {
            self.held = self.least_held();
        }
        let is_new = self.verdict.kind() != self.report.as_ref().and_then(|report| report.cause);
        if is_new || closed.holds(REPORT_RUNG) { self.report(last) } else { Vec::new() }
    }

    /// Draws up what stands and says what is new about it.
    fn report(&mut self, last: &Moment<'_>) -> Vec<FindingEvent> {
        let terms = self.terms(last.capacity);
        let known = Known { account: terms.account, budget: terms.budget };
        let claims = self.rules.claims(last, known);
        if self.report.is_none() && self.verdict.kind().is_none() && claims.is_empty() {
            return Vec::new();
        }
        let cause = self.verdict.cause();
        let was_imminent = self.findings.is_open(FindingKind::Imminent);
        let (scene, now) = (terms.over(&self.ladder, &self.explainer, &self.work), self.now_of(last));
        // What rules say moves with each sample.
        let gist = if claims.is_empty() {
            report::gist(&self.series, &scene, &now, &cause, was_imminent)
        } else {
            None
        };
        if let Some((gist, rise, forecast)) = gist
            && let Some(report) = &self.report
            && self.is_told(gist, &rise, report.lead, now.at)
        {
            let band = Some(forecast::band(&rise.line));
            self.report = Some(Report { forecast, band, ..*report });
            return Vec::new();
        }
        self.told = gist.map(|(gist, ..)| Told { gist, at: now.at });
        let (report, wanted) =
            report::draw(&self.series, &scene, &now, Drawing { cause: &cause, claims, was_imminent });
        let grew = self.report.and_then(|report| report.grew_since);
        if let Some(since) = grew.filter(|_| report.as_ref().is_none_or(|report| report.diagnosis.is_none()))
        {
            let grew_s = (last.tick.at.0 - since.0) as f64 / 1000.0;
            self.level = Some(Level { since: last.tick, grew_s, height: last.value });
        }
        self.report = report;
        self.findings.sync(wanted, last.tick.at)
    }

    /// Whether all that stands has been said, in words that are not old.
    fn is_told(&self, gist: Gist, rise: &Rise, lead: FindingKind, now: f64) -> bool {
        let fresh_s = (WORDS_BLOCKS * block_s(rise.rung)).min(WORDS_S).max(block_s(rise.rung));
        let rate = forecast::band(&rise.line).rate;
        self.told.is_some_and(|told| told.gist == gist && now - told.at < fresh_s)
            && !self.findings.is_news(lead, rate.0)
    }

    fn terms(&self, capacity: Reading<Bytes>) -> Terms {
        Terms {
            account: self.account,
            warm_up_s: self.config.warm_up_ms as f64 / 1000.0,
            warm_up_mib: warm_up_mib(capacity),
            origin_mib: self.origin().mib(),
            disturbed_at: self.event.map(|(_, tick)| self.at(tick.mono_ms)),
            budget: self.budget,
        }
    }
}

/// What was held, and where the series is now.
impl Detector {
    /// Whether the memory's owner must have begun anew. A counter that is read is given the time to follow.
    fn has_restarted(&mut self, capacity: Reading<Bytes>) -> bool {
        if !self.has_fallen(capacity) {
            self.fallen_at = None;
            return false;
        }
        let fallen_at = *self.fallen_at.get_or_insert(self.age);
        let is_counted = self.ladder.newest(0).is_some_and(|newest| newest.kv.get().is_some());
        !is_counted || self.age - fallen_at >= COUNTER_LATE_S
    }

    /// Whether the newest block lies far below all of the last minutes. A tide that the counter accounts for is no fall,
    /// however far it goes.
    fn has_fallen(&self, capacity: Reading<Bytes>) -> bool {
        let (Some(newest), Some(held)) = (self.ladder.newest(0), self.held) else { return false };
        // Most blocks lie no lower than all of the last minutes.
        if newest.ceil >= held.floor {
            return false;
        }
        let height = |mib: f32| amount(self.origin(), f64::from(mib)).mib();
        if height(newest.ceil) >= RESTART_SHARE * height(held.floor) {
            return false;
        }
        let least_fall = RESTART_OF_CAPACITY * capacity.map_or_else(|_| height(held.floor), Bytes::mib);
        let left = held.residual.zip(newest.kv.get().map(|kv| kv.residual));
        let is_tide = left.is_some_and(|(old, new)| f64::from(old - new) <= least_fall);
        f64::from(held.floor - newest.ceil) > least_fall && !is_tide
    }

    /// The least that was held in the last minutes, from the closed blocks.
    fn least_held(&self) -> Option<Held> {
        let rung = if self.ladder.newest(RESTART_RUNG).is_some() { RESTART_RUNG } else { 0 };
        let (floor, residual) = self.ladder.lowest(rung)?;
        Some(Held { floor, residual: (!residual.is_nan()).then_some(residual) })
    }

    fn now_of(&self, last: &Moment<'_>) -> Now {
        let ceiling = self.ladder.highest(0);
        let high_water =
            ceiling.map_or(last.value, |ceil| amount(self.origin(), f64::from(ceil)).max(last.value));
        Now {
            tick: last.tick,
            at: self.age,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_costs_less_than_24_kib() {
        const { assert!(Detector::MOST_BYTES <= 24 * 1024) };
    }
}
