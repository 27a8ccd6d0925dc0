//! Memory that is held for hours by somebody who does no work: no fault of the holder's, but nobody else can have it.

use ebbtide_core::{Evidence, FindingKind, Percent, Severity, Tick, Tier};

use super::{Claim, Moment, bytes, seconds};
use crate::sentence;

/// Memory held below this is a context and no more, in MiB.
const MIN_HELD: f64 = 1024.0;
/// Nothing must have been done for so long, in seconds: a pause over lunch is shorter.
const IDLE_S: f64 = 7200.0;
/// Samples further apart than this say nothing of what happened between them, in seconds: twice the longest interval.
const MAX_GAP_S: f64 = 600.0;

/// For how long nobody has worked, and how much was held all that while.
#[derive(Debug, Clone, Default)]
pub(super) struct Idle {
    since: Option<Tick>,
    newest: Option<Tick>,
    /// Requests finished, or tokens where those are not counted, when it was last looked.
    done: Option<u64>,
    /// What was held so far, in MiB times seconds.
    mib_s: f64,
    /// Whether a reading of the device's use is among what says so.
    is_measured: bool,
}

impl Idle {
    /// Takes a sample.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let newest = self.newest.replace(moment.tick);
        // Requests that begin and end between two samples show in a counter only.
        let done = moment.load.served.or(moment.load.tokens).ok();
        let has_worked = done.zip(self.done).is_some_and(|(now, before)| now != before);
        self.done = done.or(self.done);
        let lasted = || newest.map_or(0.0, |newest| seconds(newest, moment.tick));
        let lasted = (!has_worked && is_idle(moment)).then(lasted).filter(|lasted| *lasted <= MAX_GAP_S);
        let Some(lasted) = lasted else {
            (self.since, self.mib_s) = (None, 0.0);
            return;
        };
        if self.since.is_none() {
            self.since = Some(moment.tick);
        } else {
            self.mib_s += moment.mib * lasted;
        }
        self.is_measured = moment.load.busy.is_ok();
    }

    /// Whether much has been held for long without any work.
    pub(super) fn claim(&self, moment: &Moment<'_>) -> Option<Claim> {
        let since = self.since.filter(|since| seconds(*since, moment.tick) >= IDLE_S)?;
        let held = moment.value.mib();
        if held < MIN_HELD {
            return None;
        }
        let lasted = seconds(since, moment.tick);
        let gib_hours = self.mib_s / 1024.0 / 3600.0;
        Some(Claim {
            kind: FindingKind::IdleHolder,
            tier: if self.is_measured { Tier::Confirmed } else { Tier::Early },
            severity: Severity::Info,
            since,
            amount: bytes(held),
            accounts_for_rise: false,
            rate: None,
            evidence: vec![
                Evidence::against("held", held, "MiB", MIN_HELD),
                Evidence::against("idle", lasted, "s", IDLE_S),
                Evidence::new("cost", gib_hours, "GiB h"),
            ],
            summary: sentence::idle_holder(moment.value, lasted, gib_hours, self.is_measured),
            settle: sentence::SETTLE_IDLE,
        })
    }
}

/// Whether something says that no work is done, and nothing says that some is.
fn is_idle(moment: &Moment<'_>) -> bool {
    let load = moment.load;
    let says = [
        load.busy.ok().map(|busy| busy == Percent(0)),
        load.running.ok().map(|running| running == 0),
        load.waiting.ok().map(|waiting| waiting == 0),
    ];
    let is_told = says[0].is_some() || says[1].is_some();
    is_told && says.into_iter().flatten().all(|idle| idle)
}
