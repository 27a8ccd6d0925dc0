//! The work clock: memory against what was done instead of against time. What leaks with each request rises fast by
//! day and slowly by night, which over time looks like a rise that slows down and over requests like a line.
//!
//! Only the abscissa is another one: the values and their order are those that the tests of chance see, so no look at
//! them is added to those that the fleet's budget counts.

use ebbtide_core::Reading;

use crate::ladder::{Closed, RING};
use crate::rise::{Clock, Refusal, Rise, late_line};
use crate::trend::{Line, Series, may_be_as_steep, mean, noise, theil_sen, trend_z};

/// Rungs on which work is kept, windows of 34 min to 18 h: in less time the load hardly changes, so the clock on the
/// wall says the same.
const FIRST_RUNG: usize = 6;
/// How many rungs that are.
const RUNGS: usize = 6;
/// The least rise over a window, in MiB: eight allocation granules of 2 MiB.
const MIN_RISE: f64 = 16.0;
/// What the newer half gains with each piece of work, as a share of the older half, at least.
const MIN_PACE: f64 = 0.9;
/// The same of either half, as a share of the whole.
const EVENNESS: f64 = 0.5;
/// How far the mean of a quarter may lie beside the line, as a share of the rise.
const STRAY: f64 = 0.08;
/// A block lies on the line within this share of the rise, or within its noise.
const FIT: f64 = 0.1;
/// The share of blocks that must: a few large steps lie on no line.
const FIT_BLOCKS: f64 = 0.75;
/// Standard errors by which noise may make a rise look otherwise.
const ERRORS: f64 = 2.0;
/// The largest step between blocks, as a share of the rise: more is a step, not a rise.
const MAX_STEP: f64 = 0.5;
/// Values that driver and allocator round to 2 MiB are off by 2 / sqrt(12) of it at least.
const ROUNDING_MIB: f64 = 0.58;
/// The busiest quarter of a window has done so many times the work of the calmest, or both clocks go alike.
const UNEVEN_LOAD: f64 = 1.25;
/// A line over work fits better than one over time where its blocks lie this much closer to it.
const BETTER: f64 = 0.9;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Requests that were finished.
    Requests,
    /// Tokens that were read and written.
    Tokens,
}

/// A rise with each piece of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PerWork {
    /// Of what.
    pub(crate) unit: Unit,
    /// MiB with each of them, with an 80 % band.
    pub(crate) each: Line,
}

/// What was done in each of the newest blocks of a few rungs.
#[derive(Debug, Clone)]
pub(crate) struct WorkClock {
    unit: Unit,
    newest: Option<u64>,
    /// Done since the epoch began.
    total: f64,
    /// The same when each rung's newest block closed.
    closed: [f64; RUNGS],
    /// Whether the counter was read since then.
    is_read: [bool; RUNGS],
    /// Done in each block, newest first from `next` back; absent (NaN) where the counter was not read.
    done: [[f32; RING]; RUNGS],
    next: [u8; RUNGS],
}

impl WorkClock {
    /// Nothing has been done yet.
    pub(crate) const fn new() -> Self {
        Self {
            unit: Unit::Requests,
            newest: None,
            total: 0.0,
            closed: [0.0; RUNGS],
            is_read: [false; RUNGS],
            done: [[f32::NAN; RING]; RUNGS],
            next: [0; RUNGS],
        }
    }

    /// Takes the counters of one sample: requests where they are counted, else tokens.
    pub(crate) fn note(&mut self, served: Reading<u64>, tokens: Reading<u64>) {
        let counted = served.map(|served| (Unit::Requests, served));
        let Ok((unit, count)) = counted.or_else(|_| tokens.map(|tokens| (Unit::Tokens, tokens))) else {
            return;
        };
        if unit != self.unit {
            *self = Self { unit, ..Self::new() };
        }
        if let Some(before) = self.newest.replace(count) {
            // A counter that fell began anew, and what it says was done since.
            self.total += count.checked_sub(before).unwrap_or(count) as f64;
        }
        self.is_read = [true; RUNGS];
    }

    /// Keeps what was done in the blocks that closed; before the sample is noted that closed them.
    pub(crate) fn close(&mut self, closed: Closed) {
        for i in (0..RUNGS).filter(|i| closed.holds(FIRST_RUNG + i)) {
            let done = if self.is_read[i] { (self.total - self.closed[i]) as f32 } else { f32::NAN };
            self.done[i][usize::from(self.next[i])] = done;
            self.next[i] = (self.next[i] + 1) % RING as u8;
            (self.closed[i], self.is_read[i]) = (self.total, false);
        }
    }

    /// Whether this rung's blocks know what was done in them.
    pub(crate) fn holds(&self, rung: usize) -> bool {
        self.newest.is_some() && (FIRST_RUNG..FIRST_RUNG + RUNGS).contains(&rung)
    }

    /// The newest blocks of a rung over work instead of time; nothing where that was not counted in one of them.
    pub(crate) fn series(&self, rung: usize, over_time: &Series) -> Option<Series> {
        let (i, len) = (rung.checked_sub(FIRST_RUNG)?, over_time.len());
        let (done, next) = (self.done.get(i)?, usize::from(self.next[i]));
        let mut series = Series::new();
        let mut before = 0.0;
        for (j, x) in over_time.values().iter().enumerate() {
            let done = f64::from(done[(next + RING + j - len) % RING]);
            if done.is_nan() {
                return None;
            }
            series.push(before + done / 2.0, *x);
            before += done;
        }
        (before > 0.0).then_some(series)
    }

    /// A rise that is straight over work, whatever it is over time.
    pub(crate) fn judge(&self, rise: Window, over_time: &Series) -> Result<Rise, Refusal> {
        let over_work = self.series(rise.rung, over_time).ok_or(Refusal::Sparse)?;
        let each = straight(&over_work)?;
        let (times, x) = (over_time.times(), over_time.values());
        Ok(Rise {
            rung: rise.rung,
            basis: rise.basis,
            line: late_line(over_time),
            from: times[0],
            until: times[times.len() - 1],
            z: trend_z(x),
            noise: noise(x),
            clock: Clock::Work(PerWork { unit: self.unit, each }),
        })
    }

    /// The clock that a rise over time keeps better pace with: work, where the load changed and its blocks then lie
    /// closer to a line.
    pub(crate) fn named(&self, rise: Rise, over_time: &Series) -> Rise {
        let Some(over_work) = self.series(rise.rung, over_time) else { return rise };
        let quarter = |i| {
            over_work.times()[(i + 1) * over_work.len() / 4 - 1] - over_work.times()[i * over_work.len() / 4]
        };
        let done = [0, 1, 2, 3].map(quarter);
        let (least, most) = done.iter().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
        let each = theil_sen(&over_work);
        let is_closer = stray(&over_work, &each) < BETTER * stray(over_time, &theil_sen(over_time));
        if most < UNEVEN_LOAD * least || !is_closer || each.slope <= 0.0 {
            return rise;
        }
        Rise { clock: Clock::Work(PerWork { unit: self.unit, each }), ..rise }
    }

    /// Whether a rise goes on with each piece of work in these newest blocks, or too little was done to say.
    pub(crate) fn goes_on(&self, rung: usize, each: &Line, newest: &Series, least: f64) -> bool {
        let Some(series) = self.series(rung, newest) else { return true };
        let half = series.len() / 2;
        let (slope, error) = slope(&series.slice(half..series.len()), noise(series.values()));
        slope + error >= least * each.slope
    }

    /// Whether the newer half of a longer past gains surely less with each piece of work than its older half did.
    pub(crate) fn slows(&self, rung: usize, longer: &Series) -> bool {
        self.series(rung, longer).is_some_and(|series| {
            let half = series.len() / 2;
            let noise = noise(series.values()).max(ROUNDING_MIB);
            let (older, _) = slope(&series.slice(0..half), noise);
            let (newer, error) = slope(&series.slice(half..series.len()), noise);
            older > 0.0 && newer + ERRORS * error < MIN_PACE * older
        })
    }
}

/// Where a rise is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// The rung.
    pub(crate) rung: usize,
    /// The quantity of its blocks.
    pub(crate) basis: crate::explain::Basis,
}

/// The line through a window that is straight within its noise.
fn straight(series: &Series) -> Result<Line, Refusal> {
    let (work, x) = (series.times(), series.values());
    let noise = noise(x).max(ROUNDING_MIB);
    let half = series.len() / 2;
    let (older, older_error) = slope(&series.slice(0..half), noise);
    let (newer, newer_error) = slope(&series.slice(half..series.len()), noise);
    let error = older_error.hypot(newer_error);
    if newer + error < MIN_PACE * older {
        return Err(Refusal::Slowing);
    }
    let span = work[work.len() - 1] - work[0];
    let is_even =
        |slope: f64| older + older_error >= EVENNESS * slope && newer + newer_error >= EVENNESS * slope;
    // The line is dear: where not even the least that matters is even, it need not be drawn.
    if !is_even(MIN_RISE / span) {
        return Err(Refusal::Uneven);
    }
    if !may_be_as_steep(series, MIN_RISE / span) {
        return Err(Refusal::Flat);
    }
    let line = theil_sen(series);
    let rise = line.slope * span;
    if rise < MIN_RISE {
        return Err(Refusal::Flat);
    }
    let largest = x.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    if largest > (MAX_STEP * rise).max(2.0 * ERRORS * noise) {
        return Err(Refusal::Stepped);
    }
    if !is_even(line.slope) {
        return Err(Refusal::Uneven);
    }
    let off = |(at, x): (f64, f64)| (x - line.at(at)).abs();
    let slack = (STRAY * rise).max(ERRORS * noise / (series.len() as f64 / 4.0).sqrt());
    let near = (FIT * rise).max(ERRORS * noise);
    let fitting = work.iter().zip(x).filter(|(at, x)| off((**at, **x)) <= near).count();
    if (fitting as f64) < FIT_BLOCKS * series.len() as f64 {
        return Err(Refusal::Wandering);
    }
    if (0..4).any(|i| off(series.part(i, 4)) > slack) { Err(Refusal::Uneven) } else { Ok(line) }
}

/// The least-squares slope and its standard error where values have this noise; no slope and an endless error where
/// nothing was done.
fn slope(series: &Series, noise: f64) -> (f64, f64) {
    let (at, x) = (mean(series.times()), mean(series.values()));
    let (mut products, mut squares) = (0.0, 0.0);
    for (t, v) in series.times().iter().zip(series.values()) {
        products += (t - at) * (v - x);
        squares += (t - at).powi(2);
    }
    if squares > 0.0 { (products / squares, noise / squares.sqrt()) } else { (0.0, f64::INFINITY) }
}

/// The mean distance of values from a line.
fn stray(series: &Series, line: &Line) -> f64 {
    let off = series.times().iter().zip(series.values()).map(|(at, x)| (x - line.at(*at)).abs());
    off.sum::<f64>() / series.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Block;
    use crate::ladder::Ladder;
    use ebbtide_core::Absent;

    const RUNG: usize = FIRST_RUNG + 1;

    /// Memory and work of so many seconds, a sample each ten.
    fn watched(
        seconds: u32,
        served: impl Fn(f64) -> Option<u64>,
        memory: impl Fn(f64) -> f64,
    ) -> (WorkClock, Series) {
        let (mut ladder, mut clock) = (Ladder::new(), WorkClock::new());
        for i in 0..seconds / 10 {
            let at = f64::from(i) * 10.0;
            let x = memory(at) as f32;
            let closed =
                ladder.push(&Block { at, floor: x, mid: x, ceil: x, kv: None.into(), running: None.into() });
            clock.close(closed);
            clock.note(served(at).ok_or(Absent::Timeout), Err(Absent::NotSupported));
        }
        let series = ladder.series(RUNG, RING, WINDOW.basis);
        (clock, series.expect("the window is filled"))
    }

    /// Ever fewer requests.
    fn ebbing(at: f64) -> f64 {
        3.0 * at - at * at / 8000.0
    }

    const WINDOW: Window = Window { rung: RUNG, basis: crate::explain::Basis::Floor };

    #[test]
    fn what_each_request_leaves_is_a_line_over_requests_and_none_over_time() {
        let served = |at: f64| Some(ebbing(at) as u64);
        let (clock, series) = watched(6000, served, |at| 0.05 * ebbing(at));
        let rise = clock.judge(WINDOW, &series).expect("a line over work");
        let Clock::Work(PerWork { unit: Unit::Requests, each }) = rise.clock else { panic!("{rise:?}") };
        assert!([each.low, each.slope, each.high].iter().all(|x| (x / 0.05 - 1.0).abs() < 0.02), "{each:?}");
        let (clock, series) = watched(6000, served, |at| 500.0 * (1.0 - (-at / 2000.0).exp()));
        assert_eq!(clock.judge(WINDOW, &series), Err(Refusal::Slowing));
    }

    #[test]
    fn the_clock_that_fits_better_is_named_and_time_where_both_go_alike() {
        let even = |at: f64| Some((2.0 * at) as u64);
        let rise = |slope: f64, series: &Series| Rise {
            rung: RUNG,
            basis: WINDOW.basis,
            line: Line { slope, ..theil_sen(series) },
            from: 0.0,
            until: 4000.0,
            z: 8.0,
            noise: 0.0,
            clock: Clock::Time,
        };
        let (clock, series) = watched(6000, even, |at| 0.1 * at);
        assert_eq!(clock.named(rise(0.1, &series), &series).clock, Clock::Time);
        let (clock, series) = watched(6000, |at| Some(ebbing(at) as u64), |at| 0.05 * ebbing(at));
        assert!(matches!(clock.named(rise(0.1, &series), &series).clock, Clock::Work(_)));
        let (clock, series) = watched(6000, |at| Some(ebbing(at) as u64), |at| 0.1 * at);
        assert_eq!(clock.named(rise(0.1, &series), &series).clock, Clock::Time);
    }

    #[test]
    fn a_counter_that_falls_began_anew_and_one_that_is_away_is_no_zero() {
        let anew = |at: f64| Some(if at < 3000.0 { 2.0 * at } else { 2.0 * (at - 3000.0) } as u64);
        let (clock, series) = watched(6000, anew, |at| 0.1 * at);
        let work = clock.series(RUNG, &series).expect("it was counted");
        let span = work.times()[work.len() - 1] - work.times()[0];
        assert!((span / (2.0 * 31.0 * 128.0) - 1.0).abs() < 0.02, "{span}");
        let away = |at: f64| (!(2500.0..3000.0).contains(&at)).then_some((2.0 * at) as u64);
        let (clock, series) = watched(6000, away, |at| 0.1 * at);
        assert!(clock.series(RUNG, &series).is_none());
        assert_eq!(clock.judge(WINDOW, &series), Err(Refusal::Sparse));
    }
}
