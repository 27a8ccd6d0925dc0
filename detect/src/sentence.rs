//! Words for a person at 3 a.m.: what is seen, why it is called so, what would settle it.

use ebbtide_core::{Absent, ByteRate, Bytes, EventKind, SignedBytes};

use crate::explain::Account;
use crate::rise::Clock;
use crate::scene::Reserve;
use crate::work::{PerWork, Unit};

/// A duration in the largest unit that keeps two figures.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 90.0 * 60.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// A leak, and what else could have explained it but does not.
pub(crate) fn leak(rate: ByteRate, lasted_s: f64, grown: Bytes, account: Account, clock: Clock) -> String {
    let ruled_out = match account {
        Account::OnDemand { .. } => "the KV cache and the running requests do not account for it",
        Account::Pooled => "the KV pool is reserved ahead, and load has no new maximum",
        Account::Unlearned => "it rises with and without the KV cache in use",
        Account::Unknown => "it does not slow down; the load is not known",
    };
    let load = if matches!(account, Account::Unknown) { "" } else { " at constant load" };
    let lasted = duration(lasted_s);
    match clock {
        Clock::Time => format!("Rising {rate} for {lasted}{load}, {grown} so far: {ruled_out}."),
        Clock::Work(work) => {
            format!("Leaks {} for {lasted}, {grown} so far, whatever the load: {ruled_out}.", per_work(&work))
        }
        Clock::Bursts { .. } => format!(
            "Rising in bursts for {lasted}{load}, {rate} on average and {grown} so far, of which none came back: {ruled_out}."
        ),
    }
}

/// An amount with its band for so many pieces of work, the fewest thousands with which it is 1 MiB or more.
fn per_work(work: &PerWork) -> String {
    let unit = match work.unit {
        Unit::Requests => "requests",
        Unit::Tokens => "tokens",
    };
    let thousands = [("1,000", 1e3), ("million", 1e6)];
    let (many, times) = thousands[usize::from(work.each.slope * 1e3 < 1.0)];
    let [each, low, high] = [work.each.slope, work.each.low, work.each.high].map(|mib| mib * times);
    format!("{each:.1} MiB ({:.1} to {high:.1}) with each {many} {unit}", low.max(0.0))
}

/// What would settle whether it is a leak.
pub(crate) const fn settle_leak(account: Account) -> &'static str {
    match account {
        Account::Unknown => {
            "Read the engine's counters (KV cache in use, running requests): if memory rises while they do not, it is a leak."
        }
        _ => {
            "Stop the traffic: what does not fall back has leaked. Then switch off one feature at a time (speculative decoding, image inputs, offload, adapters) until the floor holds."
        }
    }
}

/// What would settle whether host memory leaks.
pub(crate) const SETTLE_HOST: &str = "Compare two maps of the process an hour apart (/proc/PID/smaps): an anonymous region that grew is a leak, a file that is cached comes back under pressure. The GPU's memory is judged apart.";

/// Growth, and why it is not called a leak.
pub(crate) fn growth(rate: ByteRate, lasted_s: f64, reserve: Reserve) -> String {
    let why = match reserve {
        Reserve::Explained => "the KV cache in use accounts for it",
        Reserve::NewPeak => "the load is at a new maximum, so an allocator may well grow",
        Reserve::WarmUp => "the process is young, so this may be warm-up",
        Reserve::Disturbed => "something was started, stopped or loaded within this time",
        Reserve::Slowing => "it slows down",
        Reserve::TooShort => "not yet judged, it may still level off",
    };
    format!("Rising {rate} for {}: {why}.", duration(lasted_s))
}

/// What would settle whether growth is harmless.
pub(crate) const fn settle_growth(reserve: Reserve) -> &'static str {
    match reserve {
        Reserve::Explained => "It ends where the KV pool is full, and falls when requests end.",
        Reserve::NewPeak => "Constant load: an allocator levels off at its high water, a leak does not.",
        Reserve::WarmUp => "Time: warm-up slows down within minutes, a leak keeps its pace.",
        Reserve::Disturbed => "A stretch of time in which nothing is started, stopped or loaded.",
        Reserve::Slowing => "Time: what slows down finds its level, and then holds it.",
        Reserve::TooShort => {
            "Time, or the engine's counters: growth at constant load that keeps its pace is a leak."
        }
    }
}

/// A growth that became faster.
pub(crate) fn slope_change(before: ByteRate, after: ByteRate, ago_s: f64) -> String {
    format!(
        "Growth went from {before} to {after} {} ago, {:.1} times as fast, without a new maximum of load.",
        duration(ago_s),
        after.0 / before.0
    )
}

/// What would settle a change of pace.
pub(crate) const SETTLE_SLOPE_CHANGE: &str =
    "Look for what changed then: another kind of request, a new adapter or model, a deployment.";

/// Memory that runs out.
pub(crate) fn imminent(left_s: f64, rate: ByteRate, room: Bytes) -> String {
    format!("Out of memory in about {}: {room} are left and it grows by {rate}.", duration(left_s))
}

/// What would settle a forecast.
pub(crate) const SETTLE_IMMINENT: &str =
    "Lower the load or restart in time; the forecast lapses when growth ends.";

/// Equal steps at one kind of event that ought to change nothing.
pub(crate) fn leak_per_event(step: Bytes, event: &str, steps: usize) -> String {
    format!(
        "Leaks {step} per {event}: the last {steps} steps are equal, and between them memory holds its level."
    )
}

/// What would settle a leak at events.
pub(crate) const SETTLE_EVENT: &str =
    "Cause the event once more by hand: if memory rises by as much and stays, it is the event that leaks.";

/// Equal steps at something that nobody tells.
pub(crate) fn leak_in_stairs(step: Bytes, each_s: f64, steps: usize) -> String {
    format!(
        "Leaks {step} at each of something that happens every {} or so: the last {steps} steps are equal, and between them memory holds its level.",
        duration(each_s)
    )
}

/// What would settle a leak in stairs.
pub(crate) const SETTLE_STAIRS: &str = "Look for what runs that often (a timer, a health check, a batch, an adapter that is loaded) and stop it: if the steps end, it leaks.";

/// Pauses that hold ever more.
pub(crate) fn leak_at_rest(held: Bytes, grown: Bytes, span_s: f64, pauses: usize) -> String {
    format!(
        "With nothing running {held} are held, {grown} more than {} before: each of the last {pauses} pauses held more than the one before it.",
        duration(span_s)
    )
}

/// What would settle a leak that shows at rest.
pub(crate) const SETTLE_AT_REST: &str = "Send one kind of request at a time between pauses: the kind after which the pause holds more is the one that leaks.";

/// An ebb that keeps rising.
pub(crate) fn leak_at_ebb(held: Bytes, grown: Bytes, span_s: f64, ebbs: usize) -> String {
    format!(
        "Memory comes and goes, and comes back to ever more: {held} at the last of {ebbs} ebbs, {grown} more than {} before, at an even pace.",
        duration(span_s)
    )
}

/// What would settle a leak that shows at the ebb.
pub(crate) const SETTLE_AT_EBB: &str = "Let one model or one kind of batch come and go at a time: the one after which memory comes back to more is the one that leaks.";

/// Equal steps upward at one kind of release.
pub(crate) fn kept_per_event(step: Bytes, event: &str, steps: usize) -> String {
    format!("{step} more stay after each {event}: the last {steps} steps are equal.")
}

/// What would settle what stays after a release.
pub(crate) const SETTLE_KEPT: &str =
    "Restart whoever holds it: what comes back then was kept for users that are gone.";

/// What should have come back and has not.
pub(crate) fn not_released(left: Bytes, lasted_s: f64, event: &str, usual: Bytes) -> String {
    format!("{left} are still held {} after {event}; {usual} would be usual.", duration(lasted_s))
}

/// What would settle it.
pub(crate) const SETTLE_NOT_RELEASED: &str = "Repeat the release and compare what is left: if a restart of the engine frees it, the release is incomplete.";

/// Memory that nobody owns. Whether it was seen to lose its owner, or is only known to have had an exit.
pub(crate) fn orphan(held: Bytes, lasted_s: f64, is_inferred: bool) -> String {
    let since = duration(lasted_s);
    if is_inferred {
        format!(
            "{held} are still held {since} after their owner ended, unmoved, and nothing was started since."
        )
    } else {
        format!("{held} have had no live owner for {since}.")
    }
}

/// What would settle an orphan.
pub(crate) const SETTLE_ORPHAN: &str = "Look for a worker that outlived its parent (fuser -v /dev/nvidia*, also from the host where this runs in a container); ending it frees the memory, or else a reset of the GPU does.";

/// Blocks held with nothing running.
pub(crate) fn pool_at_idle(held: Bytes, lasted_s: f64, is_prefill: bool) -> String {
    let peer = if is_prefill { ", longer than a decoding peer takes to fetch them" } else { "" };
    format!(
        "{held} of the KV pool are held, and nothing has been running or waiting for {}{peer}.",
        duration(lasted_s)
    )
}

/// A pool whose calmest moments hold ever more.
pub(crate) fn pool_rising(grown: Bytes, span_s: f64, is_seen: bool) -> String {
    let load =
        if is_seen { "with no more requests than before" } else { "how many requests run is not known" };
    format!(
        "The least KV cache in use rose by {grown} in {} without once falling back: {load}.",
        duration(span_s)
    )
}

/// A pool of which more is unexplained each day.
pub(crate) fn pool_rising_by_the_day(grown: Bytes, span_s: f64) -> String {
    format!(
        "What running requests do not explain of the KV cache rose by {grown} in {}: at each time of the day it is more than the day before.",
        duration(span_s)
    )
}

/// What would settle a pool's leak.
pub(crate) const SETTLE_POOL: &str = "Stop the traffic: blocks that stay in use have leaked, unless the engine counts blocks kept for prefix reuse as used, or holds them for another engine that decodes.";

/// A rank that holds more than the others of its group.
pub(crate) fn imbalance(excess: Bytes, peers: Bytes, lasted_s: f64, is_diverging: bool) -> String {
    let course = if is_diverging { "and it draws away" } else { "and has been so all the while" };
    format!("{excess} more than its peers, which hold {peers} each, for {}: {course}.", duration(lasted_s))
}

/// What would settle an imbalance.
pub(crate) const SETTLE_IMBALANCE: &str = "Look for a helper that runs on this GPU only (a tokenizer, a router, an encoder), or a process that chose the first GPU by default. Ranks of one group hold equal shards: an excess that grows is this rank's own.";

/// An allocator whose free pieces are of no use.
pub(crate) fn fragmented(unused: Bytes, taken: Bytes, grown: Bytes) -> String {
    format!(
        "{unused} of the {taken} that the allocator holds lie unused, and it has taken {grown} more meanwhile: its free pieces do not fit."
    )
}

/// What would settle fragmentation.
pub(crate) const SETTLE_FRAGMENTED: &str = "Run once with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: fragmentation then stays away, a leak does not. It is no leak as long as what is in use does not grow.";

/// Memory held without any work.
pub(crate) fn idle_holder(held: Bytes, lasted_s: f64, gib_hours: f64, is_measured: bool) -> String {
    let told = if is_measured { "nothing has computed" } else { "the engine has had no request" };
    format!("{held} are held and {told} for {}: {gib_hours:.0} GiB hours so far.", duration(lasted_s))
}

/// What would settle whether anybody misses what an idle holder has.
pub(crate) const SETTLE_IDLE: &str = "Ask its owner whether it stands by or was forgotten. It is no leak: the memory holds its level, and a request might come any minute.";

/// Room that growth has nearly used up.
pub(crate) fn thin_headroom(room: Bytes, crept: Bytes) -> String {
    format!("Only {room} are left, after slow growth of {crept}.")
}

/// What would settle thin headroom.
pub(crate) const SETTLE_HEADROOM: &str = "Give the engine a smaller share, or find what grew: peaks that sampling misses are often larger than this.";

/// A pool that is reserved ahead.
pub(crate) fn reserved(pool: Bytes, used: Option<Bytes>) -> String {
    match used {
        Some(used) => {
            format!("The KV pool of {pool} is reserved ahead, {used} of it in use; memory holds its level.")
        }
        None => format!("The KV pool of {pool} is reserved ahead; memory holds its level."),
    }
}

/// A level that was found after growth.
pub(crate) fn settled(level: Bytes, since_s: f64) -> String {
    format!("Level at {level} since growth ended {} ago.", duration(since_s))
}

/// A process that takes what it needs to begin with.
pub(crate) fn warming_up(from: Bytes, age_s: f64) -> String {
    format!("Watched for {} only, and it has grown from {from}: this may be warm-up.", duration(age_s))
}

/// A floor that holds: the slowest leak that would have been seen, and over how many seconds.
pub(crate) fn steady(detectable: Option<(ByteRate, f64)>) -> String {
    match detectable {
        Some((rate, over_s)) => {
            format!("The floor holds: no leak above {rate} in the last {}.", duration(over_s))
        }
        None => "No rise that lasts; too early to rule out a slow leak.".to_owned(),
    }
}

/// Why nothing can be said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Silence {
    /// Nothing has ever been read.
    Unread,
    /// The reading has been absent for so many seconds.
    Missing(Absent, f64),
    /// Watched for so many seconds only.
    TooShort(f64),
    /// The last event was so many seconds ago.
    Disturbed(&'static str, f64),
    /// The series fell to a new beginning so many seconds ago.
    Restarted(f64),
    /// Samples leave too many gaps.
    Sparse,
}

/// Says why nothing can be said.
pub(crate) fn inconclusive(silence: Silence) -> String {
    match silence {
        Silence::Unread => "Nothing has been read yet.".to_owned(),
        Silence::Missing(why, s) => format!("No reading for {}: {why}.", duration(s)),
        Silence::TooShort(s) => format!("Watched for {} only.", duration(s)),
        Silence::Disturbed(event, s) => format!("Nothing holds still: {event} {} ago.", duration(s)),
        Silence::Restarted(s) => format!("Memory was given back and taken anew {} ago.", duration(s)),
        Silence::Sparse => "The samples leave too many gaps to judge.".to_owned(),
    }
}

/// An event in words.
pub(crate) const fn event(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::ProcessStart => "a process started",
        EventKind::ProcessExit => "a process ended",
        EventKind::EngineExit => "the engine ended",
        EventKind::ModelLoad(_) => "a model was loaded",
        EventKind::ModelUnload(_) => "a model was unloaded",
        EventKind::Sleep => "the engine went to sleep",
        EventKind::Wake => "the engine woke",
        EventKind::ContainerRemoved => "a container was removed",
        EventKind::DriverReload => "the driver was reloaded",
        EventKind::GpuLost => "the GPU was lost",
        EventKind::GpuBack => "the GPU came back",
        EventKind::Xid(_) => "the driver reported an error",
    }
}

/// A height as an amount of memory: MiB above an origin, never below nothing.
pub(crate) fn amount(origin: Bytes, mib: f64) -> Bytes {
    let offset = SignedBytes((mib * ebbtide_core::units::MIB as f64) as i64);
    Bytes(origin.0.saturating_add_signed(offset.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tired_person_understands_it() {
        let rate = ByteRate::from_mib_per_min(212.0);
        assert_eq!(
            leak(rate, 45.0, Bytes::from_mib(159), Account::OnDemand { exact: true }, Clock::Time),
            "Rising 212 MiB/min for 45 s at constant load, 159 MiB so far: the KV cache and the running requests do \
             not account for it."
        );
        assert_eq!(
            growth(rate, 20.0, Reserve::Explained),
            "Rising 212 MiB/min for 20 s: the KV cache in use accounts for it."
        );
        assert_eq!(
            slope_change(ByteRate::from_mib_per_min(2.0), ByteRate::from_mib_per_min(5.0), 1300.0),
            "Growth went from 2.0 MiB/min to 5.0 MiB/min 22 min ago, 2.5 times as fast, without a new maximum of load."
        );
        assert_eq!(
            imminent(540.0, rate, Bytes::from_mib(1900)),
            "Out of memory in about 9 min: 1.9 GiB are left and it grows by 212 MiB/min."
        );
        assert_eq!(
            steady(Some((ByteRate::from_mib_per_min(0.31), 21_600.0))),
            "The floor holds: no leak above 0.3 MiB/min in the last 6.0 h."
        );
        assert_eq!(
            inconclusive(Silence::Missing(Absent::DeviceLost, 95.0)),
            "No reading for 2 min: device lost."
        );
    }

    #[test]
    fn durations_keep_two_figures() {
        let shown = [4.0, 89.0, 120.0, 3600.0, 7200.0, 200_000.0].map(duration);
        assert_eq!(shown, ["4 s", "89 s", "2 min", "60 min", "2.0 h", "2.3 days"]);
    }
}
