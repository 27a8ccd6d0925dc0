//! `cargo xtask bench-detect`: the detector and simpler ones on simulated histories, side by side, and the figures that
//! the detector is held to. `docs/detection.md` says how to read what it prints.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ebbtide_testkit::traces::{Family, Group, Span, families};

mod baselines;
mod contest;
mod counts;
mod dial;
mod gates;
mod holders;
mod levels;
mod minutes;
mod pace;
mod pictures;
mod play;
mod report;
mod sampling;
mod score;
mod table;
mod tuning;
mod workers;

use contest::{Entry, Rival};
use gates::Gates;
use play::Job;

/// Where `--write` puts the tables; the pictures lie beside it.
const PAPER: &str = "docs/detection.md";

/// Most histories are a working day at 1 Hz.
const DAY: Span = Span::hours(8);
/// Weeks are sampled less often, for the time that they take.
const WEEK: Span = Span::hours(7 * 24).every(10);
/// The scale of `--quick`: a minute on two cores.
const QUICK: f64 = 0.03;

/// A part of the benchmark, which adds its figures and gives its tables.
type Part = fn(&Bench<'_>, &mut Gates) -> Result<String>;

/// The parts by name; each can be run alone.
const PARTS: [(&str, Part); 8] = [
    ("ordinary", |bench, gates| Ok(bench.ordinary(gates))),
    ("stress", |bench, gates| Ok(bench.stress(gates))),
    ("week", |bench, gates| Ok(bench.week(gates))),
    ("questions", |bench, gates| Ok(bench.questions(gates))),
    ("holders", |bench, gates| Ok(bench.holders(gates))),
    ("sampling", |bench, gates| Ok(bench.sampling(gates))),
    ("levels", |bench, _| levels::run(bench.root)),
    ("cost", |_, gates| Ok(pace::measure(gates))),
];

/// What was asked for.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    seeds: Option<Range<u64>>,
    /// What keys of families begin with; all where empty.
    families: Vec<String>,
    parts: Vec<String>,
    /// How many seeds are played, as a share of those of a whole run.
    scale: Option<f64>,
    tune: bool,
    /// Only draw the pictures.
    draw: bool,
    write: bool,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut parsed = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--seeds" => parsed.seeds = Some(range(value()?)?),
                "--families" => parsed.families = value()?.split(',').map(str::to_owned).collect(),
                "--parts" => parsed.parts = value()?.split(',').map(str::to_owned).collect(),
                "--quick" => parsed.scale = Some(QUICK),
                "--scale" => parsed.scale = Some(scale(value()?)?),
                "--tune" => parsed.tune = true,
                "--draw" => parsed.draw = true,
                "--write" => parsed.write = true,
                other => bail!("unknown argument {other:?}\n{}", crate::USAGE),
            }
        }
        let names = PARTS.map(|(name, _)| name);
        if let Some(part) = parsed.parts.iter().find(|part| !names.contains(&part.as_str())) {
            bail!("there is no part {part:?}: choose from {}", names.join(", "));
        }
        if parsed.write && (parsed.seeds.is_some() || !parsed.families.is_empty() || !parsed.parts.is_empty())
        {
            bail!(
                "--write writes what seeds never tuned on say of everything: leave out --seeds, --families, --parts"
            );
        }
        Ok(parsed)
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    fn chosen(&self, groups: &[Group]) -> Vec<Family> {
        let is_named = |family: &Family| {
            self.families.is_empty() || self.families.iter().any(|key| family.key().starts_with(key.as_str()))
        };
        families().into_iter().filter(|family| groups.contains(&family.group) && is_named(family)).collect()
    }
}

fn range(text: &str) -> Result<Range<u64>> {
    let ends = text.split_once("..").and_then(|(low, high)| Some(low.parse().ok()?..high.parse().ok()?));
    ends.filter(|range| !range.is_empty())
        .with_context(|| format!("{text:?} is no range of seeds: write 0..12"))
}

fn scale(text: &str) -> Result<f64> {
    let factor: Option<f64> = text.parse().ok();
    factor.filter(|factor| (0.001..=100.0).contains(factor)).with_context(|| {
        format!("{text:?} is no scale: 1 is a whole run, 0.1 a tenth of its seeds, 10 ten times as many")
    })
}

/// Which seeds each part plays.
#[derive(Debug, Clone)]
struct Plan {
    ordinary: Range<u64>,
    stress: Range<u64>,
    questions: Range<u64>,
    week: Range<u64>,
    sampling: Range<u64>,
    holders: Range<u64>,
    /// Leaks at each setting of the dial.
    dial: Range<u64>,
    /// Seeds of each part in which the rivals play too, for the time that they take.
    rivals: u64,
    rivals_week: u64,
}

impl Plan {
    /// Seeds from here on are printed and never tuned on; those below 12 are for tuning.
    const FIRST: u64 = 1000;

    fn of(arguments: &Arguments) -> Self {
        let count = |whole: u64| (whole as f64 * arguments.scale.unwrap_or(1.0)).ceil() as u64;
        let new = |whole: u64| Self::FIRST..Self::FIRST + count(whole);
        let asked = |whole: u64| arguments.seeds.clone().unwrap_or_else(|| new(whole));
        Self {
            // 22 families over 200 seeds hold more than 1,000 clean GPU-days; 13 over 550 weeks hold 50,050.
            ordinary: asked(200),
            stress: asked(30),
            questions: asked(100),
            week: asked(550),
            dial: asked(40),
            sampling: asked(40),
            holders: asked(100),
            rivals: count(30),
            rivals_week: count(8),
        }
    }
}

/// Runs what was asked for and prints it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let arguments = Arguments::parse(arguments)?;
    let mut out = io::stdout().lock();
    if arguments.tune {
        write!(out, "{}", tuning::run(arguments.seeds.clone().unwrap_or(0..12)))?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.draw {
        pictures::write(root)?;
        return Ok(ExitCode::SUCCESS);
    }
    let begun = Instant::now();
    let text = sections(root, &arguments, |part, seconds| {
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(io::stderr(), "{part}: {seconds:.0} s");
    })?;
    writeln!(out, "{text}\nin {:.0} s", begun.elapsed().as_secs_f64())?;
    if arguments.write {
        crate::paper::write(&root.join(PAPER), "bench-detect", &text)?;
        pictures::write(root)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables of all parts that are wanted, the figures first.
fn sections(root: &Path, arguments: &Arguments, tell: impl Fn(&str, f64)) -> Result<String> {
    let bench = Bench { root, arguments, plan: Plan::of(arguments), rivals: Rival::all() };
    let (mut gates, mut text) = (Gates::default(), String::new());
    for (name, part) in PARTS.iter().filter(|(name, _)| arguments.wants(name)) {
        let begun = Instant::now();
        text.push_str(&part(&bench, &mut gates)?);
        tell(name, begun.elapsed().as_secs_f64());
    }
    let played = match &arguments.seeds {
        Some(seeds) => format!("Seeds {} to {}", seeds.start, seeds.end - 1),
        None => format!("Seeds from {} on, scale {}", Plan::FIRST, arguments.scale.unwrap_or(1.0)),
    };
    Ok(format!("{played}.\n\n{gates}{text}"))
}

/// What the parts are played with.
struct Bench<'a> {
    root: &'a Path,
    arguments: &'a Arguments,
    plan: Plan,
    rivals: Vec<Rival>,
}

impl Bench<'_> {
    fn ordinary(&self, gates: &mut Gates) -> String {
        let jobs = self.jobs(&[Group::Clean, Group::Leaking], &self.plan.ordinary, DAY);
        let entries = self.hold(&jobs, self.plan.ordinary.start + self.plan.rivals);
        gates.ordinary(&entries);
        report::contest("Ordinary life: 22 families of 8 h at 1 Hz", &entries, &self.rivals)
    }

    fn stress(&self, gates: &mut Gates) -> String {
        let jobs = self.jobs(&[Group::Stress, Group::Fast], &self.plan.stress, DAY);
        let entries = self.hold(&jobs, self.plan.stress.start + self.plan.rivals);
        gates.stress(&entries);
        report::contest("Stress and fast families, 8 h at 1 Hz", &entries, &self.rivals)
    }

    fn week(&self, gates: &mut Gates) -> String {
        let jobs = self.jobs(&[Group::Clean], &self.plan.week, WEEK);
        let entries = self.hold(&jobs, self.plan.week.start + self.plan.rivals_week);
        gates.week(&entries);
        let mut text = report::contest("Weeks without a leak, a sample each 10 s", &entries, &self.rivals);
        if !entries.is_empty() {
            let leaks = self.jobs(&[Group::Leaking], &self.plan.dial, DAY);
            text.push_str(&dial::measure((&jobs, &entries), &leaks, gates));
        }
        text
    }

    fn questions(&self, gates: &mut Gates) -> String {
        let jobs = self.jobs(&[Group::Question], &self.plan.questions, DAY);
        let entries = self.hold(&jobs, self.plan.questions.start + self.plan.rivals);
        gates.questions(&entries);
        report::contest(
            "Questions: 1 MiB/min mid-run, a leak at any pace, and one that is over in minutes",
            &entries,
            &self.rivals,
        )
    }

    fn holders(&self, gates: &mut Gates) -> String {
        holders::ask(&self.jobs(&[Group::Holder], &self.plan.holders, DAY), gates)
    }

    fn sampling(&self, gates: &mut Gates) -> String {
        let everything = [Group::Clean, Group::Leaking, Group::Stress, Group::Fast];
        sampling::compare(&self.jobs(&everything, &self.plan.sampling, DAY), gates)
    }

    fn jobs(&self, groups: &[Group], seeds: &Range<u64>, span: Span) -> Vec<Job> {
        let of = |family: Family| seeds.clone().map(move |seed| Job { family, seed, span });
        self.arguments.chosen(groups).into_iter().flat_map(of).collect()
    }

    /// The rivals play the seeds below the last one.
    fn hold(&self, jobs: &[Job], last_rival_seed: u64) -> Vec<Entry> {
        contest::hold(jobs, &self.rivals, last_rival_seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments> {
        Arguments::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_as_the_usage_says() {
        let all =
            parse(&["--seeds", "0..12", "--families", "N,P01", "--parts", "ordinary", "--quick"]).unwrap();
        assert_eq!((all.seeds.clone(), all.parts.len(), all.scale), (Some(0..12), 1, Some(QUICK)));
        assert_eq!(all.chosen(&[Group::Clean, Group::Leaking]).len(), 14);
        assert!(all.wants("ordinary") && !all.wants("week"));
        for wrong in [
            &["--seeds", "12..0"][..],
            &["--parts", "none"],
            &["--all"],
            &["--write", "--parts", "week"],
            &["--scale", "0"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn seeds_that_are_printed_are_never_those_for_tuning() {
        for scale in [None, Some(QUICK), Some(10.0)] {
            let plan = Plan::of(&Arguments { scale, ..Arguments::default() });
            let all = [
                plan.ordinary,
                plan.stress,
                plan.questions,
                plan.week,
                plan.sampling,
                plan.dial,
                plan.holders,
            ];
            for seeds in all {
                assert!(seeds.start >= Plan::FIRST);
            }
        }
    }
}
