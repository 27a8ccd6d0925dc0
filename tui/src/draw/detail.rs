//! Everything about what is selected, as labelled lines.

use ebbtide_api::explain::{About, Explanation, explain};
use ebbtide_api::wire::GpuStatus;
use ebbtide_core::{
    Alert, AlertState, Evidence, Finding, Judgement, ProcSample, Reading, SeriesPart, Tier, Ts,
};

use super::{Look, findings, processes, wording};
use crate::model::{Model, Pane};
use crate::row::{self, RowKey};

/// A label and what belongs to it; a line without a label continues the one above.
pub(super) type Entry = (String, String);

pub(super) fn entry(label: &str, text: impl Into<String>) -> Entry {
    (label.to_owned(), text.into())
}

/// A title and everything about what is selected in the pane that has the keys.
pub(super) fn detail(model: &Model, look: &Look) -> (String, Vec<Entry>) {
    let now = model.status.as_ref().map_or(Ts(0), |s| s.tick.at);
    match model.pane {
        Pane::Gpus => match model.selected_gpu() {
            Some(gpu) => {
                let mut entries = about_gpu(gpu, now);
                entries.extend(explained(model, &About::Gpu(gpu.gpu.uuid.clone())));
                (format!("GPU {}", gpu.gpu.index), entries)
            }
            None => ("GPU".to_owned(), vec![entry("", "no GPU is known")]),
        },
        Pane::Processes => about_row(model, now, look),
        Pane::Findings => match model.selected_finding() {
            Some(finding) => {
                let mut entries = about_finding(finding, now, look);
                let alerts = model.status.iter().flat_map(|s| &s.alerts);
                entries.extend(alerts.filter(|a| a.finding.key == finding.key).map(|a| alert(a, look)));
                (format!("Finding: {}", finding.key.kind.name()), entries)
            }
            None => ("Finding".to_owned(), vec![entry("", "no finding is open")]),
        },
    }
}

fn about_gpu(gpu: &GpuStatus, now: Ts) -> Vec<Entry> {
    let memory = match gpu.gpu.memory {
        Ok(m) => format!("{} used, {} free of {}", m.used, m.free, m.total),
        Err(why) => wording::unknown(why),
    };
    let mut entries =
        vec![entry("name", &*gpu.gpu.name), entry("uuid", gpu.gpu.uuid.as_str()), entry("memory", memory)];
    let said = row::judgement(gpu, SeriesPart::Device);
    entries.extend(said.into_iter().flat_map(|j| about_judgement(j, now)));
    entries
}

fn about_row(model: &Model, now: Ts, look: &Look) -> (String, Vec<Entry>) {
    let rows = model.rows();
    let Some(row) = rows.get(model.row_place(&rows)) else {
        return ("Process".to_owned(), vec![entry("", "no process is listed")]);
    };
    let (title, mut entries) = match (row.key, row.process) {
        (_, Some(process)) => (format!("Process {}", process.key), about_process(process, look)),
        (RowKey::Reserved, _) => (
            "Driver reserved".to_owned(),
            vec![entry(
                "what",
                "memory that driver and firmware keep for themselves; other tools may count it as used",
            )],
        ),
        _ => (
            "Unattributed".to_owned(),
            vec![entry(
                "what",
                "memory that no listed process explains: managed memory, contexts of other namespaces and \
                     orphans make it positive; memory shared between processes, which the driver counts twice, \
                     makes it negative",
            )],
        ),
    };
    entries.push(entry("memory", wording::value(row.memory)));
    entries.extend(row.judgement.into_iter().flat_map(|j| about_judgement(j, now)));
    if let (Some(process), Some(gpu)) = (row.process, model.selected_gpu()) {
        entries.extend(explained(model, &About::Process(gpu.gpu.uuid.clone(), process.key)));
    }
    (title, entries)
}

/// What the memory is for, the questions that people ask of it, and what cannot be known.
fn explained(model: &Model, about: &About) -> Vec<Entry> {
    let explanation = model.status.as_ref().and_then(|status| explain(status, about));
    let Some(Explanation { split, answers, unknown, .. }) = explanation else { return Vec::new() };
    let split = split.into_iter().map(|line| entry("split", line));
    let answers = answers.into_iter().map(|answer| entry(&answer.topic, answer.answer));
    split.chain(answers).chain(unknown.into_iter().map(|line| entry("not known", line))).collect()
}

fn about_process(process: &ProcSample, look: &Look) -> Vec<Entry> {
    let info = &process.info;
    let text = |r: &Reading<String>| r.clone().unwrap_or_else(wording::unknown);
    let started = info
        .started_at
        .map_or_else(wording::unknown, |at| wording::clock(at, &look.zone, "%Y-%m-%d %H:%M:%S"));
    let mut entries = vec![
        entry("name", processes::process_name(process)),
        entry("command", text(&info.command)),
        entry("user", text(&info.user)),
        entry("owner", wording::owner(&info.owner).unwrap_or_else(|| wording::UNKNOWN.to_owned())),
        entry("started", started),
        entry("host RSS", process.rss.map_or_else(wording::unknown, |b| b.to_string())),
        entry("host limit", process.host_limit.map_or_else(wording::unknown, |b| b.to_string())),
    ];
    if let Some(engine) = &process.engine {
        let count = |r: Reading<u32>| wording::value(r);
        entries.push(entry(
            "KV cache",
            format!("{} of {}", wording::value(engine.kv_used), wording::value(engine.kv_pool)),
        ));
        entries.push(entry(
            "requests",
            format!("{} running, {} waiting", count(engine.running), count(engine.waiting)),
        ));
    }
    entries
}

fn about_judgement(judgement: &Judgement, now: Ts) -> Vec<Entry> {
    let since = wording::duration(wording::elapsed(judgement.since, now));
    let detectable =
        judgement.detectable.map_or_else(wording::unknown, |r| format!("a leak of {r} would have been seen"));
    let mut entries = vec![
        entry("diagnosis", format!("{} for {since}", judgement.diagnosis.name())),
        entry("", &*judgement.summary),
        entry("floor", judgement.floor.map_or_else(wording::unknown, |b| b.to_string())),
        entry("slope", judgement.slope.map_or_else(wording::unknown, |b| wording::band(&b))),
        entry("sensitivity", detectable),
    ];
    entries.extend(judgement.forecast.iter().map(|f| entry("forecast", wording::forecast(f, now))));
    entries.extend(judgement.evidence.iter().map(evidence));
    entries
}

fn about_finding(finding: &Finding, now: Ts, look: &Look) -> Vec<Entry> {
    let tier = match finding.tier {
        Tier::Early => "early",
        Tier::Confirmed => "confirmed",
    };
    let at = |ts| {
        format!(
            "{} ({} ago)",
            wording::clock(ts, &look.zone, "%Y-%m-%d %H:%M:%S"),
            wording::duration(wording::elapsed(ts, now))
        )
    };
    let mut entries = vec![
        entry("what", &*finding.summary),
        entry("settle", &*finding.settle),
        entry("about", findings::subject(&finding.subject)),
        entry("severity", format!("{}, {tier}", finding.severity.name())),
        entry("opened", at(finding.opened_at)),
    ];
    entries.extend(finding.onset_at.map(|ts| entry("onset", at(ts))));
    entries.extend(finding.rate.iter().map(|r| entry("rate", wording::band(r))));
    entries.extend(finding.grown.map(|b| entry("grown", b.to_string())));
    entries.extend(finding.forecast.iter().map(|f| entry("forecast", wording::forecast(f, now))));
    entries.extend(finding.evidence.iter().map(evidence));
    entries
}

fn evidence(fact: &Evidence) -> Entry {
    let needed = fact.needed.map_or_else(String::new, |n| format!(", needed {}", wording::figure(n)));
    entry("evidence", format!("{} {} {}{needed}", fact.what, wording::figure(fact.value), fact.unit))
}

fn alert(alert: &Alert, look: &Look) -> Entry {
    let at = |ts: Option<Ts>| {
        ts.map_or_else(|| wording::UNKNOWN.to_owned(), |ts| wording::clock(ts, &look.zone, "%H:%M:%S"))
    };
    let text = match alert.state {
        AlertState::Pending => "pending: policy waits for it to last".to_owned(),
        AlertState::Firing => {
            format!("firing: first told at {}, last at {}", at(alert.fired_at), at(alert.notified_at))
        }
        AlertState::Resolved => "resolved".to_owned(),
    };
    entry("alert", text)
}
