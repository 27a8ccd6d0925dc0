//! What counts as a right answer.

use serde::{Deserialize, Serialize};

use super::incident::{Incident, Verdict};
use crate::interval::Share;

/// What `ebbtide check --json` says.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Answer {
    pub(super) series: Vec<SeriesAnswer>,
}

/// What it says of one series.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SeriesAnswer {
    pub(super) pid: Option<u32>,
    /// `device`, `process` or `unattributed`.
    #[serde(default)]
    pub(super) part: String,
    pub(super) diagnosis: String,
    pub(super) alert: bool,
    #[serde(default)]
    pub(super) findings: Vec<FindingAnswer>,
}

impl SeriesAnswer {
    /// Whether it stands beside the series that the incident is about.
    fn is_companion(&self) -> bool {
        self.pid.is_some() || self.part == "unattributed"
    }
}

/// A finding of a series.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct FindingAnswer {
    pub(super) kind: String,
}

impl Answer {
    /// An answer of one series.
    pub(super) fn simple(diagnosis: &str, alert: bool) -> Self {
        let findings = if alert { vec![FindingAnswer { kind: diagnosis.to_owned() }] } else { Vec::new() };
        let (part, diagnosis) = ("device".to_owned(), diagnosis.to_owned());
        Self { series: vec![SeriesAnswer { pid: None, part, diagnosis, alert, findings }] }
    }
}

/// How an answer stands to its incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Mark {
    /// The diagnosis is an accepted one.
    pub(super) named: bool,
    /// An alert of the right kind would have been sent; for a row that must not alert: any alert.
    pub(super) alerted: bool,
}

/// Compares an answer with what the incident came to.
pub(super) fn mark(incident: &Incident, answer: &Answer) -> Mark {
    let kinds = alert_kinds(incident.verdict);
    let of_kind = |series: &SeriesAnswer| series.findings.iter().any(|f| kinds.contains(&f.kind.as_str()));
    let alerted = answer.series.iter().any(|series| series.alert && (!incident.alert || of_kind(series)));
    let accepts = |series: &SeriesAnswer| accepts(incident.verdict, series);
    let named = match incident.verdict {
        Verdict::NotLeak | Verdict::MeasurementArtifact | Verdict::OomRiskNotLeak => {
            // Nothing may be wrong; beside a right answer a companion of which too little is known is not.
            answer.series.iter().any(accepts)
                && answer
                    .series
                    .iter()
                    .all(|s| accepts(s) || (s.is_companion() && s.diagnosis == "inconclusive"))
        }
        _ => answer.series.iter().any(accepts),
    };
    Mark { named, alerted }
}

/// Whether the row says something that a detector can be held to: its outcome is known, and so is the event that
/// it rests on.
pub(super) fn is_scored(incident: &Incident) -> bool {
    let has_event = incident.stated.iter().any(|stated| stated.event.is_some());
    match incident.verdict {
        Verdict::Unresolved => false,
        Verdict::Orphan | Verdict::NotReleased => has_event,
        _ => true,
    }
}

fn accepts(verdict: Verdict, series: &SeriesAnswer) -> bool {
    let said = series.diagnosis.as_str();
    let imminent = || series.findings.iter().any(|finding| finding.kind == "imminent");
    match verdict {
        Verdict::Leak => matches!(said, "leak" | "slope-change") || (said == "growth" && imminent()),
        Verdict::HostLeak => said == "host-leak",
        Verdict::KvPoolLeak => said == "kv-pool-leak",
        Verdict::Orphan => said == "orphan",
        Verdict::NotReleased => said == "not-released",
        Verdict::OomRiskNotLeak => !matches!(said, "leak" | "slope-change"),
        Verdict::NotLeak => QUIET.contains(&said),
        Verdict::MeasurementArtifact => ARTIFACT.contains(&said),
        Verdict::Unresolved => true,
    }
}

const QUIET: [&str; 8] =
    ["steady", "warming-up", "reserved", "kv-growth", "high-water", "settling", "settled", "restarted"];
const ARTIFACT: [&str; 6] = ["steady", "inconclusive", "reserved", "restarted", "settled", "warming-up"];

const fn alert_kinds(verdict: Verdict) -> &'static [&'static str] {
    match verdict {
        Verdict::Leak => &["leak", "imminent"],
        Verdict::HostLeak => &["host-leak"],
        Verdict::KvPoolLeak => &["kv-pool-leak"],
        Verdict::Orphan => &["orphan"],
        Verdict::NotReleased => &["not-released"],
        Verdict::OomRiskNotLeak => &["imminent", "thin-headroom"],
        Verdict::NotLeak | Verdict::MeasurementArtifact | Verdict::Unresolved => &[],
    }
}

/// The three numbers that a detector is held to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Score {
    /// Right diagnoses among all scored rows.
    pub(super) named: Share,
    /// Right alerts among rows that must alert.
    pub(super) recall: Share,
    /// Silence among rows that must not alert.
    pub(super) specificity: Share,
}

/// Scores marks; `true` beside a mark is a row that must alert.
pub(super) fn score(marks: &[(bool, Mark)]) -> Score {
    let count = |wanted: &dyn Fn(&(bool, Mark)) -> bool| marks.iter().filter(|row| wanted(row)).count();
    let must = count(&|(must, _)| *must);
    Score {
        named: Share::of(count(&|(_, mark)| mark.named), marks.len()),
        recall: Share::of(count(&|(must, mark)| *must && mark.alerted), must),
        specificity: Share::of(count(&|(must, mark)| !must && !mark.alerted), marks.len() - must),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(verdict: &str, alert: bool) -> Incident {
        let json = format!(
            r#"{{"id":"x","verdict":{verdict:?},"alert":{alert},"facts":{{"shape_basis":"levels"}},
                "shape":{{"metric":"nvml_device_used_mib","phases":[]}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    fn answer(diagnosis: &str, alert: bool, kinds: &[&str]) -> Answer {
        let mut answer = Answer::simple(diagnosis, alert);
        answer.series[0].findings =
            kinds.iter().map(|&kind| FindingAnswer { kind: kind.to_owned() }).collect();
        answer
    }

    #[test]
    fn growth_names_a_leak_only_beside_an_imminent_forecast() {
        let leak = incident("leak", true);
        assert_eq!(mark(&leak, &answer("leak", true, &["leak"])), Mark { named: true, alerted: true });
        assert_eq!(mark(&leak, &answer("growth", true, &["growth"])), Mark { named: false, alerted: false });
        assert_eq!(mark(&leak, &answer("growth", true, &["imminent"])), Mark { named: true, alerted: true });
        assert_eq!(mark(&leak, &answer("leak", false, &["leak"])), Mark { named: true, alerted: false });
    }

    #[test]
    fn a_quiet_row_counts_any_alert_and_any_wrong_series() {
        let quiet = incident("not_leak", false);
        assert_eq!(mark(&quiet, &answer("steady", false, &[])), Mark { named: true, alerted: false });
        let mut two = answer("steady", false, &[]);
        two.series
            .push(SeriesAnswer { pid: Some(0), ..answer("inconclusive", false, &[]).series[0].clone() });
        assert!(mark(&quiet, &two).named);
        let alone = Answer { series: two.series[1..].to_vec() };
        assert!(!mark(&quiet, &alone).named);
        two.series[1].diagnosis = "leak".to_owned();
        two.series[1].alert = true;
        assert_eq!(mark(&quiet, &two), Mark { named: false, alerted: true });
    }

    #[test]
    fn rows_that_rest_on_an_unplaced_event_are_apart() {
        assert!(is_scored(&incident("leak", true)));
        assert!(!is_scored(&incident("orphan", true)));
        assert!(!is_scored(&incident("unresolved", true)));
    }

    #[test]
    fn a_score_counts_each_kind_of_row_for_itself() {
        let mark = |named, alerted| Mark { named, alerted };
        let rows = [
            (true, mark(true, true)),
            (true, mark(false, false)),
            (false, mark(true, false)),
            (false, mark(true, true)),
        ];
        let score = score(&rows);
        assert_eq!((score.named.hits, score.named.of), (3, 4));
        assert_eq!((score.recall.hits, score.recall.of), (1, 2));
        assert_eq!((score.specificity.hits, score.specificity.of), (1, 2));
    }
}
