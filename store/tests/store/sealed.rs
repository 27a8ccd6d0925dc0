//! Windows and rollups: what has left the tail is still the same.

use ebbtide_core::{Metric, Point, ProcessCard, SeriesKey, TickRecord, Ts};
use ebbtide_store::{Compaction, Error, Overview, SeriesFilter, Span, StoredSeries, Writer};
use proptest::prelude::*;

use crate::records::{self, held, record, sorted, stored, used};

/// More than eight windows of 900, so that some are merged, some are not, and some ticks are in the tail.
const TICKS: u64 = 9_500;

fn light(seq: u64) -> TickRecord {
    let mut record = record(seq);
    record.points.truncate(4);
    // A list that is read each fifth tick, and a process that comes and goes.
    if seq.is_multiple_of(5) {
        record.points.push(Point { series: held(1, 77), value: Some((seq.cast_signed() / 700) << 21) });
    }
    if (seq / 1000) % 3 == 1 {
        record.points.push(Point { series: held(1, 78), value: (!seq.is_multiple_of(4)).then_some(5 << 30) });
    }
    record
}

#[tokio::test]
async fn every_tick_comes_back_through_seals_and_merges_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let mut given = Vec::new();
    for seq in 1..=TICKS {
        let mut record = light(seq);
        // The clock is set an hour ahead, then two hours back.
        let step = [0, 3_600_000, -3_600_000][seq as usize * 3 / (TICKS as usize + 1)];
        record.tick.at = record.tick.at.plus_ms(step);
        writer.append(&record).await.unwrap();
        given.push(sorted(record));
        // Now and then in the middle of whatever is under way, and without a word.
        if seq % 1373 == 0 {
            drop(writer);
            writer = Writer::new(&path);
        }
        if seq % 1900 == 0 {
            assert_eq!(stored(&path).await, (given.clone(), 0));
        }
    }
    assert!(writer.stats().sealed > 0);
    writer.close().await;
    assert_eq!(stored(&path).await, (given.clone(), 0));
    assert_eq!(records::complaints(&path).await, [""; 0]);

    for (from, to) in [(100, 130), (880, 940), (5_000, 5_003), (3_900, 9_400), (9_499, 9_500)] {
        let (from, to) = (given[from].tick.at, given[to - 1].tick.at);
        let mut replay = records::reader(&path).replay(from, to).await.unwrap();
        let mut found = Vec::new();
        while let Some(record) = replay.next().await.unwrap() {
            found.push(sorted(record));
        }
        let inside = given.iter().filter(|record| from <= record.tick.at && record.tick.at <= to);
        assert_eq!(found, inside.cloned().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_replay_goes_on_while_its_ticks_are_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in 1..=890 {
        writer.append(&record(seq)).await.unwrap();
    }
    let mut replay = records::reader(&path).replay(Ts(0), Ts(i64::MAX)).await.unwrap();
    let mut seqs = Vec::new();
    for _ in 0..300 {
        seqs.push(replay.next().await.unwrap().unwrap().tick.seq);
    }
    for seq in 891..=2500 {
        writer.append(&record(seq)).await.unwrap();
    }
    while let Some(record) = replay.next().await.unwrap() {
        seqs.push(record.tick.seq);
    }
    assert_eq!(replay.unreadable(), 0);
    assert!(seqs.len() >= 890 && seqs.iter().copied().eq(1..=seqs.len() as u64), "{} ticks", seqs.len());
}

#[tokio::test]
async fn a_damaged_chunk_costs_its_series_its_window() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in 1..=2000 {
        writer.append(&record(seq)).await.unwrap();
    }
    writer.close().await;
    crate::damage::tamper(
        &path,
        "UPDATE chunk SET data = zeroblob(length(data)) WHERE id = (SELECT min(id) FROM chunk WHERE id > (2 << 32))",
    )
    .await;
    let complaints = records::complaints(&path).await;
    assert!(
        complaints.len() == 1
            && complaints[0].starts_with("chunk: ")
            && complaints[0].ends_with("checksum differs"),
        "{complaints:?}"
    );
    let (ticks, unreadable) = stored(&path).await;
    assert_eq!((ticks.len(), unreadable), (2000, 0));
    let short = ticks.iter().filter(|tick| tick.points.len() + 1 == record(1).points.len()).count();
    assert!((900..=959).contains(&short), "{short} ticks without one series");
}

/// What a chart would be if every value were looked at.
fn naive(values: &[(Ts, i64)], from: Ts, to: Ts) -> Option<(i64, i64, u32)> {
    let inside = values.iter().filter(|(at, _)| from <= *at && *at <= to);
    inside.fold(None, |sum, (_, value)| {
        let (min, max, count) = sum.unwrap_or((*value, *value, 0));
        Some((min.min(*value), max.max(*value), count + 1))
    })
}

fn whole(spans: &[Span]) -> Option<(i64, i64, u32)> {
    let min = spans.iter().map(|span| span.min).min()?;
    let max = spans.iter().map(|span| span.max).max()?;
    Some((min, max, spans.iter().map(|span| span.count).sum()))
}

#[test]
fn a_chart_of_any_width_keeps_within_its_range_and_loses_no_spike() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let series = used(0);
    // A tick each four seconds, a spike of one tick every hour and a half.
    let value =
        |seq: u64| Some(if seq % 1350 == 700 { 40 << 30 } else { (20 << 30) + (seq % 60).cast_signed() });
    let mut values = Vec::new();
    runtime.block_on(async {
        let mut writer = Writer::new(&path);
        for seq in 0..TICKS {
            let mut record = record(seq);
            record.tick.at = Ts(1_700_000_000_000 + seq.cast_signed() * 4000);
            record.tick.mono_ms = seq * 4000;
            record.points = vec![Point { series: series.clone(), value: value(seq) }];
            values.push((record.tick.at, value(seq).unwrap()));
            writer.append(&record).await.unwrap();
        }
        writer.close().await;
    });
    let (begin, end) = (values[0].0, values[values.len() - 1].0);
    let length = end.0 - begin.0;
    proptest!(ProptestConfig::with_cases(64), |(a in -0.1..1.1_f64, b in -0.1..1.1_f64, points in 1..700_usize)| {
        let at = |share: f64| begin.plus_ms((share * length as f64) as i64);
        let (from, to) = (at(a.min(b)), at(a.max(b)));
        let spans = runtime.block_on(records::reader(&path).history(&series, from, to, points)).unwrap();
        prop_assert!(spans.len() <= points);
        prop_assert!(spans.iter().all(|span| from <= span.from && span.from <= to && span.count > 0));
        prop_assert!(spans.iter().all(|span| span.min <= span.last && span.last <= span.max));
        prop_assert!(spans.windows(2).all(|pair| pair[0].to <= pair[1].from), "time runs forward");
        // At the edges a bucket that is only partly inside is left out.
        let width = (to.0 - from.0) / points as i64;
        let bucket = if width < 60_000 { 0 } else if width < 900_000 { 60_000 } else { 900_000 };
        let most = naive(&values, from, to);
        let least = naive(&values, from.plus_ms(bucket), to.plus_ms(-bucket));
        let found = whole(&spans);
        prop_assert!(found.map_or(0, |f| f.2) <= most.map_or(0, |m| m.2));
        prop_assert!(found.map_or(0, |f| f.2) >= least.map_or(0, |l| l.2));
        if let (Some(least), Some(found), Some(most)) = (least, found, most) {
            prop_assert!(most.1 >= found.1 && found.1 >= least.1 && most.0 <= found.0 && found.0 <= least.0);
        }
        if bucket == 0 {
            prop_assert_eq!(found, most);
        }
    });
}

#[tokio::test]
async fn the_digest_of_the_tail_tells_what_its_ticks_tell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let keys = [used(0), held(0, 8), used(0), used(1)];
    let mut writer = Writer::new(&path);
    for seq in 1..=890 {
        writer.append(&record(seq)).await.unwrap();
        // The newest tick is given once more where the digest tells of it already.
        if seq == 60 {
            writer.append(&record(seq)).await.unwrap();
        }
    }
    writer.close().await;
    let reader = records::reader(&path);
    let ask = async |from, to| reader.histories(&keys, from, to, 1).await.unwrap();
    let (all, half) = (ask(Ts(0), Ts(1_000_000_000)).await, ask(Ts(0), Ts(400_000)).await);
    assert_eq!((all[0][0].count, half[0][0].count), (890, 400));
    assert_eq!(records::complaints(&path).await, [""; 0]);
    crate::damage::tamper(&path, "UPDATE tail_quarter SET data = zeroblob(length(data))").await;
    assert_eq!(
        records::complaints(&path).await,
        ["tail_quarter: quarter of an hour 0: its checksum differs"]
    );
    assert_eq!(ask(Ts(0), Ts(1_000_000_000)).await, all);
    crate::damage::tamper(&path, "DELETE FROM tail_quarter").await;
    assert_eq!((ask(Ts(0), Ts(1_000_000_000)).await, ask(Ts(0), Ts(400_000)).await), (all, half));
}

#[tokio::test]
async fn several_series_are_answered_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in 1..=1500 {
        writer.append(&record(seq)).await.unwrap();
    }
    let keys: Vec<SeriesKey> = vec![held(0, 8), held(5, 5), used(0), held(0, 8)];
    let together = records::reader(&path).histories(&keys, Ts(0), Ts(1_600_000), 100).await.unwrap();
    for (key, spans) in keys.iter().zip(&together) {
        assert_eq!(&records::reader(&path).history(key, Ts(0), Ts(1_600_000), 100).await.unwrap(), spans);
    }
    assert!(together[0].len() > 90 && together[1].is_empty() && together[2].len() > 90);
}

#[tokio::test]
async fn series_are_found_by_whom_they_belong_to_and_close_when_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    // Process 1000 lives for 50 ticks; its series is open until a window without it is sealed.
    for seq in 1..=2_200 {
        let mut record = record(seq);
        if seq == 1 {
            let engine = Some("vLLM".into());
            let serving = ProcessCard { engine, ..records::process_card(7) };
            record.processes = vec![serving, records::process_card(1000)];
        }
        // As after a restart, before the engine is found again.
        if seq == 600 {
            record.processes = vec![records::process_card(7)];
        }
        writer.append(&record).await.unwrap();
    }
    writer.close().await;
    let reader = records::reader(&path);
    let of = async |filter: SeriesFilter| -> Vec<(SeriesKey, bool)> {
        let found = reader.series(&filter).await.unwrap();
        found.into_iter().map(|series| (series.key, series.open)).collect()
    };
    let unit = |unit: &str| SeriesFilter { unit: Some(unit.into()), ..SeriesFilter::default() };
    assert_eq!(of(unit("vllm.service")).await, [(held(0, 7), true), (held(0, 1000), false)]);
    assert_eq!(of(unit("other.service")).await, []);
    let engine = |name: &str| SeriesFilter { engine: Some(name.into()), ..SeriesFilter::default() };
    assert_eq!(of(engine("vllm")).await, [(held(0, 7), true)]);
    assert_eq!(of(engine("SGLang")).await, []);
    let pid = SeriesFilter { pid: Some(1000), ..SeriesFilter::default() };
    assert_eq!(of(pid).await, [(held(0, 1000), false)]);
    let gpu = SeriesFilter { gpu: Some(records::uuid(1)), ..SeriesFilter::default() };
    assert_eq!(of(gpu).await, [(used(1), true)]);
    let name = SeriesFilter { name: Some("worker-7".into()), open: true, ..SeriesFilter::default() };
    assert_eq!(of(name).await, [(held(0, 7), true)]);
    let metric = SeriesFilter { metric: Some(Metric::HostAvailableBytes), ..SeriesFilter::default() };
    assert_eq!(of(metric).await.len(), 1);
    assert!(of(SeriesFilter { open: true, ..SeriesFilter::default() }).await.len() < 40);
}

#[tokio::test]
async fn a_name_is_found_among_more_series_than_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    let mut first = record(1);
    first.processes = vec![records::process_card(7)];
    writer.append(&first).await.unwrap();
    let mut many = record(2);
    many.points.extend((0..10_100).map(|pid| Point { series: held(1, 20_000 + pid), value: Some(1 << 20) }));
    writer.append(&many).await.unwrap();
    writer.close().await;
    let reader = records::reader(&path);
    assert_eq!(reader.series(&SeriesFilter::default()).await.unwrap().len(), 10_000);
    let named = SeriesFilter { name: Some("worker-7".into()), ..SeriesFilter::default() };
    let found = |series: Vec<StoredSeries>| series.into_iter().map(|series| series.key).collect::<Vec<_>>();
    assert_eq!(found(reader.series(&named).await.unwrap()), [held(0, 7)]);
    crate::damage::tamper(&path, "UPDATE process SET info = '{' WHERE pid = 7").await;
    assert_eq!(found(reader.series(&named).await.unwrap()), []);
    let pid = SeriesFilter { pid: Some(7), ..SeriesFilter::default() };
    assert_eq!(found(reader.series(&pid).await.unwrap()), [held(0, 7)]);
}

#[tokio::test]
async fn an_overview_says_what_there_is_and_compacting_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in 1..=8_600 {
        writer.append(&light(seq)).await.unwrap();
    }
    let live = Overview::of(&path).await.unwrap();
    assert_eq!((live.tail.ticks + live.sealed.ticks, live.layout), (8_600, 4));
    assert!(live.counts.series == 6 && live.log_bytes > 0 && live.counts.findings == 0, "{live:?}");
    assert_eq!((live.sealed.span.unwrap().0, live.last.unwrap().at), (Ts(1000), Ts(8_600_000)));
    assert_eq!((live.minutes.span.unwrap().0, live.quarters.span.unwrap().0), (Ts(0), Ts(0)));
    let before = stored(&path).await;
    assert!(matches!(Compaction::run(&path).await, Err(Error::InUse { .. })));
    writer.close().await;
    let done = Compaction::run(&path).await.unwrap();
    let compact = Overview::of(&path).await.unwrap();
    assert!(compact.free_bytes == 0 && done.after <= done.before, "{compact:?}");
    assert_eq!(stored(&path).await, before);
    // It goes on being written, and gives pages back as before.
    Writer::new(&path).append(&light(8_601)).await.unwrap();
    assert_eq!(records::complaints(&path).await, [""; 0]);
}
