//! Reading the tail: a walk over its ticks of a time span, a page at a time.

use std::collections::VecDeque;

use ebbtide_core::{Tick, Ts};
use sqlx::sqlite::SqliteConnection;

use crate::chunk::Cell;
use crate::codec::{self, Row, SeriesId};

/// Rows read at once. Between two pages no transaction is open, so a slow consumer never keeps the log from shrinking.
const PAGE_ROWS: i64 = 128;

/// A row as it stands in the file.
type Stored = (i64, i64, i64, Vec<u8>);

/// A walk over the ticks of the tail with a wall time from `from` to `to`, both included, in the order in which they were
/// made.
#[derive(Debug)]
pub(crate) struct TailWalk {
    from: Ts,
    to: Ts,
    /// Ticks up to this one are passed over.
    told: Option<u64>,
    /// The first row not fetched yet.
    next: i64,
    /// The last row of the span.
    end: i64,
    page: VecDeque<Stored>,
    /// The tick whose values `row` holds.
    current: Option<u64>,
    row: Row,
    /// Where only some series are asked for: those, and their values instead of `row`.
    some: Option<Vec<(SeriesId, Cell)>>,
    unreadable: u64,
}

impl TailWalk {
    /// Finds the rows of a time span.
    pub(crate) async fn begin(conn: &mut SqliteConnection, from: Ts, to: Ts) -> Result<Self, sqlx::Error> {
        let rows = bounds(conn, from, to).await?.unwrap_or((0, -1));
        Ok(Self::over((from, to), rows))
    }

    /// The same for some series only, by ascending id, and without the ticks up to `told`.
    pub(crate) async fn begin_for(
        conn: &mut SqliteConnection,
        (from, to): (Ts, Ts),
        told: Option<u64>,
        series: impl Iterator<Item = SeriesId>,
    ) -> Result<Self, sqlx::Error> {
        let some = Some(series.map(|series| (series, None)).collect());
        let mut walk = match told {
            None => Self::begin(conn, from, to).await?,
            Some(told) => {
                let (next, end) = bounds_behind(conn, told.cast_signed()).await?;
                Self::over((from, to), (next, end))
            }
        };
        (walk.some, walk.told) = (some, told);
        Ok(walk)
    }

    fn over((from, to): (Ts, Ts), (next, end): (i64, i64)) -> Self {
        let (page, row) = (VecDeque::new(), Row::new());
        Self { from, to, told: None, next, end, page, current: None, row, some: None, unreadable: 0 }
    }

    /// Whether [`Self::next`] has to be preceded by [`Self::fetch`].
    pub(crate) fn wants_rows(&self) -> bool {
        self.page.is_empty() && self.next <= self.end
    }

    /// The next tick of those that were fetched.
    pub(crate) fn next(&mut self) -> Option<Tick> {
        while let Some(stored) = self.page.pop_front() {
            let tick =
                Tick { seq: stored.0.cast_unsigned(), at: Ts(stored.1), mono_ms: stored.2.cast_unsigned() };
            let wanted = self.from <= tick.at && tick.at <= self.to && Some(tick.seq) > self.told;
            if self.apply(tick.seq, &stored.3) && wanted {
                return Some(tick);
            }
        }
        None
    }

    /// The values of the tick that [`Self::next`] gave.
    pub(crate) const fn row(&self) -> &Row {
        &self.row
    }

    /// The value of the `place`th of the series that the walk is for, in the tick that [`Self::next`] gave.
    pub(crate) fn value(&self, place: usize) -> Option<i64> {
        self.some.as_ref()?.get(place)?.1.flatten()
    }

    /// Ticks passed over because their blob, or one that it builds on, is damaged or gone.
    pub(crate) const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Reads the next page.
    ///
    /// As one row: what a row costs on its way from the connection's thread is more than what a tick in it costs. A blob
    /// becomes text and text a blob again without a change of their bytes (sqlite.org/lang_expr.html, CAST); rows reach
    /// both lists as the inner query gives them.
    pub(crate) async fn fetch(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let (numbers, blobs): (Option<String>, Option<Vec<u8>>) = sqlx::query_as(
            "SELECT group_concat(seq || ' ' || at_ms || ' ' || mono_ms || ' ' || length(blob), ' '),
                    CAST(group_concat(CAST(blob AS TEXT), '') AS BLOB)
             FROM (SELECT seq, at_ms, mono_ms, blob FROM tail WHERE seq BETWEEN ? AND ? ORDER BY seq LIMIT ?)",
        )
        .bind(self.next)
        .bind(self.end)
        .bind(PAGE_ROWS)
        .fetch_one(conn)
        .await?;
        self.page = unpack(&numbers.unwrap_or_default(), &blobs.unwrap_or_default())?;
        match self.page.back() {
            Some(last) => self.next = last.0.saturating_add(1),
            None => self.end = self.next.saturating_sub(1),
        }
        Ok(())
    }

    fn apply(&mut self, seq: u64, bytes: &[u8]) -> bool {
        let read = codec::open(seq, bytes).is_ok_and(|blob| {
            let builds = blob.follows.is_none() || blob.follows == self.current;
            let applied = match &mut self.some {
                None => blob.apply(&mut self.row),
                Some(some) => blob.apply_to_some(some),
            };
            builds && applied.is_ok()
        });
        self.current = read.then_some(seq);
        self.unreadable += u64::from(!read);
        read
    }
}

/// The rows of a page: four numbers for each, the last the length of its blob, and all blobs behind one another.
fn unpack(numbers: &str, mut blobs: &[u8]) -> Result<VecDeque<Stored>, sqlx::Error> {
    let torn = || sqlx::Error::Protocol("a page of the tail does not fit together".to_owned());
    let mut numbers =
        numbers.split_ascii_whitespace().map(|number| number.parse::<i64>().map_err(|_| torn()));
    let mut rows = VecDeque::new();
    while let Some(seq) = numbers.next() {
        let mut number = || numbers.next().ok_or_else(torn)?;
        let (at_ms, mono_ms, length) = (number()?, number()?, number()?);
        let length = usize::try_from(length).map_err(|_| torn())?;
        let (blob, rest) = blobs.split_at_checked(length).ok_or_else(torn)?;
        rows.push_back((seq?, at_ms, mono_ms, blob.to_vec()));
        blobs = rest;
    }
    Ok(rows)
}

/// The first and the last row that are needed for what comes after a tick: from the start of its chain to the newest.
async fn bounds_behind(conn: &mut SqliteConnection, told: i64) -> Result<(i64, i64), sqlx::Error> {
    let (first, newest) = sqlx::query_as(
        "SELECT coalesce((SELECT seq FROM tail WHERE seq <= ?1 AND whole = 1 ORDER BY seq DESC LIMIT 1), ?1),
                coalesce((SELECT max(seq) FROM tail), -1)",
    )
    .bind(told.saturating_add(1))
    .fetch_one(conn)
    .await?;
    Ok(if newest > told { (first, newest) } else { (0, -1) })
}

/// The first and the last row that can lie in a time span: from the start of the chain that is under way at `from` to
/// the end of the last chain that begins by `to`. Where the clock was set back, more chains lie between the two than
/// the span has, and the walk passes over their ticks.
async fn bounds(conn: &mut SqliteConnection, from: Ts, to: Ts) -> Result<Option<(i64, i64)>, sqlx::Error> {
    let under_way: Option<i64> =
        sqlx::query_scalar("SELECT max(at_ms) FROM tail WHERE whole = 1 AND at_ms <= ?")
            .bind(from.0)
            .fetch_one(&mut *conn)
            .await?;
    let (first, last): (Option<i64>, Option<i64>) =
        sqlx::query_as("SELECT min(seq), max(seq) FROM tail WHERE whole = 1 AND at_ms BETWEEN ? AND ?")
            .bind(under_way.unwrap_or(from.0))
            .bind(to.0)
            .fetch_one(&mut *conn)
            .await?;
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(None);
    };
    let after: Option<i64> =
        sqlx::query_scalar("SELECT seq FROM tail WHERE seq > ? AND whole = 1 ORDER BY seq LIMIT 1")
            .bind(last)
            .fetch_optional(&mut *conn)
            .await?;
    let end = match after {
        Some(after) => after - 1,
        None => sqlx::query_scalar("SELECT max(seq) FROM tail").fetch_one(conn).await?,
    };
    Ok(Some((first, end)))
}
