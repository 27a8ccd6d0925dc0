//! One rung of the ladder: its ring of closed blocks, and the block that still grows.

use std::num::NonZeroU32;

use super::RING;
use crate::blocks::Block;
use crate::trend::greater;

/// Blocks with so many newer ones on their rung are old: a little less than half a ring, so that what is old on a rung
/// reaches up to what is old on the rung above, which may lack one block.
pub(super) const OLD: usize = RING / 2 - 2;

/// Slots of the windows that are judged.
pub(super) const WINDOWS: [usize; 2] = [RING, RING / 2];

/// A block that still grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling {
    pub(super) slot: u64,
    /// Not zero, so that what does not grow takes no room to say so.
    pub(super) samples: NonZeroU32,
    pub(super) block: Block,
    /// Lowest and highest value of the KV counter, in the calmest part where there is a choice; NaN where absent.
    pub(super) swing: (f32, f32),
}

/// One rung: a ring of closed blocks and the one that still grows. What a glance needs lies side by side.
#[derive(Debug, Clone)]
pub(super) struct Rung {
    pub(super) at: [f64; RING],
    pub(super) heights: [Heights; RING],
    pub(super) next: usize,
    pub(super) len: usize,
    /// The slot of the newest block, and how many slots in a row up to it are filled.
    pub(super) newest_slot: u64,
    pub(super) unbroken: u8,
    /// How many blocks lie in the last slots, for each of [`WINDOWS`].
    pub(super) within: [u8; 2],
    pub(super) filling: Option<Filling>,
}

/// Floor, mean, ceiling and residual of a block; the residual is NaN where the counter was absent.
pub(super) type Heights = [f32; 4];
pub(super) const FLOOR: usize = 0;
pub(super) const MID: usize = 1;
pub(super) const CEIL: usize = 2;
pub(super) const RESIDUAL: usize = 3;

impl Rung {
    pub(super) const EMPTY: Self = Self {
        at: [0.0; RING],
        heights: [[0.0; 4]; RING],
        next: 0,
        len: 0,
        newest_slot: 0,
        unbroken: 0,
        within: [0; 2],
        filling: None,
    };

    /// Keeps the block that has grown; gives its slot and its place. `old_peak`: no lower than any ceiling from [`OLD`]
    /// on.
    #[inline]
    pub(super) fn keep(&mut self, block_s: f64, old_peak: &mut f32) -> Option<(u64, usize)> {
        let Filling { slot, block, .. } = self.filling.as_ref()?;
        let (slot, place) = (*slot, self.next % RING);
        self.at[place] = block.at;
        self.heights[place] = [block.floor, block.mid, block.ceil, block.kv.residual];
        let follows = self.len > 0 && slot == self.newest_slot + 1;
        self.unbroken = if follows { (self.unbroken + 1).min(RING as u8) } else { 1 };
        self.newest_slot = slot;
        self.next = (self.next + 1) % RING;
        self.len = (self.len + 1).min(RING);
        self.within = [0, 1].map(|i| self.count_within(i, slot, block_s));
        if self.len > OLD {
            let aged = self.heights[self.place(OLD)][CEIL];
            if aged >= *old_peak {
                *old_peak = aged;
            } else if place.is_multiple_of(8) {
                // What has left the ring is forgotten now and then: too high a peak only costs a look.
                let ceilings = (OLD..self.len).map(|i| self.heights[self.place(i)][CEIL]);
                *old_peak = ceilings.fold(f32::MIN, greater);
            }
        }
        Some((slot, place))
    }

    /// How many blocks lie in one of [`WINDOWS`] now that another has come: those that did, without those that it has
    /// pushed out.
    #[inline]
    fn count_within(&self, window: usize, newest_slot: u64, block_s: f64) -> u8 {
        let slots = WINDOWS[window];
        let mut within = (usize::from(self.within[window]) + 1).min(self.len).min(slots);
        if usize::from(self.unbroken) < within {
            let oldest_s = (newest_slot + 1).saturating_sub(slots as u64) as f64 * block_s;
            while within > 1 && self.at[self.place(within - 1)] < oldest_s {
                within -= 1;
            }
        }
        within as u8
    }

    /// Where the `i`th newest block lies.
    pub(super) const fn place(&self, i: usize) -> usize {
        self.next.wrapping_sub(i + 1) % RING
    }
}

impl Filling {
    /// Takes in a part of the same block. `is_choosing`: the calm residual comes from the calmer part. In place, as
    /// what has just been written is slow to be read again as a whole.
    #[inline]
    pub(super) fn take(&mut self, part: &Self, is_choosing: bool) {
        let own_calm = self.block.kv.calm;
        self.block.take(self.samples.get(), &part.block, part.samples.get());
        self.samples = self.samples.saturating_add(part.samples.get());
        let (own, other) = (self.swing, part.swing);
        if is_choosing && !own.0.is_nan() && !other.0.is_nan() {
            let is_own = own.1 - own.0 <= other.1 - other.0;
            self.block.kv.calm = if is_own { own_calm } else { part.block.kv.calm };
            self.swing = if is_own { own } else { other };
        } else {
            self.swing = (own.0.min(other.0), own.1.max(other.1));
        }
    }
}

/// One of the heights of a ring's blocks in the order of time.
pub(super) fn lane<const LANE: usize>(heights: &[Heights; RING], oldest: usize) -> [f32; RING] {
    // Of one length wherever it begins: where loops end is as good as chance.
    std::array::from_fn(|i| heights[(oldest + i) % RING][LANE])
}

/// A ring in the order of time.
pub(super) fn in_order<T: Copy + Default>(ring: &[T; RING], oldest: usize) -> [T; RING] {
    let mut ordered = [T::default(); RING];
    ordered[..RING - oldest].copy_from_slice(&ring[oldest..]);
    ordered[RING - oldest..].copy_from_slice(&ring[..oldest]);
    ordered
}
