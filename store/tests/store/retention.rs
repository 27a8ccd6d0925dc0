//! What is kept and what goes.

use std::path::Path;

use ebbtide_core::{Point, TickRecord, Ts};
use ebbtide_store::{StoreConfig, Writer};
use sqlx::{Connection, SqliteConnection};

use crate::records::{self, record, stored, used};

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// Tick `seq` of a daemon that samples once a minute: eight windows are five days.
fn minutely(seq: u64) -> TickRecord {
    let mut record = record(seq);
    record.tick.at = Ts(seq.cast_signed() * MINUTE);
    record.tick.mono_ms = seq * MINUTE.unsigned_abs();
    record
}

async fn count(path: &Path, sql: &'static str) -> i64 {
    let mut conn = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query_scalar(sql).fetch_one(&mut conn).await.unwrap()
}

#[tokio::test]
async fn ticks_go_first_then_minutes_then_quarters_and_last_the_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let config =
        StoreConfig { raw_ms: DAY, minute_ms: 8 * DAY, quarter_ms: 14 * DAY, ..StoreConfig::default() };
    let mut writer = Writer::with(&path, config);
    let last = 36_000;
    for seq in 1..=last {
        let mut record = minutely(seq);
        // A process that lived on the first day only, and one on the second day of the second week.
        let short =
            [(1..1000, 5000), (12_960..14_000, 6000)].into_iter().filter(|(life, _)| life.contains(&seq));
        record.points.truncate(2);
        for (_, pid) in short {
            record.points.push(Point { series: records::held(0, pid), value: Some(i64::from(pid)) });
            record.processes = vec![records::process_card(pid)];
        }
        writer.append(&record).await.unwrap();
    }
    writer.close().await;
    let newest = Ts(last.cast_signed() * MINUTE);

    let (kept, unreadable) = stored(&path).await;
    let oldest = kept[0].tick.at.0;
    assert_eq!((kept[kept.len() - 1].tick.seq, unreadable), (last, 0));
    let age = newest.0 - oldest;
    // Windows go eight at a time.
    assert!((DAY..=DAY + 6 * DAY).contains(&age), "{} hours", age / 3_600_000);
    assert_eq!(kept.len() as i64, age / MINUTE + 1, "no tick is missing between");

    let reader = records::reader(&path);
    let fine = reader.history(&used(0), Ts(newest.0 - 7 * DAY + 1), newest, 10_000).await.unwrap();
    assert!(fine.len() >= 9_000, "{} pieces of a week", fine.len());
    let all = reader.history(&used(0), Ts(0), newest, 10_000).await.unwrap();
    let began = all[0].from.0;
    assert!((newest.0 - 21 * DAY - DAY..=newest.0 - 13 * DAY).contains(&began), "{} d", began / DAY);
    assert!(count(&path, "SELECT count(*) FROM minute").await > 0);

    let gone = records::reader(&path).history(&records::held(0, 5000), Ts(0), newest, 100).await.unwrap();
    assert_eq!(gone, []);
    let left = records::reader(&path).history(&records::held(0, 6000), Ts(0), newest, 100).await.unwrap();
    assert_eq!(left.iter().map(|span| i64::from(span.count)).sum::<i64>(), 14_000 - 12_960);
    assert_eq!(count(&path, "SELECT count(*) FROM process").await, 1);
    assert_eq!(count(&path, "SELECT count(*) FROM series").await, 3);
}

#[tokio::test]
async fn ticks_from_a_wrong_future_do_not_stay_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let config = StoreConfig { raw_ms: DAY, ..StoreConfig::default() };
    let mut writer = Writer::with(&path, config);
    for seq in 1..=10_000 {
        let mut record = minutely(seq);
        record.points.truncate(2);
        if seq <= 20 {
            record.tick.at = Ts(i64::MAX);
        }
        writer.append(&record).await.unwrap();
    }
    let kept = stored(&path).await.0;
    assert!(kept[0].tick.seq > 20 && kept[kept.len() - 1].tick.seq == 10_000);
}

/// Xorshift of Marsaglia, 64 bits, of which the upper half is used.
struct SmallNoise(u64);

impl SmallNoise {
    fn next(&mut self) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32).cast_signed()
    }
}

#[tokio::test]
async fn a_file_stays_below_its_cap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let config = StoreConfig { max_bytes: 16 << 20, ..StoreConfig::default() };
    let mut writer = Writer::with(&path, config);
    let crowd: Vec<_> = (0..120).map(|pid| records::held(0, pid)).collect();
    let mut most = 0;
    for seq in 1..=30_000_u64 {
        let mut record = record(seq);
        // Four bytes of noise a value: 430 KiB a window, 28 MiB in all.
        let mut noise = SmallNoise(seq);
        record.points =
            crowd.iter().map(|series| Point { series: series.clone(), value: Some(noise.next()) }).collect();
        writer.append(&record).await.unwrap();
        if seq % 100 == 0 {
            most = most.max(std::fs::metadata(&path).unwrap().len());
        }
    }
    writer.close().await;
    assert!((12 << 20..=16 << 20).contains(&most), "{most} bytes at most");
    let (kept, unreadable) = stored(&path).await;
    assert_eq!((kept[kept.len() - 1].tick.seq, unreadable), (30_000, 0));
    // What is gone as ticks is there as minutes.
    let before = kept[0].tick.at.plus_ms(-1);
    let spans = records::reader(&path).history(&crowd[7], Ts(0), before, 50).await.unwrap();
    assert!(spans.len() >= 49, "{} spans", spans.len());
    assert_eq!(records::complaints(&path).await, [""; 0]);
}

#[tokio::test]
async fn space_that_is_no_longer_needed_goes_back_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let crowd: Vec<_> = (0..2000).map(|pid| records::held(0, pid)).collect();
    for seq in 1..=899_u64 {
        let mut record = record(seq);
        // Odd numbers of bytes, far apart from tick to tick: four bytes a value, 8 KiB a tick.
        let value = |at: usize| Some(((seq as i64 * 7_919 + at as i64 * 104_729) % (1 << 27)) | 1);
        record.points = crowd
            .iter()
            .enumerate()
            .map(|(at, series)| Point { series: series.clone(), value: value(at) })
            .collect();
        writer.append(&record).await.unwrap();
    }
    let full = std::fs::metadata(&path).unwrap().len();
    // Sealed, the same values take a part of that.
    for seq in 900..=2000 {
        writer.append(&record(seq)).await.unwrap();
    }
    writer.close().await;
    let left = std::fs::metadata(&path).unwrap().len();
    assert!(full > 5 << 20 && left < full - (1 << 20), "{full} bytes became {left}");
    assert_eq!(stored(&path).await.0.len(), 2000);
    assert_eq!(records::complaints(&path).await, [""; 0]);
}
