//! From single windows to a cause: repetition, and more of it the less is known about the load.

use ebbtide_core::FindingKind;

use crate::explain::{Account, Basis, Explainer};
use crate::kink::{self, Kink};
use crate::ladder::{Closed, Ladder, RING, RUNGS};
use crate::rise::{self, GROWTH, LEAK, Refusal, Rise, YOUNG_LEAK, rise_mib};
use crate::trend::{Series, noise};

/// Blocks of the window in which growth is looked for: half of a leak's, to be early.
const GROWTH_SLOTS: usize = RING / 2;
/// From this rung on (windows of 8.5 min) a rise that a leak could make is growth even below former heights.
const UNCONFIRMED_RUNG: usize = 4;
/// From this rung on (windows of 4.6 h) a rise outlasts any warm-up and any single event.
const LONG_RUNG: usize = 9;
/// Up to this rung (windows of 34 min) an allocator that settles looks straight.
const YOUNG_RUNG: usize = 6;
/// Windows up to this rung (17 min) must hold no event; longer ones survive one, the test for steps guards them.
const EVENTLESS_RUNG: usize = 5;
/// Blocks without a pass after which growth is over: half its window.
const GROWTH_PATIENCE: u8 = 8;
/// Windows in a row that must show a change of pace.
const KINK_PASSES: u8 = 4;
/// What a residual rises where the counter explains growth, as a share of the growth.
const UNEXPLAINED_SHARE: f64 = 0.3;

/// What a verdict is drawn from.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// The blocks.
    pub(crate) ladder: &'a Ladder,
    /// What is known of the load.
    pub(crate) explainer: &'a Explainer,
    /// How memory follows the KV counter.
    pub(crate) account: Account,
    /// Seconds since the epoch began before which growth is warm-up.
    pub(crate) warm_up_s: f64,
    /// When the last event happened, in seconds since the epoch began.
    pub(crate) disturbed_at: Option<f64>,
}

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
    /// It has not been seen for long enough.
    TooShort,
}

/// A rise that is no leak, or not yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    /// The rise.
    pub(crate) rise: Rise,
    /// Why it is not called a leak.
    pub(crate) reserve: Reserve,
}

/// The least rung on which a leak or a change of pace may be called.
struct Threshold {
    leak: usize,
    kink: usize,
}

impl Account {
    /// With an exact counter and constant load 32 s suffice; with a counter 8.5 min; without one 34 min, because an
    /// allocator's warm-up looks straight for as long as that.
    const fn threshold(self) -> Threshold {
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

impl Scene<'_> {
    pub(crate) fn series(&self, rung: usize, slots: usize, basis: Basis) -> Option<Series> {
        self.ladder.series(rung, slots, |block| self.explainer.quantity(basis, block))
    }

    fn judged(&self, rung: usize, basis: Basis) -> Result<Rise, Refusal> {
        let series = self.series(rung, RING, basis).ok_or(Refusal::Sparse)?;
        let is_young = rung <= YOUNG_RUNG && !self.account.is_exact();
        let strict = if is_young { &YOUNG_LEAK } else { &LEAK };
        if basis != Basis::Residual {
            return rise::judge(rung, basis, &series, strict);
        }
        // Memory and counter are read a moment apart: at a sudden drop the residual has a spike of a block or two. The
        // wider filter takes steps from a slow rise, so the narrower one comes first.
        let narrow = rise::judge(rung, basis, &series.despiked(1), strict);
        narrow.or_else(|_| rise::judge(rung, basis, &series.despiked(2), strict))
    }

    /// The least noisy of floor, mean and ceiling; floor preferred, it is what a leak lifts for sure.
    fn quietest(&self, rung: usize) -> Option<Basis> {
        let noise = |basis| Some(noise(self.series(rung, RING, basis)?.values()));
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
        let noise = |basis| self.series(rung, RING, basis).map(|series| noise(series.values()));
        let is_calm_quieter = !self.account.is_exact()
            && noise(Basis::CalmResidual).zip(noise(Basis::Residual)).is_some_and(|(calm, mean)| calm < mean);
        if is_calm_quieter { Basis::CalmResidual } else { Basis::Residual }
    }

    /// A rise of memory as it is. A leak lifts floor, mean and ceiling alike, so none may contradict the quietest.
    fn raw(&self, rung: usize) -> Result<Rise, Refusal> {
        let floor = self.series(rung, RING, Basis::Floor).ok_or(Refusal::Sparse)?;
        if rise_mib(&floor) <= 0.0 {
            return Err(Refusal::Flat);
        }
        let basis = self.quietest(rung).ok_or(Refusal::Sparse)?;
        let rise = self.judged(rung, basis)?;
        let grown = rise.line.slope * (rise.until - rise.from);
        for other in [Basis::Floor, Basis::Mid, Basis::Ceil] {
            let series = self.series(rung, RING, other).ok_or(Refusal::Sparse)?;
            if rise_mib(&series) < 0.3 * grown - 2.5 * noise(series.values()) {
                return Err(Refusal::Uneven);
            }
        }
        Ok(rise)
    }

    /// A rise that the counters do not account for.
    fn unexplained(&self, rung: usize) -> Result<Rise, Refusal> {
        let rise = match self.account {
            Account::Unknown => self.raw(rung)?,
            Account::OnDemand { .. } => self.judged(rung, self.quieter_residual(rung))?,
            Account::Unlearned => {
                let rise = self.judged(rung, Basis::Residual)?;
                self.raw(rung)?;
                rise
            }
            Account::Pooled => {
                self.judged(rung, Basis::BeyondPeak)?;
                self.raw(rung)?
            }
        };
        let longer = (!self.account.is_exact()).then(|| self.past(rung + 1, rise.basis)).flatten();
        match longer {
            Some(longer) if rise::slows_in_the_long_run(&longer) => Err(Refusal::Slowing),
            _ => Ok(rise),
        }
    }

    /// At least 24 blocks of a rung, gaps or not.
    fn past(&self, rung: usize, basis: Basis) -> Option<Series> {
        let mut series = Series::new();
        for block in (rung < RUNGS).then(|| self.ladder.blocks(rung)).into_iter().flatten() {
            series.push(block.at, self.explainer.quantity(basis, block)?);
        }
        (series.len() >= 24).then_some(series)
    }

    /// Whether memory stood as high before this rise began: then it may be a load that comes and goes.
    fn has_been_there(&self, rise: &Rise) -> bool {
        self.ladder.newest(rise.rung).is_some_and(|newest| self.ladder.has_reached(newest.floor, rise.from))
    }

    /// What stands against calling this rise a leak.
    fn reserve(&self, rise: &Rise) -> Option<Reserve> {
        let warm = self.account.is_exact() || rise.rung >= LONG_RUNG || rise.from >= self.warm_up_s;
        // What peaked in the first quarter has levelled since, or the rise would not go on.
        let settled_from = rise.from + (rise.until - rise.from) / 4.0;
        let disturbed = self.disturbed_at.is_some_and(|at| at > rise.from) && rise.rung <= EVENTLESS_RUNG;
        if self.explainer.peaked_since(settled_from) {
            Some(Reserve::NewPeak)
        } else if disturbed {
            Some(Reserve::Disturbed)
        } else if !warm {
            Some(Reserve::WarmUp)
        } else {
            let is_tide =
                self.account == Account::Unknown && rise.rung <= YOUNG_RUNG && self.has_been_there(rise);
            (is_tide || rise.rung < self.account.threshold().leak).then_some(Reserve::TooShort)
        }
    }

    /// A rise to new heights, whatever explains it.
    fn growth(&self, rung: usize) -> Option<Growth> {
        let series = self.series(rung, GROWTH_SLOTS, Basis::Floor)?;
        if !GROWTH.is_worth(&series) {
            return None;
        }
        let newest = self.ladder.newest(rung)?.floor;
        if self.ladder.has_reached(newest, *series.times().first()?) {
            return None;
        }
        let rise = rise::judge(rung, Basis::Floor, &series, &GROWTH).ok()?;
        let left = self.series(rung, GROWTH_SLOTS, Basis::Residual).map(|left| rise_mib(&left));
        let explained = self.account != Account::Pooled
            && left.is_some_and(|left| left <= UNEXPLAINED_SHARE * rise_mib(&series));
        let reserve = if explained { Some(Reserve::Explained) } else { self.reserve(&rise) };
        Some(Growth { rise, reserve: reserve.unwrap_or(Reserve::TooShort) })
    }

    fn kink(&self, rung: usize) -> Option<Kink> {
        if rung < self.account.threshold().kink {
            return None;
        }
        let basis = match self.account {
            Account::OnDemand { .. } => self.quieter_residual(rung),
            _ => self.quietest(rung)?,
        };
        let found = kink::find(rung, basis, &self.series(rung, RING, basis)?)?;
        let begun = 2.0 * found.after.from - found.after.until;
        let warm = self.account.is_exact() || begun >= self.warm_up_s;
        (warm && !self.explainer.peaked_since(begun)).then_some(found)
    }
}

/// What one kind of test has said on each rung.
#[derive(Debug, Clone)]
struct Channel<T> {
    passes: [u8; RUNGS],
    idle: [u8; RUNGS],
    standing: [bool; RUNGS],
    newest: Option<(usize, T)>,
}

impl<T: Copy> Channel<T> {
    const fn new() -> Self {
        Self { passes: [0; RUNGS], idle: [0; RUNGS], standing: [false; RUNGS], newest: None }
    }

    fn pass(&mut self, rung: usize, item: T, needed: u8) {
        self.passes[rung] = (self.passes[rung] + 1).min(needed);
        self.idle[rung] = 0;
        self.standing[rung] |= self.passes[rung] >= needed;
        let longest = self.newest.is_none_or(|(held, _)| rung >= held || !self.standing[held]);
        if self.standing[rung] && longest {
            self.newest = Some((rung, item));
        }
    }

    fn miss(&mut self, rung: usize, patience: u8) {
        self.passes[rung] = self.passes[rung].saturating_sub(1);
        self.idle[rung] = self.idle[rung].saturating_add(1);
        self.standing[rung] &= self.idle[rung] < patience;
        if !self.standing.contains(&true) {
            self.newest = None;
        }
    }

    /// Whether it stands on that rung or one with longer blocks.
    fn stands_from(&self, rung: usize) -> bool {
        self.standing.iter().skip(rung).any(|standing| *standing)
    }

    fn standing(&self) -> Option<T> {
        self.newest.map(|(_, item)| item)
    }
}

/// Windows in a row that must show a leak: long ones overlap in more time, so fewer.
const fn leak_passes(rung: usize) -> u8 {
    match rung {
        0..8 => 3,
        _ => 2,
    }
}

/// Blocks without a pass after which a leak or a change of pace is over: half a window, and a minute at least.
const fn patience(rung: usize) -> u8 {
    let minute = 64_u32 >> rung;
    if minute > 16 { minute as u8 } else { 16 }
}

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
}

impl Verdict {
    /// Nothing has been said yet.
    pub(crate) const fn new() -> Self {
        Self { leak: Channel::new(), growth: Channel::new(), kink: Channel::new() }
    }

    /// Judges the rungs whose windows moved.
    pub(crate) fn step(&mut self, scene: &Scene<'_>, closed: Closed) {
        for rung in closed.rungs() {
            let unconfirmed = self.judge_leak(scene, rung);
            // Beside a leak nobody asks for growth.
            let growth =
                if self.leak.stands_from(0) { None } else { unconfirmed.or_else(|| scene.growth(rung)) };
            match growth {
                Some(growth) => self.growth.pass(rung, growth, if rung < 3 { 2 } else { 1 }),
                None => self.growth.miss(rung, GROWTH_PATIENCE),
            }
            match scene.kink(rung) {
                Some(found) => self.kink.pass(rung, found, KINK_PASSES),
                None => self.kink.miss(rung, patience(rung)),
            }
        }
    }

    /// Counts for or against a leak; gives the rise that is not (yet) called one.
    fn judge_leak(&mut self, scene: &Scene<'_>, rung: usize) -> Option<Growth> {
        if rung < UNCONFIRMED_RUNG.min(scene.account.threshold().leak) {
            return None;
        }
        // Where a window four times as long says leak, the short one adds nothing.
        let judged = if self.leak.stands_from(rung + 2) { None } else { scene.unexplained(rung).ok() };
        let Some(rise) = judged else {
            self.leak.miss(rung, patience(rung));
            return None;
        };
        let reserve = scene.reserve(&rise);
        match reserve {
            None => self.leak.pass(rung, rise, leak_passes(rung)),
            Some(_) => self.leak.miss(rung, patience(rung)),
        }
        let reserve = reserve.unwrap_or(Reserve::TooShort);
        (rung >= UNCONFIRMED_RUNG).then_some(Growth { rise, reserve })
    }

    /// The cause that stands.
    pub(crate) fn cause(&self) -> Cause {
        let leak = self.leak.standing();
        match (self.kink.standing(), leak, self.growth.standing()) {
            (Some(kink), leak, _) => Cause::SlopeChange(kink, leak),
            (None, Some(leak), _) => Cause::Leak(leak),
            (None, None, Some(growth)) => Cause::Growth(growth),
            (None, None, None) => Cause::Calm,
        }
    }
}

/// The slowest leak that the windows filled so far would have shown, in MiB a second: `z s sqrt(12 / n^3) / D` for
/// noise s and n blocks of D seconds, and no less than the least rise over three quarters of a window. `None` until
/// a window is filled on which a leak could be called.
pub(crate) fn detectable(scene: &Scene<'_>) -> Option<f64> {
    let threshold = scene.account.threshold().leak;
    (threshold..RUNGS)
        .filter_map(|rung| {
            let basis = scene.shown_basis(rung);
            let series = scene.series(rung, RING, basis)?;
            let span = series.times().last()? - series.times().first()?;
            let n = series.len() as f64;
            let by_noise = 4.5 * noise(series.values()) * (12.0 / n.powi(3)).sqrt() * n / span;
            Some(by_noise.max(8.0 / (0.75 * span)))
        })
        .reduce(f64::min)
}
