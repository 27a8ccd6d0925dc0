//! A second opinion that may look as often as it likes: betting that each block stands above nearly all before it.
//!
//! If blocks are exchangeable (nothing drifts), the rank of each among those before it is uniform and independent of
//! all earlier ranks. A bet at fair odds on high ranks then keeps the expected wealth at 1, and wealth that ever
//! reaches 1/p has done so with a chance of p at most (J. Ville, 1939; for ranks V. Vovk's conformal test martingales).
//! Betting on records alone is the special case of the steepest bet; rises with noise or granules bring ranks near the
//! top more often than records.

use crate::ladder::RING;
use crate::trend::Series;

/// Slots between the starts of two wagers: neighbouring ones share most of their blocks.
pub(crate) const STRIDE: u64 = 8;
/// The least slots that a wager runs over before it is asked; with [`STRIDE`] it ends within a ring.
const LEAST_SLOTS: u64 = 24;
/// Each bets that a rank further from the top is so much less likely than the one above it. The wealth is spread evenly
/// over them, as nobody knows how noisy a rise will be.
const FALLS: [f64; 4] = [0.2, 0.5, 0.75, 0.9];
/// The share of its wealth that each keeps back at every bet, so that one block far below does not ruin it: drops of
/// load that are read a moment apart leave such blocks.
const KEPT: f64 = 0.05;

/// The natural logarithm of the wealth of the wager that the newest block belongs to. Wagers start at fixed slots, not
/// where it looks best, so that they can be counted.
pub(crate) fn log_wealth(series: &Series, block_s: f64) -> f64 {
    let slot = |at: f64| (at / block_s) as u64;
    let Some(newest) = series.times().last().map(|at| slot(*at)) else { return 0.0 };
    let begun = (newest + 1).saturating_sub(LEAST_SLOTS) / STRIDE * STRIDE;
    let first = series.times().partition_point(|at| slot(*at) < begun);
    log_wealth_of(&series.values()[first..])
}

/// The same over all of these values, a ring of them at most. Equal values count as higher, which can only lower it.
fn log_wealth_of(x: &[f64]) -> f64 {
    let mut powers = [[1.0; FALLS.len()]; RING + 1];
    for k in 1..powers.len() {
        for (j, fall) in FALLS.into_iter().enumerate() {
            powers[k][j] = powers[k - 1][j] * fall;
        }
    }
    // Each bet multiplies it by 0.05 to 32, so that after a ring of them it is far from what a number cannot hold.
    let mut wealth = [1.0; FALLS.len()];
    for (i, value) in x.iter().enumerate().take(RING) {
        let above = x[..i].iter().filter(|earlier| *earlier >= value).count();
        for (j, (wealth, fall)) in wealth.iter_mut().zip(FALLS).enumerate() {
            let odds = (i + 1) as f64 * (1.0 - fall) / (1.0 - powers[i + 1][j]) * powers[above][j];
            *wealth *= KEPT + (1.0 - KEPT) * odds;
        }
    }
    (wealth.iter().sum::<f64>() / FALLS.len() as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All orders of the values, by swapping each into the last place.
    fn orders(x: &mut Vec<f64>, upto: usize, visit: &mut impl FnMut(&[f64])) {
        if upto <= 1 {
            return visit(x);
        }
        for i in 0..upto {
            x.swap(i, upto - 1);
            orders(x, upto - 1, visit);
            x.swap(i, upto - 1);
        }
    }

    #[test]
    fn the_bet_is_fair_over_all_orders_and_ties_only_lower_it() {
        let mean_of = |mut x: Vec<f64>| {
            let (mut sum, mut count, n) = (0.0, 0.0, x.len());
            orders(&mut x, n, &mut |x| {
                sum += log_wealth_of(x).exp();
                count += 1.0;
            });
            sum / count
        };
        assert!((mean_of(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) - 1.0).abs() < 1e-9);
        assert!(mean_of(vec![1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 4.0]) < 1.0);
    }

    #[test]
    fn noise_hardly_ever_becomes_rich_however_often_one_looks() {
        let (mut rich, rounds) = ([0; 3], 20_000);
        for seed in 0..rounds {
            let mut rng = fastrand::Rng::with_seed(seed);
            let x: Vec<f64> = (0..32).map(|_| rng.f64()).collect();
            let highest = (1..=32).map(|n| log_wealth_of(&x[..n])).fold(f64::MIN, f64::max);
            for (count, decades) in rich.iter_mut().zip([1, 2, 3]) {
                *count += u64::from(highest >= f64::from(decades) * 10.0_f64.ln());
            }
        }
        for (count, most) in rich.into_iter().zip([rounds / 10, rounds / 100, rounds / 1000]) {
            assert!(count > 0 && count <= most, "{rich:?}");
        }
    }

    #[test]
    fn a_rise_becomes_rich_with_noise_and_in_granules_too() {
        let wealth = |shape: &dyn Fn(f64) -> f64| {
            let x: Vec<f64> = (0..28).map(|i| shape(f64::from(i))).collect();
            log_wealth_of(&x) / 10.0_f64.ln()
        };
        assert!(wealth(&|i| i) > 20.0);
        assert!(wealth(&|i| (i / 4.0).floor()) > 7.0);
        let mut rng = fastrand::Rng::with_seed(1);
        let noise: Vec<f64> = (0..28).map(|_| rng.f64() * 6.0).collect();
        assert!(wealth(&|i| i + noise[i as usize]) > 8.0);
        assert!(wealth(&|_| 1.0) < 0.0 && wealth(&|i| -i) < 0.0);
    }

    #[test]
    fn a_wager_starts_at_a_fixed_slot_and_runs_over_24_to_31() {
        for newest in 23_u32..200 {
            let mut series = Series::new();
            for slot in (newest + 1).saturating_sub(32)..=newest {
                // What lies before the wager's start is so high that one such block would ruin it.
                let begun = (newest + 1 - 24) / 8 * 8;
                let x = if slot < begun { 1e9 } else { f64::from(slot) };
                series.push(f64::from(slot) * 4.0 + 1.0, x);
            }
            assert!(log_wealth(&series, 4.0) > 20.0, "{newest}");
        }
    }
}
