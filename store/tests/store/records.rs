//! Ticks, findings and incidents to store, each a function of its number, and ways to look at what was stored.

use std::path::Path;
use std::time::Duration;

use ebbtide_core::{
    Absent, ByteRate, Bytes, EndCause, Evidence, ExitStatus, Finding, FindingKey, FindingKind, GpuAtEnd,
    GpuCard, GpuKind, GpuUuid, Incident, Ledger, Metric, Owner, Point, ProcInfo, ProcKey, ProcessCard,
    RateBand, SeriesKey, SeriesPart, SeriesRef, Severity, Subject, Tick, TickRecord, Tier, Ts,
};
use ebbtide_store::{Reader, Verification};

pub(crate) const MIB: i64 = 1 << 20;

pub(crate) fn uuid(number: u64) -> GpuUuid {
    GpuUuid::new(&format!("GPU-{number:08x}-0000-0000-0000-000000000000"))
}

pub(crate) fn used(gpu: u64) -> SeriesKey {
    SeriesKey { gpu: Some(uuid(gpu)), proc: None, metric: Metric::UsedBytes }
}

pub(crate) fn process(pid: u32) -> ProcKey {
    ProcKey { pid, start_ticks: (!pid.is_multiple_of(7)).then_some(u64::from(pid) * 100) }
}

pub(crate) fn held(gpu: u64, pid: u32) -> SeriesKey {
    SeriesKey { gpu: Some(uuid(gpu)), proc: Some(process(pid)), metric: Metric::ProcessBytes }
}

/// Tick `seq` at `seq` seconds: a host, two GPUs, and four processes of which one changes every 50 ticks. A reading
/// fails now and then.
pub(crate) fn record(seq: u64) -> TickRecord {
    let value = seq.cast_signed();
    let mut points = vec![
        Point {
            series: SeriesKey { gpu: None, proc: None, metric: Metric::HostAvailableBytes },
            value: Some(64 << 30),
        },
        Point { series: used(0), value: Some(9000 * MIB + value * 4096) },
        Point { series: used(1), value: (!seq.is_multiple_of(5)).then_some(-value) },
    ];
    let newcomer = 1000 + (seq / 50) as u32;
    let pids = [7, 8, 9, newcomer];
    points.extend(
        pids.map(|pid| Point { series: held(0, pid), value: Some(2 * MIB * i64::from(pid) + value) }),
    );
    TickRecord { tick: tick(seq), points, gpus: Vec::new(), processes: Vec::new() }
}

pub(crate) fn tick(seq: u64) -> Tick {
    Tick { seq, at: Ts(seq.cast_signed() * 1000), mono_ms: 5_000_000 + seq * 1000 }
}

pub(crate) fn gpu_card(number: u64) -> GpuCard {
    GpuCard { uuid: uuid(number), index: number as u32, name: "Test GPU".into(), kind: GpuKind::Discrete }
}

/// Readings that are absent come back with the reason that a database can give.
pub(crate) fn process_card(pid: u32) -> ProcessCard {
    let info = ProcInfo {
        name: Ok(format!("worker-{pid}")),
        uid: Ok(1000),
        owner: Owner { unit: Some("vllm.service".into()), ..Owner::default() },
        ..ProcInfo::absent(Absent::NotYet)
    };
    ProcessCard { key: process(pid), info: info.into(), engine: None }
}

/// A leak in process 14 of a GPU.
pub(crate) fn finding(gpu: u64, opened_at: i64) -> Finding {
    Finding {
        key: FindingKey {
            series: SeriesRef { gpu: uuid(gpu), part: SeriesPart::Process(process(14)) },
            kind: FindingKind::Leak,
        },
        subject: Subject { gpu_index: Some(gpu as u32), process: "vllm".into(), ..Subject::default() },
        tier: Tier::Confirmed,
        severity: Severity::Warning,
        opened_at: Ts(opened_at),
        resolved_at: None,
        onset_at: Some(Ts(opened_at - 1000)),
        rate: Some(RateBand { rate: ByteRate(3.5), low: ByteRate(3.0), high: ByteRate(4.0) }),
        grown: Some(Bytes(1 << 30)),
        forecast: None,
        evidence: vec![Evidence::against("floor-rise", 12.0, "MiB", 8.0)],
        summary: "it leaks".into(),
        settle: "restart it".into(),
    }
}

/// Process 7 of GPU 0 was found gone with tick `seq`, and the sixty ticks before are worth keeping.
pub(crate) fn incident(seq: u64) -> Incident {
    let ledger = Ledger {
        tick: tick(seq - 1),
        total: Err(Absent::NotYet),
        free: Err(Absent::NotYet),
        driver_reserved: Err(Absent::NotYet),
        processes: Err(Absent::NotYet),
        unattributed: Err(Absent::NotYet),
        missing: Vec::new(),
        engines: Vec::new(),
    };
    Incident {
        at: tick(seq).at,
        from: tick(seq - 60).at,
        proc: process(7),
        subject: Subject { process: "worker-7".into(), ..Subject::default() },
        cause: EndCause::OomKill,
        status: Ok(ExitStatus::Signalled(9)),
        gpus: vec![GpuAtEnd { gpu: uuid(0), index: 0, held: Err(Absent::NotYet), ledger }],
        rss: Err(Absent::NotYet),
        host_limit: Err(Absent::NotYet),
        findings: Vec::new(),
        evidence: Vec::new(),
        repeats: 0,
        summary: "worker-7 was ended by the out-of-memory killer".into(),
    }
}

/// The record with its points in an order of their own.
pub(crate) fn sorted(mut record: TickRecord) -> TickRecord {
    record.points.sort_by(|a, b| a.series.cmp(&b.series));
    record.gpus.sort_by(|a, b| a.uuid.cmp(&b.uuid));
    record.processes.sort_by_key(|card| card.key);
    record
}

pub(crate) fn reader(path: &Path) -> Reader {
    Reader::new(path, Duration::from_secs(60))
}

/// All that is stored, and how many ticks could not be read.
pub(crate) async fn stored(path: &Path) -> (Vec<TickRecord>, u64) {
    let mut replay = reader(path).replay(Ts(i64::MIN), Ts(i64::MAX)).await.unwrap();
    let mut ticks = Vec::new();
    while let Some(record) = replay.next().await.unwrap() {
        ticks.push(sorted(record));
    }
    (ticks, replay.unreadable())
}

/// What is wrong with the file.
pub(crate) async fn complaints(path: &Path) -> Vec<String> {
    Verification::of(path).await.unwrap().complaints
}
