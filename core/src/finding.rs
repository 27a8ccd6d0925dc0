//! Findings: a diagnosis or a forecast that opened and resolves, with its evidence.

use serde::{Deserialize, Serialize};

use crate::judgement::Forecast;
use crate::sample::Owner;
use crate::series::SeriesRef;
use crate::units::{ByteRate, Bytes, Ts};

/// What a finding is about. Causes and forecasts stand side by side and never replace each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Cause: it rises, explained or not yet judged.
    Growth,
    /// Cause: the floor keeps rising at constant load.
    Leak,
    /// Cause: constant growth became faster.
    SlopeChange,
    /// Cause: blocks of the KV pool are held that no request explains.
    KvPoolLeak,
    /// Cause: what should have been given back at a release has not been.
    NotReleased,
    /// Cause: memory that no live process owns.
    Orphan,
    /// Cause: the host memory of a process keeps rising.
    HostLeak,
    /// Cause: one rank of a tensor-parallel group holds more than its peers.
    Imbalance,
    /// Cause: an allocator holds much more than is in use, and takes ever more.
    Fragmented,
    /// Cause: memory held for hours by somebody who does no work.
    IdleHolder,
    /// Forecast: memory runs out within the horizon.
    Imminent,
    /// Forecast: less room is left than slow growth has already taken.
    ThinHeadroom,
}

impl FindingKind {
    /// Whether it says what memory does; the others say when it runs out.
    #[must_use]
    pub const fn is_cause(self) -> bool {
        !matches!(self, Self::Imminent | Self::ThinHeadroom)
    }

    /// The name in JSON, in hooks and on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        // tidy: table
        match self {
            Self::Growth => "growth",
            Self::Leak => "leak",
            Self::SlopeChange => "slope-change",
            Self::KvPoolLeak => "kv-pool-leak",
            Self::NotReleased => "not-released",
            Self::Orphan => "orphan",
            Self::HostLeak => "host-leak",
            Self::Imbalance => "imbalance",
            Self::Fragmented => "fragmented",
            Self::IdleHolder => "idle-holder",
            Self::Imminent => "imminent",
            Self::ThinHeadroom => "thin-headroom",
        }
    }
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Seen, not confirmed.
    Early,
    /// Confirmed by every test.
    Confirmed,
}

/// How much it matters now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Worth a look in working hours.
    Warning,
    /// Worth waking somebody.
    Critical,
}

impl Severity {
    /// The name in JSON, in hooks and on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A rate with its uncertainty: an 80 % band.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateBand {
    /// The estimate.
    pub rate: ByteRate,
    /// Lower end of the band.
    pub low: ByteRate,
    /// Upper end of the band.
    pub high: ByteRate,
}

/// One fact that a verdict rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was measured, kebab-case.
    pub what: String,
    /// How much.
    pub value: f64,
    /// In which unit; empty for a bare number.
    pub unit: String,
    /// What the verdict needed, where there is a threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<f64>,
}

impl Evidence {
    /// A fact without a threshold.
    #[must_use]
    pub fn new(what: &str, value: f64, unit: &str) -> Self {
        Self { what: what.to_owned(), value, unit: unit.to_owned(), needed: None }
    }

    /// A fact against a threshold.
    #[must_use]
    pub fn against(what: &str, value: f64, unit: &str, needed: f64) -> Self {
        Self { needed: Some(needed), ..Self::new(what, value, unit) }
    }
}

/// What makes two findings the same: at most one is open for a key at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FindingKey {
    /// Which series.
    pub series: SeriesRef,
    /// What about it.
    pub kind: FindingKind,
}

/// Whom a finding is about, in words that survive a restart. The pipeline fills it in; the detector sees numbers only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Subject {
    /// The GPU's number when the finding opened.
    pub gpu_index: Option<u32>,
    /// The GPU's product name.
    pub gpu_name: String,
    /// The process's name; empty for a device series.
    pub process: String,
    /// Whom the process belongs to.
    pub owner: Owner,
}

/// A diagnosis or a forecast that opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its identity; together with `opened_at` unique for ever.
    #[serde(flatten)]
    pub key: FindingKey,
    /// Whom it is about.
    #[serde(default)]
    pub subject: Subject,
    /// How sure it is.
    pub tier: Tier,
    /// How much it matters.
    pub severity: Severity,
    /// When it was said.
    pub opened_at: Ts,
    /// When it ceased to hold.
    pub resolved_at: Option<Ts>,
    /// When what it is about began.
    pub onset_at: Option<Ts>,
    /// How fast memory grows.
    pub rate: Option<RateBand>,
    /// Growth from the onset to the newest value.
    pub grown: Option<Bytes>,
    /// When it runs out.
    pub forecast: Option<Forecast>,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// One sentence for a person at 3 a.m.
    pub summary: String,
    /// What would settle it.
    pub settle: String,
}

/// What happens to a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingEvent {
    /// It was not there before.
    Opened(Finding),
    /// Its rate, forecast, tier or severity changed.
    Updated(Finding),
    /// It holds no longer.
    Resolved(Finding),
}

impl FindingEvent {
    /// The finding as it is after the event.
    #[must_use]
    pub const fn finding(&self) -> &Finding {
        match self {
            Self::Opened(finding) | Self::Updated(finding) | Self::Resolved(finding) => finding,
        }
    }
}
