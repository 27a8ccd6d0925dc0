//! An allocator that holds far more than is in use, and takes ever more: its free pieces are too small to be used again.

use ebbtide_core::{Evidence, FindingKind, Severity, Tick, Tier};

use super::{Claim, Moment, bytes, seconds};
use crate::sentence;

/// What an allocator may keep unused, in MiB: caching some is its job.
const MIN_UNUSED: f64 = 2048.0;
/// The same as a share of what it has taken from the driver.
const MIN_SHARE: f64 = 0.25;
/// It must have grown by so much while it held that much unused, in MiB: what it has would have served otherwise.
const MIN_GROWN: f64 = 256.0;
/// What more was in use at some time, as a share of that growth: with more, something beside the pieces rises.
const NEEDED: f64 = 0.1;
/// For so long, in seconds.
const HELD_S: f64 = 600.0;

/// What had been taken and was in use when too much began to lie unused, and the most in use since.
#[derive(Debug, Clone, Default)]
pub(super) struct Arena {
    since: Option<Tick>,
    taken: f64,
    used: f64,
    most_used: f64,
}

impl Arena {
    /// Takes a sample. Without the allocator's own counters nothing is known of it.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let read = moment.load.arena.ok().zip(moment.load.arena_used.ok());
        let Some((taken, used)) = read.map(|(taken, used)| (taken.mib(), used.mib())) else {
            self.since = None;
            return;
        };
        if taken - used < allowed(taken) {
            self.since = None;
        } else if self.since.is_none() {
            (self.since, self.taken, self.used) = (Some(moment.tick), taken, used);
            self.most_used = used;
        }
        self.most_used = self.most_used.max(used);
    }

    /// Whether it grew although much of what it has lies unused.
    pub(super) fn claim(&self, moment: &Moment<'_>) -> Option<Claim> {
        let since = self.since.filter(|since| seconds(*since, moment.tick) >= HELD_S)?;
        let (taken, used) = (moment.load.arena.ok()?.mib(), moment.load.arena_used.ok()?.mib());
        // What was needed at some time since was taken by right.
        let grown = taken - self.taken - (self.most_used - self.used);
        (grown >= MIN_GROWN).then(|| Claim {
            kind: FindingKind::Fragmented,
            tier: Tier::Confirmed,
            severity: Severity::Warning,
            since,
            amount: bytes(taken - used),
            accounts_for_rise: self.most_used - self.used < NEEDED * grown,
            rate: None,
            evidence: vec![
                Evidence::against("unused", taken - used, "MiB", allowed(taken)),
                Evidence::new("taken", taken, "MiB"),
                Evidence::new("used", used, "MiB"),
                Evidence::new("most-used", self.most_used, "MiB"),
                Evidence::against("grown", grown, "MiB", MIN_GROWN),
            ],
            summary: sentence::fragmented(bytes(taken - used), bytes(taken), bytes(grown)),
            settle: sentence::SETTLE_FRAGMENTED,
        })
    }
}

/// How much may lie unused, in MiB.
fn allowed(taken: f64) -> f64 {
    (MIN_SHARE * taken).max(MIN_UNUSED)
}
