//! How much evidence a page must carry, from how many false ones a whole fleet may bring in a week.
//!
//! The pages are divided evenly over GPUs, series, views of a series and rungs of the ladder. What falls to a rung is
//! divided over the windows that it closes in a week: long blocks close seldom, so a slow leak needs less evidence than
//! a fast one, which brings it sooner.

use crate::config::DetectConfig;
use crate::ladder::{RUNGS, block_s};
use crate::wager::STRIDE;

/// Series of a GPU that could page: the device, a process's video memory, its host memory, the unattributed part.
const SERIES_A_GPU: f64 = 4.0;
/// Views of a series of which the quietest is judged: floor, mean and ceiling, or the residual's readings.
const VIEWS: f64 = 3.0;
/// What else each window is asked: whether its rise became faster.
const CHANGES: f64 = 1.0;
/// What else a series is asked: whether it climbs stairs, whether its KV pool rises by the hour, and whether by the day.
const RULES: f64 = 3.0;
/// Seconds of a week.
const WEEK_S: f64 = 604_800.0;
/// Chances above this are none that a test could be held to, and below that no fleet asks for.
const CHANCES: (f64, f64) = (1e-30, 0.02);

/// The share of the fleet's false pages that one rung may use up in a week.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Budget {
    pages: f64,
}

impl Budget {
    /// Divides the pages of a configuration.
    pub(crate) fn of(config: &DetectConfig) -> Self {
        let gpus = config.fleet_gpus.map_or(1.0, |gpus| f64::from(gpus.get()));
        Self {
            pages: config.false_pages_per_week
                / (gpus * SERIES_A_GPU * ((VIEWS + CHANGES) * RUNGS as f64 + RULES)),
        }
    }

    /// What Mann-Kendall's z of a window must reach: each window that a rung closes, each so many seconds, is a look of
    /// its own.
    pub(crate) fn trend_z(self, each_s: f64) -> f64 {
        upper_quantile(self.chance(each_s))
    }

    /// What Mann-Kendall's z of either half of a window must reach, if both must: of exchangeable blocks the order within
    /// one half is independent of that within the other, so their chances multiply.
    pub(crate) fn half_z(self, rung: usize) -> f64 {
        upper_quantile(self.chance(block_s(rung)).sqrt().min(CHANCES.1))
    }

    /// What the natural logarithm of a wager's wealth must reach: by Ville's inequality wealth that starts at 1 ever
    /// reaches 1/p with a chance of p at most, however often one looks, so only new wagers are counted.
    pub(crate) fn wealth(self, rung: usize) -> f64 {
        -self.chance(block_s(rung) * STRIDE as f64).ln()
    }

    /// The natural logarithm of the chance that falls to a rule which looks each so many seconds.
    pub(crate) fn log_chance(self, each_s: f64) -> f64 {
        self.chance(each_s).ln()
    }

    /// The chance that falls to something that happens each so many seconds.
    fn chance(self, each_s: f64) -> f64 {
        (self.pages * each_s / WEEK_S).clamp(CHANCES.0, CHANCES.1)
    }
}

/// The value that a standard normal variable exceeds with this chance of at most 0.02, to nine digits: P. J. Acklam's
/// rational approximation of the tail (2003). For 10 blocks and more Mann-Kendall's own tail is thinner.
fn upper_quantile(chance: f64) -> f64 {
    const ABOVE: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const BELOW: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let q = (-2.0 * chance.ln()).sqrt();
    let polynomial = |coefficients: &[f64]| coefficients.iter().fold(0.0, |sum, c| sum * q + c);
    -polynomial(&ABOVE) / polynomial(&BELOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::{MIN_FILLED, RING};
    use std::num::NonZeroU32;

    #[test]
    fn quantiles_are_the_tabled_ones() {
        for (chance, z) in [(1e-2, 2.326_348), (1e-3, 3.090_232), (1e-6, 4.753_424), (1e-9, 5.997_807)] {
            assert!((upper_quantile(chance) - z).abs() < 1e-5, "{chance}");
        }
    }

    /// The exact chances of Mann-Kendall's score over n exchangeable values without ties: the numbers of inversions of
    /// permutations, built up one value at a time.
    fn chances_of_inversions(n: usize) -> Vec<f64> {
        let mut chances = vec![1.0];
        for i in 2..=n {
            let mut next = vec![0.0; chances.len() + i - 1];
            for (at, chance) in chances.iter().enumerate() {
                next[at..at + i].iter_mut().for_each(|sum| *sum += chance / i as f64);
            }
            chances = next;
        }
        chances
    }

    #[test]
    fn the_normal_tail_is_an_upper_bound_of_mann_kendalls_own() {
        for n in MIN_FILLED / 2..=RING {
            let pairs = (n * (n - 1) / 2) as f64;
            let spread = (pairs * (2 * n + 5) as f64 / 9.0).sqrt();
            let chances = chances_of_inversions(n);
            for chance in [1e-4, 1e-6, 1e-8, 1e-10, 1e-12] {
                let needed = upper_quantile(chance);
                let passes = |inversions: usize| (pairs - 2.0 * inversions as f64 - 1.0) / spread >= needed;
                let exact: f64 =
                    chances.iter().enumerate().filter(|(at, _)| passes(*at)).map(|(_, c)| c).sum();
                assert!(exact <= chance, "n {n}: {exact} above {chance}");
            }
        }
    }

    #[test]
    fn a_larger_fleet_asks_for_more_and_longer_blocks_for_less() {
        let of = |gpus: u32, pages: f64| {
            let (fleet_gpus, false_pages_per_week) = (NonZeroU32::new(gpus), pages);
            Budget::of(&DetectConfig { fleet_gpus, false_pages_per_week, ..DetectConfig::default() })
        };
        let z = |budget: Budget, rung: usize| budget.trend_z(block_s(rung));
        assert!((of(1000, 1.0).pages / of(100, 0.1).pages - 1.0).abs() < 1e-9);
        for rung in 1..RUNGS {
            let (small, large) = (of(8, 0.1), of(10_000, 1.0));
            assert!(z(large, rung) > z(small, rung) && large.wealth(rung) > small.wealth(rung));
            assert!(z(small, rung) < z(small, rung - 1));
            assert!(large.half_z(rung) > small.half_z(rung) && large.half_z(rung) < z(large, rung));
        }
        // A rise without a fault reaches z = 8.02 over 32 blocks: no fleet's setting lies beyond it.
        assert!(z(of(1_000_000, 0.1), 0) < 8.0);
        // Halves reach 5.36 over 16 blocks, and the shortest that are asked are of 4 s.
        assert!(of(1_000_000, 0.1).half_z(2) < 5.36);
    }
}
