//! One detector a series: which series there are, what each is fed, and which end.

use std::collections::{BTreeMap, BTreeSet};

use ebbtide_core::{
    Absent, Bytes, DeviceMemory, EngineSample, EventKind, FindingEvent, Frame, GpuSample, GpuUuid, Judgement,
    Ledger, ProcKey, ProcSample, Reading, Sample, SeriesPart, SeriesRef, Subject, Tick, WorldEvent,
};
use ebbtide_detect::{DetectConfig, Detector, Load, Observation};

/// The detectors of everything that is watched now.
pub(super) struct Detectors {
    config: DetectConfig,
    series: BTreeMap<SeriesRef, Watched>,
}

struct Watched {
    detector: Detector,
    subject: Subject,
}

/// What one series is fed in one tick.
struct Fed {
    value: Reading<Bytes>,
    capacity: Reading<Bytes>,
    load: Load,
    events: Vec<EventKind>,
}

impl Detectors {
    pub(super) fn new(config: DetectConfig) -> Self {
        Self { config, series: BTreeMap::new() }
    }

    /// Feeds one frame to all detectors and closes those whose process has gone.
    pub(super) fn observe(&mut self, frame: &Frame) -> Vec<FindingEvent> {
        let mut events = Vec::new();
        for (gpu, ledger) in frame.sample.gpus.iter().zip(&frame.ledgers) {
            let view = View { gpu, sample: &frame.sample };
            events.extend(self.feed(view, SeriesPart::Device, &view.device()));
            let Some(listed) = view.fresh_entries() else { continue };
            for process in listed {
                events.extend(self.feed(view, SeriesPart::Process(process.key), &view.process(process)));
            }
            if let Some(fed) = view.unattributed(ledger) {
                events.extend(self.feed(view, SeriesPart::Unattributed, &fed));
            }
            events.extend(self.close_gone(gpu, listed, frame.sample.tick));
        }
        events
    }

    /// What is said of one GPU's series: the device's first, then the processes', then the unattributed part's.
    pub(super) fn judgements(&self, gpu: &GpuUuid) -> Vec<Judgement> {
        self.series
            .iter()
            .filter(|(series, _)| series.gpu == *gpu)
            .map(|(_, w)| w.detector.judgement().clone())
            .collect()
    }

    fn feed(&mut self, view: View<'_>, part: SeriesPart, fed: &Fed) -> Vec<FindingEvent> {
        let series = SeriesRef { gpu: view.gpu.uuid.clone(), part };
        let watched = self.series.entry(series).or_insert_with_key(|series| Watched {
            detector: Detector::new(series.clone(), &self.config),
            subject: view.subject(part),
        });
        let observation = Observation {
            tick: view.sample.tick,
            value: fed.value,
            capacity: fed.capacity,
            load: fed.load,
            events: &fed.events,
        };
        let events = watched.detector.observe(&observation);
        events.into_iter().map(|event| named(event, &watched.subject)).collect()
    }

    fn close_gone(&mut self, gpu: &GpuSample, listed: &[ProcSample], tick: Tick) -> Vec<FindingEvent> {
        let alive: BTreeSet<ProcKey> = listed.iter().map(|p| p.key).collect();
        let is_gone = |series: &SeriesRef| match series.part {
            SeriesPart::Process(key) => series.gpu == gpu.uuid && !alive.contains(&key),
            SeriesPart::Device | SeriesPart::Unattributed => false,
        };
        let mut events = Vec::new();
        for (_, mut watched) in self.series.extract_if(.., |series, _| is_gone(series)) {
            events
                .extend(watched.detector.close(tick).into_iter().map(|event| named(event, &watched.subject)));
        }
        events
    }
}

fn named(mut event: FindingEvent, subject: &Subject) -> FindingEvent {
    let (FindingEvent::Opened(finding) | FindingEvent::Updated(finding) | FindingEvent::Resolved(finding)) =
        &mut event;
    finding.subject = subject.clone();
    event
}

/// One GPU within a sample.
#[derive(Clone, Copy)]
struct View<'a> {
    gpu: &'a GpuSample,
    sample: &'a Sample,
}

impl<'a> View<'a> {
    /// The entries of the process list, if it is of this very sample.
    fn fresh_entries(self) -> Option<&'a [ProcSample]> {
        let list = self.gpu.processes.as_ref().ok()?;
        (list.listed.seq == self.sample.tick.seq).then_some(list.entries.as_slice())
    }

    fn subject(self, part: SeriesPart) -> Subject {
        let process = match part {
            SeriesPart::Process(key) => {
                self.fresh_entries().and_then(|all| all.iter().find(|p| p.key == key))
            }
            SeriesPart::Device | SeriesPart::Unattributed => None,
        };
        Subject {
            gpu_index: Some(self.gpu.index),
            gpu_name: self.gpu.name.to_string(),
            process: process.and_then(|p| p.info.name.clone().ok()).unwrap_or_default(),
            owner: process.map(|p| p.info.owner.clone()).unwrap_or_default(),
        }
    }

    fn device(self) -> Fed {
        let engines: Vec<&EngineSample> = match &self.gpu.processes {
            Ok(list) => list.entries.iter().filter_map(|p| p.engine.as_ref()).collect(),
            Err(_) => Vec::new(),
        };
        Fed {
            value: self.gpu.memory.map(|m| m.used),
            capacity: self.gpu.memory.map(capacity),
            load: total_load(&engines),
            events: self.events(None),
        }
    }

    fn process(self, process: &ProcSample) -> Fed {
        Fed {
            value: process.memory,
            capacity: self.available_to(process),
            load: process.engine.as_ref().map_or_else(|| total_load(&[]), |engine| total_load(&[engine])),
            events: self.events(Some(process.key)),
        }
    }

    /// Memory that nobody answers for. Below zero it is memory counted twice, of which none is unattributed.
    fn unattributed(self, ledger: &Ledger) -> Option<Fed> {
        let rest = ledger.unattributed.ok()?;
        Some(Fed {
            value: Ok(Bytes(u64::try_from(rest.0).unwrap_or(0))),
            capacity: self.gpu.memory.map(capacity),
            load: total_load(&[]),
            events: self.events(None),
        })
    }

    /// What a process can grow to: what it has and what is free.
    fn available_to(self, process: &ProcSample) -> Reading<Bytes> {
        Ok(process.memory? + self.gpu.memory?.free)
    }

    /// What happened to this GPU, and to this process where it is one's.
    fn events(self, process: Option<ProcKey>) -> Vec<EventKind> {
        let concerns = |event: &&WorldEvent| {
            event.gpu.as_ref().is_none_or(|gpu| *gpu == self.gpu.uuid)
                && (process.is_none() || event.proc.is_none() || event.proc == process)
        };
        self.sample.events.iter().filter(concerns).map(|event| event.kind.clone()).collect()
    }
}

fn capacity(memory: DeviceMemory) -> Bytes {
    memory.total.saturating_sub(memory.reserved.unwrap_or(Bytes::ZERO))
}

/// The load of all engines together; absent as soon as one of them does not tell.
fn total_load(engines: &[&EngineSample]) -> Load {
    let bytes = |field: fn(&EngineSample) -> Reading<Bytes>| sum(engines, field, Bytes::saturating_add);
    let count = |field: fn(&EngineSample) -> Reading<u32>| sum(engines, field, u32::saturating_add);
    Load {
        kv_used: bytes(|e| e.kv_used),
        kv_pool: bytes(|e| e.kv_pool),
        running: count(|e| e.running),
        waiting: count(|e| e.waiting),
    }
}

fn sum<T>(
    engines: &[&EngineSample],
    field: fn(&EngineSample) -> Reading<T>,
    add: fn(T, T) -> T,
) -> Reading<T> {
    let mut terms = engines.iter().map(|&engine| field(engine));
    let first = terms.next().unwrap_or(Err(Absent::NotSupported))?;
    terms.try_fold(first, |total, term| Ok(add(total, term?)))
}
