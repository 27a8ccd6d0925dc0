//! Stairs without a known event: equal steps upward with level stretches between them are a leak at each of something
//! that happens, whatever it is. A warm-up takes steps, too, and now and then some of them are equal by chance, so how
//! many are asked follows from how alike they are.

use ebbtide_core::{ByteRate, Evidence, FindingKind, RateBand, Severity, Tick, Tier, units::MIB};

use super::stretch::Stretch;
use super::{Claim, Known, Moment, bytes, seconds};
use crate::sentence;

/// Levels that are kept: steps of the last seven.
const KEPT: usize = 8;
/// The least step, in MiB: more than the segment of 20 MiB that caching allocators take at a time.
const MIN_STEP: f64 = 32.0;
/// What comes down by this much, in MiB, has come back: four allocation granules of 2 MiB.
const FALL: f64 = 8.0;
/// Steps are equal within two granules, in MiB, or within this share of them.
const EQUAL: (f64, f64) = (4.0, 0.02);
/// A level holds for so long, in seconds: graph capture takes a step each few seconds, weights come in shards.
const MIN_HOLD_S: f64 = 48.0;
/// And it is seen in so many stretches: of samples that are minutes apart any rise looks like stairs.
const MIN_SEEN: u32 = 3;
/// What memory may rise between steps, as a share of the next one.
const BETWEEN: f64 = 0.25;
/// Two heights are no more alike than this, in MiB: what driver and allocator round to.
const GRANULE: f64 = 2.0;
/// Steps that may make a leak; and how many make it sure.
const MIN_STEPS: usize = 3;
/// See [`MIN_STEPS`].
const SURE_STEPS: usize = 4;
/// The longest pause between steps, as a multiple of the shortest: what becomes ever rarer settles.
const MAX_PAUSE: f64 = 3.0;
/// A series so young, in seconds, is being loaded.
const YOUNG_S: f64 = 300.0;
/// So long after it began, in seconds, what it had at first says whether it is still being loaded.
const LOADED_S: f64 = 1800.0;
/// An event so long before a step, in seconds, may have caused it: then the ledger of events has the word.
const NEAR_EVENT_S: f64 = 60.0;
/// What the KV cache in use or the most of it rises by, as a share of a step, at which it accounts for it.
const EXPLAINED: f64 = 0.5;

/// A level that memory holds, in MiB.
#[derive(Debug, Clone, Copy)]
struct Level {
    since: Tick,
    lowest: f64,
    newest: f64,
    /// Stretches in which it was seen.
    seen: u32,
    /// The least KV cache in use, NaN where it is not told.
    kv: f32,
    /// The most that was in use when the level was first seen: an allocator keeps what a new maximum took.
    peak: f32,
}

/// Levels that followed each other upward without a known event.
#[derive(Debug, Clone, Default)]
pub(super) struct Stairs {
    /// When this life began, and at which height.
    began: Option<(Tick, f64)>,
    event: Option<Tick>,
    /// The most KV cache in use in this life, in MiB; none where it is not told.
    peak: f32,
    stretch: Option<Stretch>,
    levels: [Option<Level>; KEPT],
    len: usize,
}

/// Equal steps.
struct Flight {
    first: Tick,
    step: f64,
    /// The highest less the lowest step, in MiB.
    spread: f64,
    count: usize,
    /// Seconds from one to the next: shortest, mean, longest.
    pauses: [f64; 3],
}

impl Stairs {
    /// Something happened that is known.
    pub(super) fn event(&mut self, tick: Tick) {
        self.event = Some(tick);
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        self.began.get_or_insert((moment.tick, moment.mib));
        self.peak = self.peak.max(moment.kv_mib.map_or(f32::NAN, |kv| kv as f32));
        if let Some(ended) = Stretch::take(&mut self.stretch, moment) {
            self.close(ended);
        }
    }

    fn close(&mut self, ended: Stretch) {
        let Stretch { since, lowest, kv } = ended;
        let fresh = Level { since, lowest, newest: lowest, seen: 1, kv, peak: self.peak };
        // Half of it given back at once is another life.
        if self.levels[self.len.saturating_sub(1)].is_some_and(|level| ended.lowest < level.lowest / 2.0) {
            (self.began, self.peak) = (Some((ended.since, ended.lowest)), 0.0);
        }
        let is_young = self.began.is_some_and(|(began, _)| seconds(began, ended.since) < YOUNG_S);
        let Some(level) = self.levels[self.len.saturating_sub(1)].as_mut().filter(|_| !is_young) else {
            self.begin(fresh);
            return;
        };
        let rise = ended.lowest - level.newest;
        if ended.lowest <= level.lowest - FALL {
            self.begin(fresh);
        } else if rise < MIN_STEP {
            level.lowest = level.lowest.min(ended.lowest);
            level.newest = ended.lowest;
            level.seen = level.seen.saturating_add(1);
            level.kv = level.kv.min(ended.kv);
        } else if self.is_step(&fresh) {
            if self.len == KEPT {
                self.levels.rotate_left(1);
                self.len -= 1;
            }
            self.levels[self.len] = Some(fresh);
            self.len += 1;
        } else {
            self.begin(fresh);
        }
    }

    fn begin(&mut self, first: Level) {
        (self.levels, self.len) = ([None; KEPT], 1);
        self.levels[0] = Some(first);
    }

    /// Whether memory stood level before it came here, and nothing that is known took it here.
    fn is_step(&self, to: &Level) -> bool {
        let Some(from) = self.levels[self.len.saturating_sub(1)] else { return false };
        let height = to.lowest - from.lowest;
        let is_told = self.event.is_some_and(|event| seconds(event, to.since) < NEAR_EVENT_S);
        let is_explained = f64::from((to.kv - from.kv).max(to.peak - from.peak)) >= EXPLAINED * height;
        from.seen >= MIN_SEEN
            && seconds(from.since, to.since) >= MIN_HOLD_S
            && from.newest - from.lowest < BETWEEN * height
            && !is_told
            && !is_explained
    }

    /// The newest steps that are equal, where they go on.
    fn flight(&self, now: Tick) -> Option<Flight> {
        let held = self.levels[..self.len].iter().flatten().copied();
        // The newest level counts once it has held.
        let levels: Vec<Level> =
            held.filter(|level| level.seen >= MIN_SEEN && seconds(level.since, now) >= MIN_HOLD_S).collect();
        let newest = levels.last()?;
        let step = newest.lowest - levels.get(levels.len().checked_sub(2)?)?.lowest;
        let slack = EQUAL.0.max(EQUAL.1 * step);
        let is_equal = |pair: &&[Level]| (pair[1].lowest - pair[0].lowest - step).abs() <= slack;
        let count = levels.windows(2).rev().take_while(is_equal).count();
        let heights =
            || levels[levels.len() - 1 - count..].windows(2).map(|pair| pair[1].lowest - pair[0].lowest);
        let (least, most) = heights().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        let bottom = levels[levels.len() - 1 - count];
        let pauses =
            || levels[levels.len() - count..].windows(2).map(|pair| seconds(pair[0].since, pair[1].since));
        let (shortest, longest) = pauses().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        // What takes more than all that was held before is being loaded.
        let base = self.began.filter(|(began, _)| seconds(*began, bottom.since) < LOADED_S);
        let base = base.map_or(bottom.lowest, |(_, height)| height.min(bottom.lowest));
        let is_loading = newest.lowest > 2.0 * base;
        let goes_on = longest.max(seconds(newest.since, now)) <= MAX_PAUSE * shortest;
        (count >= MIN_STEPS && goes_on && !is_loading).then(|| Flight {
            first: levels[levels.len() - count].since,
            step,
            spread: most - least,
            count,
            pauses: [shortest, pauses().sum::<f64>() / (count - 1) as f64, longest],
        })
    }

    /// Whether memory climbs stairs that chance does not build at the fleet's level.
    pub(super) fn claim(&self, moment: &Moment<'_>, known: Known) -> Option<Claim> {
        if self.len <= MIN_STEPS {
            return None;
        }
        let flight = self.flight(moment.tick)?;
        if flight.log_chance() > known.budget.log_chance(flight.pauses[1]) {
            return None;
        }
        let Flight { first, step, count, pauses, .. } = flight;
        let [high, mean, low] = pauses.map(|each_s| ByteRate(step * MIB as f64 / each_s));
        let (rate, each_s) = (RateBand { rate: mean, low, high }, pauses[1]);
        Some(Claim {
            kind: FindingKind::Leak,
            tier: if count >= SURE_STEPS { Tier::Confirmed } else { Tier::Early },
            severity: Severity::Warning,
            since: first,
            amount: bytes(step * count as f64),
            accounts_for_rise: true,
            rate: Some(rate),
            evidence: vec![
                Evidence::new("step", step, "MiB"),
                Evidence::against("equal-steps", count as f64, "", MIN_STEPS as f64),
                Evidence::new("each", each_s, "s"),
            ],
            summary: sentence::leak_in_stairs(bytes(step), each_s, count),
            settle: sentence::SETTLE_STAIRS,
        })
    }
}

impl Flight {
    /// The natural logarithm of the chance that steps are so alike without a fault, if their heights spread evenly over
    /// no less than they measure, and they come without memory of each other (a Poisson process).
    fn log_chance(&self) -> f64 {
        let [shortest, _, longest] = self.pauses;
        let count = self.count as f64;
        // The range of n even values stays within a share w of theirs with a chance of n w^(n-1) at most.
        let share = ((self.spread + GRANULE) / self.step).min(1.0);
        let of_heights = count.ln() + (count - 1.0) * share.ln();
        // The longest of m exponential values is within 1 + d of the shortest with the chance of this product.
        let excess = (longest - shortest + Stretch::SECONDS) / shortest;
        let of_pause = |k: usize| (k as f64 * excess / (count - 1.0 + k as f64 * excess)).ln();
        of_heights + (1..self.count - 1).map(of_pause).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often so many steps of random height, after random pauses, are as alike as this flight.
    fn drawn(flight: &Flight, draws: u32) -> f64 {
        let mut rng = fastrand::Rng::with_seed(7);
        let share = (flight.spread + GRANULE) / flight.step;
        let excess = (flight.pauses[2] - flight.pauses[0] + Stretch::SECONDS) / flight.pauses[0];
        let is_alike = |_: &u32| {
            let span = |values: Vec<f64>| {
                values.iter().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)))
            };
            let (least, most) = span((0..flight.count).map(|_| rng.f64()).collect());
            let (shortest, longest) = span((1..flight.count).map(|_| -(1.0 - rng.f64()).ln()).collect());
            most - least <= share && longest <= (1.0 + excess) * shortest
        };
        f64::from((0..draws).filter(is_alike).count() as u32) / f64::from(draws)
    }

    #[test]
    fn the_chance_of_stairs_is_that_of_steps_without_memory() {
        for (count, spread, pauses) in
            [(3, 8.0, [60.0, 70.0, 80.0]), (4, 28.0, [60.0, 90.0, 110.0]), (3, 0.0, [48.0; 3])]
        {
            let flight = Flight { first: Tick::default(), step: 100.0, spread, count, pauses };
            let (stated, seen) = (flight.log_chance().exp(), drawn(&flight, 400_000));
            assert!(seen <= 1.1 * stated && stated <= 1.6 * seen, "{count} steps: {seen} for {stated}");
        }
    }
}
