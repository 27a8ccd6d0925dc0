//! What rises to new heights, whatever explains it, and whether it became faster.

use super::{GROWTH_SLOTS, Reserve, Scene, UNEXPLAINED_SHARE};
use crate::explain::{Account, Basis};
use crate::kink::{self, Kink};
use crate::ladder::RING;
use crate::levelling;
use crate::rise::{self, GROWTH, Rise, rise_mib};
use crate::trend::Series;

/// Blocks that say at which pace memory rose before.
const LEAST_PAST: usize = 8;

/// A rise that is no leak, or not yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    /// The rise.
    pub(crate) rise: Rise,
    /// Why it is not called a leak.
    pub(crate) reserve: Reserve,
}

/// A window that rises steadily to new heights. The line through it is drawn only where it is kept.
pub(crate) struct Growing {
    rung: usize,
    series: Series,
}

impl Scene<'_> {
    /// Whether a window rises steadily to new heights, whatever explains it.
    pub(crate) fn growing(&self, rung: usize) -> Option<Growing> {
        let glance = self.ladder.glance(rung, GROWTH_SLOTS);
        if glance.is_some_and(|glance| glance.is_flat(Basis::Floor, GROWTH.min_rise)) {
            return None;
        }
        let (from, _) = self.ladder.extent(rung, GROWTH_SLOTS)?;
        if self.ladder.has_reached(rung, self.ladder.newest(rung)?.floor, from)
            || self
                .ladder
                .course(rung, GROWTH_SLOTS)
                .is_some_and(|course| course.is_no_rise(Basis::Floor, &GROWTH))
        {
            return None;
        }
        let series = self.series(rung, GROWTH_SLOTS, Basis::Floor)?;
        rise::steadiness(&series, &GROWTH).ok()?;
        Some(Growing { rung, series })
    }

    /// The rise of a window that grows, and why it is no leak.
    // Its windows are kept out of the stack of what runs for each block.
    #[inline(never)]
    pub(crate) fn growth(&self, growing: &Growing) -> Growth {
        let Growing { rung, series } = growing;
        let rise = rise::drawn(*rung, Basis::Floor, series);
        let left = self.series(*rung, GROWTH_SLOTS, Basis::Residual).map(|left| rise_mib(&left));
        let explained = self.account != Account::Pooled
            && left.is_some_and(|left| left <= UNEXPLAINED_SHARE * rise_mib(series));
        let reserve = if explained { Reserve::Explained } else { self.caution(&rise, series) };
        Growth { rise, reserve }
    }

    /// Why a rise is growth and no more: a bend is said before anything that is not known.
    fn caution(&self, rise: &Rise, series: &Series) -> Reserve {
        let is_slowing = || levelling::of(series, 0.0).is_some_and(|level| level.is_slowing());
        match self.known_reserve(rise) {
            Some(reserve @ (Reserve::NewPeak | Reserve::Disturbed)) => reserve,
            _ if is_slowing() => Reserve::Slowing,
            reserve => reserve.unwrap_or(Reserve::TooShort),
        }
    }

    /// A rise that became faster, without a new maximum of load.
    pub(crate) fn kink(&self, rung: usize) -> Option<Kink> {
        if rung < self.account.threshold().kink || self.is_calm(rung, kink::MIN_RISE) {
            return None;
        }
        let basis = match self.account {
            Account::OnDemand { .. } => self.quieter_residual(rung),
            _ => self.quietest(rung)?,
        };
        let (series, half_z) = (self.series(rung, RING, basis)?, self.budget.half_z(rung));
        let found = kink::find(rung, basis, &series, half_z)?;
        let is_of_load = || {
            let over_work = self.work.series(rung, &series);
            over_work.is_some_and(|over_work| kink::find(rung, basis, &over_work, half_z).is_none())
        };
        if is_of_load() || !self.outpaces_its_past(&found.after) {
            return None;
        }
        let begun = 2.0 * found.after.from - found.after.until;
        let warm = self.account.is_exact() || begun >= self.warm_up_s;
        if matches!(self.account, Account::OnDemand { .. }) {
            self.outgrows_requests(&found.after).ok()?;
        }
        (warm && !self.explainer.peaked_since(begun)).then_some(found)
    }

    /// Whether a rise is faster, too, than what came before it in blocks four times as long.
    fn outpaces_its_past(&self, rise: &Rise) -> bool {
        let Some(past) = self.past(rise.rung + 2, rise.basis, LEAST_PAST) else { return true };
        let len = past.times().partition_point(|at| *at < rise.from);
        len < LEAST_PAST || kink::outpaces(rise, &past.slice(0..len))
    }
}
