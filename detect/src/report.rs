//! From a cause to findings: rates, onset, forecast, evidence, words.

use ebbtide_core::{
    ByteRate, Bytes, Diagnosis, Evidence, Finding, FindingKey, FindingKind, Forecast, RateBand, SeriesPart,
    SeriesRef, Severity, SignedBytes, Subject, Tick, Tier, Ts, units::MIB,
};

use crate::forecast::{self, Headroom};
use crate::kink::Kink;
use crate::ladder::{RUNGS, block_s};
use crate::levelling;
use crate::onset::{self, Onset};
use crate::rise::{Clock, Rise};
use crate::rules::Claim;
use crate::scene::{Growth, Reserve, Scene};
use crate::sentence;
use crate::verdict::Cause;
use crate::work::Unit;

/// Growth must have lasted so long before its end is forecast, in seconds: what fills in less is a load, and done
/// before anybody reads the page.
const MIN_GROWTH_S: f64 = 100.0;
/// The same where the process is young or something was started within it: what is loaded comes in at such a pace.
const MIN_LOADED_S: f64 = 400.0;
/// Growth that is no leak is extrapolated by at most this multiple of the time it has lasted.
const MAX_REACH: f64 = 4.0;
/// The same while it has not lasted for [`BURST_S`].
const MAX_BURST_REACH: f64 = 1.25;
/// A burst of load rises for no longer than this, in seconds.
const BURST_S: f64 = 180.0;
/// The same for growth that the load accounts for, which ends with the load: two thirds of the room must be gone.
const MAX_EXPLAINED_REACH: f64 = 0.5;
/// The same for growth from little to much, which is how weights come in.
const MAX_LOADED_REACH: f64 = 1.0;
/// Windows so many times doubled are asked whether a rise bends.
const BENT_RUNGS: usize = 5;
/// And windows so many times halved.
const FINER_RUNGS: usize = 2;
/// The blocks that such a window must hold: four in each third.
const MIN_BENT: usize = 12;
/// Growth of which one step makes up this share is steps.
const MAX_STEP: f64 = 0.2;
/// What lies below its line by this share of the rise has stopped.
const STOPPED_SHARE: f64 = 0.25;
/// What held less than this share before it grew is being loaded, if it is young.
const LOADING_SHARE: f64 = 0.5;
/// What held less than this share of the capacity is being loaded at any age: contexts and no weights.
const EMPTY_SHARE: f64 = 0.1;
/// An open forecast lapses only beyond this multiple of the horizon, so that it does not flap.
const LAPSE: f64 = 1.5;

/// Where the series is now, beside its blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// When.
    pub(crate) tick: Tick,
    /// The same, in seconds since the epoch began.
    pub(crate) at: f64,
    /// Capacity and high water, where the capacity is known.
    pub(crate) room: Option<Headroom>,
    /// What the series may reach when the KV pool is full, where that is known.
    pub(crate) full_pool: Option<Bytes>,
    /// A forecast within this many seconds is Imminent.
    pub(crate) horizon_s: f64,
}

impl Now {
    /// The instant of a time of the epoch.
    fn instant(&self, at: f64) -> Ts {
        self.tick.at.plus_ms(((at - self.at) * 1000.0) as i64)
    }

    /// Seconds until memory is expected to run out.
    fn left_s(&self, forecast: &Forecast) -> f64 {
        (forecast.expected.0 - self.tick.at.0) as f64 / 1000.0
    }
}

/// What the standing cause comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Report {
    /// When memory runs out.
    pub(crate) forecast: Option<Forecast>,
    /// Which cause it is of, in the terms of the tests.
    pub(crate) cause: Option<FindingKind>,
    /// The cause that leads, if any.
    pub(crate) diagnosis: Option<Diagnosis>,
    /// How fast it grows.
    pub(crate) band: Option<RateBand>,
    /// The finding that leads, whose sentence and evidence are those of the cause.
    pub(crate) lead: FindingKind,
    /// Since when memory has grown, if growth that no counter accounts for or less is what stands.
    pub(crate) grew_since: Option<Ts>,
}

/// What a report is drawn up from.
pub(crate) struct Drawing<'a> {
    /// What the tests of slopes say.
    pub(crate) cause: &'a Cause,
    /// What the rules say.
    pub(crate) claims: Vec<Claim>,
    /// Whether a forecast is open already.
    pub(crate) was_imminent: bool,
}

/// What of a cause is news at once; the rest of what is said of it moves slowly, and words are dear.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gist {
    kind: Option<FindingKind>,
    reserve: Option<Reserve>,
    /// Whether a leak stands, alone or beside a change of pace.
    leaks: bool,
    /// Whether it takes the rest of the room before long.
    is_soon: bool,
    is_imminent: bool,
}

/// What a cause comes to in short, how fast it grows and when memory runs out. `None` where nothing rises.
pub(crate) fn gist(
    series: &SeriesRef,
    scene: &Scene<'_>,
    now: &Now,
    cause: &Cause,
    was_imminent: bool,
) -> Option<(Gist, Rise, Option<Forecast>)> {
    let author = Author { series, scene, now };
    let (rise, reserve, leak) = match cause {
        Cause::Calm => return None,
        Cause::Growth(growth) => (growth.rise, Some(growth.reserve), None),
        Cause::Leak(rise) => (*rise, None, Some(*rise)),
        Cause::SlopeChange(kink, leak) => (kink.after, None, *leak),
    };
    let forecast = author.forecast(&rise).filter(|_| reserve.is_none_or(|reserve| !author.fits(reserve)));
    let is_imminent =
        forecast.as_ref().is_some_and(|forecast| author.is_imminent(cause, &rise, forecast, was_imminent));
    let is_soon =
        leak.and_then(|leak| author.forecast(&leak)).is_some_and(|forecast| author.is_soon(&forecast));
    let gist = Gist { kind: cause.kind(), reserve, leaks: leak.is_some(), is_soon, is_imminent };
    Some((gist, rise, forecast))
}

/// Draws up what stands, nothing where all is calm, and the findings that shall be open for it, the leading one first.
pub(crate) fn draw(
    series: &SeriesRef,
    scene: &Scene<'_>,
    now: &Now,
    drawing: Drawing<'_>,
) -> (Option<Report>, Vec<Finding>) {
    let Drawing { cause, claims, was_imminent } = drawing;
    let author = Author { series, scene, now };
    let (rise, mut findings) = match cause {
        Cause::Calm => (None, Vec::new()),
        Cause::Growth(growth) => (Some(growth.rise), vec![author.growth(growth)]),
        Cause::Leak(rise) => (Some(*rise), vec![author.leak(rise)]),
        Cause::SlopeChange(kink, leak) => {
            let mut findings = vec![author.slope_change(kink)];
            // A change of pace of host memory is its leak already.
            if !matches!(series.part, SeriesPart::Host(_)) {
                findings.extend(leak.iter().map(|rise| author.leak(rise)));
            }
            (Some(kink.after), findings)
        }
    };
    let (band, forecast) = findings.first().map_or((None, None), |finding| (finding.rate, finding.forecast));
    if let Some((rise, forecast)) = rise.zip(forecast)
        && author.is_imminent(cause, &rise, &forecast, was_imminent)
    {
        findings.push(author.imminent(cause, &rise, forecast));
    }
    if claims.iter().any(|claim| claim.accounts_for_rise) {
        findings.retain(|finding| !finding.key.kind.is_cause());
    }
    findings.extend(claims.into_iter().map(|claim| author.claim(claim)));
    findings.sort_by_key(|finding| rank(finding.key.kind));
    // Of a leak that a slope and a rule both see the slope knows more.
    findings.dedup_by(|later, first| later.key == first.key);
    let Some(Finding { key: FindingKey { kind: lead, .. }, onset_at, .. }) = findings.first() else {
        return (None, findings);
    };
    let runs_out = findings.iter().any(|finding| finding.key.kind == FindingKind::Imminent);
    let diagnosis = lead.is_cause().then(|| match diagnosis(*lead, cause) {
        // What takes the last of the room is no warm-up any more.
        Diagnosis::WarmingUp if runs_out => Diagnosis::Growth,
        diagnosis => diagnosis,
    });
    // What the load accounts for ends with the load, and finds no level.
    let may_settle = *lead == FindingKind::Growth && diagnosis != Some(Diagnosis::KvGrowth);
    let grew_since = onset_at.filter(|_| may_settle);
    let report = Report { forecast, cause: cause.kind(), diagnosis, band, lead: *lead, grew_since };
    (Some(report), findings)
}

/// Which finding leads: the surest causes first, forecasts last.
const fn rank(kind: FindingKind) -> u8 {
    // tidy: table
    match kind {
        FindingKind::Orphan => 0,
        FindingKind::NotReleased => 1,
        FindingKind::SlopeChange => 2,
        FindingKind::Leak => 3,
        FindingKind::HostLeak => 4,
        FindingKind::KvPoolLeak => 5,
        FindingKind::Fragmented => 6,
        FindingKind::Imbalance => 7,
        FindingKind::Growth => 8,
        FindingKind::IdleHolder => 9,
        FindingKind::Imminent => 10,
        FindingKind::ThinHeadroom => 11,
    }
}

/// The cause in one word. Growth has a word for each good reason.
const fn diagnosis(lead: FindingKind, cause: &Cause) -> Diagnosis {
    // tidy: table
    match lead {
        FindingKind::Orphan => Diagnosis::Orphan,
        FindingKind::NotReleased => Diagnosis::NotReleased,
        FindingKind::SlopeChange => Diagnosis::SlopeChange,
        FindingKind::Leak => Diagnosis::Leak,
        FindingKind::HostLeak => Diagnosis::HostLeak,
        FindingKind::KvPoolLeak => Diagnosis::KvPoolLeak,
        FindingKind::Fragmented => Diagnosis::Fragmented,
        FindingKind::Imbalance => Diagnosis::Imbalance,
        FindingKind::IdleHolder => Diagnosis::IdleHolder,
        FindingKind::Growth | FindingKind::Imminent | FindingKind::ThinHeadroom => match cause {
            Cause::Growth(Growth { reserve: Reserve::Explained, .. }) => Diagnosis::KvGrowth,
            Cause::Growth(Growth { reserve: Reserve::NewPeak, .. }) => Diagnosis::HighWater,
            Cause::Growth(Growth { reserve: Reserve::WarmUp, .. }) => Diagnosis::WarmingUp,
            Cause::Growth(Growth { reserve: Reserve::Slowing, .. }) => Diagnosis::Settling,
            _ => Diagnosis::Growth,
        },
    }
}

/// Writes findings about one series at one moment.
struct Author<'a> {
    series: &'a SeriesRef,
    scene: &'a Scene<'a>,
    now: &'a Now,
}

impl Author<'_> {
    fn finding(&self, kind: FindingKind, rise: &Rise, onset: Onset) -> Finding {
        let band = forecast::band(&rise.line);
        let grown = SignedBytes(((rise.line.at(self.now.at) - onset.level) * MIB as f64) as i64);
        Finding {
            key: FindingKey { series: self.series.clone(), kind: self.kind(kind) },
            subject: Subject::default(),
            tier: Tier::Confirmed,
            severity: Severity::Warning,
            opened_at: self.now.tick.at,
            resolved_at: None,
            onset_at: Some(self.now.instant(onset.at)),
            rate: Some(band),
            grown: Some(Bytes(u64::try_from(grown.0).unwrap_or(0))),
            forecast: self.forecast(rise),
            evidence: self.evidence(rise, onset),
            summary: String::new(),
            settle: String::new(),
        }
    }

    fn forecast(&self, rise: &Rise) -> Option<Forecast> {
        self.now.room.and_then(|room| forecast::exhaustion(self.now.tick, room, &forecast::band(&rise.line)))
    }

    fn is_soon(&self, forecast: &Forecast) -> bool {
        self.now.left_s(forecast) <= self.now.horizon_s
    }

    /// Whether growth ends before the room does, because the KV pool that it fills has room.
    fn fits(&self, reserve: Reserve) -> bool {
        let pool = self.now.full_pool.zip(self.now.room);
        reserve == Reserve::Explained && pool.is_some_and(|(full, room)| full <= room.capacity)
    }

    /// A leak of host memory has a kind of its own: it is another machine part that runs out.
    const fn kind(&self, kind: FindingKind) -> FindingKind {
        match (self.series.part, kind) {
            (SeriesPart::Host(_), FindingKind::Leak | FindingKind::SlopeChange) => FindingKind::HostLeak,
            (_, kind) => kind,
        }
    }

    fn leak(&self, rise: &Rise) -> Finding {
        let onset = onset::of(self.scene.ladder, self.scene.explainer, rise);
        let finding = self.finding(FindingKind::Leak, rise, onset);
        let soon = finding.forecast.as_ref().is_some_and(|forecast| self.is_soon(forecast));
        let account = self.scene.account;
        let lasted = self.now.at - onset.at;
        let decades = |natural: f64| natural / std::f64::consts::LN_10;
        let (won, needed) = (self.scene.log_wealth(rise), self.scene.budget.wealth(rise.rung));
        let mut evidence = finding.evidence;
        evidence.push(Evidence::against("wager-won", decades(won), "decades", decades(needed)));
        if let Clock::Work(work) = rise.clock {
            let unit = match work.unit {
                Unit::Requests => "MiB/request",
                Unit::Tokens => "MiB/token",
            };
            evidence.push(Evidence::new("each", work.each.slope, unit));
        }
        Finding {
            evidence,
            severity: if soon { Severity::Critical } else { Severity::Warning },
            summary: sentence::leak(
                rate(rise),
                lasted,
                finding.grown.unwrap_or_default(),
                account,
                rise.clock,
            ),
            settle: match self.series.part {
                SeriesPart::Host(_) => sentence::SETTLE_HOST.to_owned(),
                _ => sentence::settle_leak(account).to_owned(),
            },
            ..finding
        }
    }

    fn claim(&self, claim: Claim) -> Finding {
        Finding {
            key: FindingKey { series: self.series.clone(), kind: claim.kind },
            subject: Subject::default(),
            tier: claim.tier,
            severity: claim.severity,
            opened_at: self.now.tick.at,
            resolved_at: None,
            onset_at: Some(claim.since.at),
            rate: claim.rate,
            grown: Some(claim.amount),
            forecast: claim
                .rate
                .zip(self.now.room)
                .and_then(|(rate, room)| forecast::exhaustion(self.now.tick, room, &rate)),
            evidence: claim.evidence,
            summary: claim.summary,
            settle: claim.settle.to_owned(),
        }
    }

    fn growth(&self, growth: &Growth) -> Finding {
        let rise = &growth.rise;
        let onset = onset::of(self.scene.ladder, self.scene.explainer, rise);
        let finding = self.finding(FindingKind::Growth, rise, onset);
        Finding {
            tier: Tier::Early,
            severity: Severity::Info,
            forecast: finding.forecast.filter(|_| !self.fits(growth.reserve)),
            summary: sentence::growth(rate(rise), rise.until - onset.at, growth.reserve),
            settle: sentence::settle_growth(growth.reserve).to_owned(),
            ..finding
        }
    }

    fn slope_change(&self, kink: &Kink) -> Finding {
        let rise = &kink.after;
        let onset = Onset { at: rise.from, level: rise.line.at(rise.from) };
        let before = ByteRate(kink.before * MIB as f64);
        let finding = self.finding(FindingKind::SlopeChange, rise, onset);
        let mut evidence = finding.evidence;
        evidence.push(Evidence::new("rate-before", before.mib_per_min(), "MiB/min"));
        Finding {
            summary: sentence::slope_change(before, rate(rise), self.now.at - onset.at),
            settle: sentence::SETTLE_SLOPE_CHANGE.to_owned(),
            evidence,
            ..finding
        }
    }

    fn imminent(&self, cause: &Cause, rise: &Rise, forecast: Forecast) -> Finding {
        let onset = onset::of(self.scene.ladder, self.scene.explainer, rise);
        let left = self.now.left_s(&forecast);
        let room = self.now.room.map_or(Bytes::ZERO, |room| room.capacity.saturating_sub(room.high_water));
        let needed = self.now.horizon_s;
        Finding {
            tier: if matches!(cause, Cause::Growth(_)) { Tier::Early } else { Tier::Confirmed },
            severity: Severity::Critical,
            forecast: Some(forecast),
            evidence: vec![
                Evidence::against("time-left", left, "s", needed),
                Evidence::new("room-left", room.mib(), "MiB"),
            ],
            summary: sentence::imminent(left, rate(rise), room),
            settle: sentence::SETTLE_IMMINENT.to_owned(),
            ..self.finding(FindingKind::Imminent, rise, onset)
        }
    }

    fn is_imminent(&self, cause: &Cause, rise: &Rise, forecast: &Forecast, open: bool) -> bool {
        let left = self.now.left_s(forecast);
        let horizon = self.now.horizon_s * if open { LAPSE } else { 1.0 };
        if left > horizon {
            return false;
        }
        let Cause::Growth(growth) = cause else { return true };
        let onset = onset::of(self.scene.ladder, self.scene.explainer, rise);
        let lasted = rise.until - onset.at;
        let height = |mib: f64| self.scene.origin_mib + mib;
        let capacity = self.now.room.map_or(0.0, |room| room.capacity.mib());
        let was_empty = height(onset.level) < EMPTY_SHARE * capacity;
        let is_multiplied = height(onset.level) < LOADING_SHARE * height(rise.line.at(rise.until));
        let (least, reach) = match growth.reserve {
            Reserve::Explained => (MIN_GROWTH_S, MAX_EXPLAINED_REACH),
            Reserve::Disturbed => (MIN_LOADED_S, MAX_EXPLAINED_REACH),
            _ if is_multiplied && (was_empty || growth.reserve == Reserve::WarmUp) => {
                (MIN_LOADED_S, MAX_LOADED_REACH)
            }
            _ if lasted < BURST_S => (MIN_GROWTH_S, MAX_BURST_REACH),
            _ => (MIN_GROWTH_S, MAX_REACH),
        };
        lasted >= least
            && left <= reach * lasted * if open { LAPSE } else { 1.0 }
            && !self.has_stopped(rise)
            && !self.levels_in_time(rise)
            && !self.comes_in_steps(rise)
    }

    /// Whether memory has fallen behind the line, as seen in blocks that are shorter than those that show the rise.
    fn has_stopped(&self, rise: &Rise) -> bool {
        let newest = self.scene.ladder.blocks(rise.rung.saturating_sub(FINER_RUNGS)).next_back();
        newest.is_some_and(|block| {
            let behind = rise.line.at(block.at) - f64::from(block.ceil);
            behind > STOPPED_SHARE * rise.line.slope * (rise.until - rise.from)
        })
    }

    /// Whether a handful of steps make up the rise: each is somebody who takes what he needs, and nobody knows of a next.
    fn comes_in_steps(&self, rise: &Rise) -> bool {
        let (mut largest, mut old, mut low, mut high) = (0.0_f64, None, f64::MAX, f64::MIN);
        let blocks = self.scene.ladder.blocks(rise.rung).filter(|b| (rise.from..=rise.until).contains(&b.at));
        for x in blocks.filter_map(|block| self.scene.explainer.quantity(rise.basis, &block)) {
            largest = largest.max(old.map_or(0.0, |old| x - old));
            (old, low, high) = (Some(x), low.min(x), high.max(x));
        }
        largest > MAX_STEP * (high - low)
    }

    /// Whether some view of the rise says that it will have levelled off before the room is used up. A bend shows
    /// in a longer window first, and of a young series only short blocks are many.
    fn levels_in_time(&self, rise: &Rise) -> bool {
        let room = self.now.room.map(|room| room.capacity.saturating_sub(room.high_water).mib());
        let views = rise.rung.saturating_sub(FINER_RUNGS)..(rise.rung + BENT_RUNGS).min(RUNGS);
        let mut levels =
            views.filter_map(|rung| levelling::of(&self.scene.past(rung, rise.basis, MIN_BENT)?, 0.0));
        room.is_some_and(|room| levels.any(|level| level.at_most() < room))
    }

    fn evidence(&self, rise: &Rise, onset: Onset) -> Vec<Evidence> {
        let mut evidence = vec![
            Evidence::new("rate", rate(rise).mib_per_min(), "MiB/min"),
            Evidence::against("trend-z", rise.z, "", self.scene.needed_z(rise.rung)),
            Evidence::new("window", rise.until - rise.from, "s"),
            Evidence::new("block", block_s(rise.rung), "s"),
            Evidence::new("noise", rise.noise, "MiB"),
            Evidence::new("lasted", self.now.at - onset.at, "s"),
        ];
        if let Some(share) = self.scene.explainer.followed(self.scene.account) {
            evidence.push(Evidence::new("memory-follows-kv", share, ""));
        }
        evidence
    }
}

/// The rate of a rise.
fn rate(rise: &Rise) -> ByteRate {
    ByteRate(rise.line.slope * MIB as f64)
}
