//! Files that are not as they should be.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ebbtide_store::{Error, Writer};
use sqlx::{Connection, SqliteConnection};

use crate::records::{self, record, stored};

async fn written(path: &Path, ticks: u64) {
    let mut writer = Writer::new(path);
    for seq in 1..=ticks {
        writer.append(&record(seq)).await.unwrap();
    }
    writer.close().await;
}

/// Does something to a file that no version of ours does.
pub(crate) async fn tamper(path: &Path, sql: &'static str) {
    let mut conn = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

fn set_aside(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains(".db.corrupt-")).collect()
}

#[tokio::test]
async fn a_file_that_is_not_for_this_build_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&str, &'static str, &str); 4] = [
        ("newer", "PRAGMA user_version = 99", "newer"),
        ("negative", "PRAGMA user_version = -1", "newer"),
        ("altered", "UPDATE meta SET value = 'crc32 00000000'", "altered"),
        ("foreign", "PRAGMA application_id = 7", "foreign"),
    ];
    for (name, sql, expected) in cases {
        let path = dir.path().join(format!("{name}.db"));
        written(&path, 3).await;
        tamper(&path, sql).await;
        let before = std::fs::read(&path).unwrap();
        let mut writer = Writer::new(&path);
        for _ in 0..3 {
            let error = writer.append(&record(4)).await.unwrap_err();
            assert_eq!(error.name(), expected, "{error}");
            assert!(!error.is_transient());
            assert!(error.to_string().contains(name), "the text names the file: {error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert!(set_aside(dir.path()).is_empty());
    }
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_once_and_a_new_one_begun() {
    let damages: [fn(&Path); 3] = [
        |path| std::fs::write(path, b"this was never a database, but it is long enough".repeat(100)).unwrap(),
        |path| std::fs::File::options().write(true).open(path).unwrap().set_len(5000).unwrap(),
        |path| {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.write_all_at(&[0xA5; 4096 * 8], 100).unwrap();
        },
    ];
    for damage in damages {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        written(&path, 100).await;
        damage(&path);
        let damaged = std::fs::read(&path).unwrap();
        let mut writer = Writer::new(&path);
        writer.append(&record(101)).await.unwrap();
        assert_eq!(writer.stats().quarantined, 1);
        let aside = set_aside(dir.path());
        assert!(aside.iter().any(|path| std::fs::read(path).unwrap() == damaged));
        assert_eq!(stored(&path).await.0.len(), 1);

        // The new file goes bad at once: that is the disk, and yet another file would not help.
        let bad = dir.path().join("bad");
        std::fs::write(&bad, [0x55; 9000]).unwrap();
        std::fs::rename(&bad, &path).unwrap();
        for seq in 102..105 {
            let error = writer.append(&record(seq)).await.unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
        assert_eq!(writer.stats().quarantined, 1);
    }
}

#[tokio::test]
async fn a_damaged_blob_costs_no_more_than_the_rest_of_its_chain() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    written(&path, 200).await;
    tamper(&path, "UPDATE tail SET blob = zeroblob(length(blob)) WHERE seq = 100").await;
    let (ticks, unreadable) = stored(&path).await;
    assert_eq!(
        (ticks.len() as u64, unreadable),
        (200 - 21, 21),
        "60 blobs a chain: 100 to 120 hang together"
    );
    assert!(ticks.iter().all(|tick| tick.points.len() == record(1).points.len()));
}

#[tokio::test]
async fn a_file_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut first = Writer::new(&path);
    first.append(&record(1)).await.unwrap();
    let mut second = Writer::new(&path);
    let error = second.append(&record(2)).await.unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    first.close().await;
    second.append(&record(2)).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_deleted_underneath_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let mut writer = Writer::new(&path);
    writer.append(&record(1)).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    writer.append(&record(2)).await.unwrap();
    writer.append(&record(3)).await.unwrap();
    let seqs: Vec<u64> = stored(&path).await.0.iter().map(|record| record.tick.seq).collect();
    assert_eq!(seqs, [2, 3]);
}

#[tokio::test]
async fn what_is_not_there_is_said_to_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let error = records::reader(&dir.path().join("none.db")).next_seq().await.unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Writer::new(&file.join("history.db")).next_seq().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let error = Writer::new(&dir.path().join("no/such/directory/history.db")).next_seq().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}
