//! Engines that keep a status file in a directory: the format is [`ebbtide_core::engine_status`].

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ebbtide_core::engine_status::{self, EngineStatus};
use ebbtide_core::{Absent, Bytes, EngineReport, EngineSample, ProcKey, Tick};

use crate::proc::file::read_capped;

/// A status is under 1 KiB; what is larger is none.
const STATUS_CAP: u64 = 64 << 10;
/// An engine writes at least once a second; one that is silent for this long hangs or is gone.
const STALE_AFTER_MS: u64 = 10_000;
/// Files remembered, so that a directory full of rubbish cannot fill the memory.
const MAX_REMEMBERED: usize = 1024;

/// A directory of status files.
#[derive(Debug)]
pub struct EngineStatusDir {
    dir: PathBuf,
    remembered: HashMap<u32, Parsed>,
}

/// A file as it was last read; `status` is `None` where it made no sense.
#[derive(Debug)]
struct Parsed {
    version: Version,
    status: Option<EngineStatus>,
}

/// What changes when a file is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    modified: SystemTime,
    inode: u64,
    size: u64,
}

impl EngineStatusDir {
    /// Reads the files in `dir`, which need not exist yet.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, remembered: HashMap::new() }
    }

    /// What the engine in process `key` says at `tick`; `None` where none keeps a file, or the file is that of
    /// another process with the same PID. An old file's numbers are absent as [`Absent::Timeout`].
    pub fn read(&mut self, key: ProcKey, tick: Tick) -> Option<EngineSample> {
        let path = self.dir.join(engine_status::file_name(key.pid));
        let Some(version) = version(&path) else {
            self.remembered.remove(&key.pid);
            return None;
        };
        if self.remembered.get(&key.pid).is_none_or(|known| known.version != version) {
            if self.remembered.len() >= MAX_REMEMBERED {
                self.remembered.clear();
            }
            self.remembered.insert(key.pid, Parsed { version, status: parse(&path) });
        }
        let status = self.remembered.get(&key.pid)?.status.as_ref()?;
        let same_process = status.pid == key.pid && Some(status.start_ticks) == key.start_ticks;
        same_process.then(|| sample(status, tick))
    }
}

fn version(path: &Path) -> Option<Version> {
    let file = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(Version { modified: file.modified().ok()?, inode: file.ino(), size: file.size() })
}

fn parse(path: &Path) -> Option<EngineStatus> {
    let raw = read_capped(path, STATUS_CAP + 1).ok()?;
    if raw.len() as u64 > STATUS_CAP {
        return None;
    }
    serde_json::from_slice(&raw).ok()
}

/// The numbers, or their absence where they are old. A file from the future is as wrong as an old one: the clock
/// was stepped since.
fn sample(status: &EngineStatus, tick: Tick) -> EngineSample {
    let fresh = tick.at.0.abs_diff(status.updated_at_ms.0) <= STALE_AFTER_MS;
    let why = if fresh { Absent::NotSupported } else { Absent::Timeout };
    EngineSample {
        kv_used: status.kv_used.filter(|_| fresh).ok_or(why),
        kv_cached: status.kv_cached.filter(|_| fresh).ok_or(why),
        kv_pool: status.kv_pool.filter(|_| fresh).ok_or(why),
        running: status.running.filter(|_| fresh).ok_or(why),
        waiting: status.waiting.filter(|_| fresh).ok_or(why),
        semantics: status.semantics,
        report: status.weights.filter(|_| fresh).map(|weights| Arc::new(report(weights))),
        ..EngineSample::absent(why)
    }
}

/// Only our own engine keeps such a file; what else it would say is on its page.
fn report(weights: Bytes) -> EngineReport {
    EngineReport {
        weights: Ok(weights),
        ..EngineReport::absent("ebbtide", "its status file", Absent::NotSupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::{KvSemantics, Ts};
    use std::fs;

    const KEY: ProcKey = ProcKey { pid: 7, start_ticks: Some(5) };

    fn at(ms: i64) -> Tick {
        Tick { seq: 1, at: Ts(ms), mono_ms: 0 }
    }

    fn write(dir: &Path, text: &str) {
        fs::write(dir.join("new"), text).unwrap();
        fs::rename(dir.join("new"), dir.join("7.json")).unwrap();
    }

    fn status(updated_at_ms: i64, running: u32) -> String {
        format!(
            r#"{{"pid":7,"start_ticks":5,"updated_at_ms":{updated_at_ms},"kv_used":3,"kv_pool":9,"running":{running},"semantics":"referenced"}}"#
        )
    }

    #[test]
    fn a_fresh_file_is_read_an_old_one_is_a_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let mut engines = EngineStatusDir::new(dir.path().to_owned());
        assert_eq!(engines.read(KEY, at(0)), None);
        write(dir.path(), &status(1000, 2));
        let expected = EngineSample {
            kv_used: Ok(Bytes(3)),
            kv_pool: Ok(Bytes(9)),
            running: Ok(2),
            waiting: Err(Absent::NotSupported),
            semantics: KvSemantics::Referenced,
            ..EngineSample::absent(Absent::NotSupported)
        };
        assert_eq!(engines.read(KEY, at(11_000)), Some(expected));
        assert_eq!(engines.read(KEY, at(11_001)).unwrap().running, Err(Absent::Timeout));
        write(
            dir.path(),
            &status(12_000, 3).replace(r#""running""#, r#""weights":6,"kv_cached":2,"running""#),
        );
        let sample = engines.read(KEY, at(12_000)).unwrap();
        assert_eq!((sample.running, sample.kv_cached), (Ok(3), Ok(Bytes(2))));
        assert_eq!(sample.report.unwrap().weights, Ok(Bytes(6)));
        assert_eq!(
            engines.read(KEY, at(30_000)).unwrap().report,
            None,
            "an old file says nothing of weights"
        );
    }

    #[test]
    fn another_process_of_that_pid_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let mut engines = EngineStatusDir::new(dir.path().to_owned());
        write(dir.path(), &status(0, 2));
        for start_ticks in [Some(6), None] {
            assert_eq!(engines.read(ProcKey { pid: 7, start_ticks }, at(0)), None);
        }
        write(dir.path(), &status(0, 2).replace(r#""pid":7"#, r#""pid":8"#));
        assert_eq!(engines.read(KEY, at(0)), None);
    }

    #[test]
    fn rubbish_and_giants_are_no_status() {
        let dir = tempfile::tempdir().unwrap();
        let mut engines = EngineStatusDir::new(dir.path().to_owned());
        let giant = format!("{}{}", status(0, 2), " ".repeat(64 << 10));
        for text in ["", "{", "[]", r#"{"pid":-1}"#, giant.as_str()] {
            write(dir.path(), text);
            assert_eq!(engines.read(KEY, at(0)), None, "{} bytes", text.len());
        }
        fs::remove_file(dir.path().join("7.json")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("7.json")).unwrap();
        assert_eq!(engines.read(KEY, at(0)), None);
        write(dir.path(), &status(0, 2));
        assert!(engines.read(KEY, at(0)).is_some());
    }
}
