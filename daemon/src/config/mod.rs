//! What the daemon is told: defaults < `/etc/ebbtide/config.toml` < the user's file < environment < flags.
//!
//! Each file is checked on its own first, so that an unknown key or a wrong type is reported with its file and line;
//! then the layers are laid over each other key by key, and each key remembers which layer set it.

mod layers;

use std::num::NonZeroU32;
use std::path::PathBuf;

use ebbtide_core::Bytes;
use ebbtide_detect::DetectConfig;
use ebbtide_notify::PolicyConfig;
use ebbtide_store::StoreConfig;
use serde::{Deserialize, Serialize};

pub use ebbtide_notify::SinkConfig;
pub use layers::{ConfigError, Effective, Layer, Sources, load};

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is read, and how often.
    pub probe: ProbeSection,
    /// Where the history lies.
    pub store: StoreSection,
    /// How memory is judged.
    pub detect: DetectSection,
    /// When people are told.
    pub alerts: PolicyConfig,
    /// How people are told.
    pub sinks: Vec<SinkConfig>,
    /// Where the daemon answers.
    pub api: ApiSection,
    /// What it says of itself.
    pub log: LogSection,
}

/// What presents GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceChoice {
    /// NVIDIA's management library.
    Nvml,
    /// Host memory as one GPU, for machines without any.
    Host,
}

/// `[probe]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeSection {
    /// What presents GPUs.
    pub source: SourceChoice,
    /// Path of the library; the loader's search finds `libnvidia-ml.so.1` where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<PathBuf>,
    /// Time between samples, 100 ms to 5 min.
    pub interval_ms: u64,
    /// Least time between two process lists of one GPU.
    pub list_interval_ms: u64,
    /// Time between looks at a GPU's health, and at lost GPUs.
    pub health_interval_ms: u64,
    /// Time in NVML a minute a GPU beyond which the schedule is thinned.
    pub nvml_budget_ms_per_min: u64,
    /// Size of the card that the source `host` presents; all of host memory where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_total_mib: Option<u64>,
    /// The one process that the source `host` looks at; all where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<u32>,
    /// Directory in which ebbtide's own engines leave their counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_dir: Option<PathBuf>,
    /// Whether the listening sockets of GPU processes are asked for an engine's counters.
    pub discover_engines: bool,
    /// Time between two readings of an engine's counters.
    pub engine_interval_ms: u64,
    /// Directory with tables that override or add to those built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_tables: Option<PathBuf>,
    /// Engines to read, wherever they are.
    pub engines: Vec<EngineSection>,
}

/// `[[probe.engines]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSection {
    /// `host:port` or `http://host:port`; a port alone is on loopback.
    pub address: String,
    /// The engine's short name in docs/engines.md; without it all tables are tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The GPU process that its figures belong to; without it the owner of the socket is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Bytes of KV cache that a token takes on one GPU, for engines that count tokens and blocks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_bytes_per_token: Option<u64>,
}

impl Default for ProbeSection {
    fn default() -> Self {
        Self {
            source: SourceChoice::Nvml,
            library: None,
            interval_ms: 1_000,
            list_interval_ms: 5_000,
            health_interval_ms: 30_000,
            nvml_budget_ms_per_min: 600,
            host_total_mib: None,
            host_pid: None,
            engine_dir: None,
            discover_engines: false,
            engine_interval_ms: 5_000,
            engine_tables: None,
            engines: Vec::new(),
        }
    }
}

impl ProbeSection {
    /// Size of the card that the source `host` presents.
    #[must_use]
    pub fn host_total(&self) -> Option<Bytes> {
        self.host_total_mib.map(Bytes::from_mib)
    }
}

/// `[store]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// The database; its directory is made where it is missing.
    pub path: PathBuf,
    /// How long every tick is kept.
    pub raw_days: u32,
    /// How long minutes are kept.
    pub minute_days: u32,
    /// How long quarters of an hour are kept.
    pub quarter_days: u32,
    /// The size that the database does not outgrow: what is oldest goes first.
    pub max_mib: u32,
    /// How much of the history the detector is fed at start, so that a restart forgets nothing.
    pub replay_minutes: u32,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            path: PathBuf::from("/var/lib/ebbtide/ebbtide.db"),
            raw_days: 7,
            minute_days: 90,
            quarter_days: 730,
            max_mib: 1024,
            replay_minutes: 60,
        }
    }
}

impl StoreSection {
    /// What the store keeps.
    pub(crate) fn kept(&self) -> StoreConfig {
        StoreConfig {
            raw_ms: i64::from(self.raw_days) * DAY_MS,
            minute_ms: i64::from(self.minute_days) * DAY_MS,
            quarter_ms: i64::from(self.quarter_days) * DAY_MS,
            max_bytes: Bytes::from_mib(u64::from(self.max_mib)).0,
        }
    }
}

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 3600 * 1000;

/// `[detect]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DetectSection {
    /// Memory that runs out within this time is `imminent`.
    pub imminent_minutes: u32,
    /// How many GPUs `false_pages_per_week` is for; as many as are watched here where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_gpus: Option<NonZeroU32>,
    /// How many pages a week for a leak that is none all those GPUs together may bring.
    pub false_pages_per_week: f64,
}

impl Default for DetectSection {
    fn default() -> Self {
        let DetectConfig { fleet_gpus, false_pages_per_week, .. } = DetectConfig::default();
        Self { imminent_minutes: 60, fleet_gpus, false_pages_per_week }
    }
}

impl DetectSection {
    /// How memory is judged.
    #[must_use]
    pub fn judged(&self) -> DetectConfig {
        DetectConfig {
            horizon_ms: u64::from(self.imminent_minutes) * 60_000,
            fleet_gpus: self.fleet_gpus,
            false_pages_per_week: self.false_pages_per_week,
            ..DetectConfig::default()
        }
    }
}

/// `[api]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiSection {
    /// The unix socket; the usual places are tried where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// The least severe line that is written.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Text }
    }
}

/// Severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What an operator wants to read afterwards.
    Info,
    /// What explains a decision.
    Debug,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// `key=value` for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The shortest and the longest time between samples; the detector is built for this range.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 100..=300_000;

/// Fewer pages than one in two thousand years nobody can tell from none; more than a hundred a week nobody reads.
const FALSE_PAGES: std::ops::RangeInclusive<f64> = 1e-5..=100.0;

impl Config {
    /// What no type can say: `Err` names the key and the range.
    fn validate(&self) -> Result<(), (&'static str, String)> {
        let interval = self.probe.interval_ms;
        if !INTERVAL_MS.contains(&interval) {
            let (low, high) = (INTERVAL_MS.start(), INTERVAL_MS.end());
            return Err(("probe.interval_ms", format!("{interval} is outside {low} to {high} ms")));
        }
        if self.probe.list_interval_ms < interval {
            return Err((
                "probe.list_interval_ms",
                format!("it is shorter than the interval of {interval} ms"),
            ));
        }
        if self.probe.engine_interval_ms < interval {
            return Err((
                "probe.engine_interval_ms",
                format!("it is shorter than the interval of {interval} ms"),
            ));
        }
        if self.store.raw_days == 0 {
            return Err(("store.raw_days", "0 keeps nothing; the least is 1".to_owned()));
        }
        let pages = self.detect.false_pages_per_week;
        if !FALSE_PAGES.contains(&pages) {
            let (low, high) = (FALSE_PAGES.start(), FALSE_PAGES.end());
            return Err((
                "detect.false_pages_per_week",
                format!("{pages} is outside {low} to {high}: 0 would forbid every page"),
            ));
        }
        if self.probe.nvml_budget_ms_per_min == 0 {
            return Err((
                "probe.nvml_budget_ms_per_min",
                "a budget of 0 allows no reading at all".to_owned(),
            ));
        }
        Ok(())
    }
}

/// A sink that runs a program: for whoever configures a daemon in code.
#[must_use]
pub fn exec_sink(argv: &[&str]) -> SinkConfig {
    SinkConfig::Exec(ebbtide_notify::ExecConfig::new(argv.iter().map(|&word| word.to_owned()).collect()))
}
