//! The seam between what reads a GPU and what makes a sample of it.

use ebbtide_core::{
    DeviceMemory, GpuKind, GpuState, GpuUuid, Percent, ProbeHealth, ProcKinds, Reading, Tick, WorldEvent,
};
use std::sync::Arc;

/// Somebody who can read GPUs: NVML, or the host presented as a GPU.
pub trait GpuSource: Send {
    /// Reads what is due at `tick`. Returns within the source's own deadline whatever the driver does.
    fn sweep(&mut self, tick: Tick) -> Sweep;
}

/// What one sweep brought.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Each GPU known so far, in index order.
    pub gpus: Vec<RawGpu>,
    /// What the source noticed since the last sweep.
    pub events: Vec<WorldEvent>,
    /// How the source fares.
    pub health: ProbeHealth,
}

/// One GPU as its driver tells it: PIDs are bare numbers yet.
#[derive(Debug, Clone)]
pub struct RawGpu {
    /// Its identity.
    pub uuid: GpuUuid,
    /// Its number.
    pub index: u32,
    /// Product name, cleaned.
    pub name: Arc<str>,
    /// What sort of memory it has.
    pub kind: GpuKind,
    /// Whether it answers.
    pub state: GpuState,
    /// Its memory.
    pub memory: Reading<DeviceMemory>,
    /// How busy it is.
    pub utilization: Reading<Percent>,
    /// The newest process list and the tick it was read in.
    pub processes: Reading<RawList>,
}

/// A process list as read at `listed`.
#[derive(Debug, Clone)]
pub struct RawList {
    /// When it was read.
    pub listed: Tick,
    /// Each PID once, ordered.
    pub entries: Vec<RawProcess>,
}

/// One listed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawProcess {
    /// Its id in the namespace the driver answers in.
    pub pid: u32,
    /// Its memory: the largest that any list gave.
    pub memory: Reading<ebbtide_core::Bytes>,
    /// Which lists named it.
    pub kinds: ProcKinds,
}
