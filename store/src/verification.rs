//! Whether all that stands in a file can be read.

use std::path::Path;

use ebbtide_core::Ts;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cells, WindowId, chunk_place};
use crate::damage::Damage;
use crate::digest;
use crate::error::Error;
use crate::rollup;
use crate::schema;
use crate::tail::TailWalk;
use crate::window;

/// Rows looked through at once. Between two pages no transaction is open, so the log of a live daemon can shrink.
const PAGE_ROWS: i64 = 256;

/// Damaged rows that are named; the rest is counted.
const NAMED_ROWS: u64 = 20;

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
            let whose = match table {
                "tick_window" => format!("window {id}"),
                "incident" => format!("incident {id}"),
                "tail_quarter" => format!("quarter of an hour {id}"),
                "incident_series" => format!("incident {series}, series {place}"),
                _ => format!("series {series}, number {place}"),
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

const BLOBS: [Blobs; 7] = [
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
    Blobs {
        name: "tail_quarter",
        page: "SELECT id, data FROM tail_quarter WHERE id > ? ORDER BY id LIMIT ?",
        read: |id, blob| digest::decode(id, blob).map(|_| 0),
    },
    Blobs {
        name: "incident",
        page: "SELECT id, times FROM incident WHERE id > ? ORDER BY id LIMIT ?",
        read: |id, blob| {
            let incident = WindowId::try_from(id).map_err(|_| Damage::Body)?;
            window::decode(incident, blob).map(|_| 0)
        },
    },
    Blobs {
        name: "incident_series",
        page: "SELECT id, data FROM incident_series WHERE id > ? ORDER BY id LIMIT ?",
        read: |id, blob| Cells::decode(id, blob).map(|_| 0),
    },
];

/// Tables of JSON: how many rows, and how many of them hold none.
const DOCUMENTS: [(&str, &str); 4] = [
    ("finding", "SELECT count(*), sum(NOT json_valid(body)) FROM finding"),
    ("alert", "SELECT count(*), sum(NOT json_valid(body)) FROM alert"),
    ("delivery", "SELECT count(*), sum(NOT json_valid(body)) FROM delivery"),
    ("incident", "SELECT count(*), sum(NOT json_valid(body)) FROM incident"),
];
