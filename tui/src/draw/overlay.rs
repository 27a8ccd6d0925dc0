//! What lies over the panes: the keys, what the daemon says of itself, and everything about what is selected.

use ebbtide_api::wire::Status;
use ebbtide_core::Bytes;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Block, Clear, Widget};

use super::detail::{Entry, detail, entry};
use super::palette::LOUD;
use super::pen::Pen;
use super::{Look, header, wording};
use crate::keymap::BINDINGS;
use crate::model::{Model, Overlay};

/// Columns of the labels.
const LABEL: u16 = 12;
/// The widest text that is pleasant to read.
const WIDEST: u16 = 100;

pub(super) fn draw(buf: &mut Buffer, screen: Rect, model: &Model, look: &Look) {
    let Some(overlay) = model.overlay else { return };
    let (title, entries) = match overlay {
        Overlay::Help => ("Keys".to_owned(), keys()),
        Overlay::Notes => {
            let mut entries = model.status.as_ref().map_or_else(Vec::new, |s| daemon(s, look));
            entries.extend(header::notes(model).iter().map(|note| entry("note", note)));
            ("The daemon".to_owned(), entries)
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
    let title = format!(" {} ", wording::fit(&title, usize::from(width - 4)));
    let page_lines = usize::from(height - 2);
    let pages = lines.len().div_ceil(page_lines);
    let page = model.page.checked_rem(pages).unwrap_or(0);
    let mut block = Block::bordered().title(title);
    if pages > 1 {
        block = block.title_bottom(format!(" page {} of {pages}: PgDn ", page + 1));
    }
    let inner = block.inner(area);
    block.render(area, buf);
    let mut pen = Pen::new(buf, Rect { x: inner.x + 1, width: inner.width - 1, ..inner });
    for (y, (label, text)) in (0..).zip(lines.iter().skip(page * page_lines).take(page_lines)) {
        pen.text((0, y), label, LABEL, LOUD);
        pen.text((LABEL + 1, y), text, pen.width(), Style::new());
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

fn keys() -> Vec<Entry> {
    BINDINGS.iter().map(|b| entry(b.shown, b.help)).collect()
}

fn daemon(status: &Status, look: &Look) -> Vec<Entry> {
    let health = &status.health;
    let running = wording::duration(wording::elapsed(health.started_at, status.tick.at));
    let since = wording::clock(health.started_at, &look.zone, "%Y-%m-%d %H:%M");
    let memory = health.rss_bytes.map_or_else(|| wording::UNKNOWN.to_owned(), |b| Bytes(b).to_string());
    let machine = [status.machine.available, status.machine.total].map(wording::value);
    vec![
        entry("version", format!("{} on {}", status.version, status.host)),
        entry("running", format!("{running}, since {since}, with {memory} of host memory")),
        entry("machine", format!("{} of {} host memory available", machine[0], machine[1])),
        entry("source", &*health.probe.source),
        entry("stored", format!("{} ticks, {} not stored", health.stored_ticks, health.unstored_ticks)),
        entry("alerts", format!("{} delivered, {} given up", health.delivered, health.undelivered)),
        entry(
            "NVML",
            format!("{} calls, {} ms in all", health.probe.nvml_calls, health.probe.nvml_us / 1000),
        ),
    ]
}
