//! Charts: what series did in a time span, from whatever holds it at the resolution that is asked for.
//!
//! Ticks answer where a piece of the chart is shorter than a minute and they are still kept, minutes where it is shorter
//! than a quarter of an hour, quarters of an hour beyond. Where the finer has expired the coarser stands in, and what is
//! not in the rollups yet (the newest windows and the tail) comes from the ticks.

use std::collections::BTreeMap;

use ebbtide_core::{SeriesKey, Tick, Ts};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cells, Playback, WindowId, chunk_id, chunk_place};
use crate::codec::SeriesId;
use crate::digest;
use crate::history::{Span, Spans};
use crate::names;
use crate::rollup::{self, Bucket, MINUTE, QUARTER, Tier};
use crate::tail::TailWalk;
use crate::walk::chunk_range;
use crate::window::{self, MERGED};

/// A series being charted.
struct Chart {
    id: SeriesId,
    /// The newest window that is in the rollups.
    rolled: WindowId,
    spans: Spans,
}

/// Ticks of the windows that a question touches.
#[derive(Default)]
struct Windows {
    /// How many ticks each has; for the neighbours that a merged chunk covers too.
    counts: BTreeMap<WindowId, usize>,
    ticks: BTreeMap<WindowId, Vec<Tick>>,
}

/// What each of `series` did, in at most `points` pieces; nothing for one that the file does not know.
pub(crate) async fn charts(
    conn: &mut SqliteConnection,
    series: &[SeriesKey],
    (from, to): (Ts, Ts),
    points: usize,
) -> Result<Vec<Vec<Span>>, sqlx::Error> {
    // One view of the file, so that a value on its way from the tail into a chunk, or from there into the rollups, is
    // counted once.
    let mut view = conn.begin().await?;
    let mut charts = Vec::with_capacity(series.len());
    for key in series {
        let found = names::series_id(&mut view, key).await?;
        charts.push(found.map(|(id, rolled)| Chart { id, rolled, spans: Spans::new(from, to, points) }));
    }
    let mut found: Vec<&mut Chart> = charts.iter_mut().flatten().collect();
    if !found.is_empty() {
        answer(&mut view, &mut found).await?;
    }
    Ok(charts.into_iter().map(|chart| chart.map_or_else(Vec::new, |chart| chart.spans.finish())).collect())
}

async fn answer(conn: &mut SqliteConnection, charts: &mut [&mut Chart]) -> Result<(), sqlx::Error> {
    let (from, to, width) = (charts[0].spans.from(), charts[0].spans.to(), charts[0].spans.width_ms());
    let fine = width < MINUTE.width_ms;
    let tier = if width < QUARTER.width_ms { &MINUTE } else { &QUARTER };
    let ticks_from = if fine { ticks_begin(conn, (from, to)).await? } else { from };
    let rollups = (from, if fine { ticks_from.plus_ms(-1).min(to) } else { to });
    let after = if fine { 0 } else { charts.iter().map(|chart| chart.rolled).min().unwrap_or(0) };
    let windows = Windows::load(conn, after, (ticks_from, to)).await?;
    for chart in charts.iter_mut() {
        if rollups.0 <= rollups.1 {
            chart.add_rollups(conn, tier, rollups).await?;
        }
        let after = if fine { 0 } else { chart.rolled };
        chart.add_chunks(conn, &windows, after, ticks_from).await?;
    }
    charts.sort_by_key(|chart| chart.id);
    let told =
        if tier.width_ms == QUARTER.width_ms { add_digest(conn, charts, (from, to)).await? } else { None };
    add_tail(conn, charts, (ticks_from, to), told).await
}

/// From when on ticks answer: from the first that is kept, or where minutes lie before it from the next whole minute,
/// with which they end.
async fn ticks_begin(conn: &mut SqliteConnection, (from, to): (Ts, Ts)) -> Result<Ts, sqlx::Error> {
    let begin: Option<i64> = sqlx::query_scalar(
        "SELECT coalesce((SELECT min(from_ms) FROM tick_window), (SELECT at_ms FROM tail ORDER BY seq LIMIT 1))",
    )
    .fetch_one(&mut *conn)
    .await?;
    let rolled: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM minute)").fetch_one(conn).await?;
    let begin = begin.unwrap_or(i64::MAX);
    let minute = begin.div_euclid(MINUTE.width_ms).saturating_mul(MINUTE.width_ms);
    // No whole minute of the span lies before the first tick.
    if !rolled || from.0 >= minute {
        return Ok(from);
    }
    let next = minute.saturating_add(MINUTE.width_ms);
    Ok(Ts(if minute == begin || next > to.0 { begin } else { next }))
}

impl Windows {
    async fn load(
        conn: &mut SqliteConnection,
        after: WindowId,
        (from, to): (Ts, Ts),
    ) -> Result<Self, sqlx::Error> {
        let mut windows = Self::default();
        // The plus has the times looked up in their index: the rows themselves, of seven days, are 900 KiB.
        let rows: Vec<(WindowId, i64, Option<Vec<u8>>)> = sqlx::query_as(
            "WITH asked AS (SELECT id FROM tick_window WHERE from_ms <= ?1 AND to_ms >= ?2 AND +id > ?3)
             SELECT id, ticks, CASE WHEN id IN asked THEN times END FROM tick_window
             WHERE id BETWEEN (SELECT (min(id) - 1) / ?4 * ?4 + 1 FROM asked)
                          AND (SELECT (max(id) - 1) / ?4 * ?4 + ?4 FROM asked)
             ORDER BY id",
        )
        .bind(to.0)
        .bind(from.0)
        .bind(after)
        .bind(MERGED)
        .fetch_all(conn)
        .await?;
        for (id, count, times) in &rows {
            windows.counts.insert(*id, usize::try_from(*count).unwrap_or(0));
            match times.as_ref().map(|times| window::decode(*id, times)) {
                Some(Ok(ticks)) => drop(windows.ticks.insert(*id, ticks)),
                Some(Err(damage)) => {
                    tracing::warn!(id, ?damage, "the times of a window are damaged: a gap in charts");
                }
                None => {}
            }
        }
        Ok(windows)
    }
}

impl Chart {
    /// Buckets that lie wholly within the span.
    async fn add_rollups(
        &mut self,
        conn: &mut SqliteConnection,
        tier: &Tier,
        (from, to): (Ts, Ts),
    ) -> Result<(), sqlx::Error> {
        let mut begin = from;
        if tier.width_ms == MINUTE.width_ms {
            let oldest: Option<i64> =
                sqlx::query_scalar("SELECT min(id) FROM minute WHERE id BETWEEN ? AND ?")
                    .bind(chunk_id(self.id, 0))
                    .bind(chunk_id(self.id, WindowId::MAX))
                    .fetch_one(&mut *conn)
                    .await?;
            begin = oldest.map_or(Ts(i64::MAX), |id| MINUTE.begin(chunk_place(id).1)).max(from);
            self.add_tier(conn, &QUARTER, (from, begin.plus_ms(-1).min(to))).await?;
        }
        self.add_tier(conn, tier, (begin, to)).await
    }

    async fn add_tier(
        &mut self,
        conn: &mut SqliteConnection,
        tier: &Tier,
        (from, to): (Ts, Ts),
    ) -> Result<(), sqlx::Error> {
        if from > to {
            return Ok(());
        }
        let periods = (tier.nearest_period(from), tier.nearest_period(to));
        for bucket in rollup::load(conn, tier, self.id, periods).await? {
            let (start, end) = (tier.start(bucket.index), tier.start(bucket.index + 1));
            let Bucket { min, max, last, count, .. } = bucket;
            if from <= start && end.plus_ms(-1) <= to {
                self.spans.add_part(&Span { from: start, to: end, min, max, last, count });
            }
        }
        Ok(())
    }

    /// The values in the windows behind `after`, from `from` on.
    async fn add_chunks(
        &mut self,
        conn: &mut SqliteConnection,
        windows: &Windows,
        after: WindowId,
        from: Ts,
    ) -> Result<(), sqlx::Error> {
        let asked = || windows.ticks.range(after + 1..).map(|(window, _)| *window);
        let (Some(first), Some(last)) = (asked().next(), asked().next_back()) else { return Ok(()) };
        let (low, high) = chunk_range(self.id, first, last);
        let rows: Vec<(i64, WindowId, Vec<u8>)> =
            sqlx::query_as("SELECT id, windows, data FROM chunk WHERE id BETWEEN ? AND ? ORDER BY id")
                .bind(low)
                .bind(high)
                .fetch_all(conn)
                .await?;
        for (id, covers, data) in rows {
            let (_, begin) = chunk_place(id);
            let covered = begin..begin.saturating_add(covers);
            let count: usize = windows.counts.range(covered.clone()).map(|(_, count)| count).sum();
            match Cells::decode(id, &data) {
                Ok(cells) if cells.len() == count => {
                    self.add_cells(cells.play(), windows.counts.range(covered), windows, from);
                }
                _ => tracing::warn!(id, "a chunk is damaged: its series has a gap there"),
            }
        }
        Ok(())
    }

    fn add_cells<'a>(
        &mut self,
        mut cells: Playback,
        covered: impl Iterator<Item = (&'a WindowId, &'a usize)>,
        windows: &Windows,
        from: Ts,
    ) {
        for (window, count) in covered {
            let cells = cells.by_ref().take(*count);
            let Some(ticks) = windows.ticks.get(window) else {
                cells.for_each(drop);
                continue;
            };
            for (tick, cell) in ticks.iter().zip(cells) {
                if let Some(Some(value)) = cell
                    && tick.at >= from
                    && tick.at <= self.spans.to()
                {
                    self.spans.add(tick.at, value);
                }
            }
        }
    }
}

/// What the digest of the tail tells, and up to which tick; `None` where it does not tell of this span.
async fn add_digest(
    conn: &mut SqliteConnection,
    charts: &mut [&mut Chart],
    (from, to): (Ts, Ts),
) -> Result<Option<u64>, sqlx::Error> {
    let Some(parts) = digest::load(conn, (from, to)).await? else { return Ok(None) };
    for (id, mut part) in parts.series {
        // The ticks of its quarter of an hour lie in the span, where its beginning need not.
        part.from = part.from.max(from);
        let first = charts.partition_point(|chart| chart.id < id);
        for chart in charts[first..].iter_mut().take_while(|chart| chart.id == id) {
            chart.spans.add_part(&part);
        }
    }
    Ok(Some(parts.last_seq))
}

/// The ticks of the tail, those behind `told` where a digest has told of the others.
async fn add_tail(
    conn: &mut SqliteConnection,
    charts: &mut [&mut Chart],
    span: (Ts, Ts),
    told: Option<u64>,
) -> Result<(), sqlx::Error> {
    let mut tail = TailWalk::begin_for(conn, span, told, charts.iter().map(|chart| chart.id)).await?;
    while tail.wants_rows() {
        tail.fetch(conn).await?;
        while let Some(tick) = tail.next() {
            for (place, chart) in charts.iter_mut().enumerate() {
                if let Some(value) = tail.value(place) {
                    chart.spans.add(tick.at, value);
                }
            }
        }
    }
    Ok(())
}
