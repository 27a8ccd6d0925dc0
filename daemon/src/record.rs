//! A frame as the history keeps it, and a sample made of it again.
//!
//! What the detector needs survives the way there and back: a property test holds that. What only people look at
//! (utilisation of a lost GPU, holders, health notes) does not.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use ebbtide_core::{
    Absent, Bytes, DeviceMemory, EngineLedger, EngineSample, Frame, GpuCard, GpuKind, GpuSample, GpuState,
    GpuUuid, HostSample, Ledger, Liveness, MemorySource, Metric, Percent, Point, ProbeHealth, ProcInfo,
    ProcKey, ProcKinds, ProcSample, ProcessCard, ProcessList, Reading, Sample, SeriesKey, TickRecord,
};

/// Turns frames into records; remembers since when whose cards are written.
#[derive(Debug, Default)]
pub struct Recorder {
    gpus: BTreeMap<GpuUuid, u64>,
    processes: BTreeMap<ProcKey, Introduced>,
}

/// A process as it was introduced last.
#[derive(Debug)]
struct Introduced {
    seq: u64,
    engine: Option<String>,
}

/// Cards are written again after so many ticks: the tick that had them may have been dropped while nothing could be
/// written, or lie in a database that was replaced, and without them a restart knows nobody's name. At a tick a second
/// it is a few small rows in ten minutes.
const INTRODUCE_AGAIN_TICKS: u64 = 600;

impl Recorder {
    /// The record of one frame.
    pub fn record(&mut self, frame: &Frame) -> TickRecord {
        let sample = &frame.sample;
        let since = |introduced: u64| sample.tick.seq.saturating_sub(introduced);
        self.gpus.retain(|_, introduced| since(*introduced) < INTRODUCE_AGAIN_TICKS);
        // Longer than until they are introduced again, so that an engine that falls silent is still known then.
        self.processes.retain(|_, introduced| since(introduced.seq) < 2 * INTRODUCE_AGAIN_TICKS);
        let mut record =
            TickRecord { tick: sample.tick, points: Vec::new(), gpus: Vec::new(), processes: Vec::new() };
        for (gpu, ledger) in sample.gpus.iter().zip(&frame.ledgers) {
            self.card(gpu, &mut record);
            device_points(gpu, ledger, &mut record.points);
            if let Ok(list) = fresh_list(gpu, sample) {
                list.entries.iter().for_each(|p| self.process(gpu, p, &mut record));
                ledger.engines.iter().for_each(|engine| engine_points(gpu, engine, &mut record.points));
            }
        }
        host_points(&sample.host, &mut record.points);
        record
    }

    fn card(&mut self, gpu: &GpuSample, record: &mut TickRecord) {
        if let Entry::Vacant(unknown) = self.gpus.entry(gpu.uuid.clone()) {
            unknown.insert(record.tick.seq);
            record.gpus.push(GpuCard {
                uuid: gpu.uuid.clone(),
                index: gpu.index,
                name: Arc::clone(&gpu.name),
                kind: gpu.kind.clone(),
            });
        }
    }

    /// At once when it or its engine is met for the first time, and again now and then.
    fn process_card(&mut self, process: &ProcSample, record: &mut TickRecord) {
        let seq = record.tick.seq;
        let known = self.processes.get(&process.key);
        let report = process.engine.as_ref().and_then(|engine| engine.report.as_ref());
        let engine =
            report.map(|report| &report.engine).or_else(|| known.and_then(|known| known.engine.as_ref()));
        let is_known = known.is_some_and(|known| {
            seq.saturating_sub(known.seq) < INTRODUCE_AGAIN_TICKS && known.engine.as_ref() == engine
        });
        if !is_known {
            let engine = engine.cloned();
            let info = Arc::clone(&process.info);
            record.processes.push(ProcessCard { key: process.key, info, engine: engine.clone() });
            self.processes.insert(process.key, Introduced { seq, engine });
        }
    }

    fn process(&mut self, gpu: &GpuSample, process: &ProcSample, record: &mut TickRecord) {
        self.process_card(process, record);
        let mut push =
            |metric, value| record.points.push(point(Some(&gpu.uuid), Some(process.key), metric, value));
        push(Metric::ProcessBytes, bytes(process.memory));
        push(Metric::RssBytes, bytes(process.rss));
        if process.host_limit != Err(Absent::NotSupported) {
            push(Metric::HostLimitBytes, bytes(process.host_limit));
        }
        if let Some(engine) = &process.engine {
            push(Metric::KvUsedBytes, bytes(engine.kv_used));
            push(Metric::KvPoolBytes, bytes(engine.kv_pool));
            push(Metric::RunningRequests, engine.running.ok().map(i64::from));
            push(Metric::WaitingRequests, engine.waiting.ok().map(i64::from));
        }
    }
}

fn fresh_list<'a>(gpu: &'a GpuSample, sample: &Sample) -> Reading<&'a ProcessList> {
    let list = gpu.processes.as_ref().map_err(|&why| why)?;
    if list.listed.seq == sample.tick.seq { Ok(list) } else { Err(Absent::NotYet) }
}

fn device_points(gpu: &GpuSample, ledger: &Ledger, points: &mut Vec<Point>) {
    let mut push = |metric, value| points.push(point(Some(&gpu.uuid), None, metric, value));
    push(Metric::UsedBytes, bytes(gpu.memory.map(|m| m.used)));
    push(Metric::TotalBytes, bytes(gpu.memory.map(|m| m.total)));
    push(Metric::FreeBytes, bytes(gpu.memory.map(|m| m.free)));
    push(Metric::ReservedBytes, bytes(gpu.memory.and_then(|m| m.reserved)));
    push(Metric::UtilizationPercent, gpu.utilization.ok().map(|p| i64::from(p.0)));
    if let Ok(list) = &gpu.processes
        && list.listed.seq == ledger.tick.seq
    {
        push(Metric::ListedProcesses, i64::try_from(list.entries.len()).ok());
        push(Metric::UnattributedBytes, ledger.unattributed.ok().map(|b| b.0));
    }
}

/// What an engine's memory is for, beside the counters: only what is known, for most engines leave most of it out.
fn engine_points(gpu: &GpuSample, engine: &EngineLedger, points: &mut Vec<Point>) {
    let mut push = |metric, value: Option<i64>| {
        points.extend(value.map(|value| point(Some(&gpu.uuid), Some(engine.key), metric, Some(value))));
    };
    push(Metric::KvCachedBytes, bytes(engine.cached.map(|cached| cached.bytes)));
    push(Metric::WeightsBytes, bytes(engine.weights.map(|weights| weights.bytes)));
    push(Metric::RemainderBytes, engine.remainder.ok().map(|remainder| remainder.bytes.0));
}

fn host_points(host: &HostSample, points: &mut Vec<Point>) {
    points.push(point(None, None, Metric::HostTotalBytes, bytes(host.total)));
    points.push(point(None, None, Metric::HostAvailableBytes, bytes(host.available)));
}

fn point(gpu: Option<&GpuUuid>, proc: Option<ProcKey>, metric: Metric, value: Option<i64>) -> Point {
    Point { series: SeriesKey { gpu: gpu.cloned(), proc, metric }, value }
}

/// NVML counts in 64 unsigned bits, SQLite in 63: what does not fit is no figure of a real card.
fn bytes(reading: Reading<Bytes>) -> Option<i64> {
    reading.ok().and_then(|b| i64::try_from(b.0).ok())
}

/// Turns records back into samples.
#[derive(Debug, Default)]
pub struct Replayer {
    gpus: BTreeMap<GpuUuid, GpuCard>,
    processes: BTreeMap<ProcKey, Arc<ProcInfo>>,
    lists: BTreeMap<GpuUuid, ProcessList>,
}

/// The values of one owner in one record.
type Values = BTreeMap<Metric, Option<i64>>;

impl Replayer {
    fn learn(&mut self, gpus: Vec<GpuCard>, processes: Vec<ProcessCard>) {
        self.gpus.extend(gpus.into_iter().map(|card| (card.uuid.clone(), card)));
        self.processes.extend(processes.into_iter().map(|card| (card.key, card.info)));
    }

    /// The sample that left `record`.
    pub fn sample(&mut self, record: TickRecord) -> Sample {
        self.learn(record.gpus, record.processes);
        let mut owners: BTreeMap<(Option<GpuUuid>, Option<ProcKey>), Values> = BTreeMap::new();
        for Point { series, value } in record.points {
            owners.entry((series.gpu, series.proc)).or_default().insert(series.metric, value);
        }
        let none = Values::new();
        let host = owners.get(&(None, None)).unwrap_or(&none);
        let host = HostSample {
            total: read(host, Metric::HostTotalBytes),
            available: read(host, Metric::HostAvailableBytes),
        };
        let devices: Vec<(GpuUuid, Values)> = owners
            .iter()
            .filter_map(|((gpu, proc), values)| {
                Some((gpu.clone()?, values.clone())).filter(|_| proc.is_none())
            })
            .collect();
        let mut gpus: Vec<GpuSample> =
            devices.into_iter().map(|(uuid, values)| self.gpu(uuid, &values, &owners, record.tick)).collect();
        gpus.sort_by_key(|gpu| gpu.index);
        Sample {
            tick: record.tick,
            gpus,
            host,
            events: Vec::new(),
            endings: Vec::new(),
            probe: ProbeHealth::default(),
        }
    }

    fn gpu(
        &mut self,
        uuid: GpuUuid,
        values: &Values,
        owners: &BTreeMap<(Option<GpuUuid>, Option<ProcKey>), Values>,
        tick: ebbtide_core::Tick,
    ) -> GpuSample {
        if values.contains_key(&Metric::ListedProcesses) {
            let entries = owners
                .iter()
                .filter(|((gpu, _), _)| gpu.as_ref() == Some(&uuid))
                .filter_map(|((_, proc), values)| Some(self.process((*proc)?, values)))
                .collect();
            self.lists.insert(uuid.clone(), ProcessList { listed: tick, entries });
        }
        let card = self.gpus.get(&uuid);
        let memory = device_memory(values);
        GpuSample {
            index: card.map_or(0, |c| c.index),
            name: card.map_or_else(|| uuid.as_str().into(), |c| Arc::clone(&c.name)),
            kind: card.map_or(GpuKind::Discrete, |c| c.kind.clone()),
            state: if memory.is_ok() { GpuState::Present } else { GpuState::Stale },
            memory,
            utilization: read(values, Metric::UtilizationPercent)
                .map(|b| Percent(u8::try_from(b.0).unwrap_or(100))),
            processes: self.lists.get(&uuid).cloned().ok_or(Absent::NotYet),
            holders: Vec::new(),
            uuid,
        }
    }

    fn process(&self, key: ProcKey, values: &Values) -> ProcSample {
        let count = |metric| read(values, metric).map(|b| u32::try_from(b.0).unwrap_or(u32::MAX));
        let engine = values.contains_key(&Metric::KvUsedBytes).then(|| EngineSample {
            kv_used: read(values, Metric::KvUsedBytes),
            kv_pool: read(values, Metric::KvPoolBytes),
            kv_cached: read(values, Metric::KvCachedBytes),
            running: count(Metric::RunningRequests),
            waiting: count(Metric::WaitingRequests),
            ..EngineSample::absent(Absent::NotYet)
        });
        let unlimited = !values.contains_key(&Metric::HostLimitBytes);
        ProcSample {
            key,
            memory: read(values, Metric::ProcessBytes),
            kinds: ProcKinds::default(),
            liveness: Liveness::Alive,
            info: self
                .processes
                .get(&key)
                .map_or_else(|| Arc::new(ProcInfo::absent(Absent::NotYet)), Arc::clone),
            rss: read(values, Metric::RssBytes),
            host_limit: if unlimited {
                Err(Absent::NotSupported)
            } else {
                read(values, Metric::HostLimitBytes)
            },
            engine,
        }
    }
}

fn device_memory(values: &Values) -> Reading<DeviceMemory> {
    Ok(DeviceMemory {
        total: read(values, Metric::TotalBytes)?,
        used: read(values, Metric::UsedBytes)?,
        free: read(values, Metric::FreeBytes)?,
        reserved: read(values, Metric::ReservedBytes),
        source: MemorySource::Recorded,
    })
}

fn read(values: &Values, metric: Metric) -> Reading<Bytes> {
    let value = values.get(&metric).copied().flatten().ok_or(Absent::NotYet)?;
    u64::try_from(value).map(Bytes).map_err(|_| Absent::NotYet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::{EngineReport, Tick, Ts};
    use proptest::prelude::*;

    /// What the detector reads of a sample.
    type Judged = Vec<(GpuUuid, Reading<(Bytes, Bytes, Bytes, Reading<Bytes>)>, Reading<Vec<JudgedProcess>>)>;
    type JudgedProcess = (ProcKey, Reading<Bytes>, Reading<Bytes>, Option<(Reading<Bytes>, Reading<u32>)>);

    fn judged(sample: &Sample) -> Judged {
        sample
            .gpus
            .iter()
            .map(|gpu| {
                let processes = fresh_list(gpu, sample).map(|list| {
                    let engine =
                        |p: &ProcSample| p.engine.as_ref().map(|e| (known(e.kv_used), known(e.running)));
                    list.entries.iter().map(|p| (p.key, known(p.memory), known(p.rss), engine(p))).collect()
                });
                let memory = gpu.memory.map(|m| (m.total, m.used, m.free, known(m.reserved)));
                (gpu.uuid.clone(), known(memory), known(processes))
            })
            .collect()
    }

    /// The history keeps no reason for an absence.
    fn known<T>(reading: Reading<T>) -> Reading<T> {
        reading.map_err(|_| Absent::NotYet)
    }

    fn amount() -> impl Strategy<Value = Reading<Bytes>> {
        prop_oneof![4 => (0u64..1 << 40).prop_map(|b| Ok(Bytes(b))), 1 => Just(Err(Absent::Timeout))]
    }

    fn process(pid: u32) -> impl Strategy<Value = ProcSample> {
        let engine = (amount(), prop::option::of(0u32..200));
        (amount(), amount(), prop::option::of(engine)).prop_map(move |(memory, rss, engine)| ProcSample {
            key: ProcKey { pid, start_ticks: pid.is_multiple_of(2).then_some(77) },
            memory,
            kinds: ProcKinds::default(),
            liveness: Liveness::Alive,
            info: Arc::new(ProcInfo::absent(Absent::NotYet)),
            rss,
            host_limit: Err(Absent::NotSupported),
            engine: engine.map(|(kv_used, running)| EngineSample {
                kv_used,
                running: running.ok_or(Absent::NotYet),
                ..EngineSample::absent(Absent::NotYet)
            }),
        })
    }

    fn gpu(index: u32) -> impl Strategy<Value = GpuSample> {
        let list = prop::option::of((0u32..4).prop_flat_map(|n| (0..n).map(process).collect::<Vec<_>>()));
        let memory = (amount(), amount(), amount(), amount());
        (memory, list).prop_map(move |((total, used, free, reserved), list)| GpuSample {
            uuid: GpuUuid::new(&format!("GPU-{index}")),
            index,
            name: "card".into(),
            kind: GpuKind::Discrete,
            state: GpuState::Present,
            memory: (|| {
                let source = MemorySource::NvmlV2;
                Ok(DeviceMemory { total: total?, used: used?, free: free?, reserved, source })
            })(),
            utilization: Ok(Percent(50)),
            processes: list
                .map(|entries| ProcessList { listed: Tick { seq: 9, at: Ts(5), mono_ms: 5 }, entries })
                .ok_or(Absent::NotYet),
            holders: Vec::new(),
        })
    }

    proptest! {
        #[test]
        fn what_the_detector_needs_survives_the_history(first in gpu(0), second in gpu(1)) {
            let sample = Sample {
                tick: Tick { seq: 9, at: Ts(5), mono_ms: 5 },
                gpus: vec![first, second],
                host: HostSample { total: Ok(Bytes(7)), available: Err(Absent::NotSupported) },
                events: Vec::new(),
                endings: Vec::new(),
                probe: ProbeHealth::default(),
            };
            let record = Recorder::default().record(&Frame::of(sample.clone()));
            let replayed = Replayer::default().sample(record);
            prop_assert_eq!(judged(&replayed), judged(&sample));
            prop_assert_eq!(replayed.host.total, sample.host.total);
        }
    }

    #[test]
    fn an_engine_is_told_when_it_is_found_and_is_not_forgotten_when_it_falls_silent() {
        let report = Arc::new(EngineReport::absent("vLLM", "127.0.0.1:8000", Absent::NotYet));
        let talking = EngineSample { report: Some(report), ..EngineSample::absent(Absent::NotYet) };
        let mut recorder = Recorder::default();
        let mut told = |seq: u64, engine: Option<&EngineSample>| {
            let tick = Tick { seq, at: Ts(5), mono_ms: 5 };
            let process = ProcSample {
                key: ProcKey { pid: 7, start_ticks: Some(77) },
                memory: Ok(Bytes(1)),
                kinds: ProcKinds::default(),
                liveness: Liveness::Alive,
                info: Arc::new(ProcInfo::absent(Absent::NotYet)),
                rss: Err(Absent::NotYet),
                host_limit: Err(Absent::NotSupported),
                engine: engine.cloned(),
            };
            let mut record = TickRecord { tick, points: vec![], gpus: vec![], processes: vec![] };
            recorder.process_card(&process, &mut record);
            record.processes.pop().map(|card| card.engine)
        };
        let vllm = || Some("vLLM".to_owned());
        assert_eq!(told(1, None), Some(None));
        assert_eq!(told(2, None), None);
        assert_eq!(told(3, Some(&talking)), Some(vllm()));
        assert_eq!(told(4, None), None);
        assert_eq!(told(3 + INTRODUCE_AGAIN_TICKS, None), Some(vllm()));
    }

    proptest! {
        // A thousand ticks each.
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// A tick may be lost with the cards in it: whoever is watched is introduced again.
        #[test]
        fn everybody_is_introduced_again_and_only_now_and_then(gpu in gpu(0)) {
            let sample = |seq: u64| Sample {
                tick: Tick { seq, at: Ts(5), mono_ms: 5 },
                gpus: vec![gpu.clone()],
                host: HostSample { total: Ok(Bytes(7)), available: Err(Absent::NotSupported) },
                events: Vec::new(),
                endings: Vec::new(),
                probe: ProbeHealth::default(),
            };
            let mut recorder = Recorder::default();
            let cards: Vec<(usize, usize)> = (9..9 + 2 * INTRODUCE_AGAIN_TICKS)
                .map(|seq| {
                    let mut sample = sample(seq);
                    sample.gpus[0].processes.iter_mut().for_each(|list| list.listed = sample.tick);
                    let record = recorder.record(&Frame::of(sample));
                    (record.gpus.len(), record.processes.len())
                })
                .collect();
            let listed = gpu.processes.map_or(0, |list| list.entries.len());
            let often = INTRODUCE_AGAIN_TICKS as usize;
            for (tick, cards) in cards.into_iter().enumerate() {
                let expected = if tick % often == 0 { (1, listed) } else { (0, 0) };
                prop_assert_eq!(cards, expected, "tick {}", tick);
            }
        }
    }
}
