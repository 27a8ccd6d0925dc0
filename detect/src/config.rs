//! What a user may set.

/// Settings of the detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectConfig {
    /// A forecast of exhaustion within this time is Imminent, in milliseconds.
    pub horizon_ms: u64,
    /// How long after its start a process may grow without being called a leak, in milliseconds. Measured warm-ups
    /// of engines (first long prompts, graph capture, autotuning) add 0.5 to 6 GiB in this time.
    pub warm_up_ms: u64,
}

impl Default for DetectConfig {
    fn default() -> Self {
        Self { horizon_ms: 3_600_000, warm_up_ms: 300_000 }
    }
}
