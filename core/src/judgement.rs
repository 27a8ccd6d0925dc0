//! What the detector says of a series now: the cause, and apart from it the forecast.

use serde::{Deserialize, Serialize};

use crate::finding::{Evidence, RateBand};
use crate::reading::{self, Reading};
use crate::series::SeriesRef;
use crate::units::{ByteRate, Bytes, Ts};

/// The cause of what a series does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Diagnosis {
    /// Not enough is known, or nothing holds still; the summary says why.
    Inconclusive,
    /// The floor does not rise.
    Steady,
    /// It rises, and that is not explained or not yet judged.
    Growth,
    /// The floor keeps rising at constant load.
    Leak,
    /// Constant growth became faster without a new load maximum.
    SlopeChange,
    /// It rises as a young process does.
    WarmingUp,
    /// A pool is reserved ahead and holds its size.
    Reserved,
    /// It rises as the KV cache in use does.
    KvGrowth,
    /// It rises because load reached a new maximum.
    HighWater,
    /// It rises ever more slowly.
    Settling,
    /// It rose and has found its level.
    Settled,
    /// Its owner began anew.
    Restarted,
    /// Blocks of the KV pool are held that no request explains.
    KvPoolLeak,
    /// What should have been given back at a release has not been.
    NotReleased,
    /// No live process owns it.
    Orphan,
    /// The host memory of a process keeps rising.
    HostLeak,
    /// One rank of a tensor-parallel group holds more than its peers.
    Imbalance,
    /// An allocator holds much more than is in use, and takes ever more.
    Fragmented,
    /// Held for hours by somebody who does no work.
    IdleHolder,
}

impl Diagnosis {
    /// The name in JSON, in hooks and on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        // tidy: table
        match self {
            Self::Inconclusive => "inconclusive",
            Self::Steady => "steady",
            Self::Growth => "growth",
            Self::Leak => "leak",
            Self::SlopeChange => "slope-change",
            Self::WarmingUp => "warming-up",
            Self::Reserved => "reserved",
            Self::KvGrowth => "kv-growth",
            Self::HighWater => "high-water",
            Self::Settling => "settling",
            Self::Settled => "settled",
            Self::Restarted => "restarted",
            Self::KvPoolLeak => "kv-pool-leak",
            Self::NotReleased => "not-released",
            Self::Orphan => "orphan",
            Self::HostLeak => "host-leak",
            Self::Imbalance => "imbalance",
            Self::Fragmented => "fragmented",
            Self::IdleHolder => "idle-holder",
        }
    }
}

/// The standing verdict on one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Which series.
    pub series: SeriesRef,
    /// The cause.
    pub diagnosis: Diagnosis,
    /// Since when the cause stands.
    pub since: Ts,
    /// One sentence for a person.
    pub summary: String,
    /// The newest value.
    #[serde(with = "reading")]
    pub value: Reading<Bytes>,
    /// The lower envelope now: what stays when load ebbs.
    #[serde(with = "reading")]
    pub floor: Reading<Bytes>,
    /// How fast the floor rises.
    #[serde(with = "reading")]
    pub slope: Reading<RateBand>,
    /// The slowest leak that would have been seen by now; absent until enough has been observed.
    #[serde(with = "reading")]
    pub detectable: Reading<ByteRate>,
    /// When it runs out, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
    /// What the verdict rests on.
    pub evidence: Vec<Evidence>,
}

/// When memory runs out if the present growth goes on, as a range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The capacity that is reached.
    pub capacity: Bytes,
    /// At the upper end of the rate's band.
    pub earliest: Ts,
    /// At the rate itself.
    pub expected: Ts,
    /// At the lower end of the band; `None` where that end is no growth.
    pub latest: Option<Ts>,
}
