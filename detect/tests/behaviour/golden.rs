//! What a person reads: one history for each thing that can be said, and the words for it.

use std::fmt::Write;

use ebbtide_core::{Absent, Reading};
use ebbtide_core::{
    Bytes, EngineRole, EventKind, FindingEvent, GpuUuid, KvSemantics, Percent, ProcKey, SeriesPart,
    SeriesRef, Tick, Ts,
};
use ebbtide_detect::{DetectConfig, Detector, Load, Observation};

use crate::player::bytes;

const CARD: f64 = 81_920.0;
const ABSENT: Absent = Absent::NotSupported;

/// A history by its shape: seconds, interval, and at each instant the memory, the load and the event.
pub(crate) struct History<'a> {
    pub(crate) seconds: u32,
    pub(crate) interval: u32,
    pub(crate) part: SeriesPart,
    pub(crate) owners: Reading<u32>,
    pub(crate) peers: &'a dyn Fn(f64) -> Reading<Bytes>,
    pub(crate) used: &'a dyn Fn(f64) -> f64,
    pub(crate) load: &'a dyn Fn(f64) -> Load,
    pub(crate) event: &'a dyn Fn(u32) -> Option<EventKind>,
}

pub(crate) fn quiet(used: &dyn Fn(f64) -> f64) -> History<'_> {
    History {
        seconds: 3600,
        interval: 1,
        part: SeriesPart::Device,
        owners: Err(ABSENT),
        peers: &|_| Err(ABSENT),
        used,
        load: &|_| Load::absent(ABSENT),
        event: &|_| None,
    }
}

/// The last word of the judgement and of each finding that opened, with the minute it opened in.
pub(crate) fn told(name: &str, history: &History<'_>) -> String {
    let series = SeriesRef { gpu: GpuUuid::new("GPU-0"), part: history.part };
    let mut detector = Detector::new(series, &DetectConfig::default());
    let mut lines = String::new();
    for seconds in (0..history.seconds).step_by(history.interval as usize) {
        let at = f64::from(seconds);
        let events: Vec<EventKind> = (history.event)(seconds).into_iter().collect();
        let said = detector.observe(&Observation {
            tick: Tick {
                seq: u64::from(seconds),
                at: Ts(i64::from(seconds) * 1000),
                mono_ms: u64::from(seconds) * 1000,
            },
            value: Ok(bytes((history.used)(at))),
            capacity: Ok(bytes(CARD)),
            load: (history.load)(at),
            owners: history.owners,
            peers: (history.peers)(at),
            events: &events,
        });
        for event in said {
            if let FindingEvent::Opened(finding) = event {
                let (kind, minute) = (finding.key.kind.name(), seconds / 60);
                let _ =
                    writeln!(lines, "  {minute} min, {kind}: {}\n    {}", finding.summary, finding.settle);
            }
        }
    }
    let judgement = detector.judgement();
    format!("{name}: {}\n  {}\n{lines}", judgement.diagnosis.name(), judgement.summary)
}

pub(crate) fn load(kv: f64, pool: f64, running: u32) -> Load {
    Load {
        kv_used: Ok(bytes(kv)),
        kv_pool: Ok(bytes(pool)),
        running: Ok(running),
        waiting: Ok(0),
        semantics: KvSemantics::Referenced,
        ..Load::absent(ABSENT)
    }
}

/// Half an hour of calm, then growth.
pub(crate) fn later(at: f64, grown: impl Fn(f64) -> f64) -> f64 {
    if at < 1800.0 { 30_000.0 } else { 30_000.0 + grown(at - 1800.0) }
}

#[test]
fn slopes_in_words() {
    let host = SeriesPart::Host(ProcKey { pid: 7, start_ticks: None });
    let tide = |at: f64| 4000.0 * (at / 200.0).fract();
    let all = [
        told("steady", &quiet(&|_| 30_000.0)),
        told("a fast leak", &quiet(&|at| later(at, |t| 4.0 * t))),
        told(
            "a leak behind a tide",
            &History {
                load: &|at| load(tide(at), 8000.0, 8),
                ..quiet(&|at| later(at, |t| 0.2 * t) + tide(at))
            },
        ),
        told("a leak of host memory", &History { part: host, ..quiet(&|at| 9000.0 + 0.5 * at) }),
        told(
            "growth that slows down",
            &History { seconds: 2700, ..quiet(&|at| later(at, |t| 6000.0 * (1.0 - (-t / 600.0).exp()))) },
        ),
        told(
            "growth that has ended",
            &History { seconds: 2700, ..quiet(&|at| later(at, |t| 10.0 * t.min(150.0))) },
        ),
        told("a young process", &History { seconds: 20, ..quiet(&|at| 400.0 + 800.0 * at) }),
        told(
            "a pool that is reserved",
            &History { load: &|at| load(tide(at), 8000.0, 8), ..quiet(&|_| 60_000.0) },
        ),
        told(
            "a pool that fills",
            &History {
                seconds: 600,
                load: &|at| load(10.0 * at, 20_000.0, 8),
                ..quiet(&|at| 30_000.0 + 10.0 * at)
            },
        ),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn events_and_owners_in_words() {
    let each = |period: u32, kind: EventKind| {
        move |at: u32| (at > 0 && at.is_multiple_of(period)).then(|| kind.clone())
    };
    let exits = each(1800, EventKind::EngineExit);
    let wakes = each(1800, EventKind::Wake);
    let sleep = |at: u32| (at == 600).then_some(EventKind::Sleep);
    let end = |at: u32| (at == 600).then_some(EventKind::ProcessExit);
    let stairs = |at: f64| 8000.0 + 300.0 * (at / 1800.0).floor();
    let falls = |to: f64| move |at: f64| if at < 600.0 { 22_000.0 } else { to };
    let all = [
        told(
            "more stays at each exit",
            &History { seconds: 10_800, interval: 5, event: &exits, ..quiet(&stairs) },
        ),
        told(
            "a leak at each wake",
            &History { seconds: 10_800, interval: 5, event: &wakes, ..quiet(&stairs) },
        ),
        told("a sleep that frees too little", &History { event: &sleep, ..quiet(&falls(16_000.0)) }),
        told("a sleep that frees what it should", &History { event: &sleep, ..quiet(&falls(1200.0)) }),
        told("memory left by a process", &History { event: &end, ..quiet(&falls(9000.0)) }),
        told(
            "memory without an owner",
            &History { part: SeriesPart::Unattributed, owners: Ok(0), ..quiet(&|_| 3000.0) },
        ),
        told(
            "blocks held at idle",
            &History { load: &|at| load(900.0, 8000.0, u32::from(at < 1200.0)), ..quiet(&|_| 60_000.0) },
        ),
        told(
            "the last of the room",
            &History { seconds: 36_000, interval: 5, ..quiet(&|at| CARD - 1600.0 + 0.04 * at) },
        ),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn peers_allocators_and_idlers_in_words() {
    let rank = SeriesPart::Process(ProcKey { pid: 7, start_ticks: None });
    let slow = |used| History { seconds: 14_400, interval: 30, part: rank, ..quiet(used) };
    let twelve = || Ok(bytes(12_000.0));
    let busy = |percent: u8| Load { busy: Ok(Percent(percent)), ..Load::absent(ABSENT) };
    let arena = |taken: f64, used: f64| Load {
        arena: Ok(bytes(taken)),
        arena_used: Ok(bytes(used)),
        ..Load::absent(ABSENT)
    };
    let prefill = |at: f64| Load { role: EngineRole::Prefill, ..load(900.0, 8000.0, u32::from(at < 1200.0)) };
    let day = |at: f64| (at / 86_400.0).floor();
    let busy_pool = |at: f64| {
        let running = if at % 86_400.0 < 3600.0 { 1 } else { 6 };
        load(300.0 * f64::from(running) + 40.0 * day(at), 8000.0, running)
    };
    let all = [
        told("a rank with a helper", &History { peers: &|_| twelve(), ..slow(&|_| 14_000.0) }),
        told("a rank that draws away", &History { peers: &|_| twelve(), ..slow(&|at| 12_000.0 + 0.3 * at) }),
        told("a rank like its peers", &History { peers: &|_| twelve(), ..slow(&|_| 12_500.0) }),
        told(
            "an allocator in pieces",
            &History { load: &|at| arena(20_000.0 + 0.1 * at, 12_000.0), ..slow(&|at| 21_000.0 + 0.1 * at) },
        ),
        told(
            "an allocator that caches",
            &History { load: &|_| arena(20_000.0, 12_000.0), ..slow(&|_| 21_000.0) },
        ),
        told("nobody computes", &History { load: &|_| busy(0), ..slow(&|_| 40_000.0) }),
        told("somebody computes", &History { load: &|_| busy(1), ..slow(&|_| 40_000.0) }),
        told("no request for hours", &History { load: &|_| load(0.0, 8000.0, 0), ..slow(&|_| 40_000.0) }),
        told(
            "a prefill node between requests",
            &History { seconds: 3600, load: &prefill, ..slow(&|_| 40_000.0) },
        ),
        told(
            "a prefill node that is never fetched from",
            &History { seconds: 7200, load: &prefill, ..slow(&|_| 40_000.0) },
        ),
        told(
            "blocks that stay from day to day",
            &History { seconds: 350_000, interval: 120, load: &busy_pool, ..slow(&|_| 40_000.0) },
        ),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_release_followed_by_a_new_beginning_is_nobodys_fault() {
    let mut detector = Detector::new(
        SeriesRef { gpu: GpuUuid::new("GPU-0"), part: SeriesPart::Device },
        &DetectConfig::default(),
    );
    for seconds in 0..3600_u32 {
        let event = match seconds {
            600 => Some(EventKind::ProcessExit),
            700 => Some(EventKind::ProcessStart),
            _ => None,
        };
        let said = detector.observe(&Observation {
            tick: Tick {
                seq: u64::from(seconds),
                at: Ts(i64::from(seconds) * 1000),
                mono_ms: u64::from(seconds) * 1000,
            },
            value: Ok(Bytes::from_mib(if (600..700).contains(&seconds) { 400 } else { 60_000 })),
            capacity: Ok(bytes(CARD)),
            load: Load::absent(ABSENT),
            owners: Err(ABSENT),
            peers: Err(ABSENT),
            events: event.as_slice(),
        });
        assert!(said.is_empty(), "{said:?}");
    }
}
