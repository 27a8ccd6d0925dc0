//! Sealing: the oldest ticks of the tail become a window, with one chunk for each series.
//!
//! It is done a little with each tick: first the ticks are read, a chain at a time, then chunks are written, some series
//! at a time, and in the end one commit enters the window and takes its ticks from the tail. Chunks without a window are
//! looked at by nobody, so an interruption costs only the work: the next attempt gives the window the same number and
//! writes over them.

use std::collections::BTreeMap;

use ebbtide_core::{Tick, Ts};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cells, WindowId, chunk_id};
use crate::codec::{self, Row, SeriesId};
use crate::digest;
use crate::json;
use crate::window;

/// Ticks of a window: a quarter of an hour at one tick a second. It ends with a chain, so it may have up to 59 more.
pub(crate) const WINDOW_TICKS: u64 = 900;

/// Rows read with one tick: a chain.
const ROWS_A_STEP: i64 = 60;

/// Chunks written with one tick, some 10 ms of work: 400 series take two ticks, and 200 000 are done before the next window
/// is full. In one commit, because they share pages.
const CHUNKS_A_STEP: usize = 256;

/// A window ends before the wall clock is set by more than this, so that the times in it are of one piece. Small
/// corrections are not worth a window.
const CLOCK_STEP_MS: u64 = 60_000;

/// A row as it stands in the tail: number, wall time, steady time, whether it is whole, blob.
type Stored = (i64, i64, i64, bool, Vec<u8>);

/// A window on its way out of the tail.
#[derive(Debug)]
pub(crate) struct Seal {
    window: WindowId,
    /// The newest row read.
    read_to: i64,
    rows: u64,
    /// All rows of the window are read.
    complete: bool,
    ticks: Vec<Tick>,
    /// What is not written yet.
    cells: BTreeMap<SeriesId, Cells>,
    written: Vec<SeriesId>,
    current: Option<u64>,
    row: Row,
}

impl Seal {
    /// A window of that number, which begins with the oldest tick.
    pub(crate) fn begin(window: WindowId) -> Self {
        Self {
            window,
            read_to: i64::MIN,
            rows: 0,
            complete: false,
            ticks: Vec::new(),
            cells: BTreeMap::new(),
            written: Vec::new(),
            current: None,
            row: Row::new(),
        }
    }

    /// Does a little more; when the window is sealed, how many of its ticks were damaged and are lost. `newest` is the
    /// newest tick, which may still be written over.
    pub(crate) async fn step(
        &mut self,
        conn: &mut SqliteConnection,
        newest: i64,
    ) -> Result<Option<u64>, sqlx::Error> {
        if !self.complete {
            self.read_some(conn, newest).await?;
            return Ok(None);
        }
        if !self.cells.is_empty() {
            self.write_some(conn).await?;
            return Ok(None);
        }
        self.finish(conn).await?;
        Ok(Some(self.rows - self.ticks.len() as u64))
    }

    async fn read_some(&mut self, conn: &mut SqliteConnection, newest: i64) -> Result<(), sqlx::Error> {
        let rows: Vec<Stored> = sqlx::query_as(
            "SELECT seq, at_ms, mono_ms, whole, blob FROM tail WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
        )
        .bind(self.read_to)
        .bind(newest)
        .bind(ROWS_A_STEP)
        .fetch_all(conn)
        .await?;
        for (seq, at, mono_ms, whole, blob) in rows {
            let tick = Tick { seq: seq.cast_unsigned(), at: Ts(at), mono_ms: mono_ms.cast_unsigned() };
            if whole && self.ends_before(tick) {
                self.complete = true;
                return Ok(());
            }
            if seq == newest {
                return Ok(());
            }
            self.take(tick, &blob);
            self.read_to = seq;
            self.rows += 1;
        }
        Ok(())
    }

    /// Only before a whole blob can a window end: the others need the one before them.
    fn ends_before(&self, next: Tick) -> bool {
        let Some(last) = self.ticks.last() else { return self.rows >= WINDOW_TICKS };
        let wall = next.at.0.saturating_sub(last.at.0);
        let steady = next.mono_ms.wrapping_sub(last.mono_ms).cast_signed();
        self.rows >= WINDOW_TICKS || wall.abs_diff(steady) > CLOCK_STEP_MS
    }

    fn take(&mut self, tick: Tick, blob: &[u8]) {
        let read = codec::open(tick.seq, blob).is_ok_and(|blob| {
            (blob.follows.is_none() || blob.follows == self.current) && blob.apply(&mut self.row).is_ok()
        });
        self.current = read.then_some(tick.seq);
        if !read {
            return;
        }
        for (series, value) in &self.row {
            let cells = self.cells.entry(*series).or_default();
            cells.pad_to(self.ticks.len());
            cells.push(Some(*value));
        }
        self.ticks.push(tick);
    }

    async fn write_some(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        for _ in 0..CHUNKS_A_STEP {
            let Some((series, mut cells)) = self.cells.pop_first() else { break };
            cells.pad_to(self.ticks.len());
            let id = chunk_id(series, self.window);
            sqlx::query("INSERT OR REPLACE INTO chunk (id, windows, data) VALUES (?, 1, ?)")
                .bind(id)
                .bind(cells.encode(id))
                .execute(&mut *tx)
                .await?;
            self.written.push(series);
        }
        tx.commit().await
    }

    async fn finish(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        if let (Some(first), Some(from), Some(to)) = (
            self.ticks.first(),
            self.ticks.iter().map(|tick| tick.at.0).min(),
            self.ticks.iter().map(|tick| tick.at.0).max(),
        ) {
            sqlx::query(
                "INSERT INTO tick_window (id, first_seq, last_seq, from_ms, to_ms, ticks, times)
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(self.window)
            .bind(first.seq.cast_signed())
            .bind(self.read_to)
            .bind(from)
            .bind(to)
            .bind(self.ticks.len() as i64)
            .bind(window::encode(self.window, &self.ticks))
            .execute(&mut *tx)
            .await?;
            self.close_series(&mut tx).await?;
        }
        sqlx::query(digest::DELETE).execute(&mut *tx).await?;
        sqlx::query("DELETE FROM tail WHERE seq <= ?").bind(self.read_to).execute(&mut *tx).await?;
        tx.commit().await
    }

    /// A series that this window does not have is closed, one that it has is open.
    async fn close_series(&self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let present = json::text(&self.written)?;
        sqlx::query(
            "UPDATE series SET closed_window = NULL
             WHERE closed_window IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
        )
        .bind(present.clone())
        .execute(&mut *conn)
        .await?;
        // Those that were first seen after this window are in none yet.
        sqlx::query(
            "UPDATE series SET closed_window = ?
             WHERE closed_window IS NULL AND seen_seq <= ? AND id NOT IN (SELECT value FROM json_each(?))",
        )
        .bind(self.window)
        .bind(self.read_to)
        .bind(present)
        .execute(conn)
        .await?;
        Ok(())
    }
}
