//! What stands in a file.

use std::os::linux::fs::MetadataExt;
use std::path::Path;

use ebbtide_core::{Tick, Ts};
use sqlx::sqlite::SqliteConnection;

use crate::chunk::WindowId;
use crate::error::Error;
use crate::rollup::{MINUTE, QUARTER, Tier};
use crate::schema::{self, beside};
use crate::window;

/// What stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Size of its write-ahead log in bytes; 0 where there is none.
    pub log_bytes: u64,
    /// Bytes of the file that hold nothing, and that the next rows or a compaction take.
    pub free_bytes: u64,
    /// How many migrations have run on it.
    pub layout: i64,
    /// The user id that owns the file.
    pub uid: u32,
    /// The process that holds the file's lock, where the kernel lists one that can be seen from here.
    pub held_by: Option<u32>,
    /// The newest tick.
    pub last: Option<Tick>,
    /// Ticks that are not sealed yet.
    pub tail: TierOverview,
    /// Sealed ticks; rows are windows.
    pub sealed: TierOverview,
    /// The values of sealed ticks; rows are chunks.
    pub chunks: TierOverview,
    /// Minutes; rows are series and day, and the span ends with the last day's begin.
    pub minutes: TierOverview,
    /// Quarters of an hour; rows are series and week, and the span ends with the last week's begin.
    pub quarters: TierOverview,
    /// How many there are of what is not a value.
    pub counts: Counts,
}

/// One table of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierOverview {
    /// Rows in it.
    pub rows: u64,
    /// Ticks that these rows stand for; 0 where rows are not of ticks.
    pub ticks: u64,
    /// Bytes of its blobs.
    pub bytes: u64,
    /// The oldest and the newest instant; `None` where there is none, or where the table above tells it.
    pub span: Option<(Ts, Ts)>,
}

/// How many there are of what is not a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// GPUs that were ever seen.
    pub gpus: u64,
    /// Processes of which something is kept.
    pub processes: u64,
    /// Series of which something is kept.
    pub series: u64,
    /// Findings.
    pub findings: u64,
    /// Those that have not resolved.
    pub open_findings: u64,
    /// Alerts.
    pub alerts: u64,
    /// Those that have not resolved.
    pub open_alerts: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Those that have not ended.
    pub pending_deliveries: u64,
    /// Ends of processes that were not in order.
    pub incidents: u64,
}

impl Overview {
    /// Looks at the file at `path`, also beside its writer.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn of(path: &Path) -> Result<Self, Error> {
        let file = std::fs::metadata(path).map_err(|source| missing_or(path, source))?;
        let mut conn = schema::open_for_reading(path).await?;
        let read = Self::read(&mut conn, path, &file).await.map_err(|e| Error::of_sqlite(path, e));
        schema::close(conn).await;
        read
    }

    async fn read(
        conn: &mut SqliteConnection,
        path: &Path,
        file: &std::fs::Metadata,
    ) -> Result<Self, sqlx::Error> {
        let (layout, page, free): (i64, i64, i64) = sqlx::query_as(
            "SELECT (SELECT user_version FROM pragma_user_version), (SELECT page_size FROM pragma_page_size),
                    (SELECT freelist_count FROM pragma_freelist_count)",
        )
        .fetch_one(&mut *conn)
        .await?;
        Ok(Self {
            file_bytes: file.len(),
            log_bytes: std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len()),
            free_bytes: page.saturating_mul(free).unsigned_abs(),
            layout,
            uid: file.st_uid(),
            held_by: holder(path),
            last: last_tick(conn).await?,
            tail: tier(
                conn,
                "SELECT count(*), count(*), sum(length(blob)), min(at_ms), max(at_ms) FROM tail",
            )
            .await?,
            sealed: tier(
                conn,
                "SELECT count(*), sum(ticks), sum(length(times)), min(from_ms), max(to_ms) FROM tick_window",
            )
            .await?,
            chunks: tier(conn, "SELECT count(*), 0, sum(length(data)), NULL, NULL FROM chunk").await?,
            minutes: periods(conn, &MINUTE).await?,
            quarters: periods(conn, &QUARTER).await?,
            counts: counts(conn).await?,
        })
    }
}

fn missing_or(path: &Path, source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::NotFound {
        return Error::Missing { path: path.to_path_buf() };
    }
    Error::of_system(path, source)
}

/// The newest tick: the end of the tail, or of the last window.
async fn last_tick(conn: &mut SqliteConnection) -> Result<Option<Tick>, sqlx::Error> {
    let newest: Option<(i64, i64, i64)> =
        sqlx::query_as("SELECT seq, at_ms, mono_ms FROM tail ORDER BY seq DESC LIMIT 1")
            .fetch_optional(&mut *conn)
            .await?;
    if let Some((seq, at_ms, mono_ms)) = newest {
        return Ok(Some(Tick { seq: seq.cast_unsigned(), at: Ts(at_ms), mono_ms: mono_ms.cast_unsigned() }));
    }
    let window: Option<(WindowId, Vec<u8>)> =
        sqlx::query_as("SELECT id, times FROM tick_window ORDER BY id DESC LIMIT 1")
            .fetch_optional(conn)
            .await?;
    Ok(window.and_then(|(id, times)| window::decode(id, &times).ok()?.pop()))
}

async fn counts(conn: &mut SqliteConnection) -> Result<Counts, sqlx::Error> {
    type Row = (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);
    let found: Row = sqlx::query_as(
        "SELECT (SELECT count(*) FROM gpu), (SELECT count(*) FROM process), (SELECT count(*) FROM series),
                (SELECT count(*) FROM finding), (SELECT count(*) FROM finding WHERE resolved_at_ms IS NULL),
                (SELECT count(*) FROM alert), (SELECT count(*) FROM alert WHERE state <> 'resolved'),
                (SELECT count(*) FROM delivery), (SELECT count(*) FROM delivery WHERE state = 'pending'),
                (SELECT count(*) FROM incident)",
    )
    .fetch_one(conn)
    .await?;
    Ok(Counts {
        gpus: found.0.unsigned_abs(),
        processes: found.1.unsigned_abs(),
        series: found.2.unsigned_abs(),
        findings: found.3.unsigned_abs(),
        open_findings: found.4.unsigned_abs(),
        alerts: found.5.unsigned_abs(),
        open_alerts: found.6.unsigned_abs(),
        deliveries: found.7.unsigned_abs(),
        pending_deliveries: found.8.unsigned_abs(),
        incidents: found.9.unsigned_abs(),
    })
}

/// One table: rows, ticks, bytes, first and last instant.
async fn tier(conn: &mut SqliteConnection, asked: &'static str) -> Result<TierOverview, sqlx::Error> {
    type Row = (i64, Option<i64>, Option<i64>, Option<i64>, Option<i64>);
    let (rows, ticks, bytes, from, to): Row = sqlx::query_as(asked).fetch_one(conn).await?;
    let amount = |value: Option<i64>| value.unwrap_or(0).unsigned_abs();
    Ok(TierOverview {
        rows: rows.unsigned_abs(),
        ticks: amount(ticks),
        bytes: amount(bytes),
        span: from.zip(to).map(|(from, to)| (Ts(from), Ts(to))),
    })
}

/// A table of rollups; its ids hold days or weeks, not instants.
async fn periods(conn: &mut SqliteConnection, of: &'static Tier) -> Result<TierOverview, sqlx::Error> {
    let asked = if of.width_ms == MINUTE.width_ms {
        "SELECT count(*), 0, sum(length(data)), min(id & 0xFFFFFFFF), max(id & 0xFFFFFFFF) FROM minute"
    } else {
        "SELECT count(*), 0, sum(length(data)), min(id & 0xFFFFFFFF), max(id & 0xFFFFFFFF) FROM quarter"
    };
    let found = tier(conn, asked).await?;
    let begin = |period: Ts| of.begin(WindowId::try_from(period.0).unwrap_or(0));
    Ok(TierOverview { span: found.span.map(|(first, last)| (begin(first), begin(last))), ..found })
}

/// Who holds the file's lock, by the kernel's list of locks (`FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE ...`). Taking
/// the lock to find out would turn away a daemon that starts in that moment.
fn holder(path: &Path) -> Option<u32> {
    let inode = std::fs::metadata(beside(path, ".lock")).ok()?.st_ino();
    let listed = std::fs::read_to_string("/proc/locks").ok()?;
    listed.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
        let (pid, place) = (words.next()?, words.next()?);
        let held = place.rsplit(':').next()?.parse::<u64>().ok()?;
        (held == inode).then(|| pid.parse().ok())?
    })
}
