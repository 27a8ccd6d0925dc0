//! Who is on which GPU: bare PIDs become processes, and two lists become starts and exits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ebbtide_core::units::MIB;
use ebbtide_core::{
    Absent, Bytes, Ending, EventKind, GpuKind, GpuSample, GpuUuid, Holder, Liveness, ProcKey, ProcSample,
    ProcessList, Reading, Tick, WorldEvent,
};

use crate::engine::source::EngineSource;
use crate::proc::ProcReader;
use crate::source::{RawGpu, RawList, RawProcess};

/// Memory without a listed owner is looked into from here on: more than the context of any one process, which is
/// 555 MiB at most where it is listed, and far less than an orphaned model.
const UNLISTED: Bytes = Bytes(256 * MIB);

/// Where the driver does not tell reserved memory apart, it is within used: 912 MiB on an idle A100
/// (github.com/rust-nvml/nvml-wrapper, issue 57).
const HIDDEN_RESERVE: Bytes = Bytes(1024 * MIB);

/// Lists in a row that must leave memory unexplained: one alone may have been read in the middle of an allocation.
const LISTS_IN_A_ROW: u32 = 2;

/// Holders are looked for by walking all processes' open files, so not more often than this.
const HOLDERS_INTERVAL_MS: u64 = 30_000;

/// A process can leave the driver's list long before it has ended: tens of GiB of memory take seconds to give back. One
/// that is there for longer has only let go of the GPU.
const LEAVING_MS: u64 = 60_000;

/// What is remembered of each GPU's processes between two lists.
#[derive(Debug)]
pub(crate) struct Roster {
    reader: ProcReader,
    engines: EngineSource,
    gpus: HashMap<GpuUuid, Occupants>,
    /// Processes that are no longer listed and not known to have ended, and until when that is waited for.
    leaving: BTreeMap<ProcKey, u64>,
    holders_due_ms: u64,
}

/// The processes on one GPU.
#[derive(Debug)]
struct Occupants {
    list: Reading<ProcessList>,
    /// Those alive in the newest list; `None` before the first.
    running: Option<BTreeSet<ProcKey>>,
    unexplained: u32,
    holders: Vec<Holder>,
}

impl Roster {
    /// Nobody is known yet.
    pub(crate) fn new(reader: ProcReader, engines: EngineSource) -> Self {
        Self { reader, engines, gpus: HashMap::new(), leaving: BTreeMap::new(), holders_due_ms: 0 }
    }

    /// The reader of processes.
    pub(crate) const fn reader(&self) -> &ProcReader {
        &self.reader
    }

    /// The sources of engine figures.
    pub(crate) const fn engines(&self) -> &EngineSource {
        &self.engines
    }

    /// `raw` with its processes resolved. Starts and exits since the previous list go to `events`; a GPU's first
    /// list tells of none, because what it shows may be older than we are.
    pub(crate) fn resolve(&mut self, raw: RawGpu, tick: Tick, events: &mut Vec<WorldEvent>) -> GpuSample {
        let fresh = raw.processes.as_ref().is_ok_and(|list| !self.knows(&raw.uuid, list.listed));
        let occupants = self.gpus.entry(raw.uuid.clone()).or_insert_with(Occupants::nobody);
        match &raw.processes {
            Ok(list) if fresh => {
                occupants.list = Ok(listed(&mut self.reader, list));
                for gone in occupants.compare(&raw.uuid, events) {
                    self.leaving.insert(gone, tick.mono_ms.saturating_add(LEAVING_MS));
                }
                occupants.note_unexplained(&raw);
            }
            Ok(_) => {}
            Err(why) => occupants.list = Err(*why),
        }
        if let Ok(list) = &mut occupants.list {
            list.entries.iter_mut().for_each(|process| process.engine = self.engines.read(process.key, tick));
        }
        let processes = occupants.list.clone();
        self.look_for_holders(&raw.uuid, tick);
        GpuSample {
            holders: self.gpus.get(&raw.uuid).map_or_else(Vec::new, |known| known.holders.clone()),
            uuid: raw.uuid,
            index: raw.index,
            name: raw.name,
            kind: raw.kind,
            state: raw.state,
            memory: raw.memory,
            utilization: raw.utilization,
            processes,
        }
    }

    /// How those processes ended that have left a list and are known to have ended by now.
    pub(crate) fn endings(&mut self, tick: Tick) -> Vec<Ending> {
        let mut endings = Vec::new();
        let Self { reader, leaving, .. } = self;
        leaving.retain(|key, until| {
            let ending = reader.ending(*key);
            let waits = ending.is_none() && tick.mono_ms < *until;
            endings.extend(ending);
            waits
        });
        endings
    }

    /// Forgets GPUs that are no longer there (MIG instances that were taken down).
    pub(crate) fn keep_only(&mut self, gpus: &[GpuSample]) {
        if self.gpus.len() > gpus.len() {
            self.gpus.retain(|uuid, _| gpus.iter().any(|gpu| gpu.uuid == *uuid));
        }
    }

    fn knows(&self, uuid: &GpuUuid, listed: Tick) -> bool {
        let known = self.gpus.get(uuid).and_then(|occupants| occupants.list.as_ref().ok());
        known.is_some_and(|list| list.listed.seq == listed.seq)
    }

    fn look_for_holders(&mut self, uuid: &GpuUuid, tick: Tick) {
        let wanted = self.gpus.get(uuid).is_some_and(|known| known.unexplained >= LISTS_IN_A_ROW);
        if !wanted || tick.mono_ms < self.holders_due_ms {
            return;
        }
        self.holders_due_ms = tick.mono_ms + HOLDERS_INTERVAL_MS;
        let lists = self.gpus.values().filter_map(|known| known.list.as_ref().ok());
        let named: BTreeSet<u32> = lists.flat_map(|l| &l.entries).map(|process| process.key.pid).collect();
        let holders = self.reader.holders(&named);
        for known in self.gpus.values_mut().filter(|known| known.unexplained >= LISTS_IN_A_ROW) {
            known.holders.clone_from(&holders);
        }
    }
}

impl Occupants {
    const fn nobody() -> Self {
        Self { list: Err(Absent::NotYet), running: None, unexplained: 0, holders: Vec::new() }
    }

    /// Tells of starts and exits since the list before; returns whom the new one has no longer.
    fn compare(&mut self, gpu: &GpuUuid, events: &mut Vec<WorldEvent>) -> Vec<ProcKey> {
        let Ok(list) = &self.list else { return Vec::new() };
        let alive = list.entries.iter().filter(|process| process.liveness != Liveness::Dead);
        let now: BTreeSet<ProcKey> = alive.map(|process| process.key).collect();
        let Some(before) = self.running.replace(now.clone()) else { return Vec::new() };
        let event = |&key, kind| WorldEvent { gpu: Some(gpu.clone()), proc: Some(key), kind };
        events.extend(now.difference(&before).map(|key| event(key, EventKind::ProcessStart)));
        events.extend(before.difference(&now).map(|key| event(key, EventKind::ProcessExit)));
        before.difference(&now).copied().collect()
    }

    fn note_unexplained(&mut self, gpu: &RawGpu) {
        let unexplained = unlisted(gpu).is_some_and(|bytes| bytes > UNLISTED);
        self.unexplained = if unexplained { self.unexplained.saturating_add(1) } else { 0 };
        if !unexplained {
            self.holders.clear();
        }
    }
}

/// Used memory that no listed process holds; `None` where it cannot be told, and for host memory presented as a
/// GPU, which has no device file to hold.
fn unlisted(gpu: &RawGpu) -> Option<Bytes> {
    if gpu.kind == GpuKind::HostMemory {
        return None;
    }
    let (memory, list) = (gpu.memory.ok()?, gpu.processes.as_ref().ok()?);
    let held: Reading<Bytes> = list.entries.iter().map(|process| process.memory).sum();
    let reserve = if memory.reserved.is_ok() { Bytes::ZERO } else { HIDDEN_RESERVE };
    Some(memory.used.saturating_sub(held.ok()?).saturating_sub(reserve))
}

fn listed(reader: &mut ProcReader, list: &RawList) -> ProcessList {
    let resolve = |process: &RawProcess| {
        let facts = reader.facts(process.pid, list.listed);
        ProcSample {
            key: facts.key,
            memory: process.memory,
            kinds: process.kinds,
            liveness: facts.liveness,
            info: facts.info,
            rss: facts.rss,
            host_limit: facts.host_limit,
            engine: None,
        }
    };
    ProcessList { listed: list.listed, entries: list.entries.iter().map(resolve).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::ProcRoots;
    use ebbtide_core::{DeviceMemory, ExitStatus, GpuState, MemorySource, ProcKinds};
    use std::fs::File;
    use std::process::{Child, Command, Stdio};

    /// A process that lives until it is dropped, with `out` open.
    struct Neighbour(Child);

    impl Neighbour {
        fn with(out: Stdio) -> Self {
            Self(Command::new("cat").stdin(Stdio::piped()).stdout(out).spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Neighbour {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    fn tick(seq: u64) -> Tick {
        Tick { seq, mono_ms: seq * 1_000, ..Tick::default() }
    }

    fn gpu(used_mib: u64, listed: u64, processes: &[(u32, u64)]) -> RawGpu {
        let memory = DeviceMemory {
            total: Bytes::from_mib(80_000),
            used: Bytes::from_mib(used_mib),
            free: Bytes::from_mib(80_000 - used_mib),
            reserved: Ok(Bytes::ZERO),
            source: MemorySource::NvmlV2,
        };
        let process = |&(pid, mib): &(u32, u64)| RawProcess {
            pid,
            memory: Ok(Bytes::from_mib(mib)),
            kinds: ProcKinds { compute: true, ..ProcKinds::default() },
        };
        RawGpu {
            uuid: GpuUuid::new("GPU-0"),
            index: 0,
            name: "test".into(),
            kind: GpuKind::Discrete,
            state: GpuState::Present,
            memory: Ok(memory),
            utilization: Err(Absent::NotYet),
            processes: Ok(RawList { listed: tick(listed), entries: processes.iter().map(process).collect() }),
        }
    }

    fn roster(roots: ProcRoots) -> Roster {
        Roster::new(ProcReader::new(roots).for_own_pids(), EngineSource::default())
    }

    fn kinds(roster: &mut Roster, raw: RawGpu, seq: u64) -> Vec<(u32, EventKind)> {
        let mut events = Vec::new();
        roster.resolve(raw, tick(seq), &mut events);
        events.into_iter().map(|event| (event.proc.unwrap().pid, event.kind)).collect()
    }

    #[test]
    fn starts_and_exits_are_told_between_lists_but_not_at_the_first() {
        let (one, two) = (Neighbour::with(Stdio::null()), Neighbour::with(Stdio::null()));
        let mut roster = roster(ProcRoots::default());
        let (one_pid, two_pid) = (one.pid(), two.pid());
        assert_eq!(kinds(&mut roster, gpu(10, 1, &[(one_pid, 5)]), 1), []);
        assert_eq!(kinds(&mut roster, gpu(10, 1, &[(one_pid, 5)]), 2), []);
        let both = [(one_pid, 5), (two_pid, 5)];
        assert_eq!(kinds(&mut roster, gpu(10, 3, &both), 3), [(two_pid, EventKind::ProcessStart)]);
        drop(one);
        assert_eq!(kinds(&mut roster, gpu(10, 4, &both), 4), [(one_pid, EventKind::ProcessExit)]);
        assert_eq!(kinds(&mut roster, gpu(10, 5, &[]), 5), [(two_pid, EventKind::ProcessExit)]);
    }

    #[test]
    fn it_is_told_once_how_a_process_ended_and_not_while_it_is_there() {
        let mut tenant = Neighbour::with(Stdio::null());
        let pid = tenant.pid();
        let mut roster = roster(ProcRoots::default());
        let list = |roster: &mut Roster, seq, processes: &[(u32, u64)]| {
            let mut events = Vec::new();
            let sample = roster.resolve(gpu(10, seq, processes), tick(seq), &mut events);
            (sample, roster.endings(tick(seq)))
        };
        let (first, _) = list(&mut roster, 1, &[(pid, 5)]);
        let key = first.processes.unwrap().entries[0].key;
        assert_eq!(list(&mut roster, 2, &[]).1, [], "it has left the GPU and lives");
        tenant.0.kill().unwrap();
        tenant.0.wait().unwrap();
        let endings = list(&mut roster, 3, &[]).1;
        assert_eq!(endings.len(), 1);
        assert_eq!(endings[0].proc, key);
        // Kernels before 6.15 keep it to the parent.
        assert!(
            endings[0].status.is_err() || endings[0].status == Ok(ExitStatus::Signalled(9)),
            "{endings:?}"
        );
        assert_eq!(list(&mut roster, 4, &[]).1, []);
    }

    #[test]
    fn who_has_only_let_go_of_the_gpu_is_not_waited_for_for_ever() {
        let tenant = Neighbour::with(Stdio::null());
        let mut roster = roster(ProcRoots::default());
        roster.resolve(gpu(10, 1, &[(tenant.pid(), 5)]), tick(1), &mut Vec::new());
        roster.resolve(gpu(10, 2, &[]), tick(2), &mut Vec::new());
        assert_eq!(roster.endings(tick(3)), []);
        assert_eq!(roster.leaving.len(), 1);
        assert_eq!(roster.endings(tick(3 + LEAVING_MS / 1000)), []);
        assert!(roster.leaving.is_empty());
    }

    #[test]
    fn a_process_that_is_gone_is_still_listed_with_its_memory() {
        let orphan = Neighbour::with(Stdio::null());
        let pid = orphan.pid();
        let mut roster = roster(ProcRoots::default());
        let alive = roster.resolve(gpu(10, 1, &[(pid, 5)]), tick(1), &mut Vec::new());
        drop(orphan);
        let dead = roster.resolve(gpu(10, 2, &[(pid, 5)]), tick(2), &mut Vec::new());
        let of = |sample: &GpuSample| sample.processes.as_ref().unwrap().entries[0].clone();
        assert_eq!(of(&alive).liveness, Liveness::Alive);
        assert_eq!((of(&dead).liveness, of(&dead).memory), (Liveness::Dead, Ok(Bytes::from_mib(5))));
        assert_eq!(of(&dead).key, of(&alive).key, "the same process, so the same series");
    }

    #[test]
    fn what_was_listed_stays_until_the_next_list_and_goes_when_it_cannot_be_read() {
        let mut roster = roster(ProcRoots::default());
        let pid = std::process::id();
        let first = roster.resolve(gpu(10, 1, &[(pid, 5)]), tick(1), &mut Vec::new());
        let second = roster.resolve(gpu(20, 1, &[(pid, 5)]), tick(2), &mut Vec::new());
        assert_eq!(first.processes, second.processes);
        let hung = RawGpu { processes: Err(Absent::Timeout), ..gpu(20, 1, &[]) };
        let third = roster.resolve(hung, tick(3), &mut Vec::new());
        assert_eq!(third.processes, Err(Absent::Timeout));
        assert_eq!(kinds(&mut roster, gpu(20, 4, &[(pid, 5)]), 4), [], "it never went away");
    }

    #[test]
    fn holders_are_named_while_memory_has_no_listed_owner() {
        let dev = tempfile::tempdir().unwrap();
        let holder = Neighbour::with(File::create(dev.path().join("nvidia0")).unwrap().into());
        let mut roster = roster(ProcRoots { dev: dev.path().to_owned(), ..ProcRoots::default() });
        let mut at = |seq, used| {
            let sample = roster.resolve(gpu(used, seq, &[]), tick(seq), &mut Vec::new());
            sample.holders.iter().map(|h| h.key.pid).collect::<Vec<_>>()
        };
        assert_eq!(at(1, 22_000), [0; 0], "one list may have been read in the middle of an allocation");
        assert_eq!(at(6, 22_000), [holder.pid()]);
        assert_eq!(at(11, 22_000), [holder.pid()]);
        assert_eq!(at(16, 100), [0; 0]);
    }
}
