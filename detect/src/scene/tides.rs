//! Is this rise a tide? Where nobody tells the load, its ripples do: requests come and go by themselves, so what they
//! hold together swings by the square root of their number, and what leaks does not swing.

use super::{RING, Scene};
use crate::explain::Basis;
use crate::rise::Rise;
use crate::trend::mean;

/// What the load must rise by as its ripples tell it, as a multiple of the rise that is seen, to be what rises: ripples
/// are drawn from few requests.
const TIDE_SHARE: f64 = 1.5;

impl Scene<'_> {
    /// Whether the ripples within blocks swell as they do when as much load comes as would make the rise. Load holds at
    /// least what a ripple takes and gives back, so what it rises by is no less than told.
    pub(super) fn may_be_tide(&self, rise: &Rise) -> bool {
        let ends = [Basis::Floor, Basis::Ceil].map(|basis| self.series(rise.rung, RING, basis));
        let [Some(floor), Some(ceil)] = ends else { return false };
        let mut ripples = [0.0; RING];
        let blocks = floor.values().iter().zip(ceil.values());
        ripples.iter_mut().zip(blocks).for_each(|(ripple, (floor, ceil))| *ripple = ceil - floor);
        let (older, newer) = ripples[..floor.len()].split_at(floor.len() / 2);
        let (before, now) = (mean(older), mean(newer));
        let half_grown = rise.line.slope * (rise.until - rise.from) / 2.0;
        // By as much as the squares: before * ((now / before)^2 - 1).
        now * now - before * before >= TIDE_SHARE * half_grown * before
    }
}
