//! What an engine keeps on purpose.

use ebbtide_core::{
    Diagnosis, EngineLedger, EngineReport, EngineRole, FindingKind, KvSemantics, ProcSample, Reading,
};

use crate::explain::scene::Scene;
use crate::explain::words;

/// Reserved by a setting, or not known to be.
pub(super) fn reserved(scene: &Scene<'_>) -> String {
    let used = match scene.used() {
        Ok(used) => used,
        Err(why) => return format!("Not known: the memory cannot be read ({why})."),
    };
    if used.0 == 0 {
        return "Nothing is used.".to_owned();
    }
    let pools: Vec<String> = scene.engines().iter().filter_map(|(p, l)| of_pool(p, l)).collect();
    if !pools.is_empty() {
        return pools.join(" ");
    }
    match scene.processes().first() {
        Some(largest) if largest.engine.is_some() => format!(
            "{} holds {}; its engine counts no KV pool in bytes, so how much is reserved cannot be said.",
            words::process(largest),
            words::value(largest.memory)
        ),
        Some(largest) => format!(
            "{} holds {}; no engine answers in it, so whether that is reserved or in use cannot be said.",
            words::process(largest),
            words::value(largest.memory)
        ),
        None => format!("{used} are used and no process is listed: see who holds memory unseen."),
    }
}

/// `vLLM reserved a pool of 57.4 GiB (gpu_memory_utilization 0.9); 1.2 GiB of it is in use.`
fn of_pool(process: &ProcSample, ledger: &EngineLedger) -> Option<String> {
    let report = process.engine.as_ref()?.report.as_deref();
    let name = report.map_or_else(|| words::process(process), |report| report.engine.clone());
    if report.is_some_and(|report| report.asleep == Ok(true)) {
        let held = words::value(ledger.vram);
        return Some(format!("{name} sleeps and has given its pool back; {held} stay with the process."));
    }
    let pool = ledger.pool.ok()?;
    let setting = report.and_then(setting).map_or_else(String::new, |setting| format!(" ({setting})"));
    let used = match ledger.used {
        Ok(used) => format!("{used} of it is in use"),
        Err(why) => format!("how much of it is in use is not known ({why})"),
    };
    Some(format!("{name} reserved a pool of {pool}{setting}; {used}."))
}

/// The setting that the pool follows from, as the engine calls it.
fn setting(report: &EngineReport) -> Option<String> {
    let name = match report.engine.as_str() {
        "SGLang" => "mem_fraction_static",
        _ => "gpu_memory_utilization",
    };
    report.share.ok().map(|share| format!("{name} {share}"))
}

/// Kept for reuse, leaked, or not yet known.
pub(super) fn kept(scene: &Scene<'_>) -> String {
    let leaks = [FindingKind::KvPoolLeak, FindingKind::Leak, FindingKind::NotReleased];
    if let Some(finding) = scene.finding(&leaks) {
        return format!("Yes, as it looks: {}: {}", words::subject(finding), finding.summary);
    }
    let engines = scene.engines();
    let prefill = engines.iter().find(|(process, _)| role(process) == Some(EngineRole::Prefill));
    if let Some((process, ledger)) = prefill {
        return format!(
            "No: {} is a prefill node and holds {} for its decoding peer.",
            words::process(process),
            words::value(ledger.used)
        );
    }
    let reuse = engines.iter().find_map(|(process, ledger)| kept_for_reuse(process, ledger));
    match scene.judgement() {
        None => "Not known: nothing is judged yet.".to_owned(),
        Some(judgement) => match judgement.diagnosis {
            Diagnosis::Steady | Diagnosis::Settled | Diagnosis::Reserved | Diagnosis::Restarted => format!(
                "No: {} for {}{}.",
                level(judgement.floor),
                words::between(judgement.since, scene.status.tick.at),
                reuse.map_or_else(String::new, |reuse| format!("; {reuse}"))
            ),
            _ => format!("Not settled ({}): {}", judgement.diagnosis.name(), judgement.summary),
        },
    }
}

fn level(floor: Reading<ebbtide_core::Bytes>) -> String {
    floor.map_or_else(|_| "level".to_owned(), |floor| format!("level at {floor}"))
}

fn role(process: &ProcSample) -> Option<EngineRole> {
    Some(process.engine.as_ref()?.report.as_ref()?.role)
}

fn kept_for_reuse(process: &ProcSample, ledger: &EngineLedger) -> Option<String> {
    match (ledger.cached, ledger.spare) {
        (Ok(cached), _) => Some(format!("{cached} of the pool are cached for reuse")),
        (Err(_), Ok(spare)) => Some(format!("{spare} of the pool are idle or cached for reuse")),
        _ if process.engine.as_ref()?.semantics == KvSemantics::ReferencedAndCached => {
            Some("what the engine calls used includes what it keeps for reuse".to_owned())
        }
        _ => None,
    }
}

/// Whether long contexts can make it climb at all.
pub(super) fn climbs(scene: &Scene<'_>) -> String {
    if let Some(judgement) = scene.judged(&[Diagnosis::KvGrowth, Diagnosis::HighWater, Diagnosis::WarmingUp])
    {
        return format!("Yes ({}): {}", judgement.diagnosis.name(), judgement.summary);
    }
    let fill = scene.engines().into_iter().find_map(|(process, ledger)| {
        let (used, pool) = (ledger.used.ok()?, ledger.pool.ok()?);
        Some((process, words::percent(Ok(used.bytes), Ok(pool.bytes))?, pool))
    });
    match fill {
        Some((process, share, pool)) => format!(
            "Long contexts fill the pool of {pool} ({share} % now) and do not raise the memory of {}; images and new longest prompts may raise it once (activations, encoder cache), and no engine counts those.",
            words::process(process)
        ),
        None => "Up to a new longest prompt or largest image it may, once; whether it did cannot be told without the engine's counters.".to_owned(),
    }
}
