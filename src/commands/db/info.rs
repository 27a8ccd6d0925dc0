//! `ebbtide db info`: what a database holds.

use std::fmt::Write;
use std::path::Path;

use ebbtide_core::{Bytes, Ts};
use ebbtide_store::{Overview, TierOverview};
use serde_json::{Value, json};

use super::args::InfoArgs;
use super::{path, refused, runtime};
use crate::commands::status::clock;
use crate::output;

pub(super) fn run(args: InfoArgs) -> anyhow::Result<u8> {
    let path = path(args.file)?;
    let found = runtime()?.block_on(Overview::of(&path)).map_err(refused)?;
    if args.json {
        output::json(&document(&path, &found))?;
    } else {
        output::text(&listing(&path, &found)?)?;
    }
    Ok(0)
}

/// The whole span of ticks, sealed or not.
fn ticks(found: &Overview) -> (u64, Option<(Ts, Ts)>) {
    let spans = [found.sealed.span, found.tail.span];
    let span = spans.into_iter().flatten().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    (found.sealed.ticks + found.tail.ticks, span)
}

fn document(path: &Path, found: &Overview) -> Value {
    let (count, span) = ticks(found);
    let counts = &found.counts;
    json!({
        "path": path.display().to_string(),
        "file_bytes": found.file_bytes,
        "log_bytes": found.log_bytes,
        "free_bytes": found.free_bytes,
        "layout": found.layout,
        "uid": found.uid,
        "held_by_pid": found.held_by,
        "last_tick": found.last.map(|tick| json!({"seq": tick.seq, "at_ms": tick.at.0})),
        "ticks": {"count": count, "unsealed": found.tail.ticks, "from_ms": span.map(|s| s.0.0), "to_ms": span.map(|s| s.1.0)},
        "tiers": {
            "tail": tier(&found.tail),
            "windows": tier(&found.sealed),
            "chunks": tier(&found.chunks),
            "minutes": tier(&found.minutes),
            "quarters": tier(&found.quarters),
        },
        "gpus": counts.gpus,
        "processes": counts.processes,
        "series": counts.series,
        "findings": {"count": counts.findings, "open": counts.open_findings},
        "alerts": {"count": counts.alerts, "open": counts.open_alerts},
        "deliveries": {"count": counts.deliveries, "pending": counts.pending_deliveries},
        "incidents": counts.incidents,
    })
}

fn tier(found: &TierOverview) -> Value {
    json!({
        "rows": found.rows,
        "bytes": found.bytes,
        "from_ms": found.span.map(|span| span.0.0),
        "to_ms": found.span.map(|span| span.1.0),
    })
}

fn listing(path: &Path, found: &Overview) -> Result<String, std::fmt::Error> {
    let (count, span) = ticks(found);
    let counts = &found.counts;
    let mut text = String::new();
    writeln!(text, "{}", path.display())?;
    writeln!(
        text,
        "  size        {}, log {}, {} of it free",
        Bytes(found.file_bytes),
        Bytes(found.log_bytes),
        Bytes(found.free_bytes)
    )?;
    writeln!(text, "  layout      {}", found.layout)?;
    writeln!(text, "  written by  {}", writer(found))?;
    let last =
        found.last.map_or_else(|| "none".to_owned(), |t| format!("number {} at {}", t.seq, clock(t.at)));
    writeln!(text, "  last tick   {last}")?;
    writeln!(text, "  ticks       {count}{}, {} not sealed yet", between(span), found.tail.ticks)?;
    for (name, tier) in [("minutes", &found.minutes), ("quarters", &found.quarters)] {
        writeln!(text, "  {name:<10}  {} rows{}, {}", tier.rows, between(tier.span), Bytes(tier.bytes))?;
    }
    writeln!(
        text,
        "  chunks      {} in {} windows, {}",
        found.chunks.rows,
        found.sealed.rows,
        Bytes(found.chunks.bytes)
    )?;
    writeln!(
        text,
        "  series      {} of {} GPUs and {} processes",
        counts.series, counts.gpus, counts.processes
    )?;
    writeln!(text, "  findings    {}, {} open", counts.findings, counts.open_findings)?;
    writeln!(text, "  alerts      {}, {} open", counts.alerts, counts.open_alerts)?;
    writeln!(text, "  deliveries  {}, {} pending", counts.deliveries, counts.pending_deliveries)?;
    writeln!(text, "  incidents   {}", counts.incidents)?;
    Ok(text)
}

fn writer(found: &Overview) -> String {
    match found.held_by {
        Some(pid) => format!("process {pid} now; the file belongs to user {}", found.uid),
        None => format!("nobody now; the file belongs to user {}", found.uid),
    }
}

fn between(span: Option<(Ts, Ts)>) -> String {
    span.map_or_else(String::new, |(from, to)| format!(" from {} to {}", clock(from), clock(to)))
}
