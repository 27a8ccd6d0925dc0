//! The process that is tormented.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ebbtide_core::FindingEvent;
use ebbtide_store::{Verdicts, Writer};
use sqlx::{Connection, SqliteConnection};

use crate::block_on;
use crate::records::{self, record};

/// What the child is to do.
pub(crate) const ROLE: &str = "EBBTIDE_STORE_ROLE";
/// Where it is to do it.
pub(crate) const DIR: &str = "EBBTIDE_STORE_DIR";

/// Whether this process is one.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// Does what the parent wants, until it is stopped.
pub(crate) fn work() {
    let role = std::env::var(ROLE).unwrap();
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    match role.as_str() {
        "writer" => block_on(append_ticks(&dir)),
        "verdicts" => block_on(record_verdicts(&dir)),
        _ => block_on(insert_rows(&dir)),
    }
}

/// Tries each tick until it is acknowledged, as a daemon with a backlog does.
async fn append_ticks(dir: &Path) {
    let mut writer = Writer::new(&dir.join("history.db"));
    let begun = Instant::now();
    let mut seq = writer.next_seq().await.unwrap();
    tell(&format!("opened {}", begun.elapsed().as_micros()));
    while !dir.join("stop").exists() {
        match writer.append(&record(seq)).await {
            Ok(()) => {
                tell(&format!("acknowledged {seq}"));
                seq += 1;
            }
            Err(error) => tell(&format!("refused {}", error.name())),
        }
    }
    writer.close().await;
}

/// A finding and the end of a process with each 101st tick.
async fn record_verdicts(dir: &Path) {
    let mut writer = Writer::new(&dir.join("history.db"));
    for seq in 1.. {
        writer.append(&record(seq)).await.unwrap();
        tell(&format!("acknowledged {seq}"));
        if seq % 101 == 0 {
            let opened = FindingEvent::Opened(records::finding(0, seq.cast_signed()));
            let findings = std::slice::from_ref(&opened);
            writer.record(&Verdicts { findings, ..Verdicts::default() }).await.unwrap();
            writer.freeze(&records::incident(seq)).await.unwrap();
            tell(&format!("recorded {seq}"));
        }
    }
}

/// What one would write without knowing better: one connection, a transaction each, and on with the next after an
/// error.
async fn insert_rows(dir: &Path) {
    let url = format!("sqlite://{}?mode=rwc", dir.join("history.db").display());
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    let setup = "PRAGMA journal_mode = WAL; CREATE TABLE t (seq INTEGER PRIMARY KEY)";
    sqlx::raw_sql(setup).execute(&mut conn).await.unwrap();
    let mut seq = 0_i64;
    while !dir.join("stop").exists() {
        seq += 1;
        match insert(&mut conn, seq).await {
            Ok(()) => tell(&format!("acknowledged {seq}")),
            Err(_) => tell("refused plain"),
        }
    }
}

async fn insert(conn: &mut SqliteConnection, seq: i64) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    sqlx::query("INSERT INTO t (seq) VALUES (?)").bind(seq).execute(&mut *tx).await?;
    tx.commit().await
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
