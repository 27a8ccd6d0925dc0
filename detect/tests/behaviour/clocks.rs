//! Leaks that keep pace with something else than time: what is said of them, and what is said of their likenesses.

use std::f64::consts::TAU;

use ebbtide_detect::Load;

use crate::golden::{History, load, quiet, told};

/// Uneven heights at uneven times, ten in four hours, in seconds and MiB.
const BURSTS: [(f64, f64); 16] = [
    (1900.0, 120.0),
    (2500.0, 40.0),
    (4600.0, 210.0),
    (5900.0, 60.0),
    (6300.0, 90.0),
    (8900.0, 180.0),
    (10_400.0, 70.0),
    (11_100.0, 130.0),
    (13_000.0, 50.0),
    (14_800.0, 220.0),
    (15_300.0, 80.0),
    (17_400.0, 100.0),
    (18_800.0, 160.0),
    (20_600.0, 60.0),
    (21_400.0, 140.0),
    (23_000.0, 90.0),
];

fn in_bursts(at: f64) -> f64 {
    30_000.0 + BURSTS.iter().filter(|(when, _)| at >= *when).map(|(_, height)| height).sum::<f64>()
}

/// Requests finished by then, 1.2 a second in the middle of a day that begins at noon: ever fewer until midnight.
fn finished(at: f64) -> f64 {
    let day = 86_400.0;
    at + 0.8 * day / TAU * (TAU * at / day).sin()
}

/// Each request holds KV cache for a while; what comes and goes is told.
fn tide(at: f64) -> f64 {
    1000.0 * (at / 90.0).fract()
}

fn serving(at: f64) -> Load {
    Load { served: Ok(finished(at) as u64), ..load(tide(at), 8000.0, 8) }
}

/// Three quarters of an hour of work, then a quarter of rest; the load differs from minute to minute.
fn shift(at: f64) -> f64 {
    if at % 3600.0 < 2700.0 { 0.6 + 0.4 * (at / 70.0).sin() * (at / 411.0).cos() } else { 0.0 }
}

/// Seconds of work so far.
fn worked(at: f64) -> f64 {
    (at / 3600.0).floor() * 2700.0 + (at % 3600.0).min(2700.0)
}

/// Only the number of requests is told.
fn shifts(at: f64, most: u32) -> Load {
    let running = if shift(at) > 0.0 { most } else { 0 };
    Load { running: Ok(running), ..Load::absent(ebbtide_core::Absent::NotSupported) }
}

/// A model is there for 20 min of each hour, never the same twice in a row.
fn swapped(at: f64) -> f64 {
    20_000.0 + if at % 3600.0 < 1200.0 { 8000.0 + 1500.0 * ((at / 3600.0).floor() % 3.0) } else { 0.0 }
}

#[test]
fn clocks_in_words() {
    let hours = |used| History { seconds: 8 * 3600, interval: 10, ..quiet(used) };
    let all = [
        told("a leak in bursts", &hours(&in_bursts)),
        told(
            "a leak with each request, towards the night",
            &History { load: &serving, ..hours(&|at| 30_000.0 + tide(at) + 0.015 * finished(at)) },
        ),
        told(
            "a leak over time, towards the night",
            &History { load: &serving, ..hours(&|at| 30_000.0 + tide(at) + 0.02 * at) },
        ),
        told("no leak, towards the night", &History { load: &serving, ..hours(&|at| 30_000.0 + tide(at)) }),
        told("stairs", &quiet(&|at| 30_000.0 + 300.0 * ((at - 900.0) / 540.0).floor().max(0.0))),
        told(
            "stairs that end",
            &quiet(&|at| 30_000.0 + 300.0 * ((at - 900.0) / 540.0).floor().clamp(0.0, 2.0)),
        ),
        told(
            "stairs of other heights",
            &quiet(&|at| 30_000.0 + 40.0 * ((at - 900.0) / 540.0).floor().max(0.0).powi(2)),
        ),
        told(
            "a leak that shows at rest",
            &History {
                load: &|at| shifts(at, 8),
                ..hours(&|at| 30_000.0 + shift(at) * 9000.0 + worked(at) / 60.0)
            },
        ),
        told(
            "no leak at rest",
            &History { load: &|at| shifts(at, 8), ..hours(&|at| 30_000.0 + shift(at) * 9000.0) },
        ),
        told("models that swap, and a leak", &hours(&|at| swapped(at) + at / 60.0)),
        told("models that swap", &hours(&swapped)),
        told("bursts that come back", &hours(&|at| in_bursts(at.rem_euclid(7200.0) + 1800.0))),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn samples_that_are_far_apart_make_no_stairs_of_a_ramp_or_of_shards() {
    let is_stairs = |history: &History<'_>| told("", history).contains("something that happens");
    for interval in [1, 10, 60, 300] {
        let ramp = |at: f64| 30_000.0 + 100.0 * (at / 60.0);
        assert!(!is_stairs(&History { seconds: 100 * interval, interval, ..quiet(&ramp) }), "{interval} s");
    }
    let shards = |at: f64| 600.0 + 5000.0 * (at / 100.0).floor().min(8.0);
    assert!(!is_stairs(&quiet(&shards)), "weights in shards");
    let captured = |at: f64| 30_000.0 + 100.0 * ((at - 600.0) / 5.0).floor().clamp(0.0, 60.0);
    assert!(!is_stairs(&quiet(&captured)), "graph capture");
    let stairs = |at: f64| 30_000.0 + 300.0 * (at / 600.0).floor();
    assert!(is_stairs(&History { seconds: 7200, interval: 30, ..quiet(&stairs) }));
}

#[test]
fn what_a_late_counter_leaves_of_a_load_is_no_growth_over_work() {
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        // Requests that come and go at random, their cache read up to ten seconds late.
        let (mut held, mut served) = (0.0, 0.0);
        let course: Vec<(f64, f64)> = (0..6 * 3600)
            .map(|_| {
                held = held * 0.98 + if rng.f64() < 0.03 { 400.0 * rng.f64() } else { 0.0 };
                served += 2.0 * rng.f64();
                (held, served)
            })
            .collect();
        let late = |at: f64| course[at as usize / 10 * 10];
        let load = |at: f64| {
            let (held, served) = late(at);
            Load { served: Ok(served as u64), ..load(held, 8000.0, (held / 50.0) as u32) }
        };
        let used = |at: f64| 30_000.0 + course[at as usize].0;
        for interval in [1, 5, 30] {
            let said = told("", &History { seconds: 6 * 3600, interval, load: &load, ..quiet(&used) });
            let is_blamed = said.contains("not yet judged") || said.contains("leak:");
            assert!(!is_blamed, "seed {seed}, {interval} s: {said}");
        }
    }
}

#[test]
fn load_that_nobody_tells_swells_and_a_leak_beside_it_does_not() {
    // What a few requests of 400 MiB or so hold swings with the square root of their number.
    let held = |at: f64, number: f64| {
        let swing: f64 = [97.0, 41.0, 23.0].iter().map(|period| (TAU * at / period).sin()).sum();
        30_000.0 + 400.0 * (number + 1.5 * swing * number.sqrt())
    };
    let risen = |at: f64| 9.0 * at / 28_800.0;
    let told = |used| told("", &History { seconds: 8 * 3600, interval: 10, ..quiet(used) });
    let (tide, leak) = (told(&|at| held(at, 6.0 + risen(at))), told(&|at| held(at, 6.0) + 400.0 * risen(at)));
    assert!(!tide.contains("leak: Rising"), "{tide}");
    assert!(leak.contains("leak: Rising"), "{leak}");
}
