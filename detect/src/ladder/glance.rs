//! Looks at windows in single precision: enough to see that most rise too little to be copied and judged.

use super::RING;
use super::ring::{CEIL, FLOOR, Heights, MID, RESIDUAL, Rung};
use crate::explain::Basis;
use crate::trend::{greater, lesser};

/// How far heights rise from the first to the last quarter of a window, summed over the blocks of a quarter, in single
/// precision: enough to see that most windows rise too little to be copied and looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Glance {
    rise: Heights,
    /// The sum of what was added up, without its signs: rounding is in proportion to it.
    moved: Heights,
    blocks: f32,
}

impl Glance {
    /// Sixteen roundings of 2^-24 each.
    const ROUNDING: f32 = 1e-6;

    /// Looks at the rises of so many slots, a multiple of four; nothing where one of them is empty.
    pub(super) fn of(rung: &Rung, slots: usize) -> Option<Self> {
        if rung.unbroken < slots {
            return None;
        }
        let quarter = slots / 4;
        let (mut rise, mut moved) = ([0.0; 4], [0.0; 4]);
        let (newest, oldest) = (rung.place(0), rung.place(slots - 1));
        for i in 0..quarter {
            let newer = &rung.heights[newest.wrapping_sub(i) % RING];
            let older = &rung.heights[oldest.wrapping_add(i) % RING];
            for lane in 0..4 {
                let step: f32 = newer[lane] - older[lane];
                rise[lane] += step;
                moved[lane] += step.abs();
            }
        }
        Some(Self { rise, moved, blocks: quarter as f32 })
    }

    /// Whether a quantity surely rises by less than this. Not where it is absent, or not glanced at.
    pub(crate) fn is_flat(&self, basis: Basis, least: f64) -> bool {
        let is_flat =
            |lane: usize| self.rise[lane] + Self::ROUNDING * self.moved[lane] < least as f32 * self.blocks;
        lane_of(basis).is_some_and(is_flat)
    }
}

/// The place of a quantity among the heights of a block.
const fn lane_of(basis: Basis) -> Option<usize> {
    match basis {
        Basis::Floor => Some(FLOOR),
        Basis::Mid => Some(MID),
        Basis::Ceil => Some(CEIL),
        Basis::Residual => Some(RESIDUAL),
        Basis::CalmResidual | Basis::BeyondPeak => None,
    }
}

/// The largest step up between neighbouring blocks of a window, and what its heights range over, in single precision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    largest: Heights,
    low: Heights,
    high: Heights,
}

impl Steps {
    /// Looks at so many slots; nothing where one of them is empty.
    pub(super) fn of(rung: &Rung, slots: usize) -> Option<Self> {
        if rung.unbroken < slots {
            return None;
        }
        let oldest = rung.place(slots - 1);
        let mut before = &rung.heights[oldest];
        let mut steps = Self { largest: [0.0; 4], low: *before, high: *before };
        for i in 1..slots {
            let block = &rung.heights[oldest.wrapping_add(i) % RING];
            for lane in 0..4 {
                steps.largest[lane] = greater(block[lane] - before[lane], steps.largest[lane]);
                steps.low[lane] = lesser(block[lane], steps.low[lane]);
                steps.high[lane] = greater(block[lane], steps.high[lane]);
            }
            before = block;
        }
        Some(steps)
    }

    /// Whether one step surely makes up more than this share of the range of a quantity. Not where it is not looked at.
    pub(crate) fn is_stepped(&self, basis: Basis, most: f64) -> bool {
        lane_of(basis).is_some_and(|lane| exceeds(self.largest[lane], self.high[lane] - self.low[lane], most))
    }
}

/// Whether a step surely makes up more than this share of a range: either is off by a rounding of 2^-24 or two.
fn exceeds(step: f32, range: f32, most: f64) -> bool {
    step > most as f32 * range * (1.0 + Glance::ROUNDING)
}

/// How far [`rough_noise`] may be off, in MiB: heights up to 1 TiB are read to 1/16 MiB.
pub(super) const ROUGHNESS: f32 = 0.25;

/// The noise of a full window in single precision, four values at a time.
pub(super) fn rough_noise(values: &[f32; RING]) -> f32 {
    let mut squares = [0.0_f32; 4];
    let bends = values.windows(3).map(|w| (w[2] - w[1]) - (w[1] - w[0]));
    let mut all = [0.0_f32; RING];
    for (place, bend) in all.iter_mut().zip(bends) {
        *place = bend * bend;
    }
    for four in all.chunks_exact(4) {
        for (sum, square) in squares.iter_mut().zip(four) {
            *sum += square;
        }
    }
    (squares.iter().sum::<f32>() / (6 * (RING - 2)) as f32).sqrt()
}

/// Whether values surely rise by less than this from the first to the last quarter; not where any there is NaN.
pub(super) fn is_flat(values: &[f32; RING], least: f64) -> bool {
    let quarter = RING / 4;
    let (mut rise, mut moved) = (0.0_f32, 0.0_f32);
    for (older, newer) in values[..quarter].iter().zip(&values[RING - quarter..]) {
        rise += newer - older;
        moved += (newer - older).abs();
    }
    rise + Glance::ROUNDING * moved < least as f32 * quarter as f32
}

/// Whether one step surely makes up more than this share of the range of a window.
pub(super) fn is_stepped(values: &[f32; RING], most: f64) -> bool {
    let mut steps = [0.0_f32; RING];
    for (step, pair) in steps.iter_mut().zip(values.windows(2)) {
        *step = pair[1] - pair[0];
    }
    let (mut low, mut high, mut largest) = ([f32::MAX; 4], [f32::MIN; 4], [0.0_f32; 4]);
    for (four, steps) in values.chunks_exact(4).zip(steps.chunks_exact(4)) {
        for lane in 0..4 {
            low[lane] = lesser(four[lane], low[lane]);
            high[lane] = greater(four[lane], high[lane]);
            largest[lane] = greater(steps[lane], largest[lane]);
        }
    }
    let range = high.into_iter().fold(f32::MIN, greater) - low.into_iter().fold(f32::MAX, lesser);
    exceeds(largest.into_iter().fold(0.0, greater), range, most)
}
