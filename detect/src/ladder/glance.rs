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
        for i in 0..quarter {
            let (newer, older) = (&rung.heights[rung.place(i)], &rung.heights[rung.place(slots - 1 - i)]);
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
        let lane = match basis {
            Basis::Floor => FLOOR,
            Basis::Mid => MID,
            Basis::Ceil => CEIL,
            Basis::Residual => RESIDUAL,
            Basis::CalmResidual | Basis::BeyondPeak => return false,
        };
        self.rise[lane] + Self::ROUNDING * self.moved[lane] < least as f32 * self.blocks
    }
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

/// Whether one step surely makes up more than this share of the range of a window, a multiple of four long.
pub(super) fn is_stepped<const SLOTS: usize>(values: &[f32; SLOTS], most: f64) -> bool {
    // Step and range are off by a rounding of 2^-24 or two.
    const ROUNDING: f32 = 1e-6;
    let mut steps = [0.0_f32; SLOTS];
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
    largest.into_iter().fold(0.0, greater) > most as f32 * range * (1.0 + ROUNDING)
}
