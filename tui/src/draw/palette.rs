//! Colours, and what becomes of a screen for terminals that have none or know only ASCII.

use ebbtide_api::wire::Level;
use ebbtide_core::{Diagnosis, Severity};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// For what is not the point: labels, units, the unknown.
pub(super) const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
/// For what should be seen first.
pub(super) const LOUD: Style = Style::new().add_modifier(Modifier::BOLD);
/// Memory in use.
pub(super) const USED: Style = Style::new().fg(Color::Cyan);
/// What stays when load ebbs.
pub(super) const FLOOR: Style = Style::new().fg(Color::Yellow);

pub(super) const fn level(level: Level) -> Style {
    match level {
        Level::Ok => LOUD.fg(Color::Green),
        Level::Warning => LOUD.fg(Color::Yellow),
        Level::Critical => LOUD.fg(Color::Red),
        Level::Unknown => LOUD.fg(Color::Magenta),
    }
}

pub(super) const fn severity(severity: Severity) -> Style {
    match severity {
        Severity::Info => Style::new(),
        Severity::Warning => Style::new().fg(Color::Yellow),
        Severity::Critical => LOUD.fg(Color::Red),
    }
}

pub(super) const fn diagnosis(diagnosis: Diagnosis) -> Style {
    match diagnosis {
        Diagnosis::Inconclusive | Diagnosis::Restarted => QUIET,
        Diagnosis::Steady | Diagnosis::Reserved | Diagnosis::Settled => Style::new().fg(Color::Green),
        Diagnosis::Growth
        | Diagnosis::WarmingUp
        | Diagnosis::KvGrowth
        | Diagnosis::HighWater
        | Diagnosis::Settling
        | Diagnosis::IdleHolder => Style::new().fg(Color::Cyan),
        Diagnosis::Leak | Diagnosis::KvPoolLeak | Diagnosis::HostLeak => LOUD.fg(Color::Red),
        Diagnosis::SlopeChange
        | Diagnosis::NotReleased
        | Diagnosis::Orphan
        | Diagnosis::Imbalance
        | Diagnosis::Fragmented => LOUD.fg(Color::Yellow),
    }
}

/// Takes all colours off the screen; bold and dim stay.
pub(super) fn drop_colour(buf: &mut Buffer) {
    for cell in &mut buf.content {
        cell.fg = Color::Reset;
        cell.bg = Color::Reset;
    }
}

/// Puts a plain character for every one that is not ASCII.
pub(super) fn fold_to_ascii(buf: &mut Buffer) {
    for cell in &mut buf.content {
        if !cell.symbol().is_ascii() {
            let plain = plain(cell.symbol());
            cell.set_symbol(plain);
        }
    }
}

fn plain(symbol: &str) -> &'static str {
    // tidy: table
    match symbol {
        "─" | "–" | "┄" => "-",
        "━" => "=",
        "│" => "|",
        "┌" | "┐" | "└" | "┘" => "+",
        "█" | "▆" | "▇" => "#",
        "▃" | "▄" | "▅" => ":",
        "▁" | "▂" | "░" | "·" => ".",
        "▒" => "%",
        "▶" | "→" => ">",
        "▷" => "-",
        "←" => "<",
        "↑" => "^",
        "↓" => "v",
        "…" => "~",
        _ => "?",
    }
}
