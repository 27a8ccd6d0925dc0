//! What the history costs: `cargo bench -p ebbtide-store --bench cost [-- HOURS] [hours] [year] [prometheus]`. Prints what
//! was reached beside what is wanted: of 26 hours where no number, and of all parts where none is named.
//!
//! 400 series at one tick a second: 80 constant, 160 that step by multiples of 2 MiB, 40 sawtooth, 120 noisy. Time does not
//! pass: ticks are stored as fast as they can be. CPU time and bytes are therefore those of real use, and waiting times
//! those of a busy disk.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the table is the result")]

mod account;
mod load;
mod prometheus;
#[path = "../random.rs"]
mod random;

use std::path::Path;
use std::time::{Duration, Instant};

use ebbtide_store::{Reader, Writer};
use load::{Kind, Load, SERIES};
use sqlx::{Connection, SqliteConnection};

/// Ticks that are made ready before their cost is taken.
const BATCH: u64 = 60;
/// Quarters of an hour in a year.
const YEAR: u64 = 365 * 24 * 4;
/// Seconds at the end of that year: as many as leave seven windows to be merged, and half a window in the tail.
const NEWEST: u64 = 16 * 900 + 540;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let hours = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(26_u64);
    let named = ["hours", "year", "prometheus"].map(|part| std::env::args().any(|arg| arg == part));
    let wanted = |part: usize| named[part] || named == [false; 3];
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    println!("{SERIES} series, {hours} hours at one tick a second");
    println!("{:52} {:>10} {:>10}", "", "reached", "wanted");
    if wanted(0) {
        let path = dir.path().join("history.db");
        let load = store(&path, hours * 3600).await;
        sizes(&path, hours * 3600).await;
        queries(&path, &load, hours * 3600).await;
    }
    if wanted(1) {
        year(&dir.path().join("year.db")).await;
    }
    if wanted(2) {
        beside_prometheus(dir.path()).await;
    }
}

fn line(what: &str, reached: f64, wanted: &str) {
    println!("{what:52} {reached:>10.3} {wanted:>10}");
}

/// Stores so many ticks and prints what that took.
async fn store(path: &Path, ticks: u64) -> Load {
    let mut load = Load::new(1000);
    let mut writer = Writer::new(path);
    let resident = account::rss_mib();
    let cost = append(&mut writer, &mut load, ticks).await;
    line("resident memory of storage, MiB", account::rss_mib() - resident, "<= 8");
    line("CPU a tick, us", cost.cpu.as_secs_f64() * 1e6 / ticks as f64, "<= 150");
    match cost.written {
        Some(bytes) => line("device writes a tick, KiB", bytes as f64 / 1024.0 / ticks as f64, "<= 12"),
        None => println!("device writes: this kernel does not count them"),
    }
    line("longest tick with its housekeeping, ms", cost.worst.as_secs_f64() * 1e3, "<= 100");
    line("  CPU of the busiest, ms", cost.busiest.as_secs_f64() * 1e3, "");
    writer.close().await;
    load
}

struct Cost {
    cpu: Duration,
    worst: Duration,
    /// Most CPU time between giving a tick and its acknowledgement with what is done after it.
    busiest: Duration,
    written: Option<u64>,
}

async fn append(writer: &mut Writer, load: &mut Load, ticks: u64) -> Cost {
    let mut cost =
        Cost { cpu: Duration::ZERO, worst: Duration::ZERO, busiest: Duration::ZERO, written: None };
    let before = account::written();
    for _ in 0..ticks / BATCH {
        let records: Vec<_> = (0..BATCH).map(|_| load.next()).collect();
        let used = account::cpu_time();
        for record in &records {
            let (begun, spent) = (Instant::now(), account::cpu_clock());
            writer.append(record).await.unwrap();
            cost.worst = cost.worst.max(begun.elapsed());
            cost.busiest = cost.busiest.max(account::cpu_clock().saturating_sub(spent));
        }
        cost.cpu += account::cpu_time().saturating_sub(used);
    }
    cost.written = account::written().zip(before).map(|(now, before)| now - before);
    cost
}

async fn sizes(path: &Path, ticks: u64) {
    let samples = (ticks * SERIES) as f64;
    let mut conn = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let bytes = std::fs::metadata(path).unwrap().len() as f64;
    line("bytes a sample, the whole live file", bytes / samples, "<= 0.58");
    // What neither grows nor shrinks with time: the tail, windows that wait to be merged, pages held free.
    let settled: Vec<(i64, i64, i64)> = sqlx::query_as(
        "SELECT c.id >> 32, sum(length(c.data)) + 12 * count(*), max(c.windows)
         FROM chunk c WHERE c.windows = 8 GROUP BY c.id >> 32",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let merged: i64 = sqlx::query_scalar(
        "SELECT sum(ticks) FROM tick_window WHERE id <= (SELECT max(rolled_window) FROM series)",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    let of = |wanted: &dyn Fn(Kind) -> bool| {
        // Series were entered in their order, so the first has id 1.
        let chosen: Vec<_> =
            settled.iter().filter(|(id, ..)| wanted(load::kind((id - 1).cast_unsigned()))).collect();
        chosen.iter().map(|(_, bytes, _)| *bytes as f64).sum::<f64>() / (chosen.len() as f64 * merged as f64)
    };
    let rolled: i64 = sqlx::query_scalar(
        "SELECT (SELECT sum(length(data)) FROM minute) + (SELECT sum(length(data)) FROM quarter)",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    line("bytes a sample, merged chunks", of(&|_| true), "<= 0.42");
    line("  constant", of(&|kind| kind == Kind::Constant), "");
    line("  steps", of(&|kind| kind == Kind::Steps), "");
    line("  sawtooth", of(&|kind| kind == Kind::Sawtooth), "");
    line("  noise", of(&|kind| kind == Kind::Noise), "");
    line(
        "  memory only: steps and sawtooth",
        of(&|kind| matches!(kind, Kind::Steps | Kind::Sawtooth)),
        "<= 0.075",
    );
    line("bytes a sample, rollups", rolled as f64 / (merged as u64 * SERIES) as f64, "");
    let waiting: (i64, i64) =
        sqlx::query_as("SELECT sum(length(data)) + 12 * count(*), count(DISTINCT id & 0xFFFFFFFF) FROM chunk WHERE windows = 1")
            .fetch_one(&mut conn)
            .await
            .unwrap_or((0, 0));
    if waiting.1 > 0 {
        line(
            "bytes a sample, chunks of 15 minutes",
            waiting.0 as f64 / (waiting.1 as f64 * 900.0 * SERIES as f64),
            "<= 0.58",
        );
    }
}

async fn queries(path: &Path, load: &Load, ticks: u64) {
    let reader = Reader::new(path, Duration::from_secs(60));
    account::settle();
    let eight: Vec<_> = (0..8).map(|at| load::key(at * 50 + 7)).collect();
    // An hour that is merged, away from the tail.
    let (from, to) = (load.at(ticks / 2), load.at(ticks / 2 + 3599));
    let ask = || async { reader.histories(&eight, from, to, 3600).await.unwrap() };
    let (warm, cold) = (warm(ask).await, cold(path, ask).await);
    line("1 h of ticks of 8 series, warm, ms", warm, "<= 3");
    line("1 h of ticks of 8 series, cold, ms", cold, "<= 10");
    let begun = Instant::now();
    let mut replay = reader.replay_last(3_600_000).await.unwrap();
    let mut found = 0_u32;
    while replay.next().await.unwrap().is_some() {
        found += 1;
    }
    line(&format!("replay of the last {found} ticks, ms"), begun.elapsed().as_secs_f64() * 1e3, "");
}

/// A year with a tick a quarter of an hour and, as where somebody looks at it, ticks of seconds at its end; then what it
/// takes to chart it.
async fn year(path: &Path) {
    let mut load = Load::new(900_000);
    let from = load.at(0);
    let mut writer = Writer::new(path);
    let cost = append(&mut writer, &mut load, YEAR).await;
    load.set_interval(1000);
    append(&mut writer, &mut load, NEWEST).await;
    writer.close().await;
    line("longest tick of a year with retention, ms", cost.worst.as_secs_f64() * 1e3, "<= 100");
    line("  CPU of the busiest, ms", cost.busiest.as_secs_f64() * 1e3, "");
    let reader = Reader::new(path, Duration::from_secs(60));
    // Up to now, as people ask: the newest tick is a little late itself.
    let to = load.at(YEAR + NEWEST + 1);
    account::settle();
    // One that steps as memory does, forty of all kinds, and the one that is hardest to decode.
    let asked =
        [("1 series", 1, 87, "<= 2"), ("40 series", 40, 7, "<= 50"), ("1 series of noise", 1, 287, "")];
    for (name, count, first, wanted) in asked {
        let series: Vec<_> = (0..count).map(|at| load::key(at * 10 + first)).collect();
        let ask = || async { reader.histories(&series, from, to, 1000).await.unwrap() };
        let spans = ask().await;
        assert!(spans.iter().all(|spans| spans.len() > 950), "{} spans", spans[0].len());
        line(&format!("a year of {name}, warm, ms"), warm(ask).await, "");
        line(&format!("a year of {name}, cold, ms"), cold(path, ask).await, wanted);
    }
}

/// The median of eleven.
async fn warm<T, F: Future<Output = T>>(ask: impl Fn() -> F) -> f64 {
    let mut times = Vec::new();
    for _ in 0..11 {
        let begun = Instant::now();
        ask().await;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times[5]
}

async fn cold<T, F: Future<Output = T>>(path: &Path, ask: impl Fn() -> F) -> f64 {
    let mut times = Vec::new();
    for _ in 0..11 {
        account::forget(path);
        let begun = Instant::now();
        ask().await;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times[5]
}

/// The same two hours, ours with everything around them, against a block of Prometheus.
async fn beside_prometheus(dir: &Path) {
    let Some(theirs) = prometheus::bytes_a_sample(dir) else {
        println!("Prometheus is not installed: no comparison (Debian package prometheus)");
        return;
    };
    let path = dir.join("two-hours.db");
    let mut writer = Writer::new(&path);
    // As long again, so that the two hours are sealed and merged.
    append(&mut writer, &mut Load::new(1000), 2 * prometheus::TICKS).await;
    writer.close().await;
    let mut conn = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let (bytes, ticks): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT sum(length(data) + 12) FROM chunk WHERE windows = 8)
              + (SELECT sum(length(times) + 40) FROM tick_window WHERE id <= 8),
                (SELECT sum(ticks) FROM tick_window WHERE id <= 8)",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    let ours = bytes as f64 / (ticks.cast_unsigned() * SERIES) as f64;
    line("bytes a sample, two hours merged and with times", ours, "");
    line("  the same values in a block of Prometheus", theirs, "");
    line("  times ours", theirs / ours, "");
}
