//! Would this rise level off, and how much is still to come if it does?
//!
//! A rise that approaches a level exponentially gains in each third of a window the same share of what it gained in
//! the third before (Aitken). From that share follows what is still to come; its uncertainty follows from the noise.

use crate::trend::{Series, noise};

/// Bounds are so many standard errors away.
const ERRORS: f64 = 4.0;
/// A rise that keeps its pace looks bent by so many standard errors one time in twenty, and is then called later.
const BENT_ERRORS: f64 = 1.64;
/// Values that driver and allocator round to 2 MiB are off by 2 / sqrt(12) of it at least.
pub(crate) const ROUNDING_MIB: f64 = 0.58;
/// From this share on a rise keeps its pace.
const STRAIGHT: f64 = 0.9;

/// How far a rise may be from levelling off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Levelling {
    /// The gain of the last third as a share of the one before: lower bound.
    ratio_low: f64,
    /// The same: upper bound.
    ratio_high: f64,
    /// The gain of the last third, in MiB.
    gain: f64,
    /// What has come since the middle of the last third, in MiB.
    come: f64,
}

/// Compares the thirds of a window that rises; `None` where it does not, or is too short. Its values are believed to be
/// off by `least_noise` at least, in MiB.
pub(crate) fn of(series: &Series, least_noise: f64) -> Option<Levelling> {
    let (early, middle, late) = (series.part(0, 3), series.part(1, 3), series.part(2, 3));
    if series.len() < 12 || middle.0 <= early.0 || late.0 <= middle.0 {
        return None;
    }
    // Paces times an equal distance, so that empty slots do no harm.
    let distance = (late.0 - early.0) / 2.0;
    let before = (middle.1 - early.1) / (middle.0 - early.0) * distance;
    let gain = (late.1 - middle.1) / (late.0 - middle.0) * distance;
    if before <= 0.0 || gain <= 0.0 {
        return None;
    }
    // The second difference of three means of n / 3 values each.
    let noise = noise(series.values()).max(least_noise).max(ROUNDING_MIB);
    let error = ERRORS * noise * (6.0 / (series.len() as f64 / 3.0)).sqrt();
    let loss = before - gain;
    let newest = series.values().last().copied().unwrap_or(late.1);
    Some(Levelling {
        ratio_low: 1.0 - (loss + error) / before,
        ratio_high: 1.0 - (loss - error) / before,
        gain,
        come: newest - late.1,
    })
}

impl Levelling {
    /// Whether it surely keeps its pace.
    pub(crate) fn is_straight(&self) -> bool {
        self.ratio_low >= STRAIGHT
    }

    /// Whether it rather gains less and less than not, however slowly.
    pub(crate) fn is_bent(&self) -> bool {
        let (middle, reach) = self.middle_and_reach();
        middle + BENT_ERRORS / ERRORS * reach < 1.0
    }

    /// Whether it keeps so much of its pace from third to third, but for one time in twenty.
    pub(crate) fn keeps(&self, ratio: f64) -> bool {
        let (middle, reach) = self.middle_and_reach();
        middle - BENT_ERRORS / ERRORS * reach >= ratio
    }

    fn middle_and_reach(&self) -> (f64, f64) {
        (f64::midpoint(self.ratio_low, self.ratio_high), (self.ratio_high - self.ratio_low) / 2.0)
    }

    /// Whether it surely slows down.
    pub(crate) fn is_slowing(&self) -> bool {
        self.ratio_high < STRAIGHT
    }

    /// What is still to come at least if it levels off, in MiB; infinite where it need not.
    pub(crate) fn at_least(&self) -> f64 {
        (self.remaining(self.ratio_low) - self.come).max(0.0)
    }

    /// What is still to come at most if it levels off, in MiB; infinite where it may not.
    pub(crate) fn at_most(&self) -> f64 {
        (self.remaining(self.ratio_high) - self.come).max(0.0)
    }

    fn remaining(&self, ratio: f64) -> f64 {
        match ratio {
            r if r >= 1.0 => f64::INFINITY,
            r if r <= 0.0 => 0.0,
            r => self.gain * r / (1.0 - r),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RING;

    fn window(shape: impl Fn(f64) -> f64) -> Levelling {
        let mut series = Series::new();
        for i in 0..RING {
            series.push(i as f64, shape(i as f64));
        }
        of(&series, 0.0).expect("it rises")
    }

    #[test]
    fn a_line_is_straight_and_what_is_to_come_grows_with_its_height() {
        let (slow, fast) = (window(|t| 10.0 * t), window(|t| 100.0 * t));
        assert!(fast.is_straight() && !fast.is_slowing() && fast.at_most().is_infinite());
        assert!(fast.at_least() > 50.0 * slow.at_least());
    }

    #[test]
    fn what_levels_off_is_bounded_on_both_sides() {
        for tau in [8.0, 16.0, 30.0, 60.0] {
            let level = window(|t| 4000.0 * (1.0 - (-t / tau).exp()));
            let left = 4000.0 * (-(RING as f64 - 1.0) / tau).exp();
            assert!(level.is_slowing(), "tau {tau}");
            let range = 0.95 * level.at_least()..1.05 * level.at_most();
            assert!(range.contains(&left), "tau {tau}: {left} not in {level:?}");
            assert!(level.at_most() < 1.5 * left + 50.0, "tau {tau}: {} for {left}", level.at_most());
        }
    }

    #[test]
    fn noise_widens_the_bounds_and_hardly_ever_makes_a_bend_straight() {
        let mut straight = 0;
        for seed in 0..1000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let noise: Vec<f64> = (0..RING).map(|_| rng.f64() * 60.0).collect();
            let level = window(|t| 3000.0 * (1.0 - (-t / 50.0).exp()) + noise[t as usize]);
            straight += i32::from(level.is_straight());
        }
        assert!(straight <= 2, "{straight} of 1000");
    }
}
