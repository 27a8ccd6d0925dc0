//! What one kind of test has said on each rung: repetition makes a verdict, silence ends it.

use crate::ladder::RUNGS;

/// What one kind of test has said on each rung.
#[derive(Debug, Clone)]
pub(crate) struct Channel<T> {
    passes: [u8; RUNGS],
    /// Blocks since the last pass; of a rung on which it stands.
    idle: [u8; RUNGS],
    /// The rungs on which it stands, as bits.
    standing: u16,
    /// Something stands on a rung just where there is one.
    newest: Option<(usize, T)>,
}

impl<T> Channel<T> {
    pub(crate) const fn new() -> Self {
        Self { passes: [0; RUNGS], idle: [0; RUNGS], standing: 0, newest: None }
    }

    /// A window showed it; `needed` in a row make it stand. It is drawn where it is kept.
    pub(crate) fn pass(&mut self, rung: usize, needed: u8, draw: impl FnOnce() -> T) {
        self.passes[rung] = (self.passes[rung] + 1).min(needed);
        self.idle[rung] = 0;
        if self.passes[rung] >= needed {
            self.standing |= 1 << rung;
        }
        let is_longest = self.newest.as_ref().is_none_or(|(held, _)| rung >= *held || !self.stands_on(*held));
        if self.stands_on(rung) && is_longest {
            self.newest = Some((rung, draw()));
        }
    }

    /// A window did not show it; `patience` of them end what stands.
    pub(crate) fn miss(&mut self, rung: usize, patience: u8) {
        self.passes[rung] = self.passes[rung].saturating_sub(1);
        if !self.stands_on(rung) {
            return;
        }
        self.idle[rung] = self.idle[rung].saturating_add(1);
        if self.idle[rung] >= patience {
            self.standing &= !(1 << rung);
        }
        if self.standing == 0 {
            self.newest = None;
        }
    }

    /// A window did not show it, yet what stands on that rung goes on: no more than a pass is lost.
    pub(crate) fn hold(&mut self, rung: usize) {
        self.passes[rung] = self.passes[rung].saturating_sub(1);
        self.idle[rung] = 0;
    }

    /// What stands is over at once.
    pub(crate) fn end(&mut self) {
        (self.standing, self.newest) = (0, None);
    }

    const fn stands_on(&self, rung: usize) -> bool {
        self.standing & (1 << rung) != 0
    }

    /// Whether it stands on that rung or one with longer blocks.
    pub(crate) const fn stands_from(&self, rung: usize) -> bool {
        self.standing >> rung != 0
    }

    /// What stands on the longest rung.
    pub(crate) fn standing(&self) -> Option<&T> {
        self.newest.as_ref().map(|(_, item)| item)
    }
}

/// Windows in a row that must show a leak: long ones overlap in more time, so fewer.
pub(crate) const fn leak_passes(rung: usize) -> u8 {
    match rung {
        0..8 => 3,
        _ => 2,
    }
}

/// Blocks without a pass after which a leak or a change of pace is over: half a window, and a minute at least.
pub(crate) const fn patience(rung: usize) -> u8 {
    let minute = 64_u32 >> rung;
    if minute > 16 { minute as u8 } else { 16 }
}
