//! The report for people: a chart, the diagnosis, its evidence, what happened when.

use std::fmt::Write;

use ebbtide_core::{Evidence, Ts};

use super::report::{FindingReport, FoundThen, Report, SeriesReport};
use crate::chart;
use crate::commands::status::clock;

/// Columns and rows of a chart: it fits an 80-column terminal beside its scale.
const CHART: (usize, usize) = (66, 8);

/// The whole report as text.
pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    for series in &report.series {
        // Writing to a String cannot fail.
        let _ = section(&mut text, series);
    }
    if report.series.is_empty() {
        text.push_str("the file holds no series that can be judged\n");
    }
    for warning in &report.file.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    text
}

fn section(text: &mut String, series: &SeriesReport) -> std::fmt::Result {
    let whose = series.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    let part = if series.part == "unattributed" { ", unattributed" } else { "" };
    writeln!(text, "GPU {}{whose}{part}: {}", series.gpu, series.diagnosis.to_uppercase())?;
    writeln!(text, "  {}", series.summary)?;
    if let Some((first, last)) = series.span {
        writeln!(text, "  {} to {}, {} values, MiB:", clock(first), clock(last), series.values.count())?;
    }
    for line in chart::draw(series.values.values(), CHART.0, CHART.1) {
        writeln!(text, "  {line}")?;
    }
    if let Some(forecast) = &series.forecast {
        let latest = forecast.latest_at_ms.map_or_else(|| "later, if at all".to_owned(), |at| clock(Ts(at)));
        writeln!(text, "  runs out between {} and {latest}", clock(Ts(forecast.earliest_at_ms)))?;
    }
    evidence(text, &series.evidence)?;
    for finding in &series.findings {
        finding_lines(text, finding)?;
    }
    if let Some(then) = &series.found_then {
        then_and_now(text, then, series)?;
    }
    writeln!(
        text,
        "  {}\n",
        if series.alert { "An alert would have fired." } else { "No alert would have fired." }
    )
}

/// What was found when the history was kept, and what would be told with the settings of now.
fn then_and_now(text: &mut String, then: &[FoundThen], series: &SeriesReport) -> std::fmt::Result {
    let found = then.iter().map(|found| {
        let until = found.resolved_at_ms.map_or_else(String::new, |at| format!(" until {}", clock(Ts(at))));
        format!("{} from {}{until}", found.kind, clock(Ts(found.opened_at_ms)))
    });
    writeln!(text, "  found then: {}", listed(found))?;
    let told =
        series.alerts.iter().map(|alert| format!("{} at {}", alert.kind, clock(Ts(alert.fired_at_ms))));
    writeln!(text, "  told now:   {}", listed(told))
}

fn listed(entries: impl Iterator<Item = String>) -> String {
    let entries: Vec<String> = entries.collect();
    if entries.is_empty() { "nothing".to_owned() } else { entries.join(", ") }
}

fn evidence(text: &mut String, evidence: &[Evidence]) -> std::fmt::Result {
    for fact in evidence {
        let needed = fact.needed.map_or_else(String::new, |n| format!(" (needed {})", number(n)));
        writeln!(text, "    {:<28} {} {}{needed}", fact.what, number(fact.value), fact.unit)?;
    }
    Ok(())
}

fn finding_lines(text: &mut String, finding: &FindingReport) -> std::fmt::Result {
    let until = finding
        .resolved_at_ms
        .map_or_else(|| "still open".to_owned(), |at| format!("until {}", clock(Ts(at))));
    writeln!(
        text,
        "  {} {} from {}, {until}",
        finding.severity.name(),
        finding.kind,
        clock(Ts(finding.opened_at_ms))
    )?;
    writeln!(text, "    {}", finding.summary)?;
    if !finding.settle.is_empty() {
        writeln!(text, "    to settle it: {}", finding.settle)?;
    }
    Ok(())
}

/// Three significant places are enough for a person.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
