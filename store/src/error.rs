//! What can go wrong with the file, and what to do about it.

use std::path::{Path, PathBuf};

/// Why the history could not be written or read. Each text says what happened, to what, and what to do; the cause,
/// where SQLite or the system gave one, is its source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No space left, or a quota reached.
    #[error("the disk that holds {} is full: free some space; history has a gap until then", path.display())]
    Full {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// File, directory or mount cannot be written.
    #[error(
        "{} cannot be written: make its directory writable for this user, or choose another path",
        path.display()
    )]
    ReadOnly {
        /// The database.
        path: PathBuf,
        /// What SQLite or the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It can be neither opened nor created, or has vanished.
    #[error(
        "{} cannot be opened: check that its directory exists and that this user may enter it",
        path.display()
    )]
    Unreachable {
        /// The database.
        path: PathBuf,
        /// What SQLite or the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The device failed a read, a write or a flush.
    #[error(
        "the device that holds {} fails: look at the kernel's log; writing is tried again with the next tick",
        path.display()
    )]
    Io {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// What is in the file is no sound database. The writer sets it aside by itself, unless it did so shortly before.
    #[error(
        "{} is damaged: move it away to start a new history, and check the disk if that happens again",
        path.display()
    )]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// A later build has written this file.
    #[error(
        "{} has layout {found} and this build knows {known}: use the newer build, or choose another path",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The layout in the file.
        found: i64,
        /// The newest layout that this build knows.
        known: i64,
    },
    /// The file was made by a script that differs from the one in this build.
    #[error(
        "{} was made by another version of migration {migration}: use the build that made it, or choose another path",
        path.display()
    )]
    Altered {
        /// The database.
        path: PathBuf,
        /// Which script differs.
        migration: &'static str,
    },
    /// A SQLite database, but not one of ours.
    #[error("{} belongs to another program: choose another path", path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// Another process holds the file.
    #[error("another process writes to {}: stop it, or choose another path", path.display())]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// The tick is older than one that is already stored.
    #[error(
        "tick {seq} comes after tick {last} in {}: count on from there (a caller's error)",
        path.display()
    )]
    Behind {
        /// The database.
        path: PathBuf,
        /// The refused tick.
        seq: u64,
        /// The newest tick in the file.
        last: u64,
    },
    /// A read took longer than it may.
    #[error(
        "reading {} took longer than {limit_ms} ms: ask for a shorter time span, or try again when the disk is less busy",
        path.display()
    )]
    Deadline {
        /// The database.
        path: PathBuf,
        /// The deadline, in milliseconds.
        limit_ms: u128,
    },
    /// There is no such file.
    #[error("{} does not exist: start the daemon first, or give the path of a history", path.display())]
    Missing {
        /// The database.
        path: PathBuf,
    },
    /// Anything else that SQLite or its driver said.
    #[error("unexpected answer from the database {}: please report this with its cause", path.display())]
    Other {
        /// The database.
        path: PathBuf,
        /// What was said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Whether a later try can succeed without anybody touching the file or the configuration.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::ReadOnly { .. }
                | Self::Unreachable { .. }
                | Self::Io { .. }
                | Self::InUse { .. }
                | Self::Deadline { .. }
                | Self::Missing { .. }
        )
    }

    /// The kind in one kebab-case word, for metrics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        // tidy: table
        match self {
            Self::Full { .. } => "full",
            Self::ReadOnly { .. } => "read-only",
            Self::Unreachable { .. } => "unreachable",
            Self::Io { .. } => "io",
            Self::Corrupt { .. } => "corrupt",
            Self::Newer { .. } => "newer",
            Self::Altered { .. } => "altered",
            Self::Foreign { .. } => "foreign",
            Self::InUse { .. } => "in-use",
            Self::Behind { .. } => "behind",
            Self::Deadline { .. } => "deadline",
            Self::Missing { .. } => "missing",
            Self::Other { .. } => "other",
        }
    }

    /// What a driver's error means for the file at `path`.
    pub(crate) fn of_sqlite(path: &Path, source: sqlx::Error) -> Self {
        let path = path.to_path_buf();
        // Result codes of sqlite.org/rescode.html; the low byte is the primary one.
        match primary_code(&source) {
            Some(5 | 6) => Self::InUse { path },
            Some(8) => Self::ReadOnly { path, source: source.into() },
            Some(10) => Self::Io { path, source },
            // Code 1 is said of SQL that does not fit the tables: ours does, so the tables are not what made them.
            Some(1 | 11 | 26) => Self::Corrupt { path, source },
            Some(13) => Self::Full { path, source },
            Some(14) => Self::Unreachable { path, source: source.into() },
            _ => Self::Other { path, source: source.into() },
        }
    }

    /// What a failure to create or open something beside the database means.
    pub(crate) fn of_system(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, source: source.into() }
            }
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full { path, source: sqlx::Error::Io(source) }
            }
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                Self::Unreachable { path, source: source.into() }
            }
            _ => Self::Io { path, source: sqlx::Error::Io(source) },
        }
    }
}

/// SQLite's primary result code, where the error is SQLite's.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xFF)
}
