//! A history as a row of parts that each add their share to the moment, second by second.

use ebbtide_core::{Bytes, EngineRole, EventKind, KvSemantics};

use super::dice::Dice;
use super::parts::{Noise, Scrape};
use super::{KvSight, Label};

/// The card that everything runs on: an H100 as NVML counts it, in MiB.
pub(super) const CARD_MIB: f64 = 81_559.0;

/// One second of a history, in MiB.
#[derive(Debug, Default)]
pub(super) struct Moment {
    pub(super) second: u64,
    pub(super) used: f64,
    /// KV cache as the engine counts it, where it tells.
    pub(super) kv: Option<f64>,
    pub(super) kv_pool: Option<f64>,
    pub(super) running: Option<f64>,
    /// Requests that arrived in this second, where the engine counts them.
    pub(super) arrivals: Option<u32>,
    /// Requests that arrived so far, as the engine tells.
    pub(super) served: Option<f64>,
    /// What its peers hold.
    pub(super) peers: Option<Bytes>,
    /// Share of time in which the device computed, in percent.
    pub(super) busy: Option<u8>,
    pub(super) leaked: f64,
    pub(super) events: Vec<EventKind>,
    /// Whether the sampler gets to see it.
    pub(super) is_seen: bool,
}

impl Moment {
    /// Seconds since `at`, where it has come.
    pub(super) fn since(&self, at: f64) -> Option<f64> {
        let since = self.second as f64 - at;
        (since >= 0.0).then_some(since)
    }

    /// What has leaked so far becomes part of what is used.
    pub(super) fn leak(&mut self, mib: f64) {
        self.leaked += mib;
        self.used += mib;
    }
}

/// A part of a history: changes the moment, in the order in which the parts stand.
pub(super) type Part = Box<dyn FnMut(&mut Moment, &mut Dice) + Send>;

/// A history that runs.
pub(super) struct Course {
    base: f64,
    parts: Vec<Part>,
    scrape: Option<Scrape>,
    /// The scraper's view of the number of requests.
    counted: Option<Scrape>,
    served: f64,
}

impl std::fmt::Debug for Course {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Course").field("base", &self.base).field("parts", &self.parts.len()).finish()
    }
}

impl Course {
    pub(super) fn step(&mut self, second: u64, dice: &mut Dice) -> Moment {
        let mut moment = Moment { second, used: self.base, is_seen: true, ..Moment::default() };
        for part in &mut self.parts {
            part(&mut moment, dice);
        }
        if let (Some(scrape), Some(kv)) = (&mut self.scrape, moment.kv) {
            moment.kv = Some(scrape.read(second, kv));
        }
        if let (Some(scrape), Some(arrivals)) = (&mut self.counted, moment.arrivals) {
            self.served += f64::from(arrivals);
            moment.served = Some(scrape.read(second, self.served));
        }
        moment
    }
}

/// A history that is being drawn up.
pub(super) struct Draft<'a> {
    pub(super) dice: &'a mut Dice,
    /// Its length in seconds.
    pub(super) length: f64,
    /// What is held from the start, in MiB.
    pub(super) base: f64,
    /// Bytes a token, in MiB.
    pub(super) mib_per_token: f64,
    /// Activation memory a running request, in MiB, which the KV counter leaves out.
    pub(super) activation: f64,
    label: Label,
    parts: Vec<Part>,
    noise: Option<Noise>,
    scrape: Option<Scrape>,
}

impl<'a> Draft<'a> {
    /// A quiet server: 16 to 34 GB, correlated noise of 0, 1 or 4 MiB and short spikes.
    pub(super) fn new(dice: &'a mut Dice, seconds: u64) -> Self {
        let base = dice.within(16_000.0, 34_000.0);
        let noise = Noise::draw(dice);
        let mib_per_token = dice.choice([0.031_25, 0.125, 0.312_5]);
        let activation = dice.within(0.0, 4.0);
        let label = Label {
            is_leak: false,
            onset_s: None,
            change_s: None,
            rate_mib_per_min: 0.0,
            changed_rate_mib_per_min: 0.0,
            is_even: true,
            capacity_mib: CARD_MIB as u64,
            process_start_s: 0,
            kv: KvSight::Hidden,
            is_brink: false,
            wanted: None,
            role: EngineRole::Unknown,
            semantics: KvSemantics::Unknown,
        };
        let length = seconds as f64;
        let parts = Vec::new();
        Self { dice, length, base, mib_per_token, activation, label, parts, noise: Some(noise), scrape: None }
    }

    /// Adds a part.
    pub(super) fn with(mut self, part: impl FnMut(&mut Moment, &mut Dice) + Send + 'static) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Another amount held from the start.
    pub(super) fn based_on(mut self, base: f64) -> Self {
        self.base = base;
        self
    }

    /// Neither noise nor spikes.
    pub(super) fn noiseless(mut self) -> Self {
        self.noise = None;
        self
    }

    /// Memory stops less than 2 % below the capacity.
    pub(super) fn at_the_brink(mut self) -> Self {
        self.label.is_brink = true;
        self
    }

    /// The engine tells its KV cache and its requests, scraped each 1, 2 or 5 s and up to 2 s late.
    pub(super) fn counted(mut self, kv: KvSight) -> Self {
        self.label.kv = kv;
        self.scrape = Some(Scrape::draw(self.dice));
        self
    }

    /// The engine tells nothing: its counters vanish behind all parts so far.
    pub(super) fn uncounted(self) -> Self {
        self.with(|now, _| {
            (now.kv, now.kv_pool, now.running, now.arrivals) = (None, None, None, None);
        })
    }

    /// From the onset on it leaks at an even pace, in whole granules of so many MiB.
    pub(super) fn leaking(self, onset: f64, mib_per_min: f64, granule: f64) -> Self {
        self.labelled(onset, mib_per_min).with(move |now, _| {
            if let Some(since) = now.since(onset) {
                now.leak((since / 60.0 * mib_per_min / granule).floor() * granule);
            }
        })
    }

    /// The truth: a leak that begins here, at this pace.
    pub(super) fn labelled(mut self, onset: f64, mib_per_min: f64) -> Self {
        self.label.is_leak = true;
        self.label.onset_s = Some(onset as u64);
        self.label.rate_mib_per_min = mib_per_min;
        self.label.changed_rate_mib_per_min = mib_per_min;
        self
    }

    /// The truth: its pace changes here.
    pub(super) fn changing(mut self, at: f64, mib_per_min: f64) -> Self {
        self.label.change_s = Some(at as u64);
        self.label.changed_rate_mib_per_min = mib_per_min;
        self
    }

    /// The truth: this finding is right, if any.
    pub(super) fn wanting(mut self, kind: Option<&'static str>) -> Self {
        self.label.wanted = kind;
        self
    }

    /// The engine says what part it plays and what it counts as used.
    pub(super) fn played_as(mut self, role: EngineRole, semantics: KvSemantics) -> Self {
        (self.label.role, self.label.semantics) = (role, semantics);
        self
    }

    /// The truth: its pace is not even.
    pub(super) fn uneven(mut self) -> Self {
        self.label.is_even = false;
        self
    }

    /// The sampler misses 5 % of the samples and stays away for up to a quarter of an hour, a dozen times in 8 h.
    pub(super) fn with_gaps(self) -> Self {
        let mut until = 0;
        self.with(move |now, dice| {
            if dice.chance(12.0 / 28_800.0) {
                until = until.max(now.second + dice.whole(30, 900));
            }
            now.is_seen = now.second >= until && !dice.chance(0.05);
        })
    }

    pub(super) fn finish(mut self) -> (Course, Label) {
        if let Some(mut noise) = self.noise.take() {
            self.parts.insert(0, Box::new(move |now, dice| now.used += noise.next(dice)));
        }
        let (scrape, counted) = (self.scrape.clone(), self.scrape);
        (Course { base: self.base, parts: self.parts, scrape, counted, served: 0.0 }, self.label)
    }
}
