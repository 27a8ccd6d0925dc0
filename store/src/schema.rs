//! Opening a file: whose it is, which layout it has, and how it gets ours.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use crate::error::Error;

/// `ebbt`, in the header of each of our files (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x6562_6274;

/// One script, run once for each file. A script that was released is never edited; a test holds it to its checksum.
struct Migration {
    name: &'static str,
    sql: &'static str,
    checksum: u32,
}

const MIGRATIONS: [Migration; 4] = [
    Migration {
        name: "0001_tail_and_verdicts",
        sql: include_str!("../../migrations/0001_tail_and_verdicts.sql"),
        checksum: 0x35B9_3B16,
    },
    Migration {
        name: "0002_sealed_history",
        sql: include_str!("../../migrations/0002_sealed_history.sql"),
        checksum: 0x5141_8439,
    },
    Migration {
        name: "0003_incidents",
        sql: include_str!("../../migrations/0003_incidents.sql"),
        checksum: 0xBE5B_BA00,
    },
    Migration {
        name: "0004_tail_quarters",
        sql: include_str!("../../migrations/0004_tail_quarters.sql"),
        checksum: 0xD8AB_57BD,
    },
];

/// What a script's checksum begins with in `meta`.
const FINGERPRINT: &str = "crc32 ";

/// How a reader sees a file of an older layout, which it cannot bring up to date: what the layout of that number lacks,
/// under the names that this build uses, and empty. A name in `temp` goes before the same in the file.
const BRIDGES: [&str; 4] = [
    "",
    "CREATE TEMP VIEW series AS SELECT *, 0 AS rolled_window, NULL AS closed_window FROM main.series;
     CREATE TEMP TABLE tick_window (
         id INTEGER PRIMARY KEY, first_seq INTEGER, last_seq INTEGER, from_ms INTEGER, to_ms INTEGER,
         ticks INTEGER, times BLOB);
     CREATE TEMP TABLE chunk (id INTEGER PRIMARY KEY, windows INTEGER, data BLOB);
     CREATE TEMP TABLE minute (id INTEGER PRIMARY KEY, data BLOB);
     CREATE TEMP TABLE quarter (id INTEGER PRIMARY KEY, data BLOB);",
    "CREATE TEMP TABLE incident (
         id INTEGER PRIMARY KEY, at_ms INTEGER, pid INTEGER, start_ticks INTEGER, times BLOB, body TEXT);
     CREATE TEMP TABLE incident_series (
         id INTEGER PRIMARY KEY, gpu TEXT, pid INTEGER, start_ticks INTEGER, metric TEXT, data BLOB);
     CREATE TEMP TABLE gap (
         id INTEGER PRIMARY KEY, from_ms INTEGER, to_ms INTEGER, ticks INTEGER, reason TEXT);",
    "CREATE TEMP TABLE tail_quarter (
         id INTEGER PRIMARY KEY, last_seq INTEGER, from_ms INTEGER, to_ms INTEGER, data BLOB);",
];

/// What the writer wants of its connection. `auto_vacuum` counts only before the first table, and the switch to WAL
/// already writes the first page, so the order matters. 512 KiB of cache hold the right edge of every table that is
/// written; a log that a long reader made grow is cut back to 16 MiB.
const WRITER_PRAGMAS: &str = "PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA journal_size_limit = 16777216;
    PRAGMA cache_size = -512;
    PRAGMA temp_store = MEMORY;";

/// What lies at the head of a file is what was made first, and what each question needs: the tables' names, their roots and
/// the first pages below them. Asked for in one go it comes in the time of one or two of the dozen pages that it spares.
const HEAD_BYTES: u64 = 256 << 10;

/// How long to wait for somebody else's lock: a checkpoint by a visiting `sqlite3` takes milliseconds, and a tick
/// should not wait for longer than a couple of ticks.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Statements kept prepared: more than there are in this crate for one connection.
const STATEMENTS: usize = 48;

/// Opens the file at `path` for writing, makes it where there is none, and brings it to the newest layout. A file
/// that is refused is left as it is.
pub(crate) async fn open_for_writing(path: &Path) -> Result<SqliteConnection, Error> {
    let options = options(path).create_if_missing(true).thread_name(|_| "ebbtide-store".into());
    let mut conn = options.connect().await.map_err(|e| Error::of_sqlite(path, e))?;
    match settle(&mut conn, path).await {
        Ok(()) => Ok(conn),
        Err(error) => {
            close(conn).await;
            Err(error)
        }
    }
}

/// Opens the file at `path` for reading.
pub(crate) async fn open_for_reading(path: &Path) -> Result<SqliteConnection, Error> {
    match std::fs::File::open(path) {
        Ok(file) => read_ahead(&file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Missing { path: path.to_path_buf() });
        }
        // SQLite finds the words for any other.
        Err(_) => {}
    }
    // Without a log nobody writes, and reading as from a read-only medium leaves no files behind; where there is a
    // log it has to be read too, with the locks that this takes.
    let immutable = !beside(path, "-wal").exists();
    let options = options(path)
        .read_only(true)
        .immutable(immutable)
        .pragma("cache_size", "-512")
        .thread_name(|_| "ebbtide-read".into());
    let mut conn = options.connect().await.map_err(|e| Error::of_sqlite(path, e))?;
    let applied = inspect(&mut conn, path).await?;
    if applied == 0 {
        return Err(Error::Missing { path: path.to_path_buf() });
    }
    bridge(&mut conn, applied).await.map_err(|e| Error::of_sqlite(path, e))?;
    Ok(conn)
}

/// Lets the system fetch the head of the file while SQLite opens it; it need not, so a refusal does not matter.
fn read_ahead(file: &std::fs::File) {
    let _advised = rustix::fs::fadvise(file, 0, NonZeroU64::new(HEAD_BYTES), rustix::fs::Advice::WillNeed);
}

/// Makes a file of layout `applied` look like one of the newest.
async fn bridge(conn: &mut SqliteConnection, applied: usize) -> Result<(), sqlx::Error> {
    for missing in BRIDGES.iter().skip(applied) {
        sqlx::raw_sql("PRAGMA temp_store = MEMORY").execute(&mut *conn).await?;
        sqlx::raw_sql(*missing).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Closes a connection that is of no use any more; what it says to that does not matter.
pub(crate) async fn close(conn: SqliteConnection) {
    if let Err(error) = conn.close().await {
        tracing::debug!(%error, "closing a failed database connection");
    }
}

/// `path` with `suffix` after its last letter, as SQLite names its side files.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging()
}

async fn settle(conn: &mut SqliteConnection, path: &Path) -> Result<(), Error> {
    let applied = inspect(conn, path).await?;
    compare(conn, path, applied).await?;
    let fail = |e| Error::of_sqlite(path, e);
    sqlx::raw_sql(WRITER_PRAGMAS).execute(&mut *conn).await.map_err(fail)?;
    if applied < MIGRATIONS.len() {
        migrate(conn, &MIGRATIONS[applied..]).await.map_err(fail)?;
    }
    Ok(())
}

/// How many migrations the file has seen; refuses files that are not ours or from the future.
async fn inspect(conn: &mut SqliteConnection, path: &Path) -> Result<usize, Error> {
    let (found, application, tables): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT user_version FROM pragma_user_version),
                (SELECT application_id FROM pragma_application_id),
                (SELECT count(*) FROM sqlite_schema)",
    )
    .fetch_one(conn)
    .await
    .map_err(|e| Error::of_sqlite(path, e))?;
    let path = || path.to_path_buf();
    if application != APPLICATION_ID && (application != 0 || found != 0 || tables != 0) {
        return Err(Error::Foreign { path: path() });
    }
    let known = MIGRATIONS.len() as i64;
    usize::try_from(found).ok().filter(|applied| *applied <= MIGRATIONS.len()).ok_or_else(|| Error::Newer {
        path: path(),
        found,
        known,
    })
}

/// Holds the scripts that made the file against those of this build.
async fn compare(conn: &mut SqliteConnection, path: &Path, applied: usize) -> Result<(), Error> {
    for migration in &MIGRATIONS[..applied] {
        let kept: Option<String> = sqlx::query_scalar("SELECT value FROM meta WHERE key = ?")
            .bind(meta_key(migration))
            .fetch_optional(&mut *conn)
            .await
            .map_err(|e| Error::of_sqlite(path, e))?;
        let path = || path.to_path_buf();
        match kept {
            Some(kept) if kept == fingerprint(migration) => {}
            Some(kept) if kept.starts_with(FINGERPRINT) => {
                return Err(Error::Altered { path: path(), migration: migration.name });
            }
            // Each script leaves one, so that one which is missing was lost.
            _ => {
                let what = format!("the mark of {} is damaged", migration.name);
                return Err(Error::Corrupt { path: path(), source: sqlx::Error::Protocol(what) });
            }
        }
    }
    Ok(())
}

async fn migrate(conn: &mut SqliteConnection, pending: &[Migration]) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    for migration in pending {
        sqlx::raw_sql(migration.sql).execute(&mut *tx).await?;
        sqlx::query("INSERT INTO meta (key, value) VALUES (?, ?)")
            .bind(meta_key(migration))
            .bind(fingerprint(migration))
            .execute(&mut *tx)
            .await?;
    }
    let version = MIGRATIONS.len();
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version};");
    sqlx::raw_sql(AssertSqlSafe(marks)).execute(&mut *tx).await?;
    tx.commit().await
}

fn meta_key(migration: &Migration) -> String {
    format!("migration {}", migration.name)
}

fn fingerprint(migration: &Migration) -> String {
    format!("{FINGERPRINT}{:08x}", migration.checksum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::Crc32;

    #[test]
    fn released_migrations_are_never_edited() {
        for Migration { name, sql, checksum } in &MIGRATIONS {
            let found = Crc32::new().with(sql.as_bytes()).value();
            assert_eq!(
                found, *checksum,
                "{name} is {found:#010x}: add a migration instead of editing this one"
            );
        }
    }
}
