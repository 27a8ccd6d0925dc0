//! What one window after another says: is there a rise, who accounts for it, what stands against calling it a leak.

mod growth;
mod reserves;
mod settling;
mod suspects;
mod tides;

use crate::budget::Budget;
use crate::explain::{Account, Basis, Explainer};
use crate::ladder::{Ladder, RING, RUNGS};
use crate::rise::{self, Clock, LEAK, Refusal, Rise, Strictness, YOUNG_LEAK, rise_mib};
use crate::trend::{Series, least_squares, noise, trend_z};
use crate::work::{PerWork, WorkClock};

pub(crate) use growth::Growth;
pub(crate) use reserves::Reserve;

/// Blocks of the window in which growth is looked for: half of a leak's, to be early.
pub(crate) const GROWTH_SLOTS: usize = RING / 2;
/// Up to this rung (windows of 34 min) an allocator that settles looks straight.
const YOUNG_RUNG: usize = 6;
/// From this rung on (windows of 4 min) a rise out of calm may be called by its size.
pub(crate) const SIZED_RUNG: usize = 3;
/// What a residual rises where the counter explains growth, as a share of the growth.
const UNEXPLAINED_SHARE: f64 = 0.3;
/// Blocks that a longer past must hold to say whether a rise slows down in it.
const LONG_PAST: usize = 24;
/// What a running request holds outside the KV cache at most, in MiB: activations are 0 to 4.
const REQUEST_MIB: f64 = 4.0;
/// The number of requests is constant where Mann-Kendall's z of it is below this.
const CONSTANT_Z: f64 = 3.0;
/// The most of a rise that requests may make up.
const REQUEST_SHARE: f64 = 0.5;
/// A block lies on the line within so many standard deviations of its noise.
const FIT_NOISE: f64 = 2.0;
/// Or within this share of the rise, which steps of few granules need.
const FIT_SHARE: f64 = 0.1;
/// The share of blocks that must: drops of load that are read a moment apart leave spikes.
const FIT_BLOCKS: f64 = 0.75;
/// A leak that rises at less than this share of its pace has stopped.
const GOING_SHARE: f64 = 0.3;

/// What a verdict is drawn from.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// The blocks.
    pub(crate) ladder: &'a Ladder,
    /// What is known of the load.
    pub(crate) explainer: &'a Explainer,
    /// What was done.
    pub(crate) work: &'a WorkClock,
    /// How memory follows the KV counter.
    pub(crate) account: Account,
    /// Seconds since the epoch began before which growth is warm-up.
    pub(crate) warm_up_s: f64,
    /// The most that warm-up is believed to add, in MiB.
    pub(crate) warm_up_mib: f64,
    /// The height that blocks are measured from, in MiB.
    pub(crate) origin_mib: f64,
    /// When the last event happened, in seconds since the epoch began.
    pub(crate) disturbed_at: Option<f64>,
    /// How much evidence a page must carry.
    pub(crate) budget: Budget,
}

/// The least rung on which a leak or a change of pace may be called.
pub(crate) struct Threshold {
    /// For a leak.
    pub(crate) leak: usize,
    /// For a change of pace.
    pub(crate) kink: usize,
}

impl Account {
    /// With an exact counter and constant load 32 s suffice; with a counter 8.5 min; without one 34 min, because an
    /// allocator's warm-up looks straight for as long as that.
    pub(crate) const fn threshold(self) -> Threshold {
        match self {
            Self::OnDemand { exact: true } => Threshold { leak: 0, kink: 2 },
            Self::OnDemand { exact: false } | Self::Pooled | Self::Unlearned => {
                Threshold { leak: 4, kink: 5 }
            }
            Self::Unknown => Threshold { leak: 6, kink: 6 },
        }
    }

    const fn is_exact(self) -> bool {
        matches!(self, Self::OnDemand { exact: true })
    }
}

/// A scene without what it borrows.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// See [`Scene::account`].
    pub(crate) account: Account,
    /// See [`Scene::warm_up_s`].
    pub(crate) warm_up_s: f64,
    /// See [`Scene::warm_up_mib`].
    pub(crate) warm_up_mib: f64,
    /// See [`Scene::origin_mib`].
    pub(crate) origin_mib: f64,
    /// See [`Scene::disturbed_at`].
    pub(crate) disturbed_at: Option<f64>,
    /// See [`Scene::budget`].
    pub(crate) budget: Budget,
}

impl Terms {
    /// The scene of a ladder, what is known of its load, and what was done.
    pub(crate) const fn over<'a>(
        self,
        ladder: &'a Ladder,
        explainer: &'a Explainer,
        work: &'a WorkClock,
    ) -> Scene<'a> {
        let Self { account, warm_up_s, warm_up_mib, origin_mib, disturbed_at, budget } = self;
        Scene { ladder, explainer, work, account, warm_up_s, warm_up_mib, origin_mib, disturbed_at, budget }
    }
}

impl Scene<'_> {
    pub(crate) fn series(&self, rung: usize, slots: usize, basis: Basis) -> Option<Series> {
        self.ladder.series(rung, slots, basis)
    }

    /// Whether none of the quantities that could show an unexplained rise does.
    fn is_calm(&self, rung: usize, least: f64) -> bool {
        let Some(glance) = self.ladder.glance(rung, RING) else { return false };
        let flat = |basis| glance.is_flat(basis, least);
        match self.account {
            Account::OnDemand { exact: true } => flat(Basis::Residual),
            Account::OnDemand { exact: false } => {
                flat(Basis::Residual) && self.ladder.is_flat(rung, Basis::CalmResidual, least)
            }
            _ => flat(Basis::Floor) && flat(Basis::Mid) && flat(Basis::Ceil),
        }
    }

    /// What a leak of this rung must pass.
    const fn strictness(&self, rung: usize) -> &'static Strictness {
        let is_young = rung <= YOUNG_RUNG && !self.account.is_exact();
        if is_young { &YOUNG_LEAK } else { &LEAK }
    }

    /// The quantity that could show an unexplained rise, unless it surely does not rise as [`Self::steady`] wants it to.
    fn rising(&self, rung: usize) -> Result<Basis, Refusal> {
        let strict = self.strictness(rung);
        let is_no_rise = |basis| self.ladder.is_no_rise(rung, basis, strict);
        let (basis, is_refused) = match self.account {
            Account::OnDemand { exact: true } | Account::Unlearned => {
                (Basis::Residual, is_no_rise(Basis::Residual))
            }
            Account::OnDemand { exact: false } => {
                let (calm, left) = (is_no_rise(Basis::CalmResidual), is_no_rise(Basis::Residual));
                if calm && left {
                    return Err(Refusal::Flat);
                }
                let basis = self.quieter_residual(rung);
                (basis, if basis == Basis::Residual { left } else { calm })
            }
            Account::Unknown | Account::Pooled => {
                let looked = self.ladder.glance(rung, RING).zip(self.ladder.course(rung, RING));
                let is_no_rise = |basis| {
                    looked.is_some_and(|(glance, course)| {
                        glance.is_flat(basis, strict.min_rise) || course.is_no_rise(basis, strict)
                    })
                };
                if [Basis::Floor, Basis::Mid, Basis::Ceil].into_iter().all(is_no_rise) {
                    return Err(Refusal::Flat);
                }
                let basis = self.raw(rung)?;
                (basis, is_no_rise(basis))
            }
        };
        if is_refused { Err(Refusal::Flat) } else { Ok(basis) }
    }

    /// The window of a quantity, if it rises steadily: as it is, or without spikes.
    fn steady(&self, rung: usize, basis: Basis) -> Result<Series, Refusal> {
        let series = self.series(rung, RING, basis).ok_or(Refusal::Sparse)?;
        let strict = self.strictness(rung);
        if basis != Basis::Residual {
            return rise::steadiness(&series, strict).map(|()| series);
        }
        // Memory and counter are read a moment apart: at a sudden drop the residual has a spike of a block or two. The
        // wider filter takes steps from a slow rise, so the narrower one comes first.
        let without_spikes = |width| {
            let calm = series.despiked(width);
            rise::steadiness(&calm, strict).map(|()| calm)
        };
        without_spikes(1).or_else(|_| without_spikes(2))
    }

    /// The least noisy of floor, mean and ceiling; floor preferred, it is what a leak lifts for sure.
    fn quietest(&self, rung: usize) -> Option<Basis> {
        let noise = |basis| self.ladder.noise(rung, basis);
        let (floor, mid, ceil) = (noise(Basis::Floor)?, noise(Basis::Mid)?, noise(Basis::Ceil)?);
        let (basis, least) = if mid <= 0.8 * floor { (Basis::Mid, mid) } else { (Basis::Floor, floor) };
        Some(if ceil < 0.5 * least { Basis::Ceil } else { basis })
    }

    /// The quantity that stands for the floor.
    pub(crate) fn shown_basis(&self, rung: usize) -> Basis {
        match self.account {
            Account::OnDemand { .. } => self.quieter_residual(rung),
            _ => Basis::Floor,
        }
    }

    /// The residual that a late counter disturbs less.
    fn quieter_residual(&self, rung: usize) -> Basis {
        let is_calm_quieter = !self.account.is_exact() && self.ladder.is_calm_quieter(rung);
        if is_calm_quieter { Basis::CalmResidual } else { Basis::Residual }
    }

    /// The quantity that shows a rise of memory as it is.
    fn raw(&self, rung: usize) -> Result<Basis, Refusal> {
        if self.ladder.rise(rung, RING, Basis::Floor).ok_or(Refusal::Sparse)? <= 0.0 {
            return Err(Refusal::Flat);
        }
        self.quietest(rung).ok_or(Refusal::Sparse)
    }

    /// A leak lifts floor, mean and ceiling alike, so none may contradict the quietest of them.
    fn is_agreed(&self, rise: &Rise) -> Result<(), Refusal> {
        let grown = rise.line.slope * (rise.until - rise.from);
        for other in [Basis::Floor, Basis::Mid, Basis::Ceil] {
            let series = self.series(rise.rung, RING, other).ok_or(Refusal::Sparse)?;
            if rise_mib(&series) < 0.3 * grown - 2.5 * noise(series.values()) {
                return Err(Refusal::Uneven);
            }
        }
        Ok(())
    }

    /// A rise that the counters do not account for. Its line is dear, so whatever needs none is asked before.
    fn unexplained(&self, rung: usize) -> Result<Rise, Refusal> {
        if self.is_calm(rung, LEAK.min_rise) {
            return Err(Refusal::Flat);
        }
        let basis = self.rising(rung)?;
        let series = self.steady(rung, basis)?;
        if self.is_bent(rung, basis) {
            return Err(Refusal::Slowing);
        }
        let rise = rise::drawn(rung, basis, &series);
        match self.account {
            Account::Unknown => self.is_agreed(&rise)?,
            Account::OnDemand { .. } => {
                self.outgrows_requests(&rise)?;
                self.fits(&rise)?;
            }
            Account::Unlearned => {
                self.outgrows_requests(&rise)?;
                let basis = self.raw(rung)?;
                self.is_agreed(&rise::drawn(rung, basis, &self.steady(rung, basis)?))?;
            }
            Account::Pooled => {
                self.steady(rung, Basis::BeyondPeak)?;
                self.is_agreed(&rise)?;
            }
        }
        Ok(rise)
    }

    /// Whether a rise slows down, in this window or in those of two and four times the length.
    fn is_bent(&self, rung: usize, basis: Basis) -> bool {
        let slows = |rung| {
            self.past(rung, basis, LONG_PAST).is_some_and(|longer| rise::slows_in_the_long_run(&longer))
        };
        let is_blind = self.account == Account::Unknown;
        // Logarithmic growth bends within the noise of a window twice as long, too.
        (!self.account.is_exact() && slows(rung + 1))
            || (is_blind && (slows(rung + 2) || self.bends(rung, basis)))
    }

    /// Whether most of a rise would be left if each request that came to run beside the former ones held as much as
    /// requests may hold outside the KV cache. Where their number itself rises steadily a short window tells nothing: a
    /// counter that comes late lacks what each of them took since.
    fn outgrows_requests(&self, rise: &Rise) -> Result<(), Refusal> {
        let Some(running) = self.ladder.running(rise.rung, RING) else { return Ok(()) };
        let is_taken = requests_take(rise, rise_mib(&running).abs());
        let is_followed = rise.rung <= YOUNG_RUNG && trend_z(running.values()) > CONSTANT_Z;
        if is_taken || is_followed { Err(Refusal::Uneven) } else { Ok(()) }
    }

    /// Whether most blocks lie on the line. What counters leave wanders with the load, and of many windows a wandering
    /// course rises in some; a leak is straight beside it.
    fn fits(&self, rise: &Rise) -> Result<(), Refusal> {
        let series = self.series(rise.rung, RING, rise.basis).ok_or(Refusal::Sparse)?;
        let slack = (FIT_NOISE * rise.noise).max(FIT_SHARE * rise.line.slope * (rise.until - rise.from));
        let is_near = |(at, x): (&f64, &f64)| (x - rise.line.at(*at)).abs() <= slack;
        let near = series.times().iter().zip(series.values()).filter(|point| is_near(*point)).count();
        if near as f64 >= FIT_BLOCKS * series.len() as f64 { Ok(()) } else { Err(Refusal::Wandering) }
    }

    /// All blocks of a rung, gaps or not, if there are so many at least.
    pub(crate) fn past(&self, rung: usize, basis: Basis, least: usize) -> Option<Series> {
        let mut series = Series::new();
        for block in (rung < RUNGS).then(|| self.ladder.blocks(rung)).into_iter().flatten() {
            series.push(block.at, self.explainer.quantity(basis, &block)?);
        }
        (series.len() >= least).then_some(series)
    }

    /// Whether the newer half of what a rung keeps still rises at a good part of the pace.
    pub(crate) fn goes_on(&self, rise: &Rise) -> bool {
        if let Clock::Work(PerWork { each, .. }) = rise.clock {
            let newest = self.past(rise.rung, rise.basis, GROWTH_SLOTS);
            return newest.is_some_and(|newest| self.work.goes_on(rise.rung, &each, &newest, GOING_SHARE));
        }
        self.past(rise.rung, rise.basis, GROWTH_SLOTS).is_some_and(|past| {
            let newer = past.slice(past.len() / 2..past.len());
            least_squares(&newer) >= GOING_SHARE * rise.line.slope
        })
    }
}

/// The rise that so many more requests may make up, in MiB over three quarters of a window: no more of it is theirs.
fn taken_by(more: f64) -> f64 {
    more * REQUEST_MIB / REQUEST_SHARE
}

/// Whether so many more requests may make up too much of a rise.
fn requests_take(rise: &Rise, more: f64) -> bool {
    taken_by(more) > 0.75 * rise.line.slope * (rise.until - rise.from)
}

/// Whether they surely do of a window that nobody has drawn a line through.
fn requests_take_late(series: &Series, more: f64) -> bool {
    let span = series.times().last().zip(series.times().first()).map_or(0.0, |(last, first)| last - first);
    span > 0.0 && !rise::may_be_as_steep_of_late(series, taken_by(more) / (0.75 * span))
}

/// The slowest leak that the windows filled so far would have shown, in MiB a second, and the seconds of the window that
/// would have shown it: `z s sqrt(12 / n^3) / D` for
/// noise s and n blocks of D seconds, and no less than the least rise over three quarters of a window. `None` until
/// a window is filled on which a leak could be called.
pub(crate) fn detectable(scene: &Scene<'_>) -> Option<(f64, f64)> {
    let mut least: Option<(f64, f64)> = None;
    // A shorter window shows no slower leak than its own least rise, so most need not be looked at.
    for rung in (scene.account.threshold().leak..RUNGS).rev() {
        let Some((from, until)) = scene.ladder.extent(rung, RING) else { continue };
        let span = until - from;
        let by_rise = LEAK.min_rise / (0.75 * span);
        if least.is_some_and(|(rate, _)| by_rise >= rate) {
            break;
        }
        let Some(series) = scene.series(rung, RING, scene.shown_basis(rung)) else { continue };
        let n = series.len() as f64;
        let by_noise = scene.needed_z(rung) * noise(series.values()) * (12.0 / n.powi(3)).sqrt() * n / span;
        let rate = by_noise.max(by_rise);
        if least.is_none_or(|(least, _)| rate < least) {
            least = Some((rate, span));
        }
    }
    least
}
