//! Reading tick by tick: through sealed windows, and on through the tail.

use ebbtide_core::{Tick, Ts};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cells, Playback, WindowId, chunk_id, chunk_place};
use crate::codec::{Row, SeriesId};
use crate::tail::TailWalk;
use crate::window::{self, group_of};

/// A walk over the ticks with a wall time from `from` to `to`, both included, in the order in which they were made.
#[derive(Debug)]
pub(crate) struct Walk {
    from: Ts,
    to: Ts,
    /// The newest window passed.
    window: WindowId,
    /// The newest tick passed. What was in the tail a moment ago may be in a window now.
    passed: Option<u64>,
    part: Part,
    unreadable: u64,
}

#[derive(Debug)]
enum Part {
    /// To be found out.
    Unknown,
    Sealed(Box<Sealed>),
    Tail(Box<TailWalk>),
}

/// A window being read: its ticks, and each series' cells.
#[derive(Debug)]
struct Sealed {
    ticks: std::vec::IntoIter<Tick>,
    series: Vec<(SeriesId, Playback)>,
    row: Row,
}

/// A row of `chunk`: id, windows that it covers, data.
type Stored = (i64, WindowId, Vec<u8>);

impl Walk {
    /// A walk from the oldest tick of a time span on.
    pub(crate) const fn new(from: Ts, to: Ts) -> Self {
        Self { from, to, window: 0, passed: None, part: Part::Unknown, unreadable: 0 }
    }

    /// The next tick and its values; `None` at the end.
    pub(crate) async fn next(
        &mut self,
        conn: &mut SqliteConnection,
    ) -> Result<Option<(Tick, &Row)>, sqlx::Error> {
        loop {
            match self.advance() {
                Some(tick) => return Ok(Some((tick, self.row()))),
                None if !self.turn(conn).await? => return Ok(None),
                None => {}
            }
        }
    }

    /// Ticks passed over because they are damaged or gone.
    pub(crate) fn unreadable(&self) -> u64 {
        let tail = if let Part::Tail(tail) = &self.part { tail.unreadable() } else { 0 };
        self.unreadable + tail
    }

    /// The next tick of what is in memory.
    fn advance(&mut self) -> Option<Tick> {
        loop {
            let tick = match &mut self.part {
                Part::Unknown => return None,
                Part::Sealed(sealed) => sealed.next()?,
                Part::Tail(tail) => tail.next()?,
            };
            if self.passed.is_none_or(|passed| tick.seq > passed)
                && self.from <= tick.at
                && tick.at <= self.to
            {
                self.passed = Some(tick.seq);
                return Some(tick);
            }
        }
    }

    fn row(&self) -> &Row {
        const NOTHING: &Row = &Row::new();
        match &self.part {
            Part::Unknown => NOTHING,
            Part::Sealed(sealed) => &sealed.row,
            Part::Tail(tail) => tail.row(),
        }
    }

    /// Reads on; false at the end. In one view of the file, so that no tick is on its way from the tail into a window.
    async fn turn(&mut self, conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        let mut view = conn.begin().await?;
        if let Part::Tail(tail) = &mut self.part {
            if !tail.wants_rows() {
                return Ok(false);
            }
            let newest: Option<WindowId> =
                sqlx::query_scalar("SELECT max(id) FROM tick_window").fetch_one(&mut *view).await?;
            if newest.unwrap_or(0) <= self.window {
                tail.fetch(&mut view).await?;
                return Ok(true);
            }
            self.unreadable += tail.unreadable();
        }
        let next: Option<(WindowId, Vec<u8>)> = sqlx::query_as(
            "SELECT id, times FROM tick_window WHERE id > ? AND from_ms <= ? AND to_ms >= ? ORDER BY id LIMIT 1",
        )
        .bind(self.window)
        .bind(self.to.0)
        .bind(self.from.0)
        .fetch_optional(&mut *view)
        .await?;
        self.part = match next {
            Some((window, times)) => {
                self.window = window;
                Part::Sealed(Box::new(self.load(&mut view, &times).await?))
            }
            None => {
                let newest: Option<WindowId> =
                    sqlx::query_scalar("SELECT max(id) FROM tick_window").fetch_one(&mut *view).await?;
                self.window = newest.unwrap_or(0);
                Part::Tail(Box::new(TailWalk::begin(&mut view, self.from, self.to).await?))
            }
        };
        Ok(true)
    }

    /// Reads the window that the walk has come to.
    async fn load(&mut self, conn: &mut SqliteConnection, times: &[u8]) -> Result<Sealed, sqlx::Error> {
        let counts: Vec<(WindowId, i64)> =
            sqlx::query_as("SELECT id, ticks FROM tick_window WHERE id BETWEEN ? AND ? ORDER BY id")
                .bind(group_of(self.window))
                .bind(self.window)
                .fetch_all(&mut *conn)
                .await?;
        let count = counts.last().map_or(0, |last| last.1);
        let Ok(ticks) = window::decode(self.window, times) else {
            self.unreadable += count.unsigned_abs();
            return Ok(Sealed::default());
        };
        let chunks: Vec<Stored> = sqlx::query_as(
            "SELECT c.id, c.windows, c.data
             FROM series s CROSS JOIN chunk c ON c.id = (
                 SELECT max(id) FROM chunk WHERE id BETWEEN s.id << 32 | ? AND s.id << 32 | ?)
             WHERE s.closed_window IS NULL OR s.closed_window > ?
             ORDER BY s.id",
        )
        .bind(group_of(self.window))
        .bind(self.window)
        .bind(self.window)
        .fetch_all(conn)
        .await?;
        let mut series = Vec::with_capacity(chunks.len());
        for (id, covers, data) in chunks {
            let (of, first) = chunk_place(id);
            if self.window - first >= covers {
                continue;
            }
            let before = counts.iter().filter(|(window, _)| (first..self.window).contains(window));
            let before: i64 = before.map(|(_, ticks)| ticks).sum();
            let before = usize::try_from(before).unwrap_or(0);
            match Cells::decode(id, &data) {
                Ok(cells) if cells.len() >= before + ticks.len() => {
                    series.push((of, cells.play_from(before)));
                }
                _ => tracing::warn!(id, "a chunk is damaged: its series has a gap there"),
            }
        }
        Ok(Sealed { ticks: ticks.into_iter(), series, row: Row::new() })
    }
}

impl Default for Sealed {
    fn default() -> Self {
        Self { ticks: Vec::new().into_iter(), series: Vec::new(), row: Row::new() }
    }
}

impl Sealed {
    fn next(&mut self) -> Option<Tick> {
        let tick = self.ticks.next()?;
        self.row.clear();
        for (series, cells) in &mut self.series {
            if let Some(Some(value)) = cells.next() {
                self.row.push((*series, value));
            }
        }
        Some(tick)
    }
}

/// Where a series' chunks from `first` to `last` lie: a chunk that covers `first` may begin up to seven windows before.
pub(crate) const fn chunk_range(series: SeriesId, first: WindowId, last: WindowId) -> (i64, i64) {
    (chunk_id(series, group_of(first)), chunk_id(series, last))
}
