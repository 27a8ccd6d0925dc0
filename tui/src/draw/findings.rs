//! The open findings of the machine, most severe first.

use ebbtide_core::{Finding, Subject, Tier, Ts};
use ratatui::style::Style;

use super::palette::{self, LOUD, QUIET};
use super::pen::{Pen, window};
use super::wording;
use crate::model::{Model, Pane};

pub(super) fn draw(pen: &mut Pen<'_>, model: &Model) {
    let focused = model.pane == Pane::Findings;
    let findings = model.findings();
    let note = if findings.is_empty() { String::new() } else { format!("{} open", findings.len()) };
    pen.rule("Findings", &note, focused);
    let Some(status) = &model.status else { return };
    if findings.is_empty() {
        pen.text((2, 1), "none open", pen.width(), QUIET);
        return;
    }
    let texts: Vec<Vec<String>> = findings.iter().map(|f| in_full(f, pen.width())).collect();
    let room = usize::from(pen.height().saturating_sub(1));
    let full = texts.iter().map(|lines| lines.len() + 1).sum::<usize>() <= room;
    let pairs = findings.len() * 2 <= room;
    let selected = model.finding_place();
    let first = if full || pairs { 0 } else { window(findings.len(), selected, room) };
    let mut y = 1;
    for (place, (finding, lines)) in findings.iter().zip(&texts).enumerate().skip(first) {
        let after = draw_title(pen, y, finding, status.tick.at);
        if !full {
            let line = format!("{}: {}", subject(&finding.subject), finding.summary);
            pen.text((after, y), &line, pen.width().saturating_sub(after), Style::new());
        }
        if place == selected {
            pen.mark(y, focused);
        }
        y += 1;
        let settle = [settle(finding)];
        let below: &[String] = match (full, pairs) {
            (true, _) => lines,
            (false, true) => &settle,
            (false, false) => &[],
        };
        for line in below {
            pen.text((4, y), line, pen.width(), QUIET);
            y += 1;
        }
    }
}

/// The first row of a finding. Returns the column after it.
fn draw_title(pen: &mut Pen<'_>, y: u16, finding: &Finding, now: Ts) -> u16 {
    let mut x = pen.text((2, y), finding.severity.name(), 8, palette::severity(finding.severity)) + 1;
    x = pen.text((x, y), finding.key.kind.name(), 12, LOUD) + 1;
    if finding.tier == Tier::Early {
        x = pen.text((x, y), "(early)", 7, QUIET) + 1;
    }
    let age = wording::short_duration(wording::elapsed(finding.opened_at, now));
    pen.text((x, y), &age, 4, QUIET) + 1
}

/// All that is said of a finding, in lines: whom it is about, what it is, what would settle it.
fn in_full(finding: &Finding, screen: u16) -> Vec<String> {
    let width = usize::from(screen.saturating_sub(4));
    let texts = [subject(&finding.subject), finding.summary.clone(), settle(finding)];
    texts.iter().flat_map(|text| wording::wrap(text, width)).collect()
}

fn settle(finding: &Finding) -> String {
    format!("settle: {}", finding.settle)
}

/// Whom a finding is about, in a few words.
pub(super) fn subject(subject: &Subject) -> String {
    let mut words = Vec::new();
    if let Some(index) = subject.gpu_index {
        words.push(format!("GPU {index}"));
    }
    if !subject.process.is_empty() {
        words.push(subject.process.clone());
    }
    words.extend(wording::owner(&subject.owner));
    words.join(", ")
}
