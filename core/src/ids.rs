//! What things are called: identities that survive a restart, a renumbering and a reused PID.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A GPU (or a MIG instance, or the host presented as one) by its UUID, as NVML prints it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuUuid(Arc<str>);

impl GpuUuid {
    /// Names a GPU; the text is kept as given.
    #[must_use]
    pub fn new(uuid: &str) -> Self {
        Self(uuid.into())
    }

    /// The UUID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A process. A PID alone is reused, so its start time belongs to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcKey {
    /// The process id in the namespace of the probe.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22); `None` where `/proc` does not show the
    /// process, so that its identity is only as good as its PID.
    pub start_ticks: Option<u64>,
}

impl fmt::Display for ProcKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)
    }
}

/// The place of a MIG instance on its GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MigId {
    /// The GPU that is partitioned.
    pub parent: GpuUuid,
    /// GPU instance id.
    pub gpu_instance: u32,
    /// Compute instance id.
    pub compute_instance: u32,
}
