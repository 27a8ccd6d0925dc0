//! Processes as `/proc` shows them: who they are, whom they belong to, and what of that is hidden from us.

pub(crate) mod cgroup;
pub(crate) mod descriptor;
mod exit;
pub(crate) mod file;
mod names;
mod sight;
pub(crate) mod stat;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebbtide_core::text::clean;
use ebbtide_core::{
    Absent, Bytes, Ending, ExitStatus, Holder, HostSample, Liveness, Owner, ProcInfo, ProcKey, Reading, Tick,
    Ts,
};

use exit::ExitWatch;
use file::{Missing, read_text};
use sight::{STATUS_CAP, Sight};
use stat::Stat;

/// `/proc/PID/stat` is one line of some 300 bytes.
const STAT_CAP: u64 = 4096;
/// `/proc/stat` has a line a CPU and one of interrupt counters before `btime`.
const HOST_STAT_CAP: u64 = 1 << 20;
/// A cleaned command keeps 256 bytes; the rest of a long one need not be read.
const COMMAND_CAP: u64 = 4096;
/// A dozen hierarchies, each path at most `PATH_MAX` long.
const CGROUP_CAP: u64 = 64 << 10;
/// `/proc/meminfo` is some 1.5 KiB.
const MEMINFO_CAP: u64 = 16 << 10;
/// Owner and cgroup limit change when an operator changes them, so they are read this often.
const OWNER_REFRESH_MS: u64 = 30_000;
/// A process nobody has asked about for this long is forgotten: longer than the longest sampling interval (5 min).
const FORGET_AFTER_MS: u64 = 600_000;
/// How often it is looked for whom to forget.
const SWEEP_EVERY_MS: u64 = 60_000;
/// Processes remembered: eight GPUs with the 950 entries that the driver lists at most.
const MAX_REMEMBERED: usize = 8 * 950;
/// Processes whose descriptors are held open to learn how they end: half of what a process may open by default.
const MAX_DESCRIPTORS: usize = 512;
/// Holders named: more would be a table nobody reads.
const MAX_HOLDERS: usize = 64;

/// Where the files are: the host's places by default, others in tests and in containers that mount the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcRoots {
    /// The proc file system.
    pub proc: PathBuf,
    /// The cgroup mounts.
    pub cgroup: PathBuf,
    /// The kubelet's log directories, named after pods.
    pub pods: PathBuf,
    /// The user database.
    pub passwd: PathBuf,
    /// Device files.
    pub dev: PathBuf,
    /// The machine's id (machine-id(5)).
    pub machine_id: PathBuf,
}

impl Default for ProcRoots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
            pods: "/var/log/pods".into(),
            passwd: "/etc/passwd".into(),
            dev: "/dev".into(),
            machine_id: "/etc/machine-id".into(),
        }
    }
}

/// What is known of a listed process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcFacts {
    /// Its identity.
    pub key: ProcKey,
    /// Whether it can be found.
    pub liveness: Liveness,
    /// What does not change while it lives.
    pub info: Arc<ProcInfo>,
    /// Resident host memory, from field 24 of `stat`; behind by up to a few dozen pages a thread (proc(5)).
    pub rss: Reading<Bytes>,
    /// The tightest memory limit of its cgroups; `NotSupported` where nothing limits it.
    pub host_limit: Reading<Bytes>,
}

/// Reads processes, and remembers what does not change while they live.
#[derive(Debug)]
pub struct ProcReader {
    roots: ProcRoots,
    sight: Sight,
    pids_are_ours: bool,
    boot_time_s: Option<i64>,
    remembered: HashMap<u32, Remembered>,
    swept_ms: u64,
}

/// A process as it was last seen.
#[derive(Debug)]
struct Remembered {
    start_ticks: u64,
    /// The raw name: a process that calls exec keeps PID and start time and becomes another program.
    comm: String,
    info: Arc<ProcInfo>,
    host_limit: Reading<Bytes>,
    exit: ExitWatch,
    owner_read_ms: u64,
    asked_ms: u64,
}

impl ProcReader {
    /// A reader of the files under `roots` for PIDs that a driver gives. In a PID namespace other than the host's
    /// it matches none of them: each is [`Liveness::Foreign`].
    #[must_use]
    pub fn new(roots: ProcRoots) -> Self {
        let sight = Sight::of(&roots.proc);
        let boot_time_s =
            read_text(&roots.proc.join("stat"), HOST_STAT_CAP).ok().and_then(|text| stat::boot_time_s(&text));
        Self { roots, sight, pids_are_ours: false, boot_time_s, remembered: HashMap::new(), swept_ms: 0 }
    }

    /// The same for PIDs that were read from this very `/proc` (host memory presented as a GPU): their numbers are
    /// right in any namespace.
    #[must_use]
    pub fn for_own_pids(self) -> Self {
        Self { pids_are_ours: true, ..self }
    }

    /// One line for each thing that cannot be seen, naming the privilege that opens it.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.sight.notes(self.pids_are_ours)
    }

    /// What is known of process `pid` at `tick`: one small file a call, more when it is new or every 30 s.
    pub fn facts(&mut self, pid: u32, tick: Tick) -> ProcFacts {
        if self.sight.foreign && !self.pids_are_ours {
            return unknown(pid, Liveness::Foreign, Absent::NotSupported);
        }
        match self.stat(pid) {
            Ok(stat) => self.found(pid, stat, tick),
            Err(Missing::Gone) if self.lives_unseen(pid) => {
                unknown(pid, Liveness::Alive, Absent::NoPermission)
            }
            Err(Missing::Gone) => self.gone(pid, tick),
            Err(other) => unknown(pid, Liveness::Alive, other.absent()),
        }
    }

    /// The host's memory.
    #[must_use]
    pub fn host(&self) -> HostSample {
        let text = read_text(&self.roots.proc.join("meminfo"), MEMINFO_CAP).map_err(Missing::absent);
        let bytes = |key| {
            let text = text.as_ref().map_err(|&why| why)?;
            stat::meminfo_bytes(text, key).ok_or(Absent::NotSupported)
        };
        HostSample { total: bytes("MemTotal"), available: bytes("MemAvailable") }
    }

    /// Live processes, apart from those in `except` and ourselves, that have a GPU's device file open.
    ///
    /// At most 64, lowest PIDs first; processes whose files are hidden from us are not among them ([`Self::notes`]
    /// says so).
    #[must_use]
    pub fn holders(&self, except: &BTreeSet<u32>) -> Vec<Holder> {
        let Ok((pids, _)) = descriptor::pids(&self.roots.proc) else { return Vec::new() };
        let ourselves = std::process::id();
        pids.into_iter()
            .filter(|pid| *pid != ourselves && !except.contains(pid) && self.holds_device(*pid))
            .filter_map(|pid| {
                let stat = self.stat(pid).ok()?;
                let key = ProcKey { pid, start_ticks: Some(stat.start_ticks) };
                Some(Holder { key, name: clean(&stat.comm) })
            })
            .take(MAX_HOLDERS)
            .collect()
    }

    fn holds_device(&self, pid: u32) -> bool {
        descriptor::open_files(&self.dir(pid)).is_ok_and(|mut files| {
            files.any(|file| {
                let name = Path::new(&file.target).strip_prefix(&self.roots.dev).ok().and_then(Path::to_str);
                name.is_some_and(is_gpu_device)
            })
        })
    }

    fn found(&mut self, pid: u32, stat: Stat, tick: Tick) -> ProcFacts {
        let key = ProcKey { pid, start_ticks: Some(stat.start_ticks) };
        let liveness = if stat.is_zombie() { Liveness::Zombie } else { Liveness::Alive };
        let rss = stat.rss_pages.checked_mul(rustix::param::page_size() as u64).map(Bytes);
        let entry = self.recall(pid, stat, tick.mono_ms, liveness);
        ProcFacts {
            key,
            liveness,
            info: Arc::clone(&entry.info),
            rss: rss.ok_or(Absent::NotSupported),
            host_limit: entry.host_limit,
        }
    }

    /// The entry of a process that was just seen, read anew where it is new, renamed or due.
    ///
    /// Nothing is read of a zombie that was known alive: its command line and cgroup are gone already.
    fn recall(&mut self, pid: u32, stat: Stat, now_ms: u64, liveness: Liveness) -> &Remembered {
        let known = self.remembered.get(&pid).filter(|old| old.start_ticks == stat.start_ticks);
        let kept = known.is_some_and(|old| {
            liveness == Liveness::Zombie
                || (old.comm == stat.comm && now_ms.saturating_sub(old.owner_read_ms) < OWNER_REFRESH_MS)
        });
        if !kept {
            let mut fresh = self.read(pid, stat, now_ms);
            self.make_room(pid, now_ms);
            self.watch(pid, &mut fresh);
            if let Some(old) = self.remembered.get(&pid).filter(|old| old.info == fresh.info) {
                fresh.info = Arc::clone(&old.info);
            }
            self.remembered.insert(pid, fresh);
        }
        let entry = self.remembered.get_mut(&pid).expect("either kept or inserted above");
        entry.asked_ms = now_ms;
        entry
    }

    fn read(&self, pid: u32, stat: Stat, now_ms: u64) -> Remembered {
        let dir = self.dir(pid);
        let cgroup = read_text(&dir.join("cgroup"), CGROUP_CAP).map_err(Missing::absent);
        let host_limit =
            cgroup.as_ref().map_err(|&why| why).and_then(|t| cgroup::memory_limit(t, &self.roots.cgroup));
        let mut exit = ExitWatch::default();
        if let Ok(groups) = &cgroup {
            exit.count(cgroup::kill_counters(groups, &self.roots.cgroup));
        }
        let uid = read_text(&dir.join("status"), STATUS_CAP)
            .map_err(Missing::absent)
            .and_then(|text| stat::real_uid(&text).ok_or(Absent::NotSupported));
        let info = ProcInfo {
            name: Ok(clean(&stat.comm)),
            command: command(&dir),
            uid,
            user: uid.and_then(|uid| names::user(&self.roots.passwd, uid).ok_or(Absent::NotSupported)),
            started_at: self.started_at(stat.start_ticks).ok_or(Absent::NotSupported),
            owner: cgroup.map_or_else(|_| Owner::default(), |text| self.owner(&text)),
        };
        Remembered {
            start_ticks: stat.start_ticks,
            comm: stat.comm,
            info: Arc::new(info),
            host_limit,
            exit,
            owner_read_ms: now_ms,
            asked_ms: now_ms,
        }
    }

    /// Lets `fresh`, the entry of a process that was just read, tell later how the process ended.
    fn watch(&mut self, pid: u32, fresh: &mut Remembered) {
        if let Some(old) = self.remembered.get_mut(&pid).filter(|old| old.start_ticks == fresh.start_ticks) {
            fresh.exit.adopt(&mut old.exit);
            return;
        }
        if self.remembered.values().filter(|known| known.exit.has_descriptor()).count() < MAX_DESCRIPTORS {
            fresh.exit.open(pid);
            // Between the two the PID may have become somebody else's.
            if !self.stat(pid).is_ok_and(|stat| stat.start_ticks == fresh.start_ticks) {
                fresh.exit = ExitWatch::default();
            }
        }
    }

    /// How a process ended that [`Self::facts`] has told of; `None` as long as it is there, and for one that is
    /// not known. Tells it once.
    pub fn ending(&mut self, key: ProcKey) -> Option<Ending> {
        let is_it = |started: u64| key.start_ticks == Some(started);
        let stat = self.stat(key.pid).ok().filter(|stat| is_it(stat.start_ticks));
        if stat.is_none() && self.lives_unseen(key.pid) {
            return None;
        }
        let entry = self.remembered.get_mut(&key.pid).filter(|entry| is_it(entry.start_ticks))?;
        let status = match stat {
            // A zombie that says nothing is one in order, or one that we may not inspect: it tells when it is reaped.
            Some(stat) if stat.is_zombie() => {
                ExitStatus::of_wait_status(stat.wait_status.filter(|s| *s != 0)?)
            }
            Some(_) => return None,
            None => return Some(std::mem::take(&mut entry.exit).ending(key)),
        };
        Some(Ending { status: Ok(status), ..std::mem::take(&mut entry.exit).ending(key) })
    }

    fn owner(&self, cgroup: &str) -> Owner {
        let mut owner = cgroup::owner(cgroup);
        if let Some(pod) = &mut owner.pod {
            names::complete(pod, &self.roots.pods);
        }
        owner
    }

    fn started_at(&self, start_ticks: u64) -> Option<Ts> {
        let since_boot_ms = start_ticks.checked_mul(1000)? / rustix::param::clock_ticks_per_second().max(1);
        let boot_ms = self.boot_time_s?.checked_mul(1000)?;
        Some(Ts(boot_ms.checked_add_unsigned(since_boot_ms)?))
    }

    /// A process that is no more keeps the name it had: a driver can list it, and its memory, for hours.
    fn gone(&mut self, pid: u32, tick: Tick) -> ProcFacts {
        let Some(entry) = self.remembered.get_mut(&pid) else {
            return unknown(pid, Liveness::Dead, Absent::NotSupported);
        };
        entry.asked_ms = tick.mono_ms;
        ProcFacts {
            key: ProcKey { pid, start_ticks: Some(entry.start_ticks) },
            info: Arc::clone(&entry.info),
            ..unknown(pid, Liveness::Dead, Absent::NotSupported)
        }
    }

    /// Whether a process that `/proc` does not show is there nevertheless: a signal's permission check tells.
    fn lives_unseen(&self, pid: u32) -> bool {
        let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
            return false;
        };
        self.sight.hidden && !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
    }

    /// Forgets whom nobody asks about, and where that leaves no room for `pid`, the one asked about longest ago.
    fn make_room(&mut self, pid: u32, now_ms: u64) {
        if now_ms.saturating_sub(self.swept_ms) >= SWEEP_EVERY_MS {
            self.swept_ms = now_ms;
            self.remembered.retain(|_, entry| now_ms.saturating_sub(entry.asked_ms) < FORGET_AFTER_MS);
        }
        if self.remembered.len() >= MAX_REMEMBERED && !self.remembered.contains_key(&pid) {
            let oldest = self.remembered.iter().min_by_key(|(_, entry)| entry.asked_ms).map(|(pid, _)| *pid);
            oldest.and_then(|pid| self.remembered.remove(&pid));
        }
    }

    fn stat(&self, pid: u32) -> Result<Stat, Missing> {
        let line = read_text(&self.dir(pid).join("stat"), STAT_CAP)?;
        Stat::parse(&line).ok_or(Missing::Unreadable)
    }

    fn dir(&self, pid: u32) -> PathBuf {
        self.roots.proc.join(pid.to_string())
    }
}

/// The memory limit of our own cgroup under `roots`: where a container mounts only its own group, that one.
///
/// # Errors
/// As [`ProcFacts::host_limit`].
pub(crate) fn own_limit(roots: &ProcRoots) -> Reading<Bytes> {
    let text = read_text(&roots.proc.join("self/cgroup"), CGROUP_CAP).map_err(Missing::absent)?;
    cgroup::memory_limit(&text, &roots.cgroup)
        .or_else(|_| cgroup::memory_limit(&cgroup::at_mount_root(&text), &roots.cgroup))
}

fn unknown(pid: u32, liveness: Liveness, why: Absent) -> ProcFacts {
    ProcFacts {
        key: ProcKey { pid, start_ticks: None },
        liveness,
        info: Arc::new(ProcInfo::absent(why)),
        rss: Err(why),
        host_limit: Err(why),
    }
}

/// The command line, cleaned; `NotSupported` where there is none (kernel threads, zombies).
fn command(dir: &Path) -> Reading<String> {
    let raw = read_text(&dir.join("cmdline"), COMMAND_CAP).map_err(Missing::absent)?;
    Some(clean(&raw)).filter(|text| !text.is_empty()).ok_or(Absent::NotSupported)
}

/// `nvidia0`, `nvidia17`, `nvidiactl`, `nvidia-uvm`; not `nvidia-modeset` or the capabilities' files.
fn is_gpu_device(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("nvidia") else { return false };
    matches!(rest, "ctl" | "-uvm") || (!rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
