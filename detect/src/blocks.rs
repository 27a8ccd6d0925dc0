//! A block: what is kept of all samples in one stretch of time.

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
    /// What the KV counter leaves; absent unless every sample had the counter.
    pub(crate) kv: Option<KvBlock>,
    /// Mean number of running requests; absent unless every sample had it.
    pub(crate) running: Option<f32>,
}

/// A block's memory less what the KV counter accounts for, in two readings of "accounts for".
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KvBlock {
    /// Less the KV cache in use: right where the engine allocates on demand.
    pub(crate) residual: f32,
    /// Less the most KV cache ever in use: right where an allocator keeps its high water.
    pub(crate) beyond_peak: f32,
}

impl Block {
    /// Both blocks as one; the weights are their numbers of samples.
    pub(crate) fn merged(self, own: u32, other: Self, others: u32) -> Self {
        let share = f64::from(others) / f64::from(own + others);
        let mean = |a: f32, b: f32| (f64::from(a) + (f64::from(b) - f64::from(a)) * share) as f32;
        Self {
            at: self.at + (other.at - self.at) * share,
            floor: self.floor.min(other.floor),
            mid: mean(self.mid, other.mid),
            ceil: self.ceil.max(other.ceil),
            kv: self.kv.zip(other.kv).map(|(a, b)| KvBlock {
                residual: mean(a.residual, b.residual),
                beyond_peak: mean(a.beyond_peak, b.beyond_peak),
            }),
            running: self.running.zip(other.running).map(|(a, b)| mean(a, b)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(at: f64, value: f32, kv: Option<f32>) -> Block {
        let kv = kv.map(|kv| KvBlock { residual: value - kv, beyond_peak: value - kv });
        Block { at, floor: value, mid: value, ceil: value, kv, running: Some(1.0) }
    }

    #[test]
    fn merging_keeps_extremes_and_weighs_means_by_samples() {
        let merged = block(0.0, 10.0, Some(4.0)).merged(3, block(4.0, 30.0, Some(0.0)), 1);
        assert_eq!((merged.floor, merged.mid, merged.ceil, merged.at), (10.0, 15.0, 30.0, 1.0));
        assert_eq!(merged.kv.map(|kv| kv.residual), Some(12.0));
    }

    #[test]
    fn a_counter_that_was_absent_once_is_absent_in_the_whole_block() {
        assert_eq!(block(0.0, 10.0, Some(4.0)).merged(3, block(4.0, 30.0, None), 1).kv, None);
    }
}
