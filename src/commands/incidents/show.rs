//! One incident: for a person, and as JSON.

use std::fmt::{Display, Write};

use ebbtide_core::text::clean;
use ebbtide_core::{GpuAtEnd, Incident, Metric, Reading};
use ebbtide_store::{FrozenIncident, FrozenSeries};
use serde_json::{Value, json};

use super::how;
use crate::chart;
use crate::commands::status::clock;

/// A chart's columns and rows: two of them fit on a screen with the text.
const CHART: (usize, usize) = (64, 6);

const MIB: f64 = (1 << 20) as f64;

pub(super) fn document(found: &FrozenIncident) -> Value {
    let series = found.series.iter().map(|series| {
        let points = points(found, series).map(|(at, value)| json!([at, value]));
        json!({
            "gpu": series.key.gpu,
            "pid": series.key.proc.map(|proc| proc.pid),
            "start_ticks": series.key.proc.and_then(|proc| proc.start_ticks),
            "metric": series.key.metric.name(),
            "points": points.collect::<Vec<_>>(),
        })
    });
    json!({
        "id": found.id,
        "cause": found.incident.cause.name(),
        "incident": found.incident,
        "ticks": found.ticks.len(),
        "series": series.collect::<Vec<_>>(),
    })
}

/// Instant and value of each tick that asked the series.
fn points<'a>(
    found: &'a FrozenIncident,
    series: &'a FrozenSeries,
) -> impl Iterator<Item = (i64, Option<i64>)> + 'a {
    found.ticks.iter().zip(&series.cells).filter_map(|(tick, cell)| Some((tick.at.0, (*cell)?)))
}

pub(super) fn listing(found: &FrozenIncident) -> Result<String, std::fmt::Error> {
    let incident = &found.incident;
    let mut text = String::new();
    writeln!(text, "incident {}: {}", found.id, clean(&incident.summary))?;
    writeln!(text, "  at          {}", clock(incident.at))?;
    writeln!(text, "  cause       {}", incident.cause.name())?;
    writeln!(text, "  it ended    {}", how(incident.status))?;
    writeln!(text, "  owner       {}", owner(incident))?;
    writeln!(text, "  host memory {} of {}", shown(&incident.rss), shown(&incident.host_limit))?;
    for evidence in &incident.evidence {
        writeln!(text, "  {:<11} {} {}", clean(&evidence.what), evidence.value, clean(&evidence.unit))?;
    }
    for gpu in &incident.gpus {
        gpu_lines(&mut text, found, gpu)?;
    }
    for finding in &incident.findings {
        let kind = finding.key.kind.name();
        writeln!(text, "\n{} {kind}: {}", finding.severity.name(), clean(&finding.summary))?;
    }
    if found.ticks.is_empty() {
        writeln!(text, "\nno tick before it is kept")?;
    }
    Ok(text)
}

fn gpu_lines(text: &mut String, found: &FrozenIncident, gpu: &GpuAtEnd) -> std::fmt::Result {
    let ledger = &gpu.ledger;
    writeln!(
        text,
        "\nGPU {}: it held {}; of {} were {} free, {} reserved, {} of all processes, {} unattributed ({})",
        gpu.index,
        shown(&gpu.held),
        shown(&ledger.total),
        shown(&ledger.free),
        shown(&ledger.driver_reserved),
        shown(&ledger.processes),
        shown(&ledger.unattributed),
        clock(ledger.tick.at),
    )?;
    for (metric, proc, name) in [
        (Metric::ProcessBytes, Some(found.incident.proc), "its memory"),
        (Metric::UsedBytes, None, "used memory of the GPU"),
    ] {
        let is_it = |series: &&FrozenSeries| {
            series.key.gpu.as_ref() == Some(&gpu.gpu)
                && series.key.proc == proc
                && series.key.metric == metric
        };
        let Some(series) = found.series.iter().find(is_it) else { continue };
        let values: Vec<Option<f64>> =
            points(found, series).map(|(_, value)| value.map(|bytes| bytes as f64 / MIB)).collect();
        let lines = chart::draw(&values, CHART.0, CHART.1);
        if !lines.is_empty() {
            writeln!(text, "  {name}, MiB, from {}", clock(found.incident.from))?;
            lines.iter().try_for_each(|line| writeln!(text, "{line}"))?;
        }
    }
    Ok(())
}

fn owner(incident: &Incident) -> String {
    let owner = &incident.subject.owner;
    let pod = owner.pod.as_ref().map(|pod| pod.name.clone().unwrap_or_else(|| pod.uid.clone()));
    let known = [pod, owner.container.clone(), owner.unit.clone()].into_iter().flatten().next();
    known.map_or_else(|| "–".to_owned(), |name| clean(&name))
}

fn shown<T: Display>(reading: &Reading<T>) -> String {
    reading.as_ref().map_or_else(|_| "–".to_owned(), ToString::to_string)
}
