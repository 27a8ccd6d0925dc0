//! Files of every released layout open, keep what they hold, and go on.

use std::path::{Path, PathBuf};

use ebbtide_core::{TickRecord, Ts};
use ebbtide_store::Writer;
use sqlx::{Connection, SqliteConnection};

use crate::records::{self, incident, record, sorted, stored, used};

fn copy_of(fixture: &str, dir: &Path) -> PathBuf {
    let path = dir.join(fixture);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    std::fs::copy(source, &path).unwrap();
    path
}

/// The fixtures hold ticks 1 to `last` of [`record`], the first with the cards of two GPUs and three processes, and one
/// open finding; the third and the fourth also the end of a process.
async fn upgrades(fixture: &str, last: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = copy_of(fixture, dir.path());
    let mut expected: Vec<TickRecord> = (1..=last).map(|seq| sorted(record(seq))).collect();
    expected[0].gpus = vec![records::gpu_card(0), records::gpu_card(1)];
    expected[0].processes = [7, 8, 9].map(records::process_card).into();

    let mut writer = Writer::new(&path);
    assert_eq!(writer.next_seq().await.unwrap(), last + 1);
    assert_eq!(stored(&path).await, (expected.clone(), 0));
    for seq in last + 1..=last + 1100 {
        writer.append(&record(seq)).await.unwrap();
        expected.push(sorted(record(seq)));
    }
    assert_eq!((writer.stats().sealed, writer.stats().quarantined), (1, 0));
    writer.close().await;
    assert_eq!(stored(&path).await, (expected, 0));
    assert_eq!(records::reader(&path).findings(Ts(0)).await.unwrap().len(), 1);
    assert_eq!(records::complaints(&path).await, [""; 0]);
    let chart = records::reader(&path).history(&used(0), Ts(0), Ts(i64::MAX), 10).await.unwrap();
    assert_eq!(chart.iter().map(|span| u64::from(span.count)).sum::<u64>(), last + 1100);
}

#[tokio::test]
async fn a_file_of_the_first_layout_becomes_one_of_the_newest() {
    upgrades("schema-1.db", 200).await;
}

#[tokio::test]
async fn a_file_of_the_second_layout_becomes_one_of_the_newest() {
    upgrades("schema-2.db", 1000).await;
}

#[tokio::test]
async fn a_file_of_the_third_layout_becomes_one_of_the_newest() {
    upgrades("schema-3.db", 1000).await;
    keeps_its_incident("schema-3.db").await;
}

#[tokio::test]
async fn a_file_of_the_fourth_layout_is_of_the_newest() {
    upgrades("schema-4.db", 1000).await;
    keeps_its_incident("schema-4.db").await;
}

async fn keeps_its_incident(fixture: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = copy_of(fixture, dir.path());
    let kept = records::reader(&path).incident(1).await.unwrap().unwrap();
    assert_eq!((kept.incident, kept.ticks.len()), (incident(950), 61));
}

#[tokio::test]
async fn an_older_file_can_be_read_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy_of("schema-1.db", dir.path());
    let before = std::fs::read(&path).unwrap();
    assert_eq!(records::reader(&path).next_seq().await.unwrap(), 201);
    let (ticks, unreadable) = stored(&path).await;
    assert_eq!((ticks.len(), unreadable), (200, 0));
    let chart = records::reader(&path).history(&used(0), Ts(0), Ts(200_000), 3).await.unwrap();
    assert_eq!(chart.iter().map(|span| span.count).sum::<u32>(), 200);
    assert_eq!(records::reader(&path).incidents().await.unwrap(), []);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// A fixture is made once, when its layout is released, with the test of that release.
#[tokio::test]
async fn the_fixtures_are_of_the_layouts_they_say() {
    for version in 1..=4 {
        let fixture = &format!("schema-{version}.db");
        let dir = tempfile::tempdir().unwrap();
        let path = copy_of(fixture, dir.path());
        let mut conn = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
        let found: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut conn).await.unwrap();
        assert_eq!(found, version);
    }
}
