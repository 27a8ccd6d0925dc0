//! What happens within minutes: leaks that reach the end before an hour is over, and growth that looks like them.
//! Beside them the families that one figure alone is drawn from.

use ebbtide_core::EventKind;

use super::course::{CARD_MIB, Draft};
use super::elementary::exp;
use super::ordinary::sawtooth;
use super::{Family, Group, KvSight};

const fn fast(name: &'static str, draw: fn(Draft<'_>) -> Draft<'_>) -> Family {
    Family { name, group: Group::Fast, draw }
}

const fn question(name: &'static str, draw: fn(Draft<'_>) -> Draft<'_>) -> Family {
    Family { name, group: Group::Question, draw }
}

/// Three leaks and five that are none; then the questions.
pub(super) const FAMILIES: [Family; 11] = [
    fast("F01 linear to the end", linear),
    fast("F02 equal steps to the end", steps),
    fast("F03 weights stream in", weights),
    fast("F04 graph-capture stairs", stairs),
    fast("F05 batch ramps to 95 %", ramp_and_level),
    fast("F06 levels under the limit", under_the_limit),
    fast("F07 leak, fast sawtooth", behind_fast_sawtooth),
    fast("F08 bursts return", bursts),
    question("Q01 1 MiB/min, mid-run", |draft| draft.leaking(10_800.0, 1.0, 2.0)),
    question("Q02 leak at any pace", at_any_pace),
    question("Q03 over in 3 to 10 min", over_in_minutes),
];

/// When something fast begins: after 20 to 60 quiet minutes.
fn begin(draft: &mut Draft<'_>) -> f64 {
    draft.dice.within(1200.0, 3600.0).floor()
}

/// To out-of-memory in 4 to 60 minutes.
fn linear(mut draft: Draft<'_>) -> Draft<'_> {
    let onset = begin(&mut draft);
    let rate = (CARD_MIB - draft.base) / draft.dice.any_pace(4.0, 60.0);
    draft.leaking(onset, rate, 2.0)
}

/// Equal steps each 10 s to 10 min, 12 to 80 of them until the end.
fn steps(mut draft: Draft<'_>) -> Draft<'_> {
    let onset = begin(&mut draft);
    let period = draft.dice.any_pace(10.0, 600.0).floor();
    let height = (CARD_MIB - draft.base) / draft.dice.any_pace(12.0, 80.0);
    draft.labelled(onset, height / period * 60.0).with(move |now, _| {
        if let Some(since) = now.since(onset) {
            now.leak((since / period).floor() * height);
        }
    })
}

/// A server starts: its weights come in within 30 s to 5 min, then it serves.
fn weights(draft: Draft<'_>) -> Draft<'_> {
    let (total, lasting) = (draft.dice.within(14_000.0, 60_000.0), draft.dice.any_pace(30.0, 300.0));
    let (at, context) = (draft.dice.within(5.0, 60.0).floor(), draft.dice.within(400.0, 700.0));
    let shards = draft.dice.whole(2, 40) as f64;
    draft.based_on(context).with(move |now, _| {
        if now.second == 0 {
            now.events.push(EventKind::ProcessStart);
        }
        if let Some(since) = now.since(at) {
            now.used += ((since / lasting).min(1.0) * shards).ceil() / shards * total;
        }
    })
}

/// After the weights, graphs are captured: 20 to 60 steps of 20 to 120 MiB, each a few seconds after the last.
fn stairs(draft: Draft<'_>) -> Draft<'_> {
    let (count, height) = (draft.dice.whole(20, 61) as f64, draft.dice.within(20.0, 120.0));
    let (at, pause) = (draft.dice.within(60.0, 600.0).floor(), draft.dice.within(1.0, 6.0));
    let waves = draft.dice.whole(1, 3) as f64;
    draft.with(move |now, _| {
        let Some(since) = now.since(at) else { return };
        // A second wave, for another shape of batches, begins 20 minutes later.
        for wave in 0..waves as u32 {
            let since = since - f64::from(wave) * 1200.0;
            now.used += (since / pause).floor().clamp(0.0, count) * height;
        }
    })
}

/// The KV cache of a batch fills what the engine may use, to 95 % of the card, in 5 to 40 minutes, and stays there.
fn ramp_and_level(mut draft: Draft<'_>) -> Draft<'_> {
    let (at, lasting) = (begin(&mut draft), draft.dice.any_pace(300.0, 2400.0));
    let pool = 0.95 * CARD_MIB - draft.base - 100.0;
    draft.counted(KvSight::OnDemand).with(move |now, _| {
        let kv = now.since(at).map_or(0.0, |since| (since / lasting).min(1.0) * pool);
        now.used += kv;
        let running = if kv > 0.0 { 64.0 } else { 0.0 };
        (now.kv, now.kv_pool, now.running) = (Some(kv), Some(pool), Some(running));
    })
}

/// A ramp of 10 to 40 minutes that levels between 98.3 and 99.5 % of the card; the engine tells nothing.
fn under_the_limit(mut draft: Draft<'_>) -> Draft<'_> {
    let (at, tau) = (begin(&mut draft), draft.dice.any_pace(200.0, 800.0));
    let rise = draft.dice.within(0.983, 0.995) * CARD_MIB - draft.base;
    draft.noiseless().at_the_brink().with(move |now, _| {
        if let Some(since) = now.since(at) {
            now.used += rise * (1.0 - exp(-(since / tau).min(600.0)));
        }
    })
}

/// 32 to 1024 MiB a minute behind a sawtooth of 5 to 30 s; the engine tells nothing.
fn behind_fast_sawtooth(mut draft: Draft<'_>) -> Draft<'_> {
    let onset = begin(&mut draft);
    let (rate, period) = (draft.dice.any_pace(32.0, 1024.0), draft.dice.within(5.0, 30.0));
    let swing = draft.dice.within(1024.0, 4096.0);
    let draft = draft.with(move |now, _| now.used += swing * (now.second as f64 / period).fract());
    draft.leaking(onset, rate, 2.0)
}

/// Bursts of 2 to 20 GiB that rise for 20 to 180 s and return.
fn bursts(draft: Draft<'_>) -> Draft<'_> {
    let pause = draft.dice.within(300.0, 2400.0);
    let (mut at, mut lasting, mut height) = (draft.dice.exponential(pause), 1.0, 0.0);
    draft.with(move |now, dice| {
        let Some(since) = now.since(at) else { return };
        if since == 0.0 || height == 0.0 {
            (lasting, height) = (dice.within(20.0, 180.0), dice.within(2048.0, 20_480.0));
        }
        if since >= lasting {
            (at, height) = (now.second as f64 + dice.exponential(pause), 0.0);
        }
        now.used += height * (since / lasting).min(1.0);
    })
}

/// 1 MiB/min to 10 GiB/min, each octave as likely, half of them behind a sawtooth that the engine tells.
fn at_any_pace(draft: Draft<'_>) -> Draft<'_> {
    let (onset, rate) = (draft.dice.within(1800.0, 7200.0).floor(), draft.dice.any_pace(1.0, 10_240.0));
    let draft = if draft.dice.chance(0.5) { draft } else { sawtooth(draft) };
    draft.leaking(onset, rate, 2.0)
}

/// To out-of-memory in 3 to 10 minutes: too few of all paces are that fast.
fn over_in_minutes(mut draft: Draft<'_>) -> Draft<'_> {
    let onset = begin(&mut draft);
    let rate = (CARD_MIB - draft.base) / draft.dice.any_pace(3.1, 9.9);
    draft.leaking(onset, rate, 2.0)
}
