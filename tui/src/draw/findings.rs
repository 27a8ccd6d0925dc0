//! The open findings of the machine, most severe first.

use ebbtide_core::{Finding, Subject, Ts};
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
    let room = usize::from(pen.height().saturating_sub(1));
    // With room to spare each finding says in full what it is and what would settle it.
    let each = [4, 2].into_iter().find(|rows| room >= findings.len() * rows).unwrap_or(1);
    let height = room / each;
    let selected = model.finding_place();
    let first = window(findings.len(), selected, height);
    let mut y = 1;
    for (place, finding) in findings.iter().enumerate().skip(first) {
        if y >= pen.height() {
            break;
        }
        let top = y;
        draw_finding(pen, y, finding, status.tick.at, each);
        y += u16::try_from(each).unwrap_or(1);
        if place == selected {
            pen.mark(top, focused);
        }
    }
}

/// Draws one finding in one row, two or four.
fn draw_finding(pen: &mut Pen<'_>, y: u16, finding: &Finding, now: Ts, rows: usize) {
    let width = pen.width();
    let mut x = pen.text((2, y), finding.severity.name(), 8, palette::severity(finding.severity)) + 1;
    x = pen.text((x, y), finding.key.kind.name(), 12, LOUD) + 1;
    let age = wording::short_duration(wording::elapsed(finding.opened_at, now));
    x = pen.text((x, y), &age, 4, QUIET) + 1;
    if rows == 4 {
        pen.text((x, y), &subject(&finding.subject), width.saturating_sub(x), QUIET);
        let lines = wording::wrap(&finding.summary, usize::from(width.saturating_sub(4)));
        for (row, line) in (y + 1..).zip(lines.iter().take(2)) {
            pen.text((4, row), line, width, Style::new());
        }
    } else {
        pen.text((x, y), &finding.summary, width.saturating_sub(x), Style::new());
    }
    if rows > 1 {
        let last = y + u16::try_from(rows - 1).unwrap_or(1);
        pen.text((4, last), &format!("settle: {}", finding.settle), width, QUIET);
    }
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
