//! A card and who holds its memory.

use ebbtide_core::{Bytes, units::GIB};
use serde::{Deserialize, Serialize};

use super::Curve;

/// A simulated GPU. Device `used` is the sum of its processes, plus `unattributed`, less `shared`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// UUID, as NVML prints it.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Bus number; the address is `00000000:BUS:00.0`.
    pub pci_bus: u32,
    /// Memory of the card.
    pub total: Bytes,
    /// What driver and firmware keep: part of `used` in the v1 call, a field of its own in v2.
    pub reserved: Bytes,
    /// Memory that no process list explains.
    pub unattributed: Curve,
    /// Memory that several processes share: each is charged with it, the device holds it once.
    pub shared: Curve,
    /// Memory is the host's: the device calls answer NOT_SUPPORTED, the process lists work.
    pub unified: bool,
    /// The device calls succeed but every amount is all ones.
    pub memory_not_available: bool,
    /// Compute utilisation, per cent.
    pub utilization: u32,
    /// Share of time in which memory was read or written, per cent.
    pub memory_utilization: u32,
    /// Core temperature, degrees Celsius.
    pub temperature_c: u32,
    /// Power drawn, milliwatts.
    pub power_mw: u32,
    /// NVML architecture number (9 Hopper, 10 Blackwell); clients do not know those beyond.
    pub architecture: u32,
    /// The events it supports; a mask of event bits.
    pub supported_events: u64,
    /// Calls on the partitioned parent's lists answer NO_PERMISSION, as without the MIG monitor capability.
    pub mig_parent_denied: bool,
    /// Error correction, if the card has it.
    pub ecc: Option<Ecc>,
    /// MIG instances; any makes the GPU partitioned.
    pub mig: Vec<MigInstance>,
    /// Who holds memory.
    pub processes: Vec<Process>,
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            uuid: "GPU-00000000-0000-0000-0000-000000000000".to_owned(),
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            pci_bus: 1,
            total: Bytes(80 * GIB),
            reserved: Bytes::from_mib(600),
            unattributed: Curve::default(),
            shared: Curve::default(),
            unified: false,
            memory_not_available: false,
            utilization: 37,
            memory_utilization: 12,
            temperature_c: 54,
            power_mw: 310_000,
            architecture: 9,
            supported_events: 0xff9f,
            mig_parent_denied: false,
            ecc: Some(Ecc::default()),
            mig: Vec::new(),
            processes: Vec::new(),
        }
    }
}

impl Gpu {
    /// An 80 GiB H100 whose UUID and bus address follow from its place.
    #[must_use]
    pub fn h100(index: u32) -> Self {
        Self { uuid: uuid("GPU", index, 0), pci_bus: index + 1, ..Self::default() }
    }

    /// A part whose memory is the host's (GB10): NVML knows processes, not the device.
    #[must_use]
    pub fn gb10(index: u32) -> Self {
        Self {
            name: "NVIDIA GB10".to_owned(),
            unified: true,
            architecture: 10,
            ecc: None,
            reserved: Bytes::ZERO,
            ..Self::h100(index)
        }
    }

    /// Adds a process.
    #[must_use]
    pub fn process(mut self, process: Process) -> Self {
        self.processes.push(process);
        self
    }

    /// Sets the memory that no list explains.
    #[must_use]
    pub fn unattributed(mut self, curve: Curve) -> Self {
        self.unattributed = curve;
        self
    }

    /// Sets the memory that is charged to a second process though it is held once.
    #[must_use]
    pub fn shared(mut self, curve: Curve) -> Self {
        self.shared = curve;
        self
    }

    /// Sets the size of the card and what its driver keeps of it.
    #[must_use]
    pub const fn memory(mut self, total: Bytes, reserved: Bytes) -> Self {
        self.total = total;
        self.reserved = reserved;
        self
    }

    /// Adds a MIG instance with the next GPU instance id.
    #[must_use]
    pub fn mig(mut self, profile: &str, total: Bytes) -> Self {
        let place = self.mig.len() as u32;
        self.mig.push(MigInstance {
            uuid: uuid("MIG", self.pci_bus, place + 1),
            profile: profile.to_owned(),
            gpu_instance: place + 1,
            compute_instance: 0,
            total,
        });
        self
    }

    /// Memory in use by processes and by nobody at `at_ms`, without the reserve; on a MIG instance, its
    /// processes' only. Amounts that NVML does not know count as nothing, which keeps the identity of the device.
    #[must_use]
    pub fn used_at(&self, at_ms: i64, mig: Option<usize>) -> Bytes {
        let held: Bytes = self.listed(at_ms, mig).filter_map(|process| process.memory_at(at_ms)).sum();
        let extra = |curve: &Curve| curve.at(at_ms).unwrap_or_default();
        match mig {
            Some(_) => held,
            None => (held + extra(&self.unattributed)).saturating_sub(extra(&self.shared)),
        }
    }

    /// Processes alive at `at_ms`; with `mig`, those of that instance.
    pub fn listed(&self, at_ms: i64, mig: Option<usize>) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(move |p| p.alive_at(at_ms) && mig.is_none_or(|i| p.mig == Some(i)))
    }
}

/// Error correction: volatile counts and remapped rows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    /// Single-bit errors that were corrected.
    pub corrected: u64,
    /// Double-bit errors.
    pub uncorrected: u64,
    /// Rows remapped for correctable errors.
    pub remapped_correctable: u32,
    /// Rows remapped for uncorrectable errors.
    pub remapped_uncorrectable: u32,
    /// A remapping waits for a reset.
    pub remapping_pending: bool,
    /// A remapping failed.
    pub remapping_failed: bool,
    /// Field 230: 0 none, 1 reset the GPU, 2 reboot the node, 3 drain, 4 drain and reset.
    pub recovery_action: u32,
}

/// A MIG instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigInstance {
    /// UUID, `MIG-...`.
    pub uuid: String,
    /// Profile, as in `1g.10gb`.
    pub profile: String,
    /// GPU instance id.
    pub gpu_instance: u32,
    /// Compute instance id.
    pub compute_instance: u32,
    /// Its memory.
    pub total: Bytes,
}

/// Which of NVML's lists show a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// The compute list.
    #[default]
    Compute,
    /// The graphics list.
    Graphics,
    /// Both, with the same bytes in each.
    ComputeAndGraphics,
    /// The list of MPS clients.
    Mps,
    /// None, though it holds memory.
    Hidden,
}

/// A process that holds memory of a GPU for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its process id. Whether such a process exists on this machine is for the scenario to decide.
    pub pid: u32,
    /// The lists that show it.
    #[serde(default)]
    pub kind: ProcessKind,
    /// When it appears.
    #[serde(default)]
    pub start_ms: i64,
    /// When it is gone, if ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_ms: Option<i64>,
    /// Place of its MIG instance in `mig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<usize>,
    /// Compute utilisation, per cent.
    #[serde(default)]
    pub utilization: u32,
    /// What it holds, over the time since its start.
    pub memory: Curve,
}

impl Process {
    /// A process in the compute list, from the beginning on.
    #[must_use]
    pub const fn compute(pid: u32, memory: Curve) -> Self {
        Self {
            pid,
            kind: ProcessKind::Compute,
            start_ms: 0,
            exit_ms: None,
            mig: None,
            utilization: 0,
            memory,
        }
    }

    /// A process in the graphics list.
    #[must_use]
    pub const fn graphics(pid: u32, memory: Curve) -> Self {
        Self {
            pid,
            kind: ProcessKind::Graphics,
            start_ms: 0,
            exit_ms: None,
            mig: None,
            utilization: 0,
            memory,
        }
    }

    /// The same process in other lists.
    #[must_use]
    pub const fn kind(mut self, kind: ProcessKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same process, alive from `start_ms` until `exit_ms`.
    #[must_use]
    pub const fn span(mut self, start_ms: i64, exit_ms: Option<i64>) -> Self {
        self.start_ms = start_ms;
        self.exit_ms = exit_ms;
        self
    }

    /// The same process inside a MIG instance, given by its place.
    #[must_use]
    pub const fn in_mig(mut self, instance: usize) -> Self {
        self.mig = Some(instance);
        self
    }

    /// Whether it holds memory at `at_ms`.
    #[must_use]
    pub fn alive_at(&self, at_ms: i64) -> bool {
        self.start_ms <= at_ms && self.exit_ms.is_none_or(|end| at_ms < end)
    }

    /// What it holds at `at_ms` of the scenario; `None` where NVML does not know.
    #[must_use]
    pub fn memory_at(&self, at_ms: i64) -> Option<Bytes> {
        self.memory.at(at_ms.saturating_sub(self.start_ms))
    }
}

fn uuid(prefix: &str, index: u32, part: u32) -> String {
    format!("{prefix}-ebb71de0-0000-4000-8000-{part:04x}{index:08x}")
}
