//! Which processes belong together: an engine's server listens in one process and its GPU memory is in another.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ebbtide_core::{Owner, ProcKey};

use crate::proc::cgroup;
use crate::proc::descriptor::pids;
use crate::proc::file::read_text;
use crate::proc::stat::Stat;

/// As in the reader of processes: `stat` is one line, a cgroup file a dozen paths.
const STAT_CAP: u64 = 4096;
const CGROUP_CAP: u64 = 64 << 10;
/// A chain of parents longer than this is a loop made of PIDs that were reused while it was read.
const MAX_ANCESTORS: usize = 64;

/// How near two processes are, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nearness {
    /// One and the same.
    Same,
    /// One descends from the other, within one group.
    Lineage,
    /// They share a container, or a service, or a session where there is neither.
    Group,
}

/// All processes at one moment.
#[derive(Debug)]
pub(crate) struct Census {
    proc: PathBuf,
    known: HashMap<u32, Kin>,
}

#[derive(Debug)]
struct Kin {
    key: ProcKey,
    parent: u32,
    group: Group,
}

/// What holds processes together that were started together.
#[derive(Debug, PartialEq, Eq)]
enum Group {
    /// A container or a systemd unit, and the cgroup path within.
    Bounded(Owner, String),
    /// A session of a cgroup that holds everything.
    Session(u32),
}

impl Census {
    /// The processes under `proc`; those that cannot be read are left out.
    pub(crate) fn of(proc: &Path) -> Self {
        let (pids, _) = pids(proc).unwrap_or_default();
        let known = pids.into_iter().filter_map(|pid| Some((pid, kin(proc, pid)?))).collect();
        Self { proc: proc.to_owned(), known }
    }

    /// The directory of process `pid`.
    pub(crate) fn dir(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// Whether `key` is still the process of that number.
    pub(crate) fn has(&self, key: ProcKey) -> bool {
        self.known.get(&key.pid).is_some_and(|kin| kin.key == key)
    }

    /// The key of process `pid`.
    pub(crate) fn key(&self, pid: u32) -> Option<ProcKey> {
        self.known.get(&pid).map(|kin| kin.key)
    }

    /// All processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// How near two processes are; `None` where nothing says that they belong together.
    pub(crate) fn nearness(&self, one: u32, other: u32) -> Option<Nearness> {
        let (a, b) = (self.known.get(&one)?, self.known.get(&other)?);
        if one == other {
            return Some(Nearness::Same);
        }
        // A parent outside the group is whoever started it all: a shell, a runtime's shim.
        if a.group != b.group {
            return None;
        }
        let is_lineage = self.descends(one, other) || self.descends(other, one);
        Some(if is_lineage { Nearness::Lineage } else { Nearness::Group })
    }

    fn descends(&self, child: u32, ancestor: u32) -> bool {
        let parent = |pid: &u32| self.known.get(pid).map(|kin| kin.parent);
        std::iter::successors(Some(child), parent).take(MAX_ANCESTORS).any(|pid| pid == ancestor)
    }

    /// Those of `candidates` that are nearest to one of `owners`.
    pub(crate) fn nearest(&self, owners: &[u32], candidates: &[ProcKey]) -> Vec<ProcKey> {
        let to_owners = |key: &ProcKey| owners.iter().filter_map(|o| self.nearness(*o, key.pid)).min();
        let near: Vec<_> = candidates.iter().filter_map(|key| Some((to_owners(key)?, *key))).collect();
        // The server process may hold a GPU itself and have workers that hold others: both are the engine.
        let Some(least) = near.iter().map(|(nearness, _)| (*nearness).max(Nearness::Lineage)).min() else {
            return Vec::new();
        };
        near.into_iter().filter(|(nearness, _)| *nearness <= least).map(|(_, key)| key).collect()
    }
}

fn kin(proc: &Path, pid: u32) -> Option<Kin> {
    let dir = proc.join(pid.to_string());
    let stat = Stat::parse(&read_text(&dir.join("stat"), STAT_CAP).ok()?)?;
    let text = read_text(&dir.join("cgroup"), CGROUP_CAP).unwrap_or_default();
    let owner = cgroup::owner(&text);
    let is_bounded = owner.container.is_some() || owner.unit.is_some();
    let group = if is_bounded { Group::Bounded(owner, text) } else { Group::Session(stat.session) };
    Some(Kin { key: ProcKey { pid, start_ticks: Some(stat.start_ticks) }, parent: stat.parent, group })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ENGINE: &str = "0::/system.slice/vllm.service\n";
    const OTHER: &str = "0::/system.slice/ssh.service\n";

    /// A `/proc` of (pid, parent, session, cgroup).
    fn census(processes: &[(u32, u32, u32, &str)]) -> (tempfile::TempDir, Census) {
        let proc = tempfile::tempdir().unwrap();
        for (pid, parent, session, cgroup) in processes {
            let dir = proc.path().join(pid.to_string());
            fs::create_dir(&dir).unwrap();
            let stat = format!(
                "{pid} (x) S {parent} {pid} {session} 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 {pid}00 1 1 1\n"
            );
            fs::write(dir.join("stat"), stat).unwrap();
            fs::write(dir.join("cgroup"), cgroup).unwrap();
        }
        let census = Census::of(proc.path());
        (proc, census)
    }

    fn key(pid: u32) -> ProcKey {
        ProcKey { pid, start_ticks: Some(u64::from(pid) * 100) }
    }

    #[test]
    fn a_worker_belongs_to_its_server_and_not_to_who_started_both() {
        let (_proc, census) = census(&[
            (1, 0, 1, OTHER),
            (10, 1, 10, ENGINE),
            (11, 10, 10, ENGINE),
            (12, 11, 10, ENGINE),
            (20, 1, 20, OTHER),
        ]);
        assert_eq!(census.nearness(10, 12), Some(Nearness::Lineage));
        assert_eq!(census.nearness(12, 10), Some(Nearness::Lineage));
        assert_eq!(census.nearness(1, 12), None, "the parent is in another unit");
        assert_eq!(census.nearest(&[10], &[key(12), key(20)]), [key(12)]);
        assert!(census.has(key(12)) && !census.has(ProcKey { pid: 12, start_ticks: Some(1) }));
    }

    #[test]
    fn siblings_count_only_where_no_relative_holds_a_gpu() {
        let (_proc, census) =
            census(&[(10, 1, 10, ENGINE), (11, 10, 10, ENGINE), (30, 1, 30, ENGINE), (31, 30, 30, ENGINE)]);
        assert_eq!(census.nearest(&[10], &[key(10), key(11), key(31)]), [key(10), key(11)]);
        assert_eq!(census.nearest(&[10], &[key(31)]), [key(31)]);
        assert_eq!(census.nearest(&[99], &[key(31)]), []);
    }

    #[test]
    fn without_cgroups_a_session_holds_processes_together() {
        let (_proc, census) = census(&[
            (1, 0, 1, "0::/\n"),
            (10, 1, 10, "0::/\n"),
            (11, 10, 10, "0::/\n"),
            (20, 1, 20, "0::/\n"),
        ]);
        assert_eq!(census.nearness(10, 11), Some(Nearness::Lineage));
        assert_eq!(census.nearness(10, 20), None);
        assert_eq!(census.nearness(1, 11), None);
    }
}
