//! Change points of level on the thirty complete univariate series of the Turing Change Point Dataset, scored as its
//! benchmark does (van den Burg and Williams, arXiv 2003.06222): a margin of 5, and index 0 counts as a change.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use ebbtide_core::{Absent, Bytes, Diagnosis, FindingEvent, GpuUuid, SeriesPart, SeriesRef, Tick, Ts};
use ebbtide_detect::{DetectConfig, Detector, Load, Observation};
use serde::Deserialize;

use super::baselines::segments::partition;
use super::table::Table;

/// Where the series lie.
const SERIES: &str = "tests/fixtures/tcpd/series.jsonl";
/// A change is found where one is named so close to it.
const MARGIN: usize = 5;

/// A series and what five people saw in it.
#[derive(Debug, Deserialize)]
struct Series {
    values: Vec<f64>,
    annotations: Vec<BTreeSet<usize>>,
}

/// Names the first indices of new levels, without index 0.
type Method = fn(&[f64]) -> Vec<usize>;

/// What is compared: doing nothing, the detector, and PELT at penalties that others have reported.
const METHODS: [(&str, Method); 5] = [
    ("nothing", |_| Vec::new()),
    ("**ebbtide**", told),
    ("PELT mean, 2 log n", |values| pelt(values, 2.0)),
    ("PELT mean, 3 log n", |values| pelt(values, 3.0)),
    ("PELT mean, 5 log n", |values| pelt(values, 5.0)),
];

/// The table of means over all series.
pub(super) fn run(root: &Path) -> Result<String> {
    let all = read(&root.join(SERIES))?;
    let mut table = Table::new(["method", "F1", "cover"]);
    for (name, method) in METHODS {
        let scores: Vec<(f64, f64)> =
            all.iter().map(|series| score(series, &method(&series.values))).collect();
        let mean = |part: fn(&(f64, f64)) -> f64| scores.iter().map(part).sum::<f64>() / scores.len() as f64;
        table.row([name.to_owned(), format!("{:.3}", mean(|s| s.0)), format!("{:.3}", mean(|s| s.1))]);
    }
    let mut text = format!("\n### Change points of level, {} series that people marked\n\n", all.len());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{table}");
    Ok(text)
}

fn read(path: &Path) -> Result<Vec<Series>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = |line: &str| {
        serde_json::from_str(line).with_context(|| format!("a line of {} is no series", path.display()))
    };
    text.lines().map(line).collect()
}

/// Where the detector says that something changed, each value being a sample of a card's memory. It was built to say
/// little: it looks for rises that last and for restarts, and most of these series have neither.
fn told(values: &[f64]) -> Vec<usize> {
    // A block of the rung on which memory without counters may be called a leak holds one value.
    const STEP_MS: u64 = 64_000;
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
    // From a sixteenth of the card to 15 sixteenths of it.
    let mib = |value: f64| 4096.0 + 57_344.0 * (value - low) / (high - low).max(f64::MIN_POSITIVE);
    let series = SeriesRef { gpu: GpuUuid::new("GPU-0"), part: SeriesPart::Device };
    let config = DetectConfig { warm_up_ms: 0, ..DetectConfig::default() };
    let (mut detector, mut changes) = (Detector::new(series, &config), BTreeSet::new());
    for (index, value) in values.iter().enumerate() {
        let (seq, mono_ms) = (index as u64 + 1, (index as u64 + 1) * STEP_MS);
        let was_restarted = detector.diagnosis() == Diagnosis::Restarted;
        let events = detector.observe(&Observation {
            tick: Tick { seq, at: Ts(mono_ms.cast_signed()), mono_ms },
            value: Ok(Bytes((mib(*value) * 1_048_576.0) as u64)),
            capacity: Ok(Bytes::from_mib(65_536)),
            load: Load::absent(Absent::NotSupported),
            owners: Err(Absent::NotSupported),
            peers: Err(Absent::NotSupported),
            events: &[],
        });
        // When a finding resolves says nothing of when memory changed: that takes half a window to be sure of.
        let onsets = events.iter().filter_map(|event| match event {
            FindingEvent::Opened(finding) if finding.key.kind.is_cause() => finding.onset_at,
            _ => None,
        });
        changes.extend(onsets.map(|at| (at.0.unsigned_abs() / STEP_MS).saturating_sub(1) as usize));
        if detector.diagnosis() == Diagnosis::Restarted && !was_restarted {
            changes.insert(index);
        }
    }
    changes.into_iter().filter(|change| (1..values.len()).contains(change)).collect()
}

/// PELT on standard scores.
fn pelt(values: &[f64], penalty: f64) -> Vec<usize> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let sd = (values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / n).sqrt();
    let scores: Vec<f64> = values.iter().map(|value| (value - mean) / sd.max(f64::MIN_POSITIVE)).collect();
    partition(&scores, penalty * n.ln(), 1).into_iter().skip(1).collect()
}

/// F1 and cover of named changes.
fn score(series: &Series, named: &[usize]) -> (f64, f64) {
    let with_start =
        |changes: &BTreeSet<usize>| changes.iter().copied().chain([0]).collect::<BTreeSet<usize>>();
    let named_set: BTreeSet<usize> = named.iter().copied().chain([0]).collect();
    let seen: Vec<BTreeSet<usize>> = series.annotations.iter().map(with_start).collect();
    let by_anybody: BTreeSet<usize> = seen.iter().flatten().copied().collect();
    let precision = found(&by_anybody, &named_set) as f64 / named_set.len() as f64;
    let recalls = seen.iter().map(|changes| found(changes, &named_set) as f64 / changes.len() as f64);
    let recall = recalls.sum::<f64>() / seen.len() as f64;
    let f1 = 2.0 * precision * recall / (precision + recall);
    let covers = seen.iter().map(|changes| cover(changes, &named_set, series.values.len()));
    (f1, covers.sum::<f64>() / seen.len() as f64)
}

/// How many true changes have a named one of their own within the margin, the nearest first.
fn found(truth: &BTreeSet<usize>, named: &BTreeSet<usize>) -> usize {
    let mut free = named.clone();
    let mut count = 0;
    for &change in truth {
        let near = free.range(change.saturating_sub(MARGIN)..=change + MARGIN);
        if let Some(nearest) = near.copied().min_by_key(|other| other.abs_diff(change)) {
            free.remove(&nearest);
            count += 1;
        }
    }
    count
}

/// How well the named segments cover the true ones: the best Jaccard index of each, weighted by length.
fn cover(truth: &BTreeSet<usize>, named: &BTreeSet<usize>, length: usize) -> f64 {
    let segments = |changes: &BTreeSet<usize>| -> Vec<(usize, usize)> {
        let starts: Vec<usize> = changes.iter().copied().collect();
        starts
            .iter()
            .enumerate()
            .map(|(i, &start)| (start, starts.get(i + 1).copied().unwrap_or(length)))
            .collect()
    };
    let named = segments(named);
    let jaccard = |a: (usize, usize), b: (usize, usize)| {
        let both = a.1.min(b.1).saturating_sub(a.0.max(b.0));
        both as f64 / (a.1.max(b.1) - a.0.min(b.0)) as f64
    };
    let best = |a: (usize, usize)| named.iter().map(|&b| jaccard(a, b)).fold(0.0, f64::max);
    segments(truth).into_iter().map(|a| (a.1 - a.0) as f64 * best(a)).sum::<f64>() / length as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Series> {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SERIES)).unwrap()
    }

    fn means(method: Method) -> (f64, f64) {
        let all = all();
        let scores: Vec<(f64, f64)> =
            all.iter().map(|series| score(series, &method(&series.values))).collect();
        let n = scores.len() as f64;
        (scores.iter().map(|s| s.0).sum::<f64>() / n, scores.iter().map(|s| s.1).sum::<f64>() / n)
    }

    #[test]
    fn doing_nothing_scores_what_was_measured_elsewhere() {
        let all = all();
        assert_eq!(all.len(), 30);
        for series in &all {
            assert!(series.annotations.len() == 5 && series.values.len() > 10);
        }
        // An independent computation on the same series gave 0.668 and 0.575.
        let (f1, cover) = means(METHODS[0].1);
        assert!((f1 - 0.668).abs() < 5e-4 && (cover - 0.575).abs() < 5e-4, "{f1} {cover}");
    }

    #[test]
    fn a_true_change_takes_one_named_change_for_itself() {
        let set = |changes: &[usize]| changes.iter().copied().collect::<BTreeSet<usize>>();
        assert_eq!(found(&set(&[0, 10, 12]), &set(&[0, 11])), 2);
        assert_eq!(found(&set(&[0, 10]), &set(&[0, 16])), 1);
        assert!((cover(&set(&[0, 50]), &set(&[0]), 100) - 0.5).abs() < 1e-12);
        assert!((cover(&set(&[0, 50]), &set(&[0, 50]), 100) - 1.0).abs() < 1e-12);
    }
}
