//! How sure a count is.

/// The interval that holds the mean of a Poisson count at 95 % (F. Garwood, Biometrika 28, 1936): exact, so that
/// "none seen" has an upper end.
pub(super) fn poisson(count: u32) -> (f64, f64) {
    const TAIL: f64 = 0.025;
    let low = if count == 0 { 0.0 } else { mean_where(|mean| 1.0 - up_to(count - 1, mean) > TAIL) };
    (low, mean_where(|mean| up_to(count, mean) < TAIL))
}

/// The least mean of which something holds that holds for all larger ones.
fn mean_where(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while !holds(high) {
        high *= 2.0;
    }
    // Each step halves the interval; sixty leave less than a double can tell.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

/// The chance of at most `count` under a Poisson distribution; the terms are taken in logarithms, for large means.
fn up_to(count: u32, mean: f64) -> f64 {
    let mut logarithm = -mean;
    let mut sum = logarithm.exp();
    for i in 1..=count {
        logarithm += (mean / f64::from(i)).ln();
        sum += logarithm.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_counts_are_garwoods() {
        // From the chi-squared quantiles of common tables.
        for (count, low, high) in
            [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.39), (400, 361.8, 441.2)]
        {
            let found = poisson(count);
            assert!((found.0 - low).abs() < 0.005 * low.max(1.0), "{count} {found:?}");
            assert!((found.1 - high).abs() < 0.005 * high, "{count} {found:?}");
        }
    }
}
