//! Merging: in quiet ticks, eight chunks of a series become one, and their values enter the rollups.
//!
//! In one commit the chunks of a series are exchanged, its buckets grow, and `rolled_window` says so. So each value enters
//! the rollups exactly once, whatever interrupts the rest.

use std::time::Instant;

use ebbtide_core::{Tick, Ts};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cells, WindowId, chunk_id, chunk_place};
use crate::codec::SeriesId;
use crate::pace::Pace;
use crate::rollup::{self, Buckets, MINUTE, QUARTER};
use crate::window::{self, MERGED};

/// Series merged with one tick, at most: some 20 ms of work, and 10 000 series in 300 ticks of the 7200 that there are. In one
/// commit, because they share pages.
const SERIES_A_STEP: i64 = 32;

/// Eight windows that are becoming one.
#[derive(Debug)]
pub(crate) struct Merge {
    first: WindowId,
    windows: Vec<Times>,
    /// Series up to this one are done.
    done: i64,
    pace: Pace,
}

/// The ticks of a window.
#[derive(Debug)]
struct Times {
    window: WindowId,
    count: usize,
    /// None where they are damaged.
    ticks: Vec<Tick>,
}

/// A row of `chunk`: id, windows that it covers, data.
type Stored = (i64, i64, Vec<u8>);

impl Merge {
    /// Begins to merge the eight windows from `first`, all of which are sealed.
    pub(crate) async fn begin(conn: &mut SqliteConnection, first: WindowId) -> Result<Self, sqlx::Error> {
        let rows: Vec<(WindowId, i64, Vec<u8>)> =
            sqlx::query_as("SELECT id, ticks, times FROM tick_window WHERE id BETWEEN ? AND ? ORDER BY id")
                .bind(first)
                .bind(first + (MERGED - 1))
                .fetch_all(conn)
                .await?;
        let windows = rows.into_iter().map(|(window, count, times)| Times {
            window,
            count: usize::try_from(count).unwrap_or(0),
            ticks: window::decode(window, &times).unwrap_or_else(|damage| {
                tracing::warn!(
                    window,
                    ?damage,
                    "the times of a window are damaged: it is left out of the rollups"
                );
                Vec::new()
            }),
        });
        Ok(Self { first, windows: windows.collect(), done: -1, pace: Pace::up_to(SERIES_A_STEP) })
    }

    /// The last of the windows.
    pub(crate) const fn last(&self) -> WindowId {
        self.first + (MERGED - 1)
    }

    /// Merges a little more; true when all is done.
    pub(crate) async fn step(&mut self, conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        let series: Vec<SeriesId> = sqlx::query_scalar(
            "SELECT id FROM series
             WHERE id > ? AND rolled_window < ? AND (closed_window IS NULL OR closed_window > ?)
             ORDER BY id LIMIT ?",
        )
        .bind(self.done)
        .bind(self.last())
        .bind(self.first)
        .bind(self.pace.now())
        .fetch_all(&mut *conn)
        .await?;
        let begun = Instant::now();
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        for series in &series {
            self.merge(&mut tx, *series).await?;
            self.done = i64::from(*series);
        }
        if series.is_empty() {
            sqlx::query("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)")
                .bind(MERGED_KEY)
                .bind(self.last().to_string())
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        self.pace.note(begun);
        Ok(series.is_empty())
    }

    async fn merge(&self, conn: &mut SqliteConnection, series: SeriesId) -> Result<(), sqlx::Error> {
        let (from, to) = (chunk_id(series, self.first), chunk_id(series, self.last()));
        let chunks: Vec<Stored> =
            sqlx::query_as("SELECT id, windows, data FROM chunk WHERE id BETWEEN ? AND ? ORDER BY id")
                .bind(from)
                .bind(to)
                .fetch_all(&mut *conn)
                .await?;
        let (cells, values) = self.gather(&chunks);
        if !chunks.is_empty() {
            // In the place of the first, whose page is then not emptied and filled again.
            sqlx::query("INSERT OR REPLACE INTO chunk (id, windows, data) VALUES (?, ?, ?)")
                .bind(from)
                .bind(MERGED)
                .bind(cells.encode(from))
                .execute(&mut *conn)
                .await?;
            sqlx::query("DELETE FROM chunk WHERE id > ? AND id <= ?")
                .bind(from)
                .bind(to)
                .execute(&mut *conn)
                .await?;
        }
        let minutes = Buckets::of(&MINUTE, values.into_iter());
        rollup::store(conn, &MINUTE, series, &minutes).await?;
        rollup::store(conn, &QUARTER, series, &minutes.widen(&MINUTE, &QUARTER)).await?;
        sqlx::query("UPDATE series SET rolled_window = ? WHERE id = ?")
            .bind(self.last())
            .bind(series)
            .execute(conn)
            .await?;
        Ok(())
    }

    /// All cells of the eight windows, and the values among them with their times.
    fn gather(&self, chunks: &[Stored]) -> (Cells, Vec<(Ts, i64)>) {
        let (mut all, mut values) = (Cells::default(), Vec::new());
        let mut chunks = chunks.iter().peekable();
        for times in &self.windows {
            let chunk = chunks.next_if(|chunk| chunk_place(chunk.0).1 == times.window);
            let until = all.len() + times.count;
            if let Some(cells) = chunk.and_then(|(id, _, data)| read(*id, data, times.count)) {
                all.append(&cells);
                let cells = times.ticks.iter().zip(cells.play());
                values.extend(cells.filter_map(|(tick, cell)| Some((tick.at, cell??))));
            }
            all.pad_to(until);
        }
        (all, values)
    }
}

/// The key in `meta` under which the newest merged window stands.
pub(crate) const MERGED_KEY: &str = "merged window";

/// A damaged chunk costs its series its window, and nothing else.
fn read(id: i64, data: &[u8], count: usize) -> Option<Cells> {
    let cells = Cells::decode(id, data).ok().filter(|cells| cells.len() == count);
    if cells.is_none() {
        tracing::warn!(id, "a chunk is damaged: its series has a gap there");
    }
    cells
}
