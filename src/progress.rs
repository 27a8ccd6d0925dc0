//! How far something that takes long has come: for a person at a terminal, and for nobody else.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use ebbtide_core::Ts;

use crate::commands::status::clock;

/// What is over sooner needs no line, and a line is not read more often.
const EVERY: Duration = Duration::from_secs(1);

/// A line on standard error that is written over.
#[derive(Debug)]
pub(crate) struct Progress {
    verb: &'static str,
    ticks: u64,
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Of ticks that are being `verb`.
    pub(crate) fn new(verb: &'static str) -> Self {
        let next = std::io::stderr().is_terminal().then(|| Instant::now() + EVERY);
        Self { verb, ticks: 0, next, shown: false }
    }

    /// One more is done.
    pub(crate) fn tick(&mut self, at: Ts) {
        self.ticks += 1;
        if self.next.is_some_and(|next| Instant::now() >= next) {
            self.next = Some(Instant::now() + EVERY);
            self.shown = true;
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{} {} ticks, up to {}", self.verb, self.ticks, clock(at));
        }
    }

    /// How many are done.
    pub(crate) const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Leaves the line behind.
    pub(crate) fn finish(&self) {
        if self.shown {
            let _ = writeln!(std::io::stderr());
        }
    }
}

/// What is being done just now: a line on standard error that is written over, once it takes long enough to be read.
#[derive(Debug)]
pub(crate) struct Stage {
    begun: Instant,
    is_terminal: bool,
    is_shown: bool,
}

impl Default for Stage {
    fn default() -> Self {
        Self { begun: Instant::now(), is_terminal: std::io::stderr().is_terminal(), is_shown: false }
    }
}

impl Stage {
    /// From now on it is `what`.
    pub(crate) fn tell(&mut self, what: &str) {
        if self.is_terminal && self.begun.elapsed() >= EVERY {
            self.is_shown = true;
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[2K{what}");
        }
    }

    /// Takes the line away.
    pub(crate) fn finish(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}
