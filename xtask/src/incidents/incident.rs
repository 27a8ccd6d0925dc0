//! The incidents as they stand in the fixtures.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// One public incident.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Incident {
    pub(super) id: String,
    pub(super) verdict: Verdict,
    pub(super) alert: bool,
    pub(super) facts: Facts,
    pub(super) shape: Series,
    /// What the facts state and the shape does not.
    #[serde(skip)]
    pub(super) stated: Vec<Stated>,
}

/// What the thread came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Leak,
    HostLeak,
    KvPoolLeak,
    Orphan,
    NotReleased,
    OomRiskNotLeak,
    NotLeak,
    MeasurementArtifact,
    Unresolved,
}

impl Verdict {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::HostLeak => "host_leak",
            Self::KvPoolLeak => "kv_pool_leak",
            Self::Orphan => "orphan",
            Self::NotReleased => "not_released",
            Self::OomRiskNotLeak => "oom_risk_not_leak",
            Self::NotLeak => "not_leak",
            Self::MeasurementArtifact => "measurement_artifact",
            Self::Unresolved => "unresolved",
        }
    }
}

/// The facts that playing and scoring need.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Facts {
    pub(super) shape_basis: String,
    pub(super) total_mib: Option<f64>,
}

/// A series and those beside it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Series {
    pub(super) metric: String,
    pub(super) phases: Vec<Phase>,
    #[serde(default)]
    pub(super) companion: Vec<Series>,
}

/// A stretch of a series.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Phase {
    pub(super) kind: PhaseKind,
    pub(super) duration_s: f64,
    pub(super) from_mib: f64,
    pub(super) to_mib: f64,
    #[serde(default)]
    pub(super) noise_mib: f64,
    #[serde(default)]
    pub(super) period_s: f64,
}

/// How a phase gets from its beginning to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PhaseKind {
    Flat,
    Linear,
    Drop,
    Saturating,
    Exp,
    Step,
    Sawtooth,
}

/// An event or a limit that the facts state.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Stated {
    id: String,
    /// The event, at the start of `phase`, or at each jump of it.
    pub(super) event: Option<String>,
    #[serde(default)]
    pub(super) phase: usize,
    #[serde(default)]
    pub(super) each_period: bool,
    pub(super) host_limit_mib: Option<f64>,
}

/// Reads the incidents and what is stated beside them.
pub(super) fn read(folder: &Path) -> Result<Vec<Incident>> {
    let mut incidents: Vec<Incident> = lines(&folder.join("incidents.jsonl"))?;
    let stated: Vec<Stated> = lines(&folder.join("stated.jsonl"))?;
    for incident in &mut incidents {
        incident.stated = stated.iter().filter(|stated| stated.id == incident.id).cloned().collect();
    }
    Ok(incidents)
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .with_context(|| format!("{}:{} is not as expected", path.display(), number + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}
