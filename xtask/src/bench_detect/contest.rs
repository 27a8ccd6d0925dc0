//! The detector and its rivals on the same histories.

use ebbtide_detect::DetectConfig;
use ebbtide_testkit::traces::Family;

use super::baselines::{Input, Rule, TEXTBOOK, TUNED};
use super::minutes::Minutes;
use super::play::{Claim, Job, Played, play, play_by_the_minute};
use super::score::{Alarms, Mark, Tally};
use super::workers;

/// A baseline with its setting and its input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rival {
    pub(super) rule: Rule,
    pub(super) kind: &'static str,
    pub(super) input: Input,
}

impl Rival {
    /// Textbook settings on what the driver tells, tuned ones on what KV does not explain.
    pub(super) fn all() -> Vec<Self> {
        let rival = |kind, input| move |rule| Self { rule, kind, input };
        let textbook = TEXTBOOK.into_iter().map(rival("textbook", Input::Raw));
        textbook.chain(TUNED.into_iter().map(rival("tuned", Input::Residual))).collect()
    }
}

/// One history and what came of it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) family: Family,
    pub(super) own: Mark,
    /// As many as there were rivals; empty where they did not play.
    pub(super) rivals: Vec<Mark>,
    pub(super) claim: Option<Claim>,
    pub(super) headroom: Option<f64>,
    /// How long memory lasted from the onset on, in minutes.
    pub(super) lasted_min: Option<f64>,
    /// Forecasts of exhaustion in the clean part, where memory stays clear of the capacity.
    pub(super) false_forecasts: u32,
    /// Growth was called faster while its pace was even.
    pub(super) false_change: bool,
    /// When a change of pace was found, in minutes after it.
    pub(super) change_delay_min: Option<f64>,
    pub(super) diagnosis: &'static str,
}

/// Plays each job; rivals take part in the seeds below the last one, for the time that they take.
pub(super) fn hold(jobs: &[Job], rivals: &[Rival], last_rival_seed: u64) -> Vec<Entry> {
    workers::each(jobs, |job| {
        let config = DetectConfig::default();
        if job.seed < last_rival_seed {
            entry(job.family, &play_by_the_minute(job, &config), rivals)
        } else {
            entry(job.family, &play(job, &config), &[])
        }
    })
}

fn entry(family: Family, played: &Played, rivals: &[Rival]) -> Entry {
    let label = &played.label;
    let own = Mark::of(played.truth(), &played.alarms);
    let clean_s = label.onset_s.unwrap_or(played.end_s);
    let false_forecasts =
        played.forecasts.iter().filter(|f| !label.is_brink && f.start < clean_s).count() as u32;
    let change = label.change_s.unwrap_or(u64::MAX);
    Entry {
        family,
        own,
        rivals: rivals.iter().map(|rival| mark(rival, played)).collect(),
        claim: played.claim,
        headroom: played.headroom,
        lasted_min: label.onset_s.map(|onset| played.end_s.saturating_sub(onset) as f64 / 60.0),
        false_forecasts,
        false_change: played.changes.iter().any(|alarm| alarm.start < change),
        change_delay_min: played
            .changes
            .iter()
            .find(|alarm| alarm.start >= change)
            .map(|alarm| (alarm.start - change) as f64 / 60.0),
        diagnosis: played.diagnosis,
    }
}

fn mark(rival: &Rival, played: &Played) -> Mark {
    let values = input(&played.minutes, rival.input);
    Mark::of(played.truth(), &stretches(&rival.rule.alarms(values, played.label.capacity_mib as f64)))
}

pub(super) fn input(minutes: &Minutes, input: Input) -> &[f64] {
    match input {
        Input::Raw => &minutes.raw,
        Input::Residual => &minutes.residual,
    }
}

/// Stretches of alarm in seconds; what is known of a minute is known at its end.
pub(super) fn stretches(states: &[bool]) -> Alarms {
    let mut alarms = Alarms::new();
    for (minute, _) in states.iter().enumerate().filter(|(_, state)| **state) {
        let (start, end) = ((minute as u64 + 1) * 60, (minute as u64 + 2) * 60);
        match alarms.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => alarms.push(start..end),
        }
    }
    alarms
}

/// The detector's tally over entries.
pub(super) fn own<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Tally {
    Tally::of(entries.into_iter().map(|entry| &entry.own))
}

/// A rival's tally over the entries that it took part in.
pub(super) fn rival<'a>(entries: impl IntoIterator<Item = &'a Entry>, index: usize) -> Tally {
    Tally::of(entries.into_iter().filter_map(|entry| entry.rivals.get(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_of_alarm_are_joined() {
        let alarms = stretches(&[false, true, true, false, true]);
        assert_eq!(alarms, [120..240, 300..360]);
    }
}
