//! Is this a leak in bursts? Steps of any height at any time, with level stretches between them, none of which ever
//! comes back: too uneven for a steady rise, and unlike a warm-up they do not become rarer.

use crate::explain::Basis;
use crate::rise::{Clock, Refusal, Rise};
use crate::trend::{Series, noise, theil_sen, trend_z};

/// What counts as a step up, in MiB: more than the segment of 20 MiB that caching allocators take at a time, so that a
/// smooth rise in such segments is none.
const MIN_STEP: f64 = 24.0;
/// Neighbouring blocks are level within so much, in MiB: four allocation granules of 2 MiB. What falls by more came
/// back.
const LEVEL: f64 = 8.0;
/// Steps that a window must hold: a server is given a handful of things to keep, not eight.
const MIN_STEPS: usize = 8;
/// Share of neighbouring blocks that must be level: what rises between most of them is smooth.
const MIN_LEVEL: f64 = 0.5;
/// Share of neighbouring blocks that may rise by less than a step and yet not be level.
const MAX_CREEPING: f64 = 0.1;
/// What the newer half of a window rises by, as a share of the older half, at least: time constants of allocators are
/// 70 min at most, so in windows of 4.6 h what settles rises by less than a third.
const MIN_PACE: f64 = 0.5;
/// Mann-Kendall's z: of a course that never falls it is larger than of any other.
const MIN_TREND_Z: f64 = 5.5;
/// Parts of a window, each of which must have a step.
const PARTS: usize = 3;

/// A window of one rung.
pub(crate) fn judge(rung: usize, basis: Basis, series: &Series) -> Result<Rise, Refusal> {
    let x = series.values();
    let (mut steps, mut level, mut creeping) = ([0_usize; PARTS], 0, 0);
    for (i, pair) in x.windows(2).enumerate() {
        match pair[1] - pair[0] {
            step if step <= -LEVEL => return Err(Refusal::Wandering),
            step if step < LEVEL => level += 1,
            step if step < MIN_STEP => creeping += 1,
            _ => steps[i * PARTS / (x.len() - 1)] += 1,
        }
    }
    let pairs = x.len() as f64 - 1.0;
    if steps.iter().sum::<usize>() < MIN_STEPS {
        return Err(Refusal::Stepped);
    }
    if steps.contains(&0)
        || f64::from(level) < MIN_LEVEL * pairs
        || f64::from(creeping) > MAX_CREEPING * pairs
    {
        return Err(Refusal::Uneven);
    }
    let middle = x[x.len() / 2];
    let (older, newer) = (middle - x[0], x[x.len() - 1] - middle);
    if newer < MIN_PACE * older {
        return Err(Refusal::Slowing);
    }
    let z = trend_z(x);
    if z < MIN_TREND_Z {
        return Err(Refusal::Wandering);
    }
    let times = series.times();
    Ok(Rise {
        rung,
        basis,
        line: theil_sen(series),
        from: times[0],
        until: times[times.len() - 1],
        z,
        noise: noise(x),
        clock: Clock::Bursts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RING;

    fn stairs(at: impl Fn(usize) -> f64) -> Result<Rise, Refusal> {
        let mut series = Series::new();
        for i in 0..RING {
            series.push(i as f64 * 512.0, at(i));
        }
        judge(9, Basis::Floor, &series)
    }

    #[test]
    fn stairs_that_go_on_are_a_leak_and_those_that_end_or_come_down_or_are_smooth_are_none() {
        let uneven = [0.0, 40.0, 40.0, 240.0, 300.0, 300.0, 300.0, 300.0];
        assert!(stairs(|i| uneven[i % 8] + 480.0 * (i / 8) as f64).is_ok());
        assert_eq!(stairs(|i| 100.0 * (i / 16) as f64), Err(Refusal::Stepped));
        assert_eq!(stairs(|i| 100.0 * (i.min(16) / 2) as f64), Err(Refusal::Uneven));
        assert_eq!(stairs(|i| 40.0 * i as f64), Err(Refusal::Uneven), "no level stretch");
        assert_eq!(stairs(|i| (i as f64 * 0.4).floor() * 20.0), Err(Refusal::Stepped), "granules");
        let settling = |i: usize| (4000.0 * (1.0 - (-((i / 2) as f64) / 5.0).exp())).floor();
        assert_eq!(stairs(settling), Err(Refusal::Slowing));
        assert_eq!(stairs(|i| 100.0 * i as f64 - 300.0 * (i / 16) as f64), Err(Refusal::Wandering));
    }
}
