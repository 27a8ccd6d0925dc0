//! Findings that no slope of one series shows: are they found, and are their likenesses left alone?

use std::fmt::Write;

use ebbtide_detect::DetectConfig;

use super::gates::Gates;
use super::play::{Job, play};
use super::table::Table;
use super::workers;
use crate::interval::Share;

/// Findings of which each family has one.
const KINDS: [&str; 3] = ["imbalance", "idle-holder", "kv-pool-leak"];

/// What was said of a history: its family, whether it has a right finding, whether that opened, and the first other
/// one of these kinds or of a leak.
struct Said {
    family: &'static str,
    is_guilty: bool,
    is_found: bool,
    wrong: Option<&'static str>,
}

/// A table by family, and the figures.
pub(super) fn ask(jobs: &[Job], gates: &mut Gates) -> String {
    if jobs.is_empty() {
        return String::new();
    }
    let said = workers::each(jobs, |job| {
        let played = play(job, &DetectConfig::default());
        let wanted = played.label.wanted;
        let opened = || played.opened.iter().map(|(_, kind)| *kind);
        Said {
            family: job.family.name,
            is_guilty: wanted.is_some(),
            is_found: wanted.is_some_and(|wanted| opened().any(|kind| kind == wanted)),
            wrong: opened().find(|kind| {
                wanted != Some(*kind) && (KINDS.contains(kind) || wanted.is_none() && *kind == "leak")
            }),
        }
    });
    let share = |all: &[&Said], hits: usize| Share::of(hits, all.len());
    let (guilty, innocent): (Vec<&Said>, Vec<&Said>) = said.iter().partition(|said| said.is_guilty);
    let found = guilty.iter().filter(|said| said.is_found).count();
    let wrong = innocent.iter().filter(|said| said.wrong.is_some()).count();
    gates.holders(share(&guilty, found), share(&innocent, wrong));
    let mut table = Table::new(["family", "found", "said of innocents", "first wrong word"]);
    let mut names: Vec<&str> = said.iter().map(|said| said.family).collect();
    names.dedup();
    for name in names {
        let of = |all: &[&Said], is: &dyn Fn(&Said) -> bool| {
            let own = all.iter().filter(|said| said.family == name);
            format!("{}/{}", own.clone().filter(|said| is(said)).count(), own.count())
        };
        let word = said.iter().filter(|said| said.family == name).find_map(|said| said.wrong).unwrap_or("-");
        let (found, wrong) =
            (of(&guilty, &|said| said.is_found), of(&innocent, &|said| said.wrong.is_some()));
        table.row([name, &found, &wrong, word]);
    }
    let mut text = format!("\n### Who holds it, {} histories of 8 h at 1 Hz\n\n", said.len());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{table}");
    text
}
