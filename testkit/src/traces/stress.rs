//! What fools a detector over hours: growth that ends, load that nobody tells, and leaks that come and go.

use ebbtide_core::EventKind;

use super::course::{Draft, Moment};
use super::elementary::ln;
use super::ordinary::{on_demand, saturating_within};
use super::parts::Restart;
use super::requests::{Day, Requests, Talk};
use super::{Family, Group};

const fn stress(name: &'static str, draw: fn(Draft<'_>) -> Draft<'_>) -> Family {
    Family { name, group: Group::Stress, draw }
}

/// The stress families: seven without a leak, eight with one.
pub(super) const FAMILIES: [Family; 15] = [
    stress("S01 saturating over hours", |draft| saturating_within(draft, 3600.0, (7200.0, 14_400.0))),
    stress("S02 logarithmic growth", logarithmic),
    stress("S03 random walk", random_walk),
    stress("S04 diurnal, no counters", |draft| hidden_day(draft).uncounted()),
    stress("S05 adapters load", adapters),
    stress("S06 models swap", |draft| swapping(draft, 8000.0, 14_000.0)),
    stress("S07 load falls", falling),
    stress("S08 leak, models swap", leak_under_swapping),
    stress("S09 leak in duty cycles", duty_cycled),
    stress("S10 each cycle leaves some", partial),
    stress("S11 leak accelerates", accelerating),
    stress("S12 two leak in turn", in_turn),
    stress("S13 leak across restarts", across_restarts),
    stress("S14 leak, diurnal, hidden", leak_under_hidden_day),
    stress("S15 slow leak", |draft| {
        let (onset, rate) = (draft.dice.within(1800.0, 7200.0).floor(), draft.dice.any_pace(0.4, 1.0));
        draft.leaking(onset, rate, 2.0)
    }),
];

fn logarithmic(draft: Draft<'_>) -> Draft<'_> {
    let (scale, unit) = (draft.dice.within(100.0, 600.0), draft.dice.within(300.0, 1800.0));
    draft.with(move |now, _| now.used += (scale * ln(1.0 + now.second as f64 / unit) / 2.0).floor() * 2.0)
}

/// Each minute up or down as it likes; over hours it strays, and nothing leaks.
fn random_walk(draft: Draft<'_>) -> Draft<'_> {
    let (sd, mut height) = (draft.dice.within(2.0, 10.0), 0.0);
    draft.with(move |now, dice| {
        if now.second % 60 == 0 {
            height += sd * dice.normal();
        }
        now.used += height;
    })
}

fn hidden_day(draft: Draft<'_>) -> Draft<'_> {
    let (running, day) = (draft.dice.within(4.0, 25.0), Day::draw(draft.dice));
    on_demand(draft, Requests::new(Talk::Chat, running, day))
}

/// A few adapters are loaded and stay, each of another size; half of the servers tell it.
fn adapters(draft: Draft<'_>) -> Draft<'_> {
    let dice = &mut *draft.dice;
    let is_told = dice.chance(0.5);
    let loads: Vec<(u64, f64)> = (0..dice.whole(3, 9))
        .map(|_| (dice.whole(600, draft.length as u64 - 600), dice.within(50.0, 400.0)))
        .collect();
    draft.with(move |now, _| {
        for &(at, height) in &loads {
            if now.second == at && is_told {
                now.events.push(EventKind::ModelLoad(None));
            }
            now.used += now.since(at as f64).map_or(0.0, |_| height);
        }
    })
}

/// Models come and go, each held for 10 to 40 minutes; half of the servers tell it.
fn swapping(draft: Draft<'_>, low: f64, high: f64) -> Draft<'_> {
    let is_told = draft.dice.chance(0.5);
    let base = draft.base * 0.5;
    let (mut until, mut height) = (0, 0.0);
    draft.based_on(base).with(move |now, dice| {
        if now.second >= until {
            let was_loaded = height > 0.0;
            height = if was_loaded && dice.chance(0.4) { 0.0 } else { dice.within(low, high) };
            until = now.second + dice.whole(600, 2400);
            if is_told {
                tell_swap(now, was_loaded, height > 0.0);
            }
        }
        now.used += height;
    })
}

fn tell_swap(now: &mut Moment, was_loaded: bool, is_loaded: bool) {
    if was_loaded {
        now.events.push(EventKind::ModelUnload(None));
    }
    if is_loaded {
        now.events.push(EventKind::ModelLoad(None));
    }
}

/// Load that ebbs for hours, without counters.
fn falling(draft: Draft<'_>) -> Draft<'_> {
    let (height, end) = (draft.dice.within(2000.0, 12_000.0), draft.dice.within(0.4, 1.2) * draft.length);
    let (period, swing) = (draft.dice.within(120.0, 900.0), draft.dice.within(100.0, 1500.0));
    draft.with(move |now, _| {
        let second = now.second as f64;
        let left = (1.0 - second / end).max(0.0);
        now.used += height * left + swing * left * (second / period).fract();
    })
}

fn leak_under_swapping(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.2, 0.4) * draft.length).floor();
    let rate = draft.dice.any_pace(1.0, 8.0);
    swapping(draft, 8000.0, 14_000.0).leaking(onset, rate, 2.0)
}

/// It leaks while a job runs, 20 to 40 minutes, and rests for 20 to 60.
fn duty_cycled(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.1, 0.3) * draft.length).floor();
    let rate = draft.dice.any_pace(2.0, 16.0);
    let (mut until, mut runs, mut leaked) = (onset, false, 0.0);
    // The mean over both: runs half an hour, rests forty minutes.
    draft.labelled(onset, rate * 30.0 / 70.0).uneven().with(move |now, dice| {
        if now.since(until).is_some() {
            runs = !runs;
            until = now.second as f64
                + if runs { dice.within(1200.0, 2400.0) } else { dice.within(1200.0, 3600.0) };
        }
        leaked += if runs { rate / 60.0 } else { 0.0 };
        now.leak((leaked / 2.0_f64).floor() * 2.0);
    })
}

/// Batches rise and fall without counters, and each leaves a little behind.
fn partial(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.1, 0.3) * draft.length).floor();
    let (period, top) = (draft.dice.whole(300, 1200), draft.dice.within(2000.0, 8000.0));
    let left = draft.dice.within(8.0, 64.0);
    let mut leaked = 0.0;
    draft.labelled(onset, left * 60.0 / period as f64).with(move |now, _| {
        let phase = (now.second % period) as f64 / period as f64;
        if now.second % period == 0 && now.since(onset).is_some() {
            leaked += left;
        }
        now.used += if phase < 0.7 { top * phase / 0.7 } else { 0.0 };
        now.leak(leaked);
    })
}

/// From 0.25 MiB a minute ever faster, to 4 to 16 at the end.
fn accelerating(draft: Draft<'_>) -> Draft<'_> {
    const FIRST: f64 = 0.25;
    let onset = (draft.dice.within(0.1, 0.3) * draft.length).floor();
    let (last, lasting) = (draft.dice.any_pace(4.0, 16.0), draft.length - onset);
    draft.labelled(onset, (FIRST + last) / 2.0).uneven().with(move |now, _| {
        if let Some(since) = now.since(onset) {
            let leaked = (FIRST + (last - FIRST) * since / lasting / 2.0) * since / 60.0;
            now.leak((leaked / 2.0).floor() * 2.0);
        }
    })
}

/// Two processes on one card leak in turn, for 40 to 90 minutes each, at two paces.
fn in_turn(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.1, 0.3) * draft.length).floor();
    let mut paces = (draft.dice.any_pace(1.0, 8.0), draft.dice.any_pace(1.0, 8.0));
    let (mut until, mut leaked) = (onset, 0.0);
    draft.labelled(onset, (paces.0 + paces.1) / 2.0).uneven().with(move |now, dice| {
        if now.since(onset).is_none() {
            return;
        }
        if now.since(until).is_some() {
            paces = (paces.1, paces.0);
            until = now.second as f64 + dice.within(2400.0, 5400.0);
        }
        leaked += paces.0 / 60.0;
        now.leak((leaked / 2.0_f64).floor() * 2.0);
    })
}

/// It restarts each two to three hours, which returns all, and leaks anew.
fn across_restarts(draft: Draft<'_>) -> Draft<'_> {
    let rate = draft.dice.any_pace(2.0, 8.0);
    let is_told = draft.dice.chance(0.5);
    let mut restart =
        Restart { at: draft.dice.within(7200.0, 10_800.0).floor(), down: 40.0, loading: 60.0, more: 200.0 };
    let mut began = 0.0;
    draft.labelled(0.0, rate).with(move |now, dice| {
        now.leak((now.since(began).unwrap_or(0.0) / 60.0 * rate / 2.0).floor() * 2.0);
        restart.apply(now);
        if is_told {
            restart.tell(now);
        }
        // Once the new process is up, its leak and what it warmed up to are those of the next life.
        if now.since(restart.at + restart.down).is_some() && began < restart.at {
            began = restart.at + restart.down + restart.loading;
        }
        if now.since(restart.at + 6000.0).is_some() {
            restart.at = now.second as f64 + dice.within(1200.0, 4800.0).floor();
        }
    })
}

fn leak_under_hidden_day(draft: Draft<'_>) -> Draft<'_> {
    let onset = (draft.dice.within(0.1, 0.3) * draft.length).floor();
    let rate = draft.dice.any_pace(4.0, 16.0);
    hidden_day(draft).uncounted().leaking(onset, rate, 2.0)
}
