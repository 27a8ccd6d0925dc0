//! The first line: which machine, how it fares, what is read, and whether what is shown is of now.

use ebbtide_api::wire::{Health, Level, Status};
use ebbtide_core::{GpuKind, GpuState, Severity};

use super::palette::{self, LOUD, QUIET};
use super::pen::Pen;
use super::{Look, wording};
use crate::model::{Link, Model};

pub(super) fn draw(pen: &mut Pen<'_>, model: &Model, look: &Look) {
    let width = pen.width();
    let link = link(&model.link);
    let link_style = if model.link == Link::Live { QUIET } else { LOUD };
    let link_width = u16::try_from(link.chars().count()).unwrap_or(width).min(width / 2);
    pen.right((width, 0), &link, link_width, link_style);
    let room = width.saturating_sub(link_width + 1);
    let mut x = pen.text((0, 0), "ebbtide", room, LOUD) + 2;
    let Some(status) = &model.status else { return };
    for (text, style) in words(status, look) {
        if x >= room {
            break;
        }
        x = pen.text((x, 0), &text, room - x, style) + 2;
    }
    let notes = notes(model);
    if let Some(note) = notes.first() {
        let more = if notes.len() > 1 { format!("(n: {} more) ", notes.len() - 1) } else { String::new() };
        let warning = palette::severity(Severity::Warning);
        pen.text((0, 1), &format!("! {more}{note}"), width, warning);
    }
}

fn words(status: &Status, look: &Look) -> Vec<(String, ratatui::style::Style)> {
    let mut words = vec![
        (level_word(status.level).to_owned(), palette::level(status.level)),
        (status.host.clone(), LOUD),
        (wording::clock(status.tick.at, &look.zone, "%H:%M:%S"), QUIET),
        (source(status), QUIET),
    ];
    let count = |state| status.gpus.iter().filter(|g| g.gpu.state == state).count();
    for (state, word) in [(GpuState::Lost, "LOST"), (GpuState::Stale, "STALE")] {
        let gpus = count(state);
        if gpus > 0 {
            words.insert(1, (format!("{gpus} GPU {word}"), palette::level(Level::Critical)));
        }
    }
    words
}

fn source(status: &Status) -> String {
    let host = status.gpus.iter().any(|g| g.gpu.kind == GpuKind::HostMemory);
    if host { "host memory, no GPU".to_owned() } else { status.health.probe.source.clone() }
}

const fn level_word(level: Level) -> &'static str {
    match level {
        Level::Ok => "OK",
        Level::Warning => "WARNING",
        Level::Critical => "CRITICAL",
        Level::Unknown => "UNKNOWN",
    }
}

fn link(link: &Link) -> String {
    match link {
        Link::Connecting => "connecting".to_owned(),
        Link::Live => "live".to_owned(),
        Link::Silent(seconds) => format!("STALE: no status for {seconds} s"),
        Link::Broken(_) => "DISCONNECTED, trying again".to_owned(),
    }
}

/// What is wrong with the connection and what the daemon has to say of itself, the gravest first.
pub(super) fn notes(model: &Model) -> Vec<String> {
    let mut notes = Vec::new();
    if let Link::Broken(why) = &model.link {
        notes.push(why.clone());
    }
    notes.extend(model.status.iter().flat_map(|status| of_daemon(&status.health)));
    notes
}

fn of_daemon(health: &Health) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(why) = &health.store_error {
        notes.push(format!("nothing is being stored: {why}"));
    }
    let counts = [
        (health.unstored_ticks, "ticks could not be stored: a gap in the history"),
        (health.undelivered, "alerts could not be delivered"),
        (health.probe.throttled_ticks, "ticks thinned to keep the budget of NVML time"),
        (health.probe.dropped_samples, "samples dropped: the pipeline was behind"),
    ];
    notes.extend(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    let dropped = health.dropped.iter().filter(|(_, n)| **n > 0);
    notes.extend(dropped.map(|(queue, n)| format!("{n} dropped from the queue {queue}")));
    notes.extend(health.probe.notes.iter().cloned());
    notes
}
