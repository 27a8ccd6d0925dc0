//! What a file holds, and whether it can be read.

use std::path::Path;

use ebbtide_core::Ts;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cells, WindowId};
use crate::codec;
use crate::damage::Damage;
use crate::rollup::{self, MINUTE, QUARTER};
use crate::schema::beside;
use crate::window;

/// Rows looked at in one piece, so that no read keeps the log from shrinking for long.
const ROWS_A_PAGE: i64 = 512;

/// Complaints kept; a file with more is damaged beyond a list.
const MAX_COMPLAINTS: usize = 20;

/// What a file holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Its layout: how many migrations have run.
    pub layout: u32,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of it that are free for what comes.
    pub free_bytes: u64,
    /// Bytes of the log beside it.
    pub log_bytes: u64,
    /// Series that something is kept of.
    pub series: u64,
    /// Those of them that are still read.
    pub open_series: u64,
    /// Ticks that are not sealed yet.
    pub tail_ticks: u64,
    /// Ticks in sealed windows.
    pub sealed_ticks: u64,
    /// Wall time of the oldest tick.
    pub oldest_tick: Option<Ts>,
    /// Wall time of the newest tick.
    pub newest_tick: Option<Ts>,
    /// Begin of the day of the oldest minute.
    pub oldest_minutes: Option<Ts>,
    /// Begin of the week of the oldest quarter of an hour.
    pub oldest_quarters: Option<Ts>,
    /// Findings.
    pub findings: u64,
}

/// Counts, in the order of the query.
type Counts = (u32, i64, i64, i64, i64, i64, i64);

pub(crate) async fn take(conn: &mut SqliteConnection, path: &Path) -> Result<Inventory, sqlx::Error> {
    let (layout, free, series, open_series, tail_ticks, sealed_ticks, findings): Counts = sqlx::query_as(
        "SELECT (SELECT user_version FROM pragma_user_version),
                (SELECT freelist_count FROM pragma_freelist_count) * (SELECT page_size FROM pragma_page_size),
                (SELECT count(*) FROM series),
                (SELECT count(*) FROM series WHERE closed_window IS NULL),
                (SELECT count(*) FROM tail),
                (SELECT coalesce(sum(ticks), 0) FROM tick_window),
                (SELECT count(*) FROM finding)",
    )
    .fetch_one(&mut *conn)
    .await?;
    let (oldest_sealed, oldest_tail, newest): (Option<i64>, Option<i64>, Option<i64>) = sqlx::query_as(
        "SELECT (SELECT min(from_ms) FROM tick_window),
                (SELECT at_ms FROM tail ORDER BY seq LIMIT 1),
                (SELECT at_ms FROM tail ORDER BY seq DESC LIMIT 1)",
    )
    .fetch_one(&mut *conn)
    .await?;
    let minutes: Option<WindowId> = sqlx::query_scalar(MINUTE.oldest).fetch_one(&mut *conn).await?;
    let quarters: Option<WindowId> = sqlx::query_scalar(QUARTER.oldest).fetch_one(conn).await?;
    let size = |suffix| std::fs::metadata(beside(path, suffix)).map_or(0, |file| file.len());
    Ok(Inventory {
        layout,
        bytes: size(""),
        free_bytes: free.unsigned_abs(),
        log_bytes: size("-wal"),
        series: series.unsigned_abs(),
        open_series: open_series.unsigned_abs(),
        tail_ticks: tail_ticks.unsigned_abs(),
        sealed_ticks: sealed_ticks.unsigned_abs(),
        oldest_tick: oldest_sealed.or(oldest_tail).map(Ts),
        newest_tick: newest.map(Ts),
        oldest_minutes: minutes.map(|period| MINUTE.begin(period)),
        oldest_quarters: quarters.map(|period| QUARTER.begin(period)),
        findings: findings.unsigned_abs(),
    })
}

/// A table whose rows carry a checksum: its name, how a page of it is read, how a row is.
type Table = (&'static str, &'static str, fn(i64, &[u8]) -> Result<(), Damage>);

const TABLES: [Table; 5] = [
    ("tail", "SELECT seq, blob FROM tail WHERE seq > ? ORDER BY seq LIMIT ?", |id, data| {
        codec::open(id.cast_unsigned(), data).map(drop)
    }),
    ("tick_window", "SELECT id, times FROM tick_window WHERE id > ? ORDER BY id LIMIT ?", |id, data| {
        window::decode(WindowId::try_from(id).map_err(|_| Damage::Body)?, data).map(drop)
    }),
    ("chunk", "SELECT id, data FROM chunk WHERE id > ? ORDER BY id LIMIT ?", |id, data| {
        Cells::decode(id, data).map(drop)
    }),
    ("minute", "SELECT id, data FROM minute WHERE id > ? ORDER BY id LIMIT ?", |id, data| {
        rollup::decode(id, data).map(drop)
    }),
    ("quarter", "SELECT id, data FROM quarter WHERE id > ? ORDER BY id LIMIT ?", |id, data| {
        rollup::decode(id, data).map(drop)
    }),
];

/// What is wrong with the file, in words: first what SQLite says of it, then each row that cannot be read.
pub(crate) async fn complaints(conn: &mut SqliteConnection) -> Result<Vec<String>, sqlx::Error> {
    let said: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(&mut *conn).await?;
    let mut complaints: Vec<String> = said.into_iter().filter(|line| line != "ok").collect();
    for (table, page, read) in TABLES {
        let mut last = i64::MIN;
        while complaints.len() < MAX_COMPLAINTS {
            let rows: Vec<(i64, Vec<u8>)> =
                sqlx::query_as(page).bind(last).bind(ROWS_A_PAGE).fetch_all(&mut *conn).await?;
            let Some(newest) = rows.last() else { break };
            last = newest.0;
            let damaged = rows.iter().filter_map(|(id, data)| Some((id, read(*id, data).err()?)));
            complaints
                .extend(damaged.map(|(id, damage)| format!("row {id} of {table} is damaged: {damage:?}")));
        }
    }
    complaints.truncate(MAX_COMPLAINTS);
    Ok(complaints)
}
