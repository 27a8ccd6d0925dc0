//! Whether ticks still come.

use std::time::{Duration, Instant};

use crate::wire::{Level, Status};

/// Below this age a status is fresh, however fast sampling is: a busy machine may delay a few ticks.
const PATIENCE: Duration = Duration::from_secs(15);

/// The longest interval that can be configured between samples; assumed until two ticks have shown the real one.
const LONGEST_INTERVAL: Duration = Duration::from_secs(300);

/// So many missed ticks make a status stale.
const MISSED_TICKS: u32 = 3;

/// When the newest ticks came.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    last: Option<Instant>,
    interval: Option<Duration>,
}

/// Why the newest status is not fresh.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stale {
    #[error("no sample has been taken yet")]
    NoTick,
    #[error("the newest sample is {seconds} s old: the daemon's log says what it waits for")]
    Old { seconds: u64 },
}

impl Freshness {
    /// A tick came.
    pub(super) fn note(&mut self, now: Instant) {
        self.interval = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
    }

    /// The age of the newest tick, where it is fresh.
    pub(super) fn age(&self, now: Instant) -> Result<Duration, Stale> {
        let age = now.saturating_duration_since(self.last.ok_or(Stale::NoTick)?);
        let interval = self.interval.unwrap_or(LONGEST_INTERVAL);
        if age <= PATIENCE.max(interval.saturating_mul(MISSED_TICKS)) {
            Ok(age)
        } else {
            Err(Stale::Old { seconds: age.as_secs() })
        }
    }
}

/// What a status says once it is too old: what was true then is not known now.
pub(super) fn outdated(status: &Status, stale: &Stale) -> Status {
    let mut status = status.clone();
    status.level = Level::Unknown;
    status.health.probe.notes.push(stale.to_string());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn staleness_follows_the_interval_of_sampling() {
        let start = Instant::now();
        let mut freshness = Freshness::default();
        assert_eq!(freshness.age(start), Err(Stale::NoTick));
        freshness.note(start);
        assert_eq!(freshness.age(start + seconds(299)), Ok(seconds(299)), "the interval is not known yet");
        freshness.note(start + seconds(1));
        assert_eq!(freshness.age(start + seconds(16)), Ok(seconds(15)));
        assert_eq!(freshness.age(start + seconds(18)), Err(Stale::Old { seconds: 17 }));
        freshness.note(start + seconds(61));
        assert_eq!(freshness.age(start + seconds(241)), Ok(seconds(180)));
    }

    #[test]
    fn what_was_fine_long_ago_is_not_known_to_be_fine() {
        let status = Status {
            schema: crate::wire::SCHEMA,
            version: String::new(),
            host: String::new(),
            tick: ebbtide_core::Tick { seq: 1, ..ebbtide_core::Tick::default() },
            level: Level::Ok,
            gpus: Vec::new(),
            machine: ebbtide_core::HostSample {
                total: Err(ebbtide_core::Absent::NotYet),
                available: Err(ebbtide_core::Absent::NotYet),
            },
            findings: Vec::new(),
            alerts: Vec::new(),
            health: crate::wire::Health::default(),
        };
        let old = outdated(&status, &Stale::Old { seconds: 90 });
        assert_eq!(old.level, Level::Unknown);
        assert!(old.health.probe.notes.iter().any(|note| note.contains("90 s old")), "{old:?}");
        assert_eq!(old.tick, status.tick);
    }
}
