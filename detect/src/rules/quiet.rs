//! Memory at like moments: what is held while nothing runs. Load cannot make it rise, so a pause that holds more than
//! the one before, time and again, is a leak whatever happens between the pauses.

use ebbtide_core::{ByteRate, Evidence, FindingKind, Percent, RateBand, Severity, Tick, Tier, units::MIB};

use super::{Claim, Moment, bytes, has_lasted, seconds};
use crate::sentence;

/// Pauses that are compared: three rises in a row.
const PAUSES: usize = 4;
/// A pause lasts for so long at least, in seconds.
const MIN_PAUSE_S: f64 = 60.0;
/// What requests held is given back within so long, in seconds: before that the pause is not looked at.
const SETTLE_S: f64 = 20.0;
/// Pauses that begin within so long of each other, in seconds, are one: nobody needs to know of leaks sooner by them.
const APART_S: f64 = 1800.0;
/// The least by which a pause must hold more than the one before, in MiB: four allocation granules of 2 MiB.
const MIN_RISE: f64 = 8.0;
/// The newest rise, as a share of the largest: what settles gains ever less.
const MIN_PACE: f64 = 0.6;
/// Most of all that was gained that one pause may have brought: more is a step.
const MAX_STEP: f64 = 0.6;
/// A load this much above the former peak is a new peak, for which an allocator may keep more.
const NEW_PEAK: f64 = 1.02;
/// Samples further apart than this, in seconds, say nothing of what happened between them: twice the longest interval.
const MAX_GAP_S: f64 = 600.0;

/// The least that was held in a pause, in MiB: all, and without the KV cache in use where that is told.
#[derive(Debug, Clone, Copy)]
struct Pause {
    since: Tick,
    held: f64,
    left: f64,
}

/// Pauses one after the other, in which each held more than the one before, or the newest alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Quiet {
    idle: Option<Tick>,
    newest: Option<Tick>,
    /// The most KV cache in use, in MiB, and the most requests so far.
    peak: (f64, f64),
    pauses: [Option<Pause>; PAUSES],
}

impl Quiet {
    /// Takes a sample.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let tick = moment.tick;
        let newest = self.newest.replace(tick);
        let has_gap = || newest.is_some_and(|newest| seconds(newest, tick) > MAX_GAP_S);
        let kv = moment.kv_mib.unwrap_or(0.0);
        self.note_peak(kv, moment.load.running.map_or(0.0, f64::from));
        if !is_idle(moment) || has_gap() {
            self.idle = None;
            return;
        }
        let idle = *self.idle.get_or_insert(tick);
        if !has_lasted(idle, tick, MIN_PAUSE_S.max(SETTLE_S)) {
            return;
        }
        let held = moment.mib;
        let now = Pause { since: idle, held, left: held - kv };
        match &mut self.pauses[PAUSES - 1] {
            Some(pause) if !has_lasted(pause.since, idle, APART_S) => {
                (pause.held, pause.left) = (pause.held.min(now.held), pause.left.min(now.left));
            }
            _ => {
                self.pauses.rotate_left(1);
                self.pauses[PAUSES - 1] = Some(now);
            }
        }
    }

    /// What an allocator keeps after a new maximum of load says nothing: the pauses before it are forgotten.
    fn note_peak(&mut self, kv: f64, running: f64) {
        let is_new = |peak: f64, load: f64| load > NEW_PEAK * peak;
        if is_new(self.peak.0, kv) || is_new(self.peak.1, running) {
            self.peak = (self.peak.0.max(kv), self.peak.1.max(running));
            self.pauses = [None; PAUSES];
        }
    }

    /// Whether each pause held more than the one before.
    pub(super) fn claim(&self, moment: &Moment<'_>) -> Option<Claim> {
        let mut rises = [0.0; PAUSES - 1];
        let mut paces = [0.0; PAUSES - 1];
        for (i, pair) in self.pauses.windows(2).enumerate() {
            let (before, after) = pair[0].zip(pair[1])?;
            rises[i] = (after.held - before.held).min(after.left - before.left);
            paces[i] = rises[i] / seconds(before.since, after.since);
        }
        let (first, last) = self.pauses[0].zip(self.pauses[PAUSES - 1])?;
        let (grown, largest) = (rises.iter().sum::<f64>(), rises.iter().copied().fold(0.0, f64::max));
        let keeps_rising =
            rises.iter().all(|rise| *rise >= MIN_RISE) && rises[PAUSES - 2] >= MIN_PACE * largest;
        if !keeps_rising || largest > MAX_STEP * grown {
            return None;
        }
        let span_s = seconds(first.since, last.since);
        let rate = |mib_per_s: f64| ByteRate(mib_per_s * MIB as f64);
        let (low, high) = paces.iter().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
        Some(Claim {
            kind: FindingKind::Leak,
            // Whether the device computes says nothing of requests that wait for each other.
            tier: if moment.load.running.is_ok() { Tier::Confirmed } else { Tier::Early },
            severity: Severity::Warning,
            since: first.since,
            amount: bytes(grown),
            accounts_for_rise: false,
            rate: Some(RateBand { rate: rate(grown / span_s), low: rate(low), high: rate(high) }),
            evidence: vec![
                Evidence::new("held-at-rest", last.held, "MiB"),
                Evidence::new("grown-at-rest", grown, "MiB"),
                Evidence::against("pauses", PAUSES as f64, "", PAUSES as f64),
                Evidence::new("span", span_s, "s"),
            ],
            summary: sentence::leak_at_rest(bytes(last.held), bytes(grown), span_s, PAUSES),
            settle: sentence::SETTLE_AT_REST,
        })
    }
}

/// Whether nothing runs or waits; where the engine does not tell, whether nothing computes.
fn is_idle(moment: &Moment<'_>) -> bool {
    let load = moment.load;
    match (load.running, load.busy) {
        (Ok(running), _) => running == 0 && load.waiting.unwrap_or(0) == 0,
        (Err(_), Ok(busy)) => busy == Percent(0),
        (Err(_), Err(_)) => false,
    }
}
