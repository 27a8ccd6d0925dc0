//! What an alarm was worth: precision over segments, recall, false alarms a day, delay, and what had leaked by then.

use std::ops::Range;

use ebbtide_testkit::traces::Label;

use super::counts::poisson;
use super::minutes::quantile;
use crate::interval::Share;

/// Times at which an alarm stood, in seconds, in order.
pub(super) type Alarms = Vec<Range<u64>>;

/// The truth about a history that was played.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth<'a> {
    pub(super) label: &'a Label,
    pub(super) end_s: u64,
    /// What has leaked by the end of each minute, in MiB.
    pub(super) leaked: &'a [f64],
}

/// An alarm that was right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hit {
    pub(super) delay_min: f64,
    pub(super) leaked_mib: f64,
}

/// What one history did to a detector's score. The part before a leak begins is clean; a history without one is so
/// to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mark {
    pub(super) is_leak: bool,
    pub(super) clean_days: f64,
    /// Alarms that were raised in the clean part.
    pub(super) episodes: u32,
    pub(super) hit: Option<Hit>,
}

impl Mark {
    pub(super) fn of(truth: Truth<'_>, alarms: &[Range<u64>]) -> Self {
        let clean_s = truth.label.onset_s.map_or(truth.end_s, |onset| onset.min(truth.end_s));
        let episodes = alarms.iter().filter(|alarm| alarm.start < clean_s).count() as u32;
        let first = truth.label.onset_s.and_then(|onset| {
            let standing = alarms.iter().find(|alarm| alarm.end > onset || alarm.start >= onset)?;
            Some((onset, standing.start.max(onset)))
        });
        let hit = first.map(|(onset, at)| Hit {
            delay_min: (at - onset) as f64 / 60.0,
            leaked_mib: leaked_at(truth.leaked, at),
        });
        Self { is_leak: truth.label.is_leak, clean_days: clean_s as f64 / 86_400.0, episodes, hit }
    }
}

fn leaked_at(leaked: &[f64], second: u64) -> f64 {
    // The value of a minute is that of its end.
    let minute = (second / 60).saturating_sub(1) as usize;
    leaked.get(minute).or(leaked.last()).copied().unwrap_or(0.0)
}

/// The marks of many histories.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) histories: usize,
    pub(super) leaks: usize,
    pub(super) found: usize,
    /// Histories with a false alarm in their clean part.
    pub(super) fooled: usize,
    pub(super) episodes: u32,
    pub(super) clean_days: f64,
    delays: Vec<f64>,
    leaked: Vec<f64>,
}

impl Tally {
    pub(super) fn of<'a>(marks: impl IntoIterator<Item = &'a Mark>) -> Self {
        let mut tally = Self::default();
        for mark in marks {
            tally.histories += 1;
            tally.leaks += usize::from(mark.is_leak);
            tally.found += usize::from(mark.hit.is_some());
            tally.fooled += usize::from(mark.episodes > 0);
            tally.episodes += mark.episodes;
            tally.clean_days += mark.clean_days;
            tally.delays.extend(mark.hit.map(|hit| hit.delay_min));
            tally.leaked.extend(mark.hit.map(|hit| hit.leaked_mib));
        }
        tally
    }

    /// Right alarms among histories with an alarm; a history can have both kinds.
    pub(super) fn precision(&self) -> Share {
        Share::of(self.found, self.found + self.fooled)
    }

    pub(super) fn recall(&self) -> Share {
        Share::of(self.found, self.leaks)
    }

    pub(super) fn f1(&self) -> f64 {
        let (right, wrong) = (2.0 * self.found as f64, (self.fooled + self.leaks - self.found) as f64);
        if right + wrong > 0.0 { right / (right + wrong) } else { f64::NAN }
    }

    /// False alarms a clean GPU-day, with the ends of the interval.
    pub(super) fn false_a_day(&self) -> (f64, f64, f64) {
        let (low, high) = poisson(self.episodes);
        let days = self.clean_days;
        (f64::from(self.episodes) / days, low / days, high / days)
    }

    pub(super) fn delay(&self, share: f64) -> Option<f64> {
        quantile(&mut self.delays.clone(), share)
    }

    pub(super) fn leaked(&self) -> Option<f64> {
        quantile(&mut self.leaked.clone(), 0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_testkit::traces::{Span, family};

    fn label(key: &str) -> Label {
        family(key).unwrap().trace(0, Span::hours(8)).label().clone()
    }

    #[test]
    fn alarms_before_the_onset_are_false_and_after_it_right() {
        let leak = label("Q01");
        let leaked: Vec<f64> = (0..480).map(|minute| f64::from(minute - 179).max(0.0)).collect();
        let truth = Truth { label: &leak, end_s: 28_800, leaked: &leaked };
        let marked = Mark::of(truth, &[600..700, 14_400..28_800]);
        assert_eq!((marked.episodes, marked.clean_days), (1, 0.125));
        assert_eq!(marked.hit, Some(Hit { delay_min: 60.0, leaked_mib: 60.0 }));
        // One that stands when the leak begins was false and is right.
        let standing = Mark::of(truth, &[600..20_000, 21_000..21_060]);
        assert_eq!((standing.episodes, standing.hit.unwrap().delay_min), (1, 0.0));
        let clean = label("N01");
        let mark = Mark::of(Truth { label: &clean, end_s: 28_800, leaked: &[] }, &[600..700, 800..900]);
        assert_eq!((mark.episodes, mark.hit), (2, None));
        let tally = Tally::of(&[marked, mark, Mark::of(truth, &[])]);
        assert_eq!((tally.found, tally.fooled, tally.leaks), (1, 2, 2));
        assert!((tally.f1() - 0.4).abs() < 1e-12);
        assert!((tally.precision().hits, tally.precision().of) == (1, 3));
    }
}
