//! Could this rise settle? Without counters only its course tells a leak from an allocator that finds its level.

use super::{RING, Scene};
use crate::blocks::Block;
use crate::explain::Basis;
use crate::ladder::{RUNGS, block_s};
use crate::levelling;
use crate::onset;
use crate::rise::{Rise, drift_t};
use crate::trend::Series;

/// Up to this rung (windows of 68 min) what settles over hours looks straight.
const SETTLING_RUNG: usize = 7;
/// The longest time constant of what settles within a working day, in seconds.
const SETTLING_S: f64 = 14_400.0;
/// What settles adds 500 MiB at least, so with that time constant it begins at this pace, in MiB a second. What is
/// slower need not be told from it.
const SETTLING_MIB_PER_S: f64 = 500.0 / SETTLING_S;
/// Student's t of the increments between eighths that rules out a handful of steps which happen to lie on a line.
const SETTLING_DRIFT_T: f64 = 8.0;
/// Calm before a rise must have lasted so long, in seconds, and no less than the rise itself.
const MIN_CALM_S: f64 = 600.0;
/// What is loaded has come in after so long, in seconds: weights stream in within 30 s to 5 min, and so do the graphs
/// that are captured for another shape of batches.
const LOADED_S: f64 = 400.0;
/// How far calm may stray from the level that the rise began at, as a share of what was gained.
const CALM_SHARE: f64 = 0.1;
/// The most that caching allocators take at a time while they grow smoothly, in MiB: a segment.
const GRANULE_MIB: f64 = 20.0;
/// The least such stray, in MiB: four allocation granules of 2 MiB.
const CALM_MIB: f64 = 8.0;

impl Scene<'_> {
    /// Whether a rise rather bends than not, however little: where nothing is known of the load nothing else tells what
    /// settles from a leak.
    pub(super) fn bends(&self, rung: usize, basis: Basis) -> bool {
        let series = self.series(rung, RING, basis);
        let least_noise = || self.granular_noise(rung, basis).unwrap_or(0.0);
        series.and_then(|series| levelling::of(&series, least_noise())).is_some_and(|level| level.is_bent())
    }

    /// Whether a rise is as fast as one that settles over hours, has not yet outgrown it, and is not surely straighter.
    pub(super) fn may_settle(&self, rise: &Rise) -> bool {
        let gained = rise.line.slope * (rise.until - rise.from);
        if rise.rung > SETTLING_RUNG || rise.line.slope < SETTLING_MIB_PER_S || gained >= self.warm_up_mib {
            return false;
        }
        // Floors and ceilings step with the granule where it comes once a block, and then look straight; means do not.
        [rise.basis, Basis::Mid]
            .into_iter()
            .any(|basis| !self.is_straighter_than_settling(&Rise { basis, ..*rise }))
    }

    fn is_straighter_than_settling(&self, rise: &Rise) -> bool {
        let Some(late) = self.since_onset(rise) else { return false };
        if drift_t(&late) < SETTLING_DRIFT_T {
            return false;
        }
        let third_s = late.times().last().map_or(0.0, |until| (until - late.times()[0]) / 3.0);
        levelling::of(&late, self.granular_noise(rise.rung, rise.basis).unwrap_or(0.0))
            .is_some_and(|level| level.keeps((-third_s / SETTLING_S).exp()))
    }

    /// The window without its first quarter, which may reach back to before the onset and then hides a bend.
    fn since_onset(&self, rise: &Rise) -> Option<Series> {
        let all = self.series(rise.rung, RING, rise.basis)?;
        Some(all.slice(all.len() / 4..all.len()))
    }

    /// Whether a rise without counters came out of calm and, even if it were to level off from now on, would still
    /// add more than any warm-up does. So a fast leak is called in minutes: the faster, the sooner its course is
    /// known well enough.
    pub(super) fn outgrows_warm_up(&self, rise: &Rise) -> bool {
        let noise =
            self.granular_noise(rise.rung, rise.basis).unwrap_or_else(|| self.noise_of_granules(rise));
        let level = self.since_onset(rise).and_then(|late| levelling::of(&late, noise));
        level.is_some_and(|level| level.is_straight() && level.at_least() >= self.warm_up_mib)
            && self.was_calm_before(rise)
    }

    /// The noise that the mean of four shorter blocks has, in MiB. Where a block happens to take in just one granule,
    /// its own noise vanishes, and so does the bend behind it.
    fn granular_noise(&self, rung: usize, basis: Basis) -> Option<f64> {
        Some(self.ladder.noise(rung.checked_sub(2)?, basis)? / 2.0)
    }

    /// The same where samples come too seldom for shorter blocks: any block may be off by the granule that it just took
    /// in, or just did not.
    fn noise_of_granules(&self, rise: &Rise) -> f64 {
        let largest = |series: Series| series.values().windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max);
        let step = self.series(rise.rung, RING, rise.basis).map_or(0.0, largest);
        step.min(GRANULE_MIB) / 12.0_f64.sqrt()
    }

    /// Whether memory held its level before the rise for as long as it rises now. Something that takes more than all
    /// that was held before within minutes is being loaded, and what has not yet taken more than a warm-up may be
    /// captured: neither leaks.
    fn was_calm_before(&self, rise: &Rise) -> bool {
        let onset = onset::of(self.ladder, self.explainer, rise);
        let gained = rise.line.at(rise.until) - onset.level;
        let since = onset.at - MIN_CALM_S.max(rise.until - onset.at);
        let stray = (CALM_SHARE * gained).max(CALM_MIB);
        let is_level = |block: Block| {
            (f64::from(block.mid) - onset.level).abs() <= stray
                && (f64::from(block.floor) - onset.level).abs() <= stray
        };
        let rung = (rise.rung + 2).min(RUNGS - 1);
        let before = onset.at - block_s(rung) / 2.0;
        let mut calm =
            self.ladder.blocks(rung).filter(|block| (since..before).contains(&block.at)).peekable();
        let is_of_a_size = (self.warm_up_mib..=self.origin_mib + onset.level).contains(&gained);
        let is_loaded = rise.until - onset.at < LOADED_S && !is_of_a_size;
        since >= 0.0 && !is_loaded && calm.peek().is_some() && calm.all(is_level)
    }
}
