//! What stands in a file, and whether all of it can be read.

use std::os::linux::fs::MetadataExt;
use std::path::Path;

use ebbtide_core::{Tick, Ts};
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cells, WindowId, chunk_place};
use crate::damage::Damage;
use crate::error::Error;
use crate::rollup::{self, MINUTE, QUARTER, Tier};
use crate::schema::{self, beside};
use crate::tail::TailWalk;
use crate::window;

/// Rows looked through at once. Between two pages no transaction is open, so the log of a live daemon can shrink.
const PAGE_ROWS: i64 = 256;

/// Damaged rows that are named; the rest is counted.
const NAMED_ROWS: u64 = 20;

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
    type Row = (i64, i64, i64, i64, i64, i64, i64, i64, i64);
    let found: Row = sqlx::query_as(
        "SELECT (SELECT count(*) FROM gpu), (SELECT count(*) FROM process), (SELECT count(*) FROM series),
                (SELECT count(*) FROM finding), (SELECT count(*) FROM finding WHERE resolved_at_ms IS NULL),
                (SELECT count(*) FROM alert), (SELECT count(*) FROM alert WHERE state <> 'resolved'),
                (SELECT count(*) FROM delivery), (SELECT count(*) FROM delivery WHERE state = 'pending')",
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

/// What a check of a file found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// Ticks that were read.
    pub ticks: u64,
    /// Ticks whose blob, or one that it builds on, is damaged.
    pub damaged_ticks: u64,
    /// Rows of the other tables that were read: windows, chunks, minutes, quarters, verdicts.
    pub rows: u64,
    /// Those of them that are damaged.
    pub damaged_rows: u64,
    /// The first damaged rows, one sentence each, and what SQLite's own check complains of.
    pub complaints: Vec<String>,
}

impl Verification {
    /// Reads all of the file at `path`: SQLite's check of its pages, each tick, and each blob against its checksum.
    /// Takes seconds for hundreds of megabytes.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn of(path: &Path) -> Result<Self, Error> {
        let mut conn = schema::open_for_reading(path).await?;
        let mut found = Self::default();
        let checked = found.check(path, &mut conn).await;
        schema::close(conn).await;
        checked.map(|()| found)
    }

    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.complaints.is_empty() && self.damaged_ticks == 0 && self.damaged_rows == 0
    }

    /// Where one part cannot be read on, the others still can.
    async fn check(&mut self, path: &Path, conn: &mut SqliteConnection) -> Result<(), Error> {
        let checked = self.check_pages(conn).await;
        self.note_part(path, "pages", checked)?;
        let checked = self.check_tail(conn).await;
        self.note_part(path, "tail", checked)?;
        for table in &BLOBS {
            let checked = self.check_blobs(conn, table).await;
            self.note_part(path, table.name, checked)?;
        }
        for table in &DOCUMENTS {
            let checked = self.check_documents(conn, table).await;
            self.note_part(path, table.0, checked)?;
        }
        Ok(())
    }

    /// A part that SQLite gives up on is damaged; any other error is no finding about the file.
    fn note_part(&mut self, path: &Path, part: &str, checked: Result<(), sqlx::Error>) -> Result<(), Error> {
        let Err(error) = checked else { return Ok(()) };
        match Error::of_sqlite(path, error) {
            Error::Corrupt { source, .. } => {
                self.complaints.push(format!("{part}: cannot be read on: {source}"));
                Ok(())
            }
            error => Err(error),
        }
    }

    async fn check_pages(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let said: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(20)").fetch_all(conn).await?;
        self.complaints.extend(said.into_iter().filter(|line| line != "ok"));
        Ok(())
    }

    async fn check_documents(
        &mut self,
        conn: &mut SqliteConnection,
        (table, asked): &(&str, &'static str),
    ) -> Result<(), sqlx::Error> {
        let (rows, damaged): (i64, Option<i64>) = sqlx::query_as(*asked).fetch_one(conn).await?;
        self.rows += rows.unsigned_abs();
        if let Some(damaged) = damaged.filter(|damaged| *damaged > 0) {
            self.damaged_rows += damaged.unsigned_abs();
            self.complaints.push(format!("{table}: {damaged} rows hold no JSON"));
        }
        Ok(())
    }

    async fn check_tail(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut tail = TailWalk::begin(conn, Ts(i64::MIN), Ts(i64::MAX)).await?;
        while tail.wants_rows() {
            tail.fetch(conn).await?;
            while tail.next().is_some() {
                self.ticks += 1;
            }
        }
        self.damaged_ticks += tail.unreadable();
        Ok(())
    }

    async fn check_blobs(&mut self, conn: &mut SqliteConnection, table: &Blobs) -> Result<(), sqlx::Error> {
        let mut after = i64::MIN;
        loop {
            let page: Vec<(i64, Vec<u8>)> =
                sqlx::query_as(table.page).bind(after).bind(PAGE_ROWS).fetch_all(&mut *conn).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = *last;
            for (id, blob) in &page {
                self.rows += 1;
                match (table.read)(*id, blob) {
                    Ok(ticks) => self.ticks += ticks,
                    Err(damage) => self.note(table.name, *id, damage),
                }
            }
        }
    }

    fn note(&mut self, table: &str, id: i64, damage: Damage) {
        self.damaged_rows += 1;
        if self.damaged_rows <= NAMED_ROWS {
            let (series, place) = chunk_place(id);
            let whose = if table == "tick_window" {
                format!("window {id}")
            } else {
                format!("series {series}, number {place}")
            };
            let why = match damage {
                Damage::Checksum => "its checksum differs",
                Damage::Tag => "it begins with an unknown byte",
                Damage::Body => "its checksum holds and its content makes no sense",
            };
            self.complaints.push(format!("{table}: {whose}: {why}"));
        }
    }
}

/// A table of blobs.
struct Blobs {
    name: &'static str,
    /// A page of rows behind an id: id, blob.
    page: &'static str,
    /// Reads a blob; returns the ticks that it is the only record of.
    read: fn(i64, &[u8]) -> Result<u64, Damage>,
}

const BLOBS: [Blobs; 4] = [
    Blobs {
        name: "tick_window",
        page: "SELECT id, times FROM tick_window WHERE id > ? ORDER BY id LIMIT ?",
        read: |id, blob| {
            let window = WindowId::try_from(id).map_err(|_| Damage::Body)?;
            window::decode(window, blob).map(|ticks| ticks.len() as u64)
        },
    },
    Blobs {
        name: "chunk",
        page: "SELECT id, data FROM chunk WHERE id > ? ORDER BY id LIMIT ?",
        read: |id, blob| Cells::decode(id, blob).map(|_| 0),
    },
    Blobs {
        name: "minute",
        page: "SELECT id, data FROM minute WHERE id > ? ORDER BY id LIMIT ?",
        read: |id, blob| rollup::decode(id, blob).map(|_| 0),
    },
    Blobs {
        name: "quarter",
        page: "SELECT id, data FROM quarter WHERE id > ? ORDER BY id LIMIT ?",
        read: |id, blob| rollup::decode(id, blob).map(|_| 0),
    },
];

/// Tables of JSON: how many rows, and how many of them hold none.
const DOCUMENTS: [(&str, &str); 3] = [
    ("finding", "SELECT count(*), sum(NOT json_valid(body)) FROM finding"),
    ("alert", "SELECT count(*), sum(NOT json_valid(body)) FROM alert"),
    ("delivery", "SELECT count(*), sum(NOT json_valid(body)) FROM delivery"),
];
