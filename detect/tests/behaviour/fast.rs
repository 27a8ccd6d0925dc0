//! Evidence scales with the rate: a fast leak is called in minutes without any counter, and what only looks like one
//! for minutes is not.

use ebbtide_core::FindingKind;

use crate::player::{Player, Point};

/// A card of 80 GiB.
const CARD: f64 = 81_559.0;
/// The calm before anything happens, in seconds.
const CALM: f64 = 1800.0;

/// Half an hour of calm at 30 GiB, then `grown(seconds since)` on top, in granules; 1 Hz with noise of 4 MiB.
fn after_calm(seed: u64, seconds: u32, granule: f64, grown: impl Fn(f64) -> f64) -> Player {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut player = Player::new(CARD);
    player.play((0..seconds).map(|i| {
        let at = f64::from(i);
        let grown = if at < CALM { 0.0 } else { (grown(at - CALM) / granule).floor() * granule };
        Point { at, used: 30_000.0 + grown + 4.0 * rng.f64(), ..Point::default() }
    }));
    player
}

/// Minutes from the onset until a leak was called, and the error of its rate then.
fn called(player: &Player, rate: f64) -> Option<(f64, f64)> {
    let (at, leak) = player.opened(FindingKind::Leak)?;
    let told = leak.rate.expect("a leak has a rate").rate.mib_per_min();
    Some(((at - CALM) / 60.0, (told / rate - 1.0).abs()))
}

#[test]
fn a_fast_leak_out_of_calm_is_called_in_minutes() {
    for (rate, granule, minutes) in
        [(240.0, 2.0, 8.0), (1000.0, 2.0, 8.0), (240.0, 20.0, 10.0), (120.0, 2.0, 10.0), (60.0, 2.0, 20.0)]
    {
        for seed in 0..2 {
            let player = after_calm(seed, 4200, granule, |t| rate * t / 60.0);
            let (after, error) =
                called(&player, rate).unwrap_or_else(|| panic!("{rate} MiB/min is not called"));
            assert!(after <= minutes, "{rate} MiB/min in granules of {granule}: called after {after:.1} min");
            assert!(error < 0.05, "{rate} MiB/min: rate off by {error:.3}");
        }
    }
}

#[test]
fn equal_steps_are_a_leak_too() {
    for (period, step, minutes) in [(10.0, 40.0, 10.0), (30.0, 160.0, 20.0), (60.0, 240.0, 35.0)] {
        let player = after_calm(1, 5400, 2.0, |t| (t / period).floor() * step);
        let (after, error) = called(&player, step / period * 60.0)
            .unwrap_or_else(|| panic!("steps each {period} s are not called"));
        assert!(after <= minutes, "steps each {period} s: called after {after:.1} min");
        assert!(error < 0.1, "steps each {period} s: rate off by {error:.3}");
    }
}

#[test]
fn graphs_that_are_captured_after_calm_are_no_leak() {
    for (graphs, each, pause) in [(60.0, 72.0, 4.5), (40.0, 110.0, 6.0), (60.0, 120.0, 3.0)] {
        let player = after_calm(3, 4200, 2.0, |t| (t / pause).floor().min(graphs) * each);
        let called = player.opened(FindingKind::Leak).or_else(|| player.opened(FindingKind::Imminent));
        assert!(
            called.is_none(),
            "{graphs} graphs of {each} MiB: {}",
            called.map_or("", |(_, f)| &f.summary)
        );
    }
}

#[test]
fn what_levels_off_after_calm_is_no_leak() {
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(1000 + seed);
        let (total, tau) = (200.0 + 5800.0 * rng.f64(), 240.0 + 4000.0 * rng.f64());
        let granule = if rng.bool() { 2.0 } else { 20.0 };
        let player = after_calm(seed, 7200, granule, |t| total * (1.0 - (-t / tau).exp()));
        let leak = player.opened(FindingKind::Leak);
        assert!(
            leak.is_none(),
            "{total:.0} MiB with tau {tau:.0} s: {}",
            leak.map_or("", |(_, leak)| &leak.summary)
        );
        assert!(player.opened(FindingKind::Imminent).is_none(), "{total:.0} MiB with tau {tau:.0} s");
    }
}

#[test]
fn weights_that_stream_in_are_neither_a_leak_nor_the_end() {
    for (amount, seconds) in [(40_000.0, 60.0), (40_000.0, 280.0), (60_000.0, 200.0)] {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut player = Player::new(CARD);
        player.play((0..3600).map(|i| {
            let at = f64::from(i);
            let loaded = amount * ((at - CALM) / seconds).clamp(0.0, 1.0);
            Point { at, used: 500.0 + loaded + 4.0 * rng.f64(), ..Point::default() }
        }));
        for kind in [FindingKind::Leak, FindingKind::SlopeChange, FindingKind::Imminent] {
            assert!(player.opened(kind).is_none(), "{amount} MiB in {seconds} s: {kind:?}");
        }
    }
}

#[test]
fn growth_that_fills_the_card_is_imminent_while_there_is_room() {
    for minutes in [4.0, 10.0, 30.0, 60.0] {
        let room = CARD - 30_000.0;
        let player = after_calm(2, (CALM + 60.0 * minutes) as u32, 2.0, |t| room * t / (60.0 * minutes));
        let first =
            [FindingKind::Leak, FindingKind::Imminent].map(|kind| player.opened(kind).map(|(at, _)| at));
        let at = first.into_iter().flatten().fold(f64::INFINITY, f64::min);
        let left = 1.0 - (at - CALM) / (60.0 * minutes);
        assert!(
            left >= if minutes <= 10.0 { 0.4 } else { 0.75 },
            "full in {minutes} min: {left:.2} left at the alert"
        );
        // However much of the card it has taken since, it is still told when the card is full.
        let stands = [FindingKind::Leak, FindingKind::Imminent]
            .map(|kind| player.latest(kind).is_some_and(|finding| finding.resolved_at.is_none()));
        assert!(stands.contains(&true), "full in {minutes} min: nothing stands at the end");
    }
}

#[test]
fn what_multiplies_for_longer_than_weights_take_to_stream_in_is_a_leak() {
    let (rate, mut rng) = (8400.0, fastrand::Rng::with_seed(4));
    let mut player = Player::new(CARD);
    player.play((0..2300).map(|i| {
        let at = f64::from(i);
        let grown = rate * (at - CALM).max(0.0) / 60.0;
        Point { at, used: 9000.0 + grown + 4.0 * rng.f64(), ..Point::default() }
    }));
    let (after, error) = called(&player, rate).expect("no load takes eight minutes");
    assert!(after > 6.0 && error < 0.05, "called after {after:.1} min, rate off by {error:.3}");
}
