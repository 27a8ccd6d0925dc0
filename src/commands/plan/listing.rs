//! The answer for people: a table, a bar, a verdict, and the levers.

use std::fmt::{Error, Write};

use ebbtide_core::Bytes;
use ebbtide_plan::weights::Source;
use ebbtide_plan::{Division, Lever, Model, Span, Verdict};

use super::Report;

/// Characters of the bar; with its ends it fits beside an indent into 80 columns.
const BAR: usize = 64;

pub(super) fn of(report: &Report, model: &Model) -> Result<String, Error> {
    let mut text = String::new();
    heading(&mut text, report, model)?;
    sizes(&mut text, report)?;
    match &report.answer.gpu {
        Some(gpu) => card(&mut text, report, gpu)?,
        None => unanswered(&mut text, report)?,
    }
    levers(&mut text, &report.answer.levers)?;
    for note in &report.answer.notes {
        writeln!(text, "\nnote: {note}")?;
    }
    Ok(text)
}

fn heading(text: &mut String, report: &Report, model: &Model) -> Result<(), Error> {
    write!(text, "{} ({}): {} layers", report.model, report.family, model.layers)?;
    if let Some(longest) = model.max_context {
        write!(text, ", made for {longest} tokens")?;
    }
    writeln!(text, "\n{}, cache in {}{}\n", report.engine, report.kv_type, parts(report))
}

fn parts(report: &Report) -> String {
    let named = [("tp", report.tp), ("pp", report.pp), ("dp", report.dp)];
    named.iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!(", {name} {n}")).collect()
}

fn sizes(text: &mut String, report: &Report) -> Result<(), Error> {
    let answer = &report.answer;
    let source = match answer.weights_source {
        Some(Source::File) => "from the files",
        Some(Source::Configuration) => "computed from the configuration",
        Some(Source::Stated) => "as stated",
        None => "not known: name the files with --dir or --gguf, or say --weights-gib",
    };
    line(text, "weights", answer.weights_bytes, source)?;
    let beyond = answer.kv_bytes_per_token_beyond_window;
    let windows = if beyond < answer.kv_bytes_per_token {
        format!("{beyond} once the windows are full")
    } else {
        String::new()
    };
    line(text, "cache of a token", Some(answer.kv_bytes_per_token), &windows)?;
    for (what, bytes) in [
        ("index of a token", answer.index_bytes_per_token),
        ("state of a request", answer.state_bytes_per_request),
        ("encoder's cache", answer.cross_bytes_per_request),
    ] {
        if bytes > Bytes::ZERO {
            line(text, what, Some(bytes), "")?;
        }
    }
    let request = format!("{} tokens, on each GPU", report.context);
    line(text, "cache of a request", Some(answer.kv_bytes_per_request), &request)?;
    line(text, "cache of the load", Some(answer.kv_bytes_load), &requests(report.requests))
}

fn requests(n: u64) -> String {
    if n == 1 { "1 request".to_owned() } else { format!("{n} requests") }
}

fn line(text: &mut String, what: &str, bytes: Option<Bytes>, more: &str) -> Result<(), Error> {
    let bytes = bytes.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string());
    writeln!(text, "{}", format!("  {what:<20} {bytes:>10}   {more}").trim_end())
}

fn card(text: &mut String, report: &Report, gpu: &Division) -> Result<(), Error> {
    let needed = gpu.weights.likely + gpu.kv_bytes + gpu.remainder_total.likely;
    let share = 100.0 * gpu.kv_bytes.0 as f64 / needed.0.max(1) as f64;
    writeln!(text, "\nOne card of {}", gpu.total_bytes)?;
    writeln!(text, "  [{}]", bar(gpu))?;
    writeln!(text, "  # weights {}   = cache {} ({share:.0} %)", gpu.weights.likely, gpu.kv_bytes)?;
    writeln!(text, "  ~ remainder {}: {}", range(gpu.remainder_total), remainder(gpu))?;
    writeln!(text, "  pool {}", range(gpu.pool))?;
    writeln!(text, "\n{}", verdict(report, gpu))
}

fn remainder(gpu: &Division) -> String {
    let terms = gpu.remainder;
    format!(
        "context {}, activations {}, libraries {}, graphs {}",
        terms.context.likely, terms.activation.likely, terms.non_torch.likely, terms.graphs.likely
    )
}

/// `3.1 to 4.0 GiB` of an amount that is not exactly known.
fn range(span: Span) -> String {
    if span.low == span.high { span.low.to_string() } else { format!("{} to {}", span.low, span.high) }
}

/// Weights, cache and remainder of a card in proportion; what does not fit stands behind the card's end.
fn bar(gpu: &Division) -> String {
    let parts = [('#', gpu.weights.likely), ('=', gpu.kv_bytes), ('~', gpu.remainder_total.likely)];
    let needed: Bytes = parts.iter().map(|(_, bytes)| *bytes).sum();
    let scale = needed.max(gpu.total_bytes).0.max(1) as f64;
    let at = |bytes: Bytes| (bytes.0 as f64 / scale * BAR as f64).round() as usize;
    let mut bar = String::new();
    let mut so_far = Bytes::ZERO;
    for (mark, bytes) in parts {
        so_far = so_far + bytes;
        bar.extend(std::iter::repeat_n(mark, at(so_far).saturating_sub(bar.len())));
    }
    bar.extend(std::iter::repeat_n('.', BAR.saturating_sub(bar.len())));
    if needed > gpu.total_bytes {
        bar.insert(at(gpu.total_bytes), '|');
    }
    bar
}

fn verdict(report: &Report, gpu: &Division) -> String {
    let answer = &report.answer;
    let load = format!("{} x {} tokens", report.requests, report.context);
    let limits = format!(
        "At this context {} requests fit for sure and {} usually; at this load {} tokens.",
        answer.max_requests.unwrap_or(0),
        answer.max_requests_likely.unwrap_or(0),
        answer.max_context.unwrap_or(0),
    );
    match answer.verdict {
        _ if gpu.pool.high == Bytes::ZERO => {
            "Does not start: the weights leave no room for a cache.".to_owned()
        }
        Verdict::Fits => format!("Fits: {load}. {limits}"),
        Verdict::Tight => format!("Tight: {load} fit only where the remainder is small. {limits}"),
        _ => format!(
            "Does not fit: {load} need {} more. {limits}",
            gpu.kv_bytes.saturating_sub(gpu.pool.likely)
        ),
    }
}

fn unanswered(text: &mut String, report: &Report) -> Result<(), Error> {
    let missing =
        if report.answer.weights_bytes.is_none() { "the weights are not known" } else { "no card was named" };
    writeln!(text, "\nWhether it fits cannot be said: {missing}.")
}

fn levers(text: &mut String, levers: &[Lever]) -> Result<(), Error> {
    writeln!(
        text,
        "\n  {:<14} {:>10} {:>10} {:>9} {:>9}   cost",
        "lever", "cache", "saved", "requests", "context"
    )?;
    for lever in levers {
        let number = |n: Option<u64>| n.map_or_else(|| "–".to_owned(), |n| n.to_string());
        writeln!(
            text,
            "  {:<14} {:>10} {:>10} {:>9} {:>9}   {}",
            lever.name,
            lever.kv_bytes,
            lever.saved_bytes,
            number(lever.max_requests),
            number(lever.max_context),
            lever.cost
        )?;
    }
    Ok(())
}
