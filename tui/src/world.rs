//! Hand-built statuses for tests.

use std::sync::Arc;

use ebbtide_api::wire::{GpuStatus, Health, Level, SCHEMA, Status};
use ebbtide_core::*;

/// 2026-03-01 12:00:00 UTC.
pub(crate) const NOON: Ts = Ts(1_772_366_400_000);

const GIB_IN_MIB: u64 = 1024;

pub(crate) fn tick(second: u64) -> Tick {
    Tick { seq: second + 1, at: NOON.plus_ms(second as i64 * 1000), mono_ms: second * 1000 }
}

pub(crate) fn process(pid: u32, name: &str, mib: u64) -> ProcSample {
    let owner = Owner { unit: Some(format!("{name}.service")), ..Owner::default() };
    ProcSample {
        key: ProcKey { pid, start_ticks: Some(u64::from(pid) * 10) },
        memory: Ok(Bytes::from_mib(mib)),
        kinds: ProcKinds { compute: true, ..ProcKinds::default() },
        liveness: Liveness::Alive,
        info: Arc::new(ProcInfo {
            name: Ok(name.to_owned()),
            command: Ok(format!("/usr/bin/{name} --port 8000")),
            uid: Ok(1000),
            user: Ok("serve".to_owned()),
            started_at: Ok(NOON.plus_ms(-7_200_000)),
            owner,
        }),
        rss: Ok(Bytes::from_mib(2048)),
        host_limit: Err(Absent::NotSupported),
        engine: None,
    }
}

/// A GPU of 80 GiB whose used memory is that of its processes and 300 MiB that nobody is listed for.
pub(crate) fn gpu(index: u32, tick: Tick, processes: Vec<ProcSample>) -> GpuStatus {
    let total = Bytes::from_mib(80 * GIB_IN_MIB);
    let reserved = Bytes::from_mib(612);
    let listed: Bytes = processes.iter().filter_map(|p| p.memory.ok()).sum();
    let used = listed + Bytes::from_mib(300);
    let sample = GpuSample {
        uuid: GpuUuid::new(&format!("GPU-{index:08}")),
        index,
        name: "NVIDIA H100 80GB HBM3".into(),
        kind: GpuKind::Discrete,
        state: GpuState::Present,
        memory: Ok(DeviceMemory {
            total,
            used,
            free: total.saturating_sub(used + reserved),
            reserved: Ok(reserved),
            source: MemorySource::NvmlV2,
        }),
        utilization: Ok(Percent(45)),
        processes: Ok(ProcessList { listed: tick, entries: processes }),
        holders: Vec::new(),
    };
    with_ledger(sample, tick)
}

pub(crate) fn with_ledger(sample: GpuSample, tick: Tick) -> GpuStatus {
    GpuStatus { ledger: Ledger::of(&sample, tick), gpu: sample, judgements: Vec::new() }
}

pub(crate) fn lost(index: u32, tick: Tick) -> GpuStatus {
    let present = gpu(index, tick, Vec::new()).gpu;
    let why = Absent::DeviceLost;
    let sample = GpuSample {
        state: GpuState::Lost,
        memory: Err(why),
        utilization: Err(why),
        processes: Err(why),
        ..present
    };
    with_ledger(sample, tick)
}

pub(crate) fn host(tick: Tick) -> GpuStatus {
    let mut gpu = gpu(0, tick, vec![process(4711, "ebbtide-demo", 900)]).gpu;
    gpu.kind = GpuKind::HostMemory;
    gpu.name = "host memory".into();
    gpu.utilization = Err(Absent::NotSupported);
    gpu.memory = Ok(DeviceMemory {
        total: Bytes::from_mib(2048),
        used: Bytes::from_mib(900),
        free: Bytes::from_mib(1148),
        reserved: Ok(Bytes::ZERO),
        source: MemorySource::HostFiles,
    });
    with_ledger(gpu, tick)
}

pub(crate) fn series(gpu: &GpuStatus, part: SeriesPart) -> SeriesRef {
    SeriesRef { gpu: gpu.gpu.uuid.clone(), part }
}

pub(crate) fn judgement(series: SeriesRef, diagnosis: Diagnosis, value: Bytes, now: Ts) -> Judgement {
    let rate = ByteRate::from_mib_per_min;
    let rising = matches!(diagnosis, Diagnosis::Leak | Diagnosis::Growth);
    let (slope, low, high) = if rising { (61.0, 58.0, 64.5) } else { (0.0, -0.2, 0.3) };
    Judgement {
        series,
        diagnosis,
        since: now.plus_ms(-25 * 60_000),
        summary: "the floor keeps rising while the number of requests stays the same".to_owned(),
        value: Ok(value),
        floor: Ok(value.saturating_sub(Bytes::from_mib(400))),
        slope: Ok(RateBand { rate: rate(slope), low: rate(low), high: rate(high) }),
        detectable: Ok(rate(2.5)),
        forecast: (diagnosis == Diagnosis::Leak).then(|| forecast(now)),
        evidence: vec![
            Evidence::against("floor-rise", 1525.0, "MiB", 96.0),
            Evidence::new("load-change", 0.01, ""),
        ],
    }
}

pub(crate) fn forecast(now: Ts) -> Forecast {
    let minutes = |m: i64| now.plus_ms(m * 60_000);
    Forecast {
        capacity: Bytes::from_mib(80 * GIB_IN_MIB),
        earliest: minutes(110),
        expected: minutes(130),
        latest: Some(minutes(180)),
    }
}

pub(crate) fn leak_finding(gpu: &GpuStatus, process: &ProcSample, now: Ts) -> Finding {
    let rate = ByteRate::from_mib_per_min;
    Finding {
        key: FindingKey { series: series(gpu, SeriesPart::Process(process.key)), kind: FindingKind::Leak },
        subject: Subject {
            gpu_index: Some(gpu.gpu.index),
            gpu_name: gpu.gpu.name.to_string(),
            process: process.info.name.clone().unwrap_or_default(),
            owner: process.info.owner.clone(),
        },
        tier: Tier::Confirmed,
        severity: Severity::Critical,
        opened_at: now.plus_ms(-20 * 60_000),
        resolved_at: None,
        onset_at: Some(now.plus_ms(-25 * 60_000)),
        rate: Some(RateBand { rate: rate(61.0), low: rate(58.0), high: rate(64.5) }),
        grown: Some(Bytes::from_mib(1525)),
        forecast: Some(forecast(now)),
        evidence: vec![Evidence::against("floor-rise", 1525.0, "MiB", 96.0)],
        summary: "vllm on GPU 0 leaks 61.0 MiB/min: its floor rose 1.5 GiB in 25 min at constant load"
            .to_owned(),
        settle: "stop the traffic for 2 min: if the floor stays, it is a leak and not the KV cache"
            .to_owned(),
    }
}

pub(crate) fn status(tick: Tick, gpus: Vec<GpuStatus>) -> Status {
    Status {
        schema: SCHEMA,
        version: "0.1.0".to_owned(),
        host: "gpu-01".to_owned(),
        tick,
        level: Level::Ok,
        gpus,
        machine: HostSample { total: Ok(Bytes::from_mib(512 * GIB_IN_MIB)), available: Err(Absent::NotYet) },
        findings: Vec::new(),
        alerts: Vec::new(),
        health: Health {
            probe: ProbeHealth {
                source: "nvml".to_owned(),
                nvml_calls: 1200,
                nvml_us: 48_000,
                ..ProbeHealth::default()
            },
            stored_ticks: 900,
            started_at: NOON.plus_ms(-3_600_000),
            rss_bytes: Some(9 << 20),
            ..Health::default()
        },
    }
}

/// Two GPUs that are served from, nothing wrong.
pub(crate) fn calm(second: u64) -> Status {
    let tick = tick(second);
    let mut first = gpu(0, tick, vec![process(1201, "vllm", 61_000), process(1305, "embedder", 2_100)]);
    let mut hidden = process(2210, "trainer", 0);
    hidden.memory = Err(Absent::NoPermission);
    hidden.info = Arc::new(ProcInfo::absent(Absent::NoPermission));
    let mut second = gpu(1, tick, vec![process(2201, "llama-server", 21_500), hidden]);
    for gpu in [&mut first, &mut second] {
        let used = gpu.gpu.memory.unwrap().used;
        let device = judgement(series(gpu, SeriesPart::Device), Diagnosis::Steady, used, tick.at);
        gpu.judgements.push(device);
    }
    status(tick, vec![first, second])
}

/// One GPU whose first process leaks a mebibyte a second on top of a tide of 2 GiB with a period of a minute.
pub(crate) fn leaking(second: u64) -> Status {
    let tick = tick(second);
    let tide = 2048.0 * (0.5 - 0.5 * (second as f64 / 60.0 * std::f64::consts::TAU).cos());
    let leaker = process(1201, "vllm", 52_000 + second + tide as u64);
    let steady = process(1305, "embedder", 2_100);
    let mut gpu = gpu(0, tick, vec![leaker.clone(), steady.clone()]);
    let judged = [
        (SeriesPart::Device, Diagnosis::Leak, gpu.gpu.memory.unwrap().used),
        (SeriesPart::Process(leaker.key), Diagnosis::Leak, leaker.memory.unwrap()),
        (SeriesPart::Process(steady.key), Diagnosis::Steady, steady.memory.unwrap()),
        (SeriesPart::Unattributed, Diagnosis::Inconclusive, Bytes::from_mib(300)),
    ];
    for (part, diagnosis, value) in judged {
        let mut said = judgement(series(&gpu, part), diagnosis, value, tick.at);
        if part == SeriesPart::Unattributed {
            said.slope = Err(Absent::NotYet);
        } else {
            said.floor = Ok(value.saturating_sub(Bytes::from_mib(tide as u64)));
        }
        gpu.judgements.push(said);
    }
    let finding = leak_finding(&gpu, &leaker, tick.at);
    Status { level: Level::Critical, findings: vec![finding], ..status(tick, vec![gpu]) }
}
