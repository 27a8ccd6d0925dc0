//! What was read in one tick, as it was read. Nothing here is derived; see [`crate::frame`] for that.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine_report::EngineReport;
use crate::ids::{GpuUuid, MigId, ProcKey};
use crate::incident::Ending;
use crate::reading::{self, Absent, Reading};
use crate::units::{Bytes, Percent, Tick, Ts};

/// Everything that was read in one tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub tick: Tick,
    /// Each GPU known so far, lost ones included, in index order.
    pub gpus: Vec<GpuSample>,
    /// The machine around the GPUs.
    pub host: HostSample,
    /// What happened since the previous sample.
    pub events: Vec<WorldEvent>,
    /// Processes of which it was found out since the previous sample how they ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<Ending>,
    /// How the probe itself fares.
    pub probe: ProbeHealth,
}

/// One GPU in one tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    /// Its identity.
    pub uuid: GpuUuid,
    /// Its number as NVML counts now; renumbered by a reboot, so for display only.
    pub index: u32,
    /// Product name, cleaned.
    pub name: Arc<str>,
    /// What sort of memory this is.
    pub kind: GpuKind,
    /// Whether it answers.
    pub state: GpuState,
    /// The device's memory.
    #[serde(with = "reading")]
    pub memory: Reading<DeviceMemory>,
    /// Share of time in which a kernel ran: not a fill level.
    #[serde(with = "reading")]
    pub utilization: Reading<Percent>,
    /// The newest process list; read less often than memory, so it carries its own tick.
    #[serde(with = "reading")]
    pub processes: Reading<ProcessList>,
    /// Live processes that hold `/dev/nvidia*` open without standing in any list; looked for only while memory has
    /// no listed owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}

/// What sort of memory a [`GpuSample`] describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A part that shares the host's memory (GB10 and the like): used is the sum of its processes.
    Unified,
    /// A MIG instance.
    Mig(MigId),
    /// Host memory presented as one GPU, for machines without any.
    HostMemory,
}

/// Whether a GPU answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuState {
    /// It answers.
    Present,
    /// It has fallen off the bus, or wants a reset.
    Lost,
    /// A call has not come back: what is shown is old.
    Stale,
}

/// A device's memory at one instant. `total = used + free + reserved` where `reserved` is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// All of it.
    pub total: Bytes,
    /// Allocated. Without what driver and firmware reserve where `reserved` is known, with it where not.
    pub used: Bytes,
    /// Not allocated.
    pub free: Bytes,
    /// Taken by driver and firmware.
    #[serde(with = "reading")]
    pub reserved: Reading<Bytes>,
    /// Where the figures come from: never compare those of two sources.
    pub source: MemorySource,
}

/// Which account [`DeviceMemory`] was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemorySource {
    /// `nvmlDeviceGetMemoryInfo_v2`: reserved apart.
    NvmlV2,
    /// `nvmlDeviceGetMemoryInfo`: used includes reserved.
    NvmlV1,
    /// Unified memory: the sum of the processes within the host's total.
    ProcessSum,
    /// The kernel's accounts of memory files named `ebbtide-vram`.
    HostFiles,
    /// A recorded file given to `ebbtide check`.
    Recorded,
}

/// The processes on a GPU as listed at `listed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessList {
    /// The tick in which the list was read; equal to the sample's own tick when it is fresh.
    pub listed: Tick,
    /// Each process once, whatever number of lists named it; ordered by key.
    pub entries: Vec<ProcSample>,
}

/// One process on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcSample {
    /// Its identity.
    pub key: ProcKey,
    /// Its memory on this GPU, as the driver attributes it: the largest that any list gave.
    #[serde(with = "reading")]
    pub memory: Reading<Bytes>,
    /// Which lists named it.
    pub kinds: ProcKinds,
    /// Whether the process can be found.
    pub liveness: Liveness,
    /// What does not change while it lives.
    pub info: Arc<ProcInfo>,
    /// Resident host memory.
    #[serde(with = "reading")]
    pub rss: Reading<Bytes>,
    /// The memory limit of its cgroup; `NotSupported` where it has none.
    #[serde(with = "reading")]
    pub host_limit: Reading<Bytes>,
    /// The counters of the inference engine in it, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineSample>,
}

/// Which of the driver's lists named a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcKinds {
    /// The compute list.
    pub compute: bool,
    /// The graphics list.
    pub graphics: bool,
    /// The list of MPS clients.
    pub mps: bool,
}

/// Whether a listed process can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It has exited and its parent has not yet taken note (state Z or X).
    Zombie,
    /// No such process here: it is gone.
    Dead,
    /// The probe sits in a PID namespace of its own, so PIDs cannot be matched by number.
    Foreign,
}

/// What does not change while a process lives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcInfo {
    /// Short name, cleaned.
    #[serde(with = "reading")]
    pub name: Reading<String>,
    /// Command line, cleaned and capped. May hold secrets: shown locally, exported never.
    #[serde(with = "reading")]
    pub command: Reading<String>,
    /// Real user id.
    #[serde(with = "reading")]
    pub uid: Reading<u32>,
    /// User name where the host knows one.
    #[serde(with = "reading")]
    pub user: Reading<String>,
    /// Start of the process.
    #[serde(with = "reading")]
    pub started_at: Reading<Ts>,
    /// Whom it belongs to.
    pub owner: Owner,
}

impl ProcInfo {
    /// Nothing known, for the given reason.
    #[must_use]
    pub fn absent(why: Absent) -> Self {
        Self {
            name: Err(why),
            command: Err(why),
            uid: Err(why),
            user: Err(why),
            started_at: Err(why),
            owner: Owner::default(),
        }
    }
}

/// Whom a process belongs to, read from its cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Owner {
    /// systemd unit, e.g. `vllm.service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Container id (64 hex digits) of Docker, containerd, CRI-O or podman.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Kubernetes pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
}

/// A Kubernetes pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pod {
    /// Its uid, from the cgroup's path.
    pub uid: String,
    /// Its namespace, where `/var/log/pods` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A process that has a GPU's device file open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its identity.
    pub key: ProcKey,
    /// Its name, cleaned.
    pub name: String,
}

/// An inference engine's own counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineSample {
    /// KV cache in use, as `semantics` counts it.
    #[serde(with = "reading")]
    pub kv_used: Reading<Bytes>,
    /// KV cache kept for reuse that no request refers to, where `kv_used` does not count it already.
    #[serde(default = "reading::not_yet", with = "reading")]
    pub kv_cached: Reading<Bytes>,
    /// The KV pool.
    #[serde(with = "reading")]
    pub kv_pool: Reading<Bytes>,
    /// Requests being served.
    #[serde(with = "reading")]
    pub running: Reading<u32>,
    /// Requests waiting.
    #[serde(with = "reading")]
    pub waiting: Reading<u32>,
    /// Requests that it has finished since it started.
    #[serde(default = "reading::not_yet", with = "reading")]
    pub served: Reading<u64>,
    /// Tokens that it has read and written since it started.
    #[serde(default = "reading::not_yet", with = "reading")]
    pub tokens: Reading<u64>,
    /// What its allocator has taken from the driver (`torch.cuda.memory_reserved`).
    #[serde(default = "reading::not_yet", with = "reading")]
    pub arena: Reading<Bytes>,
    /// What of that is in use (`torch.cuda.memory_allocated`).
    #[serde(default = "reading::not_yet", with = "reading")]
    pub arena_used: Reading<Bytes>,
    /// What "used" means to this engine.
    pub semantics: KvSemantics,
    /// What the engine says beside this, in its own units; `None` where it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Arc<EngineReport>>,
}

impl EngineSample {
    /// Nothing known, for the given reason.
    #[must_use]
    pub const fn absent(why: Absent) -> Self {
        Self {
            kv_used: Err(why),
            kv_cached: Err(why),
            kv_pool: Err(why),
            running: Err(why),
            waiting: Err(why),
            served: Err(why),
            tokens: Err(why),
            arena: Err(why),
            arena_used: Err(why),
            semantics: KvSemantics::Unknown,
            report: None,
        }
    }
}

/// What an engine counts as used KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvSemantics {
    /// Blocks that a running request refers to (vLLM, SGLang).
    Referenced,
    /// Those and blocks kept for prefix reuse (LMDeploy).
    ReferencedAndCached,
    /// The worst case of each running request (TGI).
    Reserved,
    /// Not known.
    Unknown,
}

/// The machine around the GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Host memory.
    #[serde(with = "reading")]
    pub total: Reading<Bytes>,
    /// Host memory that could be had without swapping (`MemAvailable`).
    #[serde(with = "reading")]
    pub available: Reading<Bytes>,
}

/// Something that happened, as opposed to something that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorldEvent {
    /// On which GPU; `None` where it concerns all.
    pub gpu: Option<GpuUuid>,
    /// To which process; `None` where it concerns the device.
    pub proc: Option<ProcKey>,
    /// What.
    pub kind: EventKind,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A process appeared.
    ProcessStart,
    /// A process went.
    ProcessExit,
    /// The inference engine in a process ended.
    EngineExit,
    /// A model was loaded; its name where known.
    ModelLoad(Option<String>),
    /// A model was unloaded; its name where known.
    ModelUnload(Option<String>),
    /// The engine was told to release its memory.
    Sleep,
    /// The engine took it back.
    Wake,
    /// A container was removed.
    ContainerRemoved,
    /// The driver went and came back: all handles are new.
    DriverReload,
    /// A GPU fell off the bus.
    GpuLost,
    /// A lost GPU answers again.
    GpuBack,
    /// The driver reported an XID.
    Xid(u64),
}

/// How the probe itself fares.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProbeHealth {
    /// What is read: `nvml`, `host memory, no GPU`, `recorded file`.
    pub source: String,
    /// NVML calls since start.
    pub nvml_calls: u64,
    /// Time spent in NVML since start, in microseconds.
    pub nvml_us: u64,
    /// Ticks in which the schedule was thinned because the budget of NVML time was used up.
    pub throttled_ticks: u64,
    /// Times that NVML was opened anew.
    pub reopened: u64,
    /// Samples that could not be handed on because the pipeline was behind.
    pub dropped_samples: u64,
    /// What cannot be seen and which privilege would open it, one line each; also why there is no driver.
    pub notes: Vec<String>,
}
