//! Leaks on purpose, each with a true rate: the ground truth for whoever looks for leaks.
//!
//! What is leaked is really taken, whole pages at a time, in memory that the process then never gives back; how much
//! is counted where it is taken ([`Injector::leaked`]) and equals what the kernel counts.

mod leak;
mod orphan;
#[cfg(test)]
mod tests;

use std::num::NonZeroU64;
use std::time::Duration;

use ebbtide_core::Bytes;

pub use leak::{Leak, SyntaxError};
pub use orphan::{HOLDER_SECONDS, OrphanError};

use crate::kv::Pool;
use crate::room;
use crate::vram::{EXTENT, Vram, VramError, whole_pages};
use orphan::Orphan;

/// A leak could not leak.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// There is no memory for it.
    #[error(transparent)]
    Vram(#[from] VramError),
    /// There is no child to hold it.
    #[error(transparent)]
    Orphan(#[from] OrphanError),
}

/// What happened since the injector was last told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Since the engine began.
    pub elapsed: Duration,
    /// Requests that ended since the last time.
    pub requests: u64,
    /// Bytes of prompts' full blocks of those requests.
    pub prefixes: Bytes,
}

/// Takes what a [`Leak`] says, as time passes and requests end.
#[derive(Debug)]
pub struct Injector {
    leak: Leak,
    /// The leak begins then.
    after: Duration,
    /// No more is lost than this, so that the machine outlives the experiment.
    ceiling: Bytes,
    vram: Vram,
    /// What exactly should be lost by now; pages are taken when it fills them.
    due: f64,
    /// Taken from `vram` and lost.
    lost: Bytes,
    /// Host memory that is kept and never read.
    host: Vec<Box<[u8]>>,
    orphan: Option<Orphan>,
    /// Held when the model was unloaded, and not released.
    kept: Bytes,
}

impl Injector {
    /// A leak that begins when `after` has passed, and ends at half of the memory that the host can spare now.
    ///
    /// # Errors
    /// Where no memory file can be made.
    pub fn new(leak: Leak, after: Duration) -> Result<Self, VramError> {
        Ok(Self {
            leak,
            after,
            ceiling: room::available().map_or(Bytes(u64::MAX), |room| Bytes(room.0 / 2)),
            vram: Vram::create()?,
            due: 0.0,
            lost: Bytes::ZERO,
            host: Vec::new(),
            orphan: None,
            kept: Bytes::ZERO,
        })
    }

    /// The same, but no more is lost than `most`.
    #[must_use]
    pub fn at_most(self, most: Bytes) -> Self {
        Self { ceiling: self.ceiling.min(most), ..self }
    }

    /// Its kind.
    #[must_use]
    pub const fn leak(&self) -> Leak {
        self.leak
    }

    /// The most it loses: half of what the host could spare when it was made, or less.
    #[must_use]
    pub const fn ceiling(&self) -> Bytes {
        self.ceiling
    }

    /// Of how many requests one loses a reference, where that is the leak and it has begun: for
    /// [`Scheduler::forget_every`](crate::scheduler::Scheduler::forget_every).
    #[must_use]
    pub fn forget_every(&self, elapsed: Duration) -> Option<NonZeroU64> {
        match self.leak {
            Leak::ForgottenRefs { requests } if elapsed >= self.after => Some(requests),
            _ => None,
        }
    }

    /// Loses what is due after `progress`.
    ///
    /// # Errors
    /// Where the memory, or a child to hold it, is not to be had.
    pub fn follow(&mut self, progress: Progress) -> Result<(), InjectError> {
        let Some(leaking) = progress.elapsed.checked_sub(self.after) else { return Ok(()) };
        match self.leak {
            Leak::ForgottenRefs { .. } | Leak::NotReleased => Ok(()),
            Leak::HostRam { per_minute } => {
                self.due = over(per_minute, leaking);
                self.lose_on_host();
                Ok(())
            }
            Leak::Orphan { bytes } => {
                if self.orphan.is_none() {
                    self.orphan = Some(Orphan::leave(bytes.min(self.ceiling))?);
                }
                Ok(())
            }
            Leak::Scratch { per_minute } => self.lose(over(per_minute, leaking)),
            Leak::Bursts { bytes, every } => {
                let bursts = (leaking.as_secs_f64() / every.as_secs_f64()).floor();
                self.lose(bytes.0 as f64 * bursts)
            }
            Leak::Doubling { per_minute, every } => self.lose(doubling(per_minute, every, leaking)),
            Leak::PerRequest { bytes } => self.lose(self.due + bytes.0 as f64 * progress.requests as f64),
            Leak::PrefixUnbounded => self.lose(self.due + progress.prefixes.0 as f64),
        }
    }

    /// Ends the model's service: everything in `pool` that nobody refers to goes back to the host, unless that is
    /// just what this leak is about.
    pub fn unload(leak: Option<&mut Self>, pool: &mut Pool) {
        match leak {
            Some(injector) if injector.leak == Leak::NotReleased => injector.kept = pool.usage().held,
            _ => pool.trim(),
        }
    }

    /// What is lost so far, to the page: the truth. Of blocks that `pool` lost, their own bytes.
    #[must_use]
    pub fn leaked(&self, pool: &Pool) -> Bytes {
        let blocks = pool.forgotten() as u64 * pool.usage().block.0;
        let host: u64 = self.host.iter().map(|piece| piece.len() as u64).sum();
        let orphan = self.orphan.as_ref().map_or(0, |orphan| orphan.bytes().0);
        Bytes(self.lost.0 + host + orphan + blocks + self.kept.0)
    }

    /// Takes pages until what is lost is `due`, but for less than a page.
    fn lose(&mut self, due: f64) -> Result<(), InjectError> {
        self.due = due.min(self.ceiling.0 as f64);
        while let Some(bytes) = self.missing(self.lost) {
            // To drop the extent is the leak.
            self.lost = self.lost.saturating_add(self.vram.allocate(bytes)?.bytes());
        }
        Ok(())
    }

    fn lose_on_host(&mut self) {
        self.due = self.due.min(self.ceiling.0 as f64);
        let mut held = Bytes(self.host.iter().map(|piece| piece.len() as u64).sum());
        while let Some(bytes) = self.missing(held) {
            // Memory that was only asked for is not resident; what is written to is.
            let piece = std::hint::black_box(vec![1; bytes.0 as usize].into_boxed_slice());
            self.host.push(piece);
            held = held.saturating_add(bytes);
        }
    }

    /// The next piece that is due beyond `held`: whole pages, at most an extent.
    fn missing(&self, held: Bytes) -> Option<Bytes> {
        let page = whole_pages(Bytes(1)).0;
        let pages = (self.due as u64).saturating_sub(held.0) / page;
        (pages > 0).then(|| Bytes(pages * page).min(EXTENT))
    }
}

/// What a steady leak comes to.
fn over(per_minute: Bytes, leaking: Duration) -> f64 {
    per_minute.0 as f64 * leaking.as_secs_f64() / 60.0
}

/// The integral of a rate r that doubles each T: r T (2^(t/T) - 1) / ln 2.
fn doubling(per_minute: Bytes, every: Duration, leaking: Duration) -> f64 {
    let periods = leaking.as_secs_f64() / every.as_secs_f64();
    over(per_minute, every) * (periods.exp2() - 1.0) / std::f64::consts::LN_2
}
