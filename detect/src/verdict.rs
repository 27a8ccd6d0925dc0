//! From single windows to a cause: repetition, and more of it the less is known about the load.

use ebbtide_core::FindingKind;

use crate::bursts::{STEP_RUNG, Steps};
use crate::channel::{Channel, leak_passes, patience};
use crate::explain::Basis;
use crate::kink::Kink;
use crate::ladder::{Closed, RING};
use crate::rise::{Clock, Rise};
use crate::scene::{Growth, Reserve, SIZED_RUNG, Scene};

/// From this rung on (windows of 8.5 min) a rise that a leak could make is growth even below former heights.
const UNCONFIRMED_RUNG: usize = 4;
/// Blocks without a pass after which growth is over: half its window.
const GROWTH_PATIENCE: u8 = 8;
/// Growth is over when its later half rises by less than this share of its pace.
const STALE_SHARE: f64 = 0.25;
/// Windows in a row that must show a change of pace.
const KINK_PASSES: u8 = 4;

/// The cause that stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cause {
    /// Nothing rises.
    Calm,
    /// It rises, explained or not yet judged.
    Growth(Growth),
    /// The floor keeps rising at constant load.
    Leak(Rise),
    /// A rise became faster; the leak that it may be beside.
    SlopeChange(Kink, Option<Rise>),
}

impl Cause {
    /// The kind of its finding, if it has one.
    pub(crate) const fn kind(&self) -> Option<FindingKind> {
        match self {
            Self::Calm => None,
            Self::Growth(_) => Some(FindingKind::Growth),
            Self::Leak(_) => Some(FindingKind::Leak),
            Self::SlopeChange(..) => Some(FindingKind::SlopeChange),
        }
    }
}

/// The memory of all tests on all rungs.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    leak: Channel<Rise>,
    growth: Channel<Growth>,
    kink: Channel<Kink>,
    steps: Steps,
}

impl Default for Verdict {
    fn default() -> Self {
        Self::new()
    }
}

impl Verdict {
    /// Nothing has been said yet.
    pub(crate) const fn new() -> Self {
        Self { leak: Channel::new(), growth: Channel::new(), kink: Channel::new(), steps: Steps::new() }
    }

    /// Judges the rungs whose windows moved.
    pub(crate) fn step(&mut self, scene: &Scene<'_>, closed: Closed) {
        if closed.holds(STEP_RUNG) {
            self.steps.note(scene);
        }
        for rung in closed.rungs() {
            let unconfirmed = self.judge_leak(scene, rung);
            self.judge_growth(scene, rung, unconfirmed);
            self.end_stale_growth(scene, rung);
            match scene.kink(rung) {
                Some(found) => self.kink.pass(rung, KINK_PASSES, || found),
                None => self.kink.miss(rung, patience(rung)),
            }
        }
    }

    /// Counts for or against growth.
    fn judge_growth(&mut self, scene: &Scene<'_>, rung: usize, unconfirmed: Option<Growth>) {
        let needed = if rung < 3 { 2 } else { 1 };
        if self.leak.stands_from(0) {
            // Beside a leak nobody asks for growth.
            self.growth.miss(rung, GROWTH_PATIENCE);
        } else if let Some(growth) = unconfirmed {
            self.growth.pass(rung, needed, || growth);
        } else if self.growth.stands_from(rung + 2) {
            // Beside a window four times as long that grows the short one adds nothing. What it said holds until then.
        } else if let Some(growing) = scene.growing(rung) {
            self.growth.pass(rung, needed, || scene.growth(&growing));
        } else {
            self.growth.miss(rung, GROWTH_PATIENCE);
        }
    }

    /// Growth whose later half has hardly risen, seen in blocks a quarter as long, is over: its own blocks are too long
    /// to say so in time.
    fn end_stale_growth(&mut self, scene: &Scene<'_>, rung: usize) {
        let Some(Growth { rise: standing, .. }) =
            self.growth.standing().filter(|growth| growth.rise.rung == rung + 2)
        else {
            return;
        };
        let late = scene.ladder.rise(rung, RING, Basis::Floor).zip(scene.ladder.extent(rung, RING));
        if late.is_some_and(|(rise, (from, until))| {
            rise < STALE_SHARE * standing.line.slope * 0.75 * (until - from)
        }) {
            self.growth.end();
        }
    }

    /// Counts for or against a leak; gives the rise that is not (yet) called one.
    fn judge_leak(&mut self, scene: &Scene<'_>, rung: usize) -> Option<Growth> {
        if rung < SIZED_RUNG.min(scene.account.threshold().leak) {
            return None;
        }
        // Where a window four times as long says leak, the short one adds nothing.
        let judged = if self.leak.stands_from(rung + 2) { None } else { scene.suspect(rung, &self.steps) };
        let Some(rise) = judged else {
            self.miss_leak(scene, rung);
            return None;
        };
        let reserve = scene.reserve(&rise);
        match reserve {
            None if matches!(rise.clock, Clock::Bursts { .. }) => self.leak.pass(rung, 1, || rise),
            None => self.leak.pass(rung, leak_passes(rung), || rise),
            Some(_) => self.miss_leak(scene, rung),
        }
        // Many a course that comes and goes with the load lies near a line over work: one that chance may have drawn
        // is no growth, unless it is seen to grow over time too.
        let is_growth = rung >= UNCONFIRMED_RUNG && !matches!(rise.clock, Clock::Work(_));
        is_growth.then_some(Growth { rise, reserve: reserve.unwrap_or(Reserve::TooShort) })
    }

    /// A leak that stands is taken back only where it is seen to have stopped: that one window cannot show it again is
    /// no evidence against it.
    fn miss_leak(&mut self, scene: &Scene<'_>, rung: usize) {
        match self.leak.standing() {
            Some(rise) if rise.rung == rung && scene.goes_on(rise) => self.leak.hold(rung),
            _ => self.leak.miss(rung, patience(rung)),
        }
    }

    /// The kind of the finding of the cause that stands.
    pub(crate) fn kind(&self) -> Option<FindingKind> {
        let standing = [
            (self.kink.standing().is_some(), FindingKind::SlopeChange),
            (self.leak.standing().is_some(), FindingKind::Leak),
            (self.growth.standing().is_some(), FindingKind::Growth),
        ];
        standing.into_iter().find_map(|(stands, kind)| stands.then_some(kind))
    }

    /// The cause that stands.
    pub(crate) fn cause(&self) -> Cause {
        let leak = self.leak.standing().copied();
        match (self.kink.standing().copied(), leak, self.growth.standing().copied()) {
            (Some(kink), leak, _) => Cause::SlopeChange(kink, leak),
            (None, Some(leak), _) => Cause::Leak(leak),
            (None, None, Some(growth)) => Cause::Growth(growth),
            (None, None, None) => Cause::Calm,
        }
    }
}
