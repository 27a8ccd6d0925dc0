//! Leaks that keep pace with something else than time: what is said of them, and what is said of their likenesses.

use crate::golden::{History, quiet, told};

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

#[test]
fn clocks_in_words() {
    let hours = |used| History { seconds: 8 * 3600, interval: 10, ..quiet(used) };
    let all = [
        told("a leak in bursts", &hours(&in_bursts)),
        told("bursts that come back", &hours(&|at| in_bursts(at.rem_euclid(7200.0) + 1800.0))),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
