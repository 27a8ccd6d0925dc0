//! Less room is left than slow growth has taken already: the silent partner of most failures near the limit.

use ebbtide_core::{Bytes, Evidence, FindingKind, Severity, Tick, Tier};

use super::{Claim, Moment, bytes, seconds};
use crate::sentence;

/// Room below this is thin, in MiB: public failures had 36 to 787 MiB left.
const THIN: f64 = 1024.0;
/// A single rise beyond this is a pool or weights being taken, not growth, in MiB.
const RESERVED: f64 = 1024.0;
/// How long it must have been so, in seconds.
const HELD_S: f64 = 30.0;

/// How much of the room slow growth has taken.
#[derive(Debug, Clone, Default)]
pub(super) struct ThinHeadroom {
    newest: Option<f64>,
    /// The lowest level since which memory only crept, in MiB.
    base: f64,
    since: Option<Tick>,
}

impl ThinHeadroom {
    /// Takes a sample.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let value = moment.mib;
        let Some(old) = self.newest.replace(value) else {
            self.base = value;
            return;
        };
        let jump = value - old;
        self.base = if jump > RESERVED { self.base + jump } else { self.base.min(value) };
        let room = moment.capacity.map(|capacity| capacity.saturating_sub(moment.value).mib());
        let is_thin = room.is_ok_and(|room| room < THIN && value - self.base > room);
        self.since = if is_thin { self.since.or(Some(moment.tick)) } else { None };
    }

    /// Whether little room is left, and growth is on its way into it.
    pub(super) fn claim(&self, moment: &Moment<'_>) -> Option<Claim> {
        let since = self.since.filter(|since| seconds(*since, moment.tick) >= HELD_S)?;
        let room = moment.capacity.map_or(Bytes::ZERO, |capacity| capacity.saturating_sub(moment.value));
        let crept = moment.value.mib() - self.base;
        Some(Claim {
            kind: FindingKind::ThinHeadroom,
            tier: Tier::Confirmed,
            severity: Severity::Warning,
            since,
            amount: bytes(crept),
            accounts_for_rise: false,
            rate: None,
            evidence: vec![
                Evidence::against("room-left", room.mib(), "MiB", THIN),
                Evidence::new("crept", crept, "MiB"),
            ],
            summary: sentence::thin_headroom(room, bytes(crept)),
            settle: sentence::SETTLE_HEADROOM,
        })
    }
}
