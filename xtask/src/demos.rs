//! `cargo xtask demos`: the demo many times, each with another leak: was it found, how far off were its rate and its
//! onset?

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::binary;

/// The most that the rate may be off, in per cent.
const RATE_PERCENT: f64 = 5.0;
/// The most that the onset may be off, in seconds.
const ONSET_S: f64 = 60.0;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    runs: u64,
    /// Runs beside each other.
    at_once: usize,
    /// The first run's seed; the others follow.
    seed: u64,
    seconds: u64,
    binary: Option<PathBuf>,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut parsed = Self { runs: 20, at_once: 1, seed: 1000, seconds: 90, binary: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let value = rest.next().with_context(|| format!("{argument} needs a value"));
            let number = |value: &str| value.parse().with_context(|| format!("{value:?} is no whole number"));
            match argument.as_str() {
                "--runs" => parsed.runs = number(value?)?,
                "--at-once" => parsed.at_once = number(value?)? as usize,
                "--seed" => parsed.seed = number(value?)?,
                "--seconds" => parsed.seconds = number(value?)?,
                "--binary" => parsed.binary = Some(PathBuf::from(value?)),
                other => bail!("unknown argument {other:?}\n{}", crate::USAGE),
            }
        }
        if parsed.runs == 0 || parsed.at_once == 0 {
            bail!("--runs 0 and --at-once 0 run nothing");
        }
        Ok(parsed)
    }
}

/// What the demo said of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    rate_percent: Option<f64>,
    onset_s: Option<f64>,
    said_s: Option<f64>,
    /// Whether the demo itself was content: growth before the leak, nothing false, the hook.
    passed: bool,
}

impl Run {
    /// From the demo's own comparison; a figure that it does not print is none.
    fn read(text: &str, passed: bool) -> Self {
        let line = |words: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(words));
        let first = |rest: &str| rest.split_whitespace().next()?.parse().ok();
        let rate = line("its rate was named as").and_then(|rest| first(rest.split_once('(')?.1));
        Self {
            rate_percent: rate,
            onset_s: line("its onset was placed").and_then(first),
            said_s: line("it was said").and_then(first),
            passed,
        }
    }

    fn holds(&self) -> bool {
        self.passed
            && self.rate_percent.is_some_and(|percent| percent <= RATE_PERCENT)
            && self.onset_s.is_some_and(|seconds| seconds.abs() <= ONSET_S)
    }
}

/// Runs the demo and prints a line a run. Fails where a run is not as it is wanted.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let arguments = Arguments::parse(arguments)?;
    let binary = arguments.binary.clone().map_or_else(|| binary::build_shipped(root), Ok)?;
    let mut out = io::stdout().lock();
    writeln!(out, "seed      rate off by   onset off by   said after   as wanted")?;
    let mut runs = Vec::new();
    let seeds: Vec<u64> = (arguments.seed..arguments.seed.saturating_add(arguments.runs)).collect();
    for seeds in seeds.chunks(arguments.at_once) {
        let begun: Vec<(u64, Child)> = seeds
            .iter()
            .map(|seed| Ok((*seed, begin(&binary, *seed, arguments.seconds)?)))
            .collect::<Result<_>>()?;
        for (seed, child) in begun {
            let output = child.wait_with_output()?;
            let run = Run::read(&String::from_utf8_lossy(&output.stdout), output.status.success());
            writeln!(out, "{}", row(seed, &run))?;
            out.flush()?;
            runs.push(run);
        }
    }
    let held = runs.iter().filter(|run| run.holds()).count();
    let worst = |figure: fn(&Run) -> Option<f64>| {
        runs.iter()
            .filter_map(figure)
            .map(f64::abs)
            .reduce(f64::max)
            .map_or("-".to_owned(), |x| format!("{x:.1}"))
    };
    writeln!(out, "\n{:<44}wanted        reached", "")?;
    writeln!(out, "{:<44}{:<14}{held} of {}", "runs as wanted", "all", runs.len())?;
    writeln!(out, "{:<44}{:<14}{}", "rate error, worst, %", "<= 5", worst(|run| run.rate_percent))?;
    writeln!(out, "{:<44}{:<14}{}", "onset error, worst, s", "<= 60", worst(|run| run.onset_s))?;
    Ok(if held == runs.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn begin(binary: &Path, seed: u64, seconds: u64) -> Result<Child> {
    Command::new(binary)
        .args(["demo", "--headless", "--seed", &seed.to_string(), "--seconds", &seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", binary.display()))
}

fn row(seed: u64, run: &Run) -> String {
    let shown = |figure: Option<f64>, unit: &str| figure.map_or("-".to_owned(), |x| format!("{x:.1} {unit}"));
    let (rate, onset) = (shown(run.rate_percent, "%"), shown(run.onset_s, "s"));
    let verdict = if run.holds() { "yes" } else { "NO" };
    format!("{seed:<10}{rate:<14}{onset:<15}{:<13}{verdict}", shown(run.said_s, "s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
  the leak was found                           yes
  its rate was named as                        71.2 MiB/min (3.4 % off)
  its onset was placed                         -12.5 s from the truth
  it was said                                  24 s after it began
  the hook ran for it                          yes
Found.
";

    #[test]
    fn figures_are_read_from_what_the_demo_says() {
        let run = Run::read(SAID, true);
        assert_eq!((run.rate_percent, run.onset_s, run.said_s), (Some(3.4), Some(-12.5), Some(24.0)));
        assert!(run.holds() && !Run::read(SAID, false).holds());
        assert!(!Run::read(&SAID.replace("3.4", "5.1"), true).holds());
        assert!(!Run::read(&SAID.replace("-12.5", "+61.0"), true).holds());
        assert!(!Run::read("the demo fell over", true).holds());
    }

    #[test]
    fn arguments_are_as_the_usage_says() {
        let parse =
            |words: &[&str]| Arguments::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        let few = parse(&["--runs", "3", "--seed", "7"]).unwrap();
        assert_eq!((few.runs, few.at_once, few.seed, few.seconds), (3, 1, 7, 90));
        for wrong in
            [&["--runs"][..], &["--runs", "0"], &["--at-once", "0"], &["--runs", "x"], &["--all", "1"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
