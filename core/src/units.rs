//! Quantities with their unit in the type.

use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// One mebibyte in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte in bytes.
pub const GIB: u64 = 1 << 30;

/// An amount of memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes: a measured zero, never "unknown".
    pub const ZERO: Self = Self(0);

    /// `n` mebibytes; saturates at the largest representable amount.
    #[must_use]
    pub const fn from_mib(n: u64) -> Self {
        Self(n.saturating_mul(MIB))
    }

    /// The amount in mebibytes, for display and for statistics.
    #[must_use]
    pub fn mib(self) -> f64 {
        self.0 as f64 / MIB as f64
    }

    /// The sum, capped at the largest representable amount: a corrupt term must not wrap a total.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, or zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self - other` with its sign.
    #[must_use]
    pub fn signed_sub(self, other: Self) -> SignedBytes {
        let wide = i128::from(self.0) - i128::from(other.0);
        SignedBytes(i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&human_bytes(self.0 as f64))
    }
}

/// A difference of amounts of memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignedBytes(pub i64);

impl SignedBytes {
    /// The difference in mebibytes.
    #[must_use]
    pub fn mib(self) -> f64 {
        self.0 as f64 / MIB as f64
    }
}

impl fmt::Display for SignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&human_bytes(self.0 as f64))
    }
}

/// Growth of memory, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteRate(pub f64);

impl ByteRate {
    /// A rate from mebibytes a minute, the unit people talk in.
    #[must_use]
    pub fn from_mib_per_min(rate: f64) -> Self {
        Self(rate * MIB as f64 / 60.0)
    }

    /// The rate in mebibytes a minute.
    #[must_use]
    pub fn mib_per_min(self) -> f64 {
        self.0 * 60.0 / MIB as f64
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.mib_per_min();
        let text = match rate.abs() {
            r if r >= 1024.0 => format!("{:.1} GiB/min", rate / 1024.0),
            r if r >= 100.0 => format!("{rate:.0} MiB/min"),
            r if r >= 0.1 => format!("{rate:.1} MiB/min"),
            0.0 => "0 MiB/min".to_owned(),
            _ => format!("{rate:.3} MiB/min"),
        };
        f.pad(&text)
    }
}

/// A share of a whole, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub u8);

/// An instant: milliseconds since 1970-01-01 UTC. Wall time, so it can step; never subtract two for a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ts(pub i64);

impl Ts {
    /// The instant `ms` milliseconds after this one.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// The moment of a sample: the only form in which time enters detector, policy and pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Tick {
    /// Number of the sample, rising by at least one; never repeats in one history.
    pub seq: u64,
    /// Wall time, for people and for joining with other data.
    pub at: Ts,
    /// Milliseconds on a clock that never steps; differences of it are durations. Its origin is arbitrary.
    pub mono_ms: u64,
}

/// `1.5 GiB`, `812 MiB`, `4.0 KiB`, `-12 MiB`: three significant figures at most, binary prefixes.
fn human_bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value.abs() < 100.0 && (unit != 2 || value.abs() < 10.0));
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_say_them() {
        let shown: Vec<String> = [0, 512, 4096, 5 * MIB + MIB / 2, 812 * MIB, 24 * GIB, 141 * GIB]
            .map(|b| Bytes(b).to_string())
            .into();
        assert_eq!(shown, ["0 B", "512 B", "4.0 KiB", "5.5 MiB", "812 MiB", "24.0 GiB", "141 GiB"]);
        assert_eq!(SignedBytes(-(12 * MIB as i64)).to_string(), "-12 MiB");
    }

    #[test]
    fn rates_read_in_mib_a_minute() {
        assert_eq!(ByteRate::from_mib_per_min(4.1).to_string(), "4.1 MiB/min");
        assert_eq!(ByteRate::from_mib_per_min(0.02).to_string(), "0.020 MiB/min");
        assert_eq!(ByteRate::from_mib_per_min(2048.0).to_string(), "2.0 GiB/min");
    }

    #[test]
    fn differences_keep_their_sign_at_the_extremes() {
        assert_eq!(Bytes(1).signed_sub(Bytes(3)), SignedBytes(-2));
        assert_eq!(Bytes(u64::MAX).signed_sub(Bytes(0)), SignedBytes(i64::MAX));
        assert_eq!(Bytes(0).signed_sub(Bytes(u64::MAX)), SignedBytes(i64::MIN));
    }
}
