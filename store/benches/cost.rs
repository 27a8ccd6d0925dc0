//! What an hour of ticks costs: `cargo bench -p ebbtide-store`. Prints a table of CPU time a tick, bytes a sample and
//! the time to read the hour back, beside the row-a-sample table that one would write first, in the same run.
//!
//! 400 series, of the kinds that a server with eight GPUs and forty processes has: 80 constant (totals, limits), 200
//! that step by multiples of 2 MiB about every two minutes (memory), 120 that change each tick (utilisation,
//! requests, host memory).

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::path::Path;
use std::time::{Duration, Instant};

use ebbtide_core::{GpuUuid, Metric, Point, ProcKey, SeriesKey, Tick, TickRecord, Ts};
use ebbtide_store::{Reader, Writer};
use sqlx::{Connection, SqliteConnection};

const TICKS: u64 = 3600;
const SERIES: u64 = 400;
/// Ticks that are made ready before their cost is taken.
const MINUTE: u64 = 60;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    println!("{TICKS} ticks of {SERIES} series");
    println!("{:24} {:>12} {:>12} {:>14} {:>12}", "", "CPU us/tick", "B/sample", "worst tick ms", "RSS MiB");
    let ours = dir.path().join("history.db");
    report("tail of blobs", &ours, &store_ticks(&ours).await);
    let rows = dir.path().join("rows.db");
    report("row a sample", &rows, &store_rows(&rows).await);
    read_back(&ours).await;
}

/// CPU time in all, and the longest wait for an acknowledgement.
struct Cost {
    cpu: Duration,
    worst: Duration,
}

fn report(name: &str, path: &Path, cost: &Cost) {
    let bytes = std::fs::metadata(path).unwrap().len() as f64;
    println!(
        "{name:24} {:12.1} {:12.2} {:14.1} {:12.1}",
        cost.cpu.as_secs_f64() * 1e6 / TICKS as f64,
        bytes / (TICKS * SERIES) as f64,
        cost.worst.as_secs_f64() * 1e3,
        rss_mib(),
    );
}

async fn store_ticks(path: &Path) -> Cost {
    let mut writer = Writer::new(path);
    writer.append(&record(0)).await.unwrap();
    let (mut cpu, mut worst) = (Duration::ZERO, Duration::ZERO);
    for minute in 0..TICKS / MINUTE {
        let records = minute_of(minute);
        let used = cpu_time();
        for record in &records {
            let begun = Instant::now();
            writer.append(record).await.unwrap();
            worst = worst.max(begun.elapsed());
        }
        cpu += cpu_time().saturating_sub(used);
    }
    writer.close().await;
    Cost { cpu, worst }
}

async fn store_rows(path: &Path) -> Cost {
    let url = format!("sqlite://{}?mode=rwc", path.display());
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    let setup = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
        CREATE TABLE sample (at_ms INTEGER, series INTEGER, value INTEGER, PRIMARY KEY (at_ms, series)) WITHOUT ROWID";
    sqlx::raw_sql(setup).execute(&mut conn).await.unwrap();
    let (mut cpu, mut worst) = (Duration::ZERO, Duration::ZERO);
    for minute in 0..TICKS / MINUTE {
        let records = minute_of(minute);
        let used = cpu_time();
        for record in &records {
            let begun = Instant::now();
            insert(&mut conn, record).await;
            worst = worst.max(begun.elapsed());
        }
        cpu += cpu_time().saturating_sub(used);
    }
    conn.close().await.unwrap();
    Cost { cpu, worst }
}

async fn insert(conn: &mut SqliteConnection, record: &TickRecord) {
    let values: Vec<Option<i64>> = record.points.iter().map(|point| point.value).collect();
    let mut tx = conn.begin().await.unwrap();
    sqlx::query("INSERT INTO sample SELECT ?, key, value FROM json_each(?)")
        .bind(record.tick.at.0)
        .bind(serde_json::to_string(&values).unwrap())
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn read_back(path: &Path) {
    let reader = Reader::new(path, Duration::from_secs(60));
    let begun = Instant::now();
    let mut replay = reader.replay_last(i64::MAX).await.unwrap();
    let mut ticks = 0_u32;
    while replay.next().await.unwrap().is_some() {
        ticks += 1;
    }
    println!("replay of {ticks} ticks: {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    let begun = Instant::now();
    let series = record(0).points[100].series.clone();
    let spans = reader.history(&series, Ts(0), Ts(TICKS.cast_signed() * 1000), 200).await.unwrap();
    println!("chart of one series, {} spans: {:.1} ms", spans.len(), begun.elapsed().as_secs_f64() * 1e3);
}

fn minute_of(minute: u64) -> Vec<TickRecord> {
    (1..=MINUTE).map(|second| record(minute * MINUTE + second)).collect()
}

fn record(seq: u64) -> TickRecord {
    let points = (0..SERIES).map(|series| Point { series: key(series), value: Some(value(series, seq)) });
    TickRecord {
        tick: Tick { seq, at: Ts(seq.cast_signed() * 1000), mono_ms: seq * 1000 },
        points: points.collect(),
        gpus: Vec::new(),
        processes: Vec::new(),
    }
}

fn key(series: u64) -> SeriesKey {
    let gpu = Some(GpuUuid::new(&format!("GPU-{:08x}-1111-2222-3333-444444444444", series % 8)));
    let proc = Some(ProcKey { pid: 1000 + (series / 8) as u32, start_ticks: Some(series) });
    SeriesKey { gpu, proc, metric: Metric::ALL[(series % 15) as usize] }
}

fn value(series: u64, seq: u64) -> i64 {
    let noise = scramble(series << 32 | seq);
    let value = match series {
        0..80 => 80 << 30,
        80..280 => {
            (((20 << 30) + (series << 24)) >> 21 << 21) + (((seq + scramble(series) % 120) / 120) << 21)
        }
        _ => (8 << 30) + noise % 4000,
    };
    value.cast_signed()
}

/// A fixed jumble of bits (the finaliser of SplitMix64), so that each run stores the same.
fn scramble(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}

/// CPU time of all threads of this process so far, from the kernel's account in nanoseconds.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let used = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

fn rss_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}
