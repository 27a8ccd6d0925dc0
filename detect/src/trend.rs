//! Rank statistics of short series: is there a trend, how steep, how noisy.

use std::cmp::Ordering;

use crate::ladder::RING;

/// Pairs of values in a full series.
const PAIRS: usize = RING * (RING - 1) / 2;
/// Pairs of values in half of it.
const HALF_PAIRS: usize = RING / 2 * (RING / 2 - 1) / 2;
/// Half-width of a two-sided 80 % band of the normal distribution, in standard deviations.
pub(crate) const Z80: f64 = 1.2816;

/// At most one ring of values with their times; times rise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Series {
    at: [f64; RING],
    x: [f64; RING],
    len: usize,
}

/// A robust line with an 80 % band of its slope. Units: those of the values, a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    /// Median of all pairwise slopes.
    pub(crate) slope: f64,
    /// Lower end of the band.
    pub(crate) low: f64,
    /// Upper end of the band.
    pub(crate) high: f64,
    /// Height at time zero: median of what the slope leaves.
    pub(crate) intercept: f64,
}

impl Line {
    /// Height of the line.
    pub(crate) fn at(&self, at: f64) -> f64 {
        self.intercept + self.slope * at
    }
}

impl Series {
    /// A series without values.
    pub(crate) const fn new() -> Self {
        Self { at: [0.0; RING], x: [0.0; RING], len: 0 }
    }

    /// The first `len` of times and values; `len` is at most [`RING`].
    pub(crate) const fn of(at: [f64; RING], x: [f64; RING], len: usize) -> Self {
        Self { at, x, len }
    }

    /// Appends a value; a series that is full stays as it is.
    pub(crate) fn push(&mut self, at: f64, x: f64) {
        if self.len < RING {
            (self.at[self.len], self.x[self.len]) = (at, x);
            self.len += 1;
        }
    }

    /// Number of values.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The times.
    pub(crate) fn times(&self) -> &[f64] {
        &self.at[..self.len]
    }

    /// The values.
    pub(crate) fn values(&self) -> &[f64] {
        &self.x[..self.len]
    }

    /// Time and value of the centre of the `i`th of `n` equal parts.
    pub(crate) fn part(&self, i: usize, n: usize) -> (f64, f64) {
        let range = i * self.len / n..(i + 1) * self.len / n;
        (mean(&self.at[range.clone()]), mean(&self.x[range]))
    }

    /// The series with each value replaced by the median of itself and `width` neighbours on either side, two at most:
    /// spikes as wide as that are gone, a rise stays what it is.
    pub(crate) fn despiked(&self, width: usize) -> Self {
        let mut calm = *self;
        despike(self.values(), width, &mut calm.x[..self.len]);
        calm
    }

    /// The part of the series between two indices.
    pub(crate) fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let end = range.end.min(self.len);
        let range = range.start.min(end)..end;
        let mut part = Self { len: range.len(), ..Self::new() };
        part.at[..part.len].copy_from_slice(&self.at[range.clone()]);
        part.x[..part.len].copy_from_slice(&self.x[range]);
        part
    }
}

/// Puts into `calm`, which holds the same values, the median of each and `width` neighbours on either side, one or two;
/// of one at the last but one, and none at the ends.
pub(crate) fn despike<T: Copy + PartialOrd>(x: &[T], width: usize, calm: &mut [T]) {
    let of_3 = |i: usize| median_of_3(x[i - 1], x[i], x[i + 1]);
    if width > 1 && x.len() > 4 {
        let last = x.len() - 2;
        (calm[1], calm[last]) = (of_3(1), of_3(last));
        for (middle, around) in calm[2..].iter_mut().zip(x.windows(5)) {
            *middle = median_of_5([around[0], around[1], around[2], around[3], around[4]]);
        }
        return;
    }
    let all = 1..x.len().max(2) - 1;
    for (middle, around) in calm[all].iter_mut().zip(x.windows(3)) {
        *middle = median_of_3(around[0], around[1], around[2]);
    }
}

/// The lesser of two values, in one instruction: `f64::min` also looks for NaN.
pub(crate) fn lesser<T: PartialOrd>(a: T, b: T) -> T {
    if a < b { a } else { b }
}

/// The greater of two values, likewise.
pub(crate) fn greater<T: PartialOrd>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// The median of three values.
fn median_of_3<T: Copy + PartialOrd>(a: T, b: T, c: T) -> T {
    greater(lesser(a, b), lesser(greater(a, b), c))
}

/// The median of five values: neither the lower of the two lesser nor the higher of the two greater ones of four can
/// be it, so it is that of the rest.
fn median_of_5<T: Copy + PartialOrd>([a, b, c, d, e]: [T; 5]) -> T {
    let low = greater(lesser(a, b), lesser(c, d));
    let high = lesser(greater(a, b), greater(c, d));
    median_of_3(low, high, e)
}

/// The mean of some values; NaN of none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation of white noise around a smooth course, from second differences: a line adds nothing to them,
/// and white noise of variance v gives them 6 v.
pub(crate) fn noise(x: &[f64]) -> f64 {
    if x.len() < 3 {
        return 0.0;
    }
    let squares: f64 = x.windows(3).map(|w| (w[2] - 2.0 * w[1] + w[0]).powi(2)).sum();
    (squares / (6.0 * (x.len() - 2) as f64)).sqrt()
}

/// Whether each value is higher than the one before it: then so are all pairs, and nothing is tied.
fn is_climbing(x: &[f64]) -> bool {
    x.windows(2).all(|pair| pair[1] > pair[0])
}

/// How many pairs rise, and how many fall: Mann-Kendall's score S is the former less the latter.
fn moves(x: &[f64]) -> (u64, u64) {
    if is_climbing(x) {
        return (pairs(x.len()), 0);
    }
    let (mut ups, mut downs) = (0, 0);
    for (i, a) in x.iter().enumerate() {
        for b in &x[i + 1..] {
            ups += u64::from(b > a);
            downs += u64::from(b < a);
        }
    }
    (ups, downs)
}

/// The pairs of so many values.
const fn pairs(count: usize) -> u64 {
    (count * count.saturating_sub(1) / 2) as u64
}

/// The variance of the score under "no trend", corrected for ties (Kendall 1975).
fn score_variance(x: &[f64]) -> f64 {
    if is_climbing(x) {
        return spread(x.len()) / 18.0;
    }
    let mut sorted = [0.0; RING];
    let sorted = &mut sorted[..x.len().min(RING)];
    sorted.copy_from_slice(&x[..x.len().min(RING)]);
    sorted.sort_unstable_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|run| spread(run.len())).sum();
    (spread(x.len()) - ties) / 18.0
}

/// Mann-Kendall's z with the continuity correction; 0 where all values are equal.
pub(crate) fn trend_z(x: &[f64]) -> f64 {
    let (ups, downs) = moves(x);
    // Most values are no two alike, and then need not be sorted to see that.
    let is_tied = ups + downs < pairs(x.len());
    let variance = if is_tied { score_variance(x) } else { spread(x.len()) / 18.0 };
    z_of(ups as f64 - downs as f64, variance)
}

/// Whether Mann-Kendall's z reaches so much. Ties only lower the variance, so most trends need not look for them.
pub(crate) fn is_trend(x: &[f64], least: f64) -> bool {
    let (ups, downs) = moves(x);
    let score = ups as f64 - downs as f64;
    let is_tied = || ups + downs < pairs(x.len());
    z_of(score, spread(x.len()) / 18.0) >= least || (is_tied() && z_of(score, score_variance(x)) >= least)
}

fn z_of(score: f64, variance: f64) -> f64 {
    if variance > 0.0 { (score.abs() - 1.0).max(0.0).copysign(score) / variance.sqrt() } else { 0.0 }
}

/// Eighteen times the variance of the score of so many values without ties.
fn spread(count: usize) -> f64 {
    let n = count as f64;
    n * (n - 1.0) * (2.0 * n + 5.0)
}

/// Whether the line of Theil and Sen may be as steep as this: not where fewer than half of all pairs rise so much, which
/// is far cheaper to see than the line is to draw.
pub(crate) fn may_be_as_steep(series: &Series, slope: f64) -> bool {
    // A byte: more than rounding makes of any memory in MiB.
    const ROUNDING_MIB: f64 = 1e-6;
    let (at, x) = (series.times(), series.values());
    let mut rest = [0.0; RING];
    for (rest, (at, x)) in rest.iter_mut().zip(at.iter().zip(x)) {
        *rest = x - slope * at;
    }
    let rest = &rest[..x.len()];
    let (mut steep, mut pairs) = (0, 0);
    if at.windows(2).all(|pair| pair[1] > pair[0]) {
        pairs = (x.len() * x.len().saturating_sub(1) / 2) as u64;
        for (i, earlier) in rest.iter().enumerate() {
            let least = earlier - ROUNDING_MIB;
            steep += rest[i + 1..].iter().map(|later| u64::from(*later >= least)).sum::<u64>();
        }
    } else {
        for (i, (from, earlier)) in at.iter().zip(rest).enumerate() {
            let least = earlier - ROUNDING_MIB;
            for (until, later) in at[i + 1..].iter().zip(&rest[i + 1..]) {
                steep += u64::from(*later >= least) & u64::from(until > from);
                pairs += u64::from(until > from);
            }
        }
    }
    2 * steep >= pairs
}

/// The line of Theil and Sen. Its band is Sen's (1968): the pairwise slopes at the ranks that the variance of
/// Mann-Kendall's score gives. Two values at least, at different times.
pub(crate) fn theil_sen(series: &Series) -> Line {
    // Half a ring has a quarter of the pairs, and most windows that are looked at closely are of growth.
    if series.len <= RING / 2 { line::<HALF_PAIRS>(series) } else { line::<PAIRS>(series) }
}

/// See [`theil_sen`]; `MOST` is the most pairs that there can be.
fn line<const MOST: usize>(series: &Series) -> Line {
    let (at, x) = (series.times(), series.values());
    let mut slopes = [0; MOST];
    let mut count = 0;
    for (i, (from, low)) in at.iter().zip(x).enumerate() {
        let later = at[i + 1..].iter().zip(&x[i + 1..]);
        let begun = count;
        for (slope, (until, high)) in slopes[begun..].iter_mut().zip(later) {
            *slope = ordered((high - low) / (until - from));
        }
        count += at.len() - i - 1;
        // Times rise, so that those of no distance come first.
        let none = at[i + 1..].iter().take_while(|until| **until <= *from).count();
        slopes.copy_within(begun + none..count, begun);
        count -= none;
    }
    if count == 0 {
        return Line { slope: 0.0, low: 0.0, high: 0.0, intercept: x.first().copied().unwrap_or(0.0) };
    }
    let (low, slope, high) = middle(&mut slopes[..count], Z80 * score_variance(x).sqrt());
    let mut rest = [0.0; RING];
    for i in 0..x.len() {
        rest[i] = x[i] - slope * at[i];
    }
    let rest = &mut rest[..x.len()];
    rest.sort_unstable_by(f64::total_cmp);
    Line { slope, low, high, intercept: median(rest) }
}

/// The median of slopes, and those half of `reach` ranks below and above it. Each search narrows the next one.
fn middle(slopes: &mut [i64], reach: f64) -> (f64, f64, f64) {
    let count = slopes.len();
    let rank = |r: f64| (r.max(0.0) as usize).min(count - 1);
    let (low, high) = (rank((count as f64 - reach) / 2.0), rank((count as f64 + reach) / 2.0));
    let (below, upper, above) = slopes.select_nth_unstable(count / 2);
    let upper = *upper;
    // With an even number the median lies between two, and the lesser of them is the greatest below.
    let lower = if count.is_multiple_of(2) { below.iter().copied().max().unwrap_or(upper) } else { upper };
    let of_rank = |rank: usize, below: &mut [i64], above: &mut [i64]| match rank.cmp(&(count / 2)) {
        Ordering::Less => *below.select_nth_unstable(rank).1,
        Ordering::Equal => upper,
        Ordering::Greater => *above.select_nth_unstable(rank - count / 2 - 1).1,
    };
    let (low, high) = (of_rank(low, below, above), of_rank(high, below, above));
    (value(low), f64::midpoint(value(lower), value(upper)), value(high))
}

/// A number as an integer of the same order (`f64::total_cmp`'s), which is cheaper to compare.
const fn ordered(number: f64) -> i64 {
    let bits = number.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// The number of [`ordered`].
const fn value(ordered: i64) -> f64 {
    f64::from_bits((ordered ^ ((ordered >> 63) as u64 >> 1) as i64) as u64)
}

/// The slope of the least-squares line; 0 where times do not differ.
pub(crate) fn least_squares(series: &Series) -> f64 {
    let (at, x) = (mean(series.times()), mean(series.values()));
    let (mut products, mut squares) = (0.0, 0.0);
    for (t, v) in series.times().iter().zip(series.values()) {
        products += (t - at) * (v - x);
        squares += (t - at).powi(2);
    }
    if squares > 0.0 { products / squares } else { 0.0 }
}

/// The median of sorted values, at least one.
fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn series(x: &[f64]) -> Series {
        let mut series = Series::new();
        for (i, x) in x.iter().enumerate() {
            series.push(i as f64, *x);
        }
        series
    }

    #[test]
    fn a_known_sample_has_the_published_score() {
        // Gilbert (1987), Statistical Methods for Environmental Pollution Monitoring, example of section 16.4.2.
        let x = [10.0, 15.0, 14.0, 20.0];
        assert_eq!(moves(&x), (5, 1));
        assert!((score_variance(&x) - 8.667).abs() < 1e-3);
    }

    #[test]
    fn a_spike_is_gone_and_a_rise_stays() {
        let spiked = series(&[1.0, 2.0, 3.0, 90.0, 90.0, 6.0, 7.0, 8.0]).despiked(2);
        assert!(spiked.values().iter().all(|x| *x < 10.0), "{:?}", spiked.values());
        assert_eq!(series(&[1.0, 2.0, 3.0, 4.0]).despiked(2).values(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_part_beyond_the_end_is_empty() {
        let whole = series(&[1.0, 2.0, 3.0]);
        assert_eq!(whole.slice(1..9).values(), [2.0, 3.0]);
        assert_eq!((whole.slice(3..9).len(), whole.slice(5..9).len()), (0, 0));
    }

    #[test]
    fn ties_lower_the_variance() {
        assert_eq!((moves(&[1.0; 20]), score_variance(&[1.0; 20])), ((0, 0), 0.0));
        assert!(score_variance(&[1.0, 1.0, 2.0, 3.0]) < score_variance(&[0.0, 1.0, 2.0, 3.0]));
    }

    #[test]
    fn the_band_covers_the_true_slope_about_four_times_in_five() {
        let mut covered = 0;
        for seed in 0..400 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let x: Vec<f64> =
                (0..RING).map(|i| i as f64 * 0.3 + (0..12).map(|_| rng.f64()).sum::<f64>()).collect();
            let line = theil_sen(&series(&x));
            covered += i32::from(line.low <= 0.3 && 0.3 <= line.high);
        }
        assert!((290..=350).contains(&covered), "{covered} of 400");
    }

    proptest! {
        #[test]
        fn a_line_is_found_exactly_and_one_outlier_in_five_does_not_move_it(
            slope in -50.0..50.0_f64, height in -1e5..1e5_f64, outlier in -1e6..1e6_f64,
        ) {
            let mut x: Vec<f64> = (0..RING).map(|i| height + slope * i as f64).collect();
            prop_assert!(noise(&x) < 1e-6);
            for i in (2..RING).step_by(8) {
                x[i] += outlier;
            }
            let line = theil_sen(&series(&x));
            prop_assert!((line.slope - slope).abs() < 1e-6 && line.low <= line.slope && line.slope <= line.high);
            prop_assert!((line.at(0.0) - height).abs() < 1e-4);
        }

        #[test]
        fn the_line_is_that_of_all_slopes_in_order(
            x in proptest::collection::vec(-1e3..1e3_f64, 2..=RING), gap in 1..40_usize,
        ) {
            let mut gapped = Series::new();
            for (i, x) in x.iter().enumerate() {
                gapped.push(if i < gap { i } else { i + gap } as f64, *x);
            }
            let mut slopes = Vec::new();
            for (i, (t, a)) in gapped.times().iter().zip(gapped.values()).enumerate() {
                let later = gapped.times().iter().zip(gapped.values()).skip(i + 1);
                slopes.extend(later.map(|(u, b)| (b - a) / (u - t)));
            }
            slopes.sort_unstable_by(f64::total_cmp);
            let reach = Z80 * score_variance(&x).sqrt();
            let rank = |r: f64| slopes[(r.max(0.0) as usize).min(slopes.len() - 1)];
            let line = theil_sen(&gapped);
            let n = slopes.len() as f64;
            prop_assert_eq!((line.low, line.high), (rank((n - reach) / 2.0), rank((n + reach) / 2.0)));
            prop_assert_eq!(line.slope, median(&slopes));
        }

        #[test]
        fn no_line_is_steeper_than_it_may_be(
            x in proptest::collection::vec(-1e3..1e3_f64, 2..=RING), share in 0.5..1.5_f64,
        ) {
            for gap in [1.0, 3.0] {
                let mut all = Series::new();
                // With the wider gap some values share their time.
                x.iter().enumerate().for_each(|(i, x)| all.push((i as f64 / gap).floor(), *x));
                let slope = theil_sen(&all).slope;
                prop_assert!(may_be_as_steep(&all, slope));
                prop_assert!(may_be_as_steep(&all, slope * share) || slope < slope * share);
                prop_assert!(!may_be_as_steep(&all, 1e4) || x.len() <= gap as usize);
            }
        }

        #[test]
        fn medians_are_those_of_the_sorted_values(x in proptest::array::uniform5(-9..9_i8)) {
            let mut sorted = x.map(f64::from);
            prop_assert_eq!(median_of_5(sorted), { sorted.sort_unstable_by(f64::total_cmp); sorted[2] });
            let mut sorted = [x[0], x[1], x[2]].map(f64::from);
            prop_assert_eq!(median_of_3(sorted[0], sorted[1], sorted[2]), {
                sorted.sort_unstable_by(f64::total_cmp);
                sorted[1]
            });
        }

        #[test]
        fn reversing_turns_the_sign(x in proptest::collection::vec(-1e3..1e3_f64, 5..RING)) {
            let mut back = x.clone();
            back.reverse();
            prop_assert!((trend_z(&x) + trend_z(&back)).abs() < 1e-9);
        }

        #[test]
        fn ties_are_looked_for_where_a_trend_hangs_on_them(
            x in proptest::collection::vec(0..6_u8, 5..=RING), least in 0.5..5.0_f64,
        ) {
            let x: Vec<f64> = x.into_iter().map(f64::from).collect();
            prop_assert_eq!(is_trend(&x, least), trend_z(&x) >= least);
        }
    }
}
