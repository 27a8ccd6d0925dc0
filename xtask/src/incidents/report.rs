//! The table of answers and the score beside two trivial ones.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::incident::Incident;
use super::scoring::{Answer, Mark, Score, is_scored, mark, score};
use crate::interval::Share;

/// Above this rise in MiB the simplest of all detectors alerts; a public benchmark tool uses the same.
const TRIVIAL_RISE_MIB: f64 = 200.0;

/// An incident and the answer to it, or why there is none.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) incident: &'a Incident,
    /// The largest rise of its recording in MiB.
    pub(super) rise: f64,
    pub(super) answer: Result<Answer, String>,
}

impl Row<'_> {
    fn mark(&self) -> Option<Mark> {
        self.answer.as_ref().ok().map(|answer| mark(self.incident, answer))
    }

    /// Whether the diagnosis and the alert are both right.
    fn outcome(&self) -> &'static str {
        match self.mark() {
            None => "not run",
            Some(_) if !is_scored(self.incident) => "apart",
            Some(mark) if mark.named && mark.alerted == self.incident.alert => "yes",
            Some(mark) if mark.named => "named",
            Some(mark) if mark.alerted == self.incident.alert => "alert",
            Some(_) => "no",
        }
    }

    /// Diagnoses of all series, each once.
    fn diagnoses(&self) -> String {
        match &self.answer {
            Ok(answer) => each_once(answer.series.iter().map(|series| series.diagnosis.as_str())),
            Err(why) => why.clone(),
        }
    }

    fn findings(&self) -> String {
        let Ok(answer) = &self.answer else { return String::new() };
        let kinds =
            answer.series.iter().flat_map(|series| &series.findings).map(|finding| finding.kind.as_str());
        let alert = if answer.series.iter().any(|series| series.alert) { " (alert)" } else { "" };
        format!("{}{alert}", each_once(kinds))
    }
}

/// The scores of ebbtide and of the two trivial answers, over rows that can be scored and were run.
fn scores(rows: &[Row<'_>]) -> [(&'static str, Score); 3] {
    let scored: Vec<&Row<'_>> =
        rows.iter().filter(|row| is_scored(row.incident) && row.answer.is_ok()).collect();
    let of = |answer: &dyn Fn(&Row<'_>) -> Option<Mark>| {
        let marks: Vec<(bool, Mark)> =
            scored.iter().filter_map(|row| Some((row.incident.alert, answer(row)?))).collect();
        score(&marks)
    };
    let steady = |row: &Row<'_>| Some(mark(row.incident, &Answer::simple("steady", false)));
    let rise = |row: &Row<'_>| Some(rise_mark(row));
    [("ebbtide", of(&|row| row.mark())), ("always steady", of(&steady)), ("any rise over 200 MiB", of(&rise))]
}

/// The simplest detector calls every rise a leak; its alert counts as one of the right kind.
fn rise_mark(row: &Row<'_>) -> Mark {
    let rises = row.rise > TRIVIAL_RISE_MIB;
    let answer = if rises { Answer::simple("leak", true) } else { Answer::simple("steady", false) };
    Mark { alerted: rises, ..mark(row.incident, &answer) }
}

/// The table for people.
pub(super) fn text(rows: &[Row<'_>]) -> String {
    let mut out = String::new();
    let mut line = |cells: [&str; 5]| {
        let [id, verdict, diagnosis, findings, accepted] = cells;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{id:<20} {verdict:<21} {diagnosis:<28} {findings:<36} {accepted}");
    };
    line(["incident", "verdict", "diagnosis", "findings", "accepted"]);
    for row in rows {
        let (diagnoses, findings) = (row.diagnoses(), row.findings());
        line([&row.incident.id, row.incident.verdict.name(), &diagnoses, &findings, row.outcome()]);
    }
    let _ = writeln!(
        out,
        "\naccepted: yes, named = diagnosis only, alert = alert only, no; apart = not scored\n"
    );
    let _ = writeln!(out, "{:<24} {:<24} {:<24} {:<24}", "", "named", "recall", "specificity");
    for (name, score) in scores(rows) {
        let [named, recall, specificity] = [score.named, score.recall, score.specificity].map(share);
        let _ = writeln!(out, "{name:<24} {named:<24} {recall:<24} {specificity:<24}");
    }
    out.push_str("\nby verdict:");
    for (verdict, (hits, of)) in by_verdict(rows) {
        let _ = write!(out, " {verdict} {hits}/{of}");
    }
    out.push('\n');
    out
}

/// The table for programs.
pub(super) fn json(rows: &[Row<'_>]) -> Result<String> {
    let incidents: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "id": row.incident.id,
                "verdict": row.incident.verdict.name(),
                "basis": row.incident.facts.shape_basis,
                "must_alert": row.incident.alert,
                "diagnosis": row.diagnoses(),
                "findings": row.findings(),
                "scored": is_scored(row.incident),
                "mark": row.mark(),
            })
        })
        .collect();
    let scores: BTreeMap<&str, Score> = scores(rows).into();
    Ok(serde_json::to_string_pretty(&json!({ "incidents": incidents, "scores": scores }))?)
}

/// Rows with the right diagnosis, by verdict.
fn by_verdict(rows: &[Row<'_>]) -> BTreeMap<&'static str, (usize, usize)> {
    let mut counts = BTreeMap::new();
    for row in rows.iter().filter(|row| is_scored(row.incident)) {
        let (hits, of): &mut (usize, usize) = counts.entry(row.incident.verdict.name()).or_default();
        *hits += usize::from(row.mark().is_some_and(|mark| mark.named));
        *of += 1;
    }
    counts
}

fn share(share: Share) -> String {
    format!("{}/{} ({:.0}-{:.0} %)", share.hits, share.of, share.low * 100.0, share.high * 100.0)
}

fn each_once<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut once: Vec<&str> = Vec::new();
    for word in words {
        if !once.contains(&word) {
            once.push(word);
        }
    }
    once.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(id: &str, verdict: &str, alert: bool) -> Incident {
        let json = format!(
            r#"{{"id":{id:?},"verdict":{verdict:?},"alert":{alert},"facts":{{"shape_basis":"levels"}},
                "shape":{{"metric":"nvml_device_used_mib","phases":[]}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn the_report_sets_the_answers_beside_the_trivial_ones() {
        let (leak, quiet, open) = (
            incident("a", "leak", true),
            incident("b", "not_leak", false),
            incident("c", "unresolved", true),
        );
        let rows = [
            Row { incident: &leak, rise: 500.0, answer: Ok(Answer::simple("leak", true)) },
            Row { incident: &quiet, rise: 900.0, answer: Ok(Answer::simple("steady", false)) },
            Row { incident: &open, rise: 0.0, answer: Ok(Answer::simple("growth", false)) },
            Row { incident: &leak, rise: 0.0, answer: Err("cannot run x".to_owned()) },
        ];
        let [(_, own), (_, steady), (_, rise)] = scores(&rows);
        assert_eq!([own.named.hits, own.recall.hits, own.specificity.hits], [2, 1, 1]);
        assert_eq!([steady.named.hits, steady.recall.hits, steady.specificity.hits], [1, 0, 1]);
        assert_eq!([rise.named.hits, rise.recall.hits, rise.specificity.hits], [1, 1, 0]);
        let text = text(&rows);
        let outcomes: Vec<&str> =
            text.lines().skip(1).take(4).filter_map(|line| line.split("  ").last()).collect();
        assert_eq!(
            outcomes.iter().map(|o| o.trim()).collect::<Vec<_>>(),
            ["yes", "yes", "apart", "not run"],
            "{text}"
        );
        assert!(text.contains("by verdict: leak 1/2 not_leak 1/1"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json(&rows).unwrap()).unwrap();
        assert_eq!(json["scores"]["ebbtide"]["recall"]["of"], 1);
        assert_eq!(json["incidents"][3]["diagnosis"], "cannot run x");
    }
}
