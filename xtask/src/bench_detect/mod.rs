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
mod gates;
mod levels;
mod minutes;
mod pace;
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

/// Where `--write` puts the tables.
const PAPER: &str = "docs/detection.md";
const BEGIN: &str = "<!-- bench-detect: begin -->";
const END: &str = "<!-- bench-detect: end -->";

/// Parts of the benchmark that can be run alone.
const PARTS: [&str; 7] = ["ordinary", "stress", "week", "questions", "sampling", "levels", "cost"];

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    seeds: Option<Range<u64>>,
    /// What keys of families begin with; all where empty.
    families: Vec<String>,
    parts: Vec<String>,
    quick: bool,
    tune: bool,
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
                "--quick" => parsed.quick = true,
                "--tune" => parsed.tune = true,
                "--write" => parsed.write = true,
                other => bail!("unknown argument {other:?}\n{}", crate::USAGE),
            }
        }
        if let Some(part) = parsed.parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
            bail!("there is no part {part:?}: choose from {}", PARTS.join(", "));
        }
        if parsed.write && (parsed.quick || parsed.seeds.is_some() || !parsed.families.is_empty()) {
            bail!("--write writes the figures of a whole run: leave out --quick, --seeds and --families");
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

/// Which seeds each part plays.
#[derive(Debug, Clone)]
struct Plan {
    ordinary: Range<u64>,
    stress: Range<u64>,
    questions: Range<u64>,
    week: Range<u64>,
    /// Seconds between samples of the weeks.
    week_interval_s: u64,
    sampling: Range<u64>,
    /// Seeds of each part in which the rivals play too, for the time that they take.
    rivals: u64,
    rivals_week: u64,
}

impl Plan {
    /// Seeds from here on are printed and never tuned on; those below 12 are for tuning.
    const FIRST: u64 = 1000;

    fn of(arguments: &Arguments) -> Self {
        let from = |count: u64| arguments.seeds.clone().unwrap_or(Self::FIRST..Self::FIRST + count);
        if arguments.quick {
            return Self {
                ordinary: from(4),
                stress: from(3),
                questions: from(8),
                week: Self::FIRST..Self::FIRST + 1,
                week_interval_s: 30,
                sampling: from(1),
                rivals: 1,
                rivals_week: 0,
            };
        }
        Self {
            // 22 families over 200 seeds hold more than 1,000 clean GPU-days; 13 over 110 weeks hold 10,010.
            ordinary: from(200),
            stress: from(30),
            questions: from(100),
            week: Self::FIRST..Self::FIRST + 110,
            week_interval_s: 10,
            sampling: from(4),
            rivals: 30,
            rivals_week: 8,
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
    let begun = Instant::now();
    let text = sections(root, &arguments, |part, seconds| {
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(io::stderr(), "{part}: {seconds:.0} s");
    })?;
    writeln!(out, "{text}\nin {:.0} s", begun.elapsed().as_secs_f64())?;
    if arguments.write {
        write_paper(&root.join(PAPER), &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables of all parts, the figures first.
fn sections(root: &Path, arguments: &Arguments, tell: impl Fn(&str, f64)) -> Result<String> {
    let (plan, rivals) = (Plan::of(arguments), Rival::all());
    let mut gates = Gates::default();
    let mut text = String::new();
    let mut part = |name: &str, work: &mut dyn FnMut(&mut Gates) -> Result<String>| -> Result<()> {
        if arguments.wants(name) {
            let begun = Instant::now();
            text.push_str(&work(&mut gates)?);
            tell(name, begun.elapsed().as_secs_f64());
        }
        Ok(())
    };
    let day = Span::hours(8);
    let held = |groups: &[Group], seeds: &Range<u64>, span: Span, rounds: u64| -> Vec<Entry> {
        contest::hold(&jobs(&arguments.chosen(groups), seeds, span), &rivals, seeds.start + rounds)
    };
    part("ordinary", &mut |gates| {
        let entries = held(&[Group::Clean, Group::Leaking], &plan.ordinary, day, plan.rivals);
        gates.ordinary(&entries);
        Ok(report::contest("Ordinary life: 22 families of 8 h at 1 Hz", &entries, &rivals))
    })?;
    part("stress", &mut |gates| {
        let entries = held(&[Group::Stress, Group::Fast], &plan.stress, day, plan.rivals);
        gates.stress(&entries);
        Ok(report::contest("Stress and fast families, 8 h at 1 Hz", &entries, &rivals))
    })?;
    part("week", &mut |gates| {
        let week = Span::hours(7 * 24).every(plan.week_interval_s);
        let entries = held(&[Group::Clean], &plan.week, week, plan.rivals_week);
        gates.week(&entries);
        let title = format!("Weeks without a leak, a sample each {} s", plan.week_interval_s);
        Ok(report::contest(&title, &entries, &rivals))
    })?;
    part("questions", &mut |gates| {
        let entries = held(&[Group::Question], &plan.questions, day, plan.rivals);
        gates.questions(&entries);
        Ok(report::contest("Two questions: 1 MiB/min mid-run, and a leak at any pace", &entries, &rivals))
    })?;
    part("sampling", &mut |gates| {
        let everything = [Group::Clean, Group::Leaking, Group::Stress, Group::Fast];
        let (text, agree) = sampling::compare(&jobs(&arguments.chosen(&everything), &plan.sampling, day));
        gates.sampling(agree);
        Ok(text)
    })?;
    part("levels", &mut |_| levels::run(root))?;
    part("cost", &mut |gates| {
        let (text, worst) = pace::measure();
        gates.cost(worst);
        Ok(text)
    })?;
    Ok(format!("{gates}{text}"))
}

fn jobs(families: &[Family], seeds: &Range<u64>, span: Span) -> Vec<Job> {
    let of =
        |family: &Family| seeds.clone().map(|seed| Job { family: *family, seed, span }).collect::<Vec<_>>();
    families.iter().flat_map(of).collect()
}

/// Puts the tables between the paper's two markers.
fn write_paper(path: &Path, text: &str) -> Result<()> {
    let paper = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = between(&paper, text)
        .with_context(|| format!("{} lacks its markers {BEGIN} and {END}: restore them", path.display()))?;
    std::fs::write(path, new).with_context(|| format!("cannot write {}", path.display()))
}

fn between(paper: &str, text: &str) -> Option<String> {
    let (before, rest) = paper.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim()))
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
        assert_eq!((all.seeds.clone(), all.parts.len(), all.quick), (Some(0..12), 1, true));
        assert_eq!(all.chosen(&[Group::Clean, Group::Leaking]).len(), 14);
        assert!(all.wants("ordinary") && !all.wants("week"));
        for wrong in [&["--seeds", "12..0"][..], &["--parts", "none"], &["--all"], &["--write", "--quick"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_paper_keeps_what_stands_around_its_tables() {
        let paper = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(between(&paper, "new\n").unwrap(), format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(between("no markers", "new"), None);
    }

    #[test]
    fn seeds_that_are_printed_are_never_those_for_tuning() {
        for quick in [true, false] {
            let plan = Plan::of(&Arguments { quick, ..Arguments::default() });
            for seeds in [plan.ordinary, plan.stress, plan.questions, plan.week, plan.sampling] {
                assert!(seeds.start >= Plan::FIRST);
            }
        }
    }
}
