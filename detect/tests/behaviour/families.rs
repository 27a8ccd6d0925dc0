//! Families of eight-hour histories at 1 Hz, with and without a leak: the detector's precision and recall over them.
//! Requests have the lengths of the Azure LLM inference trace of 2023 (CC BY 4.0), as log-normal fits.

use ebbtide_core::{Bytes, FindingEvent, FindingKind};

use crate::player::{Player, Point};

const SECONDS: usize = 8 * 3600;
const CARD: f64 = 81_559.0;

/// One history and the truth about it.
struct Trace {
    used: Vec<f64>,
    kv: Option<Vec<f64>>,
    running: Option<Vec<f64>>,
    /// When the leak begins, in seconds.
    onset: Option<f64>,
    /// At which pace, in MiB a minute.
    rate: f64,
    /// When the pace doubles.
    doubling: Option<f64>,
}

struct Dice(fastrand::Rng);

impl Dice {
    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.f64()
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.0.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.0.f64()).cos()
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.0.f64()).ln()
    }

    fn choice<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.usize(..of.len())]
    }

    fn second(&mut self, low: f64, high: f64) -> f64 {
        self.within(low, high).floor()
    }
}

/// Adds something from one second on.
fn from(series: &mut [f64], at: f64, what: impl Fn(f64) -> f64) {
    for (i, value) in series.iter_mut().enumerate().skip(at.max(0.0) as usize) {
        *value += what(i as f64 - at);
    }
}

fn granules(amount: f64, granule: f64) -> f64 {
    (amount / granule).floor() * granule
}

/// Base load, correlated noise, and short spikes.
fn quiet(dice: &mut Dice) -> Vec<f64> {
    let (base, sd) = (dice.within(16_000.0, 34_000.0), dice.choice(&[0.0, 1.0, 4.0]));
    let spikes = dice.choice(&[0.0, 0.002, 0.01]);
    let (mut noise, mut left, mut height) = (0.0, 0, 0.0);
    (0..SECONDS)
        .map(|_| {
            noise = 0.6 * noise + 0.8 * sd * dice.normal();
            if dice.0.f64() < spikes {
                (left, height) = (dice.0.u32(1..6), dice.within(2.0, 64.0));
            }
            left = u32::saturating_sub(left, 1);
            base + noise + if left > 0 { height } else { 0.0 }
        })
        .collect()
}

/// A caching allocator's warm-up: steps whose rate decays.
fn warm_up(series: &mut [f64], dice: &mut Dice, total: f64, tau: f64) {
    let mut sum = 0.0;
    while sum < total {
        let (at, step) = (dice.exponential(tau), dice.within(8.0, 200.0));
        from(series, at.floor(), |_| 2.0 * (step / 2.0).ceil());
        sum += step;
    }
}

/// KV cache in MiB and running requests of a server that gets `mean` requests at once.
fn requests(dice: &mut Dice, mean: f64, is_chat: bool) -> (Vec<f64>, Vec<f64>) {
    let mib_per_token = dice.choice(&[0.031_25, 0.125, 0.312_5]);
    let (prompt, reply, pace) =
        if is_chat { ((6.63, 0.985), (5.02, 0.859), 40.0) } else { ((6.9, 0.9), (8.3, 0.8), 35.0) };
    let lasting = f64::exp(reply.0 + 0.5 * reply.1 * reply.1) / pace;
    let (mut kv, mut running) = (vec![0.0; SECONDS], vec![0.0; SECONDS]);
    let mut at = 0.0;
    loop {
        at += dice.exponential(lasting / mean);
        if at >= SECONDS as f64 {
            return (kv, running);
        }
        let tokens = (prompt.0 + prompt.1 * dice.normal()).exp().clamp(2.0, 16_000.0);
        let generated = (reply.0 + reply.1 * dice.normal()).exp().clamp(7.0, 32_000.0);
        let end = SECONDS.min((at + (generated / pace).max(1.0)) as usize + 1);
        for second in at as usize..end {
            kv[second] += (tokens + (second as f64 - at).max(0.0) * pace) * mib_per_token;
            running[second] += 1.0;
        }
    }
}

/// Memory of an engine that allocates on demand; its counter is scraped each 1, 2 or 5 s, up to 2 s late.
fn on_demand(dice: &mut Dice, mean: f64, is_chat: bool) -> Trace {
    let (kv, running) = requests(dice, mean, is_chat);
    let kv: Vec<f64> = kv.into_iter().map(|kv| kv.min(40_000.0)).collect();
    let each = dice.within(0.0, 4.0);
    let mut used = quiet(dice);
    for (i, used) in used.iter_mut().enumerate() {
        *used += kv[i] + each * running[i];
    }
    Trace { kv: Some(scraped(dice, &kv)), running: Some(running), ..plain(used) }
}

fn scraped(dice: &mut Dice, kv: &[f64]) -> Vec<f64> {
    let (interval, lag) = (dice.choice(&[1, 2, 5]), dice.0.usize(0..3));
    (0..SECONDS).map(|i| kv[(i / interval * interval).saturating_sub(lag)]).collect()
}

fn plain(used: Vec<f64>) -> Trace {
    Trace { used, kv: None, running: None, onset: None, rate: 0.0, doubling: None }
}

fn sawtooth(dice: &mut Dice) -> Trace {
    let mean = dice.within(0.3, 2.5);
    on_demand(dice, mean, false)
}

fn batch_ramps(dice: &mut Dice) -> Trace {
    let (period, top) = (dice.second(1200.0, 3600.0), dice.within(4000.0, 24_000.0));
    let (share, phase, each) = (dice.within(0.3, 0.9), dice.0.f64(), dice.within(0.0, 4.0));
    let kv: Vec<f64> = (0..SECONDS)
        .map(|i| (i as f64 / period + phase).fract())
        .map(|at| if at < share { top * at / share } else { 0.0 })
        .collect();
    let running: Vec<f64> = kv.iter().map(|kv| if *kv > 0.0 { 8.0 } else { 0.0 }).collect();
    let mut used = quiet(dice);
    for (i, used) in used.iter_mut().enumerate() {
        *used += kv[i] + each * running[i];
    }
    Trace { kv: Some(scraped(dice, &kv)), running: Some(running), ..plain(used) }
}

fn restarts(dice: &mut Dice) -> Trace {
    let mut used = quiet(dice);
    warm_up(&mut used, dice, 1500.0, 600.0);
    for _ in 0..dice.0.u32(1..4) {
        let at = dice.second(3600.0, SECONDS as f64 - 3600.0) as usize;
        let (down, loading) = (dice.0.usize(20..90), dice.0.usize(30..120));
        for i in 0..down + loading {
            let share = if i < down { 0.0 } else { (i - down) as f64 / loading as f64 };
            used[at + i] *= 0.02 + 0.98 * share;
        }
        let more = dice.within(200.0, 1500.0);
        from(&mut used, (at + down + loading) as f64, |t| more * (1.0 - (-t / 600.0).exp()));
    }
    plain(used)
}

fn leaking(mut trace: Trace, onset: f64, rate: f64, granule: f64) -> Trace {
    from(&mut trace.used, onset, |t| granules(rate * t / 60.0, granule));
    Trace { onset: Some(onset), rate, ..trace }
}

/// A caching allocator that keeps the highest it ever needed.
fn high_water(dice: &mut Dice) -> Trace {
    let mean = dice.within(4.0, 25.0);
    let (kv, running) = requests(dice, mean, true);
    let mut used = quiet(dice);
    let mut highest = 0.0_f64;
    for (i, used) in used.iter_mut().enumerate() {
        highest = highest.max(kv[i]);
        *used += (highest * 1.04 / 20.0).ceil() * 20.0;
    }
    Trace { kv: Some(scraped(dice, &kv)), running: Some(running), ..plain(used) }
}

fn saturating(dice: &mut Dice) -> Trace {
    let (at, total, tau) = (dice.second(0.0, 5400.0), dice.within(500.0, 6000.0), dice.within(900.0, 4200.0));
    let mut used = quiet(dice);
    from(&mut used, at, |t| granules(total * (1.0 - (-t / tau).exp()), 20.0));
    plain(used)
}

fn warming(dice: &mut Dice) -> Trace {
    let mut used = quiet(dice);
    let (total, tau) = (dice.within(800.0, 6000.0), dice.within(240.0, 1500.0));
    warm_up(&mut used, dice, total, tau);
    plain(used)
}

fn steps(dice: &mut Dice) -> Trace {
    let mut used = quiet(dice);
    for _ in 0..dice.0.u32(1..3) {
        let (at, step) = (dice.second(1800.0, SECONDS as f64 - 1800.0), dice.within(64.0, 2048.0));
        from(&mut used, at, |_| step);
    }
    plain(used)
}

fn leak_behind_sawtooth(dice: &mut Dice) -> Trace {
    let (onset, rate) = (dice.within(0.3, 0.55) * SECONDS as f64, dice.within(0.0, 4.0).exp2());
    let granule = dice.choice(&[2.0, 20.0]);
    leaking(sawtooth(dice), onset.floor(), rate, granule)
}

fn doubling_leak(dice: &mut Dice) -> Trace {
    let (at, rate) = ((dice.within(0.4, 0.6) * SECONDS as f64).floor(), dice.within(0.0, 3.0).exp2());
    let trace = leaking(plain(quiet(dice)), 0.0, rate, 2.0);
    Trace { doubling: Some(at), onset: Some(0.0), ..leaking(trace, at, rate, 2.0) }
}

fn fast_leak(dice: &mut Dice) -> Trace {
    let (onset, rate) = ((dice.within(0.3, 0.6) * SECONDS as f64).floor(), dice.within(64.0, 256.0));
    let trace = if dice.0.bool() { plain(quiet(dice)) } else { sawtooth(dice) };
    leaking(trace, onset, rate, 2.0)
}

type Family = (&'static str, fn(&mut Dice) -> Trace);

const FAMILIES: [Family; 12] = [
    ("N01 plateau", |dice| plain(quiet(dice))),
    ("N02 warm-up", warming),
    ("N03 KV sawtooth", sawtooth),
    ("N04 batch ramps", batch_ramps),
    ("N06 one or two steps", steps),
    ("N07 saturating", saturating),
    ("N08 restarts", restarts),
    ("N11 high water", high_water),
    ("P01 1 MiB/min", |dice| leaking(plain(quiet(dice)), 0.0, 1.0, 2.0)),
    ("P02 leak behind sawtooth", leak_behind_sawtooth),
    ("P03 pace doubles", doubling_leak),
    ("P09 fast leak", fast_leak),
];

fn play(trace: &Trace) -> Player {
    let mut player = Player::new(CARD);
    for i in 0..SECONDS {
        let used = ((trace.used[i] / 2.0).ceil() * 2.0).clamp(0.0, CARD);
        let kv = trace.kv.as_ref().map(|kv| kv[i]);
        let running = trace.running.as_ref().map(|running| running[i] as u32);
        let point = Point { at: i as f64, used, kv, pool: None, running };
        player.step(point.at, Ok(Bytes::from_mib(used as u64)), point, &[]);
    }
    player
}

/// What became of one family.
#[derive(Default)]
struct Score {
    false_alarms: usize,
    found: usize,
    delays: Vec<f64>,
    errors: Vec<f64>,
    imminent: usize,
    false_changes: usize,
    changes: usize,
    growths: usize,
}

impl Score {
    fn add(&mut self, trace: &Trace, player: &Player) {
        let onset = trace.onset.unwrap_or(f64::INFINITY);
        let opened = |kind| {
            player.said.iter().filter(
                move |said| matches!(&said.event, FindingEvent::Opened(finding) if finding.key.kind == kind),
            )
        };
        self.false_alarms += usize::from(opened(FindingKind::Leak).any(|said| said.at < onset));
        self.imminent += opened(FindingKind::Imminent).count();
        self.growths += opened(FindingKind::Growth).count();
        let doubling = trace.doubling.unwrap_or(f64::INFINITY);
        self.false_changes += usize::from(opened(FindingKind::SlopeChange).any(|said| said.at < doubling));
        self.changes += usize::from(opened(FindingKind::SlopeChange).any(|said| said.at >= doubling));
        let hit = opened(FindingKind::Leak).find(|said| said.at >= onset);
        if let Some(hit) = hit.filter(|_| trace.onset.is_some()) {
            self.found += 1;
            self.delays.push((hit.at - onset) / 60.0);
            let rate = hit.event.finding().rate.map_or(0.0, |band| band.rate.mib_per_min());
            self.errors.push((rate / trace.rate - 1.0).abs());
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One seed here, for the time that more take.
const SEEDS: u64 = 1;

#[test]
fn leaks_are_found_and_what_is_none_is_left_alone() {
    let (mut right, mut wrong, mut missed) = (0, 0, 0);
    for (family, make) in FAMILIES {
        let mut score = Score::default();
        for seed in 0..SEEDS {
            let trace = make(&mut Dice(fastrand::Rng::with_seed(seed)));
            let player = play(&trace);
            score.add(&trace, &player);
        }
        println!(
            "{family:<26} false {:>2} found {:>2}/{SEEDS} delay {:>5.0} min error {:>4.2} | growth {:>3} imminent {:>2} change {:>2} false {:>2}",
            score.false_alarms,
            score.found,
            median(&mut score.delays),
            median(&mut score.errors),
            score.growths,
            score.imminent,
            score.changes,
            score.false_changes
        );
        let leaks = if family.starts_with('P') { SEEDS as usize } else { 0 };
        (right, wrong, missed) =
            (right + score.found, wrong + score.false_alarms, missed + leaks - score.found);
    }
    let (precision, recall) = (right as f64 / (right + wrong) as f64, right as f64 / (right + missed) as f64);
    println!("precision {precision:.3} recall {recall:.3}");
    assert!(precision > 0.8 && recall > 0.8, "precision {precision:.3} recall {recall:.3}");
}
