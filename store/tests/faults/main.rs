//! Disks that fail, files that are damaged, clocks that are set, readers that stay, and processes that are killed.
//!
//! This program is a test and the figures of `cargo xtask faults` in one. Without an argument it plays each fault briefly and
//! says what was lost, which must be nothing that was acknowledged. With `--full` it plays them at length and prints how long
//! it took to write again. It starts itself once more as the child that is tormented.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the figures are the result, and the child talks to its parent so")]

mod child;
mod clocks;
mod damage;
mod disks;
#[path = "../store/records.rs"]
#[allow(dead_code, reason = "the other tests look at more of what was stored")]
mod records;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

/// How much is played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Processes that are killed.
    pub(crate) kills: usize,
    /// Damaged files of each sort.
    pub(crate) damages: usize,
    /// Times that a fault comes and goes.
    pub(crate) outages: usize,
    /// Whether a log grows to the size at which an alarm is raised.
    pub(crate) fills_log: bool,
}

const SHORT: Extent = Extent { kills: 10, damages: 4, outages: 2, fills_log: false };
const FULL: Extent = Extent { kills: 100, damages: 40, outages: 5, fills_log: true };

/// A fault, and what plays it.
type Case = (&'static str, fn(Extent));

const CASES: [Case; 12] = [
    ("a kill at any moment", disks::kills),
    ("writes fail", |extent| disks::outages("eio-write", &["io"], extent)),
    ("flushes fail", |extent| disks::outages("eio-sync", &["io"], extent)),
    ("the disk is full", |extent| disks::outages("full", &["full"], extent)),
    ("the disk turns read-only", |extent| disks::outages("read-only", &["read-only", "io"], extent)),
    ("the power is cut", disks::power_cut),
    ("a connection that is kept after an error", disks::kept_connection),
    ("flipped bytes", damage::flipped),
    ("a truncated file", damage::truncated),
    ("a zeroed file", damage::zeroed),
    ("a clock that is set", clocks::set_by_an_hour),
    ("a reader that never ends", clocks::endless_reader),
];

fn main() -> ExitCode {
    if child::is_wanted() {
        child::work();
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let extent = if arguments.iter().any(|word| word == "--full") { FULL } else { SHORT };
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let chosen =
        CASES.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|word| name.contains(*word)));
    let mut failed = 0;
    for (name, play) in chosen {
        println!("{name}");
        if catch_unwind(AssertUnwindSafe(|| play(extent))).is_err() {
            println!("  FAILED");
            failed += 1;
        }
    }
    println!("{failed} of {} failed", CASES.len());
    ExitCode::from(u8::from(failed > 0))
}

/// Prints one figure of the fault above it.
pub(crate) fn figure(what: &str, reached: &str, wanted: &str) {
    println!("  {what:<46} {reached:>16} {wanted:>12}");
}

/// Prints the middle and the longest of some times.
pub(crate) fn times(what: &str, mut all: Vec<Duration>, wanted: &str) {
    all.sort();
    let Some(longest) = all.last() else { return };
    let ms = |time: &Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    figure(what, &format!("{} / {} ms", ms(&all[all.len() / 2]), ms(longest)), wanted);
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
