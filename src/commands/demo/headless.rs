//! Watching the demo without a terminal: one line when something happens.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use ebbtide_api::client::SocketClient;
use ebbtide_api::wire::Status;
use ebbtide_api::{Client, ClientError};
use ebbtide_core::{Diagnosis, Finding, FindingKind, SeriesPart, Ts};

use super::plan::CARD;
use super::stage::Stage;
use crate::commands::status::whom;
use crate::output;

/// How long the daemon may take to answer for the first time.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two tries to reach it.
const RETRY: Duration = Duration::from_millis(50);
/// A line of progress at least so often.
const PROGRESS_MS: i64 = 10_000;

/// What was seen from outside.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When the first status came.
    pub(crate) first: Option<Ts>,
    /// When the engine's growth was first called growth.
    pub(crate) growth_at: Option<Ts>,
    /// Whether it was watched to the end.
    pub(crate) is_whole: bool,
    /// Every finding, as it was last.
    pub(crate) findings: BTreeMap<(Ts, FindingKind, SeriesPart), Finding>,
}

/// Watches until the story is over, printing what happens.
///
/// # Errors
/// When the daemon cannot be asked.
pub(crate) fn watch(stage: &Stage) -> anyhow::Result<Seen> {
    output::text(&format!(
        "ebbtide demo (host memory, no GPU): {} s, an engine on an imaginary card of {CARD}\n",
        stage.seconds(),
    ))?;
    let mut seen = Seen::default();
    let mut printed_at = Ts(i64::MIN);
    let length_ms = i64::try_from(stage.seconds()).unwrap_or(i64::MAX).saturating_mul(1000);
    for status in connect(stage)? {
        let status = status.context("watching the daemon")?;
        let lines = seen.take(&status);
        if seen.first.is_none() {
            continue;
        }
        let due = status.tick.at.0.saturating_sub(printed_at.0) >= PROGRESS_MS;
        if due || !lines.is_empty() {
            printed_at = status.tick.at;
            output::text(&seen.progress(&status, &lines))?;
        }
        if status.tick.at.0 - seen.first.unwrap_or_default().0 >= length_ms {
            seen.is_whole = true;
            break;
        }
    }
    Ok(seen)
}

/// Takes account in the background while somebody looks at the dashboard; ends with the daemon.
///
/// # Errors
/// When the daemon cannot be asked, or there is no thread.
pub(crate) fn account(stage: &Stage) -> anyhow::Result<JoinHandle<Seen>> {
    let stream = connect(stage)?;
    let account = move || {
        let mut seen = Seen::default();
        for status in stream.map_while(Result::ok) {
            seen.take(&status);
        }
        seen
    };
    Ok(std::thread::Builder::new().name("account".to_owned()).spawn(account)?)
}

/// The stream of statuses, as soon as the daemon answers.
fn connect(stage: &Stage) -> anyhow::Result<ebbtide_api::StatusStream> {
    let client = SocketClient::new(stage.socket());
    let deadline = Instant::now() + START_DEADLINE;
    loop {
        match client.watch() {
            Ok(stream) => return Ok(stream),
            Err(ClientError::NotRunning { .. }) if Instant::now() < deadline => {
                std::thread::park_timeout(RETRY);
            }
            Err(error) => return Err(error).context("asking the demo's daemon"),
        }
    }
}

impl Seen {
    /// Enters a status; gives a line for each thing that is new.
    fn take(&mut self, status: &Status) -> Vec<String> {
        if status.gpus.iter().all(|gpu| gpu.gpu.memory.is_err()) {
            return Vec::new();
        }
        self.first.get_or_insert(status.tick.at);
        let mut lines = Vec::new();
        let judgements = status.gpus.iter().flat_map(|gpu| &gpu.judgements);
        if self.growth_at.is_none()
            && let Some(growing) =
                judgements.clone().find(|j| matches!(j.diagnosis, Diagnosis::Growth | Diagnosis::KvGrowth))
        {
            self.growth_at = Some(status.tick.at);
            lines.push(format!("growth: {}", growing.summary));
        }
        for finding in &status.findings {
            let key = (finding.opened_at, finding.key.kind, finding.key.series.part);
            if self.findings.insert(key, finding.clone()).is_none() && finding.key.kind != FindingKind::Growth
            {
                let kind = finding.key.kind.name();
                lines.push(format!(
                    "{} {kind} in {}: {}",
                    finding.severity.name(),
                    whom(finding),
                    finding.summary
                ));
            }
        }
        lines
    }

    fn progress(&self, status: &Status, lines: &[String]) -> String {
        let elapsed = (status.tick.at.0 - self.first.unwrap_or(status.tick.at).0) / 1000;
        let stamp = format!("{:02}:{:02}", elapsed / 60, elapsed % 60);
        if !lines.is_empty() {
            return lines.iter().map(|line| format!("{stamp}  {line}\n")).collect();
        }
        let device = status.gpus.first();
        let used =
            device.and_then(|g| g.gpu.memory.ok()).map_or_else(|| "–".to_owned(), |m| m.used.to_string());
        let says = device.and_then(|g| g.judgements.first()).map_or("", |j| j.diagnosis.name());
        format!("{stamp}  {used} used, {says}\n")
    }
}
