//! Ticks in, ticks out.

use ebbtide_core::{Point, TickRecord, Ts};
use ebbtide_store::{Error, Writer};
use proptest::prelude::*;

use crate::records::{self, held, record, sorted, stored, tick, used};

#[tokio::test]
async fn ticks_come_back_as_they_were_with_their_cards() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    assert_eq!(writer.next_seq().await.unwrap(), 1);
    let mut given: Vec<TickRecord> = (1..=200).map(record).collect();
    given[0].gpus = vec![records::gpu_card(0), records::gpu_card(1)];
    given[0].processes = [7, 8, 9].map(records::process_card).into();
    for (at, record) in given.iter().enumerate() {
        writer.append(record).await.unwrap();
        if at % 77 == 76 {
            writer.close().await;
            writer = Writer::new(&path);
        }
    }
    assert_eq!(writer.next_seq().await.unwrap(), 201);
    // A live file, then the same file closed, then a copy of it.
    let (live, unreadable) = stored(&path).await;
    assert_eq!(unreadable, 0);
    assert_eq!(live, given.into_iter().map(sorted).collect::<Vec<_>>());
    writer.close().await;
    assert_eq!(stored(&path).await.0, live);
    let copy = dir.path().join("copy of it?.db");
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(stored(&copy).await.0, live);
    assert_eq!(records::reader(&copy).next_seq().await.unwrap(), 201);
    assert!(!dir.path().join("copy of it?.db-wal").exists(), "reading a copy leaves nothing behind");
}

#[tokio::test]
async fn a_window_holds_exactly_its_ticks_and_introduces_whom_it_mentions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let mut first = record(1);
    first.gpus = vec![records::gpu_card(0)];
    first.processes = vec![records::process_card(8)];
    writer.append(&first).await.unwrap();
    for seq in 2..=500 {
        writer.append(&record(seq)).await.unwrap();
    }
    for (from, to) in [(100, 130), (250, 250), (0, 3), (499, 900), (61, 120), (119, 122)] {
        let mut replay = records::reader(&path).replay(Ts(from * 1000), Ts(to * 1000)).await.unwrap();
        let opening = replay.next().await.unwrap().unwrap();
        assert_eq!(opening.gpus, [records::gpu_card(0)]);
        assert_eq!(opening.processes, [records::process_card(8)]);
        let mut seqs = vec![opening.tick.seq];
        while let Some(record) = replay.next().await.unwrap() {
            assert!(record.gpus.is_empty() && record.processes.is_empty());
            seqs.push(record.tick.seq);
        }
        assert_eq!(seqs, (from.max(1)..=to.min(500)).map(i64::cast_unsigned).collect::<Vec<_>>());
    }
    let mut last = records::reader(&path).replay_last(9_500).await.unwrap();
    assert_eq!(last.next().await.unwrap().unwrap().tick, tick(491));
    let mut nothing = records::reader(&path).replay(Ts(900_000), Ts(1_000_000)).await.unwrap();
    assert_eq!(nothing.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_clock_that_is_set_loses_no_tick() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let steps = [0, 3_600_000, -3_600_000, 86_400_000];
    let mut given = Vec::new();
    for seq in 1..=40_u64 {
        let mut record = record(seq);
        record.tick.at = Ts(1_000_000_000 + seq.cast_signed() * 1000 + steps[seq as usize / 11]);
        writer.append(&record).await.unwrap();
        given.push(sorted(record));
    }
    assert_eq!(stored(&path).await.0, given);
    for step in steps {
        let from = Ts(1_000_000_000 + step);
        let to = from.plus_ms(60_000);
        let mut replay = records::reader(&path).replay(from, to).await.unwrap();
        let mut found = Vec::new();
        while let Some(record) = replay.next().await.unwrap() {
            found.push(record.tick);
        }
        let wanted: Vec<_> = given.iter().map(|r| r.tick).filter(|t| from <= t.at && t.at <= to).collect();
        assert_eq!(found, wanted);
    }
}

#[tokio::test]
async fn a_chart_gets_least_greatest_and_last_and_gaps_stay_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in (0..100).chain(200..300) {
        let mut record = record(seq);
        record.points = vec![Point { series: used(0), value: (seq != 7).then_some(seq.cast_signed()) }];
        writer.append(&record).await.unwrap();
    }
    let spans = records::reader(&path).history(&used(0), Ts(0), Ts(299_999), 30).await.unwrap();
    let starts: Vec<i64> = spans.iter().map(|span| span.from.0 / 10_000).collect();
    assert_eq!(starts, (0..10).chain(20..30).collect::<Vec<_>>());
    assert_eq!((spans[0].min, spans[0].max, spans[0].last, spans[0].count), (0, 9, 9, 9));
    assert_eq!((spans[10].min, spans[10].max, spans[10].to), (200, 209, Ts(210_000)));
    let unheard = records::reader(&path).history(&held(3, 99), Ts(0), Ts(299_999), 30).await.unwrap();
    assert!(unheard.is_empty());
}

#[tokio::test]
async fn the_newest_tick_may_be_given_again_and_an_older_one_may_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in [5, 6, 6, 9] {
        writer.append(&record(seq)).await.unwrap();
    }
    let refused = writer.append(&record(8)).await.unwrap_err();
    assert!(matches!(refused, Error::Behind { seq: 8, last: 9, .. }), "{refused}");
    writer.append(&record(9)).await.unwrap();
    writer.append(&record(10)).await.unwrap();
    let seqs: Vec<u64> = stored(&path).await.0.iter().map(|record| record.tick.seq).collect();
    assert_eq!(seqs, [5, 6, 9, 10]);
}

#[tokio::test]
async fn a_call_that_is_cancelled_leaves_nothing_half_done() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let mut acknowledged = Vec::new();
    for seq in 1..=60 {
        let record = record(seq);
        // Each tick names a process that is new, so a cancelled call leaves ids in a transaction that never ends well.
        let polls = seq % 9;
        if poll_times(Box::pin(writer.append(&record)), polls).is_some() || polls == 8 {
            writer.append(&record).await.unwrap();
            acknowledged.push(sorted(record));
        }
    }
    let (ticks, unreadable) = stored(&path).await;
    assert_eq!(unreadable, 0);
    assert!(acknowledged.len() >= 6);
    for record in &acknowledged {
        assert!(ticks.contains(record), "tick {} is not there as it was", record.tick.seq);
    }
    assert_eq!(records::complaints(&path).await, [""; 0]);
}

/// Polls a future at most so many times, then drops it.
fn poll_times<F: Future + Unpin>(mut future: F, polls: u64) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..polls {
        if let std::task::Poll::Ready(output) = std::pin::Pin::new(&mut future).poll(&mut context) {
            return Some(output);
        }
        std::thread::yield_now();
    }
    None
}

fn points() -> impl Strategy<Value = Vec<Point>> {
    let series = prop_oneof![(0..3_u64).prop_map(used), (0..3_u64, 1..20_u32).prop_map(|(g, p)| held(g, p))];
    let point = (series, any::<Option<i64>>()).prop_map(|(series, value)| Point { series, value });
    proptest::collection::vec(point, 0..20).prop_map(|mut points| {
        points.sort_by(|a, b| a.series.cmp(&b.series));
        points.dedup_by(|a, b| a.series == b.series);
        points
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_is_acknowledged_comes_back(ticks in proptest::collection::vec((points(), 1..5_u64, any::<bool>()), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("history.db");
            let mut writer = Writer::new(&path);
            let mut given = Vec::new();
            let mut seq = 0;
            for (points, gap, reopen) in ticks {
                seq += gap;
                let record = TickRecord { tick: tick(seq), points, gpus: Vec::new(), processes: Vec::new() };
                writer.append(&record).await.unwrap();
                given.push(record);
                if reopen {
                    writer.close().await;
                    writer = Writer::new(&path);
                }
            }
            assert_eq!(stored(&path).await, (given, 0));
        });
    }
}
