//! Tables of a contest: all detectors in total, then family by family.

use std::fmt::Write;

use super::contest::{self, Entry, Rival};
use super::score::Tally;
use super::table::{Table, figure};
use crate::interval::Share;

/// Both tables under a heading; nothing without entries.
pub(super) fn contest(title: &str, entries: &[Entry], rivals: &[Rival]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let mut text = format!("\n### {title}\n\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", totals(entries, rivals));
    let _ = writeln!(text, "{}", by_family(entries, rivals));
    text
}

fn totals(entries: &[Entry], rivals: &[Rival]) -> Table {
    let mut table = Table::new([
        "detector",
        "setting",
        "precision (95 %)",
        "recall (95 %)",
        "F1",
        "false alarms a GPU-day (95 %)",
        "clean GPU-days",
        "delay, min (median / 90 %)",
        "MiB leaked",
    ]);
    let mut row = |name: &str, setting: String, tally: &Tally| {
        let (rate, low, high) = tally.false_a_day();
        table.row([
            name.to_owned(),
            setting,
            share(tally.precision()),
            share(tally.recall()),
            format!("{:.3}", tally.f1()),
            format!("{rate:.4} ({low:.4}-{high:.4})"),
            format!("{:.0}", tally.clean_days),
            format!("{} / {}", figure(tally.delay(0.5)), figure(tally.delay(0.9))),
            figure(tally.leaked()),
        ]);
    };
    row("**ebbtide**", "as shipped".to_owned(), &contest::own(entries));
    for (index, rival) in rivals.iter().enumerate() {
        let tally = contest::rival(entries, index);
        if tally.histories > 0 {
            row(rival.rule.name(), format!("{}: {}", rival.kind, rival.rule.setting()), &tally);
        }
    }
    table
}

fn share(share: Share) -> String {
    if share.of == 0 {
        return "-".to_owned();
    }
    format!("{:.3} ({:.2}-{:.2})", share.hits as f64 / share.of as f64, share.low, share.high)
}

/// For families without a leak the histories with a false alarm out of all, for the others the leaks found out of all
/// and, behind a plus, the histories with a false alarm before the onset.
fn by_family(entries: &[Entry], rivals: &[Rival]) -> Table {
    let has_rivals = entries.iter().any(|entry| !entry.rivals.is_empty());
    let shown: Vec<usize> = (0..rivals.len()).filter(|_| has_rivals).collect();
    let mut header =
        vec!["family".to_owned(), "ebbtide".to_owned(), "delay, min".to_owned(), "rate off by".to_owned()];
    header.push("stands at the end".to_owned());
    let initial = |rival: &Rival| if rival.kind == "tuned" { "t" } else { "" };
    header
        .extend(shown.iter().map(|&index| format!("{} {}", short(&rivals[index]), initial(&rivals[index]))));
    let mut table = Table::new(header);
    for family in entries.chunk_by(|a, b| a.family.name == b.family.name) {
        let own = contest::own(family);
        let mut errors: Vec<f64> =
            family.iter().filter_map(|e| e.claim).map(|c| (c.rate / c.truth - 1.0).abs()).collect();
        let mut row = vec![
            family[0].family.name.to_owned(),
            outcome(&own),
            figure(own.delay(0.5)),
            super::minutes::median(&mut errors)
                .map_or_else(|| "-".to_owned(), |error| format!("{:.0} %", error * 100.0)),
            most_common(family),
        ];
        row.extend(shown.iter().map(|&index| outcome(&contest::rival(family, index))));
        table.row(row);
    }
    table
}

fn short(rival: &Rival) -> &'static str {
    match rival.rule.name() {
        "Mann-Kendall + Sen" => "MK",
        "slope rule" => "slope",
        "predict_linear" => "predict",
        "PELT mean" => "PELT",
        name => name,
    }
}

fn outcome(tally: &Tally) -> String {
    match (tally.histories, tally.leaks, tally.fooled) {
        (0, ..) => "-".to_owned(),
        (histories, 0, fooled) => format!("{fooled}/{histories}"),
        (_, leaks, 0) => format!("{}/{leaks}", tally.found),
        (_, leaks, fooled) => format!("{}/{leaks} +{fooled}", tally.found),
    }
}

/// The cause that stands at the end of most histories.
fn most_common(family: &[Entry]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for entry in family {
        match counts.iter_mut().find(|(name, _)| *name == entry.diagnosis) {
            Some((_, count)) => *count += 1,
            None => counts.push((entry.diagnosis, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let top = counts.iter().take(2).map(|(name, count)| format!("{name} {count}"));
    top.collect::<Vec<_>>().join(", ")
}
