//! What is kept and what goes.

use ebbtide_core::Ts;
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
