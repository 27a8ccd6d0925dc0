//! Reading a file: one that is being written, or a copy of one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebbtide_core::{Alert, Finding, Point, SeriesKey, TickRecord, Ts};
use sqlx::sqlite::SqliteConnection;

use crate::directory::{self, SeriesFilter, StoredSeries};
use crate::error::Error;
use crate::gap::{self, Gap};
use crate::history::Span;
use crate::incident::{self, FrozenIncident, StoredIncident};
use crate::json;
use crate::names::Names;
use crate::outbox::{DeliveryId, Pending};
use crate::query;
use crate::schema;
use crate::walk::Walk;

/// Findings returned at once, the newest: a screen or an export page.
const MAX_FINDINGS: i64 = 10_000;

/// Deliveries returned at once, the oldest; the rest follows when these are settled.
const MAX_PENDING: i64 = 1_000;

/// Reads one file. Each call opens it and closes it again: reads are rare, an idle connection would cost memory all
/// day, and a file that was replaced meanwhile is met as it is now.
#[derive(Debug, Clone)]
pub struct Reader {
    path: PathBuf,
    deadline: Duration,
}

impl Reader {
    /// A reader of the file at `path` whose calls take no longer than `deadline`.
    #[must_use]
    pub fn new(path: &Path, deadline: Duration) -> Self {
        Self { path: path.to_path_buf(), deadline }
    }

    /// The ticks with a wall time from `from` to `to`, both included.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn replay(&self, from: Ts, to: Ts) -> Result<Replay, Error> {
        self.within(async {
            let conn = self.open().await?;
            Ok(Replay { reader: self.clone(), conn, walk: Walk::new(from, to), names: Names::default() })
        })
        .await
    }

    /// The ticks of the `window_ms` milliseconds up to and including the newest tick.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn replay_last(&self, window_ms: i64) -> Result<Replay, Error> {
        let newest = self
            .within(async {
                let mut conn = self.open().await?;
                sqlx::query_scalar("SELECT at_ms FROM tail ORDER BY seq DESC LIMIT 1")
                    .fetch_optional(&mut conn)
                    .await
                    .map_err(|e| self.fail(e))
            })
            .await?;
        let to = Ts(newest.unwrap_or(0));
        self.replay(to.plus_ms(window_ms.saturating_neg()), to).await
    }

    /// The number that a writer would give the next tick: 1 in an empty file.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn next_seq(&self) -> Result<u64, Error> {
        self.within(async {
            let mut conn = self.open().await?;
            let newest: Option<i64> = sqlx::query_scalar("SELECT max(seq) FROM tail")
                .fetch_one(&mut conn)
                .await
                .map_err(|e| self.fail(e))?;
            Ok(newest.map_or(1, |newest| newest.cast_unsigned().saturating_add(1)))
        })
        .await
    }

    /// One series from `from` to `to`, both included, cut into at most `points` spans of equal length. A span in which
    /// nothing was read is left out: a gap, never a zero. Where spans are a minute or longer, or ticks that old are not
    /// kept, they are made of minutes or quarters of an hour; of these only whole ones count, so that nothing from before
    /// `from` or after `to` is in the answer. Least and greatest are always those of the ticks.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn history(
        &self,
        series: &SeriesKey,
        from: Ts,
        to: Ts,
        points: usize,
    ) -> Result<Vec<Span>, Error> {
        let mut charts = self.histories(std::slice::from_ref(series), from, to, points).await?;
        Ok(charts.pop().unwrap_or_default())
    }

    /// The same for several series at once, in their order.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn histories(
        &self,
        series: &[SeriesKey],
        from: Ts,
        to: Ts,
        points: usize,
    ) -> Result<Vec<Vec<Span>>, Error> {
        self.within(async {
            let mut conn = self.open().await?;
            query::charts(&mut conn, series, (from, to), points).await.map_err(|e| self.fail(e))
        })
        .await
    }

    /// The series that the file holds something of and the filter lets through, in the order in which they were first
    /// seen; of more than 10 000 the newest.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn series(&self, filter: &SeriesFilter) -> Result<Vec<StoredSeries>, Error> {
        self.within(async {
            let mut conn = self.open().await?;
            directory::list(&mut conn, filter).await.map_err(|e| self.fail(e))
        })
        .await
    }

    /// The findings that opened at or after `since`, and those still open; the oldest first.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn findings(&self, since: Ts) -> Result<Vec<Finding>, Error> {
        let bodies = self
            .within(async {
                let mut conn = self.open().await?;
                sqlx::query_scalar::<_, String>(
                    "SELECT body FROM finding WHERE id IN (
                         SELECT id FROM finding WHERE opened_at_ms >= ?
                         UNION SELECT id FROM finding WHERE resolved_at_ms IS NULL)
                     ORDER BY opened_at_ms DESC, id DESC LIMIT ?",
                )
                .bind(since.0)
                .bind(MAX_FINDINGS)
                .fetch_all(&mut conn)
                .await
                .map_err(|e| self.fail(e))
            })
            .await?;
        Ok(bodies.iter().rev().filter_map(|body| json::value("finding", body)).collect())
    }

    /// The alerts that have not resolved, by fingerprint.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn open_alerts(&self) -> Result<Vec<Alert>, Error> {
        let bodies = self
            .within(async {
                let mut conn = self.open().await?;
                sqlx::query_scalar::<_, String>(
                    "SELECT body FROM alert WHERE state <> 'resolved' ORDER BY fingerprint",
                )
                .fetch_all(&mut conn)
                .await
                .map_err(|e| self.fail(e))
            })
            .await?;
        Ok(bodies.iter().filter_map(|body| json::value("alert", body)).collect())
    }

    /// The deliveries that have not ended, in the order in which they were stored.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn pending_deliveries(&self) -> Result<Vec<Pending>, Error> {
        self.pending(None).await
    }

    /// The same for one sink only.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn pending_deliveries_to(&self, sink: &str) -> Result<Vec<Pending>, Error> {
        self.pending(Some(sink.to_owned())).await
    }

    async fn pending(&self, sink: Option<String>) -> Result<Vec<Pending>, Error> {
        let rows = self
            .within(async {
                let mut conn = self.open().await?;
                sqlx::query_as::<_, (i64, String, String)>(
                    "SELECT id, sink, body FROM delivery
                     WHERE state = 'pending' AND (?1 IS NULL OR sink = ?1) ORDER BY id LIMIT ?2",
                )
                .bind(sink)
                .bind(MAX_PENDING)
                .fetch_all(&mut conn)
                .await
                .map_err(|e| self.fail(e))
            })
            .await?;
        let pending = rows.into_iter().filter_map(|(id, sink, body)| {
            Some(Pending { id: DeliveryId(id), sink, event: json::value("delivery", &body)? })
        });
        Ok(pending.collect())
    }

    /// The gaps between `from` and `to` that are known, the oldest first; of more than a thousand the newest.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn gaps(&self, from: Ts, to: Ts) -> Result<Vec<Gap>, Error> {
        self.within(async {
            let mut conn = self.open().await?;
            gap::list(&mut conn, (from, to)).await.map_err(|e| self.fail(e))
        })
        .await
    }

    /// All incidents, the newest first.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn incidents(&self) -> Result<Vec<StoredIncident>, Error> {
        self.within(async {
            let mut conn = self.open().await?;
            incident::list(&mut conn).await.map_err(|e| self.fail(e))
        })
        .await
    }

    /// An incident with the ticks before it, at full resolution; `None` where there is none of that number.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn incident(&self, id: u32) -> Result<Option<FrozenIncident>, Error> {
        self.within(async {
            let mut conn = self.open().await?;
            incident::find(&mut conn, id).await.map_err(|e| self.fail(e))
        })
        .await
    }

    async fn open(&self) -> Result<SqliteConnection, Error> {
        schema::open_for_reading(&self.path).await
    }

    fn fail(&self, error: sqlx::Error) -> Error {
        Error::of_sqlite(&self.path, error)
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::time::timeout(self.deadline, work).await.unwrap_or_else(|_| {
            Err(Error::Deadline { path: self.path.clone(), limit_ms: self.deadline.as_millis() })
        })
    }
}

/// Stored ticks, one after the other; no more than a page of them is in memory. No transaction is open between two
/// calls, so a slow consumer holds up nobody.
#[derive(Debug)]
pub struct Replay {
    reader: Reader,
    conn: SqliteConnection,
    walk: Walk,
    names: Names,
}

impl Replay {
    /// The next tick, `None` at the end. Its points come by the age of their series. A GPU or process is introduced in
    /// the first tick of this replay that mentions it.
    ///
    /// # Errors
    /// Any [`Error`] of reading, and [`Error::Deadline`] where this one call takes too long.
    pub async fn next(&mut self) -> Result<Option<TickRecord>, Error> {
        let Self { reader, conn, walk, names } = self;
        reader.within(async { step(conn, walk, names).await.map_err(|e| reader.fail(e)) }).await
    }

    /// Ticks passed over so far because their blob, or one that it builds on, is damaged.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.walk.unreadable()
    }
}

async fn step(
    conn: &mut SqliteConnection,
    walk: &mut Walk,
    names: &mut Names,
) -> Result<Option<TickRecord>, sqlx::Error> {
    let Some((tick, row)) = walk.next(conn).await? else {
        return Ok(None);
    };
    let cards = names.learn(conn, row).await?;
    let points = row.iter().filter_map(|(id, value)| {
        names.series(*id).map(|series| Point { series: series.clone(), value: *value })
    });
    Ok(Some(TickRecord { tick, points: points.collect(), gpus: cards.gpus, processes: cards.processes }))
}
