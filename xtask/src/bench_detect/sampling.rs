//! The same history at several intervals: is the same said?

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ebbtide_detect::DetectConfig;

use super::gates::Gates;
use super::play::{Job, play};
use super::table::Table;
use super::workers;
use crate::interval::Share;

/// Seconds between samples; the first is the yardstick.
const INTERVALS: [u64; 4] = [1, 5, 10, 30];

/// What was said of a history: the cause at its end, and whether a loss was alarmed after the onset, and before it.
type Said = (&'static str, bool, bool);

/// A table of each interval, one of the families that differ, and the figure: how many histories get the same diagnosis
/// at their end at all of them.
pub(super) fn compare(jobs: &[Job], gates: &mut Gates) -> String {
    let said: Vec<[Said; 4]> = workers::each(jobs, |job| {
        INTERVALS.map(|interval| {
            let played = play(&Job { span: job.span.every(interval), ..*job }, &DetectConfig::default());
            let mark = super::score::Mark::of(played.truth(), &played.alarms);
            (played.diagnosis, mark.hit.is_some(), mark.episodes > 0)
        })
    });
    let count = |holds: &dyn Fn(&[Said; 4]) -> bool| said.iter().filter(|each| holds(each)).count();
    let mut table = Table::new(["a sample each", "same diagnosis at the end", "same alarm"]);
    for (index, interval) in INTERVALS.iter().enumerate().skip(1) {
        let diagnosis = count(&|each| each[index].0 == each[0].0);
        let alarm = count(&|each| (each[index].1, each[index].2) == (each[0].1, each[0].2));
        let share = |hits: usize| format!("{:.3}", hits as f64 / said.len().max(1) as f64);
        table.row([format!("{interval} s"), share(diagnosis), share(alarm)]);
    }
    gates.sampling(Share::of(count(&|each| each.iter().all(|said| said.0 == each[0].0)), said.len()));
    let mut text = format!("\n### Sampling intervals, against 1 s, {} histories\n\n", said.len());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{table}\n{}", differences(jobs, &said));
    text
}

/// What each family was said to be where intervals differ: at 1 s, and what else.
fn differences(jobs: &[Job], said: &[[Said; 4]]) -> Table {
    let mut table = Table::new(["family", "told differently", "of these: at 1 s, and else"]);
    let mut histories = jobs.iter().zip(said).peekable();
    while let Some((job, _)) = histories.peek() {
        let name = job.family.name;
        let (mut count, mut differing, mut kinds) = (0, 0, BTreeMap::<String, u32>::new());
        while let Some((_, each)) = histories.next_if(|(job, _)| job.family.name == name) {
            count += 1;
            let others: BTreeSet<&str> =
                each.iter().map(|said| said.0).filter(|said| *said != each[0].0).collect();
            if !others.is_empty() {
                differing += 1;
                let others = others.into_iter().collect::<Vec<_>>().join(" or ");
                *kinds.entry(format!("{}, {others}", each[0].0)).or_default() += 1;
            }
        }
        if differing > 0 {
            let kinds: Vec<String> =
                kinds.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            table.row([name.to_owned(), format!("{differing}/{count}"), kinds.join("; ")]);
        }
    }
    table
}
