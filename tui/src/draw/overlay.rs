//! What lies over the panes: the keys, what the daemon says of itself, and everything about what is selected.

use ebbtide_api::wire::Status;
use ebbtide_core::{Evidence, Finding, Judgement, ProcSample, Ts};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Clear, Widget};

use super::palette::LOUD;
use super::pen::Pen;
use super::{Look, findings, header, processes, wording};
use crate::keymap::BINDINGS;
use crate::model::{Model, Overlay, Pane};
use crate::row::RowKey;

/// A label and what belongs to it; without a label a paragraph.
type Entry = (String, String);

/// Columns of the labels.
const LABEL: u16 = 12;
/// The widest text that is pleasant to read.
const WIDEST: u16 = 100;

pub(super) fn draw(buf: &mut Buffer, screen: Rect, model: &Model, look: &Look) {
    let Some(overlay) = model.overlay else { return };
    let (title, entries) = match overlay {
        Overlay::Help => ("Keys".to_owned(), keys()),
        Overlay::Notes => {
            ("The daemon".to_owned(), model.status.as_ref().map_or_else(Vec::new, |s| daemon(s, look)))
        }
        Overlay::Detail => detail(model, look),
    };
    let width = screen.width.saturating_sub(4).min(WIDEST);
    let lines = lines(&entries, width.saturating_sub(4));
    let wanted = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let height = wanted.min(screen.height.saturating_sub(2));
    if width < 10 || height < 3 {
        return;
    }
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buf);
    let block = Block::bordered().title(format!(" {} ", wording::fit(&title, usize::from(width - 4))));
    let inner = block.inner(area);
    block.render(area, buf);
    let mut pen = Pen::new(buf, Rect { x: inner.x + 1, width: inner.width - 1, ..inner });
    for (y, (label, text)) in (0..).zip(&lines) {
        pen.text((0, y), label, LABEL, LOUD);
        let x = if label.is_empty() && entries.iter().all(|e| e.0.is_empty()) { 0 } else { LABEL + 1 };
        pen.text((x, y), text, pen.width(), ratatui::style::Style::new());
    }
}

/// Entries as lines of at most `width` columns; a label stands at the first of its lines.
fn lines(entries: &[Entry], width: u16) -> Vec<Entry> {
    let mut lines = Vec::new();
    for (label, text) in entries {
        let mut label = label.clone();
        for line in wording::wrap(text, usize::from(width.saturating_sub(LABEL + 1))) {
            lines.push((std::mem::take(&mut label), line));
        }
    }
    lines
}

fn entry(label: &str, text: impl Into<String>) -> Entry {
    (label.to_owned(), text.into())
}

fn keys() -> Vec<Entry> {
    BINDINGS.iter().map(|b| entry(b.shown, b.help)).collect()
}

fn daemon(status: &Status, look: &Look) -> Vec<Entry> {
    let health = &status.health;
    let running = wording::duration(wording::elapsed(health.started_at, status.tick.at));
    let since = wording::clock(health.started_at, &look.zone, "%Y-%m-%d %H:%M");
    let memory =
        health.rss_bytes.map_or_else(|| wording::UNKNOWN.to_owned(), |b| ebbtide_core::Bytes(b).to_string());
    let mut entries = vec![
        entry("version", format!("{} on {}", status.version, status.host)),
        entry("running", format!("{running}, since {since}, with {memory} of host memory")),
        entry("source", &*health.probe.source),
        entry("stored", format!("{} ticks, {} not stored", health.stored_ticks, health.unstored_ticks)),
        entry("alerts", format!("{} delivered, {} given up", health.delivered, health.undelivered)),
        entry(
            "NVML",
            format!("{} calls, {} ms in all", health.probe.nvml_calls, health.probe.nvml_us / 1000),
        ),
    ];
    entries.extend(header::notes(health).iter().map(|note| entry("note", note)));
    entries
}

/// Everything about what is selected in the pane that has the keys.
fn detail(model: &Model, look: &Look) -> (String, Vec<Entry>) {
    let now = model.status.as_ref().map_or(Ts(0), |s| s.tick.at);
    match model.pane {
        Pane::Findings => match model.selected_finding() {
            Some(finding) => {
                (format!("Finding: {}", finding.key.kind.name()), about_finding(finding, now, look))
            }
            None => ("Finding".to_owned(), vec![entry("", "no finding is open")]),
        },
        Pane::Gpus => match model.selected_gpu() {
            Some(gpu) => {
                let mut entries = vec![entry("name", &*gpu.gpu.name), entry("uuid", gpu.gpu.uuid.as_str())];
                entries.extend(gpu.judgements.first().into_iter().flat_map(|j| about_judgement(j, now)));
                (format!("GPU {}", gpu.gpu.index), entries)
            }
            None => ("GPU".to_owned(), vec![entry("", "no GPU is known")]),
        },
        Pane::Processes => about_row(model, now, look),
    }
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
    (title, entries)
}

fn about_process(process: &ProcSample, look: &Look) -> Vec<Entry> {
    let info = &process.info;
    let text = |r: &ebbtide_core::Reading<String>| r.clone().unwrap_or_else(wording::unknown);
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
        let count = |r: ebbtide_core::Reading<u32>| wording::value(r);
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
        ebbtide_core::Tier::Early => "early",
        ebbtide_core::Tier::Confirmed => "confirmed",
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
