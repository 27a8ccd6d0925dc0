//! The event ledger: equal steps upward at one kind of event are a leak an event, whatever the time between them.

use ebbtide_core::{EventKind, Evidence, FindingKind, Severity, Tick, Tier};

use super::{Claim, Moment, bytes, has_lasted};
use crate::sentence;

/// Floors that are kept of one kind of event: steps of the last seven.
const KEPT: usize = 8;
/// After an event memory settles for so long, in seconds, before its floor is taken: freeing takes the driver some.
const SETTLE_S: f64 = 20.0;
/// Steps that make a leak: three equal ones in a row by chance are rare, two are not.
const MIN_STEPS: usize = 3;
/// The least step, in MiB: four allocation granules of 2 MiB.
const MIN_STEP: f64 = 8.0;
/// Each step is within this factor of their median, above and below.
const SIMILAR: f64 = 1.6;
/// What memory rises between events, as a share of the step, beyond which it does not rise at them.
const BETWEEN: f64 = 0.5;

/// Kinds of event at which memory ought to come back to where it was. A start takes memory by nature, and what the
/// driver does is nobody's habit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    EngineExit,
    ProcessExit,
    ContainerRemoved,
    Sleep,
    Wake,
    ModelLoad,
    ModelUnload,
}

impl Kind {
    const fn of(event: &EventKind) -> Option<Self> {
        // tidy: table
        match event {
            EventKind::EngineExit => Some(Self::EngineExit),
            EventKind::ProcessExit => Some(Self::ProcessExit),
            EventKind::ContainerRemoved => Some(Self::ContainerRemoved),
            EventKind::Sleep => Some(Self::Sleep),
            EventKind::Wake => Some(Self::Wake),
            EventKind::ModelLoad(_) => Some(Self::ModelLoad),
            EventKind::ModelUnload(_) => Some(Self::ModelUnload),
            EventKind::ProcessStart
            | EventKind::DriverReload
            | EventKind::GpuLost
            | EventKind::GpuBack
            | EventKind::Xid(_) => None,
        }
    }

    const fn is_release(self) -> bool {
        !matches!(self, Self::Wake | Self::ModelLoad)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::EngineExit => "exit of an engine",
            Self::ProcessExit => "exit of a process",
            Self::ContainerRemoved => "removal of a container",
            Self::Sleep => "sleep",
            Self::Wake => "wake",
            Self::ModelLoad => "model load",
            Self::ModelUnload => "model unload",
        }
    }
}

/// Floors between events of one kind, in MiB.
#[derive(Debug, Clone, Copy)]
struct Track {
    kind: Kind,
    floors: [f64; KEPT],
    /// How far memory rose between the settled floor and the next event.
    drifts: [f64; KEPT],
    len: usize,
    since: Tick,
    first: Tick,
    events: u32,
    /// First value and lowest after the settling time.
    settled: Option<(f64, f64)>,
}

/// The most that a ledger keeps on the heap: a track for each kind.
pub(super) const MAX_HEAP: usize = 8 * size_of::<Track>();

/// Steps at events.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    tracks: Vec<Track>,
    lowest: Option<f64>,
    newest: Option<f64>,
    unloaded_since_load: bool,
}

impl Ledger {
    /// The bytes that it keeps on the heap now.
    pub(super) fn heap(&self) -> usize {
        self.tracks.capacity() * size_of::<Track>()
    }

    /// Takes an event: the stretch before it is over.
    pub(super) fn event(&mut self, event: &EventKind, tick: Tick) {
        let (Some(kind), Some(newest)) = (Kind::of(event), self.newest) else { return };
        // A model on top of those that are loaded takes what it takes.
        let is_addition = kind == Kind::ModelLoad && !self.unloaded_since_load;
        self.unloaded_since_load = match kind {
            Kind::ModelUnload => true,
            Kind::ModelLoad => false,
            _ => self.unloaded_since_load,
        };
        if is_addition {
            self.tracks.retain(|track| track.kind != kind);
        }
        if let Some(track) = self.tracks.iter_mut().find(|track| track.kind == kind) {
            track.next(newest, tick);
        } else {
            // One a kind, so there are never more than there are kinds.
            self.tracks.push(Track::new(kind, self.lowest.unwrap_or(newest), tick));
        }
    }

    /// Takes a value.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let value = moment.mib;
        self.lowest = Some(self.lowest.map_or(value, |lowest| lowest.min(value)));
        self.newest = Some(value);
        for track in &mut self.tracks {
            if has_lasted(track.since, moment.tick, SETTLE_S) {
                let (first, lowest) = track.settled.unwrap_or((value, value));
                track.settled = Some((first, lowest.min(value)));
            }
        }
    }

    /// The kind of event with the largest equal steps.
    pub(super) fn claim(&self) -> Option<Claim> {
        let found = self.tracks.iter().filter_map(Track::steps);
        let (track, step, count) = found.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let amount = bytes(step);
        let total = bytes(step * f64::from(track.events));
        let event = track.kind.words();
        let (kind, summary, settle) = if track.kind.is_release() {
            (FindingKind::NotReleased, sentence::kept_per_event(amount, event, count), sentence::SETTLE_KEPT)
        } else {
            (FindingKind::Leak, sentence::leak_per_event(amount, event, count), sentence::SETTLE_EVENT)
        };
        Some(Claim {
            kind,
            tier: Tier::Confirmed,
            severity: Severity::Warning,
            since: track.first,
            amount: total,
            accounts_for_rise: true,
            rate: None,
            evidence: vec![
                Evidence::new("step", step, "MiB"),
                Evidence::against("equal-steps", count as f64, "", MIN_STEPS as f64),
                Evidence::new("events", f64::from(track.events), ""),
            ],
            summary,
            settle,
        })
    }
}

impl Track {
    fn new(kind: Kind, before: f64, tick: Tick) -> Self {
        let mut floors = [0.0; KEPT];
        floors[0] = before;
        Self { kind, floors, drifts: [0.0; KEPT], len: 1, since: tick, first: tick, events: 1, settled: None }
    }

    /// The next event of the kind: takes the floor of the stretch before it.
    fn next(&mut self, newest: f64, tick: Tick) {
        let (first, lowest) = self.settled.unwrap_or((newest, newest));
        if self.len == KEPT {
            self.floors.rotate_left(1);
            self.drifts.rotate_left(1);
            self.len -= 1;
        }
        (self.floors[self.len], self.drifts[self.len]) = (lowest, newest - first);
        self.len += 1;
        (self.since, self.settled) = (tick, None);
        self.events = self.events.saturating_add(1);
    }

    /// Median step and number of steps, where they are equal and upward, and happen at the events.
    fn steps(&self) -> Option<(&Self, f64, usize)> {
        let mut steps = [0.0; KEPT];
        let mut count = 0;
        for pair in self.floors[..self.len].windows(2) {
            steps[count] = pair[1] - pair[0];
            count += 1;
        }
        if let Some((_, lowest)) = self.settled {
            steps[count] = lowest - self.floors[self.len - 1];
            count += 1;
        }
        let mut sorted = steps;
        let sorted = &mut sorted[..count];
        sorted.sort_unstable_by(f64::total_cmp);
        let median = *sorted.get(count / 2)?;
        let is_similar = |step: &f64| *step >= median / SIMILAR && *step <= median * SIMILAR;
        let between = self.drifts[1..self.len].iter().sum::<f64>() / (self.len.max(2) - 1) as f64;
        (count >= MIN_STEPS
            && median >= MIN_STEP
            && sorted.iter().all(is_similar)
            && between < BETWEEN * median)
            .then_some((self, median, count))
    }
}
