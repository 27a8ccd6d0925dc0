//! How much of the driver's time one GPU may cost.
//!
//! Every call holds a lock inside the driver that the GPU's own users need too, so time is the price of a reading.

use std::time::Duration;

/// The span that a budget is given for.
const SPAN: Duration = Duration::from_secs(60);

/// The share of a full bucket that is kept for memory figures: lists are thinned before them.
const KEPT_FOR_MEMORY: f64 = 0.25;

/// A token bucket of driver time: full after a minute of rest, in debt after an expensive call.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    capacity_us: f64,
    tokens_us: f64,
    refilled_ms: Option<u64>,
}

impl Budget {
    /// A full bucket that allows `per_minute` of driver time a minute.
    pub(super) fn new(per_minute: Duration) -> Self {
        let capacity_us = per_minute.as_micros() as f64;
        Self { capacity_us, tokens_us: capacity_us, refilled_ms: None }
    }

    /// Adds what the time since the last call to this brought.
    pub(super) fn refill(&mut self, now_ms: u64) {
        let rested_ms = self.refilled_ms.map_or(0, |then| now_ms.saturating_sub(then));
        self.refilled_ms = Some(now_ms);
        let gained = self.capacity_us * rested_ms as f64 / SPAN.as_millis() as f64;
        self.tokens_us = (self.tokens_us + gained).min(self.capacity_us);
    }

    /// Takes what was spent. Debt is capped at one span's worth: a call that hung for minutes must not blind the
    /// GPU for hours.
    pub(super) fn charge(&mut self, spent: Duration) {
        self.tokens_us = (self.tokens_us - spent.as_micros() as f64).max(-self.capacity_us);
    }

    /// Whether memory may be read.
    pub(super) fn allows_memory(&self) -> bool {
        self.tokens_us > 0.0
    }

    /// Whether process lists may be read.
    pub(super) fn allows_lists(&self) -> bool {
        self.tokens_us > self.capacity_us * KEPT_FOR_MEMORY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_go_first_and_memory_goes_last() {
        let mut budget = Budget::new(Duration::from_millis(600));
        budget.refill(0);
        budget.charge(Duration::from_millis(500));
        assert!(budget.allows_memory() && !budget.allows_lists());
        budget.charge(Duration::from_millis(100));
        assert!(!budget.allows_memory());
        budget.refill(6_000);
        assert!(budget.allows_memory() && !budget.allows_lists());
    }

    #[test]
    fn a_call_that_hung_for_an_hour_costs_a_minute() {
        let mut budget = Budget::new(Duration::from_millis(600));
        budget.refill(0);
        budget.charge(Duration::from_secs(3600));
        budget.refill(60_001);
        assert!(budget.allows_memory());
    }

    proptest! {
        /// However dear a call is, no more than the budget and one call is spent over many minutes.
        #[test]
        fn spending_stays_within_the_budget(cost_us in 100u64..400_000, step_ms in 100u64..5_000) {
            let mut budget = Budget::new(Duration::from_millis(600));
            let (mut spent_us, mut now_ms) = (0, 0);
            while now_ms < 20 * 60_000 {
                budget.refill(now_ms);
                if budget.allows_memory() {
                    budget.charge(Duration::from_micros(cost_us));
                    spent_us += cost_us;
                }
                now_ms += step_ms;
            }
            prop_assert!(spent_us <= 21 * 600_000 + cost_us);
        }
    }
}
