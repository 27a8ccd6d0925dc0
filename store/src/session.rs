//! One connection of the writer, and all that may be believed only as long as it lives.

use std::path::{Path, PathBuf};

use ebbtide_core::{Incident, Tick, TickRecord, Ts};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::catalogue::{self, SeriesIds};
use crate::codec::{self, Row};
use crate::config::StoreConfig;
use crate::digest::Digest;
use crate::error::Error;
use crate::gap::{self, Gap};
use crate::incident;
use crate::outbox::{self, DeliveryId, Settlement, Verdicts};
use crate::schema;
use crate::upkeep::{Done, Upkeep};

/// Ticks between two whole blobs. A damaged blob costs at most the rest of its chain: a minute at one tick a second.
const CHAIN_TICKS: u32 = 60;

/// Wall time that disagrees with the steady clock by more than this has been set.
const CLOCK_STEP_MS: i64 = 1000;

/// A log of more pages than this (64 MiB) means that a reader does not let go.
const LOG_PAGES: i64 = 16_384;

/// A connection, with the ids and the last values that belong to its file.
#[derive(Debug)]
pub(crate) struct Session {
    conn: SqliteConnection,
    path: PathBuf,
    inode: u64,
    series: SeriesIds,
    chain: Option<Chain>,
    digest: Digest,
    last_seq: Option<u64>,
    upkeep: Upkeep,
}

/// The newest tick that this session committed: what the next blob is a change of.
#[derive(Debug)]
struct Chain {
    tick: Tick,
    row: Row,
    length: u32,
}

impl Session {
    /// Opens the file, or makes it.
    pub(crate) async fn open(path: &Path, config: StoreConfig) -> Result<Self, Error> {
        let mut conn = schema::open_for_writing(path).await?;
        let begun = async {
            look_over(&mut conn, path).await?;
            let fail = |e| Error::of_sqlite(path, e);
            let newest: Option<i64> =
                sqlx::query_scalar("SELECT max(seq) FROM tail").fetch_one(&mut conn).await.map_err(fail)?;
            Ok((newest, Upkeep::begin(&mut conn, config).await.map_err(fail)?))
        };
        let (newest, upkeep) = match begun.await {
            Ok(begun) => begun,
            Err(error) => {
                schema::close(conn).await;
                return Err(error);
            }
        };
        let inode = inode(path).map_err(|e| Error::of_system(path, e))?;
        Ok(Self {
            conn,
            path: path.to_path_buf(),
            inode,
            series: SeriesIds::default(),
            chain: None,
            digest: Digest::unknown(),
            last_seq: newest.map(i64::cast_unsigned),
            upkeep,
        })
    }

    /// Folds the log into the file and closes. SQLite does so by itself with the last connection, but a reader that is
    /// just leaving would keep it from that, and whoever then copies the file alone would miss its newest ticks.
    pub(crate) async fn finish(mut self) {
        let folded = sqlx::raw_sql("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut self.conn).await;
        if let Err(error) = folded {
            tracing::debug!(%error, "the log stays beside the database");
        }
        self.close().await;
    }

    /// Closes the connection; SQLite folds the log into the file where it can.
    pub(crate) async fn close(self) {
        schema::close(self.conn).await;
    }

    /// Whether the file that this session has open still stands under its name.
    pub(crate) fn is_in_place(&self) -> bool {
        inode(&self.path).is_ok_and(|inode| inode == self.inode)
    }

    /// The newest tick in the file.
    pub(crate) const fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// Stores ticks in one commit; they are in the log when this returns.
    ///
    /// The newest tick may be given once more: after a failed COMMIT nobody knows whether it reached the log.
    pub(crate) async fn append(&mut self, records: &[TickRecord]) -> Result<(), Error> {
        let mut last = self.last_seq;
        for TickRecord { tick, .. } in records {
            let seq = tick.seq;
            if let Some(last) = last.filter(|last| seq < *last) {
                return Err(Error::Behind { path: self.path.clone(), seq, last });
            }
            last = Some(seq);
        }
        self.commit(records).await.map_err(|e| Error::of_sqlite(&self.path, e))?;
        self.last_seq = last;
        records.iter().for_each(|_| self.upkeep.note_tick());
        Ok(())
    }

    async fn commit(&mut self, records: &[TickRecord]) -> Result<(), sqlx::Error> {
        let Self { conn, series, chain, digest, .. } = self;
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        for record in records {
            digest.make_way(&mut tx, record.tick.seq).await?;
            let written = write(&mut tx, series, chain.take(), record).await?;
            digest.add(written.tick, &written.row);
            *chain = Some(written);
        }
        tx.commit().await
    }

    /// Stores verdicts; they are on the disk when this returns.
    pub(crate) async fn record(&mut self, verdicts: &Verdicts<'_>) -> Result<Vec<DeliveryId>, Error> {
        let written = async {
            durably(&mut self.conn, true).await?;
            let ids = outbox::record(&mut self.conn, verdicts).await?;
            durably(&mut self.conn, false).await?;
            Ok(ids)
        };
        written.await.map_err(|e| Error::of_sqlite(&self.path, e))
    }

    /// Keeps an incident with the ticks before it; it is on the disk when this returns.
    pub(crate) async fn freeze(&mut self, what: &Incident) -> Result<(), Error> {
        let written = async {
            durably(&mut self.conn, true).await?;
            incident::freeze(&mut self.conn, what).await?;
            durably(&mut self.conn, false).await
        };
        written.await.map_err(|e| Error::of_sqlite(&self.path, e))
    }

    /// Enters a gap; it is in the log when this returns.
    pub(crate) async fn mark(&mut self, what: &Gap) -> Result<(), Error> {
        gap::mark(&mut self.conn, what).await.map_err(|e| Error::of_sqlite(&self.path, e))
    }

    /// Notes how a delivery ended; it is on the disk when this returns.
    pub(crate) async fn settle(&mut self, id: DeliveryId, how: Settlement) -> Result<(), Error> {
        let written = async {
            durably(&mut self.conn, true).await?;
            outbox::settle(&mut self.conn, id, how).await?;
            durably(&mut self.conn, false).await
        };
        written.await.map_err(|e| Error::of_sqlite(&self.path, e))
    }

    /// Does the housekeeping that is due after a tick, or a little of it.
    pub(crate) async fn keep_house(&mut self, now: Ts) -> Result<Done, Error> {
        let newest = self.last_seq.unwrap_or(0).cast_signed();
        let done = self.upkeep.step(&mut self.conn, &mut self.series, &mut self.digest, (now, newest)).await;
        let done = done.map_err(|e| Error::of_sqlite(&self.path, e))?;
        if done.log_pages > Some(LOG_PAGES) {
            tracing::warn!(
                path = %self.path.display(), pages = done.log_pages,
                "the write-ahead log cannot shrink: some reader of the database does not let go"
            );
        }
        Ok(done)
    }
}

/// Writes a tick as a change of the one before, or whole.
async fn write(
    conn: &mut SqliteConnection,
    series: &mut SeriesIds,
    chain: Option<Chain>,
    record: &TickRecord,
) -> Result<Chain, sqlx::Error> {
    let tick = record.tick;
    catalogue::introduce(conn, record).await?;
    let row = series.row(conn, record).await?;
    let before = chain.filter(|chain| chain.goes_on_with(tick));
    let blob = codec::encode(tick.seq, before.as_ref().map(|chain| (chain.tick.seq, &chain.row)), &row);
    sqlx::query("INSERT OR REPLACE INTO tail (seq, at_ms, mono_ms, whole, blob) VALUES (?, ?, ?, ?, ?)")
        .bind(tick.seq.cast_signed())
        .bind(tick.at.0)
        .bind(tick.mono_ms.cast_signed())
        .bind(before.is_none())
        .bind(blob)
        .execute(conn)
        .await?;
    Ok(Chain { tick, row, length: before.map_or(1, |chain| chain.length + 1) })
}

impl Chain {
    /// Within one chain wall time keeps step with the steady clock, so a reader finds a time by the chain's first row.
    fn goes_on_with(&self, next: Tick) -> bool {
        let wall = next.at.0.saturating_sub(self.tick.at.0);
        let steady = next.mono_ms.wrapping_sub(self.tick.mono_ms).cast_signed();
        self.length < CHAIN_TICKS
            && next.seq > self.tick.seq
            && wall >= 0
            && wall.abs_diff(steady) <= CLOCK_STEP_MS.unsigned_abs()
    }
}

/// Looks whether the tables on which each tick depends hang together: rows that lie out of their order would be written and
/// not be found again. They are small; the others are looked at by `ebbtide db verify`.
async fn look_over(conn: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    for table in ["PRAGMA quick_check(tail)", "PRAGMA quick_check(series)", "PRAGMA quick_check(tick_window)"]
    {
        let said: Vec<String> =
            sqlx::query_scalar(table).fetch_all(&mut *conn).await.map_err(|e| Error::of_sqlite(path, e))?;
        if let Some(complaint) = said.into_iter().find(|line| line != "ok") {
            return Err(Error::Corrupt {
                path: path.to_path_buf(),
                source: sqlx::Error::Protocol(complaint),
            });
        }
    }
    Ok(())
}

/// Whether a commit waits for the disk (`FULL`) or leaves that to the next checkpoint (`NORMAL`).
async fn durably(conn: &mut SqliteConnection, on: bool) -> Result<(), sqlx::Error> {
    let pragma = if on { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
    sqlx::query(pragma).execute(conn).await.map(drop)
}

fn inode(path: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map(|file| file.ino())
}
