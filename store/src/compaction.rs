//! Making a file small again while nobody writes to it.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;

use crate::error::Error;
use crate::lock;
use crate::schema::{self, beside};

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// Bytes of the file and its log before.
    pub before: u64,
    /// And after.
    pub after: u64,
}

impl Compaction {
    /// Brings the file at `path` to the newest layout, folds its log into it, and rewrites it without free pages. The
    /// copy that SQLite makes meanwhile lies in its directory for temporary files, as large as the file.
    ///
    /// # Errors
    /// [`Error::InUse`] where a writer holds the file, and any other of opening and writing; the file is then as it was.
    pub async fn run(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            return Err(Error::Missing { path: path.to_path_buf() });
        }
        let _lock = lock::exclusive(path)?;
        let before = bytes(path);
        let mut conn = schema::open_for_writing(path).await?;
        let compacted = compact(&mut conn).await.map_err(|e| Error::of_sqlite(path, e));
        schema::close(conn).await;
        compacted.map(|()| Self { before, after: bytes(path) })
    }
}

async fn compact(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    // The writer keeps temporary tables in memory; a copy of the whole file would not fit there.
    sqlx::raw_sql("PRAGMA temp_store = FILE; PRAGMA wal_checkpoint(TRUNCATE); VACUUM;")
        .execute(&mut *conn)
        .await?;
    sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(conn).await.map(drop)
}

fn bytes(path: &Path) -> u64 {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    size(path) + size(&beside(path, "-wal"))
}
