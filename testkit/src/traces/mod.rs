//! Labelled histories of GPU memory: 22 families of an ordinary server's life with and without leaks, and beside them
//! stress and fast families. What a detector says of them can be scored, for each one carries the truth.
//!
//! A history is simulated second by second and handed out as an iterator, so that a week takes no more memory than an
//! hour. The same family, seed and span give the same bits on every machine: chance, logarithm and sine are our own.
//! Golden checksums hold that.
//!
//! The lengths of requests are log-normal fits to the Azure LLM inference trace of 2023 (Patel et al., "Splitwise",
//! ISCA 2024; CC BY 4.0).
//!
//! ```
//! use ebbtide_testkit::traces::{Span, family};
//!
//! let trace = family("P01").expect("a family of the list").trace(3, Span::hours(8).every(10));
//! assert_eq!(trace.label().onset_s, Some(0));
//! assert_eq!(trace.count(), 2880);
//! ```

mod course;
mod dice;
mod elementary;
mod fast;
mod holders;
mod ordinary;
mod parts;
mod requests;
mod stress;

use ebbtide_core::{Bytes, EngineRole, EventKind, KvSemantics, Percent};

use course::{Course, Draft};
use dice::Dice;

/// What a family is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Ordinary life without a leak.
    Clean,
    /// Ordinary life with a leak.
    Leaking,
    /// What fools a detector, over hours.
    Stress,
    /// What happens within minutes.
    Fast,
    /// One question of its own: a family that a single figure is drawn from.
    Question,
    /// Who holds it and for what, which no slope shows.
    Holder,
}

/// A family of histories.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name: a short key, a blank, a few words.
    pub name: &'static str,
    /// What it is there for.
    pub group: Group,
    draw: fn(Draft<'_>) -> Draft<'_>,
}

impl Family {
    /// The key in front of the name, as in `N01`.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.name.split(' ').next().unwrap_or(self.name)
    }

    /// One history of it.
    #[must_use]
    pub fn trace(&self, seed: u64, span: Span) -> Trace {
        // Families must not share their draws; FNV-1a of the key sets them apart.
        let tag = self.key().bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut dice = Dice::new(tag ^ seed.wrapping_mul(0xd134_2543_de82_ef95));
        let draft = (self.draw)(Draft::new(&mut dice, span.seconds));
        let (course, label) = draft.finish();
        Trace { label, course, dice, span, second: 0, is_exhausted: false }
    }
}

/// All families, in the order of tables.
#[must_use]
pub fn families() -> Vec<Family> {
    [&ordinary::FAMILIES[..], &stress::FAMILIES, &fast::FAMILIES, &holders::FAMILIES].concat()
}

/// The family of this key, as in `N01`.
#[must_use]
pub fn family(key: &str) -> Option<Family> {
    families().into_iter().find(|family| family.key() == key)
}

/// How long a history is and how often it is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its length in seconds; a leak that reaches the capacity ends it sooner.
    pub seconds: u64,
    /// Seconds between samples, at least one.
    pub interval_s: u64,
}

impl Span {
    /// So many hours at 1 Hz.
    #[must_use]
    pub const fn hours(hours: u64) -> Self {
        Self { seconds: hours * 3600, interval_s: 1 }
    }

    /// The same length with a sample each `interval_s` seconds: every other one is left out, nothing is averaged.
    #[must_use]
    pub const fn every(self, interval_s: u64) -> Self {
        Self { interval_s, ..self }
    }
}

/// What the engine tells of its KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvSight {
    /// Nothing.
    Hidden,
    /// Its use, and memory is allocated on demand: subtract it.
    OnDemand,
    /// Its use inside a pool that was reserved at start: memory does not follow it.
    Pool,
}

/// The truth about a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// Whether there is a leak.
    pub is_leak: bool,
    /// When it begins, in seconds.
    pub onset_s: Option<u64>,
    /// When its pace changes, in seconds.
    pub change_s: Option<u64>,
    /// Its pace after the onset, in MiB a minute; on average where it is not even.
    pub rate_mib_per_min: f64,
    /// Its pace after the change, in MiB a minute.
    pub changed_rate_mib_per_min: f64,
    /// Whether the pace is even, so that an estimate of it can be right or wrong.
    pub is_even: bool,
    /// What memory can grow to, in MiB.
    pub capacity_mib: u64,
    /// When the process started, in seconds after the first sample; before it where negative.
    pub process_start_s: i64,
    /// What the engine tells.
    pub kv: KvSight,
    /// Whether a forecast of exhaustion is right although nothing leaks, because memory stops less than 2 % below the
    /// capacity.
    pub is_brink: bool,
    /// The finding that is right, by its name, where it is another than a leak.
    pub wanted: Option<&'static str>,
    /// The engine's part in serving a request.
    pub role: EngineRole,
    /// What the engine counts as used.
    pub semantics: KvSemantics,
}

impl Label {
    /// The true pace at a second, in MiB a minute; `None` where there is none or it is not even.
    #[must_use]
    pub fn rate_at(&self, second: u64) -> Option<f64> {
        let onset = self.onset_s.filter(|_| self.is_even)?;
        let changed = self.change_s.is_some_and(|change| second >= change);
        (second >= onset).then_some(if changed {
            self.changed_rate_mib_per_min
        } else {
            self.rate_mib_per_min
        })
    }
}

/// One sample of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Milliseconds since the first one.
    pub mono_ms: u64,
    /// Memory in use.
    pub used: Bytes,
    /// KV cache in use, where the engine tells.
    pub kv_used: Option<Bytes>,
    /// What the KV cache may grow to, where the engine tells.
    pub kv_pool: Option<Bytes>,
    /// Requests being served, where the engine tells.
    pub running: Option<u32>,
    /// Requests waiting, where the engine tells.
    pub waiting: Option<u32>,
    /// Requests that were admitted so far, where the engine tells.
    pub served: Option<u64>,
    /// What the other ranks of its group hold, the median of them.
    pub peers: Option<Bytes>,
    /// Share of time in which the device computed, in percent.
    pub busy: Option<Percent>,
    /// What happened since the sample before.
    pub events: Vec<EventKind>,
    /// What has leaked so far, in MiB: the truth, not for the detector.
    pub leaked_mib: f64,
}

/// A history, sample by sample.
#[derive(Debug)]
pub struct Trace {
    label: Label,
    course: Course,
    dice: Dice,
    span: Span,
    second: u64,
    is_exhausted: bool,
}

impl Trace {
    /// The truth about it.
    #[must_use]
    pub const fn label(&self) -> &Label {
        &self.label
    }
}

impl Iterator for Trace {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        let mut events = Vec::new();
        while self.second < self.span.seconds && !self.is_exhausted {
            let second = self.second;
            self.second += 1;
            let mut moment = self.course.step(second, &mut self.dice);
            events.append(&mut moment.events);
            // Memory is handed out in pages of 2 MiB.
            let used = ((moment.used / 2.0).ceil().max(0.0) as u64 * 2).min(self.label.capacity_mib);
            self.is_exhausted = self.label.is_leak && used >= self.label.capacity_mib;
            if second.is_multiple_of(self.span.interval_s) && moment.is_seen {
                let mib = |mib: f64| Bytes((mib.max(0.0) * 1_048_576.0) as u64);
                return Some(Point {
                    mono_ms: second * 1000,
                    used: Bytes::from_mib(used),
                    kv_used: moment.kv.map(mib),
                    kv_pool: moment.kv_pool.map(mib),
                    running: moment.running.map(|running| running as u32),
                    waiting: moment.running.map(|_| 0),
                    served: moment.served.map(|served| served as u64),
                    peers: moment.peers,
                    busy: moment.busy.map(Percent),
                    events,
                    leaked_mib: moment.leaked,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
