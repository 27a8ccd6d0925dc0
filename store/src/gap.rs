//! Gaps that the history knows of: ticks that were made and could not be kept.

use ebbtide_core::Ts;
use sqlx::sqlite::SqliteConnection;

/// Gaps that are kept: the oldest go. A disk that is full once an hour fills this in over a year.
pub(crate) const KEPT_GAPS: i64 = 10_000;

/// Gaps returned at once, the newest: more than a chart has columns.
const MAX_GAPS: i64 = 1_000;

/// Ticks that were made and could not be kept. Where neither ticks nor a gap are, nothing was sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The first tick that is missing.
    pub from: Ts,
    /// The last.
    pub to: Ts,
    /// How many are.
    pub ticks: u64,
    /// Why, in a sentence.
    pub reason: String,
}

/// Enters a gap.
pub(crate) async fn mark(conn: &mut SqliteConnection, gap: &Gap) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO gap (from_ms, to_ms, ticks, reason) VALUES (?, ?, ?, ?)")
        .bind(gap.from.0)
        .bind(gap.to.0)
        .bind(gap.ticks.cast_signed())
        .bind(gap.reason.clone())
        .execute(conn)
        .await
        .map(drop)
}

/// The gaps that touch a time span, the oldest first.
pub(crate) async fn list(conn: &mut SqliteConnection, (from, to): (Ts, Ts)) -> Result<Vec<Gap>, sqlx::Error> {
    let rows: Vec<(i64, i64, i64, String)> = sqlx::query_as(
        "SELECT from_ms, to_ms, ticks, reason FROM gap WHERE from_ms <= ? AND to_ms >= ? ORDER BY id DESC LIMIT ?",
    )
    .bind(to.0)
    .bind(from.0)
    .bind(MAX_GAPS)
    .fetch_all(conn)
    .await?;
    let gap = |(from, to, ticks, reason): (i64, i64, i64, String)| Gap {
        from: Ts(from),
        to: Ts(to),
        ticks: ticks.unsigned_abs(),
        reason,
    };
    Ok(rows.into_iter().rev().map(gap).collect())
}
