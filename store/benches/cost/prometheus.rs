//! The same values in the blocks of Prometheus, made by its own `promtool`.

use std::fmt::Write as _;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;

use crate::load::{Load, SERIES};

/// Ticks that are compared: one block of two hours.
pub(crate) const TICKS: u64 = 7200;

/// Bytes a sample, `None` where promtool is not installed.
pub(crate) fn bytes_a_sample(dir: &Path) -> Option<f64> {
    Command::new("promtool").arg("--version").output().ok()?;
    let (text, blocks) = (dir.join("openmetrics"), dir.join("blocks"));
    write_openmetrics(&text);
    let made = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&text, &blocks])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(size(&blocks) as f64 / (TICKS * SERIES) as f64)
}

/// Series by series, as the format wants it. On the beat: a server that scrapes stores the time at which it was due where it
/// is no more than 2 ms late, which makes its blocks smaller (Prometheus, `scrape/scrape.go`, `ScrapeTimestampTolerance`).
fn write_openmetrics(path: &Path) {
    let mut load = Load::new(1000);
    let ticks: Vec<_> = (0..TICKS).map(|_| load.next()).collect();
    let mut out = BufWriter::new(std::fs::File::create(path).unwrap());
    writeln!(out, "# TYPE value gauge").unwrap();
    for series in 0..SERIES as usize {
        let mut lines = String::new();
        for tick in &ticks {
            let seconds = load.at(tick.tick.seq).0 as f64 / 1000.0;
            writeln!(
                lines,
                "value{{series=\"{series}\"}} {} {seconds:.3}",
                tick.points[series].value.unwrap()
            )
            .unwrap();
        }
        out.write_all(lines.as_bytes()).unwrap();
    }
    writeln!(out, "# EOF").unwrap();
    out.flush().unwrap();
}

fn size(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let sizes = entries.map(|entry| {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() { size(&entry.path()) } else { meta.len() }
    });
    sizes.sum()
}
