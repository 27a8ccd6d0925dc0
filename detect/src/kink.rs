//! Did a steady rise become faster? A kink from nothing is the leak's own test; this one wants a rise before it.

use crate::explain::Basis;
use crate::rise::{Clock, Rise, granular_noise, rise_mib};
use crate::trend::{Series, noise, theil_sen, trend_z};

/// The new pace, as a multiple of the old one.
const MIN_RATIO: f64 = 1.5;
/// The same at a first glance, between quarters: cheap, and lenient for it.
const GLANCE_RATIO: f64 = 1.2;
/// The least rise from the first to the last quarter of the window, in MiB: four allocation granules of 2 MiB.
pub(crate) const MIN_RISE: f64 = 8.0;
/// The least gain of pace, in standard errors of the difference of both.
const MIN_ERRORS: f64 = 5.0;
/// The largest step of the newer half, as a share of its range.
const MAX_STEP: f64 = 0.4;
/// Mann-Kendall's z of either half, whatever the fleet's setting: sixteen values can reach 5.4.
const MIN_HALF_Z: f64 = 3.5;

/// A rise that became faster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kink {
    /// The rise after the change.
    pub(crate) after: Rise,
    /// The pace before, in MiB a second.
    pub(crate) before: f64,
}

/// Compares the halves of a full window, each of which must rise beyond chance by this z.
pub(crate) fn find(rung: usize, basis: Basis, series: &Series, half_z: f64) -> Option<Kink> {
    let half = series.len() / 2;
    if half < 10 || rise_mib(series) < MIN_RISE {
        return None;
    }
    let (older, newer) = (series.slice(0..half), series.slice(half..series.len()));
    if rise_mib(&newer) < GLANCE_RATIO * rise_mib(&older) || is_stepped(newer.values()) {
        return None;
    }
    let (z, needed) = (trend_z(newer.values()), half_z.max(MIN_HALF_Z));
    if z < needed || trend_z(older.values()) < needed || !holds_its_pace(&older) {
        return None;
    }
    let (before, line) = (theil_sen(&older), theil_sen(&newer));
    let times = newer.times();
    let (from, until) = (times[0], times[times.len() - 1]);
    // Standard error of a least-squares slope over n evenly spaced values, threefold for correlated noise.
    let error = granular_noise(series.values()) * (2.0 * 36.0 / (half as f64).powi(3)).sqrt() * half as f64
        / (until - from);
    let faster = line.slope >= MIN_RATIO * before.slope && line.slope - before.slope >= MIN_ERRORS * error;
    (before.slope > 0.0 && faster).then_some(Kink {
        after: Rise { rung, basis, line, from, until, z, noise: noise(series.values()), clock: Clock::Time },
        before: before.slope,
    })
}

/// Whether a pace is so much faster than that of all that is kept from before it: beside a leak that wanders with its
/// load some stretch is always slower than the next one.
pub(crate) fn outpaces(after: &Rise, before: &Series) -> bool {
    after.line.slope >= MIN_RATIO * theil_sen(before).slope
}

/// Whether one step makes up much of a rise: then it came at once, and is no pace.
fn is_stepped(x: &[f64]) -> bool {
    let largest = x.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    let (low, high) = x.iter().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    largest > MAX_STEP * (high - low)
}

/// Whether both halves of the older half rise alike: else it was flat and then rose, which is an onset, no change.
fn holds_its_pace(older: &Series) -> bool {
    let whole = theil_sen(older).slope;
    let half = older.len() / 2;
    let early = theil_sen(&older.slice(0..half)).slope;
    let late = theil_sen(&older.slice(half..older.len())).slope;
    whole > 0.0 && early >= 0.5 * whole && late >= 0.5 * whole && late <= MIN_RATIO * early
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RING;

    fn found(shape: impl Fn(f64) -> f64) -> bool {
        let mut series = Series::new();
        for i in 0..RING {
            series.push(i as f64 * 60.0, shape(i as f64));
        }
        find(6, Basis::Mid, &series, 0.0).is_some()
    }

    #[test]
    fn only_a_rise_that_becomes_a_faster_rise_is_a_kink() {
        assert!(found(|i| 2.0 * i + 2.0 * (i - 16.0).max(0.0)));
        assert!(!found(|i| 4.0 * i), "constant");
        assert!(!found(|i| 4.0 * (i - 16.0).max(0.0)), "an onset");
        assert!(!found(|i| 4.0 * (i - 9.0).max(0.0)), "an onset in the older half");
        assert!(!found(|i| 4.0 * i - 2.0 * (i - 16.0).max(0.0)), "slower");
        assert!(!found(|i| 2.0 * i + 0.6 * (i - 16.0).max(0.0)), "hardly faster");
        assert!(!found(|i| if i < 16.0 { 2.0 * i } else { 2.0 * i + 300.0 }), "a step");
        assert!(!found(|i| if i < 24.0 { 2.0 * i } else { 2.0 * i + 300.0 }), "a step in the newer half");
    }

    #[test]
    fn a_slow_stretch_of_an_even_rise_makes_its_usual_pace_no_faster_one() {
        let (mut window, mut past) = (Series::new(), Series::new());
        for i in 0..RING {
            let at = i as f64;
            window.push(at, 2.0 * at + 2.4 * (at - 16.0).max(0.0));
            past.push(4.0 * (at - RING as f64), 4.0 * 3.2 * (at - RING as f64));
        }
        let found = find(6, Basis::Mid, &window, 0.0).expect("the newer half is twice as steep");
        assert!(!outpaces(&found.after, &past));
        let calm = past.slice(0..1);
        assert!(outpaces(&found.after, &calm), "nothing rose before");
    }

    #[test]
    fn noise_around_a_constant_rise_is_no_kink() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let noise: Vec<f64> = (0..RING).map(|_| rng.f64() * 20.0).collect();
            assert!(!found(|i| 4.0 * i + noise[i as usize]), "seed {seed}");
        }
    }
}
