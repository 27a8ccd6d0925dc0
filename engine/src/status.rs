//! The status file that tells a probe how full the KV cache is and how many requests run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide_core::engine_status::file_name;
use ebbtide_core::{Bytes, EngineStatus, KvSemantics, Ts};
use serde::Serialize;

/// A file could not be written, or our own process not be read.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// A file could not be written.
    #[error("{path} could not be written; check that its directory exists, is writable and has room")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `/proc/self/stat` does not tell when this process started.
    #[error("/proc/self/stat does not tell the start time of this process; mount /proc")]
    StartTime,
}

/// What changes from one status to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// KV cache that requests refer to.
    pub kv_used: Bytes,
    /// KV cache that is kept for reuse and that nobody refers to.
    pub kv_cached: Bytes,
    /// KV pool as allocated now.
    pub kv_pool: Bytes,
    /// Weights that the device holds.
    pub weights: Bytes,
    /// Requests being served.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
}

/// This process's status file, removed when dropped.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    pid: u32,
    start_ticks: u64,
}

impl StatusFile {
    /// The file of this process in `dir`; written by [`Self::write`] for the first time.
    ///
    /// # Errors
    /// [`StatusError::StartTime`] where `/proc` is not there.
    pub fn in_dir(dir: &Path) -> Result<Self, StatusError> {
        let pid = std::process::id();
        let line = std::fs::read("/proc/self/stat").unwrap_or_default();
        let start_ticks = start_ticks(&String::from_utf8_lossy(&line)).ok_or(StatusError::StartTime)?;
        Ok(Self { path: dir.join(file_name(pid)), pid, start_ticks })
    }

    /// Says `load` as of `at`.
    ///
    /// # Errors
    /// [`StatusError::Write`].
    pub fn write(&self, load: Load, at: Ts) -> Result<(), StatusError> {
        let status = EngineStatus {
            pid: self.pid,
            start_ticks: self.start_ticks,
            updated_at_ms: at,
            kv_used: Some(load.kv_used),
            kv_cached: Some(load.kv_cached),
            kv_pool: Some(load.kv_pool),
            weights: Some(load.weights),
            running: Some(load.running),
            waiting: Some(load.waiting),
            semantics: KvSemantics::Referenced,
        };
        replace(&self.path, &status)
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // What cannot be removed is recognised as stale by its time, and as another's by its start time.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Puts `value` as JSON in the place of the file at `path` at once: a reader sees the old content or the new.
///
/// # Errors
/// [`StatusError::Write`].
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> Result<(), StatusError> {
    let failed = |source| StatusError::Write { path: path.to_owned(), source };
    let text = serde_json::to_vec(value).map_err(|error| failed(error.into()))?;
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, path)).map_err(failed)
}

/// Wall time now.
pub(crate) fn now() -> Ts {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ts(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Field 22 of `/proc/PID/stat` (proc(5)), counted from behind the name, which ends at the last parenthesis.
fn start_ticks(line: &str) -> Option<u64> {
    line.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_ours_and_gone_with_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::in_dir(dir.path()).unwrap();
        let path = dir.path().join(format!("{}.json", std::process::id()));
        let load = Load { kv_used: Bytes(3), kv_pool: Bytes(9), running: 2, waiting: 1, ..Load::default() };
        for at in [Ts(1), Ts(2)] {
            file.write(load, at).unwrap();
            let status: EngineStatus = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!((status.updated_at_ms, status.kv_used, status.waiting), (at, Some(Bytes(3)), Some(1)));
            assert!(status.start_ticks > 0);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let file = StatusFile::in_dir(Path::new("/nowhere/at/all")).unwrap();
        let error = file.write(Load::default(), Ts(0)).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all") && error.contains("directory"), "{error}");
    }

    #[test]
    fn start_times_are_read_behind_any_name() {
        assert_eq!(
            start_ticks("1 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4242 23"),
            Some(4242)
        );
        assert_eq!(start_ticks("1 (x) S 2"), None);
    }
}
