//! Plays a made-up history to a detector and keeps what it said.

use ebbtide_core::{
    Absent, Bytes, Diagnosis, EventKind, Finding, FindingEvent, FindingKind, GpuUuid, Reading, SeriesPart,
    SeriesRef, Tick, Ts,
};
use ebbtide_detect::{DetectConfig, Detector, Load, Observation};

/// Wall time of the first sample: any will do, durations come from the monotonic clock.
const WALL: i64 = 1_790_000_000_000;

/// What happened, with the time of it in seconds.
pub(crate) struct Said {
    pub(crate) at: f64,
    pub(crate) event: FindingEvent,
}

/// A detector and all it has said.
pub(crate) struct Player {
    pub(crate) detector: Detector,
    pub(crate) capacity_mib: f64,
    pub(crate) said: Vec<Said>,
    pub(crate) diagnoses: Vec<(f64, Diagnosis)>,
    seq: u64,
}

/// One sample: seconds, MiB, and the counters as far as there are any.
#[derive(Clone, Copy, Default)]
pub(crate) struct Point {
    pub(crate) at: f64,
    pub(crate) used: f64,
    pub(crate) kv: Option<f64>,
    pub(crate) pool: Option<f64>,
    pub(crate) running: Option<u32>,
}

pub(crate) fn bytes(mib: f64) -> Bytes {
    Bytes((mib.max(0.0) * 1_048_576.0) as u64)
}

fn reading<T>(value: Option<T>) -> Reading<T> {
    value.ok_or(Absent::NotSupported)
}

impl Player {
    pub(crate) fn new(capacity_mib: f64) -> Self {
        let series = SeriesRef { gpu: GpuUuid::new("GPU-0"), part: SeriesPart::Device };
        let detector = Detector::new(series, &DetectConfig::default());
        Self { detector, capacity_mib, said: Vec::new(), diagnoses: Vec::new(), seq: 0 }
    }

    pub(crate) fn play(&mut self, points: impl IntoIterator<Item = Point>) -> &mut Self {
        for point in points {
            self.step(point.at, Ok(bytes(point.used)), point, &[]);
        }
        self
    }

    pub(crate) fn step(&mut self, at: f64, value: Reading<Bytes>, point: Point, events: &[EventKind]) {
        self.seq += 1;
        let ms = (at * 1000.0).round() as u64;
        let tick = Tick { seq: self.seq, at: Ts(WALL + ms as i64), mono_ms: 77_000 + ms };
        let observation = Observation {
            tick,
            value,
            capacity: Ok(bytes(self.capacity_mib)),
            load: Load {
                kv_used: reading(point.kv.map(bytes)),
                kv_pool: reading(point.pool.map(bytes)),
                running: reading(point.running),
                ..Load::absent(Absent::NotSupported)
            },
            owners: Err(Absent::NotSupported),
            peers: Err(Absent::NotSupported),
            events,
        };
        let events = self.detector.observe(&observation);
        self.said.extend(events.into_iter().map(|event| Said { at, event }));
        let diagnosis = self.detector.diagnosis();
        if self.diagnoses.last().is_none_or(|(_, last)| *last != diagnosis) {
            self.diagnoses.push((at, diagnosis));
        }
    }

    /// The first time a finding of that kind opened, in seconds.
    pub(crate) fn opened(&self, kind: FindingKind) -> Option<(f64, &Finding)> {
        self.said.iter().find_map(|said| match &said.event {
            FindingEvent::Opened(finding) if finding.key.kind == kind => Some((said.at, finding)),
            _ => None,
        })
    }

    /// The last state of the first finding of that kind.
    pub(crate) fn latest(&self, kind: FindingKind) -> Option<&Finding> {
        self.said.iter().rev().map(|said| said.event.finding()).find(|finding| finding.key.kind == kind)
    }
}

/// Seconds of an instant since the first sample.
pub(crate) fn seconds(ts: Ts) -> f64 {
    (ts.0 - WALL) as f64 / 1000.0
}
