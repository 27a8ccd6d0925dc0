//! One detector a series: which series there are, what each is fed, and which end.

mod ranks;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use ebbtide_core::{
    Absent, Bytes, DeviceMemory, EngineRole, EngineSample, EventKind, FindingEvent, Frame, GpuSample,
    GpuUuid, Judgement, KvSemantics, Ledger, Liveness, Percent, ProcKey, ProcSample, Reading, Sample,
    SeriesPart, SeriesRef, Subject, Tick, WorldEvent,
};
use ebbtide_detect::{DetectConfig, Detector, Load, Observation};

/// The detectors of everything that is watched now.
pub(super) struct Detectors {
    config: DetectConfig,
    series: BTreeMap<SeriesRef, Watched>,
    /// The GPUs of the newest frame that had any.
    gpus: Vec<GpuUuid>,
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
    owners: Reading<u32>,
    peers: Reading<Bytes>,
    events: Vec<EventKind>,
}

impl Detectors {
    pub(super) fn new(config: DetectConfig) -> Self {
        Self { config, series: BTreeMap::new(), gpus: Vec::new() }
    }

    /// Feeds one frame to all detectors and closes those whose process or GPU has gone.
    pub(super) fn observe(&mut self, frame: &Frame) -> Vec<FindingEvent> {
        let mut events = self.close_vanished(&frame.sample);
        for (gpu, ledger) in frame.sample.gpus.iter().zip(&frame.ledgers) {
            let view = View { gpu, sample: &frame.sample };
            events.extend(self.feed(view, SeriesPart::Device, &view.device()));
            let Some(listed) = view.fresh_entries() else { continue };
            for process in listed {
                events.extend(self.feed(view, SeriesPart::Process(process.key), &view.process(process)));
                if let Some(fed) = view.host(process).filter(|_| view.is_first_gpu_of(process)) {
                    events.extend(self.feed(view, SeriesPart::Host(process.key), &fed));
                }
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
        let config = DetectConfig {
            fleet_gpus: self.config.fleet_gpus.or_else(|| watched_gpus(view.sample)),
            ..self.config
        };
        let watched = self.series.entry(series).or_insert_with_key(|series| Watched {
            detector: Detector::new(series.clone(), &config),
            subject: view.subject(part),
        });
        // A process can be listed before it can be looked at.
        if watched.subject.process.is_empty() && matches!(part, SeriesPart::Process(_) | SeriesPart::Host(_))
        {
            watched.subject = view.subject(part);
        }
        let observation = Observation {
            tick: view.sample.tick,
            value: fed.value,
            capacity: fed.capacity,
            load: fed.load,
            owners: fed.owners,
            peers: fed.peers,
            events: &fed.events,
        };
        let events = watched.detector.observe(&observation);
        events.into_iter().map(|event| named(event, &watched.subject)).collect()
    }

    fn close_gone(&mut self, gpu: &GpuSample, listed: &[ProcSample], tick: Tick) -> Vec<FindingEvent> {
        let alive: BTreeSet<ProcKey> = listed.iter().map(|p| p.key).collect();
        let is_gone = |series: &SeriesRef| match series.part {
            SeriesPart::Process(key) | SeriesPart::Host(key) => {
                series.gpu == gpu.uuid && !alive.contains(&key)
            }
            SeriesPart::Device | SeriesPart::Unattributed => false,
        };
        self.close(is_gone, tick)
    }

    /// Closes the detectors of GPUs that are no longer listed at all, as MIG instances that were taken down. A GPU
    /// that is lost stays on the list; and where there is none, the driver is away.
    fn close_vanished(&mut self, sample: &Sample) -> Vec<FindingEvent> {
        let now = || sample.gpus.iter().map(|gpu| &gpu.uuid);
        if sample.gpus.is_empty() || self.gpus.iter().eq(now()) {
            return Vec::new();
        }
        self.gpus = now().cloned().collect();
        self.close(|series| now().all(|uuid| *uuid != series.gpu), sample.tick)
    }

    fn close(&mut self, is_gone: impl Fn(&SeriesRef) -> bool, tick: Tick) -> Vec<FindingEvent> {
        let mut events = Vec::new();
        for (_, mut watched) in self.series.extract_if(.., |series, _| is_gone(series)) {
            events
                .extend(watched.detector.close(tick).into_iter().map(|event| named(event, &watched.subject)));
        }
        events
    }
}

/// How many GPUs share the false pages where the configuration does not say.
fn watched_gpus(sample: &Sample) -> Option<NonZeroU32> {
    NonZeroU32::new(u32::try_from(sample.gpus.len()).unwrap_or(u32::MAX))
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

    /// Whether no GPU before this one lists the process: its host memory is judged once.
    fn is_first_gpu_of(self, process: &ProcSample) -> bool {
        let lists = |gpu: &GpuSample| {
            gpu.processes.as_ref().is_ok_and(|list| list.entries.iter().any(|p| p.key == process.key))
        };
        self.sample.gpus.iter().find(|gpu| lists(gpu)).is_none_or(|first| first.uuid == self.gpu.uuid)
    }

    fn subject(self, part: SeriesPart) -> Subject {
        let process = match part {
            SeriesPart::Process(key) | SeriesPart::Host(key) => {
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
            load: Load { busy: self.gpu.utilization, ..total_load(&engines) },
            owners: self.owners(),
            peers: Err(Absent::NotSupported),
            events: self.events(None),
        }
    }

    fn process(self, process: &ProcSample) -> Fed {
        Fed {
            value: process.memory,
            capacity: self.available_to(process),
            load: Load { busy: self.busy(), ..total_load(process.engine.as_ref().as_slice()) },
            owners: owners_of(process),
            peers: ranks::peers(self.sample, self.gpu, process),
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
            // With a listed process that can be found, lists are complete, and this part is nobody's.
            owners: self.owners().and_then(|alive| if alive > 0 { Ok(0) } else { Err(Absent::NotSupported) }),
            peers: Err(Absent::NotSupported),
            events: self.events(None),
        })
    }

    /// Resident host memory of a process, up to the limit of its cgroup or what the host has left.
    fn host(self, process: &ProcSample) -> Option<Fed> {
        let rss = process.rss.ok()?;
        let left = self.sample.host.available.map(|available| rss + available);
        Some(Fed {
            value: Ok(rss),
            capacity: match (process.host_limit, left) {
                (Ok(limit), Ok(left)) => Ok(limit.min(left)),
                (limit, left) => limit.or(left),
            },
            load: total_load(&[]),
            owners: owners_of(process),
            peers: Err(Absent::NotSupported),
            events: self.events(Some(process.key)),
        })
    }

    /// How many live processes hold this GPU's memory: holders that no list names count, and where nobody is listed
    /// or the lists are of another PID namespace it is not known.
    fn owners(self) -> Reading<u32> {
        let list = self.gpu.processes.as_ref().map_err(|&why| why)?;
        if list.entries.is_empty() && self.gpu.holders.is_empty() {
            return Err(Absent::NotSupported);
        }
        let listed: Reading<u32> = list.entries.iter().map(owners_of).sum();
        listed.map(|alive| alive + u32::try_from(self.gpu.holders.len()).unwrap_or(u32::MAX - alive))
    }

    /// Whether a process computes: known where the whole GPU does not, or where it has no other process.
    fn busy(self) -> Reading<Percent> {
        let busy = self.gpu.utilization?;
        let is_alone = self.fresh_entries().is_some_and(|all| all.len() == 1);
        if busy == Percent(0) || is_alone { Ok(busy) } else { Err(Absent::NotSupported) }
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

/// One live owner, or none: a process that has gone.
fn owners_of(process: &ProcSample) -> Reading<u32> {
    match process.liveness {
        Liveness::Alive if process.key.pid == STAND_IN => Err(Absent::NotSupported),
        Liveness::Alive => Ok(1),
        Liveness::Zombie | Liveness::Dead => Ok(0),
        Liveness::Foreign => Err(Absent::NotSupported),
    }
}

/// No process has this number: it stands for what a recorded file does not tell.
const STAND_IN: u32 = 0;

fn capacity(memory: DeviceMemory) -> Bytes {
    memory.total.saturating_sub(memory.reserved.unwrap_or(Bytes::ZERO))
}

/// The load of all engines together; absent as soon as one of them does not tell.
fn total_load(engines: &[&EngineSample]) -> Load {
    let bytes = |field: fn(&EngineSample) -> Reading<Bytes>| sum(engines, field, Bytes::saturating_add);
    let count = |field: fn(&EngineSample) -> Reading<u32>| sum(engines, field, u32::saturating_add);
    let total = |field: fn(&EngineSample) -> Reading<u64>| sum(engines, field, u64::saturating_add);
    let roles = || engines.iter().map(|engine| role(engine));
    let holds_for_peers = roles().any(|role| role == EngineRole::Prefill);
    Load {
        kv_used: bytes(|e| e.kv_used),
        kv_pool: bytes(|e| e.kv_pool),
        running: count(|e| e.running),
        waiting: count(|e| e.waiting),
        served: total(|e| e.served),
        tokens: total(|e| e.tokens),
        arena: bytes(|e| e.arena),
        arena_used: bytes(|e| e.arena_used),
        busy: Err(Absent::NotSupported),
        // One node among them that holds blocks for a peer is enough to hold some.
        role: if holds_for_peers { EngineRole::Prefill } else { agreed(roles(), EngineRole::Unknown) },
        semantics: agreed(engines.iter().map(|e| e.semantics), KvSemantics::Unknown),
    }
}

fn role(engine: &EngineSample) -> EngineRole {
    engine.report.as_ref().map_or(EngineRole::Unknown, |report| report.role)
}

/// What all of them say; `unknown` where they differ, or nobody is there.
fn agreed<T: PartialEq>(mut said: impl Iterator<Item = T>, unknown: T) -> T {
    let Some(first) = said.next() else { return unknown };
    if said.all(|other| other == first) { first } else { unknown }
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
