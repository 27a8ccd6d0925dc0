//! Ends of processes: what is kept with them outlives everything around it.

use ebbtide_core::{Point, ProcKey, SeriesKey, Tick, TickRecord, Ts};
use ebbtide_store::{FrozenIncident, StoreConfig, Writer};

use crate::damage::tamper;
use crate::records::{self, held, incident, record, sorted, stored, tick, uuid};

async fn frozen(path: &std::path::Path, id: u32) -> FrozenIncident {
    records::reader(path).incident(id).await.unwrap().unwrap()
}

/// The ticks of an incident as records, without those of other GPUs.
fn ticks(frozen: &FrozenIncident) -> Vec<TickRecord> {
    let at = |place: usize| {
        let points = frozen
            .series
            .iter()
            .filter_map(|series| Some(Point { series: series.key.clone(), value: series.cells[place]? }));
        let tick = frozen.ticks[place];
        sorted(TickRecord { tick, points: points.collect(), gpus: Vec::new(), processes: Vec::new() })
    };
    (0..frozen.ticks.len()).map(at).collect()
}

#[tokio::test]
async fn the_ticks_before_an_end_outlive_those_in_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::with(
        &path,
        StoreConfig { raw_ms: 600_000, minute_ms: 0, quarter_ms: 0, ..StoreConfig::default() },
    );
    for seq in 1..=990 {
        writer.append(&record(seq)).await.unwrap();
    }
    assert_eq!(writer.stats().sealed, 1, "the ticks before the end lie in a window and in the tail");
    writer.freeze(&incident(925)).await.unwrap();
    let mut expected = stored(&path).await.0;
    expected.retain(|record| (865..=925).contains(&record.tick.seq));
    for record in &mut expected {
        record.points.retain(|point| point.series.gpu != Some(uuid(1)));
    }
    let kept = frozen(&path, 1).await;
    assert_eq!(ticks(&kept), expected);
    assert_eq!(kept.incident, incident(925));

    // Months go by, in ticks of one value.
    let series = SeriesKey { proc: Some(ProcKey { pid: 1, start_ticks: Some(1) }), ..held(1, 1) };
    for seq in 991..=9_500_u64 {
        let later = Tick { at: Ts(seq.cast_signed() * 1000 + 90 * 24 * 3_600_000), ..tick(seq) };
        let points = vec![Point { series: series.clone(), value: Some(5) }];
        let record = TickRecord { tick: later, points, gpus: Vec::new(), processes: Vec::new() };
        writer.append(&record).await.unwrap();
    }
    writer.close().await;
    assert!(stored(&path).await.0.iter().all(|record| record.tick.seq > 990), "their own have expired");
    assert_eq!(frozen(&path, 1).await, kept);
    assert_eq!(records::complaints(&path).await, [""; 0]);
}

#[tokio::test]
async fn an_end_is_kept_once_and_beyond_five_hundred_the_oldest_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in 1..=70 {
        writer.append(&record(seq)).await.unwrap();
    }
    for seq in [70, 70, 65] {
        writer.freeze(&incident(seq)).await.unwrap();
    }
    let ids =
        |listed: Vec<ebbtide_store::StoredIncident>| listed.iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(records::reader(&path).incidents().await.unwrap()), [2, 1]);
    tamper(&path, "UPDATE incident SET id = 500 WHERE id = 2; UPDATE incident_series SET id = (500 << 32) | (id & 0xFFFFFFFF) WHERE id >> 32 = 2")
        .await;
    writer.freeze(&incident(69)).await.unwrap();
    writer.close().await;
    assert_eq!(ids(records::reader(&path).incidents().await.unwrap()), [501, 500]);
    assert_eq!(records::reader(&path).incident(1).await.unwrap(), None);
    assert!(!frozen(&path, 501).await.series.is_empty());
    let mut conn =
        <sqlx::SqliteConnection as sqlx::Connection>::connect(path.to_str().unwrap()).await.unwrap();
    let left: Vec<i64> = sqlx::query_scalar("SELECT DISTINCT id >> 32 FROM incident_series ORDER BY 1")
        .fetch_all(&mut conn)
        .await
        .unwrap();
    assert_eq!(left, [500, 501]);
}

#[tokio::test]
async fn a_damaged_series_of_an_incident_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    for seq in 1..=70 {
        writer.append(&record(seq)).await.unwrap();
    }
    writer.freeze(&incident(70)).await.unwrap();
    writer.close().await;
    let whole = frozen(&path, 1).await;
    tamper(&path, "UPDATE incident_series SET data = zeroblob(length(data)) WHERE id = (1 << 32) + 1").await;
    let damaged = frozen(&path, 1).await;
    assert_eq!((damaged.ticks.len(), damaged.series.len()), (61, whole.series.len() - 1));
    assert_eq!(damaged.incident, whole.incident);
    assert_eq!(
        records::complaints(&path).await,
        ["incident_series: incident 1, series 1: its checksum differs"]
    );
}
