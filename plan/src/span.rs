//! An amount that is known only within bounds.

use std::ops::Add;

use ebbtide_core::Bytes;
use serde::Serialize;

/// The least, the likely and the most of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Span {
    /// The least.
    pub low: Bytes,
    /// The most likely.
    pub likely: Bytes,
    /// The most.
    pub high: Bytes,
}

impl Span {
    /// An amount that is known.
    #[must_use]
    pub const fn exactly(bytes: Bytes) -> Self {
        Self { low: bytes, likely: bytes, high: bytes }
    }

    /// From GiB, as logs print them. Negative figures count as none.
    #[must_use]
    pub fn gib(low: f64, likely: f64, high: f64) -> Self {
        let bytes = |gib: f64| Bytes((gib.max(0.0) * ebbtide_core::units::GIB as f64) as u64);
        Self { low: bytes(low), likely: bytes(likely), high: bytes(high) }
    }

    /// What is left of `whole`: the most where this is least.
    #[must_use]
    pub const fn rest_of(self, whole: Bytes) -> Self {
        Self {
            low: whole.saturating_sub(self.high),
            likely: whole.saturating_sub(self.likely),
            high: whole.saturating_sub(self.low),
        }
    }

    /// A share of it, rounded down.
    #[must_use]
    pub fn times(self, share: f64) -> Self {
        Self { low: part(self.low, share), likely: part(self.likely, share), high: part(self.high, share) }
    }

    /// Whether the amount lies within.
    #[must_use]
    pub fn holds(self, bytes: Bytes) -> bool {
        (self.low..=self.high).contains(&bytes)
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { low: self.low + other.low, likely: self.likely + other.likely, high: self.high + other.high }
    }
}

/// A share of an amount, rounded down; a share below 0 or not a number is none.
pub(crate) fn part(bytes: Bytes, share: f64) -> Bytes {
    Bytes((bytes.0 as f64 * share.max(0.0)) as u64)
}
