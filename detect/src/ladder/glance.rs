//! Looks at windows in single precision: enough to see that most rise too little to be copied and judged.

use super::RING;
use super::ring::{CEIL, FLOOR, Heights, MID, RESIDUAL, Rung};
use crate::explain::Basis;
use crate::rise::Strictness;
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
        if usize::from(rung.unbroken) < slots {
            return None;
        }
        let quarter = slots / 4;
        let (mut rise, mut moved) = ([0.0; 4], [0.0; 4]);
        let (newest, oldest) = (rung.place(0), rung.place(slots - 1));
        // The newest block comes last: it has just been written, and is slow to be read as a whole.
        for i in (0..quarter).rev() {
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

/// The course of all heights through a window, in single precision: enough to see that most are no steady rise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    /// The largest step up between neighbouring blocks.
    largest: Heights,
    low: Heights,
    high: Heights,
    /// Mean height of each quarter above the first block, and its mean time.
    quarters: [Heights; 4],
    times: [f64; 4],
}

impl Course {
    /// Looks at so many slots, a multiple of four; nothing where one of them is empty.
    pub(super) fn of(rung: &Rung, slots: usize) -> Option<Self> {
        if usize::from(rung.unbroken) < slots {
            return None;
        }
        let oldest = rung.place(slots - 1);
        let first = &rung.heights[oldest];
        let (mut before, mut at) = (first, oldest);
        let mut course =
            Self { largest: [0.0; 4], low: *first, high: *first, quarters: [[0.0; 4]; 4], times: [0.0; 4] };
        let (blocks, all) = (slots / 4, &mut course);
        for (sums, time) in all.quarters.iter_mut().zip(&mut all.times) {
            for _ in 0..blocks {
                let block = &rung.heights[at % RING];
                for lane in 0..4 {
                    all.largest[lane] = greater(block[lane] - before[lane], all.largest[lane]);
                    all.low[lane] = lesser(block[lane], all.low[lane]);
                    all.high[lane] = greater(block[lane], all.high[lane]);
                    sums[lane] += block[lane] - first[lane];
                }
                *time += rung.at[at % RING];
                (before, at) = (block, at + 1);
            }
            *sums = sums.map(|sum| sum / blocks as f32);
            *time /= blocks as f64;
        }
        Some(course)
    }

    /// Whether a quantity surely rises in too large a step, or in a part of the window only, or slows down in it. Not
    /// where it is not looked at.
    pub(crate) fn is_no_rise(&self, basis: Basis, strict: &Strictness) -> bool {
        lane_of(basis).is_some_and(|lane| {
            exceeds(self.largest[lane], self.high[lane] - self.low[lane], strict.max_step)
                || self.is_uneven(lane, strict)
        })
    }

    /// See `rise::steadiness`.
    fn is_uneven(&self, lane: usize, strict: &Strictness) -> bool {
        let pace = |from: usize, until: usize| {
            f64::from(self.quarters[until][lane] - self.quarters[from][lane])
                / (self.times[until] - self.times[from])
        };
        let (paces, overall) = ([pace(0, 1), pace(1, 2), pace(2, 3)], pace(0, 3));
        // What sums are off by is in proportion to what they range over.
        let range = f64::from(self.high[lane] - self.low[lane]);
        let off = f64::from(32.0 * Glance::ROUNDING) * range / (self.times[1] - self.times[0]);
        paces[2] + off < strict.pace * greater(paces[0], paces[1])
            || paces.iter().any(|pace| pace + off < strict.evenness * overall)
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
    let (mut rise, mut moved) = ([0.0_f32; 4], [0.0_f32; 4]);
    let fours = values[..quarter].chunks_exact(4).zip(values[RING - quarter..].chunks_exact(4));
    for (older, newer) in fours {
        for lane in 0..4 {
            let step = newer[lane] - older[lane];
            rise[lane] += step;
            moved[lane] += step.abs();
        }
    }
    let whole = |[a, b, c, d]: [f32; 4]| (a + c) + (b + d);
    whole(rise) + Glance::ROUNDING * whole(moved) < least as f32 * quarter as f32
}

/// Whether one step surely makes up more than this share of the range of a window.
pub(super) fn is_stepped(values: &[f32; RING], most: f64) -> bool {
    let mut steps = [0.0_f32; RING];
    for (step, pair) in steps.iter_mut().zip(values.windows(2)) {
        *step = pair[1] - pair[0];
    }
    let range = most_of(values, greater) - most_of(values, lesser);
    exceeds(most_of(&steps, greater), range, most)
}

/// The greatest or the least of a window. By halves of halves: what is asked of many pairs at once is asked without a
/// branch, and which value is the greatest is as good as chance.
#[inline]
fn most_of(values: &[f32; RING], of: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = [0.0_f32; RING / 2];
    for (i, half) in half.iter_mut().enumerate() {
        *half = of(values[i], values[i + RING / 2]);
    }
    let mut quarter = [0.0_f32; RING / 4];
    for (i, quarter) in quarter.iter_mut().enumerate() {
        *quarter = of(half[i], half[i + RING / 4]);
    }
    quarter.into_iter().reduce(&of).unwrap_or(0.0)
}
