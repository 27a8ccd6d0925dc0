//! `ebbtide status`: one look at what the daemon knows.

use std::fmt::Write;
use std::path::PathBuf;

use ebbtide_api::absence::Reasoned;
use ebbtide_api::address::{Surroundings, default_socket};
use ebbtide_api::client::SocketClient;
use ebbtide_api::wire::{GpuStatus, LOG_ALARM_BYTES, Level, Status};
use ebbtide_api::{Client, ClientError};
use ebbtide_core::{
    Bytes, Finding, GpuKind, GpuState, Judgement, ProcKey, ProcSample, Reading, SeriesPart, Ts,
};

use crate::cli::{SocketArgs, StatusArgs};
use crate::{exit, output};

/// The socket that was named, or the first of the usual places.
pub(crate) fn socket(args: &SocketArgs) -> PathBuf {
    args.socket.clone().unwrap_or_else(|| default_socket(&Surroundings::here()))
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<u8> {
    match SocketClient::new(socket(&args.socket)).status() {
        Ok(status) => {
            if args.json {
                output::json(&Reasoned::of(&status))?;
            } else {
                output::text(&listing(&status)?)?;
            }
            Ok(exit::of_level(status.level))
        }
        Err(error) => Err(unknown(error)),
    }
}

/// No answer is "unknown", never "fine": scripts see 3.
pub(crate) fn unknown(error: ClientError) -> anyhow::Error {
    let code = exit::of_level(Level::Unknown);
    anyhow::Error::new(exit::Coded { code, message: format!("{:#}", anyhow::Error::new(error)) })
}

fn listing(status: &Status) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    writeln!(
        text,
        "{}: {} at {} ({})",
        status.host,
        word(status.level),
        clock(status.tick.at),
        source(status)
    )?;
    for gpu in &status.gpus {
        gpu_lines(&mut text, gpu)?;
    }
    for finding in &status.findings {
        finding_lines(&mut text, finding)?;
    }
    for note in &status.health.probe.notes {
        writeln!(text, "note: {note}")?;
    }
    if let Some(error) = &status.health.store_error {
        writeln!(text, "note: nothing is being stored: {error}")?;
    }
    if status.health.unstored_ticks > 0 {
        writeln!(
            text,
            "note: {} ticks could not be stored; the history has a gap",
            status.health.unstored_ticks
        )?;
    }
    if let Some(bytes) = status.health.store_log_bytes.filter(|bytes| *bytes > LOG_ALARM_BYTES) {
        let log = Bytes(bytes);
        writeln!(text, "note: the database's log has grown to {log}: some reader of it does not let go")?;
    }
    Ok(text)
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Warning => "WARNING",
        Level::Critical => "CRITICAL",
        Level::Unknown => "unknown",
    }
}

fn source(status: &Status) -> &str {
    if status.gpus.iter().any(|g| g.gpu.kind == GpuKind::HostMemory) {
        return "host memory, no GPU";
    }
    if status.health.probe.source.is_empty() { "no source yet" } else { &status.health.probe.source }
}

fn gpu_lines(text: &mut String, status: &GpuStatus) -> std::fmt::Result {
    let gpu = &status.gpu;
    let state = match gpu.state {
        GpuState::Present => "",
        GpuState::Lost => "  LOST",
        GpuState::Stale => "  stale",
    };
    write!(text, "\nGPU {} {}{state}: ", gpu.index, gpu.name)?;
    match &gpu.memory {
        Ok(memory) => writeln!(
            text,
            "{} of {} used, {} free, {} reserved, {} unattributed",
            memory.used,
            memory.total,
            memory.free,
            shown(&memory.reserved),
            shown(&status.ledger.unattributed),
        )?,
        Err(why) => writeln!(text, "memory unknown ({why})")?,
    }
    for judgement in status.judgements.iter().filter(|j| j.series.part == SeriesPart::Device) {
        writeln!(text, "  {}: {}", judgement.diagnosis.name(), judgement.summary)?;
    }
    match &gpu.processes {
        Ok(list) => list.entries.iter().try_for_each(|process| process_line(text, status, process)),
        Err(why) => writeln!(text, "  processes unknown ({why})"),
    }?;
    gpu.holders.iter().try_for_each(|holder| {
        writeln!(
            text,
            "  {:>8}  holds the device open without standing in a list  {}",
            holder.key.pid, holder.name
        )
    })
}

fn process_line(text: &mut String, status: &GpuStatus, process: &ProcSample) -> std::fmt::Result {
    let judgement = status.judgements.iter().find(|j| j.series.part == SeriesPart::Process(process.key));
    let name = process.info.name.as_deref().unwrap_or("–");
    let owner = owner(process);
    writeln!(
        text,
        "  {:>8}  {:>9}  {:<12} {name}{owner}",
        process.key.pid,
        shown(&process.memory),
        judgement.map_or("", |j: &Judgement| j.diagnosis.name()),
    )
}

fn owner(process: &ProcSample) -> String {
    let owner = &process.info.owner;
    let pod = owner.pod.as_ref().map(|pod| pod.name.clone().unwrap_or_else(|| pod.uid.clone()));
    let container = owner.container.as_ref().map(|id| id.chars().take(12).collect());
    [pod, container, owner.unit.clone()]
        .into_iter()
        .flatten()
        .next()
        .map_or_else(String::new, |o| format!("  ({o})"))
}

fn finding_lines(text: &mut String, finding: &Finding) -> std::fmt::Result {
    writeln!(
        text,
        "\n{} {} on {}, since {}",
        finding.severity.name(),
        finding.key.kind.name(),
        whom(finding),
        clock(finding.onset_at.unwrap_or(finding.opened_at)),
    )?;
    writeln!(text, "  {}", finding.summary)?;
    if let Some(forecast) = &finding.forecast {
        let latest = forecast.latest.map_or_else(|| "later".to_owned(), clock);
        writeln!(text, "  runs out between {} and {latest}", clock(forecast.earliest))?;
    }
    if !finding.settle.is_empty() {
        writeln!(text, "  to settle it: {}", finding.settle)?;
    }
    Ok(())
}

/// Whom a finding is about, in the words people use.
pub(crate) fn whom(finding: &Finding) -> String {
    let gpu =
        finding.subject.gpu_index.map_or_else(|| finding.key.series.gpu.to_string(), |i| format!("GPU {i}"));
    match finding.key.series.part {
        SeriesPart::Device => gpu,
        SeriesPart::Unattributed => format!("the unattributed memory of {gpu}"),
        SeriesPart::Process(key) => format!("{} of {gpu}", process_named(finding, key)),
        SeriesPart::Host(key) => format!("the host memory of {}", process_named(finding, key)),
    }
}

fn process_named(finding: &Finding, key: ProcKey) -> String {
    let name = &finding.subject.process;
    if name.is_empty() { format!("process {key}") } else { format!("{name} (process {key})") }
}

fn shown<T: std::fmt::Display>(reading: &Reading<T>) -> String {
    reading.as_ref().map_or_else(|_| "–".to_owned(), ToString::to_string)
}

/// Local wall time of an instant.
pub(crate) fn clock(at: Ts) -> String {
    let Ok(instant) = jiff::Timestamp::from_millisecond(at.0) else { return at.0.to_string() };
    jiff::ZonedDateTime::new(instant, jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}
