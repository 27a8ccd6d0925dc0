//! How much is done with one tick.

use std::time::{Duration, Instant};

/// A step that took longer is followed by half as much, one that took less than a quarter of this by twice as much. A tick
/// can then wait for a few times this at worst, where the disk or the values turn from easy to hard, and for less than
/// 100 ms.
const STEP_TIME: Duration = Duration::from_millis(20);

/// How many things the next step takes.
#[derive(Debug)]
pub(crate) struct Pace {
    now: i64,
    most: i64,
}

impl Pace {
    /// Begins with one and comes to `most` where that is easy.
    pub(crate) const fn up_to(most: i64) -> Self {
        Self { now: 1, most }
    }

    /// How many.
    pub(crate) const fn now(&self) -> i64 {
        self.now
    }

    /// A full step began at `begun` and is done.
    pub(crate) fn note(&mut self, begun: Instant) {
        self.now = match begun.elapsed() {
            took if took > STEP_TIME => (self.now / 2).max(1),
            took if took < STEP_TIME / 4 => self.now.saturating_mul(2).min(self.most),
            _ => self.now,
        };
    }
}
