//! Who is on which GPU: bare PIDs become processes, and two lists become starts and exits.

use std::collections::{BTreeSet, HashMap};

use ebbtide_core::units::MIB;
use ebbtide_core::{
    Absent, Bytes, EventKind, GpuKind, GpuSample, GpuUuid, Holder, Liveness, ProcKey, ProcSample,
    ProcessList, Reading, Tick, WorldEvent,
};

use crate::engine_status::EngineStatusDir;
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

/// What is remembered of each GPU's processes between two lists.
#[derive(Debug)]
pub(crate) struct Roster {
    reader: ProcReader,
    engines: Option<EngineStatusDir>,
    gpus: HashMap<GpuUuid, Occupants>,
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
    pub(crate) fn new(reader: ProcReader, engines: Option<EngineStatusDir>) -> Self {
        Self { reader, engines, gpus: HashMap::new(), holders_due_ms: 0 }
    }

    /// The reader of processes.
    pub(crate) const fn reader(&self) -> &ProcReader {
        &self.reader
    }

    /// `raw` with its processes resolved. Starts and exits since the previous list go to `events`; a GPU's first
    /// list tells of none, because what it shows may be older than we are.
    pub(crate) fn resolve(&mut self, raw: RawGpu, tick: Tick, events: &mut Vec<WorldEvent>) -> GpuSample {
        let fresh = raw.processes.as_ref().is_ok_and(|list| !self.knows(&raw.uuid, list.listed));
        let occupants = self.gpus.entry(raw.uuid.clone()).or_insert_with(Occupants::nobody);
        match &raw.processes {
            Ok(list) if fresh => {
                occupants.list = Ok(listed(&mut self.reader, list));
                occupants.compare(&raw.uuid, events);
                occupants.note_unexplained(&raw);
            }
            Ok(_) => {}
            Err(why) => occupants.list = Err(*why),
        }
        if let (Some(engines), Ok(list)) = (&mut self.engines, &mut occupants.list) {
            list.entries.iter_mut().for_each(|process| process.engine = engines.read(process.key, tick));
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

    fn compare(&mut self, gpu: &GpuUuid, events: &mut Vec<WorldEvent>) {
        let Ok(list) = &self.list else { return };
        let alive = list.entries.iter().filter(|process| process.liveness != Liveness::Dead);
        let now: BTreeSet<ProcKey> = alive.map(|process| process.key).collect();
        if let Some(before) = self.running.replace(now) {
            let now = self.running.iter().flatten();
            let event = |&key, kind| WorldEvent { gpu: Some(gpu.clone()), proc: Some(key), kind };
            events.extend(now.filter(|k| !before.contains(k)).map(|k| event(k, EventKind::ProcessStart)));
            let now = self.running.as_ref();
            let gone = before.iter().filter(|k| now.is_some_and(|now| !now.contains(k)));
            events.extend(gone.map(|k| event(k, EventKind::ProcessExit)));
        }
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
