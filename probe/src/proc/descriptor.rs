//! Other processes' open files, as `/proc/PID/fd` shows them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::file::Missing;

/// Processes looked at in one scan. The kernel's default `pid_max` is 32768 (4 Mi at the very most): a machine with
/// more is not scanned whole, and the caller learns how many were left out.
pub(crate) const MAX_SCANNED_PROCESSES: usize = 32_768;
/// Open files looked at in one process: GPU device files and memory files are opened early, and inference servers
/// hold a few thousand sockets at most.
const MAX_SCANNED_FILES: usize = 8192;

/// One open file of a process.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The link `/proc/PID/fd/N`: stat it to see through to the file.
    pub(crate) path: PathBuf,
    /// What the link says it is.
    pub(crate) target: OsString,
}

/// The open files of the process whose directory is `process`.
///
/// # Errors
/// Why its list cannot be read; a file closed meanwhile is merely not in the list.
pub(crate) fn open_files(process: &Path) -> Result<impl Iterator<Item = OpenFile> + use<>, Missing> {
    let entries = std::fs::read_dir(process.join("fd"))?;
    Ok(entries.take(MAX_SCANNED_FILES).flatten().filter_map(|entry| {
        let path = entry.path();
        let target = std::fs::read_link(&path).ok()?.into_os_string();
        Some(OpenFile { path, target })
    }))
}

/// The PIDs under `proc`, and how many were left out because there are more than [`MAX_SCANNED_PROCESSES`].
pub(crate) fn pids(proc: &Path) -> Result<(Vec<u32>, usize), Missing> {
    let entries = std::fs::read_dir(proc)?;
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let left_out = pids.len().saturating_sub(MAX_SCANNED_PROCESSES);
    pids.drain(..left_out);
    Ok((pids, left_out))
}
