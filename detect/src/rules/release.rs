//! What is left after a release: memory that stays when an engine sleeps, unloads or ends, and memory that nobody owns.

use ebbtide_core::{EventKind, Evidence, FindingKind, Severity, Tick, Tier};

use super::{Claim, Moment, bytes, seconds};
use crate::sentence;

/// Freeing takes engines seconds to minutes; LMCache took five. Twice that, in seconds, before anything is said.
const GRACE_S: f64 = 600.0;
/// Memory without an owner below this is contexts and firmware, in MiB.
const MIN_ORPHAN: f64 = 1024.0;
/// A residual matters from so much above the best that was seen on, in MiB.
const MIN_RESIDUAL: f64 = 2048.0;
/// What an engine asleep may well hold where none was seen to do better, in MiB: contexts, graphs and workspaces;
/// 1.1 GiB is usual.
const USUAL_RESIDUAL: f64 = 2048.0;
/// What nobody uses holds its level within this, in MiB.
const STIR: f64 = 64.0;

/// What gave memory back, or should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The engine was told to release its memory.
    Sleep,
    /// All models that were seen to be loaded are unloaded.
    Unload,
    /// The engine, its process or its container ended.
    Exit,
}

/// A release that has not been followed by a new beginning.
#[derive(Debug, Clone, Copy)]
struct Pending {
    kind: Kind,
    at: Tick,
    before: f64,
    lowest: f64,
}

/// Releases of one series.
#[derive(Debug, Clone, Default)]
pub(super) struct Release {
    newest: Option<f64>,
    pending: Option<Pending>,
    /// The least that was ever left after a release, in MiB.
    best: Option<f64>,
    /// What was held before the first model was loaded, and how many are loaded since.
    before_load: Option<f64>,
    loaded: u32,
    ownerless_since: Option<Tick>,
}

impl Release {
    /// Takes an event.
    pub(super) fn event(&mut self, event: &EventKind, tick: Tick) {
        match event {
            EventKind::Sleep => self.begin(Kind::Sleep, tick),
            EventKind::EngineExit | EventKind::ProcessExit | EventKind::ContainerRemoved => {
                self.begin(Kind::Exit, tick);
            }
            EventKind::ModelUnload(_) => {
                self.loaded = self.loaded.saturating_sub(1);
                if self.loaded == 0 && self.before_load.is_some() {
                    self.begin(Kind::Unload, tick);
                }
            }
            EventKind::ModelLoad(_) => {
                if self.loaded == 0 {
                    self.before_load = self.newest;
                }
                self.loaded = self.loaded.saturating_add(1);
                self.end();
            }
            EventKind::ProcessStart | EventKind::Wake | EventKind::DriverReload => self.end(),
            EventKind::GpuLost | EventKind::GpuBack | EventKind::Xid(_) => {}
        }
    }

    fn begin(&mut self, kind: Kind, at: Tick) {
        if let (Some(before), None) = (self.newest, self.pending) {
            self.pending = Some(Pending { kind, at, before, lowest: before });
        }
    }

    /// A new beginning: what was left until now is what a good release leaves.
    fn end(&mut self) {
        if let Some(pending) = self.pending.take().filter(|pending| pending.kind != Kind::Exit) {
            self.best = Some(self.best.map_or(pending.lowest, |best| best.min(pending.lowest)));
        }
    }

    /// Takes a value.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let value = moment.mib;
        self.newest = Some(value);
        if let Some(pending) = &mut self.pending {
            pending.lowest = pending.lowest.min(value);
        }
        self.ownerless_since = match moment.owners {
            Ok(0) => self.ownerless_since.or(Some(moment.tick)),
            _ => None,
        };
    }

    /// Whether what is left is more than should be, or nobody's.
    pub(super) fn claim(&self, moment: &Moment<'_>) -> Option<Claim> {
        let value = moment.value.mib();
        if let Some(since) = self.ownerless_since.filter(|since| seconds(*since, moment.tick) >= GRACE_S) {
            return (value >= MIN_ORPHAN).then(|| orphan(moment, since, None));
        }
        let pending = self.pending.filter(|pending| seconds(pending.at, moment.tick) >= GRACE_S)?;
        match (pending.kind, moment.owners) {
            (Kind::Exit, Err(_)) => {
                let is_still = value - pending.lowest <= STIR && value <= pending.before + STIR;
                (is_still && value >= MIN_ORPHAN).then(|| orphan(moment, pending.at, Some(pending.before)))
            }
            (_, Ok(2..)) => None,
            (kind, _) => self.kept(moment, &pending, kind),
        }
    }

    fn kept(&self, moment: &Moment<'_>, pending: &Pending, kind: Kind) -> Option<Claim> {
        let usual = match kind {
            Kind::Unload => self.before_load?,
            Kind::Sleep | Kind::Exit => self.best.unwrap_or(USUAL_RESIDUAL),
        };
        let residual = moment.value.mib();
        if residual < usual + MIN_RESIDUAL {
            return None;
        }
        let event = match kind {
            Kind::Sleep => "the engine went to sleep",
            Kind::Unload => "the last model was unloaded",
            Kind::Exit => "the engine ended",
        };
        let lasted = seconds(pending.at, moment.tick);
        Some(Claim {
            kind: FindingKind::NotReleased,
            tier: Tier::Confirmed,
            severity: Severity::Warning,
            since: pending.at,
            amount: bytes(residual - usual),
            accounts_for_rise: false,
            rate: None,
            evidence: vec![
                Evidence::against("residual", residual, "MiB", usual + MIN_RESIDUAL),
                Evidence::new("before", pending.before, "MiB"),
                Evidence::new("usual", usual, "MiB"),
                Evidence::against("lasted", lasted, "s", GRACE_S),
            ],
            summary: sentence::not_released(moment.value, lasted, event, bytes(usual)),
            settle: sentence::SETTLE_NOT_RELEASED,
        })
    }
}

fn orphan(moment: &Moment<'_>, since: Tick, before: Option<f64>) -> Claim {
    let lasted = seconds(since, moment.tick);
    let held = Evidence::against("held", moment.value.mib(), "MiB", MIN_ORPHAN);
    let mut evidence = vec![held, Evidence::against("lasted", lasted, "s", GRACE_S)];
    evidence.extend(before.map(|before| Evidence::new("before", before, "MiB")));
    Claim {
        kind: FindingKind::Orphan,
        tier: if before.is_some() { Tier::Early } else { Tier::Confirmed },
        severity: Severity::Warning,
        since,
        amount: moment.value,
        accounts_for_rise: false,
        rate: None,
        evidence,
        summary: sentence::orphan(moment.value, lasted, before.is_some()),
        settle: sentence::SETTLE_ORPHAN,
    }
}
