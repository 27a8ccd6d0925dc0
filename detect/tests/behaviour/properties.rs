//! What must hold of any history: nothing but a lasting rise opens a leak, and what is said does not depend on when,
//! in which unit, or with how many of the samples.

use ebbtide_core::{Absent, Diagnosis, EventKind, FindingEvent, FindingKind, Tick, Ts};
use ebbtide_detect::{Detector, Load, Observation};
use proptest::prelude::*;

use crate::player::{Player, Point, bytes};

const CARD: f64 = 81_559.0;

fn memory(at: f64, used: f64) -> Point {
    Point { at, used, ..Point::default() }
}

/// Two hours each 5 s.
fn times() -> impl Iterator<Item = f64> {
    (0..1440).map(|i| f64::from(i) * 5.0)
}

fn noise(seed: u64, height: f64) -> impl FnMut() -> f64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    move || rng.f64() * height
}

fn played(points: impl IntoIterator<Item = Point>) -> Player {
    let mut player = Player::new(CARD);
    player.play(points);
    player
}

fn never_alarms(player: &Player) -> bool {
    [FindingKind::Leak, FindingKind::SlopeChange, FindingKind::Imminent]
        .into_iter()
        .all(|kind| player.opened(kind).is_none())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stationary_noise_is_steady(seed: u64, base in 1e3..7e4_f64, height in 0.0..2e3_f64) {
        let mut noise = noise(seed, height);
        let player = played(times().map(|at| memory(at, base + noise())));
        prop_assert!(never_alarms(&player));
        prop_assert_eq!(player.detector.diagnosis(), Diagnosis::Steady);
    }

    #[test]
    fn steps_are_no_leak(seed: u64, steps in proptest::collection::vec((0.0..7200.0_f64, 10.0..9e3_f64), 1..5)) {
        let mut noise = noise(seed, 4.0);
        let height = |at: f64| steps.iter().filter(|step| step.0 < at).map(|step| step.1).sum::<f64>();
        prop_assert!(never_alarms(&played(times().map(|at| memory(at, 2e4 + height(at) + noise())))));
    }

    /// Three or four large ones within minutes, as when several models are loaded.
    #[test]
    fn a_handful_of_steps_is_not_the_end(
        seed: u64, steps in proptest::collection::vec((900.0..2100.0_f64, 10.0..9e3_f64), 2..5),
    ) {
        let mut noise = noise(seed, 4.0);
        let height = |at: f64| steps.iter().filter(|step| step.0 < at).map(|step| step.1).sum::<f64>();
        prop_assert!(never_alarms(&played(times().take(720).map(|at| memory(at, 2e4 + height(at) + noise())))));
    }

    /// Without counters a ramp that lasts longer than the shortest conclusive window looks like a leak, and is called
    /// one: only a counter tells them apart.
    #[test]
    fn a_sawtooth_is_no_leak(seed: u64, period in 20.0..1800.0_f64, top in 100.0..9e3_f64, explained: bool) {
        let mut noise = noise(seed, 4.0);
        let period = if explained { 2.0 * period } else { period };
        let player = played(times().map(|at| {
            let kv = top * (at / period).fract();
            Point { kv: explained.then_some(kv), ..memory(at, 2e4 + kv + noise()) }
        }));
        prop_assert!(player.opened(FindingKind::Leak).is_none());
    }

    #[test]
    fn what_saturates_is_no_leak(
        seed: u64, total in 600.0..6e3_f64, tau in 240.0..14_400.0_f64, granule in prop_oneof![Just(2.0), Just(20.0)],
    ) {
        let mut noise = noise(seed, 4.0);
        let height = |at: f64| (total * (1.0 - (-at / tau).exp()) / granule).floor() * granule;
        let player = played((0..3).flat_map(|i| times().map(move |at| at + 7200.0 * f64::from(i))).map(|at| {
            memory(at, 2e4 + height((at - 1800.0).max(0.0)) + noise())
        }));
        prop_assert!(player.opened(FindingKind::Leak).is_none());
    }

    #[test]
    fn restarts_are_no_leak(seed: u64, period in 200.0..3000.0_f64, loading in 10.0..60.0_f64) {
        let mut noise = noise(seed, 4.0);
        let player = played(times().map(|at| {
            let age = at % period;
            memory(at, 400.0 + 2e4 * (age / loading).min(1.0) + noise())
        }));
        prop_assert!(never_alarms(&player));
    }

    #[test]
    fn a_tide_is_no_restart_however_late_its_counter(seed: u64, period in 400.0..1500.0_f64, late in 0.0..2.0_f64) {
        let mut noise = noise(seed, 4.0);
        let tide = |at: f64| 16e3 * (at / period).fract();
        let player = played(times().map(|at| {
            let read_at = ((at - late).max(0.0) / 5.0).floor() * 5.0;
            let used = 4e3 + tide(at) + noise();
            Point { kv: Some(tide(read_at)), running: Some(8), ..memory(at, used) }
        }));
        prop_assert!(player.diagnoses.iter().all(|(_, diagnosis)| *diagnosis != Diagnosis::Restarted));
    }

    #[test]
    fn a_restart_is_told_in_seconds_beside_a_counter_that_goes_on(seed: u64, fallen_at in 600.0..3000.0_f64) {
        let mut noise = noise(seed, 4.0);
        let player = played(times().map(|at| {
            let used = if at < fallen_at { 2e4 } else { 400.0 } + noise();
            Point { kv: Some(100.0), running: Some(1), ..memory(at, used) }
        }));
        let told = player.diagnoses.iter().find(|(_, diagnosis)| *diagnosis == Diagnosis::Restarted);
        prop_assert!(told.is_some_and(|(at, _)| (fallen_at..fallen_at + 20.0).contains(at)), "{told:?}");
    }

    #[test]
    fn gaps_absences_and_a_wandering_clock_open_nothing(seed: u64, share in 0.0..0.9_f64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut player = Player::new(CARD);
        let mut at = 0.0;
        for _ in 0..1500 {
            at = match rng.u8(..) {
                0 => at + 3600.0 * rng.f64(),
                1 => at * rng.f64(),
                _ => at + 5.0 * rng.f64(),
            };
            let used = 2e4 + rng.f64() * 40.0;
            let point = memory(at, used);
            let value = if rng.f64() < share { Err(Absent::Timeout) } else { Ok(bytes(used)) };
            player.step(at, value, point, &[]);
        }
        prop_assert!(player.said.is_empty(), "{}", player.said[0].event.finding().summary);
    }

    #[test]
    fn an_injected_leak_is_found_at_any_interval(
        seed: u64, interval in proptest::sample::select(vec![1.0, 5.0, 10.0, 30.0]), rate in 4.0..60.0_f64,
    ) {
        let mut noise = noise(seed, 8.0);
        let onset = 1800.0;
        let player = played((0..).map(|i| f64::from(i) * interval).take_while(|at| *at < 9000.0).map(|at| {
            let leaked = ((at - onset).max(0.0) * rate / 60.0 / 2.0).floor() * 2.0;
            memory(at, 2e4 + leaked + noise())
        }));
        let (found, _) = player.opened(FindingKind::Leak).expect("it leaks for two hours");
        let leak = player.latest(FindingKind::Leak).expect("it opened");
        let told = leak.rate.expect("a leak has a rate").rate.mib_per_min();
        prop_assert!(found > onset && found < onset + 5000.0, "found after {} s", found - onset);
        prop_assert!((told / rate - 1.0).abs() < 0.05, "told {told} for {rate}");
        prop_assert_eq!(leak.resolved_at, None);
    }

    /// A leak is seen from 0.1 s to 5 min: where a window of minutes holds too few samples, one of hours tells.
    #[test]
    fn an_injected_leak_is_found_at_the_shortest_and_the_longest_interval(
        seed: u64, interval in proptest::sample::select(vec![0.1, 60.0, 300.0]), rate in 10.0..60.0_f64,
    ) {
        let mut noise = noise(seed, 8.0);
        let (onset, patience) = (1800.0, 5000.0_f64.max(80.0 * interval));
        let end = onset + patience;
        let player = played((0..).map(|i| f64::from(i) * interval).take_while(|at| *at < end).map(|at| {
            memory(at, 2e4 + (at - onset).max(0.0) * rate / 60.0 + noise())
        }));
        let found = player.opened(FindingKind::Leak).map(|(found, _)| found);
        prop_assert!(found.is_some_and(|found| found > onset), "{found:?}");
        let told = player.latest(FindingKind::Leak).and_then(|leak| leak.rate).expect("a leak has a rate");
        let told = told.rate.mib_per_min();
        prop_assert!((told / rate - 1.0).abs() < 0.05, "told {told} for {rate}");
    }

    #[test]
    fn neither_the_hour_nor_the_unit_nor_lost_samples_change_the_diagnosis(
        seed: u64, shift in 0..1_000_000_u32, is_leak: bool,
    ) {
        let mut noise = noise(seed, 8.0);
        let rate = if is_leak { 12.0 } else { 0.0 };
        let points: Vec<Point> = times().map(|at| memory(at, 2e4 + rate * at / 60.0 + noise())).collect();
        let expected = played(points.iter().copied()).detector.diagnosis();
        prop_assert_eq!(expected, if is_leak { Diagnosis::Leak } else { Diagnosis::Steady });
        let later = points.iter().map(|p| Point { at: p.at + f64::from(shift) / 7.0, ..*p });
        prop_assert_eq!(played(later).detector.diagnosis(), expected);
        let doubled = points.iter().map(|p| Point { used: 2.0 * p.used, ..*p });
        prop_assert_eq!(played(doubled).detector.diagnosis(), expected);
        let mut rng = fastrand::Rng::with_seed(seed);
        let fewer = points.iter().filter(|_| rng.f64() > 0.1).copied();
        prop_assert_eq!(played(fewer).detector.diagnosis(), expected);
    }

    #[test]
    fn the_same_history_says_the_same(seed: u64) {
        let history = || {
            let mut noise = noise(seed, 30.0);
            played(times().map(|at| memory(at, 2e4 + at / 5.0 + noise())))
        };
        let (one, other) = (history(), history());
        let told = |player: &Player| player.said.iter().map(|said| said.event.clone()).collect::<Vec<_>>();
        prop_assert_eq!(told(&one), told(&other));
        prop_assert_eq!(one.detector.judgement(), other.detector.judgement());
    }
}

/// Noise of four kinds around one height: of each sample for itself, of a level that wanders back over minutes, of
/// rare spikes, of a tide with a period of its own.
fn stationary(kind: usize, seed: u64) -> impl FnMut(f64) -> f64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut wander = 0.0;
    move |at| match kind {
        0 => 400.0 * rng.f64(),
        1 => {
            wander = 0.9 * wander + 60.0 * (rng.f64() - 0.5);
            wander
        }
        2 => {
            if rng.u8(..) == 0 {
                4000.0 * rng.f64()
            } else {
                2.0 * (2.0 * rng.f64()).floor()
            }
        }
        _ => 2000.0 * (at / (300.0 + 100.0 * (seed % 7) as f64)).fract() + 8.0 * rng.f64(),
    }
}

/// 112 days. At the shipped dial chance may page once in 70 days of a GPU, all series of it together.
#[test]
fn stationary_noise_opens_no_leak_in_112_days() {
    const DAYS: u32 = 7;
    for (kind, seed) in (0..4).flat_map(|kind| (0..4).map(move |seed| (kind, seed))) {
        let mut noise = stationary(kind, seed);
        let samples = (0..DAYS * 2880).map(|i| f64::from(i) * 30.0);
        let player = played(samples.map(|at| memory(at, 2e4 + noise(at))));
        assert!(never_alarms(&player), "kind {kind}, seed {seed}");
        assert!(player.opened(FindingKind::KvPoolLeak).is_none());
    }
}

/// What a steady series says it would have shown, it shows: half as fast again, within two of the windows that it named.
#[test]
fn a_leak_above_what_steadiness_excludes_is_called_within_two_windows() {
    for seed in 0..4 {
        let mut noise = noise(seed, 12.0);
        let calm: Vec<Point> =
            (0..2880).map(|i| f64::from(i) * 5.0).map(|at| memory(at, 2e4 + noise())).collect();
        let mut player = played(calm);
        let judgement = player.detector.judgement();
        let told = |name: &str| {
            let of_name = judgement.evidence.iter().find(|evidence| evidence.what == name);
            of_name.unwrap_or_else(|| panic!("a steady series says {name}")).value
        };
        let (rate, over_s) = (1.5 * told("detectable"), told("detectable-over"));
        let onset = 14_400.0;
        let leaking = (0..).map(|i| onset + f64::from(i) * 5.0).take_while(|at| *at < onset + 2.0 * over_s);
        player.play(leaking.map(|at| memory(at, 2e4 + (at - onset) * rate / 60.0 + noise())));
        let found = player.opened(FindingKind::Leak).map(|(found, _)| found);
        assert!(found.is_some_and(|found| found > onset), "{rate:.2} MiB/min over {over_s:.0} s: {found:?}");
    }
}

/// Durations come from the monotonic clock: a wall clock that is set opens, moves and closes nothing.
#[test]
fn a_wall_clock_that_is_set_changes_no_finding() {
    let told = |steps: bool| {
        let mut detector = Player::new(CARD).detector;
        let mut noise = noise(5, 8.0);
        let mut opened = Vec::new();
        for (i, at) in times().enumerate() {
            let set_by = if steps { [0, 7_200_000, -86_400_000, 300][i / 100 % 4] } else { 0 };
            let mono_ms = 1000 + (at * 1000.0) as u64;
            let tick =
                Tick { seq: i as u64 + 1, at: Ts(1_790_000_000_000 + mono_ms as i64 + set_by), mono_ms };
            let leaked = (at - 1800.0).max(0.0) * 12.0 / 60.0;
            let said = detector.observe(&Observation {
                tick,
                value: Ok(bytes(2e4 + leaked + noise())),
                capacity: Ok(bytes(CARD)),
                load: Load::absent(Absent::NotSupported),
                owners: Err(Absent::NotSupported),
                peers: Err(Absent::NotSupported),
                events: &[],
            });
            let news = said.iter().filter(|event| !matches!(event, FindingEvent::Updated(_)));
            opened.extend(news.map(|event| (i, event.finding().key.kind)));
        }
        opened
    };
    let steady = told(false);
    assert!(steady.iter().any(|(_, kind)| *kind == FindingKind::Leak));
    assert_eq!(told(true), steady);
}

#[test]
fn a_leak_that_ends_resolves_and_one_whose_process_ends_too() {
    let until = |end: f64| move |at: f64| memory(at, 2e4 + (at.min(end) * 12.0 / 60.0));
    let ended = played(times().map(until(4000.0)));
    assert!(ended.latest(FindingKind::Leak).expect("it opened").resolved_at.is_some());
    let mut leaking = played(times().map(until(9e9)));
    assert_eq!(leaking.latest(FindingKind::Leak).expect("it opened").resolved_at, None);
    let last = ebbtide_core::Tick { seq: 9999, at: ebbtide_core::Ts(1), mono_ms: 90_000_000 };
    let resolved = leaking.detector.close(last);
    assert!(resolved.iter().all(|event| event.finding().resolved_at == Some(last.at)));
    assert!(resolved.iter().any(|event| event.finding().key.kind == FindingKind::Leak));
    assert!(leaking.detector.close(last).is_empty());
}

#[test]
fn what_is_not_known_is_said() {
    let mut player = Player::new(CARD);
    assert_eq!(player.detector.judgement().summary, "Nothing has been read yet.");
    player.step(0.0, Ok(bytes(2e4)), Point::default(), &[]);
    player.step(10.0, Ok(bytes(2e4)), Point::default(), &[]);
    assert_eq!(player.detector.judgement().summary, "Watched for 10 s only.");
    player.play((11..300).map(|i| memory(f64::from(i), 2e4)));
    assert_eq!(player.detector.diagnosis(), Diagnosis::Steady);
    player.step(300.0, Ok(bytes(2e4)), Point::default(), &[EventKind::ModelLoad(None)]);
    assert_eq!(player.detector.judgement().summary, "Nothing holds still: a model was loaded 0 s ago.");
    player.step(400.0, Err(Absent::DeviceLost), Point::default(), &[]);
    player.step(500.0, Err(Absent::DeviceLost), Point::default(), &[]);
    let judgement = player.detector.judgement();
    assert_eq!(judgement.summary, "No reading for 2 min: device lost.");
    assert_eq!((judgement.diagnosis, judgement.value), (Diagnosis::Inconclusive, Err(Absent::DeviceLost)));
}

#[test]
fn what_is_kept_has_a_bound_over_weeks_of_everything() {
    let mut player = Player::new(CARD);
    let (mut early, mut late) = (0, 0);
    // Three weeks, a sample each 30 s: models are loaded and unloaded, each leaks, each day ends with a restart.
    for i in 0..3 * 7 * 2880_u32 {
        let (at, day) = (f64::from(i) * 30.0, f64::from(i % 2880) / 2880.0);
        let kv = 4000.0 * (at / 900.0).fract();
        let point = Point { kv: Some(kv), pool: Some(8000.0), running: Some(1 + i % 3), ..memory(at, 0.0) };
        let used = if day < 0.01 { 500.0 } else { 2e4 + kv + 9000.0 * day };
        let events: &[EventKind] = match i % 240 {
            0 => &[EventKind::ModelUnload(None), EventKind::Sleep, EventKind::EngineExit],
            9 => &[EventKind::ModelLoad(None), EventKind::Wake, EventKind::ContainerRemoved],
            _ => &[],
        };
        player.step(at, Ok(bytes(used)), Point { used, ..point }, events);
        let most = if at < 604_800.0 { &mut early } else { &mut late };
        *most = player.detector.bytes().max(*most);
    }
    assert!(!player.said.is_empty());
    assert!(late <= early, "{late} bytes after {early} in the first week");
    assert!(late <= Detector::MOST_BYTES + WORDS, "{late} bytes");
}

/// What a handful of open findings with their evidence takes, in bytes.
const WORDS: usize = 6 * 1024;

#[test]
fn what_an_allocator_keeps_of_new_peaks_is_no_leak_in_bursts() {
    // The load of each ten minutes rises to a height of its own, in the first hours ever higher; memory keeps the highest.
    let peak = |i: f64| if i < 14.0 { 2000.0 + 300.0 * i } else { 5000.0 + 40.0 * (i % 5.0) };
    let kept = |at: f64| {
        let steps = (at / 600.0).floor();
        let late = [15_000.0, 19_000.0, 23_000.0, 27_000.0].iter().filter(|step| at >= **step).count();
        20_000.0 + peak(steps.min(13.0)) + 110.0 * late as f64
    };
    let mut noise = noise(5, 2.0);
    let player = played((0..6480).map(|i| {
        let at = f64::from(i) * 5.0;
        let load = if at % 600.0 < 300.0 { peak((at / 600.0).floor()) } else { 0.0 };
        Point { kv: Some(load), running: Some(4), ..memory(at, kept(at) + noise()) }
    }));
    let leak = player.opened(FindingKind::Leak);
    assert!(leak.is_none(), "{}", leak.map_or("", |(_, leak)| &leak.summary));
}
