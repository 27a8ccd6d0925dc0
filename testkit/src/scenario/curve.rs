//! Memory over time, as a function that every process evaluates alike.

use ebbtide_core::{ByteRate, Bytes};
use serde::{Deserialize, Serialize};

/// Bytes as a function of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Curve {
    /// Always the same.
    Constant(Bytes),
    /// A straight line.
    Linear {
        /// Value at time 0.
        from: Bytes,
        /// Bytes a second; negative shrinks, and ends at zero.
        bytes_per_s: ByteRate,
        /// Where it stops rising.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap: Option<Bytes>,
    },
    /// Rises from `low` to `high` over a period and falls back at once, as a cache that is flushed.
    Sawtooth {
        /// Value at the start of a period.
        low: Bytes,
        /// Value that the end of a period approaches.
        high: Bytes,
        /// Length of a period.
        period_ms: u64,
    },
    /// Jumps: from each time on, that value; before the first, zero. Times rise.
    Steps(Vec<(i64, Bytes)>),
    /// The sum of others: weights, a cache and a leak, say.
    Sum(Vec<Curve>),
    /// NVML answers all ones: the amount is not known to it (WSL, old MIG drivers).
    NotAvailable,
}

impl Curve {
    /// A straight line without a cap.
    #[must_use]
    pub const fn linear(from: Bytes, rate: ByteRate) -> Self {
        Self::Linear { from, bytes_per_s: rate, cap: None }
    }

    /// The value at `ms`, or `None` where NVML would not know it. Before 0 a curve has its value of 0.
    #[must_use]
    pub fn at(&self, ms: i64) -> Option<Bytes> {
        let ms = ms.max(0);
        match self {
            Self::Constant(bytes) => Some(*bytes),
            Self::Linear { from, bytes_per_s, cap } => {
                // A float cast saturates, so that a falling line ends at zero and a rising one never wraps.
                let moved = (bytes_per_s.0 * ms as f64 / 1000.0).abs() as u64;
                let value = if bytes_per_s.0 < 0.0 {
                    from.saturating_sub(Bytes(moved))
                } else {
                    from.saturating_add(Bytes(moved))
                };
                Some(cap.map_or(value, |cap| value.min(cap)))
            }
            Self::Sawtooth { low, high, period_ms } => {
                let period = (*period_ms).max(1);
                let phase = u128::from(ms as u64 % period);
                let height = u128::from(high.saturating_sub(*low).0);
                Some(low.saturating_add(Bytes((height * phase / u128::from(period)) as u64)))
            }
            Self::Steps(steps) => {
                let reached = steps.iter().take_while(|(at, _)| *at <= ms).last();
                Some(reached.map_or(Bytes::ZERO, |(_, bytes)| *bytes))
            }
            Self::Sum(parts) => parts.iter().map(|part| part.at(ms)).sum(),
            Self::NotAvailable => None,
        }
    }
}

impl Default for Curve {
    /// Nothing, for ever.
    fn default() -> Self {
        Self::Constant(Bytes::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_at_their_corners() {
        let line = Curve::Linear { from: Bytes(100), bytes_per_s: ByteRate(10.0), cap: Some(Bytes(150)) };
        assert_eq!([-5, 0, 1500, 5000, 9000].map(|t| line.at(t).unwrap().0), [100, 100, 115, 150, 150]);
        let fall = Curve::linear(Bytes(100), ByteRate(-10.0));
        assert_eq!([0, 5000, 60_000].map(|t| fall.at(t).unwrap().0), [100, 50, 0]);
        let saw = Curve::Sawtooth { low: Bytes(10), high: Bytes(20), period_ms: 1000 };
        assert_eq!([0, 500, 999, 1000].map(|t| saw.at(t).unwrap().0), [10, 15, 19, 10]);
        let steps = Curve::Steps(vec![(100, Bytes(1)), (200, Bytes(5))]);
        assert_eq!([0, 100, 199, 200].map(|t| steps.at(t).unwrap().0), [0, 1, 1, 5]);
    }

    #[test]
    fn an_unknown_part_makes_the_sum_unknown() {
        let known = Curve::Sum(vec![Curve::Constant(Bytes(1)), Curve::Constant(Bytes(2))]);
        assert_eq!(known.at(0), Some(Bytes(3)));
        assert_eq!(Curve::Sum(vec![known, Curve::NotAvailable]).at(0), None);
    }
}
