//! The ebb: memory that floods by GiB and comes back to nearly the same level time and again, each time a little higher
//! and at an even pace, leaks, whatever the floods are. No load need be known, so it is asked only where none is told.

use ebbtide_core::{ByteRate, Evidence, FindingKind, RateBand, Severity, Tick, Tier, units::MIB};

use super::stretch::Stretch;
use super::{Claim, Moment, bytes, seconds};
use crate::sentence;

/// Neighbouring stretches of one level differ by no more than this, in MiB: twelve allocation granules of 2 MiB.
const LEVEL: f64 = 24.0;
/// A level holds for so long, in seconds, and is seen in so many stretches.
const MIN_HOLD_S: f64 = 60.0;
/// See [`MIN_HOLD_S`].
const MIN_SEEN: f64 = 3.0;
/// A flood rises by so much above the ebb, in MiB: a model or a batch, not the jitter of an allocator.
const FLOOD: f64 = 1024.0;
/// An ebb is no higher above the one before than this share of the flood between them: else it is a lesser flood.
const NEAR: f64 = 0.25;
/// What comes down below this share of the flood is another life: a process ended, and the next begins.
const LEFT: f64 = 0.1;
/// Ebbs that are compared.
const KEPT: usize = 8;
/// Ebbs begin so long after each other, in seconds: so those that are kept span what is asked of them.
const APART_S: f64 = 1200.0;
/// They span so long, in seconds: in it an allocator that settles within hours is seen to bend.
const MIN_SPAN_S: f64 = 7200.0;
/// The least rise from the first to the last, in MiB: sixteen allocation granules of 2 MiB.
const MIN_RISE: f64 = 32.0;
/// Ebbs lie on a line within three granules, in MiB, or within this share of the rise.
const FIT: (f64, f64) = (6.0, 0.08);
/// So many on a line are no chance.
const MIN_EBBS: usize = 5;
/// And so many are none where each creeps upward by itself at the pace of the line between them.
const MIN_CREEPING: usize = 3;
/// Creeping is seen in so long, in seconds.
const MIN_CREEP_S: f64 = 300.0;
/// And differs from the pace of the line by no more than this share of it.
const CREEP_SHARE: f64 = 0.5;
/// It goes on while the newest ebb ended no longer ago than so many times the longest pause between ebbs.
const MAX_PAUSE: f64 = 2.0;

/// A level that memory came down to.
#[derive(Debug, Clone, Copy)]
struct Ebb {
    since: Tick,
    until: Tick,
    /// Its mean height, in MiB, at the middle of its time.
    height: f64,
    /// How it creeps, in MiB a second.
    creep: f64,
}

/// A level that still holds: what a line through it needs, from its first stretch on.
#[derive(Debug, Clone, Copy)]
struct Holding {
    since: Tick,
    first: f64,
    until: Tick,
    newest: f64,
    /// Whether the newest stretch lay off the level: one alone is a spike.
    is_off: bool,
    count: f64,
    /// Sums of times and heights since the first stretch, of squares and of products.
    sums: [f64; 4],
}

/// Ebbs, the newest last.
#[derive(Debug, Clone, Copy, Default)]
struct Ebbs {
    kept: [Option<Ebb>; KEPT],
    len: usize,
}

/// The state of the rule.
#[derive(Debug, Clone, Default)]
pub(super) struct EbbTide {
    stretch: Option<Stretch>,
    holding: Option<Holding>,
    /// The highest since the newest ebb ended, in MiB.
    flood: f64,
    ebbs: Ebbs,
}

/// Ebbs on a line.
struct Course {
    since: Tick,
    count: usize,
    held: f64,
    grown: f64,
    span_s: f64,
    /// MiB a second: the slowest between two ebbs, that of the line, the fastest.
    paces: [f64; 3],
}

impl Holding {
    const fn new(stretch: Stretch) -> Self {
        let Stretch { since, lowest, .. } = stretch;
        Self { since, first: lowest, until: since, newest: lowest, is_off: false, count: 1.0, sums: [0.0; 4] }
    }

    fn add(&mut self, stretch: Stretch) {
        let (at, x) = (seconds(self.since, stretch.since), stretch.lowest - self.first);
        for (sum, term) in self.sums.iter_mut().zip([at, x, at * at, at * x]) {
            *sum += term;
        }
        (self.count, self.until) = (self.count + 1.0, stretch.since);
        (self.newest, self.is_off) = (stretch.lowest, false);
    }

    /// What it comes to, once it has held.
    fn ebb(&self) -> Option<Ebb> {
        if self.count < MIN_SEEN || seconds(self.since, self.until) < MIN_HOLD_S {
            return None;
        }
        let [at, x, squares, products] = self.sums.map(|sum| sum / self.count);
        let creep = (products - at * x) / (squares - at * at);
        Some(Ebb { since: self.since, until: self.until, height: self.first + x, creep })
    }
}

impl Ebb {
    /// The middle of its time, in seconds after an instant.
    fn at(&self, origin: Tick) -> f64 {
        seconds(origin, self.since) + seconds(self.since, self.until) / 2.0
    }

    fn is_long(&self) -> bool {
        seconds(self.since, self.until) >= MIN_CREEP_S
    }

    fn creeps_at(&self, pace: f64) -> bool {
        self.is_long() && (self.creep - pace).abs() <= CREEP_SHARE * pace
    }
}

impl Ebbs {
    /// Takes a level that memory came down to from a flood; says whether it is an ebb.
    fn add(&mut self, ebb: Ebb, flood: f64) -> bool {
        let newest = self.len.checked_sub(1).and_then(|newest| self.kept[newest]);
        let is_flooded = flood >= ebb.height + FLOOD;
        match newest {
            _ if !is_flooded => return false,
            Some(newest) if ebb.height > newest.height + NEAR * (flood - newest.height) => return false,
            Some(newest) if ebb.height >= newest.height - LEVEL => {
                if seconds(newest.since, ebb.since) < APART_S {
                    return true;
                }
                if self.len == KEPT {
                    self.kept.rotate_left(1);
                    self.len -= 1;
                }
            }
            // It came down further: what was held before was a flood too.
            _ => self.len = 0,
        }
        self.kept[self.len] = Some(ebb);
        self.len += 1;
        true
    }

    /// The longest course up to the newest ebb that is even.
    fn course(&self) -> Option<Course> {
        (MIN_CREEPING..=self.len).rev().find_map(|count| {
            let mut ebbs = [None; KEPT];
            ebbs[..count].copy_from_slice(&self.kept[self.len - count..self.len]);
            course(&ebbs[..count])
        })
    }
}

/// So many ebbs as one course, where it is even.
fn course(ebbs: &[Option<Ebb>]) -> Option<Course> {
    let (first, last) = (ebbs.first().copied()??, ebbs.last().copied()??);
    let ebbs = || ebbs.iter().flatten();
    let count = ebbs().count() as f64;
    let mean = |value: &dyn Fn(&Ebb) -> f64| ebbs().map(value).sum::<f64>() / count;
    let at = |ebb: &Ebb| ebb.at(first.since);
    let (time, height) = (mean(&at), mean(&|ebb| ebb.height));
    let squares = mean(&|ebb| (at(ebb) - time).powi(2));
    let pace = mean(&|ebb| (at(ebb) - time) * (ebb.height - height)) / squares;
    let span_s = at(&last) - at(&first);
    let grown = pace * span_s;
    let slack = FIT.0.max(FIT.1 * grown);
    let is_even = ebbs().all(|ebb| (ebb.height - height - pace * (at(ebb) - time)).abs() <= slack);
    // The newest may have only begun.
    let is_creeping = |ebb: &Ebb| ebb.creeps_at(pace) || (ebb.since == last.since && !ebb.is_long());
    let is_sure = ebbs().count() >= MIN_EBBS || ebbs().all(is_creeping);
    if span_s < MIN_SPAN_S || grown < MIN_RISE || !is_even || !is_sure {
        return None;
    }
    let between = ebbs().zip(ebbs().skip(1)).map(|(a, b)| (b.height - a.height) / (at(b) - at(a)));
    let (low, high) = between.fold((pace, pace), |(low, high), x| (low.min(x), high.max(x)));
    Some(Course {
        since: first.since,
        count: ebbs().count(),
        held: last.height,
        grown,
        span_s,
        paces: [low.max(0.0), pace, high],
    })
}

impl EbbTide {
    /// Takes a sample.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        if moment.kv_mib.is_some() {
            // Where the load is told, what it leaves is judged.
            if self.stretch.is_some() {
                *self = Self::default();
            }
            return;
        }
        if let Some(ended) = Stretch::take(&mut self.stretch, moment) {
            self.close(ended);
        }
    }

    fn close(&mut self, ended: Stretch) {
        match &mut self.holding {
            Some(holding) if (ended.lowest - holding.newest).abs() <= LEVEL => holding.add(ended),
            Some(holding) if !holding.is_off => holding.is_off = true,
            holding => {
                let held = holding.replace(Holding::new(ended)).and_then(|holding| holding.ebb());
                if held.is_some_and(|ebb| self.ebbs.add(ebb, self.flood)) {
                    self.flood = 0.0;
                }
            }
        }
        self.flood = self.flood.max(ended.lowest);
        if ended.lowest < LEFT * self.flood {
            (self.ebbs, self.flood) = (Ebbs::default(), ended.lowest);
        }
    }

    /// Whether the ebb keeps rising.
    pub(super) fn claim(&self, moment: &Moment<'_>) -> Option<Claim> {
        // Most series have no ebbs, and they are many to copy.
        if self.ebbs.len + 1 < MIN_CREEPING {
            return None;
        }
        let mut ebbs = self.ebbs;
        if let Some(ebb) = self.holding.as_ref().and_then(Holding::ebb) {
            ebbs.add(ebb, self.flood);
        }
        let newest = ebbs.kept[ebbs.len.checked_sub(MIN_CREEPING)? + MIN_CREEPING - 1]?;
        let course = ebbs.course()?;
        let pause_s = course.span_s / (course.count - 1) as f64;
        if seconds(newest.until, moment.tick) > MAX_PAUSE * pause_s {
            return None;
        }
        let [low, rate, high] = course.paces.map(|mib_per_s| ByteRate(mib_per_s * MIB as f64));
        let Course { since, count, held, grown, span_s, .. } = course;
        Some(Claim {
            kind: FindingKind::Leak,
            tier: if count >= MIN_EBBS { Tier::Confirmed } else { Tier::Early },
            severity: Severity::Warning,
            since,
            amount: bytes(grown),
            accounts_for_rise: true,
            rate: Some(RateBand { rate, low, high }),
            evidence: vec![
                Evidence::new("held-at-ebb", held, "MiB"),
                Evidence::against("grown-at-ebb", grown, "MiB", MIN_RISE),
                Evidence::against("ebbs", count as f64, "", MIN_CREEPING as f64),
                Evidence::new("span", span_s, "s"),
            ],
            summary: sentence::leak_at_ebb(bytes(held), bytes(grown), span_s, count),
            settle: sentence::SETTLE_AT_EBB,
        })
    }
}

#[cfg(test)]
mod tests {
    use ebbtide_core::{Absent, Ts};

    use super::*;
    use crate::observation::{Load, Observation};

    /// What is claimed after so many hours, a sample each so many seconds.
    fn told(hours: u32, each_s: usize, memory: impl Fn(f64) -> f64) -> Option<Claim> {
        let (mut rule, mut told) = (EbbTide::default(), None);
        for second in (0..hours * 3600).step_by(each_s) {
            let mono_ms = u64::from(second) * 1000;
            let value = bytes(memory(f64::from(second)));
            let observation = Observation {
                tick: Tick { seq: mono_ms, at: Ts(mono_ms as i64), mono_ms },
                value: Ok(value),
                capacity: Err(Absent::NotSupported),
                load: Load::absent(Absent::NotSupported),
                owners: Err(Absent::NotSupported),
                peers: Err(Absent::NotSupported),
                events: &[],
            };
            let moment = Moment::of(&observation, value);
            rule.sample(&moment);
            told = rule.claim(&moment);
        }
        told
    }

    /// A model of so many GiB is there for 20 min of each hour, never the same twice in a row.
    fn swapped(at: f64) -> f64 {
        let hour = (at / 3600.0).floor();
        12_000.0 + if at % 3600.0 < 1200.0 { 8000.0 + 1500.0 * (hour % 3.0) } else { 0.0 }
    }

    /// Batches of 4 GiB that rise for ten minutes and are over for five, and how many of them there were.
    fn batched(at: f64) -> (f64, f64) {
        let ramp = at % 900.0;
        (12_000.0 + if ramp < 600.0 { 7.0 * ramp } else { 0.0 }, (at / 900.0).floor())
    }

    #[test]
    fn an_ebb_that_keeps_rising_is_a_leak_at_any_interval() {
        for each_s in [1, 5, 10, 30] {
            let claim = told(5, each_s, |at| swapped(at) + at / 60.0).expect("a leak under models that swap");
            let rate = claim.rate.expect("a pace").rate.mib_per_min();
            assert!((rate - 1.0).abs() < 0.05, "{rate} at {each_s} s");
            let claim =
                told(5, each_s, |at| batched(at).0 + 16.0 * batched(at).1).expect("a batch leaves 16 MiB");
            assert_eq!(claim.tier, Tier::Confirmed);
            assert!((claim.rate.expect("a pace").rate.mib_per_min() / (16.0 / 15.0) - 1.0).abs() < 0.05);
        }
    }

    #[test]
    fn what_comes_back_to_where_it_was_or_bends_or_stops_or_steps_is_none() {
        let bent = |at: f64| 3000.0 * (1.0 - (-at / 7200.0).exp());
        let stopped = |at: f64| at.min(10_000.0) / 30.0;
        let kept = |at: f64| [0.0, 300.0, 350.0, 350.0, 900.0][(at / 3600.0) as usize];
        let shapes: [&dyn Fn(f64) -> f64; 4] = [&|_| 0.0, &bent, &stopped, &kept];
        for (number, shape) in shapes.into_iter().enumerate() {
            for each_s in [1, 30] {
                assert_eq!(
                    told(5, each_s, |at| swapped(at) + shape(at)),
                    None,
                    "shape {number} at {each_s} s"
                );
            }
        }
    }

    #[test]
    fn no_ebb_is_where_no_flood_was_or_another_life_begins() {
        assert_eq!(told(8, 5, |at| 20_000.0 + at / 60.0), None, "it never comes back");
        let restarted = |at: f64| if at % 3600.0 < 120.0 { 300.0 + at / 60.0 } else { 20_000.0 };
        assert_eq!(told(8, 5, restarted), None);
    }
}
