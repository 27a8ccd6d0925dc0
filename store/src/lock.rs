//! A file has one writer.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::Error;
use crate::schema::beside;

/// The lock of the database at `path`, held for as long as the file is open.
///
/// Two writers would mix their ticks. The lock is a file of its own because closing any handle of the database would drop
/// the locks that SQLite holds on it.
pub(crate) fn exclusive(path: &Path) -> Result<File, Error> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(beside(path, ".lock"))
        .map_err(|e| Error::of_system(path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(Error::of_system(path, error)),
    }
}
