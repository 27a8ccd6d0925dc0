//! Which number stands for which series, and who the GPUs and processes in them are.

use std::borrow::Cow;
use std::collections::HashMap;

use ebbtide_core::{Point, SeriesKey, TickRecord};
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use crate::codec::{Row, SeriesId};
use crate::names::StoredProcess;

/// A series' `seen_seq` may lag behind its newest value by fewer ticks than this: one write an hour at one tick a
/// second, instead of one a tick.
pub(crate) const SEEN_EVERY: u64 = 3600;

/// Cached ids beyond twice those of the present tick: room for processes that come and go between two ticks.
const SPARE_IDS: usize = 1024;

/// The ids of the series seen lately. Filled inside transactions, so it lives and dies with one connection: an id from
/// a transaction that was rolled back stands for nothing.
#[derive(Debug, Default)]
pub(crate) struct SeriesIds {
    known: Vec<Known>,
    /// Where a series stands in `known`.
    places: HashMap<SeriesKey, usize>,
    /// The places of the series of the newest tick, in its order: mostly also those of the next.
    order: Vec<usize>,
    newest: u64,
}

#[derive(Debug)]
struct Known {
    key: SeriesKey,
    id: SeriesId,
    /// `series.seen_seq` as it stands in the database.
    seen: u64,
    /// The last tick with a value.
    used: u64,
}

impl SeriesIds {
    /// The values of a tick by id; series that the file does not know yet are entered into it.
    pub(crate) async fn row(
        &mut self,
        conn: &mut SqliteConnection,
        record: &TickRecord,
    ) -> Result<Row, sqlx::Error> {
        let seq = record.tick.seq;
        let (alive, newest) = (record.points.len(), self.newest);
        // The cache stays in proportion to what is alive.
        if self.known.len() > 2 * alive + SPARE_IDS {
            self.keep(|known| known.used == newest);
        }
        let mut row = Row::with_capacity(alive);
        let mut refresh = Vec::new();
        for (at, Point { series, value }) in record.points.iter().enumerate() {
            let place = match self.place(at, series) {
                Some(place) => place,
                None => self.enter(conn, series, seq).await?,
            };
            let known = &mut self.known[place];
            known.used = seq;
            if seq.saturating_sub(known.seen) >= SEEN_EVERY {
                known.seen = seq;
                refresh.push(known.id);
            }
            row.push((known.id, *value));
            match self.order.get_mut(at) {
                Some(last) => *last = place,
                None => self.order.push(place),
            }
        }
        self.newest = seq;
        if !refresh.is_empty() {
            mark_seen(conn, seq, &refresh).await?;
        }
        row.sort_by_key(|entry| entry.0);
        row.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = later.1;
            }
            same
        });
        Ok(row)
    }

    /// Forgets the series that [`FORGET_SERIES`] may just have deleted from the file.
    pub(crate) fn forget_before(&mut self, oldest: u64) {
        if self.known.iter().any(|known| known.may_be_gone(oldest)) {
            self.keep(|known| !known.may_be_gone(oldest));
        }
    }

    /// Where a series stands that is the `at`th of a tick. Mostly it was the `at`th of the last one too, and a comparison is
    /// cheaper than a look-up.
    fn place(&self, at: usize, series: &SeriesKey) -> Option<usize> {
        let expected = self.order.get(at).copied();
        expected
            .filter(|place| self.known[*place].key == *series)
            .or_else(|| self.places.get(series).copied())
    }

    fn keep(&mut self, wanted: impl Fn(&Known) -> bool) {
        self.known.retain(wanted);
        self.order.clear();
        self.places = self.known.iter().enumerate().map(|(at, known)| (known.key.clone(), at)).collect();
    }

    /// Enters a series into the file; where it stands from now on.
    async fn enter(
        &mut self,
        conn: &mut SqliteConnection,
        series: &SeriesKey,
        seq: u64,
    ) -> Result<usize, sqlx::Error> {
        let id: i64 = sqlx::query(
            "INSERT INTO series (gpu, pid, start_ticks, metric, seen_seq) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (coalesce(pid, -1), coalesce(start_ticks, -1), coalesce(gpu, ''), metric)
             DO UPDATE SET seen_seq = max(seen_seq, excluded.seen_seq)
             RETURNING id",
        )
        .bind(series.gpu.as_ref().map(|gpu| gpu.as_str().to_owned()))
        .bind(series.proc.map(|proc| proc.pid))
        .bind(series.proc.and_then(|proc| proc.start_ticks).map(u64::cast_signed))
        .bind(series.metric.name())
        .bind(seq.cast_signed())
        .fetch_one(conn)
        .await?
        .try_get(0)?;
        let id = SeriesId::try_from(id).map_err(|e| sqlx::Error::Decode(e.into()))?;
        let place = self.known.len();
        self.known.push(Known { key: series.clone(), id, seen: seq, used: seq });
        self.places.insert(series.clone(), place);
        Ok(place)
    }
}

impl Known {
    /// Whether the file may have lost it in a pass that kept what ticks from `oldest` on mention.
    const fn may_be_gone(&self, oldest: u64) -> bool {
        self.seen.saturating_add(SEEN_EVERY) <= oldest
    }
}

/// Writes down who appears for the first time in a tick.
pub(crate) async fn introduce(conn: &mut SqliteConnection, record: &TickRecord) -> Result<(), sqlx::Error> {
    for gpu in &record.gpus {
        sqlx::query(
            "INSERT INTO gpu (uuid, position, name, kind) VALUES (?, ?, ?, ?)
             ON CONFLICT (uuid) DO UPDATE
             SET position = excluded.position, name = excluded.name, kind = excluded.kind",
        )
        .bind(gpu.uuid.as_str().to_owned())
        .bind(gpu.index)
        .bind(gpu.name.to_string())
        .bind(crate::json::text(&gpu.kind)?)
        .execute(&mut *conn)
        .await?;
    }
    for process in &record.processes {
        // A daemon that has just started meets a process before it finds the engine in it: what was found stays.
        let info = Cow::Borrowed(&*process.info);
        let body = StoredProcess { info, engine: process.engine.as_deref().map(Cow::Borrowed) };
        sqlx::query(
            "INSERT INTO process (pid, start_ticks, introduced_seq, info) VALUES (?, ?, ?, ?)
             ON CONFLICT (pid, coalesce(start_ticks, -1)) DO UPDATE
             SET introduced_seq = excluded.introduced_seq,
                 info = CASE WHEN json_valid(info) AND info ->> '$.engine' IS NOT NULL
                             THEN json_insert(excluded.info, '$.engine', info ->> '$.engine')
                             ELSE excluded.info END",
        )
        .bind(process.key.pid)
        .bind(process.key.start_ticks.map(u64::cast_signed))
        .bind(record.tick.seq.cast_signed())
        .bind(crate::json::text(&body)?)
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Deletes those of some series, by first and last id, of which nothing is kept and that were not seen since.
pub(crate) const FORGET_SERIES: &str = "DELETE FROM series WHERE id BETWEEN ? AND ? AND seen_seq <= ?
    AND NOT EXISTS (SELECT 1 FROM chunk c WHERE c.id BETWEEN series.id << 32 AND series.id << 32 | 0xFFFFFFFF)
    AND NOT EXISTS (SELECT 1 FROM minute m WHERE m.id BETWEEN series.id << 32 AND series.id << 32 | 0xFFFFFFFF)
    AND NOT EXISTS (SELECT 1 FROM quarter q WHERE q.id BETWEEN series.id << 32 AND series.id << 32 | 0xFFFFFFFF)";

/// Deletes those of some processes, by first and last id, that have no series any more and were not introduced since. The
/// plus keeps the column's affinity out of the comparison, without which the index would not be used.
pub(crate) const FORGET_PROCESSES: &str =
    "DELETE FROM process WHERE id BETWEEN ? AND ? AND introduced_seq <= ?
    AND NOT EXISTS (SELECT 1 FROM series s
                    WHERE coalesce(s.pid, -1) = +process.pid
                      AND coalesce(s.start_ticks, -1) = coalesce(process.start_ticks, -1))";

/// Deletes with one of the above what no tick from `oldest` on can mention.
pub(crate) async fn forget(
    conn: &mut SqliteConnection,
    what: &'static str,
    (first, last): (i64, i64),
    oldest: u64,
) -> Result<(), sqlx::Error> {
    sqlx::query(what).bind(first).bind(last).bind(unseen_since(oldest)).execute(conn).await?;
    Ok(())
}

/// The newest `seen_seq` of a series that no tick from `oldest` on has.
fn unseen_since(oldest: u64) -> i64 {
    oldest.checked_sub(SEEN_EVERY).map_or(-1, u64::cast_signed)
}

async fn mark_seen(conn: &mut SqliteConnection, seq: u64, ids: &[SeriesId]) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE series SET seen_seq = ? WHERE id IN (SELECT value FROM json_each(?))")
        .bind(seq.cast_signed())
        .bind(crate::json::text(&ids)?)
        .execute(conn)
        .await?;
    Ok(())
}
