//! Clocks that are set, and readers that stay.

use std::time::Duration;

use ebbtide_core::{Tick, Ts};
use ebbtide_store::{Error, Reader, Writer};
use sqlx::{Connection, SqliteConnection};

use crate::records::{self, record, stored, used};
use crate::{Extent, block_on, figure};

const HOUR_MS: i64 = 3_600_000;
/// Ticks with a clock that is set every 137 of them, there and back.
const TICKS: u64 = 2_000;
/// Pages of the log at which the writer warns: 64 MiB.
const ALARM_PAGES: u64 = 16_384;

/// An hour forth and an hour back, by an injected clock.
pub(crate) fn set_by_an_hour(_: Extent) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    block_on(async {
        let mut writer = Writer::new(&path);
        for seq in 1..=TICKS {
            let step = [0, HOUR_MS, 0, -HOUR_MS][(seq / 137 % 4) as usize];
            let mut record = record(seq);
            record.tick = Tick { at: Ts(record.tick.at.0 + 2 * HOUR_MS + step), ..record.tick };
            writer.append(&record).await.unwrap();
        }
        writer.close().await;
        let (ticks, unreadable) = stored(&path).await;
        let lost = TICKS as usize - ticks.len();
        figure(&format!("lost of {TICKS} ticks"), &lost.to_string(), "0");
        assert_eq!((lost, unreadable), (0, 0));
        assert!(ticks.is_sorted_by_key(|record| record.tick.seq));
        let chart = records::reader(&path).history(&used(0), Ts(0), Ts(i64::MAX), 500).await.unwrap();
        assert_eq!(chart.iter().map(|span| u64::from(span.count)).sum::<u64>(), TICKS, "each counts once");
        assert!(chart.is_sorted_by_key(|span| span.from), "time runs forward in every answer");
    });
}

/// Ours is cut at its deadline and holds nothing open between two pages; a foreign one that stays makes the log grow, which
/// is said, and shrinks again when it has gone.
pub(crate) fn endless_reader(extent: Extent) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    block_on(async {
        let mut writer = Writer::new(&path);
        let mut seq = 0;
        append(&mut writer, &mut seq, 300).await;
        // Each is looked up by itself, which for so many takes longer than the millisecond that a timer may be late.
        let (reader, many) = (Reader::new(&path, Duration::ZERO), vec![used(0); 1000]);
        let cut = reader.histories(&many, Ts(0), Ts(i64::MAX), 10).await;
        assert!(matches!(cut, Err(Error::Deadline { .. })), "{cut:?}");
        let mut ours = records::reader(&path).replay(Ts(0), Ts(i64::MAX)).await.unwrap();
        assert!(ours.next().await.unwrap().is_some());
        append(&mut writer, &mut seq, 2_000).await;
        let beside_ours = writer.stats().log_pages;
        assert!(beside_ours < 2_000, "the log is folded beside a reader that pauses: {beside_ours} pages");
        drop(ours);

        let mut foreign = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
        let mut held = foreign.begin().await.unwrap();
        let _: i64 = sqlx::query_scalar("SELECT count(*) FROM tail").fetch_one(&mut *held).await.unwrap();
        let wanted = if extent.fills_log { ALARM_PAGES } else { 4 * beside_ours.max(100) };
        while writer.stats().log_pages <= wanted {
            append(&mut writer, &mut seq, 600).await;
        }
        let grown = writer.stats().log_pages;
        held.rollback().await.unwrap();
        foreign.close().await.unwrap();
        append(&mut writer, &mut seq, 240).await;
        let after = writer.stats().log_pages;
        writer.close().await;
        let mib = |pages: u64| format!("{:.1} MiB", pages as f64 * 4096.0 / 1048576.0);
        figure("log beside our reader that pauses", &mib(beside_ours), "");
        figure("log beside a foreign one that stays", &mib(grown), "");
        figure("log after it has gone", &mib(after), "");
        assert!(after < grown / 2, "{after} pages after {grown}");
        assert_eq!(records::complaints(&path).await, [""; 0]);
        assert_eq!(stored(&path).await.0.len() as u64, seq);
    });
}

async fn append(writer: &mut Writer, seq: &mut u64, ticks: u64) {
    for _ in 0..ticks {
        *seq += 1;
        writer.append(&record(*seq)).await.unwrap();
    }
}
