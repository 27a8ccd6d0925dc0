//! `cargo xtask leaks`: engines that leak on purpose, each kind beside the others, and what the kernel says of it from
//! outside: is what they call the truth true, and does a leak have the rate it was ordered at?

mod outside;

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::binary;
use outside::{Look, Place};

/// What may lie between the engine's count and the kernel's, and between the ordered rate and the seen one, in per cent.
const WANTED_PERCENT: f64 = 1.0;
/// Requests come and go several times in such a stretch, so that in one look of it none is on its way and the pool
/// holds nothing but what is lost.
const STRETCH: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// A kind of leak.
struct Kind {
    /// As the command line has it.
    inject: &'static str,
    /// What is ordered for a minute; `None` where it does not come evenly or requests decide.
    per_minute: Option<u64>,
    place: Place,
}

const MIB: u64 = 1 << 20;

const KINDS: [Kind; 7] = [
    Kind { inject: "scratch:64M", per_minute: Some(64 * MIB), place: Place::Device },
    Kind { inject: "scratch:1M", per_minute: Some(MIB), place: Place::Device },
    Kind { inject: "host-ram:64M", per_minute: Some(64 * MIB), place: Place::Host },
    Kind { inject: "per-request:512K", per_minute: None, place: Place::Device },
    Kind { inject: "forgotten-refs:2", per_minute: None, place: Place::Device },
    Kind { inject: "prefix-unbounded", per_minute: None, place: Place::Device },
    Kind { inject: "bursts:16M:30", per_minute: None, place: Place::Device },
];

/// An engine at work.
struct Engine {
    child: Child,
    /// It ends when this is closed.
    _input: ChildStdin,
    address: String,
}

impl Engine {
    fn start(binary: &Path, kind: &Kind) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["engine", "--attached", "--no-sharing", "--load", "poisson:1", "--listen", "127.0.0.1:0"])
            .args(["--inject", kind.inject])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        let input = child.stdin.take().context("the engine has no standard input")?;
        let output = child.stdout.take().context("the engine has no standard output")?;
        // The pipe takes what the engine says at its end.
        let address = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on http://").map(str::to_owned))
            .context("the engine did not say where it listens")?;
        Ok(Self { child, _input: input, address })
    }

    fn look(&self, place: Place) -> Result<Look> {
        outside::look(self.child.id(), place, &self.address)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It is ours and has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was asked for.
struct Arguments {
    seconds: u64,
    binary: Option<PathBuf>,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut parsed = Self { seconds: 600, binary: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let value = rest.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--seconds" => parsed.seconds = value?.parse().context("--seconds takes a whole number")?,
                "--binary" => parsed.binary = Some(PathBuf::from(value?)),
                other => bail!("unknown argument {other:?}\n{}", crate::USAGE),
            }
        }
        if parsed.seconds < 4 * STRETCH.as_secs() {
            bail!("--seconds {} is too short; at least {} are wanted", parsed.seconds, 4 * STRETCH.as_secs());
        }
        Ok(parsed)
    }
}

/// Runs all kinds side by side and prints a row for each. Fails where one is not as it is wanted.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let arguments = Arguments::parse(arguments)?;
    let binary = arguments.binary.clone().map_or_else(|| binary::build_shipped(root), Ok)?;
    let engines = KINDS.iter().map(|kind| Engine::start(&binary, kind)).collect::<Result<Vec<_>>>()?;
    let first = lowest(&engines)?;
    let begun = Instant::now();
    let end = Duration::from_secs(arguments.seconds);
    while begun.elapsed() < end {
        std::thread::park_timeout(end.saturating_sub(begun.elapsed()));
    }
    let last = lowest(&engines)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", Row::HEAD)?;
    let mut is_sound = true;
    for ((kind, first), last) in KINDS.iter().zip(first).zip(last) {
        let row = Row::of(kind, &first, &last);
        is_sound &= row.holds();
        writeln!(out, "{}", row.text())?;
    }
    writeln!(out, "\nwanted: at most {WANTED_PERCENT} % off, over {} s", arguments.seconds)?;
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// For each engine the look of a stretch in which it held least beside what it says it has lost.
fn lowest(engines: &[Engine]) -> Result<Vec<Look>> {
    let begun = Instant::now();
    let mut lowest: Vec<Option<Look>> = engines.iter().map(|_| None).collect();
    while begun.elapsed() < STRETCH {
        for ((engine, kind), lowest) in engines.iter().zip(&KINDS).zip(&mut lowest) {
            let look = engine.look(kind.place)?;
            if lowest.as_ref().is_none_or(|lowest| look.beside() <= lowest.beside()) {
                *lowest = Some(look);
            }
        }
        std::thread::park_timeout(LOOK);
    }
    lowest.into_iter().map(|look| look.context("no look was taken")).collect()
}

/// What is printed of one kind.
#[derive(Debug)]
struct Row {
    inject: &'static str,
    minutes: f64,
    ordered: Option<f64>,
    /// Lost between two looks, in bytes.
    said: f64,
    seen: f64,
}

impl Row {
    const HEAD: &'static str = "\
| leak | ordered, MiB/min | says it lost, MiB | by the kernel, MiB | off | seen, MiB/min | off the order | as wanted |
|---|---|---|---|---|---|---|---|";

    fn of(kind: &Kind, first: &Look, last: &Look) -> Self {
        Self {
            inject: kind.inject,
            minutes: last.at.duration_since(first.at).as_secs_f64() / 60.0,
            ordered: kind.per_minute.map(|bytes| bytes as f64),
            said: last.said as f64 - first.said as f64,
            seen: last.held as f64 - first.held as f64,
        }
    }

    fn rate(&self) -> f64 {
        self.seen / self.minutes
    }

    fn off_said(&self) -> f64 {
        (self.seen / self.said - 1.0) * 100.0
    }

    fn off_ordered(&self) -> Option<f64> {
        self.ordered.map(|ordered| (self.rate() / ordered - 1.0) * 100.0)
    }

    /// Nothing lost is no proof of anything.
    fn holds(&self) -> bool {
        let offs = [Some(self.off_said()), self.off_ordered()];
        self.said > 0.0 && offs.into_iter().flatten().all(|off| off.abs() <= WANTED_PERCENT)
    }

    fn text(&self) -> String {
        let mib = |bytes: f64| format!("{:.2}", bytes / MIB as f64);
        let percent = |off: f64| format!("{off:+.2} %");
        format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            self.inject,
            self.ordered.map_or_else(|| "-".to_owned(), mib),
            mib(self.said),
            mib(self.seen),
            percent(self.off_said()),
            mib(self.rate()),
            self.off_ordered().map_or_else(|| "-".to_owned(), percent),
            if self.holds() { "yes" } else { "NO" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(said: f64, seen: f64, ordered: Option<f64>) -> Row {
        Row { inject: "scratch:1M", minutes: 10.0, ordered, said, seen }
    }

    #[test]
    fn a_row_holds_where_both_counts_and_the_order_agree() {
        let mib = MIB as f64;
        assert!(row(10.0 * mib, 10.05 * mib, Some(mib)).holds());
        assert!(row(10.0 * mib, 9.95 * mib, None).holds());
        assert!(!row(10.0 * mib, 10.2 * mib, Some(mib)).holds(), "the kernel counts more");
        assert!(!row(10.0 * mib, 10.0 * mib, Some(2.0 * mib)).holds(), "half of what was ordered");
        assert!(!row(0.0, 0.0, None).holds(), "nothing was lost");
        let text = row(10.0 * mib, 10.04 * mib, Some(mib)).text();
        assert_eq!(text, "| `scratch:1M` | 1.00 | 10.00 | 10.04 | +0.40 % | 1.00 | +0.40 % | yes |");
    }
}
