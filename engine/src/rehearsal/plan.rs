//! The script of a rehearsal: what is held at each moment, as a function of the time alone.

use std::time::Duration;

use ebbtide_core::units::MIB;
use ebbtide_core::{ByteRate, Bytes};

use crate::vram::{EXTENT, whole_pages};

/// The imaginary card, and the parts of it that a healthy engine takes. Small enough for a laptop, large enough
/// that the fastest leak does not fill it within a rehearsal.
const CARD: Bytes = Bytes(2048 * MIB);
const WEIGHTS: Bytes = Bytes(256 * MIB);
const KV_POOL: Bytes = Bytes(400 * MIB);
/// Requests served at once when the pool is full.
const REQUESTS: u32 = 16;
/// Leaks are drawn log-uniformly from this range: from a slow one that 90 s can just tell, to one that fills a
/// 24 GB card within the hour.
const SLOWEST_MIB_PER_MIN: f64 = 40.0;
const FASTEST_MIB_PER_MIN: f64 = 400.0;
/// The leak begins at a moment drawn from this part of the rehearsal: after some quiet, with half of the time left.
const ONSET: std::ops::Range<f64> = 0.42..0.50;
/// Loading takes this share of the rehearsal, filling the pool goes on until a third.
const LOADED_AT: f64 = 0.03;
const FILLED_AT: f64 = 1.0 / 3.0;
/// One ebb and flow of the KV cache: two seconds at its lowest, so that a reader once a second meets each ebb.
const TIDE: Duration = Duration::from_secs(4);
/// Share of a tide that the cache stays at its lowest, and share of the pool that it keeps then.
const EBB: f64 = 0.5;
const EBB_LEVEL: f64 = 7.0 / 8.0;
/// A KV block: 16 tokens (the common block size of paged engines) of a small model at 16 KiB each.
const KV_BLOCK: Bytes = Bytes(256 << 10);
/// An extent is forgotten about this often, so that the leak is even at any sampling interval people use.
const FORGET_EVERY_S: f64 = 0.2;
/// How long a rehearsal goes on after its planned length when nobody stops it, unless its plan says otherwise.
const LINGER: Duration = Duration::from_secs(30);
/// Share of the host's free memory that a rehearsal may take.
const SHARE_OF_ROOM: f64 = 0.5;
/// Below this share of the plan's size, growth and leak are too small to be told from each other.
const SMALLEST_SCALE: f64 = 1.0 / 8.0;

/// What a rehearsal is going to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What everything random was drawn from.
    pub seed: u64,
    /// How long it is meant to last: the phases are shares of this.
    pub total: Duration,
    /// When it ends by itself; until then it leaks on.
    pub deadline: Duration,
    /// The card it imagines.
    pub card: Bytes,
    /// The most it ever holds: the card, or what a small machine can spare. A leak stops there.
    pub ceiling: Bytes,
    /// The model's weights, taken at once.
    pub weights: Bytes,
    /// The KV pool when full.
    pub kv_pool: Bytes,
    /// Requests at full load.
    pub requests: u32,
    /// The leak; `None` for a healthy engine.
    pub leak: Option<Leak>,
}

/// A leak at constant load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leak {
    /// How fast.
    pub rate: ByteRate,
    /// From when on, since the start.
    pub after: Duration,
}

/// Which part of the rehearsal is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The weights are there, nothing is served.
    Loading,
    /// Requests come, the pool fills.
    Filling,
    /// Constant load; the cache ebbs and flows.
    Serving,
    /// The same, and memory is forgotten.
    Leaking,
}

/// What is held at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scene {
    /// Which part is played.
    pub phase: Phase,
    /// KV blocks in use.
    pub kv_used: Bytes,
    /// KV pool: `kv_used` in whole extents.
    pub kv_pool: Bytes,
    /// Extents forgotten so far, each of [`Plan::leak_extent`].
    pub forgotten: u64,
    /// Requests being served.
    pub running: u32,
    /// Requests waiting: arrivals that the filling pool has no room for yet.
    pub waiting: u32,
}

impl Plan {
    /// A rehearsal of `total` with a leak drawn from `seed`.
    #[must_use]
    pub fn drawn(seed: u64, total: Duration) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let decades = (FASTEST_MIB_PER_MIN / SLOWEST_MIB_PER_MIN).log10();
        let rate = ByteRate::from_mib_per_min(SLOWEST_MIB_PER_MIN * 10f64.powf(decades * rng.f64()));
        let after = total.mul_f64(ONSET.start + (ONSET.end - ONSET.start) * rng.f64());
        Self {
            seed,
            total,
            deadline: total.saturating_add(LINGER),
            card: CARD,
            ceiling: CARD,
            weights: WEIGHTS,
            kv_pool: KV_POOL,
            requests: REQUESTS,
            leak: Some(Leak { rate, after }),
        }
    }

    /// The same engine in good health.
    #[must_use]
    pub fn without_leak(self) -> Self {
        Self { leak: None, ..self }
    }

    /// The plan scaled down so that it takes at most half of `room`; unchanged where it does already. `None` where
    /// that would leave too little to be told from noise.
    #[must_use]
    pub fn fitting(self, room: Bytes) -> Option<Self> {
        let ceiling = Bytes((room.0 as f64 * SHARE_OF_ROOM) as u64);
        let scale = ceiling.0 as f64 / self.peak().0.max(1) as f64;
        if scale >= 1.0 {
            return Some(self);
        }
        let scaled = |bytes: Bytes| Bytes((bytes.0 as f64 * scale) as u64);
        let leak = self.leak.map(|leak| Leak { rate: ByteRate(leak.rate.0 * scale), ..leak });
        let (weights, kv_pool) = (scaled(self.weights), scaled(self.kv_pool));
        (scale >= SMALLEST_SCALE).then_some(Self { ceiling, weights, kv_pool, leak, ..self })
    }

    /// What it holds at its deadline.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        let leaked = self.leak.map_or(Bytes::ZERO, |leak| {
            let longest = self.deadline.saturating_sub(leak.after);
            Bytes((leak.rate.0 * longest.as_secs_f64()) as u64)
        });
        (self.weights + self.kv_pool + leaked).min(self.ceiling)
    }

    /// Size of one forgotten extent: whole pages, at most [`EXTENT`].
    #[must_use]
    pub fn leak_extent(&self) -> Bytes {
        let even = self.leak.map_or(0.0, |leak| leak.rate.0 * FORGET_EVERY_S);
        whole_pages(Bytes(even as u64)).min(EXTENT)
    }

    /// What is held when `elapsed` has passed since the start.
    #[must_use]
    pub fn scene(&self, elapsed: Duration) -> Scene {
        let filled = self.total.mul_f64(FILLED_AT);
        let fill = self.fill_level(elapsed);
        let level = if elapsed < filled { fill } else { tide_level(elapsed.saturating_sub(filled)) };
        let kv_used = Bytes((self.kv_pool.0 as f64 * level) as u64 / KV_BLOCK.0 * KV_BLOCK.0);
        let forgotten = self.forgotten(elapsed);
        let running = (f64::from(self.requests) * fill).ceil() as u32;
        Scene {
            phase: self.phase(elapsed),
            kv_used,
            kv_pool: Bytes(kv_used.0.next_multiple_of(EXTENT.0)),
            forgotten,
            running,
            waiting: u32::from(running > 0 && running < self.requests),
        }
    }

    fn phase(&self, elapsed: Duration) -> Phase {
        if elapsed < self.total.mul_f64(LOADED_AT) {
            Phase::Loading
        } else if elapsed < self.total.mul_f64(FILLED_AT) {
            Phase::Filling
        } else if self.leak.is_none_or(|leak| elapsed < leak.after) {
            Phase::Serving
        } else {
            Phase::Leaking
        }
    }

    /// How far the pool has been filled for the first time, 0 to 1.
    fn fill_level(&self, elapsed: Duration) -> f64 {
        let loaded = self.total.mul_f64(LOADED_AT);
        let filled = self.total.mul_f64(FILLED_AT);
        let span = filled.saturating_sub(loaded).as_secs_f64();
        if elapsed >= filled || span <= 0.0 {
            return 1.0;
        }
        elapsed.saturating_sub(loaded).as_secs_f64() / span
    }

    /// As many whole extents as the leak's rate makes by now, no more than the ceiling has room for.
    fn forgotten(&self, elapsed: Duration) -> u64 {
        let Some(leak) = self.leak else { return 0 };
        let leaked = leak.rate.0 * elapsed.saturating_sub(leak.after).as_secs_f64();
        let pool = Bytes(self.kv_pool.0.next_multiple_of(EXTENT.0));
        let room = self.ceiling.saturating_sub(whole_pages(self.weights) + pool);
        (leaked as u64).min(room.0) / self.leak_extent().0
    }
}

/// How full the pool is at constant load: it ebbs to a fixed level, stays, and is filled again.
fn tide_level(serving: Duration) -> f64 {
    let tide = TIDE.as_secs_f64();
    let at = serving.as_secs_f64() % tide / tide;
    let flow = ((at - EBB) / (1.0 - EBB)).max(0.0);
    EBB_LEVEL + (1.0 - EBB_LEVEL) * flow
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn ninety_seconds_go_through_every_phase() {
        let plan = Plan::drawn(1, Duration::from_secs(90));
        let at = |s: f64| plan.scene(seconds(s));
        assert_eq!((at(0.0).phase, at(0.0).kv_used, at(0.0).running), (Phase::Loading, Bytes(0), 0));
        assert_eq!(at(16.0).phase, Phase::Filling);
        assert!(at(16.0).running > 0 && at(16.0).running < REQUESTS && at(16.0).waiting == 1);
        let full = at(29.9).kv_used;
        assert!(full > Bytes::from_mib(390), "{full}");
        assert_eq!((at(31.0).phase, at(31.0).kv_used), (Phase::Serving, Bytes::from_mib(350)));
        assert!(at(33.9).kv_used > Bytes::from_mib(395));
        assert_eq!((at(60.0).phase, at(60.0).running, at(60.0).waiting), (Phase::Leaking, REQUESTS, 0));
    }

    #[test]
    fn rates_are_spread_over_the_decade() {
        let rates: Vec<f64> = (0..400)
            .filter_map(|seed| Plan::drawn(seed, Duration::from_secs(90)).leak)
            .map(|leak| leak.rate.mib_per_min())
            .collect();
        assert!(rates.iter().all(|r| (SLOWEST_MIB_PER_MIN..=FASTEST_MIB_PER_MIN).contains(r)));
        let slow = rates.iter().filter(|r| **r < 126.5).count();
        assert!((150..250).contains(&slow), "half lie below the geometric mean, got {slow} of 400");
    }

    #[test]
    fn a_small_machine_gets_a_small_rehearsal_or_none() {
        let plan = Plan::drawn(1, Duration::from_secs(90));
        assert_eq!(plan.clone().fitting(Bytes(plan.peak().0 * 2)), Some(plan.clone()));
        let half = plan.clone().fitting(plan.peak()).unwrap();
        assert!(half.peak() <= Bytes(plan.peak().0 / 2 + MIB), "{} of {}", half.peak(), plan.peak());
        assert_eq!(half.leak.map(|l| l.after), plan.leak.map(|l| l.after));
        let endless = Plan { deadline: Duration::from_secs(86_400), ..plan.clone() };
        let room = Bytes::from_mib(2048);
        let spared = endless.fitting(room).unwrap();
        let scene = spared.scene(Duration::from_secs(86_399));
        let held = spared.weights.0 + spared.kv_pool.0 + spared.leak_extent().0 * scene.forgotten;
        assert!(
            (room.0 * 49 / 100..=room.0 / 2).contains(&held),
            "it stops at half of the room: {}",
            Bytes(held)
        );
        assert_eq!(plan.fitting(Bytes::from_mib(64)), None);
    }

    proptest! {
        #[test]
        fn every_scene_fits_its_card_and_keeps_its_rate(
            seed in any::<u64>(), total in 5.0..7200.0f64, at in 0.0..1.2f64, later in 0.0..1.0f64,
        ) {
            let plan = Plan::drawn(seed, seconds(total));
            let elapsed = seconds(total * at);
            let scene = plan.scene(elapsed);
            prop_assert_eq!(scene, plan.scene(elapsed));
            prop_assert!(scene.kv_used <= scene.kv_pool && scene.kv_pool <= plan.kv_pool);
            prop_assert!(scene.running <= plan.requests);
            let leaked = plan.leak_extent().0 * scene.forgotten;
            prop_assert!(plan.weights.0 + scene.kv_pool.0 + leaked <= plan.ceiling.0);
            let leak = plan.leak.unwrap();
            let due = leak.rate.0 * elapsed.saturating_sub(leak.after).as_secs_f64();
            let room = plan.ceiling.0 - plan.weights.0 - plan.kv_pool.0;
            prop_assert!((due.min(room as f64) - leaked as f64).abs() <= plan.leak_extent().0 as f64);
            let next = plan.scene(elapsed + seconds(later));
            prop_assert!(next.forgotten >= scene.forgotten, "what is forgotten is never found again");
            if scene.phase == Phase::Leaking {
                prop_assert_eq!(scene.running, next.running, "a leak is judged at constant load");
            }
            let healthy = plan.without_leak();
            prop_assert_eq!(healthy.scene(elapsed), Scene { forgotten: 0, phase: healthy.phase(elapsed), ..scene });
        }
    }
}
