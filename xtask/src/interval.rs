//! How sure a share is.

use serde::Serialize;

/// A count out of a total, with the interval that holds the true share at 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Share {
    pub(crate) hits: usize,
    pub(crate) of: usize,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Share {
    /// The share with Wilson's score interval (E. B. Wilson, JASA 22, 1927), which holds for small totals and at
    /// the ends; without any row it is all of 0 to 1.
    pub(crate) fn of(hits: usize, of: usize) -> Self {
        const Z: f64 = 1.959_964;
        if of == 0 {
            return Self { hits, of, low: 0.0, high: 1.0 };
        }
        let (n, p) = (of as f64, hits as f64 / of as f64);
        let centre = p + Z * Z / (2.0 * n);
        let width = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        Self { hits, of, low: ((centre - width) / scale).max(0.0), high: ((centre + width) / scale).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_shares_are_wilsons() {
        // Newcombe (Statistics in Medicine 17, 1998), table I: 81 of 263 and 15 of 148, method 3.
        for (hits, of, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]
        {
            let share = Share::of(hits, of);
            assert!((share.low - low).abs() < 1e-4 && (share.high - high).abs() < 1e-4, "{share:?}");
        }
        assert_eq!(Share::of(0, 0).high, 1.0);
    }
}
