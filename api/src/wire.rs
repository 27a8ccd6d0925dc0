//! The JSON that leaves the daemon. Additions are compatible; a change of meaning raises [`SCHEMA`].

use std::collections::BTreeMap;

use ebbtide_core::{
    Absent, Alert, Finding, GpuSample, GpuUuid, HostSample, Judgement, Ledger, Metric, Owner, ProbeHealth,
    Reading, SeriesKey, Severity, Tick, Ts,
};
use serde::{Deserialize, Serialize};

/// Version of the wire types.
pub const SCHEMA: u32 = 1;

/// A write-ahead log of this size cannot shrink, and it should: 64 MiB, some hours of ticks.
pub const LOG_ALARM_BYTES: u64 = 64 << 20;

/// All that the daemon knows now. One is published a tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`] of the sender.
    pub schema: u32,
    /// Version of the daemon.
    pub version: String,
    /// Name of the machine.
    pub host: String,
    /// The tick it describes.
    pub tick: Tick,
    /// The worst of what is open now.
    pub level: Level,
    /// Each GPU in index order.
    pub gpus: Vec<GpuStatus>,
    /// The machine around them.
    pub machine: HostSample,
    /// Open findings, most severe first.
    pub findings: Vec<Finding>,
    /// Alerts that are pending or firing.
    pub alerts: Vec<Alert>,
    /// How the daemon itself fares.
    pub health: Health,
}

/// One word for a whole machine; the exit code of `ebbtide status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing to see.
    Ok,
    /// Worth a look.
    Warning,
    /// Worth waking somebody.
    Critical,
    /// Not known: no driver, no reading yet, every GPU lost.
    Unknown,
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Ok,
            Severity::Warning => Self::Warning,
            Severity::Critical => Self::Critical,
        }
    }
}

/// One GPU: what was read, who holds it, what is said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuStatus {
    /// What was read.
    #[serde(flatten)]
    pub gpu: GpuSample,
    /// The newest ledger in which every term was of one instant; until there is one, the newest at all.
    pub ledger: Ledger,
    /// What is said of this GPU's series: the device's first, then the processes', then the unattributed part's.
    pub judgements: Vec<Judgement>,
}

/// How the daemon itself fares.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Health {
    /// The probe's account of itself.
    pub probe: ProbeHealth,
    /// Ticks whose commit has returned.
    pub stored_ticks: u64,
    /// The newest of them: it and all before it survive a kill of the daemon.
    pub last_stored_seq: Option<u64>,
    /// Ticks that could not be stored: the gap in the history.
    pub unstored_ticks: u64,
    /// Why nothing is being stored at the moment.
    pub store_error: Option<String>,
    /// Size of the database's write-ahead log at its last checkpoint; more than [`LOG_ALARM_BYTES`] means that some
    /// reader of the database does not let go.
    #[serde(default)]
    pub store_log_bytes: Option<u64>,
    /// Deliveries that succeeded.
    pub delivered: u64,
    /// Deliveries that were given up.
    pub undelivered: u64,
    /// Since when the daemon runs.
    pub started_at: Ts,
    /// Resident memory of the daemon.
    pub rss_bytes: Option<u64>,
    /// CPU time of the daemon since start, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Counted drops of bounded queues by name; empty when nothing was dropped.
    pub dropped: BTreeMap<String, u64>,
}

/// Which part of the history is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryQuery {
    /// Which series.
    pub series: SeriesKey,
    /// From this instant on.
    pub from: Ts,
    /// To this instant, exclusive.
    pub to: Ts,
    /// At most so many points; more are thinned by keeping each span's smallest and largest value.
    pub points: u32,
}

/// Which series are wanted: those that fulfil everything that is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SeriesQuery {
    /// On this GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUuid>,
    /// Of a process with this PID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Of this quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Of a process with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of a process in this systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Of a process in a container whose id begins so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Of a process in the pod of this name or uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Of a process in which this engine was found, in whichever case its name is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Only those that are still read.
    pub open: bool,
}

/// A series that the history holds something of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesEntry {
    /// Its name, by which a history is asked for.
    pub series: SeriesKey,
    /// The name of its process, where it has one that is known.
    pub name: Option<String>,
    /// Whom its process belongs to.
    pub owner: Owner,
    /// The engine in its process, where one was found.
    pub engine: Option<String>,
    /// Whether it is still read; a process that ended has none that is.
    pub open: bool,
}

/// Which part of the history of which series is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoriesQuery {
    /// Which series.
    pub wanted: SeriesQuery,
    /// From this instant on.
    pub from: Ts,
    /// To this instant, exclusive.
    pub to: Ts,
    /// At most so many points of each, thinned as for [`HistoryQuery`].
    pub points: u32,
}

/// Part of the history of several series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histories {
    /// Each that was wanted, in the order in which they were first seen; one without a span has nothing of that time.
    pub histories: Vec<SeriesHistory>,
    /// Where ticks were made and could not be kept, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A series, and part of its history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesHistory {
    /// Which, and whose.
    #[serde(flatten)]
    pub entry: SeriesEntry,
    /// Its spans in order of time.
    pub spans: Vec<Span>,
}

/// Part of the history of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// What was asked.
    pub series: SeriesKey,
    /// Its spans in order of time.
    pub spans: Vec<Span>,
    /// Where ticks were made and could not be kept, in order of time: what else is missing was not sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// Ticks that were made and could not be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first of them.
    pub from: Ts,
    /// The last.
    pub to: Ts,
    /// How many.
    pub ticks: u64,
    /// Why.
    pub reason: String,
}

/// One span of a series; a single sample where nothing was thinned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Its first instant.
    pub at: Ts,
    /// The smallest value; `None` where every reading was absent.
    pub min: Option<i64>,
    /// The largest value.
    pub max: Option<i64>,
    /// The last value.
    pub last: Option<i64>,
}

/// What an endpoint answers instead of a body when it cannot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong and what to do.
    pub error: String,
}

impl GpuStatus {
    /// Why the device's memory is unknown, where it is.
    #[must_use]
    pub fn memory_absent(&self) -> Option<Absent> {
        let memory: Reading<()> = self.gpu.memory.map(|_| ());
        memory.err()
    }
}
