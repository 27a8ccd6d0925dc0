//! Golden answers: what a person reads for worlds as the trackers describe them.

use std::sync::Arc;

use ebbtide_core::*;

use super::*;
use crate::wire::{GpuStatus, Health, Level, SCHEMA};

const NOW: Ts = Ts(1_772_366_400_000);
const HOUR_MS: i64 = 3_600_000;

fn gib(gib: f64) -> Bytes {
    Bytes((gib * units::GIB as f64) as u64)
}

pub(crate) fn process(pid: u32, name: &str, memory: Bytes) -> ProcSample {
    ProcSample {
        key: ProcKey { pid, start_ticks: Some(1) },
        memory: Ok(memory),
        kinds: ProcKinds { compute: true, ..ProcKinds::default() },
        liveness: Liveness::Alive,
        info: Arc::new(ProcInfo { name: Ok(name.to_owned()), ..ProcInfo::absent(Absent::NotYet) }),
        rss: Ok(gib(6.0)),
        host_limit: Ok(gib(32.0)),
        engine: None,
    }
}

/// vLLM with a pool of 57.4 GiB of which 1.2 GiB are in use; the planner made bytes of its blocks.
fn vllm(pid: u32) -> ProcSample {
    let appraisal = Appraisal {
        model: "Llama-3-8B / 3.1-8B".to_owned(),
        source: "the catalogue, by its name".to_owned(),
        weights: Ok(Amount::within(gib(14.96), 0.02)),
        kv_bytes_per_token: Bytes(131_072),
        sizes_kv: true,
        kv_error: 0.001,
        assumed: vec!["the model has the layers of Llama-3-8B / 3.1-8B".to_owned()],
    };
    let report = EngineReport {
        share: Ok(0.9),
        asleep: Ok(false),
        appraisal: Some(appraisal),
        ..EngineReport::absent("vLLM", "127.0.0.1:8000", Absent::NotSupported)
    };
    let engine = EngineSample {
        kv_used: Ok(gib(1.2)),
        kv_pool: Ok(gib(57.4)),
        running: Ok(0),
        waiting: Ok(0),
        semantics: KvSemantics::Referenced,
        report: Some(Arc::new(report)),
        ..EngineSample::absent(Absent::NotSupported)
    };
    ProcSample { engine: Some(engine), ..process(pid, "vllm", gib(75.2)) }
}

fn tick() -> Tick {
    Tick { seq: 9, at: NOW, mono_ms: 9_000 }
}

pub(crate) fn gpu(index: u32, processes: Vec<ProcSample>, unlisted: Bytes) -> GpuStatus {
    let (total, reserved) = (gib(79.6), gib(0.5));
    let used = processes.iter().filter_map(|process| process.memory.ok()).sum::<Bytes>() + unlisted;
    let gpu = GpuSample {
        uuid: GpuUuid::new(&format!("GPU-{index}")),
        index,
        name: "H100".into(),
        kind: GpuKind::Discrete,
        state: GpuState::Present,
        memory: Ok(DeviceMemory {
            total,
            used,
            free: total.saturating_sub(used).saturating_sub(reserved),
            reserved: Ok(reserved),
            source: MemorySource::NvmlV2,
        }),
        utilization: Ok(Percent(0)),
        processes: Ok(ProcessList { listed: tick(), entries: processes }),
        holders: Vec::new(),
    };
    GpuStatus { ledger: Ledger::of(&gpu, tick()), judgements: Vec::new(), gpu }
}

pub(crate) fn status(gpus: Vec<GpuStatus>) -> Status {
    Status {
        schema: SCHEMA,
        version: "0".to_owned(),
        host: "node".to_owned(),
        tick: tick(),
        level: Level::Ok,
        gpus,
        machine: HostSample { total: Err(Absent::NotYet), available: Err(Absent::NotYet) },
        findings: Vec::new(),
        alerts: Vec::new(),
        health: Health::default(),
    }
}

fn series(gpu: u32, part: SeriesPart) -> SeriesRef {
    SeriesRef { gpu: GpuUuid::new(&format!("GPU-{gpu}")), part }
}

fn judged(series: SeriesRef, diagnosis: Diagnosis, floor: Bytes, summary: &str) -> Judgement {
    Judgement {
        series,
        diagnosis,
        since: NOW.plus_ms(-3 * HOUR_MS),
        summary: summary.to_owned(),
        value: Ok(floor),
        floor: Ok(floor),
        slope: Err(Absent::NotYet),
        detectable: Ok(ByteRate::from_mib_per_min(0.4)),
        forecast: None,
        evidence: Vec::new(),
    }
}

fn finding(series: SeriesRef, kind: FindingKind, process: &str, summary: &str) -> Finding {
    Finding {
        key: FindingKey { series, kind },
        subject: Subject { process: process.to_owned(), ..Subject::default() },
        tier: Tier::Confirmed,
        severity: Severity::Warning,
        opened_at: NOW.plus_ms(-HOUR_MS),
        resolved_at: None,
        onset_at: None,
        rate: None,
        grown: None,
        forecast: Some(Forecast {
            capacity: gib(79.1),
            earliest: NOW.plus_ms(4 * HOUR_MS),
            expected: NOW.plus_ms(5 * HOUR_MS),
            latest: None,
        }),
        evidence: Vec::new(),
        summary: summary.to_owned(),
        settle: "Restart whoever holds it.".to_owned(),
    }
}

fn explained(status: &Status, asked: &str) -> String {
    let abouts = named(status, asked);
    abouts.iter().map(|about| explain(status, about).unwrap().to_string()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_pool_reserved_ahead() {
    let mut gpu = gpu(0, vec![vllm(4711)], gib(0.02));
    let steady = |part| judged(series(0, part), Diagnosis::Reserved, gib(75.2), "A pool holds its size.");
    let key = gpu.gpu.processes.as_ref().unwrap().entries[0].key;
    gpu.judgements = vec![steady(SeriesPart::Device), steady(SeriesPart::Process(key))];
    let status = status(vec![gpu]);
    let text = explained(&status, "0");
    assert!(text.contains(
        "vLLM reserved a pool of ~57.4 GiB (gpu_memory_utilization 0.9); ~1.2 GiB of it is in use."
    ));
    insta::assert_snapshot!("pool_gpu", text);
    insta::assert_snapshot!("pool_process", explained(&status, "4711"));
}

#[test]
fn a_leak_with_its_end_and_a_host_that_grows() {
    let mut gpu = gpu(0, vec![process(7, "train", gib(40.0))], Bytes::ZERO);
    let key = ProcKey { pid: 7, start_ticks: Some(1) };
    let part = SeriesPart::Process(key);
    gpu.judgements =
        vec![judged(series(0, part), Diagnosis::Leak, gib(39.0), "Rising 130 MiB/min for 2.0 h.")];
    let mut status = status(vec![gpu]);
    let host = SeriesPart::Host(key);
    status.findings = vec![
        finding(series(0, part), FindingKind::Leak, "train", "Rising 130 MiB/min for 2.0 h."),
        finding(series(0, host), FindingKind::HostLeak, "train", "Host memory rises 20 MiB/min."),
    ];
    insta::assert_snapshot!("leak", explained(&status, "GPU-0"));
}

/// A worker of GPU 1 has a context on GPU 0, a dead process is listed, and somebody holds the device unseen.
#[test]
fn contexts_corpses_and_the_unseen() {
    let own = process(8, "worker", gib(20.0));
    let stray = ProcSample { memory: Ok(gib(0.5)), ..process(9, "worker", gib(0.5)) };
    let corpse = ProcSample { liveness: Liveness::Dead, ..process(10, "server", gib(3.0)) };
    let mut first = gpu(0, vec![own, stray, corpse], gib(1.5));
    first.gpu.holders =
        vec![Holder { key: ProcKey { pid: 77, start_ticks: Some(1) }, name: "notebook".to_owned() }];
    let second = gpu(1, vec![process(9, "worker", gib(20.0))], Bytes::ZERO);
    let status = status(vec![first, second]);
    insta::assert_snapshot!("holders", explained(&status, "0"));
    insta::assert_snapshot!("two_gpus_process", explained(&status, "9"));
}

#[test]
fn what_cannot_be_read_is_said_and_never_zero() {
    let mut gpu = gpu(0, Vec::new(), Bytes::ZERO);
    gpu.gpu.memory = Err(Absent::DeviceLost);
    gpu.gpu.processes = Err(Absent::NoPermission);
    gpu.ledger = Ledger::of(&gpu.gpu, tick());
    insta::assert_snapshot!("unknown", explained(&status(vec![gpu]), "0"));
}

#[test]
fn who_is_not_there_is_not_explained() {
    let status = status(vec![gpu(0, vec![process(8, "worker", gib(20.0))], Bytes::ZERO)]);
    assert_eq!(named(&status, "1"), []);
    assert_eq!(named(&status, "GPU-7"), []);
    assert!(explain(&status, &About::Gpu(GpuUuid::new("GPU-7"))).is_none());
}
