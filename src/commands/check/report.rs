//! What `ebbtide check` found: the JSON contract of docs/check.md.

use std::collections::BTreeMap;

use ebbtide_core::{
    AlertTransition, Evidence, Finding, Forecast, Judgement, Sample, SeriesPart, SeriesRef, Severity, Tier,
    Ts,
};
use ebbtide_daemon::pipeline::Effect;
use ebbtide_probe::recorded;
use serde::Serialize;

use super::course::Course;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// One entry a series, in order of GPU and process.
    pub(crate) series: Vec<SeriesReport>,
    /// What the reader made of the file.
    pub(crate) file: FileReport,
}

/// What was read.
#[derive(Debug, Serialize)]
pub(crate) struct FileReport {
    /// Lines in the file.
    pub(crate) lines: u64,
    /// Lines that said nothing that could be used.
    pub(crate) skipped: u64,
    /// What a person should know about the reading.
    pub(crate) warnings: Vec<String>,
}

/// What is said of one series.
#[derive(Debug, Serialize)]
pub(crate) struct SeriesReport {
    /// The GPU as the file calls it.
    pub(crate) gpu: String,
    /// The process, where the series is one process's.
    pub(crate) pid: Option<u32>,
    /// `device`, `process`, `unattributed` or `host`.
    pub(crate) part: &'static str,
    /// The last standing cause.
    pub(crate) diagnosis: &'static str,
    /// Whether any hook would have fired for it.
    pub(crate) alert: bool,
    /// One sentence for a person.
    pub(crate) summary: String,
    /// When memory runs out, if it does.
    pub(crate) forecast: Option<ForecastReport>,
    /// What the diagnosis rests on.
    pub(crate) evidence: Vec<Evidence>,
    /// Everything that opened, in order of opening.
    pub(crate) findings: Vec<FindingReport>,
    /// Every alert that would have fired, in order of firing.
    pub(crate) alerts: Vec<AlertReport>,
    /// With `--db`: what the daemon found of it then, in order of opening.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found_then: Option<Vec<FoundThen>>,
    /// The values in MiB, for the chart.
    #[serde(skip)]
    pub(crate) values: Course,
    /// The most severe alert that would have fired.
    #[serde(skip)]
    pub(crate) worst: Option<Severity>,
    /// First and last instant.
    #[serde(skip)]
    pub(crate) span: Option<(Ts, Ts)>,
}

/// An alert as JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AlertReport {
    /// What it would have been about.
    pub(crate) kind: &'static str,
    /// How much it matters.
    pub(crate) severity: Severity,
    /// When people would have been told.
    pub(crate) fired_at_ms: i64,
}

/// A finding of the daemon that kept the history, as JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FoundThen {
    /// What it was about.
    pub(crate) kind: &'static str,
    /// When it was said.
    pub(crate) opened_at_ms: i64,
    /// When it ceased to hold.
    pub(crate) resolved_at_ms: Option<i64>,
}

/// A forecast as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct ForecastReport {
    /// The capacity that is reached.
    pub(crate) capacity_bytes: u64,
    /// At the upper end of the rate's band.
    pub(crate) earliest_at_ms: i64,
    /// At the rate itself.
    pub(crate) expected_at_ms: i64,
    /// At the lower end; null where that end is no growth.
    pub(crate) latest_at_ms: Option<i64>,
}

/// A finding as JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FindingReport {
    /// What it is about.
    pub(crate) kind: &'static str,
    /// How sure it is.
    pub(crate) tier: Tier,
    /// How much it matters.
    pub(crate) severity: Severity,
    /// When it was said.
    pub(crate) opened_at_ms: i64,
    /// When it ceased to hold.
    pub(crate) resolved_at_ms: Option<i64>,
    /// When what it is about began.
    pub(crate) onset_at_ms: Option<i64>,
    /// How fast memory grows.
    pub(crate) rate_bytes_per_s: Option<f64>,
    /// Lower end of the rate's 80 % band.
    pub(crate) rate_low: Option<f64>,
    /// Upper end.
    pub(crate) rate_high: Option<f64>,
    /// What it rests on.
    pub(crate) evidence: Vec<Evidence>,
    /// One sentence for a person.
    pub(crate) summary: String,
    /// What would settle it.
    pub(crate) settle: String,
}

impl From<&Finding> for FindingReport {
    fn from(finding: &Finding) -> Self {
        Self {
            kind: finding.key.kind.name(),
            tier: finding.tier,
            severity: finding.severity,
            opened_at_ms: finding.opened_at.0,
            resolved_at_ms: finding.resolved_at.map(|at| at.0),
            onset_at_ms: finding.onset_at.map(|at| at.0),
            rate_bytes_per_s: finding.rate.map(|r| r.rate.0),
            rate_low: finding.rate.map(|r| r.low.0),
            rate_high: finding.rate.map(|r| r.high.0),
            evidence: finding.evidence.clone(),
            summary: finding.summary.clone(),
            settle: finding.settle.clone(),
        }
    }
}

impl From<Forecast> for ForecastReport {
    fn from(forecast: Forecast) -> Self {
        Self {
            capacity_bytes: forecast.capacity.0,
            earliest_at_ms: forecast.earliest.0,
            expected_at_ms: forecast.expected.0,
            latest_at_ms: forecast.latest.map(|at| at.0),
        }
    }
}

impl SeriesReport {
    fn says_something(&self) -> bool {
        self.values.values().iter().any(Option::is_some) || !self.findings.is_empty()
    }
}

impl From<&recorded::Report> for FileReport {
    fn from(report: &recorded::Report) -> Self {
        let skipped = report
            .first_skipped
            .iter()
            .map(|line| format!("line {}: {}: {}", line.number, line.reason, line.text));
        let assumed = report.assumed_totals.iter().map(|(gpu, total)| {
            format!("the size of GPU {gpu} is not recorded; {total} is assumed, so a forecast is a guess (--total-mib says it)")
        });
        Self {
            lines: report.lines,
            skipped: report.skipped,
            warnings: report.warnings.iter().cloned().chain(assumed).chain(skipped).collect(),
        }
    }
}

impl Report {
    /// The exit code of `--exit-code`: 2 after a critical alert, 1 after any other, else 0.
    pub(crate) fn worst_alert(&self) -> u8 {
        match self.series.iter().filter_map(|s| s.worst).max() {
            None => 0,
            Some(Severity::Critical) => 2,
            Some(Severity::Info | Severity::Warning) => 1,
        }
    }
}

/// Collects what the pipeline says while a recording plays.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    series: BTreeMap<SeriesRef, Watched>,
    then: Option<BTreeMap<SeriesRef, Vec<FoundThen>>>,
}

#[derive(Debug, Default)]
struct Watched {
    judgement: Option<Judgement>,
    findings: BTreeMap<(Ts, &'static str), FindingReport>,
    alerts: Vec<AlertReport>,
    values: Course,
    span: Option<(Ts, Ts)>,
}

impl Watch {
    /// Notes the values of one sample.
    pub(crate) fn sample(&mut self, sample: &Sample) {
        for gpu in &sample.gpus {
            self.value(&gpu.uuid, SeriesPart::Device, gpu.memory.ok().map(|m| m.used.mib()), sample.tick.at);
            let fresh = gpu.processes.as_ref().ok().filter(|list| list.listed.seq == sample.tick.seq);
            for process in fresh.into_iter().flat_map(|list| &list.entries) {
                let value = process.memory.ok().map(ebbtide_core::Bytes::mib);
                self.value(&gpu.uuid, SeriesPart::Process(process.key), value, sample.tick.at);
                if let Ok(rss) = process.rss {
                    self.value(&gpu.uuid, SeriesPart::Host(process.key), Some(rss.mib()), sample.tick.at);
                }
            }
        }
    }

    fn value(&mut self, gpu: &ebbtide_core::GpuUuid, part: SeriesPart, value: Option<f64>, at: Ts) {
        let watched = self.series.entry(SeriesRef { gpu: gpu.clone(), part }).or_default();
        watched.values.push(value);
        watched.span = Some((watched.span.map_or(at, |(first, _)| first), at));
    }

    /// Notes what one step of the pipeline brought.
    pub(crate) fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Record(event) => {
                let finding = event.finding();
                let watched = self.series.entry(finding.key.series.clone()).or_default();
                watched.findings.insert((finding.opened_at, finding.key.kind.name()), finding.into());
            }
            Effect::Deliver(event) if event.transition == AlertTransition::Firing => {
                let finding = &event.alert.finding;
                let watched = self.series.entry(finding.key.series.clone()).or_default();
                watched.alerts.push(AlertReport {
                    kind: finding.key.kind.name(),
                    severity: finding.severity,
                    fired_at_ms: event.at.0,
                });
            }
            Effect::Deliver(_) | Effect::Persist(_) | Effect::Freeze(_) => {}
        }
    }

    /// Notes what is said after one step.
    pub(crate) fn judged(&mut self, judgements: Vec<Judgement>) {
        for judgement in judgements {
            let watched = self.series.entry(judgement.series.clone()).or_default();
            watched.judgement = Some(judgement);
        }
    }

    /// Notes what the daemon found that kept the history, the oldest first.
    pub(crate) fn found_then(&mut self, findings: &[Finding]) {
        let then = self.then.get_or_insert_default();
        for finding in findings {
            then.entry(finding.key.series.clone()).or_default().push(FoundThen {
                kind: finding.key.kind.name(),
                opened_at_ms: finding.opened_at.0,
                resolved_at_ms: finding.resolved_at.map(|at| at.0),
            });
        }
    }

    /// The report at the end of the recording.
    pub(crate) fn report(self, file: FileReport) -> Report {
        let Self { series, mut then } = self;
        let mut series: Vec<SeriesReport> = series
            .into_iter()
            .filter_map(|(series, watched)| {
                let found_then = then.as_mut().map(|then| then.remove(&series).unwrap_or_default());
                Some(SeriesReport { found_then, ..watched.report(&series)? })
            })
            .collect();
        // A device's counters come with a process of which nothing else is known, and a process's rows with a device
        // of which nothing is: such a series says nothing beside one that does.
        if series.iter().any(SeriesReport::says_something) {
            series.retain(SeriesReport::says_something);
        }
        Report { series, file }
    }
}

impl Watched {
    /// `None` for a series that was never judged.
    fn report(self, series: &SeriesRef) -> Option<SeriesReport> {
        let judgement = self.judgement?;
        let (pid, part) = match series.part {
            SeriesPart::Device => (None, "device"),
            SeriesPart::Process(key) => (Some(key.pid), "process"),
            SeriesPart::Unattributed => (None, "unattributed"),
            SeriesPart::Host(key) => (Some(key.pid), "host"),
        };
        Some(SeriesReport {
            gpu: series.gpu.to_string(),
            pid,
            part,
            diagnosis: judgement.diagnosis.name(),
            alert: !self.alerts.is_empty(),
            summary: judgement.summary,
            forecast: judgement.forecast.map(ForecastReport::from),
            evidence: judgement.evidence,
            findings: self.findings.into_values().collect(),
            worst: self.alerts.iter().map(|alert| alert.severity).max(),
            alerts: self.alerts,
            found_then: None,
            values: self.values,
            span: self.span,
        })
    }
}
