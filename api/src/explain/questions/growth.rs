//! What rises, what was given back, and how much room is left.

use ebbtide_core::{Diagnosis, FindingKind, SeriesPart};

use crate::explain::scene::Scene;
use crate::explain::words;

/// How fast, since when, why, and until when.
pub(super) fn growing(scene: &Scene<'_>) -> String {
    let now = scene.status.tick.at;
    let rises = [FindingKind::Leak, FindingKind::SlopeChange, FindingKind::KvPoolLeak, FindingKind::Growth];
    let out = scene.finding(&[FindingKind::Imminent]);
    if let Some(finding) = scene.finding(&rises).or(out) {
        let forecast = finding.forecast.or_else(|| out?.forecast);
        let when = forecast
            .map_or_else(String::new, |forecast| format!(" {}.", sentence(&words::forecast(&forecast, now))));
        return format!("{}: {}{when}", words::subject(finding), finding.summary);
    }
    match scene.judgement() {
        None => "Not known: nothing is judged yet.".to_owned(),
        Some(judgement) => match judgement.diagnosis {
            Diagnosis::Steady | Diagnosis::Reserved | Diagnosis::Settled => format!(
                "It does not ({} for {}){}.",
                judgement.diagnosis.name(),
                words::between(judgement.since, now),
                judgement.detectable.map_or_else(
                    |_| ", though not for long enough to see a slow leak".to_owned(),
                    |rate| format!("; a leak of {rate} would have been seen")
                )
            ),
            cause => format!("{}: {}", sentence(cause.name()), judgement.summary),
        },
    }
}

/// The same with a capital.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What an unload or a sleep has left.
pub(super) fn released(scene: &Scene<'_>) -> String {
    if let Some(finding) = scene.finding(&[FindingKind::NotReleased]) {
        return format!("No: {}: {}", words::subject(finding), finding.summary);
    }
    let asleep = scene.engines().into_iter().find(|(process, _)| {
        let report = process.engine.as_ref().and_then(|engine| engine.report.as_ref());
        report.is_some_and(|report| report.asleep == Ok(true))
    });
    match asleep {
        Some((process, ledger)) => format!(
            "{} sleeps and holds {}; nothing says that this is more than usual.",
            words::process(process),
            words::value(ledger.vram)
        ),
        None => {
            "No release is seen that left more than usual; those before the daemon's start are not known."
                .to_owned()
        }
    }
}

/// How much is left, and what lies outside of an engine's budget.
pub(super) fn headroom(scene: &Scene<'_>) -> String {
    let free = match scene.gpu.gpu.memory {
        Ok(memory) => memory.free,
        Err(why) => return format!("Not known: the memory cannot be read ({why})."),
    };
    if let Some(finding) = scene.finding(&[FindingKind::Imminent, FindingKind::ThinHeadroom]) {
        return format!("{free} are free. {}", finding.summary);
    }
    let beside = scene.engines().into_iter().find_map(|(process, ledger)| {
        let remainder = ledger.remainder.ok().filter(|remainder| remainder.bytes.0 > 0)?;
        Some(format!("{} of {} lie outside of weights and pool", remainder, words::process(process)))
    });
    let beside = beside
        .unwrap_or_else(|| "how much of that an engine has outside of its budget is not known".to_owned());
    format!("{free} are free for peaks and graphs, which lie outside of an engine's budget; {beside}.")
}

/// Resident memory of the processes.
pub(super) fn host(scene: &Scene<'_>) -> String {
    let now = scene.status.tick.at;
    if let Some(finding) = scene.finding(&[FindingKind::HostLeak]) {
        let limit = finding
            .forecast
            .map_or_else(String::new, |f| format!(" {}.", sentence(&words::forecast(&f, now))));
        return format!("Yes: {}: {}{limit}", words::subject(finding), finding.summary);
    }
    let processes = scene.processes();
    let Some(largest) = processes.iter().max_by_key(|process| process.rss.ok()) else {
        return "No process is listed whose host memory could be read.".to_owned();
    };
    let Ok(rss) = largest.rss else {
        return "Not known: no process's host memory can be read.".to_owned();
    };
    let limit = largest.host_limit.map_or_else(|_| String::new(), |limit| format!(" of a limit of {limit}"));
    let held = format!("{} holds {rss}{limit}", words::process(largest));
    match scene.judgement_of(SeriesPart::Host(largest.key)) {
        Some(judgement) if judgement.diagnosis == Diagnosis::Inconclusive => {
            format!("Not known yet: {held}. {}", judgement.summary)
        }
        Some(judgement) => format!("No leak is seen ({}): {held}.", judgement.diagnosis.name()),
        None => format!("Not judged: {held}."),
    }
}
