//! A block: what is kept of all samples in one stretch of time.

use crate::trend::{greater, lesser};

/// Floor, mean and ceiling of the memory in one block, and what the load leaves of it. MiB above the origin of the
/// epoch: `f32` then resolves 16 KiB at 140 GiB, far below an allocation granule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Block {
    /// Mean time of its samples, in seconds since the epoch began; not the middle of the block, so that slopes stay
    /// right where a block holds one sample.
    pub(crate) at: f64,
    /// Lowest value: what stays when load ebbs.
    pub(crate) floor: f32,
    /// Mean value.
    pub(crate) mid: f32,
    /// Highest value.
    pub(crate) ceil: f32,
    /// What the KV counter leaves, over the samples that had the counter; absent where none had.
    pub(crate) kv: KvBlock,
    /// Mean number of running requests, over the samples that had it; absent where none had.
    pub(crate) running: Count,
}

/// A mean number that may be absent, in four bytes: a series keeps hundreds of blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Count(f32);

impl Count {
    /// No number.
    pub(crate) const ABSENT: Self = Self(f32::NAN);

    /// A number, or none where it is NaN.
    pub(crate) const fn of(number: f32) -> Self {
        Self(number)
    }

    /// The number, where there is one.
    pub(crate) fn get(self) -> Option<f32> {
        (!self.0.is_nan()).then_some(self.0)
    }
}

impl From<Option<f32>> for Count {
    fn from(count: Option<f32>) -> Self {
        count.map_or(Self::ABSENT, Self)
    }
}

/// A block's memory less what the KV counter accounts for, in two readings of "accounts for"; all NaN where absent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KvBlock {
    /// Less the KV cache in use: right where the engine allocates on demand.
    pub(crate) residual: f32,
    /// The same in the calmest seconds, where a counter that comes late is off by least.
    pub(crate) calm: f32,
    /// Less the most KV cache ever in use: right where an allocator keeps its high water.
    pub(crate) beyond_peak: f32,
}

impl KvBlock {
    /// No counter.
    pub(crate) const ABSENT: Self = Self { residual: f32::NAN, calm: f32::NAN, beyond_peak: f32::NAN };

    /// What the counter leaves, where there is one.
    pub(crate) fn get(self) -> Option<Self> {
        (!self.residual.is_nan()).then_some(self)
    }
}

impl From<Option<KvBlock>> for KvBlock {
    fn from(kv: Option<KvBlock>) -> Self {
        kv.unwrap_or(Self::ABSENT)
    }
}

impl Block {
    /// All that needs a counter; NaN where it is absent.
    const fn counted(&self) -> [f32; 4] {
        [self.kv.residual, self.kv.calm, self.kv.beyond_peak, self.running.0]
    }

    /// Takes in another block; the weights are their numbers of samples.
    #[inline]
    pub(crate) fn take(&mut self, own: u32, other: &Self, others: u32) {
        // Halves mostly hold as many samples; a division would be the dearest part of it.
        let share = if own == others { 0.5 } else { f64::from(others) / f64::from(own + others) };
        let mean = |a: f32, b: f32| (f64::from(a) + (f64::from(b) - f64::from(a)) * share) as f32;
        self.at += (other.at - self.at) * share;
        self.floor = lesser(other.floor, self.floor);
        self.mid = mean(self.mid, other.mid);
        self.ceil = greater(other.ceil, self.ceil);
        // A scrape that failed must not blind a block of hours. All at once and without a branch: which scrapes fail is
        // as good as chance.
        let (own, other) = (self.counted(), other.counted());
        let [residual, calm, beyond_peak, running] = std::array::from_fn(|i| {
            let (a, b, both) = (own[i], other[i], mean(own[i], other[i]));
            let known = if a.is_nan() { b } else { a };
            if both.is_nan() { known } else { both }
        });
        (self.kv, self.running) = (KvBlock { residual, calm, beyond_peak }, Count(running));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(at: f64, value: f32, kv: Option<f32>) -> Block {
        let kv = kv.map(|kv| KvBlock { residual: value - kv, calm: value - kv, beyond_peak: value - kv });
        Block { at, floor: value, mid: value, ceil: value, kv: kv.into(), running: Some(1.0).into() }
    }

    #[test]
    fn merging_keeps_extremes_and_weighs_means_by_samples() {
        let mut merged = block(0.0, 10.0, Some(4.0));
        merged.take(3, &block(4.0, 30.0, Some(0.0)), 1);
        assert_eq!((merged.floor, merged.mid, merged.ceil, merged.at), (10.0, 15.0, 30.0, 1.0));
        assert_eq!(merged.kv.get().map(|kv| kv.residual), Some(12.0));
    }

    #[test]
    fn a_counter_that_failed_once_does_not_blind_the_block() {
        let mut merged = block(0.0, 10.0, Some(4.0));
        merged.take(3, &block(4.0, 30.0, None), 1);
        assert_eq!(merged.kv.get().map(|kv| kv.residual), Some(6.0));
    }
}
