//! The ladder: rings of blocks, each rung's blocks twice as long as those of the rung below.

mod glance;
mod ring;

use std::num::NonZeroU32;

use crate::blocks::{Block, Count, KvBlock};
use crate::explain::Basis;
use crate::rise::Strictness;
use crate::trend::{Series, despike, greater, lesser, mean, noise};
use glance::{Course, Glance, ROUGHNESS, is_flat, is_stepped, rough_noise};
use ring::{CEIL, FLOOR, Filling, Heights, MID, RESIDUAL, Rung, WINDOWS, in_order, lane};

/// Rungs: blocks of 1 s, 2 s … 8192 s, so that the longest ring reaches back three days.
pub(crate) const RUNGS: usize = 14;
/// Blocks kept on each rung: Mann-Kendall over 32 exchangeable values exceeds z = 4.5 less than once in 600,000.
pub(crate) const RING: usize = 32;
/// Of the 32 slots of a window at least so many must be filled: below that a gap, not memory, would be judged. Half
/// of them do where they span the window, as samples do that come each other slot.
pub(crate) const MIN_FILLED: usize = 20;

/// Rungs whose blocks take the calm residual from their calmer half. Below them a block is shorter than a habitual
/// scrape interval of 5 s, so that a held counter only looks calm; above them means do better.
const CALMING: std::ops::RangeInclusive<usize> = 4..=6;

/// A set of rungs, as bits: mostly those that got a new block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Closed(u16);

impl Closed {
    fn mark(&mut self, rung: usize) {
        self.0 |= 1 << rung;
    }

    fn unmark(&mut self, rung: usize) {
        self.0 &= !(1 << rung);
    }

    /// Whether none did.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this rung did.
    pub(crate) const fn holds(self, rung: usize) -> bool {
        self.0 & (1 << rung) != 0
    }

    /// The rungs from short blocks to long ones.
    pub(crate) fn rungs(self) -> impl Iterator<Item = usize> {
        (0..RUNGS).take_while(move |rung| self.0 >> rung != 0).filter(move |rung| self.holds(*rung))
    }
}

/// What else counters leave of a rung's blocks. Most series have none, so these are kept apart; NaN is absent.
#[derive(Debug, Clone, Copy)]
struct Counters {
    calm: [f32; RING],
    beyond_peak: [f32; RING],
    running: [f32; RING],
}

impl Counters {
    const ABSENT: Self =
        Self { calm: [f32::NAN; RING], beyond_peak: [f32::NAN; RING], running: [f32::NAN; RING] };

    /// Those of all rungs, once in a life: kept out of what runs for each block, which needs no stack as large.
    #[cold]
    #[inline(never)]
    fn all() -> Box<[Self; RUNGS]> {
        Box::new([Self::ABSENT; RUNGS])
    }
}

/// Whether none of the values is absent.
fn is_present(values: &[f32]) -> bool {
    !values.iter().fold(false, |absent, value| absent | value.is_nan())
}

/// All rungs of one series since its epoch began.
#[derive(Debug, Clone)]
pub(crate) struct Ladder {
    rungs: [Rung; RUNGS],
    /// Of each rung the highest ceiling of its old blocks, those of the older half of its ring.
    old_peaks: [f32; RUNGS],
    /// The rungs that lack a slot between the blocks that they keep.
    gaps: Closed,
    counters: Option<Box<[Counters; RUNGS]>>,
}

/// Length of a rung's blocks, in seconds.
pub(crate) fn block_s(rung: usize) -> f64 {
    (1_u32 << rung) as f64
}

impl Ladder {
    /// The most bytes that a ladder keeps on the heap.
    pub(crate) const MAX_HEAP: usize = size_of::<[Counters; RUNGS]>();

    /// The bytes that it keeps on the heap now.
    pub(crate) fn heap(&self) -> usize {
        self.counters.as_ref().map_or(0, |counters| size_of_val(&**counters))
    }

    /// A ladder without blocks.
    pub(crate) const fn new() -> Self {
        Self { rungs: [Rung::EMPTY; RUNGS], old_peaks: [f32::MIN; RUNGS], gaps: Closed(0), counters: None }
    }

    /// Forgets everything: what comes is another life of the series.
    pub(crate) fn clear(&mut self) {
        self.counters = None;
        for rung in &mut self.rungs {
            (rung.next, rung.len, rung.unbroken, rung.filling) = (0, 0, 0, None);
            rung.within = [0; 2];
        }
        (self.old_peaks, self.gaps) = ([f32::MIN; RUNGS], Closed::default());
    }

    /// Takes one sample as a block of its own. Constant time on average: a rung closes half as often as the one
    /// below it.
    pub(crate) fn push(&mut self, sample: &Block) -> Closed {
        let mut closed = Closed::default();
        let slot = sample.at as u64;
        let counter = sample.mid - sample.kv.residual;
        let swing = (counter, counter);
        match &mut self.rungs[0].filling {
            Some(own) if own.slot == slot => {
                own.take(&Filling { slot, samples: NonZeroU32::MIN, block: *sample, swing }, false);
                return closed;
            }
            Some(_) => self.close(0, &mut closed),
            None => {}
        }
        self.rungs[0].filling = Some(Filling { slot, samples: NonZeroU32::MIN, block: *sample, swing });
        closed
    }

    /// Closes what grows on a rung and hands it to the rung above, which may close one too.
    fn close(&mut self, rung: usize, closed: &mut Closed) {
        let Some(slot) = self.keep(rung) else { return };
        closed.mark(rung);
        let above = rung + 1;
        if above == RUNGS {
            self.rungs[rung].filling = None;
            return;
        }
        if self.rungs[above].filling.as_ref().is_some_and(|filling| filling.slot != slot / 2) {
            // Its second half never came. What is above is at most one block behind, so this ends.
            self.close(above, closed);
        }
        let (below, above_it) = self.rungs.split_at_mut(above);
        if let (Some(part), whole) = (&below[rung].filling, &mut above_it[0].filling) {
            match whole {
                Some(whole) => whole.take(part, CALMING.contains(&above)),
                None => *whole = Some(Filling { slot: slot / 2, ..*part }),
            }
        }
        self.rungs[rung].filling = None;
        let is_second_half = slot % 2 == 1;
        if is_second_half {
            self.close(above, closed);
        }
    }

    /// Keeps what grows on a rung in its ring; gives its slot.
    fn keep(&mut self, rung: usize) -> Option<u64> {
        let kept = &mut self.rungs[rung];
        let (slot, place) = kept.keep(block_s(rung), &mut self.old_peaks[rung])?;
        if usize::from(kept.unbroken) < kept.len {
            self.gaps.mark(rung);
        } else {
            self.gaps.unmark(rung);
        }
        let block = &kept.filling.as_ref()?.block;
        let has_counters = block.kv.get().is_some() || block.running.get().is_some();
        if has_counters && self.counters.is_none() {
            self.counters = Some(Counters::all());
        }
        if let Some(counters) = &mut self.counters {
            let counters = &mut counters[rung];
            (counters.calm[place], counters.beyond_peak[place]) = (block.kv.calm, block.kv.beyond_peak);
            counters.running[place] = block.running.get().unwrap_or(f32::NAN);
        }
        Some(slot)
    }

    /// The block at a place of a rung's ring.
    #[inline]
    fn block(&self, rung: usize, place: usize) -> Block {
        let [floor, mid, ceil, residual] = self.rungs[rung].heights[place];
        let counters = self.counters.as_ref().map(|counters| &counters[rung]);
        let kv = counters.filter(|_| !residual.is_nan()).map(|counters| KvBlock {
            residual,
            calm: counters.calm[place],
            beyond_peak: counters.beyond_peak[place],
        });
        let running = counters.map_or(Count::ABSENT, |counters| Count::of(counters.running[place]));
        Block { at: self.rungs[rung].at[place], floor, mid, ceil, kv: kv.into(), running }
    }

    /// How many closed blocks a rung keeps.
    pub(crate) const fn len(&self, rung: usize) -> usize {
        self.rungs[rung].len
    }

    /// The blocks of a rung, oldest first.
    pub(crate) fn blocks(&self, rung: usize) -> impl DoubleEndedIterator<Item = Block> {
        (0..self.len(rung)).rev().map(move |i| self.block(rung, self.rungs[rung].place(i)))
    }

    /// The newest closed block of a rung.
    pub(crate) fn newest(&self, rung: usize) -> Option<Block> {
        (self.len(rung) > 0).then(|| self.block(rung, self.rungs[rung].place(0)))
    }

    /// The lowest floor and the lowest residual of a rung's window, gaps or not; the latter is NaN where no block has
    /// one.
    pub(crate) fn lowest(&self, rung: usize) -> Option<(f32, f32)> {
        let kept = self.kept_of(rung, RING);
        let rung = &self.rungs[rung];
        // What is not lower, NaN included, changes nothing. A ring that is not full is filled from its start.
        let lowest =
            |low: Heights, block: &Heights| [FLOOR, MID, CEIL, RESIDUAL].map(|i| lesser(block[i], low[i]));
        let [floor, _, _, residual] = if kept == rung.len {
            rung.heights[..rung.len].iter().fold([f32::MAX; 4], lowest)
        } else {
            (0..kept).map(|i| &rung.heights[rung.place(i)]).fold([f32::MAX; 4], lowest)
        };
        (rung.len > 0).then_some((floor, if residual < f32::MAX { residual } else { f32::NAN }))
    }

    /// The highest ceiling of what a rung keeps.
    pub(crate) fn highest(&self, rung: usize) -> Option<f32> {
        let rung = &self.rungs[rung];
        rung.heights[..rung.len].iter().map(|block| block[CEIL]).reduce(f32::max)
    }

    /// How many of the last `slots` slots of a rung are filled; `slots` is one of [`WINDOWS`].
    fn kept_of(&self, rung: usize, slots: usize) -> usize {
        debug_assert!(WINDOWS.contains(&slots), "no count is kept of {slots} slots");
        let window = usize::from(slots < RING);
        usize::from(self.rungs[rung].within[window])
    }

    /// How many of the last `slots` slots of a rung are filled; nothing where too few are.
    pub(crate) fn filled(&self, rung: usize, slots: usize) -> Option<usize> {
        let count = self.kept_of(rung, slots);
        (count * RING >= slots * MIN_FILLED || self.is_spanned(rung, slots, count)).then_some(count)
    }

    /// Whether half of a window's slots are filled, from its first ones to its last: by samples that come each other
    /// slot, not by what has only begun.
    fn is_spanned(&self, rung: usize, slots: usize, count: usize) -> bool {
        let (block_s, rung) = (block_s(rung), &self.rungs[rung]);
        2 * count >= slots
            && rung.at[rung.place(0)] - rung.at[rung.place(count - 1)] >= (slots - 2) as f64 * block_s
    }

    /// One quantity over the last `slots` slots of a rung, empty slots left out; nothing where a block in them lacks
    /// the quantity or too few are filled.
    pub(crate) fn series(&self, rung: usize, slots: usize, basis: Basis) -> Option<Series> {
        let (values, count) = self.window(rung, slots, basis)?;
        let rung = &self.rungs[rung];
        Some(Series::of(in_order(&rung.at, rung.place(count - 1)), values, count))
    }

    /// The values of [`Self::series`], and how many they are.
    #[inline]
    fn window(&self, rung: usize, slots: usize, basis: Basis) -> Option<([f64; RING], usize)> {
        let count = self.filled(rung, slots)?;
        let values = self.kept(rung, count, basis).filter(|values| is_present(&values[..count]))?;
        Some((values.map(f64::from), count))
    }

    /// What [`Self::series`] rises by from its first to its last quarter.
    pub(crate) fn rise(&self, rung: usize, slots: usize, basis: Basis) -> Option<f64> {
        let (values, count) = self.window(rung, slots, basis)?;
        let (first, last) = (&values[..count / 4], &values[3 * count / 4..count]);
        Some(mean(last) - mean(first))
    }

    /// The times of the first and the last block of a window, where [`Self::series`] would give it.
    pub(crate) fn extent(&self, rung: usize, slots: usize) -> Option<(f64, f64)> {
        let count = self.filled(rung, slots)?;
        let rung = &self.rungs[rung];
        Some((rung.at[rung.place(count - 1)], rung.at[rung.place(0)]))
    }

    /// The mean number of running requests, likewise.
    pub(crate) fn running(&self, rung: usize, slots: usize) -> Option<Series> {
        let count = self.filled(rung, slots)?;
        let oldest = self.rungs[rung].place(count - 1);
        let counters = &self.counters.as_ref()?[rung];
        let running = in_order(&counters.running, oldest);
        let at = in_order(&self.rungs[rung].at, oldest);
        is_present(&running[..count]).then(|| Series::of(at, running.map(f64::from), count))
    }

    /// The noise of one quantity over a window, as [`Self::series`] gives it.
    pub(crate) fn noise(&self, rung: usize, basis: Basis) -> Option<f64> {
        self.window(rung, RING, basis).map(|(values, count)| noise(&values[..count]))
    }

    /// Whether a window is filled with blocks that have a quantity, so that [`Self::series`] gives it.
    pub(crate) fn has(&self, rung: usize, basis: Basis) -> bool {
        self.filled(rung, RING).is_some_and(|count| match basis {
            Basis::Floor | Basis::Mid | Basis::Ceil => true,
            Basis::Residual | Basis::CalmResidual | Basis::BeyondPeak => {
                let places = (0..count).map(|i| self.rungs[rung].place(i));
                places.into_iter().all(|place| !self.rungs[rung].heights[place][RESIDUAL].is_nan())
            }
        })
    }

    /// Whether the residual is less noisy in the calmest seconds of blocks than over all of them.
    pub(crate) fn is_calm_quieter(&self, rung: usize) -> bool {
        let rough = |basis| self.unbroken(rung, basis).map(|values| rough_noise(&values));
        match rough(Basis::CalmResidual).zip(rough(Basis::Residual)) {
            Some((calm, mean)) if calm + ROUGHNESS < mean => true,
            Some((calm, mean)) if mean + ROUGHNESS < calm => false,
            _ => {
                let noise = |basis| self.noise(rung, basis);
                noise(Basis::CalmResidual).zip(noise(Basis::Residual)).is_some_and(|(calm, mean)| calm < mean)
            }
        }
    }

    /// Looks at the rises of so many slots, a multiple of four; nothing where one of them is empty.
    pub(crate) fn glance(&self, rung: usize, slots: usize) -> Option<Glance> {
        Glance::of(&self.rungs[rung], slots)
    }

    /// Looks at the course of so many slots, a multiple of four; nothing where one of them is empty.
    pub(crate) fn course(&self, rung: usize, slots: usize) -> Option<Course> {
        Course::of(&self.rungs[rung], slots)
    }

    /// Whether a quantity surely rises by less than this from the first to the last quarter of a window. Not where a
    /// slot is empty.
    pub(crate) fn is_flat(&self, rung: usize, basis: Basis, least: f64) -> bool {
        self.unbroken(rung, basis).is_some_and(|values| is_flat(&values, least))
    }

    /// Whether what counters leave surely rises too little, or in too large a step; the residual also once spikes of
    /// one block are taken away, and once those of two are. Not where a slot is empty.
    pub(crate) fn is_no_rise(&self, rung: usize, basis: Basis, strict: &Strictness) -> bool {
        let is_none = |x: &[f32; RING]| is_flat(x, strict.min_rise) || is_stepped(x, strict.max_step);
        let Some(x) = self.unbroken(rung, basis) else { return false };
        if basis != Basis::Residual {
            return is_none(&x);
        }
        [1, 2].into_iter().all(|width| {
            let mut calm = x;
            despike(&x, width, &mut calm);
            is_none(&calm)
        })
    }

    /// One quantity of a window without an empty slot, as it is kept: absent ones are NaN.
    fn unbroken(&self, rung: usize, basis: Basis) -> Option<[f32; RING]> {
        (usize::from(self.rungs[rung].unbroken) == RING).then(|| self.kept(rung, RING, basis))?
    }

    /// One quantity of the `count` newest blocks, oldest first, as it is kept.
    #[inline]
    fn kept(&self, rung: usize, count: usize, basis: Basis) -> Option<[f32; RING]> {
        let (kept, counters) = (&self.rungs[rung], self.counters.as_ref().map(|counters| &counters[rung]));
        let (heights, oldest) = (&kept.heights, kept.place(count - 1));
        Some(match basis {
            Basis::Floor => lane::<FLOOR>(heights, oldest),
            Basis::Mid => lane::<MID>(heights, oldest),
            Basis::Ceil => lane::<CEIL>(heights, oldest),
            Basis::Residual => lane::<RESIDUAL>(heights, oldest),
            Basis::CalmResidual => in_order(&counters?.calm, oldest),
            Basis::BeyondPeak => in_order(&counters?.beyond_peak, oldest),
        })
    }

    /// Whether any block that ended before a window of this rung, which starts at `at`, reached this height. Where no
    /// slot is empty, all that was before the window is in old blocks of this rung and of those above it; and what is
    /// old two rungs above was before it for sure.
    pub(crate) fn has_reached(&self, rung: usize, height: f32, at: f64) -> bool {
        let reaches = |index: usize| {
            let (rung, length_s) = (&self.rungs[index], block_s(index));
            let oldest_first = || (0..rung.len).rev().map(|i| rung.place(i));
            let ended = oldest_first().take_while(|&place| rung.at[place] + length_s <= at);
            ended.into_iter().any(|place| rung.heights[place][CEIL] >= height)
        };
        let above = (rung + 2).min(RUNGS);
        if self.old_peaks[above..].iter().copied().fold(f32::MIN, greater) >= height {
            return true;
        }
        if self.gaps.is_empty() {
            (rung..above).rev().any(|index| self.old_peaks[index] >= height && reaches(index))
        } else {
            (0..RUNGS).rev().any(reaches)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rise::{GROWTH, LEAK, YOUNG_LEAK, steadiness};

    fn sample(at: f64, value: f32) -> Block {
        Block { at, floor: value, mid: value, ceil: value, kv: KvBlock::ABSENT, running: Count::ABSENT }
    }

    #[test]
    fn as_many_blocks_are_counted_in_a_window_as_lie_in_its_slots() {
        let mut dice = fastrand::Rng::with_seed(1);
        for seldom in [1, 2, 3, 9] {
            let (mut ladder, mut at) = (Ladder::new(), 0.0);
            for _ in 0..2000 {
                at += if dice.u32(0..200) == 0 { dice.f64() * 300.0 } else { 0.3 + dice.f64() };
                if dice.u32(0..seldom) > 0 {
                    continue;
                }
                ladder.push(&sample(at, 0.0));
                for (rung, slots) in (0..RUNGS).flat_map(|rung| WINDOWS.map(|slots| (rung, slots))) {
                    let slot = |block: &Block| (block.at / block_s(rung)) as u64 as f64;
                    let newest = ladder.newest(rung).map_or(0.0, |block| slot(&block));
                    let within = ladder.blocks(rung).filter(|block| slot(block) > newest - slots as f64);
                    assert_eq!(ladder.kept_of(rung, slots), within.count(), "rung {rung} at {at}");
                }
            }
        }
    }

    fn filled(times: impl Iterator<Item = f64>) -> Ladder {
        let mut ladder = Ladder::new();
        for at in times {
            ladder.push(&sample(at, at as f32));
        }
        ladder
    }

    #[test]
    fn each_rung_holds_the_same_time_in_half_as_many_blocks() {
        let ladder = filled((0..4 * 64).map(|i| f64::from(i) / 4.0));
        let counts: Vec<usize> = (0..7).map(|rung| ladder.blocks(rung).count()).collect();
        assert_eq!(counts, [32, 31, 15, 7, 3, 1, 0], "63 blocks closed, the ring keeps 32");
        let minima: Vec<f32> = ladder.blocks(4).map(|block| block.floor).collect();
        assert_eq!(minima, [0.0, 16.0, 32.0]);
        assert_eq!(ladder.newest(4).map(|block| (block.mid, block.ceil)), Some((39.875, 47.75)));
    }

    #[test]
    fn a_gap_closes_what_was_open_and_leaves_slots_empty() {
        let ladder = filled((0..10).chain(1000..1010).map(f64::from));
        assert!(ladder.series(0, RING, Basis::Mid).is_none());
        assert_eq!(ladder.blocks(3).map(|block| block.floor).collect::<Vec<_>>(), [0.0, 8.0, 1000.0]);
    }

    #[test]
    fn sampling_slower_than_two_blocks_fills_only_longer_rungs() {
        let ladder = filled((0..200).map(|i| f64::from(i) * 30.0));
        let judged: Vec<usize> =
            (0..RUNGS).filter(|&rung| ladder.series(rung, RING, Basis::Mid).is_some()).collect();
        assert_eq!(judged, [4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_window_is_flat_just_where_its_copy_is_and_never_over_a_gap() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut ladder, mut sum) = (Ladder::new(), 0.0);
            for i in 0..100 {
                sum += rng.f32() - 0.4;
                ladder.push(&sample(f64::from(i), sum));
            }
            let copy = ladder.series(0, RING, Basis::Mid).expect("no slot is empty");
            let rise = copy.part(3, 4).1 - copy.part(0, 4).1;
            let glance = ladder.glance(0, RING).expect("no slot is empty");
            assert!(glance.is_flat(Basis::Mid, rise + 1e-4) && !glance.is_flat(Basis::Mid, rise - 1e-6));
            ladder.push(&sample(102.0, sum));
            ladder.push(&sample(103.0, sum));
            assert!(ladder.glance(0, RING).is_none(), "a slot is empty");
        }
    }

    #[test]
    fn what_a_look_refuses_is_no_steady_rise() {
        let (mut refused, mut steady) = (0, 0);
        for seed in 0..3000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut ladder, mut sum, drift, noise) = (Ladder::new(), 0.0, rng.f32() * 4.0, rng.f32() * 8.0);
            for i in 0..=RING as u32 {
                let jump = if rng.u8(..) < 8 { rng.f32() * 40.0 } else { 0.0 };
                sum += drift * rng.f32() + jump;
                ladder.push(&sample(f64::from(i), sum + noise * rng.f32()));
            }
            for (strict, slots) in [(&LEAK, RING), (&YOUNG_LEAK, RING), (&GROWTH, RING / 2)] {
                let series = ladder.series(0, slots, Basis::Floor).expect("no slot is empty");
                let course = ladder.course(0, slots).expect("no slot is empty");
                let is_steady = steadiness(&series, strict).is_ok();
                let is_refused = course.is_no_rise(Basis::Floor, strict);
                assert!(!(is_steady && is_refused), "seed {seed}");
                (refused, steady) = (refused + u32::from(is_refused), steady + u32::from(is_steady));
            }
        }
        assert!(refused > 1000 && steady > 1000, "{refused} refused, {steady} steady of 9000");
    }

    #[test]
    fn whatever_was_reached_before_a_window_is_remembered() {
        for seed in 0..40 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut ladder, mut samples, mut height) = (Ladder::new(), Vec::new(), 0.0);
            for i in 0..1500 {
                height += rng.f32() - 0.48;
                samples.push(height);
                let closed = ladder.push(&sample(f64::from(i), height));
                for rung in closed.rungs() {
                    let Some((from, _)) = ladder.extent(rung, RING / 2) else { continue };
                    let begun = (from / block_s(rung)) as usize * block_s(rung) as usize;
                    let Some(peak) = samples[..begun].iter().copied().reduce(f32::max) else { continue };
                    assert!(ladder.has_reached(rung, peak, from), "seed {seed}, {i} s, rung {rung}");
                    assert!(!ladder.has_reached(rung, peak + 1e-3, from), "seed {seed}, {i} s, rung {rung}");
                }
            }
        }
    }

    #[test]
    fn each_block_spans_just_the_samples_of_its_slot_over_any_pattern_of_gaps() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut ladder, mut samples, mut at) = (Ladder::new(), Vec::new(), 0.0);
            for _ in 0..500 {
                at += rng.f64() * if rng.u8(..) < 16 { 300.0 } else { 3.0 };
                samples.push((at, rng.f32()));
            }
            for &(at, value) in &samples {
                ladder.push(&sample(at, value));
            }
            // A rung is at most one block behind the one below it: so many ends close all that was open.
            let is_end = |at: f64| at >= 1e7;
            for end in 1..=2 * RUNGS {
                ladder.push(&sample(1e7 * end as f64, 0.0));
            }
            for rung in 0..RUNGS {
                let slot = |at: f64| (at / block_s(rung)) as u64;
                let span = |slot: &[(f64, f32)]| {
                    slot.iter().fold((f32::MAX, f32::MIN), |(low, high), &(_, v)| (low.min(v), high.max(v)))
                };
                let slots: Vec<(f32, f32)> =
                    samples.chunk_by(|(a, _), (b, _)| slot(*a) == slot(*b)).map(span).collect();
                let kept: Vec<Block> = ladder.blocks(rung).collect();
                let ends = kept.iter().filter(|block| is_end(block.at)).count();
                assert_eq!(kept.len(), RING.min(slots.len() + ends), "seed {seed}, rung {rung}");
                let spans: Vec<(f32, f32)> =
                    kept.iter().take(kept.len() - ends).map(|block| (block.floor, block.ceil)).collect();
                assert_eq!(spans, slots[slots.len() - spans.len()..], "seed {seed}, rung {rung}");
            }
        }
    }
}
