//! Tasks of this repository that are no part of the product: `cargo xtask tidy`, `cargo xtask incidents`,
//! `cargo xtask bench-detect` and those that its usage lists.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(feature = "bench-detect")]
mod bench_detect;
mod binary;
mod checksum;
mod demos;
mod engines;
mod faults;
mod incidents;
mod interval;
mod lab;
mod leaks;
mod paper;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask tidy
       cargo xtask incidents [--binary PATH] [--basis measured,levels] [--only ID] [--json]
       cargo xtask bench-detect [--quick | --scale F] [--seeds A..B] [--families N01,P,...]
                                [--parts ordinary,stress,...] [--tune] [--draw] [--write]
       cargo xtask engines [--check]
       cargo xtask faults [WORD ...]
       cargo xtask demos [--runs N] [--at-once N] [--seed N] [--seconds N] [--binary PATH]
       cargo xtask lab [--model FILE] [--binary PATH]
       cargo xtask leaks [--seconds N] [--binary PATH]

tidy          checks layers, licences, budgets and papers; one line a violation
incidents     plays public incidents through `ebbtide check` and scores the diagnoses
bench-detect  scores the detector and simpler ones on simulated histories (docs/detection.md)
engines       writes docs/engines.md from the engine tables, or checks that it is what they say
faults        kills, failing disks, damaged files, set clocks: what the history loses, and for how long it cannot write
demos         runs the demo many times and says how far off rate and onset were
lab           writes the tables of docs/kv-strategies.md: the bundled model's, and with --model that model's
leaks         runs engines that leak on purpose and says how far off their truth is from what the kernel counts
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((task, [])) if task == "tidy" => tidy::run(&repository()),
        Some((task, rest)) if task == "incidents" => incidents::run(&repository(), rest),
        Some((task, rest)) if task == "bench-detect" => bench_detect(rest),
        Some((task, rest)) if task == "engines" => engines::run(&repository(), rest),
        Some((task, rest)) if task == "faults" => faults::run(&repository(), rest),
        Some((task, rest)) if task == "demos" => demos::run(&repository(), rest),
        Some((task, rest)) if task == "lab" => lab::run(&repository(), rest),
        Some((task, rest)) if task == "leaks" => leaks::run(&repository(), rest),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    done.unwrap_or_else(|error| {
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(io::stderr(), "xtask: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(feature = "bench-detect")]
fn bench_detect(arguments: &[String]) -> anyhow::Result<ExitCode> {
    bench_detect::run(&repository(), arguments)
}

/// The other tasks are built without the crates that the benchmark plays, and unoptimised: they stay quick to build,
/// and `tidy` runs while the detector does not compile. The benchmark is this binary once more, with all of it.
#[cfg(not(feature = "bench-detect"))]
fn bench_detect(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = std::process::Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "xtask", "--", "bench-detect"])
        .args(arguments)
        .current_dir(repository())
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The root of the repository: one level above this crate.
fn repository() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.clone(), PathBuf::from)
}
