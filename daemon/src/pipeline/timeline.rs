//! One clock that never steps, across the history of an earlier run, a restart and a reboot.

use ebbtide_core::{Tick, Ts};

/// Places ticks of several runs on one monotonic line.
///
/// Within a run the probe's clock is taken as it is. Where it falls back (another run, another boot) the gap is
/// taken from the wall clock, and counts as one millisecond where that stepped back too: a gap of unknown length
/// must not become a duration.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    last: Option<Placed>,
}

#[derive(Debug, Clone, Copy)]
struct Placed {
    raw_ms: u64,
    placed_ms: u64,
    at: Ts,
}

impl Timeline {
    pub(super) fn place(&mut self, tick: Tick) -> Tick {
        let placed_ms = match self.last {
            None => tick.mono_ms,
            Some(last) if tick.mono_ms > last.raw_ms => {
                last.placed_ms.saturating_add(tick.mono_ms - last.raw_ms)
            }
            Some(last) => {
                let gap_ms = u64::try_from(tick.at.0.saturating_sub(last.at.0)).unwrap_or(0).max(1);
                last.placed_ms.saturating_add(gap_ms)
            }
        };
        self.last = Some(Placed { raw_ms: tick.mono_ms, placed_ms, at: tick.at });
        Tick { mono_ms: placed_ms, ..tick }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(ticks: &[(i64, u64)]) -> Vec<u64> {
        let mut timeline = Timeline::default();
        ticks
            .iter()
            .map(|&(at, mono_ms)| timeline.place(Tick { seq: 0, at: Ts(at), mono_ms }).mono_ms)
            .collect()
    }

    #[test]
    fn a_wall_clock_that_steps_changes_nothing_within_a_run() {
        assert_eq!(placed(&[(10_000, 500), (3_610_000, 1_500), (12_000, 2_500)]), [500, 1_500, 2_500]);
    }

    #[test]
    fn a_restart_continues_after_the_gap_the_wall_clock_shows() {
        assert_eq!(placed(&[(10_000, 500_000), (70_000, 10), (71_000, 1_010)]), [500_000, 560_000, 561_000]);
    }

    #[test]
    fn a_restart_on_a_clock_that_went_back_is_no_duration() {
        assert_eq!(placed(&[(10_000, 500_000), (4_000, 10), (5_000, 1_010)]), [500_000, 500_001, 501_001]);
    }
}
