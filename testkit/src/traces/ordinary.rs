//! Ordinary life: thirteen families without a leak and nine with one. Parameters are those of the prototype's
//! generator that the first baselines were measured on; they are kept so that figures stay comparable.

use super::course::Draft;
use super::parts::{Restart, Steps, saturating};
use super::requests::{Day, Requests, Talk};
use super::{Family, Group, KvSight};

const fn clean(name: &'static str, draw: fn(Draft<'_>) -> Draft<'_>) -> Family {
    Family { name, group: Group::Clean, draw }
}

const fn leaking(name: &'static str, draw: fn(Draft<'_>) -> Draft<'_>) -> Family {
    Family { name, group: Group::Leaking, draw }
}

/// The 22 families.
pub(super) const FAMILIES: [Family; 22] = [
    clean("N01 plateau", |draft| draft),
    clean("N02 warm-up", |draft| warming(draft, (800.0, 6000.0), (240.0, 1500.0))),
    clean("N03 KV sawtooth", sawtooth),
    clean("N04 batch ramps", batch_ramps),
    clean("N05 diurnal", diurnal),
    clean("N06 one or two steps", few_steps),
    clean("N07 saturating", |draft| saturating_within(draft, 5400.0, (900.0, 4200.0))),
    clean("N08 restarts", restarts),
    clean("N09 missing samples", |draft| sawtooth(draft).with_gaps()),
    clean("N10 reserved pool", reserved_pool),
    clean("N11 high-water mark", high_water),
    clean("N12 prefix cache fills", prefix_cache),
    clean("N13 idle", idle),
    leaking("P01 1 MiB/min", |draft| draft.leaking(0.0, 1.0, 2.0)),
    leaking("P02 mid sawtooth", behind_sawtooth),
    leaking("P03 pace doubles", doubling),
    leaking("P04 granules of 20 MiB", in_granules),
    leaking("P05 per request", per_request),
    leaking("P06 in bursts", in_bursts),
    leaking("P07 after warm-up", after_warm_up),
    leaking("P08 mid sawtooth, gaps", |draft| behind_sawtooth(draft).with_gaps()),
    leaking("P09 fast", fast),
];

/// A caching allocator warms up.
pub(super) fn warming<'a>(draft: Draft<'a>, total: (f64, f64), tau: (f64, f64)) -> Draft<'a> {
    let (total, tau) = (draft.dice.within(total.0, total.1), draft.dice.within(tau.0, tau.1));
    let mut steps = Steps::warm_up(draft.dice, total, tau);
    draft.with(move |now, _| now.used += steps.at(now.second))
}

/// An engine that allocates KV cache on demand, and tells it.
pub(super) fn on_demand(draft: Draft<'_>, requests: Requests) -> Draft<'_> {
    // What the card has left beside the base; no more fits.
    const MOST_KV: f64 = 40_000.0;
    let (mib_per_token, activation) = (draft.mib_per_token, draft.activation);
    let mut requests = requests;
    draft.counted(KvSight::OnDemand).with(move |now, dice| {
        let served = requests.step(now.second, dice);
        let kv = (served.tokens * mib_per_token).min(MOST_KV);
        now.used += kv + activation * served.running;
        (now.kv, now.running, now.arrivals) = (Some(kv), Some(served.running), Some(served.arrivals));
    })
}

/// Few long requests: KV rises for minutes and falls at once.
pub(super) fn sawtooth(draft: Draft<'_>) -> Draft<'_> {
    let running = draft.dice.within(0.3, 2.5);
    on_demand(draft, Requests::new(Talk::Long, running, Day::EVEN))
}

fn diurnal(draft: Draft<'_>) -> Draft<'_> {
    let (running, day) = (draft.dice.within(4.0, 25.0), Day::draw(draft.dice));
    on_demand(draft, Requests::new(Talk::Chat, running, day))
}

fn batch_ramps(draft: Draft<'_>) -> Draft<'_> {
    let period = draft.dice.whole(1200, 3600);
    let (top, share) = (draft.dice.within(4000.0, 24_000.0), draft.dice.within(0.3, 0.9));
    let (offset, activation) = (draft.dice.whole(0, period), draft.activation);
    draft.counted(KvSight::OnDemand).with(move |now, _| {
        let phase = ((now.second + offset) % period) as f64 / period as f64;
        let kv = if phase < share { top * phase / share } else { 0.0 };
        let running = if kv > 0.0 { 8.0 } else { 0.0 };
        now.used += kv + activation * running;
        (now.kv, now.running) = (Some(kv), Some(running));
    })
}

fn few_steps(draft: Draft<'_>) -> Draft<'_> {
    let steps = (0..draft.dice.whole(1, 3))
        .map(|_| (draft.dice.whole(1800, draft.length as u64 - 1800), draft.dice.within(64.0, 2048.0)));
    let mut steps = Steps::new(steps.collect());
    draft.with(move |now, _| now.used += steps.at(now.second))
}

/// A rise of 0.5 to 6 GiB that ever slows down: fragmentation that settles.
pub(super) fn saturating_within(draft: Draft<'_>, latest: f64, tau: (f64, f64)) -> Draft<'_> {
    let at = draft.dice.within(0.0, latest).floor();
    let (total, tau) = (draft.dice.within(500.0, 6000.0), draft.dice.within(tau.0, tau.1));
    draft.with(move |now, _| {
        now.used += now.since(at).map_or(0.0, |since| saturating(since, total, tau, 20.0));
    })
}

fn restarts(draft: Draft<'_>) -> Draft<'_> {
    let mut warm_up = Steps::warm_up(draft.dice, 1500.0, 600.0);
    let dice = &mut *draft.dice;
    let last = draft.length as u64 - 3600;
    let mut starts: Vec<u64> = (0..dice.whole(1, 4)).map(|_| dice.whole(3600, last)).collect();
    starts.sort_unstable();
    let restarts: Vec<Restart> = starts
        .into_iter()
        .map(|at| Restart {
            at: at as f64,
            down: dice.whole(20, 90) as f64,
            loading: dice.whole(30, 120) as f64,
            more: dice.within(200.0, 1500.0),
        })
        .collect();
    draft.with(move |now, _| {
        now.used += warm_up.at(now.second);
        for restart in &restarts {
            restart.apply(now);
        }
    })
}

fn reserved_pool(draft: Draft<'_>) -> Draft<'_> {
    const POOL: f64 = 40_000.0;
    let (running, day) = (draft.dice.within(4.0, 25.0), Day::draw(draft.dice));
    let mut requests = Requests::new(Talk::Chat, running, day);
    let mib_per_token = draft.mib_per_token;
    let base = draft.base + POOL;
    let draft = draft.based_on(base).counted(KvSight::Pool).with(move |now, dice| {
        let served = requests.step(now.second, dice);
        now.kv = Some((served.tokens * mib_per_token).min(POOL));
        (now.kv_pool, now.running, now.arrivals) = (Some(POOL), Some(served.running), Some(served.arrivals));
    });
    warming(draft, (100.0, 900.0), (900.0, 900.0))
}

/// A caching allocator that keeps the highest it ever needed.
fn high_water(draft: Draft<'_>) -> Draft<'_> {
    let mut requests = Requests::new(Talk::Chat, draft.dice.within(4.0, 25.0), Day::EVEN);
    let slack = draft.dice.within(1.0, 1.08);
    let (mib_per_token, activation, mut highest) = (draft.mib_per_token, draft.activation, 0.0_f64);
    draft.counted(KvSight::OnDemand).with(move |now, dice| {
        let served = requests.step(now.second, dice);
        let kv = served.tokens * mib_per_token;
        highest = highest.max(kv + activation * served.running);
        now.used += (highest * slack / 20.0).ceil() * 20.0;
        (now.kv, now.running, now.arrivals) = (Some(kv), Some(served.running), Some(served.arrivals));
    })
}

fn prefix_cache(draft: Draft<'_>) -> Draft<'_> {
    let mut requests = Requests::new(Talk::Chat, draft.dice.within(2.0, 10.0), Day::EVEN);
    let capacity = draft.dice.within(8000.0, 30_000.0);
    let filled_at = draft.dice.within(0.4, 1.6) * draft.length;
    let (mib_per_token, activation) = (draft.mib_per_token, draft.activation);
    draft.counted(KvSight::OnDemand).with(move |now, dice| {
        let served = requests.step(now.second, dice);
        let fill = capacity * (now.second as f64 / filled_at).min(1.0);
        let kv = (served.tokens * mib_per_token + fill).min(capacity);
        now.used += kv + activation * served.running;
        (now.kv, now.running, now.arrivals) = (Some(kv), Some(served.running), Some(served.arrivals));
    })
}

fn idle(draft: Draft<'_>) -> Draft<'_> {
    let flicker = draft.dice.choice([0.0, 0.001]);
    draft.noiseless().with(move |now, dice| now.used += if dice.chance(flicker) { 2.0 } else { 0.0 })
}

fn behind_sawtooth(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.3, 0.55) * draft.length).floor();
    let (rate, granule) = (draft.dice.any_pace(1.0, 16.0), draft.dice.choice([2.0, 20.0]));
    sawtooth(draft).leaking(onset, rate, granule)
}

fn doubling(draft: Draft<'_>) -> Draft<'_> {
    let at = (draft.dice.within(0.4, 0.6) * draft.length).floor();
    let rate = draft.dice.any_pace(1.0, 8.0);
    draft.labelled(0.0, rate).changing(at, 2.0 * rate).with(move |now, _| {
        let minutes = (now.second as f64 + now.since(at).unwrap_or(0.0)) / 60.0;
        now.leak((rate * minutes / 2.0).floor() * 2.0);
    })
}

fn in_granules(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.0, 0.25) * draft.length).floor();
    let rate = draft.dice.within(0.5, 2.0);
    draft.leaking(onset, rate, 20.0)
}

fn per_request(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.1, 0.4) * draft.length).floor();
    let (running, day) = (draft.dice.within(4.0, 25.0), Day::draw(draft.dice));
    let rate = draft.dice.within(1.0, 6.0);
    let each = rate / 60.0 / (Talk::Chat.arrivals(running) * day.mean(draft.length));
    let mut leaked = 0.0;
    on_demand(draft, Requests::new(Talk::Chat, running, day)).labelled(onset, rate).uneven().with(
        move |now, _| {
            if now.since(onset).is_some() {
                leaked += each * f64::from(now.arrivals.unwrap_or(0));
            }
            now.leak((leaked / 2.0).floor() * 2.0);
        },
    )
}

fn in_bursts(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.1, 0.35) * draft.length).floor();
    let pause = draft.dice.within(900.0, 2400.0);
    let (mut next, mut leaked) = (onset, 0.0);
    // A burst is 144 MiB on average.
    draft.labelled(onset, 144.0 / pause * 60.0).uneven().with(move |now, dice| {
        while now.since(next).is_some() {
            leaked += dice.within(32.0, 256.0);
            next += dice.exponential(pause);
        }
        now.leak((leaked / 2.0_f64).floor() * 2.0);
    })
}

fn after_warm_up(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.0, 0.1) * draft.length).floor();
    let rate = draft.dice.within(1.5, 6.0);
    warming(draft, (800.0, 4000.0), (240.0, 1200.0)).leaking(onset, rate, 20.0)
}

fn fast(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.3, 0.6) * draft.length).floor();
    let rate = draft.dice.within(64.0, 256.0);
    let draft = if draft.dice.chance(0.5) { draft } else { sawtooth(draft) };
    draft.leaking(onset, rate, 2.0)
}
