//! Which rise may be a leak: over time, over the work done, or in bursts.

use super::{LONG_PAST, Scene, UNEXPLAINED_SHARE, requests_take, requests_take_late};
use crate::bursts::Steps;
use crate::explain::{Account, Basis};
use crate::ladder::RING;
use crate::rise::{LEAK, Refusal, Rise, rise_mib};
use crate::trend::noise;
use crate::work::Window;

/// From this rung on (windows of 2.3 h) an allocator that settles is seen to slow down.
const SETTLED_RUNG: usize = 8;
/// What an allocator adds within hours as load comes near its old maxima, in MiB: rises over work below it are none.
const KEPT_PEAKS_MIB: f64 = 128.0;
/// Windows in which steps of any height are looked for: 2.3 to 18 h.
const BURST_RUNGS: std::ops::RangeInclusive<usize> = SETTLED_RUNG..=11;

impl Scene<'_> {
    /// A rise that may be a leak, whatever it keeps pace with.
    // Its windows are kept out of the stack of what runs for each block.
    #[inline(never)]
    pub(crate) fn suspect(&self, rung: usize, steps: &Steps) -> Option<Rise> {
        match self.unexplained(rung) {
            Ok(rise) if steps.make_up(&rise) => self.bursts(rung, steps).ok(),
            Ok(rise) if self.work.holds(rung) => {
                let series = self.series(rung, RING, rise.basis);
                Some(series.map_or(rise, |series| self.work.named(rise, &series)))
            }
            Ok(rise) => Some(rise),
            Err(_) => self.unexplained_by_work(rung).or_else(|_| self.bursts(rung, steps)).ok(),
        }
    }

    /// A rise that the counters do not account for and that keeps pace with the work, whatever it does over time.
    fn unexplained_by_work(&self, rung: usize) -> Result<Rise, Refusal> {
        if !self.work.holds(rung) || self.is_calm(rung, LEAK.min_rise) {
            return Err(Refusal::Flat);
        }
        if let Account::OnDemand { .. } = self.account {
            let basis = self.quieter_residual(rung);
            let series = self.series(rung, RING, basis).ok_or(Refusal::Sparse)?;
            let more = self.ladder.running(rung, RING).map_or(0.0, |running| rise_mib(&running));
            // A line is dear, and load takes most of what rises. Without bursts to look for, what is no leak with any
            // line need not have one.
            let is_wrong = !self.is_calmed(rung, noise(series.values()))
                || requests_take_late(&series, more)
                || (!BURST_RUNGS.contains(&rung) && self.is_reserved(rung, basis, &series));
            let rise = if is_wrong { Err(Refusal::Uneven) } else { self.along_work(rung, basis) }?;
            return if requests_take(&rise, more) { Err(Refusal::Uneven) } else { Ok(rise) };
        }
        if rung < SETTLED_RUNG {
            return Err(Refusal::Sparse);
        }
        let rise = self.along_work(rung, Basis::Floor)?;
        let grown = rise.line.slope * (rise.until - rise.from);
        if grown < KEPT_PEAKS_MIB || !self.is_left(rung, UNEXPLAINED_SHARE * grown) {
            return Err(Refusal::Uneven);
        }
        let other = match self.account {
            Account::Pooled => Basis::BeyondPeak,
            Account::Unlearned => Basis::Residual,
            Account::Unknown | Account::OnDemand { .. } => Basis::Ceil,
        };
        self.along_work(rung, other)
    }

    /// A quantity that rises with the work, in this window and, where it is kept, the one of twice the length.
    fn along_work(&self, rung: usize, basis: Basis) -> Result<Rise, Refusal> {
        // A bend is cheaper to see than a line is to draw.
        let longer = self.past(rung + 1, basis, LONG_PAST);
        if longer.is_some_and(|longer| self.work.slows(rung + 1, &longer)) {
            return Err(Refusal::Slowing);
        }
        let series = self.series(rung, RING, basis).ok_or(Refusal::Sparse)?;
        self.work.judge(Window { rung, basis }, &series)
    }

    /// Whether memory is calmer without what the counter accounts for: else the counter's own course is what rises.
    fn is_calmed(&self, rung: usize, left: f64) -> bool {
        self.ladder.noise(rung, Basis::Mid).is_some_and(|whole| left <= whole.max(LEAK.min_rise))
    }

    /// Whether what the counter leaves has risen by so much, where there is a counter.
    fn is_left(&self, rung: usize, least: f64) -> bool {
        self.series(rung, RING, Basis::Residual).is_none_or(|left| rise_mib(&left) >= least)
    }

    /// Steps that stay, whatever their heights.
    fn bursts(&self, rung: usize, steps: &Steps) -> Result<Rise, Refusal> {
        if !BURST_RUNGS.contains(&rung) {
            return Err(Refusal::Sparse);
        }
        let basis = self.shown_basis(rung);
        steps.judge(rung, basis, &self.series(rung, RING, basis).ok_or(Refusal::Sparse)?)
    }
}
