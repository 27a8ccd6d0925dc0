//! Is this a steady rise? One window of blocks against a chain of tests, each of which kills one impostor.

use crate::explain::Basis;
use crate::ladder::RING;
use crate::levelling::ROUNDING_MIB;
use crate::trend::{
    Line, Series, Z80, is_trend, least_squares, may_be_as_steep, mean, noise, theil_sen, trend_z,
};
use crate::work::PerWork;

/// How strict the chain is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strictness {
    /// The least rise from the first to the last quarter, in MiB: four allocation granules of 2 MiB.
    pub(crate) min_rise: f64,
    /// The least number of upward steps between blocks.
    min_steps: usize,
    /// The slowest of the three stretches between quarters, as a share of the overall pace.
    pub(crate) evenness: f64,
    /// The pace at the end, as a share of the pace before.
    pub(crate) pace: f64,
    /// The largest single step, as a share of the whole range: more is a step, not a rise.
    pub(crate) max_step: f64,
    /// Student's t of the increments between eighths.
    drift_t: f64,
    /// Whether steps that nearly all go up stand in for a drift whose increments are too uneven for Student's t, as
    /// those of rare granules are.
    may_be_uneven: bool,
    /// Mann-Kendall's z.
    pub(crate) trend_z: f64,
}

/// What a leak must pass. The figures were settled on development seeds of 22 families of traces.
pub(crate) const LEAK: Strictness = Strictness {
    min_rise: 8.0,
    min_steps: 5,
    evenness: 0.7,
    pace: 0.9,
    max_step: 0.5,
    drift_t: 5.0,
    may_be_uneven: true,
    trend_z: 4.5,
};

/// What a leak must pass in windows of up to 34 min, unless the load is known exactly: a rise of few granules cannot
/// show whether it slows down, and allocators settle with time constants of 15 to 70 min.
pub(crate) const YOUNG_LEAK: Strictness =
    Strictness { max_step: 0.15, drift_t: 8.0, may_be_uneven: false, ..LEAK };

/// What growth must pass to be worth a word, in half as many blocks.
pub(crate) const GROWTH: Strictness = Strictness {
    min_rise: 8.0,
    min_steps: 4,
    evenness: 0.4,
    pace: 0.4,
    max_step: 0.5,
    drift_t: 3.0,
    may_be_uneven: true,
    trend_z: 3.5,
};

/// The most that neighbouring blocks are believed to correlate: beyond it their line is that of a random walk.
const MOST_CORRELATED: f64 = 0.9;

/// Upward less downward steps, in standard deviations of a fair coin: nearly all go up.
const ONE_SIDED_Z: f64 = 3.0;

impl Strictness {
    /// Whether a window rises enough to be looked at: the cheapest test.
    pub(crate) fn is_worth(&self, series: &Series) -> bool {
        rise_mib(series) >= self.min_rise
    }
}

/// Why a window is no steady rise: the first test that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many slots are empty, or a counter was absent.
    Sparse,
    /// It rises too little to matter.
    Flat,
    /// It rises in one or a few steps.
    Stepped,
    /// It rose in a part of the window only.
    Uneven,
    /// It slows down: it may level off.
    Slowing,
    /// It wanders as a random walk does.
    Wandering,
}

/// A steady rise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rise {
    /// The rung whose blocks show it.
    pub(crate) rung: usize,
    /// Which of their quantities.
    pub(crate) basis: Basis,
    /// The line through it, in MiB and seconds.
    pub(crate) line: Line,
    /// First and last block's time.
    pub(crate) from: f64,
    /// See `from`.
    pub(crate) until: f64,
    /// Mann-Kendall's z.
    pub(crate) z: f64,
    /// Noise of the blocks, in MiB.
    pub(crate) noise: f64,
    /// What it keeps pace with.
    pub(crate) clock: Clock,
}

/// What a rise keeps pace with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Clock {
    /// Time: its line is straight over it.
    Time,
    /// Work: its line is straight over what was done.
    Work(PerWork),
    /// Nothing that is known: it comes in bursts of any height.
    Bursts {
        /// The height that the first of them began at, in MiB.
        level: f64,
    },
}

/// Rise from the first to the last quarter.
pub(crate) fn rise_mib(series: &Series) -> f64 {
    series.part(3, 4).1 - series.part(0, 4).1
}

/// Runs the chain, cheap tests first.
pub(crate) fn steadiness(series: &Series, strict: &Strictness) -> Result<(), Refusal> {
    if series.len() < 8 {
        return Err(Refusal::Sparse);
    }
    if !strict.is_worth(series) {
        return Err(Refusal::Flat);
    }
    let x = series.values();
    let (ups, downs) = steps(x, strict)?;
    if ups < strict.min_steps {
        return Err(Refusal::Stepped);
    }
    evenness(series, strict)?;
    let one_sided =
        strict.may_be_uneven && (ups as f64 - downs as f64) / ((ups + downs) as f64).sqrt() >= ONE_SIDED_Z;
    if !one_sided && drift_t(series) < strict.drift_t {
        return Err(Refusal::Wandering);
    }
    if is_trend(x, strict.trend_z) { Ok(()) } else { Err(Refusal::Wandering) }
}

/// A rise whose steadiness has been seen. The line is dearer than all tests.
pub(crate) fn drawn(rung: usize, basis: Basis, series: &Series) -> Rise {
    let times = series.times();
    Rise {
        rung,
        basis,
        line: late_line(series),
        from: times[0],
        until: times[times.len() - 1],
        z: trend_z(series.values()),
        noise: noise(series.values()),
        clock: Clock::Time,
    }
}

/// Whether [`late_line`] may be as steep as this: not where it surely is not.
pub(crate) fn may_be_as_steep_of_late(series: &Series, slope: f64) -> bool {
    may_be_as_steep(&series.slice(series.len() / 4..series.len()), slope)
}

/// The line through a window without its first quarter, which may reach back to before the onset. Its band is that of
/// exchangeable blocks, widened by how much their neighbours agree, and no narrower than rounding allows.
pub(crate) fn late_line(series: &Series) -> Line {
    let late = series.slice(series.len() / 4..series.len());
    let (times, count) = (late.times(), late.len() as f64);
    let line = theil_sen(&late);
    let mut rest = [0.0; RING];
    for (rest, (at, x)) in rest.iter_mut().zip(times.iter().zip(late.values())) {
        *rest = x - line.at(*at);
    }
    let rest = &mut rest[..late.len()];
    let middle = mean(rest);
    rest.iter_mut().for_each(|x| *x -= middle);
    let squares: f64 = rest.iter().map(|x| x * x).sum();
    let neighbours: f64 = rest.windows(2).map(|pair| pair[0] * pair[1]).sum();
    // So many values of which neighbours correlate tell as much as n (1 - r) / (1 + r) that do not.
    let r = if squares > 0.0 { (neighbours / squares).clamp(0.0, MOST_CORRELATED) } else { 0.0 };
    let wider = ((1.0 + r) / (1.0 - r)).sqrt();
    // The standard error of a least-squares slope over n evenly spaced values.
    let deviation = (squares / (count - 2.0)).sqrt().max(ROUNDING_MIB);
    let span = times.last().map_or(0.0, |until| until - times[0]);
    let least = Z80 * deviation * (12.0 / count).sqrt() / span * wider;
    Line {
        low: line.slope - ((line.slope - line.low) * wider).max(least),
        high: line.slope + ((line.high - line.slope) * wider).max(least),
        ..line
    }
}

/// Whether the newer half of a longer past rises more slowly than its older half did: what saturates over a longer
/// time than one window looks straight in it. Noise is counted threefold, because that of neighbouring blocks is
/// correlated.
pub(crate) fn slows_in_the_long_run(longer: &Series) -> bool {
    let half = longer.len() / 2;
    let (older, newer) = (longer.slice(0..half), longer.slice(half..longer.len()));
    let (before, now) = (least_squares(&older), least_squares(&newer));
    let step = newer.times().last().zip(newer.times().first()).map_or(1.0, |(b, a)| (b - a) / half as f64);
    let error = (36.0 / (half as f64).powi(3)).sqrt() * granular_noise(longer.values()) / step;
    before > 0.0 && now + error < 0.97 * before
}

/// The noise of values that come in granules: a granule is off by its size over the square root of 12, however calm its
/// neighbours are.
pub(crate) fn granular_noise(x: &[f64]) -> f64 {
    let largest = x.windows(2).map(|pair| pair[1] - pair[0]).fold(2.0, f64::max);
    noise(x).max(largest / 12.0_f64.sqrt())
}

/// Steps upward and downward, unless one step is most of the range.
fn steps(x: &[f64], strict: &Strictness) -> Result<(usize, usize), Refusal> {
    let (mut ups, mut downs, mut largest) = (0, 0, 0.0_f64);
    for pair in x.windows(2) {
        let step = pair[1] - pair[0];
        ups += usize::from(step > 0.0);
        downs += usize::from(step < 0.0);
        largest = largest.max(step);
    }
    let (low, high) = x.iter().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    if largest > strict.max_step * (high - low) { Err(Refusal::Stepped) } else { Ok((ups, downs)) }
}

/// Whether each stretch between quarters carries its share and the last is no slower than the first. Paces, not
/// differences, so that empty slots do no harm.
fn evenness(series: &Series, strict: &Strictness) -> Result<(), Refusal> {
    let quarter = [0, 1, 2, 3].map(|i| series.part(i, 4));
    let pace = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1) / (b.0 - a.0);
    let paces = [0, 1, 2].map(|i| pace(quarter[i], quarter[i + 1]));
    let overall = pace(quarter[0], quarter[3]);
    // Against the faster of the two stretches before: where the window reaches back to before the onset, the first
    // is slow for that reason alone.
    if paces[2] < strict.pace * paces[0].max(paces[1]) {
        return Err(Refusal::Slowing);
    }
    if paces.iter().any(|pace| *pace < strict.evenness * overall) {
        return Err(Refusal::Uneven);
    }
    Ok(())
}

/// Student's t of the increments between eighths: large where the drift is steady, small for a random walk.
pub(crate) fn drift_t(series: &Series) -> f64 {
    let mut increments = [0.0; 7];
    for (i, increment) in increments.iter_mut().enumerate() {
        *increment = series.part(i + 1, 8).1 - series.part(i, 8).1;
    }
    let drift = mean(&increments);
    let variance = increments.iter().map(|x| (x - drift).powi(2)).sum::<f64>() / 6.0;
    drift * 7.0_f64.sqrt() / (variance.sqrt() + 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(shape: impl Fn(f64) -> f64) -> Series {
        let mut series = Series::new();
        for i in 0..RING {
            series.push(i as f64, shape(i as f64 / (RING - 1) as f64));
        }
        series
    }

    fn judge(series: &Series) -> Result<Rise, Refusal> {
        steadiness(series, &LEAK).map(|()| drawn(0, Basis::Mid, series))
    }

    fn verdict(shape: impl Fn(f64) -> f64) -> Result<f64, Refusal> {
        judge(&window(shape)).map(|rise| rise.line.slope)
    }

    #[test]
    fn a_line_is_a_rise_and_every_impostor_is_named() {
        let slope = verdict(|t| 100.0 + 62.0 * t).expect("a line rises");
        assert!((slope - 2.0).abs() < 1e-9);
        assert_eq!(verdict(|_| 100.0), Err(Refusal::Flat));
        assert_eq!(verdict(|t| 5.0 * t), Err(Refusal::Flat));
        assert_eq!(verdict(|t| if t < 0.5 { 0.0 } else { 500.0 }), Err(Refusal::Stepped));
        assert_eq!(verdict(|t| 100.0 * (4.0 * t).floor()), Err(Refusal::Stepped));
        assert_eq!(verdict(|t| 100.0 * (t - 0.5).max(0.0)), Err(Refusal::Uneven));
        assert_eq!(verdict(|t| 500.0 * (1.0 - (-t).exp())), Err(Refusal::Slowing));
        assert_eq!(verdict(|t| 60.0 * t + 50.0 * (t * 25.0).sin()), Err(Refusal::Wandering));
    }

    #[test]
    fn granules_do_not_hide_a_rise() {
        assert!(verdict(|t| (40.0 * t / 2.0).floor() * 2.0).is_ok());
    }

    #[test]
    fn white_noise_is_never_a_rise_and_a_random_walk_hardly_ever() {
        let mut walks = 0;
        for seed in 0..3000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut noise, mut walk, mut at) = (Series::new(), Series::new(), 0.0);
            for i in 0..RING {
                noise.push(i as f64, rng.f64() * 400.0);
                at += rng.f64() * 40.0 - 20.0;
                walk.push(i as f64, at);
            }
            assert!(judge(&noise).is_err(), "noise of seed {seed}");
            walks += i32::from(judge(&walk).is_ok());
        }
        assert!(walks <= 15, "{walks} of 3000 walks");
    }
}
