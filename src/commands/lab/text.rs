//! The outcome for people at a terminal, and as Markdown.

use std::fmt::Write;

use ebbtide_engine::lab::Outcome;

use super::table::{self, Table};

/// Columns of a terminal that is as narrow as they come.
const WIDTH: usize = 80;
/// Characters of the longest bar.
const BAR: usize = 44;

/// Tables one under the other, and a chart.
pub(super) fn of(outcome: &Outcome) -> String {
    let mut text = folded(&format!("ebbtide lab: {}", table::heading(outcome)));
    for table in table::all(outcome) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}\n{}", table.title, aligned(&table));
        text.push_str(&folded(&table.note));
        if table.title == "Memory" {
            text.push_str(&chart(outcome));
        }
    }
    text
}

/// The same tables for a page of documentation.
pub(super) fn markdown(outcome: &Outcome) -> String {
    let mut text = format!("{}\n", table::heading(outcome));
    for table in table::all(outcome) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let columns: Vec<String> = table.columns.iter().map(ToString::to_string).collect();
        let rule: Vec<String> =
            (0..columns.len()).map(|at| if at == 0 { "---" } else { "--:" }.to_owned()).collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "\n**{}**\n\n{}{}", table.title, line(&columns), line(&rule));
        table.rows.iter().for_each(|row| text.push_str(&line(row)));
        let _ = write!(text, "\n{}\n", table.note);
    }
    text
}

/// Requests that fit, as bars.
fn chart(outcome: &Outcome) -> String {
    let most = outcome.rows.iter().map(|row| row.capacity.requests).fold(1.0, f64::max);
    let width = outcome.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut text = "\nRequests that fit\n".to_owned();
    for row in &outcome.rows {
        let requests = row.capacity.requests;
        let bar = "█".repeat((requests / most * BAR as f64).round() as usize);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<width$}  {bar} {requests:.0}", row.name);
    }
    text
}

/// Columns as wide as what is in them, numbers to the right.
fn aligned(table: &Table) -> String {
    let heading: Vec<String> = table.columns.iter().map(ToString::to_string).collect();
    let lines = || std::iter::once(&heading).chain(&table.rows);
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| lines().map(|cells| cells[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for cells in lines() {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
        });
        text.push_str(padded.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

/// `text` in lines that fit.
fn folded(text: &str) -> String {
    let mut folded = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if length > 0 && length + 1 + width > WIDTH {
            folded.push('\n');
            length = 0;
        } else if length > 0 {
            folded.push(' ');
            length += 1;
        }
        folded.push_str(word);
        length += width;
    }
    folded + "\n"
}
