//! What the demo's engine is going to do: a load that fills its cache and then stays the same, and a leak.

use std::fmt::Write;

use ebbtide_core::{ByteRate, Bytes};
use ebbtide_engine::room;

/// Size of the imaginary card: small enough for a laptop, large enough that the fastest leak does not fill it within
/// the story.
pub(super) const CARD: Bytes = Bytes(2048 << 20);
/// Four layers of 32 heads of 128: two bytes each for keys and values make 64 KiB a token, an eighth of Llama-2-7B.
/// The weights, at 8 bits and a sixteenth, take 47 MiB.
const GEOMETRY: &str = "layers=4,heads=32,kv_heads=32,head_dim=128,hidden=512,ffn=2048,context=1024";
const WEIGHTS: Bytes = Bytes(48 << 20);
/// Room for every request at its greatest length, at 64 KiB a token, so that nobody ever gives way.
const POOL_MIB: u64 = 384;
/// Requests at once.
const REQUESTS: u32 = 16;
/// Steps a second: what one core of a laptop does in a fifth of its time.
const PACE: u32 = 8;
/// Tokens of a prompt.
const PROMPT: u32 = 32;
/// Requests come one after the other for so long at most, until as many run as there will be; a third of the story
/// where that is shorter. Each is answered just as long.
const FILLING_S: u64 = 30;
/// Leaks are drawn log-uniformly from this range, in MiB a minute: from a slow one that 90 s can just tell, to one that
/// fills a 24 GB card within the hour.
const RATES: std::ops::Range<f64> = 40.0..400.0;
/// The leak begins at a moment drawn from this part of the story: after some quiet, with half of the time left.
const ONSET: std::ops::Range<f64> = 0.42..0.50;

/// The engine's part, drawn from a seed. The daemon is told nothing of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    seconds: u64,
    seed: u64,
    /// How fast it leaks.
    pub(super) rate: ByteRate,
    /// From when on, after the load has begun.
    pub(super) after_s: u64,
}

impl Plan {
    pub(super) fn drawn(seed: u64, seconds: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let decades = (RATES.end / RATES.start).log10();
        let rate = ByteRate::from_mib_per_min(RATES.start * 10f64.powf(decades * random.f64()));
        let share = ONSET.start + (ONSET.end - ONSET.start) * random.f64();
        Self { seconds, seed, rate, after_s: (seconds as f64 * share) as u64 }
    }

    /// What it holds at the end of the story.
    fn peak(&self) -> Bytes {
        let leaked = self.rate.0 * self.seconds.saturating_sub(self.after_s) as f64;
        WEIGHTS + Bytes::from_mib(POOL_MIB) + Bytes(leaked as u64)
    }

    /// The most that the leak may take beside weights and pool: what is left of the card, and of half of what the
    /// machine can spare.
    ///
    /// # Errors
    /// Where the story would not fit into that half.
    pub(super) fn most(&self, room: Option<Bytes>) -> anyhow::Result<Bytes> {
        let half = room.map_or(CARD, |room| Bytes(room.0 / 2));
        let peak = self.peak();
        anyhow::ensure!(
            half >= peak,
            "the demo takes about {peak} of host memory, and no more than half of the {} that this machine can spare; free some memory, or raise the memory limit of this cgroup",
            room.unwrap_or_default()
        );
        Ok(half.min(CARD).saturating_sub(WEIGHTS + Bytes::from_mib(POOL_MIB)))
    }

    /// What the engine is told, but for files.
    pub(super) fn arguments(&self) -> anyhow::Result<Vec<String>> {
        let most = self.most(room::available())?;
        let arguments = [
            ("--geometry", GEOMETRY.to_owned()),
            ("--pool-mib", POOL_MIB.to_string()),
            ("--running", REQUESTS.to_string()),
            ("--pace", PACE.to_string()),
            ("--seed", self.seed.to_string()),
            ("--inject", format!("scratch:{}", self.leaked_a_minute().0)),
            ("--inject-after", self.after_s.to_string()),
            ("--inject-most-mib", (most.mib() as u64).to_string()),
        ];
        Ok(arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect())
    }

    fn leaked_a_minute(&self) -> Bytes {
        Bytes((self.rate.0 * 60.0).round() as u64)
    }

    /// The load, as `ebbtide engine --load script:` takes it: requests at even distances, each of which is answered for
    /// as long as it takes until as many run as there will be. From then on one comes as another one ends.
    pub(super) fn script(&self) -> String {
        let filling = FILLING_S.min(self.seconds / 3);
        let mut script = String::new();
        for request in 0..REQUESTS {
            let at = filling as f64 * f64::from(request) / f64::from(REQUESTS);
            // Writing to a String cannot fail.
            let _ = writeln!(script, "{at:.3} {PROMPT} {} {request}", filling * u64::from(PACE));
        }
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_spread_over_the_decade_and_begin_when_there_is_time_left() {
        let plans: Vec<Plan> = (0..400).map(|seed| Plan::drawn(seed, 90)).collect();
        assert!(plans.iter().all(|plan| RATES.contains(&plan.rate.mib_per_min())));
        assert!(plans.iter().all(|plan| (37..=45).contains(&plan.after_s)));
        let slow = plans.iter().filter(|plan| plan.rate.mib_per_min() < 126.5).count();
        assert!((150..250).contains(&slow), "half lie below the geometric mean, got {slow} of 400");
        assert_eq!(Plan::drawn(7, 90), plans[7]);
    }

    #[test]
    fn a_leak_stops_at_the_card_and_a_machine_without_room_is_told_how_much_it_takes() {
        let plan = Plan::drawn(3, 90);
        let beside = WEIGHTS + Bytes::from_mib(POOL_MIB);
        assert_eq!(plan.most(None).unwrap(), CARD.saturating_sub(beside));
        assert_eq!(plan.most(Some(Bytes(64 << 30))).unwrap(), CARD.saturating_sub(beside));
        let room = Bytes(plan.peak().0 * 2 + 2);
        assert_eq!(plan.most(Some(room)).unwrap(), Bytes(room.0 / 2).saturating_sub(beside));
        let error = plan.most(Some(plan.peak())).unwrap_err().to_string();
        assert!(error.contains(&plan.peak().to_string()) && error.contains("free some"), "{error}");
    }

    #[test]
    fn as_many_run_as_there_is_room_for() {
        for seconds in [60, 90, 3600] {
            let script = Plan::drawn(1, seconds).script();
            let rows: Vec<Vec<f64>> = script
                .lines()
                .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
                .collect();
            assert_eq!(rows.len(), REQUESTS as usize);
            let tokens = rows[0][1] + rows[0][2];
            assert!(tokens <= 1024.0 && f64::from(REQUESTS) * (tokens + 16.0) / 16.0 <= POOL_MIB as f64);
            let gap = rows[1][0] - rows[0][0];
            let life = rows[0][2] / f64::from(PACE);
            assert!((life / gap - f64::from(REQUESTS)).abs() < 0.01, "one ends as another comes");
        }
    }
}
