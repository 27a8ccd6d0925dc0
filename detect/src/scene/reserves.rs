//! What stands against calling a rise a leak.

use super::{Scene, YOUNG_RUNG};
use crate::explain::{Account, Basis};
use crate::ladder::{RING, block_s};
use crate::rise::{Clock, LEAK, Rise};
use crate::trend::{Series, is_trend};
use crate::wager;

/// From this rung on (windows of 4.6 h) a rise outlasts any warm-up and any single event.
const LONG_RUNG: usize = 9;
/// Windows up to this rung (17 min) must hold no event; longer ones survive one, the test for steps guards them.
const EVENTLESS_RUNG: usize = 5;

/// Why growth is not called a leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// The KV cache accounts for it.
    Explained,
    /// The load is at a new maximum.
    NewPeak,
    /// The process is young.
    WarmUp,
    /// A model was loaded, a process came or went, or the like.
    Disturbed,
    /// It slows down.
    Slowing,
    /// It has not been seen for long enough.
    TooShort,
}

impl Scene<'_> {
    /// Whether memory stood as high before this rise began: then it may be a load that comes and goes.
    fn has_been_there(&self, rise: &Rise) -> bool {
        self.ladder
            .newest(rise.rung)
            .is_some_and(|newest| self.ladder.has_reached(rise.rung, newest.floor, rise.from))
    }

    /// What stands against calling this rise a leak.
    // Its windows are kept out of the stack of what runs for each block.
    #[inline(never)]
    pub(crate) fn reserve(&self, rise: &Rise) -> Option<Reserve> {
        self.known_reserve(rise).or_else(|| {
            let is_blind = self.account == Account::Unknown;
            let has_been_there = || rise.rung <= YOUNG_RUNG && self.has_been_there(rise);
            let is_tide = is_blind && (has_been_there() || self.may_be_tide(rise));
            let is_short =
                rise.rung < self.account.threshold().leak && !(is_blind && self.outgrows_warm_up(rise));
            let may_settle = is_blind
                && rise.clock == Clock::Time
                && self.may_settle(rise)
                && !self.outgrows_warm_up(rise);
            (is_tide || is_short || may_settle || !self.is_beyond_chance(rise)).then_some(Reserve::TooShort)
        })
    }

    /// Whether both the trend test and the wager say that this is no chance, at the level of the fleet.
    fn is_beyond_chance(&self, rise: &Rise) -> bool {
        rise.z >= self.needed_z(rise.rung) && self.log_wealth(rise) >= self.budget.wealth(rise.rung)
    }

    /// Whether something stands against calling a window a leak wherever a line through it would lie, while the
    /// counters tell the load.
    pub(super) fn is_reserved(&self, rung: usize, basis: Basis, series: &Series) -> bool {
        rung < self.account.threshold().leak
            || self.known_reserve_of(rung, basis, series.times()).is_some()
            || !is_trend(series.values(), self.needed_z(rung))
            || wager::log_wealth(series, block_s(rung)) < self.budget.wealth(rung)
    }

    /// What Mann-Kendall's z of a leak must reach.
    pub(crate) fn needed_z(&self, rung: usize) -> f64 {
        // Where samples leave slots empty, fewer windows close.
        let filled = self.ladder.filled(rung, RING).unwrap_or(RING);
        self.budget.trend_z(block_s(rung) * RING as f64 / filled as f64).max(LEAK.trend_z)
    }

    /// The natural logarithm of what a bet on this rise has won.
    pub(crate) fn log_wealth(&self, rise: &Rise) -> f64 {
        let series = self.series(rise.rung, RING, rise.basis);
        series.map_or(0.0, |series| wager::log_wealth(&series, block_s(rise.rung)))
    }

    /// A good reason for this rise.
    pub(super) fn known_reserve(&self, rise: &Rise) -> Option<Reserve> {
        // Bursts need not go on as a line does: those of a peak may be most of them, however early it was.
        let is_of_peak = matches!(rise.clock, Clock::Bursts { .. }) && self.has_peaked(rise.basis, rise.from);
        let others = || self.known_reserve_of(rise.rung, rise.basis, &[rise.from, rise.until]);
        if is_of_peak { Some(Reserve::NewPeak) } else { others() }
    }

    /// Whether the load was at a new maximum since then, for a quantity that it may lift.
    fn has_peaked(&self, basis: Basis, since: f64) -> bool {
        // What the counter leaves has nothing to do with how high the counter stands.
        let is_left = matches!(basis, Basis::Residual | Basis::CalmResidual)
            && matches!(self.account, Account::OnDemand { .. });
        !is_left && self.explainer.peaked_since(since)
    }

    /// The same for a rise of these times.
    fn known_reserve_of(&self, rung: usize, basis: Basis, times: &[f64]) -> Option<Reserve> {
        let (from, until) = times.first().copied().zip(times.last().copied())?;
        let warm = self.account.is_exact() || rung >= LONG_RUNG || from >= self.warm_up_s;
        // What peaked in the first quarter has levelled since, or the rise would not go on.
        let settled_from = from + (until - from) / 4.0;
        let disturbed = self.disturbed_at.is_some_and(|at| at > from) && rung <= EVENTLESS_RUNG;
        if self.has_peaked(basis, settled_from) {
            Some(Reserve::NewPeak)
        } else if disturbed {
            Some(Reserve::Disturbed)
        } else {
            (!warm).then_some(Reserve::WarmUp)
        }
    }
}
