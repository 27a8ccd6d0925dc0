//! The demonstration's history: weights, a KV pool that fills, a tide, and a leak behind it.

use ebbtide_core::{Diagnosis, FindingKind};

use crate::player::{Player, Point, seconds};

const CARD: f64 = 2048.0;
const SECONDS: f64 = 90.0;

/// One run: everything drawn from the seed.
struct Run {
    rng: fastrand::Rng,
    weights: f64,
    pool: f64,
    fill_s: f64,
    tide_s: f64,
    depth: f64,
    leak_from: f64,
    rate: f64,
    granule: f64,
    interval: f64,
    jitter: f64,
}

impl Run {
    fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut within = |low: f64, high: f64| low + (high - low) * rng.f64();
        let (weights, pool) = (within(300.0, 600.0), within(300.0, 700.0));
        let (fill_s, tide_s, depth) = (within(25.0, 31.0), within(4.0, 14.0), within(0.2, 0.8));
        let leak_from = within(35.0, 40.0);
        let rate = 40.0 * 10.0_f64.powf(within(0.0, 1.0));
        let granule = 2.0_f64.powf(within(-6.0, 1.0));
        let (interval, jitter) = ([0.25, 1.0][usize::from(seed % 2 == 1)], within(0.0, 0.3));
        Self { rng, weights, pool, fill_s, tide_s, depth, leak_from, rate, granule, interval, jitter }
    }

    fn kv(&self, at: f64) -> f64 {
        if at < self.fill_s {
            self.pool * at / self.fill_s
        } else {
            let phase = ((at - self.fill_s) / self.tide_s).fract();
            self.pool * (1.0 - self.depth * (1.0 - phase) * f64::from(u8::from(at > self.fill_s + 0.5)))
        }
    }

    fn leaked(&self, at: f64) -> f64 {
        ((at - self.leak_from).max(0.0) * self.rate / 60.0 / self.granule).floor() * self.granule
    }

    fn points(&mut self, with_counters: bool) -> Vec<Point> {
        let mut points = Vec::new();
        for i in 0..(SECONDS / self.interval) as u32 {
            let at = f64::from(i) * self.interval + self.rng.f64() * self.jitter * self.interval;
            let kv = self.kv(at);
            let used = self.weights + kv + self.leaked(at);
            let counter = with_counters.then_some(kv);
            let running = with_counters.then_some(if at < self.fill_s { 2 } else { 8 });
            points.push(Point { at, used, kv: counter, pool: with_counters.then_some(self.pool), running });
        }
        points
    }
}

#[test]
fn growth_is_growth_and_the_leak_is_found_with_its_rate_and_onset() {
    let (mut errors, mut onsets, mut found_at) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 0..60 {
        let mut run = Run::of(seed);
        let mut player = Player::new(CARD);
        player.play(run.points(true));
        let (growth_at, growth) = player.opened(FindingKind::Growth).expect("the pool's filling is growth");
        assert!(growth_at < run.fill_s, "seed {seed}: growth at {growth_at}");
        assert!(growth.summary.contains("KV cache"), "seed {seed}: {}", growth.summary);
        let (leak_at, _) = player.opened(FindingKind::Leak).unwrap_or_else(|| panic!("seed {seed}: no leak"));
        assert!((run.leak_from..80.0).contains(&leak_at), "seed {seed}: leak at {leak_at}");
        let leak = player.latest(FindingKind::Leak).expect("it opened");
        assert_eq!(leak.resolved_at, None, "seed {seed}");
        let rate = leak.rate.expect("a leak has a rate").rate.mib_per_min();
        errors.push((rate / run.rate - 1.0).abs());
        onsets.push((seconds(leak.onset_at.expect("a leak has an onset")) - run.leak_from).abs());
        found_at.push(leak_at - run.leak_from);
        assert_eq!(player.detector.diagnosis(), Diagnosis::Leak, "seed {seed}");
    }
    let worst = |v: &[f64]| v.iter().copied().fold(0.0, f64::max);
    println!(
        "worst rate error {:.3}, onset {:.1} s, delay {:.1} s",
        worst(&errors),
        worst(&onsets),
        worst(&found_at)
    );
    assert!(worst(&errors) < 0.2, "{errors:.3?}");
    assert!(worst(&onsets) < 8.0, "{onsets:.1?}");
}

#[test]
fn without_a_leak_the_same_run_is_never_called_one() {
    for seed in 0..60 {
        let mut run = Run::of(seed);
        run.rate = 0.0;
        let mut player = Player::new(CARD);
        player.play(run.points(true));
        assert!(player.opened(FindingKind::Leak).is_none(), "seed {seed}");
        assert!(player.opened(FindingKind::SlopeChange).is_none(), "seed {seed}");
        assert!(player.opened(FindingKind::Imminent).is_none(), "seed {seed}");
        assert_ne!(player.detector.diagnosis(), Diagnosis::Leak, "seed {seed}");
    }
}

#[test]
fn without_counters_ninety_seconds_are_too_short_to_call_a_leak() {
    for seed in 0..30 {
        let mut player = Player::new(CARD);
        player.play(Run::of(seed).points(false));
        assert!(player.opened(FindingKind::Growth).is_some(), "seed {seed}");
        assert!(player.opened(FindingKind::Leak).is_none(), "seed {seed}");
    }
}

#[test]
fn a_counter_read_a_moment_before_the_memory_serves_as_well() {
    for seed in 0..30 {
        let mut run = Run::of(seed);
        run.interval = 0.25;
        let mut points = run.points(true);
        for point in &mut points {
            let late = 0.25 * run.rng.f64();
            point.kv = Some(run.kv((point.at - late).max(0.0)));
        }
        let mut player = Player::new(CARD);
        player.play(points);
        let (leak_at, _) = player.opened(FindingKind::Leak).unwrap_or_else(|| panic!("seed {seed}: no leak"));
        assert!((run.leak_from..80.0).contains(&leak_at), "seed {seed}: leak at {leak_at}");
        let rate = player.latest(FindingKind::Leak).and_then(|leak| leak.rate).expect("a leak has a rate");
        assert!(
            (rate.rate.mib_per_min() / run.rate - 1.0).abs() < 0.2,
            "seed {seed}: {rate:?} for {}",
            run.rate
        );
    }
}
