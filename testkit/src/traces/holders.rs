//! What no slope of one series shows: a rank that draws away from its peers, memory that is held without any work, and
//! blocks that a node which only reads prompts never gets rid of. In every family half of the seeds are innocent
//! likenesses; the label says which finding is wanted.

use ebbtide_core::{Bytes, EngineRole, KvSemantics};

use super::course::{Draft, Moment};
use super::dice::Dice;
use super::{Family, Group, KvSight};

const fn holder(name: &'static str, draw: fn(Draft<'_>) -> Draft<'_>) -> Family {
    Family { name, group: Group::Holder, draw }
}

/// The three families.
pub(super) const FAMILIES: [Family; 3] = [
    holder("H01 a rank draws away", imbalanced),
    holder("H02 held without work", idle),
    holder("H03 prefill, never fetched", prefill),
];

/// One rank of a tensor-parallel group. Its peers hold what it holds, within 256 MiB; the guilty ones' excess grows by
/// 128 to 1024 MiB an hour from 1 to 3 GiB on, the innocent ones hold a context more.
fn imbalanced(draft: Draft<'_>) -> Draft<'_> {
    let is_guilty = draft.dice.chance(0.5);
    let (onset, an_hour) = (draft.dice.within(1800.0, 7200.0).floor(), draft.dice.any_pace(128.0, 1024.0));
    let begin = if is_guilty { draft.dice.within(1024.0, 3072.0) } else { draft.dice.within(0.0, 600.0) };
    let (base, spread) = (draft.base, draft.dice.within(-256.0, 256.0));
    let an_hour = if is_guilty { an_hour } else { 0.0 };
    draft.wanting(is_guilty.then_some("imbalance")).with(move |now, dice| {
        let peers = base + spread + dice.within(-8.0, 8.0);
        now.peers = Some(Bytes((peers * 1_048_576.0) as u64));
        if let Some(since) = now.since(onset) {
            let least = if is_guilty { 0.06 * base } else { 0.0 };
            now.used += begin.max(least) + an_hour * since / 3600.0;
        }
    })
}

/// A process that holds its memory; the device computes for the innocent ones once in 20 to 100 minutes, and for the
/// guilty ones not any more after an hour or two.
fn idle(draft: Draft<'_>) -> Draft<'_> {
    let is_guilty = draft.dice.chance(0.5);
    let (last, pause) = (draft.dice.within(3600.0, 7200.0), draft.dice.within(1200.0, 6000.0));
    let mut next = 0.0;
    draft.wanting(is_guilty.then_some("idle-holder")).with(move |now, dice| {
        let is_over = is_guilty && now.since(last).is_some();
        let works = !is_over && now.since(next).is_some();
        if works && dice.chance(0.05) {
            next = now.second as f64 + pause;
        }
        now.busy = Some(if works { 40 } else { 0 });
    })
}

/// A node that reads prompts for another that decodes, in shifts: blocks of what it has read stay until they are
/// fetched, 5 s to 8 min later. The guilty ones lose one prompt in twenty, and its blocks stay for ever.
fn prefill(draft: Draft<'_>) -> Draft<'_> {
    const POOL: f64 = 40_000.0;
    let is_guilty = draft.dice.chance(0.5);
    let (work, rest) = (draft.dice.within(1800.0, 3600.0), draft.dice.within(5400.0, 7200.0));
    let (arrivals, each) = (draft.dice.within(0.05, 0.5), draft.dice.within(40.0, 200.0));
    let base = draft.base + POOL;
    let mut waiting: Vec<(u64, f64)> = Vec::new();
    let mut lost = 0.0;
    let lose = move |dice: &mut Dice| is_guilty && dice.chance(0.05);
    draft
        .based_on(base)
        .counted(KvSight::Pool)
        .played_as(EngineRole::Prefill, KvSemantics::Referenced)
        .wanting(is_guilty.then_some("kv-pool-leak"))
        .with(move |now: &mut Moment, dice| {
            let second = now.second;
            let works = (second as f64) % (work + rest) < work;
            waiting.retain(|(until, _)| *until > second);
            let count = if works { dice.poisson(arrivals) } else { 0 };
            for _ in 0..count {
                if lose(dice) {
                    lost += each;
                } else {
                    waiting.push((second + dice.whole(5, 480), each));
                }
            }
            let held = lost + waiting.iter().map(|(_, each)| each).sum::<f64>();
            (now.kv, now.kv_pool) = (Some(held.min(POOL)), Some(POOL));
            (now.running, now.arrivals) = (Some(f64::from(count)), Some(count));
        })
}
