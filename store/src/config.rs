//! How much is kept, and for how long.

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 3600 * 1000;

/// What a [`Writer`](crate::Writer) keeps. The default fits 400 series at one tick a second into about 400 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreConfig {
    /// How long every tick is kept, in milliseconds: 7 days.
    pub raw_ms: i64,
    /// How long minutes are kept, in milliseconds: 90 days.
    pub minute_ms: i64,
    /// How long quarters of an hour are kept, in milliseconds: two years.
    pub quarter_ms: i64,
    /// The size in bytes that the file does not outgrow, its log apart: 1 GiB. Before each seal what is oldest goes until
    /// a sixteenth of it is free: first ticks, then minutes, then quarters of an hour. What is not sealed yet, and
    /// findings, alerts and deliveries, stay; a cap below 16 MiB is therefore taken as 16 MiB.
    pub max_bytes: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { raw_ms: 7 * DAY_MS, minute_ms: 90 * DAY_MS, quarter_ms: 730 * DAY_MS, max_bytes: 1 << 30 }
    }
}

impl StoreConfig {
    /// The least cap: the tail, the windows that wait to be merged and the verdicts of a large machine.
    const LEAST_BYTES: u64 = 16 << 20;

    /// More bytes in use than this, and the oldest go.
    pub(crate) fn high_water(&self) -> u64 {
        let cap = self.max_bytes.max(Self::LEAST_BYTES);
        cap - cap / 16
    }
}
