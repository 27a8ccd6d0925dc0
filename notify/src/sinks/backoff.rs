//! How long to wait before another try.

use std::time::Duration;

/// Waits that double from the first to the longest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The wait after try number `attempt` (from 1). `salt` spreads it over the upper half of its length, so that a
    /// fleet does not come back to a receiver all at once.
    pub(super) fn after(&self, attempt: u32, salt: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << attempt.saturating_sub(1).min(20));
        let whole = doubled.min(self.longest);
        let spread = (salt.wrapping_add(u64::from(attempt)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u32;
        whole / 2 + whole / 2 * spread / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn waits_double_and_stay_within_their_half(attempt in 1..40_u32, salt: u64) {
            let backoff = Backoff::default();
            let wait = backoff.after(attempt, salt);
            let whole = Duration::from_secs(1 << (attempt - 1).min(9)).min(backoff.longest);
            prop_assert!(wait <= whole && wait >= whole / 2, "{wait:?} of {whole:?}");
        }
    }
}
