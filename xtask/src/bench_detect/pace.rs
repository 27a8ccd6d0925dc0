//! What an observation costs.

use std::fmt::Write;
use std::time::Instant;

use ebbtide_core::{GpuUuid, SeriesPart, SeriesRef};
use ebbtide_detect::{DetectConfig, Detector};
use ebbtide_testkit::traces::{Label, Point, Span, family};

use super::gates::Gates;
use super::play::observation;
use super::table::Table;

/// Families whose cost is shown: quiet ones, noisy ones, leaks.
const SHOWN: [&str; 6] = ["N01", "N03", "N05", "N10", "P01", "P05"];

/// A table of nanoseconds a sample over 8 h at 1 Hz, and the figure: the dearest of the families without a leak, which
/// are what a fleet mostly is.
pub(super) fn measure(gates: &mut Gates) -> String {
    let mut table = Table::new(["family", "ns a sample"]);
    let mut dearest = 0.0_f64;
    for key in SHOWN {
        let Some(family) = family(key) else { continue };
        let trace = family.trace(0, Span::hours(8));
        let label = trace.label().clone();
        let points: Vec<Point> = trace.collect();
        let ns = fastest(&label, &points);
        if !label.is_leak {
            dearest = dearest.max(ns);
        }
        table.row([family.name.to_owned(), format!("{ns:.0}")]);
    }
    let mut text = "\n### Cost\n\n".to_owned();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{table}");
    gates.cost(dearest, Detector::MOST_BYTES);
    text
}

/// Nanoseconds a sample: each hour counts with the fastest of several runs, since whatever else the machine does can
/// only slow it down.
fn fastest(label: &Label, points: &[Point]) -> f64 {
    const RUNS: usize = 5;
    const HOUR: usize = 3600;
    let mut hours = vec![f64::INFINITY; points.len().div_ceil(HOUR)];
    for _ in 0..RUNS {
        let series = SeriesRef { gpu: GpuUuid::new("GPU-0"), part: SeriesPart::Device };
        let mut detector = Detector::new(series, &DetectConfig::default());
        let mut seq = 0;
        for (fastest, hour) in hours.iter_mut().zip(points.chunks(HOUR)) {
            let begun = Instant::now();
            for point in hour {
                seq += 1;
                detector.observe(&observation(seq, label, point));
            }
            *fastest = fastest.min(begun.elapsed().as_nanos() as f64);
        }
    }
    hours.iter().sum::<f64>() / points.len() as f64
}
