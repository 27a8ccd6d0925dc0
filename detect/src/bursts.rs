//! Is this a leak in bursts? Steps of any height at any time, with level stretches between them, none of which ever
//! comes back: too uneven for a steady rise, and unlike a warm-up they do not become rarer.
//!
//! Steps are counted in short blocks, where two within minutes of each other are two, or in the blocks of the window,
//! where a bout that lasts is several. What chance could have made of it is asked of the window.

use crate::explain::{Account, Basis};
use crate::ladder::block_s;
use crate::rise::{Clock, Refusal, Rise};
use crate::scene::Scene;
use crate::trend::{Series, noise, theil_sen, trend_z};

/// The rung in whose blocks of 16 s steps are counted.
pub(crate) const STEP_RUNG: usize = 4;
/// Blocks that are looked at: a step rises within the last two, and memory was level over the two before.
const LOOKED_AT: usize = 5;
/// What counts as a step up, in MiB: more than the segment of 20 MiB that caching allocators take at a time, so that a
/// smooth rise in such segments is none.
const MIN_STEP: f64 = 24.0;
/// Neighbouring blocks are level within so much, in MiB: four allocation granules of 2 MiB. What falls by more from one
/// block of a window to the next came back.
const LEVEL: f64 = 8.0;
/// The share of the newest step that must be left: otherwise it came back, and whatever leaks begins anew.
const LEFT: f64 = 0.5;
/// Steps that are kept, of those that a rise is told from: two and a half times what is asked for.
const KEPT: usize = 24;
/// Steps that a window must hold: a server is given a handful of things to keep, not nine.
const MIN_STEPS: usize = 9;
/// Seconds from the first of them to now, at least: allocators have warmed up by then, or are seen to slow down.
const MIN_SPAN_S: f64 = 10_800.0;
/// What steps add up to, as a share of the rise, where memory is level between them.
const MIN_SHARE: f64 = 0.75;
/// What the newer half rises by, as a share of the older half, that is asked for at most: by luck few of what goes on
/// are late.
const MIN_PACE: f64 = 0.5;
/// The longest time constant of an allocator that settles, in seconds. What it adds falls by a factor of e in each.
const SETTLING_S: f64 = 4200.0;
/// How many times what settles the newer half must rise by, where that is less: by luck few of what settles are early.
const LUCK: f64 = 2.0;
/// Share of a window's neighbouring blocks that must be level: what rises between most of them is smooth.
const MIN_LEVEL: f64 = 0.5;
/// Share of them that may rise by less than a step and yet not be level.
const MAX_CREEPING: f64 = 0.1;
/// Parts of a window, each of which must have a step.
const PARTS: usize = 3;
/// Mann-Kendall's z: of a course that never falls it is larger than of any other.
const MIN_TREND_Z: f64 = 5.5;
/// An event so long before a step, in seconds, may have caused it.
const NEAR_EVENT_S: f64 = 60.0;

/// Where and when a rise in bursts began.
struct Foot {
    /// Seconds since the epoch began.
    at: f64,
    /// In MiB.
    level: f64,
}

/// A step up that stayed.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Seconds since the epoch began, to a block of [`STEP_RUNG`] even after eight years.
    at: f32,
    /// The height that it began at, in MiB.
    from: f32,
    /// In MiB.
    height: f32,
    /// Whether an event is known that may account for it.
    is_told: bool,
}

/// The newest steps of a series, of which none came back.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    kept: [Option<Step>; KEPT],
    len: usize,
    /// Blocks in which the newest one may still rise.
    rising: usize,
}

impl Step {
    const fn at(&self) -> f64 {
        self.at as f64
    }

    const fn from(&self) -> f64 {
        self.from as f64
    }

    const fn height(&self) -> f64 {
        self.height as f64
    }
}

impl Steps {
    /// No step yet.
    pub(crate) const fn new() -> Self {
        Self { kept: [None; KEPT], len: 0, rising: 0 }
    }

    /// Looks at the newest blocks once one of [`STEP_RUNG`] has closed.
    pub(crate) fn note(&mut self, scene: &Scene<'_>) {
        let basis = match scene.account {
            Account::OnDemand { .. } => Basis::Residual,
            _ => Basis::Floor,
        };
        let mut blocks = scene.ladder.blocks(STEP_RUNG).rev();
        let mut newest = [(0.0, 0.0); LOOKED_AT];
        for place in newest.iter_mut().rev() {
            let Some(block) = blocks.next() else { return };
            let Some(height) = scene.explainer.quantity(basis, &block) else { return };
            *place = (block.at, height);
        }
        self.take(newest, scene.disturbed_at);
    }

    fn take(&mut self, newest: [(f64, f64); LOOKED_AT], event: Option<f64>) {
        let [(_, earlier), _, (before, from), _, (at, height)] = newest;
        if let Some(step) = self.kept[..self.len].last_mut().and_then(Option::as_mut) {
            if self.rising > 0 {
                self.rising -= 1;
                step.height = step.height.max((height - step.from()) as f32);
                return;
            }
            if height < step.from() + LEFT * step.height() {
                self.len = 0;
            }
        }
        if height - from < MIN_STEP || (from - earlier).abs() >= LEVEL {
            return;
        }
        if self.len == KEPT {
            self.kept.rotate_left(1);
            self.len -= 1;
        }
        let is_told = event.is_some_and(|event| event > before - NEAR_EVENT_S);
        self.kept[self.len] =
            Some(Step { at: at as f32, from: from as f32, height: (height - from) as f32, is_told });
        self.len += 1;
        self.rising = LOOKED_AT / 2;
    }

    fn since(&self, at: f64) -> impl Iterator<Item = &Step> {
        self.kept[..self.len].iter().flatten().filter(move |step| step.at() >= at)
    }

    /// Whether a rise is a few steps and nothing else: then it has no pace, however well a line fits them. What is
    /// younger than a block of its window is not in it.
    pub(crate) fn make_up(&self, rise: &Rise) -> bool {
        let grown = rise.line.slope * (rise.until - rise.from);
        let seen = || self.since(rise.from).filter(|step| step.at() + block_s(rise.rung) <= rise.until);
        let is_all = || (MIN_SHARE * grown..=grown / MIN_SHARE).contains(&seen().map(Step::height).sum());
        seen().count() < MIN_STEPS && is_all()
    }

    /// Judges a window of one rung.
    pub(crate) fn judge(&self, rung: usize, basis: Basis, series: &Series) -> Result<Rise, Refusal> {
        let (times, x) = (series.times(), series.values());
        let is_told = self.since(times[0]).any(|step| step.is_told);
        let in_bouts = |refusal| in_bouts(series).filter(|_| !is_told).ok_or(refusal);
        let foot = self.counted(series).or_else(in_bouts)?;
        let z = trend_z(x);
        if z < MIN_TREND_Z || x.windows(2).any(|pair| pair[1] - pair[0] <= -LEVEL) {
            return Err(Refusal::Wandering);
        }
        let rising = series.slice(times.partition_point(|at| *at < foot.at)..times.len());
        Ok(Rise {
            rung,
            basis,
            line: theil_sen(&rising),
            from: foot.at,
            until: times[times.len() - 1],
            z,
            noise: noise(x),
            clock: Clock::Bursts { level: foot.level },
        })
    }

    /// Whether the steps that short blocks showed go on in this window.
    fn counted(&self, series: &Series) -> Result<Foot, Refusal> {
        let (times, x) = (series.times(), series.values());
        let (until, last) = (times[times.len() - 1], x[x.len() - 1]);
        let untold = || self.since(times[0]).filter(|step| !step.is_told);
        let Some(first) = untold().next().filter(|_| untold().count() >= MIN_STEPS) else {
            return Err(Refusal::Stepped);
        };
        let half_s = (until - first.at()) / 2.0;
        let (mut older, mut newer) = (0.0, 0.0);
        for step in self.since(first.at()) {
            let half = if step.at() < first.at() + half_s { &mut older } else { &mut newer };
            *half += step.height();
        }
        let settling = LUCK * (-half_s / SETTLING_S).exp();
        if 2.0 * half_s < MIN_SPAN_S || older + newer < MIN_SHARE * (last - first.from()) {
            Err(Refusal::Uneven)
        } else if newer < settling.min(MIN_PACE) * older {
            Err(Refusal::Slowing)
        } else {
            Ok(Foot { at: first.at(), level: first.from() })
        }
    }
}

/// Where the blocks of a window began to climb in bouts that may last, if they do and go on.
fn in_bouts(series: &Series) -> Option<Foot> {
    let (times, x) = (series.times(), series.values());
    let (mut steps, mut level, mut creeping) = ([0_usize; PARTS], 0, 0);
    for (i, pair) in x.windows(2).enumerate() {
        match pair[1] - pair[0] {
            step if step < LEVEL => level += 1,
            step if step < MIN_STEP => creeping += 1,
            _ => steps[i * PARTS / (x.len() - 1)] += 1,
        }
    }
    let (pairs, middle) = (x.len() as f64 - 1.0, x[x.len() / 2]);
    let is_many = steps.iter().sum::<usize>() >= MIN_STEPS && !steps.contains(&0);
    let is_level = f64::from(level) >= MIN_LEVEL * pairs && f64::from(creeping) <= MAX_CREEPING * pairs;
    let goes_on = x[x.len() - 1] - middle >= MIN_PACE * (middle - x[0]);
    let is_long = times[times.len() - 1] - times[0] >= MIN_SPAN_S;
    (is_long && is_many && is_level && goes_on).then(|| Foot { at: times[0], level: x[0] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RING;
    use crate::trend::Line;

    const RUNG: usize = 9;
    /// Uneven steps at uneven times, in MiB and seconds: one each 20 min on average.
    const BURSTS: [(f64, f64); 12] = [
        (600.0, 90.0),
        (1900.0, 40.0),
        (2100.0, 220.0),
        (4300.0, 60.0),
        (5100.0, 130.0),
        (7400.0, 70.0),
        (8900.0, 180.0),
        (9300.0, 50.0),
        (11_200.0, 110.0),
        (12_700.0, 240.0),
        (14_100.0, 40.0),
        (15_200.0, 100.0),
    ];

    /// What short blocks showed of a course with events at these times, and a window of 4.6 h.
    fn watched(at: impl Fn(f64) -> f64, events: &[f64]) -> (Steps, Series) {
        let (short_s, long_s) = (block_s(STEP_RUNG), block_s(RUNG));
        // The floor of a block is that of its seconds.
        let floor = |from: f64, length: f64| {
            (0..length as u32).map(|second| at(from + f64::from(second))).fold(f64::MAX, f64::min)
        };
        let mut steps = Steps::new();
        let blocks = (RING as f64 * long_s / short_s) as usize;
        for newest in LOOKED_AT..=blocks {
            let times: [f64; LOOKED_AT] = std::array::from_fn(|i| (newest - LOOKED_AT + i) as f64 * short_s);
            let event = events.iter().copied().rfind(|event| *event <= times[4]);
            steps.take(times.map(|from| (from, floor(from, short_s))), event);
        }
        let mut series = Series::new();
        for i in 0..RING {
            series.push(i as f64 * long_s, floor(i as f64 * long_s, long_s));
        }
        (steps, series)
    }

    fn judged(at: impl Fn(f64) -> f64, events: &[f64]) -> Result<Rise, Refusal> {
        let (steps, series) = watched(at, events);
        steps.judge(RUNG, Basis::Floor, &series)
    }

    fn in_bursts(at: f64) -> f64 {
        BURSTS.iter().filter(|(when, _)| at >= *when).map(|(_, height)| height).sum()
    }

    #[test]
    fn bursts_that_stay_and_go_on_are_a_leak() {
        let rise = judged(in_bursts, &[]).expect("twelve steps stayed");
        assert_eq!(rise.clock, Clock::Bursts { level: 0.0 });
        assert!((600.0..700.0).contains(&rise.from), "{}", rise.from);
        // 1330 MiB in 14,600 s.
        assert!((rise.line.slope / (1330.0 / 14_600.0) - 1.0).abs() < 0.25, "{}", rise.line.slope);
    }

    #[test]
    fn those_that_end_come_down_come_rarely_or_are_told_are_none() {
        let until = |end: f64| move |at: f64| in_bursts(at.min(end));
        assert_eq!(judged(until(8900.0), &[]).err(), Some(Refusal::Stepped), "seven of them");
        let down = |at: f64| in_bursts(at) - if at > 9000.0 { 150.0 } else { 0.0 };
        assert_eq!(watched(down, &[]).0.since(0.0).count(), 5, "those that followed");
        let dip = |at: f64| in_bursts(at) - if (13_400.0..13_900.0).contains(&at) { 20.0 } else { 0.0 };
        assert_eq!(judged(dip, &[]).err(), Some(Refusal::Wandering));
        let events: Vec<f64> = BURSTS.iter().map(|(when, _)| *when).collect();
        assert_eq!(judged(in_bursts, &events).err(), Some(Refusal::Stepped));
        let hasty = |at: f64| in_bursts(at * 6.0);
        assert_eq!(judged(hasty, &[]).err(), Some(Refusal::Slowing), "over within 43 min");
    }

    #[test]
    fn smooth_rises_granules_and_what_settles_are_none() {
        assert_eq!(judged(|at| at / 10.0, &[]).err(), Some(Refusal::Stepped), "no level stretch");
        assert_eq!(judged(|at| (at / 1280.0).floor() * 20.0, &[]).err(), Some(Refusal::Stepped), "granules");
        let settling = |at: f64| 2000.0 * (1.0 - (-(at / 600.0).floor() * 600.0 / 3000.0).exp());
        assert_eq!(judged(settling, &[]).err(), Some(Refusal::Slowing));
    }

    #[test]
    fn bouts_that_last_minutes_are_a_leak_too() {
        let bouts = |at: f64| ((at / 4200.0).floor() * 1500.0 + (at % 4200.0).min(1500.0)) / 7.5;
        assert!(judged(bouts, &[]).is_ok());
    }

    #[test]
    fn few_steps_make_up_a_rise_of_the_same_amount_and_no_other() {
        let mut steps = Steps::new();
        for (i, (when, height)) in BURSTS.into_iter().enumerate() {
            steps.kept[i] = Some(Step {
                at: when as f32,
                from: in_bursts(when - 1.0) as f32,
                height: height as f32,
                is_told: false,
            });
            steps.len += 1;
        }
        let rising = |mib: f64, until: f64| Rise {
            rung: RUNG,
            basis: Basis::Floor,
            line: Line { slope: mib / until, low: 0.0, high: 0.0, intercept: 0.0 },
            from: 0.0,
            until,
            z: 7.0,
            noise: 0.0,
            clock: Clock::Time,
        };
        assert!(steps.make_up(&rising(610.0, 8000.0)));
        assert!(!steps.make_up(&rising(1500.0, 8000.0)) && !steps.make_up(&rising(300.0, 8000.0)));
        assert!(!steps.make_up(&rising(1330.0, 16_000.0)), "as many as are a leak");
        assert!(!steps.make_up(&rising(90.0, 1000.0)), "younger than a block");
    }
}
