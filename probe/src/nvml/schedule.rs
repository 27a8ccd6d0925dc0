//! When to ask for what is not read each tick. Time is a tick's monotonic clock, in milliseconds.

use ebbtide_core::Bytes;
use ebbtide_core::units::MIB;
use std::time::Duration;

/// Two passes of lists over one GPU are at least this far apart, whatever is configured and however fast memory
/// moves: a list holds the driver's lock for milliseconds (4.5 ms measured on a laptop GPU, more with many clients).
pub(super) const LIST_FLOOR: Duration = Duration::from_secs(5);

/// Ticks come a few milliseconds early or late; without this, a list that is due every five ticks would slip to
/// every sixth.
const EARLY_MS: u64 = 20;

/// A list is read early when used memory has moved by this much since the last one: less is the noise of an
/// allocator, more is a model or a pool coming or going.
const MOVED: Bytes = Bytes(64 * MIB);

/// When the process lists of one GPU are due.
#[derive(Debug, Clone)]
pub(super) struct ListSchedule {
    interval_ms: u64,
    phase_ms: u64,
    due_ms: u64,
    last: Option<(u64, Option<Bytes>)>,
}

impl ListSchedule {
    /// Lists each `interval`, the first at once, the later ones `phase` out of step with those of other GPUs.
    pub(super) fn new(interval: Duration, phase: Duration) -> Self {
        Self { interval_ms: millis(interval.max(LIST_FLOOR)), phase_ms: millis(phase), due_ms: 0, last: None }
    }

    /// Whether lists are to be read now that `used` is in use.
    pub(super) fn is_due(&self, now_ms: u64, used: Option<Bytes>) -> bool {
        let Some((last_ms, last_used)) = self.last else { return true };
        let rested = now_ms.saturating_sub(last_ms) + EARLY_MS >= millis(LIST_FLOOR);
        let moved = match (used, last_used) {
            (Some(now), Some(then)) => now.0.abs_diff(then.0) > MOVED.0,
            _ => false,
        };
        rested && (moved || now_ms + EARLY_MS >= self.due_ms)
    }

    /// Notes that lists were read.
    pub(super) fn done(&mut self, now_ms: u64, used: Option<Bytes>) {
        let planned = match self.last {
            None => now_ms + self.interval_ms + self.phase_ms,
            Some(_) => self.due_ms + self.interval_ms,
        };
        let soonest = now_ms + self.interval_ms - EARLY_MS;
        self.due_ms = if planned < soonest { now_ms + self.interval_ms } else { planned };
        self.last = Some((now_ms, used));
    }
}

/// The first wait before something that failed is tried again.
const FIRST_DELAY_MS: u64 = 1_000;

/// The longest wait between tries: a driver is loaded, a GPU reset, by people, who should not wait for us longer.
const LAST_DELAY_MS: u64 = 30_000;

/// Tries that grow rarer: after 1 s, doubling to 30 s. Nobody sleeps; each tick asks.
#[derive(Debug, Clone, Default)]
pub(super) struct Backoff {
    delay_ms: u64,
    next_ms: u64,
}

impl Backoff {
    /// Whether it is time to try.
    pub(super) const fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.next_ms
    }

    /// Notes a try that failed, or the failure that calls for one.
    pub(super) fn failed(&mut self, now_ms: u64) {
        self.delay_ms = (self.delay_ms * 2).clamp(FIRST_DELAY_MS, LAST_DELAY_MS);
        self.next_ms = now_ms + self.delay_ms;
    }

    /// Forgets all failures.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Something done at once and then each interval.
#[derive(Debug, Clone)]
pub(super) struct Cadence {
    interval_ms: u64,
    due_ms: u64,
}

impl Cadence {
    /// Due at once, then each `interval`.
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval_ms: millis(interval), due_ms: 0 }
    }

    /// Whether it is due; if so, the next time is an interval away.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        let due = now_ms + EARLY_MS >= self.due_ms;
        if due {
            self.due_ms = now_ms + self.interval_ms;
        }
        due
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passes(interval_s: u64, step_ms: u64, used: impl Fn(u64) -> Bytes) -> Vec<u64> {
        let mut schedule = ListSchedule::new(Duration::from_secs(interval_s), Duration::ZERO);
        let mut at = Vec::new();
        for now_ms in (0..300_000).step_by(usize::try_from(step_ms).unwrap()) {
            let used = Some(used(now_ms));
            if schedule.is_due(now_ms, used) {
                schedule.done(now_ms, used);
                at.push(now_ms);
            }
        }
        at
    }

    #[test]
    fn lists_come_at_once_and_then_each_interval() {
        assert_eq!(passes(10, 1_000, |_| Bytes::ZERO)[..4], [0, 10_000, 20_000, 30_000]);
        assert_eq!(passes(1, 1_000, |_| Bytes::ZERO)[..3], [0, 5_000, 10_000], "never below the floor");
    }

    #[test]
    fn a_jump_brings_the_list_forward() {
        let jump = |ms| if ms >= 62_000 { Bytes::from_mib(900) } else { Bytes::ZERO };
        assert!(passes(30, 1_000, jump).contains(&65_000));
    }

    #[test]
    fn phases_keep_gpus_apart_after_the_first_pass() {
        let mut schedule = ListSchedule::new(LIST_FLOOR, Duration::from_millis(2_500));
        schedule.done(1_000, None);
        assert!(!schedule.is_due(7_000, None) && schedule.is_due(8_500, None));
    }

    #[test]
    fn tries_grow_rarer_and_start_afresh() {
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        let mut now = 0;
        while waits.len() < 7 {
            backoff.failed(now);
            let next = (now..).step_by(1_000).find(|&t| backoff.is_due(t)).unwrap();
            waits.push((next - now) / 1_000);
            now = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert!(backoff.is_due(now));
    }

    proptest! {
        /// However fast memory moves and however often we look: never two passes within the floor.
        #[test]
        fn passes_keep_their_distance(step in 50u64..3_000, interval in 0u64..40, speed in 0u64..1 << 30) {
            let at = passes(interval, step, |ms| Bytes(ms * speed));
            prop_assert!(at.windows(2).all(|w| w[1] - w[0] + EARLY_MS >= 5_000));
            prop_assert!(at.windows(2).all(|w| w[1] - w[0] <= interval.max(5) * 1_000 + step));
        }
    }
}
