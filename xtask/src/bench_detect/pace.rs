//! What an observation costs.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use ebbtide_core::{GpuUuid, SeriesPart, SeriesRef};
use ebbtide_detect::{DetectConfig, Detector, Observation};
use ebbtide_testkit::traces::{Family, Group, Label, Point, Span, families};

use super::gates::Gates;
use super::play::observation;
use super::table::Table;

/// How samples follow each other.
#[derive(Clone, Copy)]
enum Beat {
    /// As they were taken: once a second, so that each closes a block.
    Second,
    /// A thousand times as fast: what a sample costs while its block stays open, rules and counters included. What is
    /// dearer at [`Beat::Second`] is closing blocks and judging them.
    Millisecond,
}

/// Nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    sample: f64,
    taking: f64,
    /// One judgement that somebody asks for.
    words: f64,
}

/// A table of nanoseconds a sample over 8 h at 1 Hz, and two figures: the mean over all families without a leak, which
/// are what a fleet mostly is, and the dearest of them.
pub(super) fn measure(gates: &mut Gates) -> String {
    let mut table =
        Table::new(["family", "ns a sample", "taking it in", "closing and judging blocks", "ns a judgement"]);
    let of_groups = |family: &Family| matches!(family.group, Group::Clean | Group::Leaking);
    let (mut sum, mut count, mut dearest) = (0.0, 0.0, (0.0_f64, ""));
    for family in families().into_iter().filter(of_groups) {
        let cost = cost(&family);
        if family.group == Group::Clean {
            (sum, count) = (sum + cost.sample, count + 1.0);
            if cost.sample > dearest.0 {
                dearest = (cost.sample, family.name);
            }
        }
        let judging = (cost.sample - cost.taking).max(0.0);
        let figures = [cost.sample, cost.taking, judging, cost.words].map(|ns| format!("{ns:.0}"));
        let [sample, taking, judging, words] = figures;
        table.row([family.name.to_owned(), sample, taking, judging, words]);
    }
    let mean = sum / count;
    let mut text = "\n### Cost\n\n".to_owned();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{table}");
    let _ = writeln!(
        text,
        "A series without a leak that is sampled each second takes {:.1} us of a core's minute. Each of 5 runs counts \
         with the fastest of its stretches of 5 minutes, so other work on the machine shows little.",
        mean * 60.0 / 1000.0
    );
    gates.cost(mean, dearest, Detector::MOST_BYTES);
    text
}

fn cost(family: &Family) -> Cost {
    let trace = family.trace(0, Span::hours(8));
    let label = trace.label().clone();
    let points: Vec<Point> = trace.collect();
    let (sample, detector) = fastest(&label, &points, Beat::Second);
    let (taking, _) = fastest(&label, &points, Beat::Millisecond);
    const ASKED: u32 = 1000;
    let begun = Instant::now();
    for _ in 0..ASKED {
        black_box(detector.judgement());
    }
    Cost { sample, taking, words: begun.elapsed().as_nanos() as f64 / f64::from(ASKED) }
}

/// Nanoseconds a sample, and the detector at the end: each stretch counts with the fastest of several runs, since
/// whatever else the machine does can only slow it down.
fn fastest(label: &Label, points: &[Point], beat: Beat) -> (f64, Detector) {
    const RUNS: usize = 5;
    const STRETCH: usize = 300;
    let told: Vec<Observation<'_>> =
        (0..).zip(points).map(|(seq, point)| at(beat, seq, label, point)).collect();
    let mut stretches = vec![f64::INFINITY; told.len().div_ceil(STRETCH)];
    let fresh = || {
        let series = SeriesRef { gpu: GpuUuid::new("GPU-0"), part: SeriesPart::Device };
        Detector::new(series, &DetectConfig::default())
    };
    let mut detector = fresh();
    for _ in 0..RUNS {
        detector = fresh();
        for (fastest, stretch) in stretches.iter_mut().zip(told.chunks(STRETCH)) {
            let begun = Instant::now();
            for observation in stretch {
                black_box(detector.observe(observation));
            }
            *fastest = fastest.min(begun.elapsed().as_nanos() as f64);
        }
    }
    (stretches.iter().sum::<f64>() / told.len() as f64, detector)
}

fn at<'a>(beat: Beat, seq: u64, label: &Label, point: &'a Point) -> Observation<'a> {
    let mut told = observation(seq, label, point);
    if matches!(beat, Beat::Millisecond) {
        told.tick.mono_ms /= 1000;
        // Models are loaded and processes end once in hours, not many times a second.
        told.events = &[];
    }
    told
}
