//! One rung of the ladder: its ring of closed blocks, and the block that still grows.

use super::RING;
use crate::blocks::{Block, KvBlock};

/// Blocks with so many newer ones on their rung are old: a little less than half a ring, so that what is old on a rung
/// reaches up to what is old on the rung above, which may lack one block.
pub(super) const OLD: usize = RING / 2 - 2;

/// A block that still grows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling {
    pub(super) slot: u64,
    pub(super) samples: u32,
    pub(super) block: Block,
    /// Lowest and highest value of the KV counter, in the calmest part where there is a choice.
    pub(super) swing: Option<(f32, f32)>,
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
    pub(super) unbroken: usize,
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
        filling: None,
    };

    /// Keeps a block that has ended; gives its place. `old_peak`: the highest ceiling of the blocks from [`OLD`] on.
    pub(super) fn push(&mut self, ended: &Filling, old_peak: &mut f32) -> usize {
        let (place, block) = (self.next % RING, &ended.block);
        let lost = if self.len == RING { self.heights[place][CEIL] } else { f32::MIN };
        self.at[place] = block.at;
        let residual = block.kv.map_or(f32::NAN, |kv| kv.residual);
        self.heights[place] = [block.floor, block.mid, block.ceil, residual];
        let follows = self.len > 0 && ended.slot == self.newest_slot + 1;
        self.unbroken = if follows { (self.unbroken + 1).min(RING) } else { 1 };
        self.newest_slot = ended.slot;
        self.next = (self.next + 1) % RING;
        self.len = (self.len + 1).min(RING);
        if self.len > OLD {
            let aged = self.heights[self.place(OLD)][CEIL];
            if aged >= *old_peak {
                *old_peak = aged;
            } else if lost >= *old_peak {
                let ceilings = (OLD..self.len).map(|i| self.heights[self.place(i)][CEIL]);
                *old_peak = ceilings.fold(f32::MIN, f32::max);
            }
        }
        place
    }

    /// Where the `i`th newest block lies.
    pub(super) const fn place(&self, i: usize) -> usize {
        self.next.wrapping_sub(i + 1) % RING
    }
}

impl Filling {
    /// Both parts of a block as one. `is_choosing`: the calm residual comes from the calmer part.
    #[inline]
    pub(super) fn joined(&self, part: &Self, is_choosing: bool) -> Self {
        let mut block = self.block.merged(self.samples, &part.block, part.samples);
        let mut swing = self.swing.zip(part.swing).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
        if is_choosing && let (Some(a), Some(b)) = (self.swing, part.swing) {
            let is_own = a.1 - a.0 <= b.1 - b.0;
            let calmer = if is_own { self.block.kv } else { part.block.kv };
            swing = Some(if is_own { a } else { b });
            block.kv = block.kv.zip(calmer).map(|(kv, calmer)| KvBlock { calm: calmer.calm, ..kv });
        }
        Self {
            slot: self.slot,
            samples: self.samples.saturating_add(part.samples),
            block,
            swing: swing.or(self.swing).or(part.swing),
        }
    }
}

/// One of the heights of a ring's blocks in the order of time.
pub(super) fn lane<const LANE: usize>(heights: &[Heights; RING], oldest: usize) -> [f32; RING] {
    let mut lane = [0.0; RING];
    let (newer, older) = heights.split_at(oldest);
    for (value, block) in lane.iter_mut().zip(older.iter().chain(newer)) {
        *value = block[LANE];
    }
    lane
}

/// A ring in the order of time.
pub(super) fn in_order<T: Copy + Default>(ring: &[T; RING], oldest: usize) -> [T; RING] {
    let mut ordered = [T::default(); RING];
    ordered[..RING - oldest].copy_from_slice(&ring[oldest..]);
    ordered[RING - oldest..].copy_from_slice(&ring[..oldest]);
    ordered
}
