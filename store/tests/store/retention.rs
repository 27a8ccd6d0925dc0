//! What is kept and what goes.

use ebbtide_core::{Point, Ts};
use ebbtide_store::{KEPT_MS, Writer};
use sqlx::{Connection, SqliteConnection};

use crate::records::{self, record, stored};

#[tokio::test]
async fn old_ticks_go_and_so_do_the_names_that_only_they_mention() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let minute = 60_000;
    let ticks = 9000;
    for seq in 1..=ticks {
        let mut record = record(seq);
        record.tick.at = Ts(seq.cast_signed() * minute);
        record.tick.mono_ms = seq * minute.unsigned_abs();
        record.processes = vec![records::process_card(1000 + (seq / 50) as u32)];
        writer.append(&record).await.unwrap();
    }
    writer.close().await;
    let (kept, unreadable) = stored(&path).await;
    let (oldest, newest) = (kept[0].tick, kept[kept.len() - 1].tick);
    assert_eq!((newest.seq, unreadable), (ticks, 0));
    let age = newest.at.0 - oldest.at.0;
    // The last housekeeping was at most a chain ago, and reading begins at a whole blob.
    assert!((KEPT_MS - 60 * minute..=KEPT_MS + 60 * minute).contains(&age), "{} h", age / 3_600_000);
    assert!(kept.iter().all(|tick| tick.points.len() == record(1).points.len()), "no name went too early");

    let mut conn = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    let (series, processes): (i64, i64) =
        sqlx::query_as("SELECT (SELECT count(*) FROM series), (SELECT count(*) FROM process)")
            .fetch_one(&mut conn)
            .await
            .unwrap();
    // 180 processes came; those of the kept 2880 ticks and of the 3600 before them may still be there.
    let alive = (2880 + 3600) / 50 + 4;
    assert!(processes <= alive && series <= alive + 6, "{series} series, {processes} processes");
    assert!(processes >= 2880 / 50);
}

#[tokio::test]
async fn ticks_from_a_wrong_future_do_not_stay_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in 1..=200 {
        let mut record = record(seq);
        if seq <= 20 {
            record.tick.at = Ts(i64::MAX);
        }
        writer.append(&record).await.unwrap();
    }
    let kept = stored(&path).await.0;
    assert_eq!((kept[0].tick.seq, kept.len()), (21, 180));
}

#[tokio::test]
async fn space_that_is_no_longer_needed_goes_back_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let crowd: Vec<_> = (0..2000).map(|pid| records::held(0, pid)).collect();
    for seq in 1..=1200_u64 {
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
    for seq in 1201..=2400 {
        let mut record = record(seq);
        record.tick.at = record.tick.at.plus_ms(2 * KEPT_MS);
        writer.append(&record).await.unwrap();
    }
    writer.close().await;
    let left = std::fs::metadata(&path).unwrap().len();
    assert!(full > 6 << 20 && left < full - (1 << 20), "{full} bytes became {left}");
    assert_eq!(stored(&path).await.0.len(), 1200);
    assert_eq!(records::reader(&path).complaints().await.unwrap(), [""; 0]);
}
