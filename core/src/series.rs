//! Names of the series that are judged and stored.

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, ProcKey};

/// A series that is judged: one part of one GPU's memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesRef {
    /// On which GPU.
    pub gpu: GpuUuid,
    /// Which part of its memory.
    pub part: SeriesPart,
}

/// A part of a GPU's memory that has a history of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeriesPart {
    /// All that is used.
    Device,
    /// What one process holds.
    Process(ProcKey),
    /// What no process explains.
    Unattributed,
    /// The host memory of a process that uses the GPU. No part of the GPU's memory, and judged apart from it.
    Host(ProcKey),
}

/// A series that is stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesKey {
    /// On which GPU; `None` for the host's own.
    pub gpu: Option<GpuUuid>,
    /// Of which process; `None` for the device's own.
    pub proc: Option<ProcKey>,
    /// Which quantity.
    pub metric: Metric,
}

/// A quantity that is stored, with its unit in its name. The text form is what the database keeps: append, never
/// rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// All memory of a device.
    TotalBytes,
    /// Its used memory.
    UsedBytes,
    /// Its free memory.
    FreeBytes,
    /// What driver and firmware reserve.
    ReservedBytes,
    /// What no process explains; signed.
    UnattributedBytes,
    /// Share of time in which a kernel ran.
    UtilizationPercent,
    /// Number of processes in a list; present in each tick that read one.
    ListedProcesses,
    /// A process's memory on a GPU.
    ProcessBytes,
    /// A process's resident host memory.
    RssBytes,
    /// The memory limit of a process's cgroup.
    HostLimitBytes,
    /// KV cache in use.
    KvUsedBytes,
    /// KV pool.
    KvPoolBytes,
    /// Requests being served.
    RunningRequests,
    /// Requests waiting.
    WaitingRequests,
    /// Host memory.
    HostTotalBytes,
    /// Host memory that could be had without swapping.
    HostAvailableBytes,
    /// KV cache kept for reuse that no request refers to.
    KvCachedBytes,
    /// Weights of the model in a process; of an estimate its middle.
    WeightsBytes,
    /// What neither weights nor KV pool explain of a process; signed.
    RemainderBytes,
}

impl Metric {
    /// Every metric, in the order of declaration.
    pub const ALL: [Self; 19] = [
        Self::TotalBytes,
        Self::UsedBytes,
        Self::FreeBytes,
        Self::ReservedBytes,
        Self::UnattributedBytes,
        Self::UtilizationPercent,
        Self::ListedProcesses,
        Self::ProcessBytes,
        Self::RssBytes,
        Self::HostLimitBytes,
        Self::KvUsedBytes,
        Self::KvPoolBytes,
        Self::RunningRequests,
        Self::WaitingRequests,
        Self::HostTotalBytes,
        Self::HostAvailableBytes,
        Self::KvCachedBytes,
        Self::WeightsBytes,
        Self::RemainderBytes,
    ];

    /// The name in the database and in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        // tidy: table
        match self {
            Self::TotalBytes => "total-bytes",
            Self::UsedBytes => "used-bytes",
            Self::FreeBytes => "free-bytes",
            Self::ReservedBytes => "reserved-bytes",
            Self::UnattributedBytes => "unattributed-bytes",
            Self::UtilizationPercent => "utilization-percent",
            Self::ListedProcesses => "listed-processes",
            Self::ProcessBytes => "process-bytes",
            Self::RssBytes => "rss-bytes",
            Self::HostLimitBytes => "host-limit-bytes",
            Self::KvUsedBytes => "kv-used-bytes",
            Self::KvPoolBytes => "kv-pool-bytes",
            Self::RunningRequests => "running-requests",
            Self::WaitingRequests => "waiting-requests",
            Self::HostTotalBytes => "host-total-bytes",
            Self::HostAvailableBytes => "host-available-bytes",
            Self::KvCachedBytes => "kv-cached-bytes",
            Self::WeightsBytes => "weights-bytes",
            Self::RemainderBytes => "remainder-bytes",
        }
    }

    /// The metric of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for metric in Metric::ALL {
            assert_eq!(Metric::from_name(metric.name()), Some(metric));
            assert_eq!(serde_json::to_string(&metric).unwrap(), format!("\"{}\"", metric.name()));
        }
    }
}
