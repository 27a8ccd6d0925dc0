//! Host memory presented as one GPU, so that everything runs on a machine without any.
//!
//! Measured from outside by the kernel's own accounts: the blocks allocated to each memory file named
//! [`ebbtide_core::engine_status::VRAM_FILE`] that a process holds open. That is exact to the page, and a hole punched into the file shows at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use ebbtide_core::text::clean;
use ebbtide_core::{
    Absent, Bytes, DeviceMemory, GpuKind, GpuState, GpuUuid, MemorySource, ProbeHealth, ProcKinds, Reading,
    Tick,
};

use crate::proc::descriptor::{self, OpenFile};
use crate::proc::file::{Missing, read_text};
use crate::proc::{ProcReader, ProcRoots, own_limit};
use crate::source::{GpuSource, RawGpu, RawList, RawProcess, Sweep};

/// What [`ProbeHealth::source`] says, wherever it is shown.
pub const SOURCE: &str = "host memory, no GPU";

/// What the link of a file named [`ebbtide_core::engine_status::VRAM_FILE`] reads (kernel mm/memfd.c: the name behind `memfd:`, always unlinked).
const VRAM_LINK: &str = "/memfd:ebbtide-vram (deleted)";
/// `st_blocks` counts in units of 512 bytes whatever the file system's block size (stat(2)).
const BLOCK: u64 = 512;
/// All processes are searched this often; those known to hold such a file are read in each sweep.
const SEARCH_EVERY_MS: u64 = 3000;
/// Holders kept in sight, as many as the driver lists for a GPU at most.
const MAX_KNOWN: usize = 950;
/// Machine and boot ids are 32 to 36 characters.
const ID_CAP: u64 = 64;

/// How host memory is to be presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGpuConfig {
    /// Size of the card; by default what this process may have: the host's memory or the limit of our cgroup.
    pub total: Option<Bytes>,
    /// The one process whose memory counts; by default that of all.
    pub only: Option<u32>,
    /// Product name of the card.
    pub name: String,
}

impl Default for HostGpuConfig {
    fn default() -> Self {
        Self { total: None, only: None, name: "Host memory".to_owned() }
    }
}

/// Host memory as one GPU.
#[derive(Debug)]
pub struct HostGpu {
    roots: ProcRoots,
    uuid: GpuUuid,
    name: Arc<str>,
    total: Reading<Bytes>,
    only: Option<u32>,
    known: BTreeSet<u32>,
    searched_ms: Option<u64>,
    unsearched: usize,
}

/// A file's identity while it is open anywhere.
type FileId = (u64, u64);

impl HostGpu {
    /// Presents the memory of the host whose files are under `roots`.
    #[must_use]
    pub fn new(config: &HostGpuConfig, roots: ProcRoots) -> Self {
        let total = config.total.map_or_else(|| host_total(&roots), Ok);
        Self {
            uuid: uuid(&roots),
            name: clean(&config.name).into(),
            total,
            only: config.only,
            known: BTreeSet::new(),
            searched_ms: None,
            unsearched: 0,
            roots,
        }
    }

    /// Looks for holders among all processes when that is due.
    fn search(&mut self, tick: Tick) -> Result<(), Missing> {
        if self.searched_ms.is_some_and(|last| tick.mono_ms.saturating_sub(last) < SEARCH_EVERY_MS) {
            return Ok(());
        }
        let (pids, left_out) = descriptor::pids(&self.roots.proc)?;
        self.searched_ms = Some(tick.mono_ms);
        let counts = |pid: &u32| self.only.is_none_or(|only| only == *pid) && self.holds(*pid);
        let holders: Vec<u32> = pids.into_iter().filter(counts).collect();
        self.unsearched = left_out + holders.len().saturating_sub(MAX_KNOWN);
        self.known = holders.into_iter().take(MAX_KNOWN).collect();
        Ok(())
    }

    fn holds(&self, pid: u32) -> bool {
        descriptor::open_files(&self.dir(pid)).is_ok_and(|mut files| files.any(|file| is_vram(&file)))
    }

    /// The memory files of each known holder, each file once however often it is open. Who holds none any more is
    /// known no longer.
    fn measure(&mut self) -> BTreeMap<u32, BTreeMap<FileId, u64>> {
        let mut held = BTreeMap::new();
        for pid in &self.known {
            let Ok(open) = descriptor::open_files(&self.dir(*pid)) else { continue };
            let files: BTreeMap<FileId, u64> =
                open.filter(is_vram).filter_map(|f| allocated(&f.path)).collect();
            if !files.is_empty() {
                held.insert(*pid, files);
            }
        }
        self.known = held.keys().copied().collect();
        held
    }

    fn dir(&self, pid: u32) -> std::path::PathBuf {
        self.roots.proc.join(pid.to_string())
    }

    fn notes(&self) -> Vec<String> {
        let note =
            format!("{} processes were not searched for memory files: there are too many", self.unsearched);
        (self.unsearched > 0).then_some(note).into_iter().collect()
    }
}

impl GpuSource for HostGpu {
    fn sweep(&mut self, tick: Tick) -> Sweep {
        let searched = self.search(tick).map_err(Missing::absent);
        let held = searched.map(|()| self.measure());
        let gpu = RawGpu {
            uuid: self.uuid.clone(),
            index: 0,
            name: Arc::clone(&self.name),
            kind: GpuKind::HostMemory,
            state: GpuState::Present,
            memory: held.as_ref().map_err(|&why| why).and_then(|held| Ok(card(self.total?, used(held)))),
            utilization: Err(Absent::NotSupported),
            processes: held.map(|held| RawList { listed: tick, entries: entries(&held) }),
        };
        let health = ProbeHealth { source: SOURCE.to_owned(), notes: self.notes(), ..ProbeHealth::default() };
        Sweep { gpus: vec![gpu], events: Vec::new(), health }
    }
}

/// The card with `used` bytes taken. It cannot hold more than it has: what processes have beyond that shows as
/// negative unattributed memory, as an overcommitment would.
fn card(total: Bytes, used: Bytes) -> DeviceMemory {
    let used = used.min(total);
    let free = total.saturating_sub(used);
    DeviceMemory { total, used, free, reserved: Ok(Bytes::ZERO), source: MemorySource::HostFiles }
}

/// All that is allocated, a file shared by several processes counted once.
fn used(held: &BTreeMap<u32, BTreeMap<FileId, u64>>) -> Bytes {
    let distinct: BTreeMap<FileId, u64> = held.values().flatten().map(|(id, bytes)| (*id, *bytes)).collect();
    distinct.into_values().map(Bytes).sum()
}

fn entries(held: &BTreeMap<u32, BTreeMap<FileId, u64>>) -> Vec<RawProcess> {
    held.iter()
        .map(|(pid, files)| RawProcess {
            pid: *pid,
            memory: Ok(files.values().copied().map(Bytes).sum()),
            kinds: ProcKinds { compute: true, ..ProcKinds::default() },
        })
        .collect()
}

fn is_vram(file: &OpenFile) -> bool {
    file.target == VRAM_LINK
}

/// Identity and allocated bytes of the open file behind `link`; `None` where it was closed meanwhile.
fn allocated(link: &Path) -> Option<(FileId, u64)> {
    let file = std::fs::metadata(link).ok()?;
    Some(((file.dev(), file.ino()), file.blocks().saturating_mul(BLOCK)))
}

/// What this process may have: the host's memory, or less where our cgroup has a limit.
fn host_total(roots: &ProcRoots) -> Reading<Bytes> {
    let host = ProcReader::new(roots.clone()).host().total?;
    Ok(own_limit(roots).map_or(host, |limit| limit.min(host)))
}

/// `HOST-` and a digest of the machine's id (of the boot's where the machine has none), so that history goes on
/// after a restart and the id itself, which machine-id(5) asks to keep to oneself, is not shown.
fn uuid(roots: &ProcRoots) -> GpuUuid {
    let boot_id = roots.proc.join("sys/kernel/random/boot_id");
    let id = read_text(&roots.machine_id, ID_CAP)
        .ok()
        .filter(|id| !id.trim().is_empty())
        .or_else(|| read_text(&boot_id, ID_CAP).ok())
        .unwrap_or_default();
    GpuUuid::new(&format!("HOST-{:016x}", fnv1a(id.trim().as_bytes())))
}

/// FNV-1a, 64 bits (RFC 9923): the same in every release, unlike the standard library's hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::Ts;
    use ebbtide_core::engine_status::VRAM_FILE;
    use ebbtide_core::units::MIB;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
    use std::os::fd::OwnedFd;

    fn tick(mono_ms: u64) -> Tick {
        Tick { seq: mono_ms, at: Ts(0), mono_ms }
    }

    fn vram(bytes: u64) -> OwnedFd {
        let file = memfd_create(VRAM_FILE, MemfdFlags::CLOEXEC).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
        file
    }

    /// What the card reads and what the test process holds of it.
    fn read(gpu: &mut HostGpu, mono_ms: u64) -> (DeviceMemory, Option<Bytes>) {
        let sweep = gpu.sweep(tick(mono_ms));
        let list = sweep.gpus[0].processes.as_ref().unwrap();
        assert_eq!(list.listed, tick(mono_ms));
        let ours = list.entries.iter().find(|entry| entry.pid == std::process::id());
        (sweep.gpus[0].memory.unwrap(), ours.map(|entry| entry.memory.unwrap()))
    }

    #[test]
    fn every_page_taken_and_given_back_shows_at_once() {
        let config = HostGpuConfig { total: Some(Bytes::from_mib(2048)), ..HostGpuConfig::default() };
        let mut gpu = HostGpu::new(&config, ProcRoots::default());
        let nothing = read(&mut gpu, 0);
        assert_eq!(nothing.1, None);
        let first = vram(8 * MIB);
        assert_eq!(read(&mut gpu, SEARCH_EVERY_MS - 1).1, None, "not searched yet");
        let (card, ours) = read(&mut gpu, SEARCH_EVERY_MS);
        assert_eq!(ours, Some(Bytes::from_mib(8)));
        assert_eq!(card.used + card.free, card.total);
        let second = vram(MIB);
        let again = first.try_clone().unwrap();
        assert_eq!(
            read(&mut gpu, SEARCH_EVERY_MS + 1).1,
            Some(Bytes::from_mib(9)),
            "a file opened twice counts once"
        );
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&first, hole, MIB, MIB).unwrap();
        assert_eq!(read(&mut gpu, SEARCH_EVERY_MS + 2).1, Some(Bytes::from_mib(8)));
        let other = HostGpuConfig { only: Some(1), ..config };
        assert_eq!(
            read(&mut HostGpu::new(&other, ProcRoots::default()), 0).1,
            None,
            "another one is looked at"
        );
        drop((first, again, second));
        assert_eq!(read(&mut gpu, SEARCH_EVERY_MS + 3).1, None);
    }

    #[test]
    fn a_shared_file_is_used_once_and_an_overfull_card_stays_whole() {
        let file = ((1, 1), 3 * MIB);
        let held = BTreeMap::from([(7, BTreeMap::from([file])), (8, BTreeMap::from([file, ((1, 2), MIB)]))]);
        assert_eq!(used(&held), Bytes::from_mib(4));
        let sum: Bytes = entries(&held).iter().map(|e| e.memory.unwrap()).sum();
        assert_eq!(sum, Bytes::from_mib(7));
        let overfull = card(Bytes(10), Bytes(15));
        assert_eq!((overfull.used, overfull.free), (Bytes(10), Bytes(0)));
    }

    #[test]
    fn the_card_is_named_after_the_machine_without_telling_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let machine_id = dir.path().join("machine-id");
        std::fs::write(&machine_id, "0123456789abcdef0123456789abcdef\n").unwrap();
        let roots = ProcRoots { machine_id, ..ProcRoots::default() };
        let first = uuid(&roots);
        assert_eq!(first, uuid(&roots));
        assert!(first.as_str().starts_with("HOST-") && !first.as_str().contains("0123456789abcdef"));
        let boot = uuid(&ProcRoots { machine_id: dir.path().join("none"), ..roots });
        assert_ne!(first, boot);
    }

    #[test]
    fn without_proc_the_card_says_so_instead_of_reading_zero() {
        let dir = tempfile::tempdir().unwrap();
        let roots = ProcRoots { proc: dir.path().join("none"), ..ProcRoots::default() };
        let sweep = HostGpu::new(&HostGpuConfig::default(), roots).sweep(tick(0));
        assert_eq!(sweep.gpus[0].memory, Err(Absent::NotSupported));
        assert!(sweep.gpus[0].processes.is_err());
        assert_eq!(sweep.health.source, SOURCE);
    }
}
