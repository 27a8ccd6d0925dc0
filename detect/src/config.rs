//! What a user may set.

use std::num::NonZeroU32;

/// Settings of the detector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectConfig {
    /// A forecast of exhaustion within this time is Imminent, in milliseconds.
    pub horizon_ms: u64,
    /// How long after its start a process may grow without being called a leak, in milliseconds. Measured warm-ups
    /// of engines (first long prompts, graph capture, autotuning) add 0.5 to 6 GiB in this time.
    pub warm_up_ms: u64,
    /// How many GPUs share the false pages; `None` is one, and a daemon puts in as many as it watches.
    pub fleet_gpus: Option<NonZeroU32>,
    /// How many pages a week for a leak that is none the whole fleet may bring; above 0.
    pub false_pages_per_week: f64,
}

impl Default for DetectConfig {
    fn default() -> Self {
        Self { horizon_ms: 3_600_000, warm_up_ms: 300_000, fleet_gpus: None, false_pages_per_week: 0.1 }
    }
}
