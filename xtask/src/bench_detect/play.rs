//! One history through the detector.

use ebbtide_core::{Absent, Bytes, Finding, FindingEvent, GpuUuid, Reading, SeriesPart, SeriesRef, Tick, Ts};
use ebbtide_detect::{DetectConfig, Detector, Load, Observation};
use ebbtide_testkit::traces::{Family, KvSight, Label, Point, Span};

use super::minutes::Minutes;
use super::score::{Alarms, Truth};

/// Findings that would page somebody because memory is lost: all causes but plain growth.
const ALARMS: [&str; 6] = ["leak", "slope-change", "kv-pool-leak", "not-released", "orphan", "host-leak"];

/// Wall time of the first sample: any will do, durations come from the monotonic clock.
const WALL_MS: i64 = 1_790_000_000_000;

/// A history to play.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) family: Family,
    pub(super) seed: u64,
    pub(super) span: Span,
}

/// The rate that the first right alarm told, in MiB a minute, and the truth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Claim {
    pub(super) rate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) truth: f64,
}

/// What the detector said of a history.
#[derive(Debug, Clone)]
pub(super) struct Played {
    pub(super) label: Label,
    pub(super) end_s: u64,
    /// When a loss was alarmed.
    pub(super) alarms: Alarms,
    /// When exhaustion was forecast.
    pub(super) forecasts: Alarms,
    /// When growth was said to have become faster.
    pub(super) changes: Alarms,
    /// Each finding that opened, with the second.
    pub(super) opened: Vec<(u64, &'static str)>,
    pub(super) claim: Option<Claim>,
    /// The cause that stood at the end.
    pub(super) diagnosis: &'static str,
    /// Room that was left at the first right alarm or forecast, over that at the onset; zero where none came before
    /// the end was reached, `None` where no leak began.
    pub(super) headroom: Option<f64>,
    pub(super) minutes: Minutes,
}

impl Played {
    pub(super) fn truth(&self) -> Truth<'_> {
        Truth { label: &self.label, end_s: self.end_s, leaked: &self.minutes.leaked }
    }
}

/// Plays a history to its end.
pub(super) fn play(job: &Job, config: &DetectConfig) -> Played {
    play_beside(job, config, Minutes::of_truth())
}

/// The same, and keeps what simpler rules are given.
pub(super) fn play_by_the_minute(job: &Job, config: &DetectConfig) -> Played {
    play_beside(job, config, Minutes::new(job.span.interval_s))
}

fn play_beside(job: &Job, config: &DetectConfig, minutes: Minutes) -> Played {
    let trace = job.family.trace(job.seed, job.span);
    let mut player = Player::new(trace.label().clone(), minutes, config);
    for point in trace {
        player.step(&point);
    }
    player.finish()
}

/// A kind of alarm, open or not.
#[derive(Debug, Default)]
struct Watch {
    open: u32,
    since: u64,
    alarms: Alarms,
}

impl Watch {
    fn opened(&mut self, at: u64) {
        if self.open == 0 {
            self.since = at;
        }
        self.open += 1;
    }

    fn resolved(&mut self, at: u64) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.alarms.push(self.since..at);
        }
    }

    fn finish(mut self, at: u64) -> Alarms {
        if self.open > 0 {
            // What stands at the end stands beyond it, so that it is after every onset.
            self.alarms.push(self.since..at + 1);
        }
        self.alarms
    }
}

struct Player {
    label: Label,
    detector: Detector,
    minutes: Minutes,
    seq: u64,
    second: u64,
    losses: Watch,
    forecasts: Watch,
    changes: Watch,
    opened: Vec<(u64, &'static str)>,
    claim: Option<Claim>,
    room_at_onset: Option<f64>,
    room_at_alert: Option<f64>,
}

impl Player {
    fn new(label: Label, minutes: Minutes, config: &DetectConfig) -> Self {
        let series = SeriesRef { gpu: GpuUuid::new("GPU-0"), part: SeriesPart::Device };
        Self {
            label,
            detector: Detector::new(series, config),
            minutes,
            seq: 0,
            second: 0,
            losses: Watch::default(),
            forecasts: Watch::default(),
            changes: Watch::default(),
            opened: Vec::new(),
            claim: None,
            room_at_onset: None,
            room_at_alert: None,
        }
    }

    fn step(&mut self, point: &Point) {
        self.seq += 1;
        self.second = point.mono_ms / 1000;
        self.minutes.take(&self.label, point);
        let events = self.detector.observe(&observation(self.seq, &self.label, point));
        for event in &events {
            self.note(event);
        }
        if self.label.onset_s.is_some_and(|onset| self.second >= onset) {
            let room = self.room(point);
            self.room_at_onset.get_or_insert(room);
            if self.room_at_alert.is_none() && self.losses.open + self.forecasts.open > 0 {
                self.room_at_alert = Some(room);
            }
        }
    }

    /// What is left to grow, in MiB; KV cache that comes and goes is left out.
    fn room(&self, point: &Point) -> f64 {
        let kv = point.kv_used.filter(|_| self.label.kv == KvSight::OnDemand).map_or(0.0, Bytes::mib);
        self.label.capacity_mib as f64 - (point.used.mib() - kv)
    }

    fn note(&mut self, event: &FindingEvent) {
        let finding = event.finding();
        let kind = finding.key.kind.name();
        let second = self.second;
        let mut watches: Vec<&mut Watch> = Vec::new();
        if ALARMS.contains(&kind) {
            watches.push(&mut self.losses);
        }
        if kind == "imminent" {
            watches.push(&mut self.forecasts);
        }
        if kind == "slope-change" {
            watches.push(&mut self.changes);
        }
        for watch in watches {
            match event {
                FindingEvent::Opened(_) => watch.opened(second),
                FindingEvent::Updated(_) => {}
                FindingEvent::Resolved(_) => watch.resolved(second),
            }
        }
        if matches!(event, FindingEvent::Opened(_)) {
            self.opened.push((second, kind));
            if ALARMS.contains(&kind) && self.claim.is_none() {
                self.claim = self.claim_of(finding);
            }
        }
    }

    fn claim_of(&self, finding: &Finding) -> Option<Claim> {
        let (truth, band) = (self.label.rate_at(self.second)?, finding.rate?);
        Some(Claim {
            rate: band.rate.mib_per_min(),
            low: band.low.mib_per_min(),
            high: band.high.mib_per_min(),
            truth,
        })
    }

    fn finish(mut self) -> Played {
        self.minutes.close();
        let headroom = self.room_at_onset.map(|at_onset| {
            let left = self.room_at_alert.unwrap_or(0.0);
            (left / at_onset).clamp(0.0, 1.0)
        });
        Played {
            label: self.label,
            end_s: self.second + 1,
            alarms: self.losses.finish(self.second + 1),
            forecasts: self.forecasts.finish(self.second + 1),
            changes: self.changes.finish(self.second + 1),
            opened: self.opened,
            claim: self.claim,
            diagnosis: self.detector.diagnosis().name(),
            headroom,
            minutes: self.minutes,
        }
    }
}

/// A point as the detector is told it.
pub(super) fn observation<'a>(seq: u64, label: &Label, point: &'a Point) -> Observation<'a> {
    let absent = Load::absent(Absent::NotSupported);
    Observation {
        tick: Tick { seq, at: Ts(WALL_MS + point.mono_ms as i64), mono_ms: point.mono_ms },
        value: Ok(point.used),
        capacity: Ok(Bytes::from_mib(label.capacity_mib)),
        load: Load {
            kv_used: told(point.kv_used),
            kv_pool: told(point.kv_pool),
            running: told(point.running),
            waiting: told(point.waiting),
            served: told(point.served),
            busy: told(point.busy),
            role: label.role,
            semantics: label.semantics,
            ..absent
        },
        owners: Err(Absent::NotSupported),
        peers: told(point.peers),
        events: &point.events,
    }
}

fn told<T>(value: Option<T>) -> Reading<T> {
    value.ok_or(Absent::NotSupported)
}
