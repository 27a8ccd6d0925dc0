//! `cargo xtask incidents`: public incidents played through `ebbtide check`, and how its answers compare with what
//! the incidents came to.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

mod incident;
mod report;
mod scoring;
mod shape;

use crate::binary;
use incident::Incident;
use report::Row;
use scoring::Answer;

/// Where the incidents lie.
const FOLDER: &str = "tests/fixtures/incidents";

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    binary: Option<PathBuf>,
    /// Only incidents whose shape rests on one of these; all where empty.
    basis: Vec<String>,
    only: Option<String>,
    json: bool,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut parsed = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().cloned().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--binary" => parsed.binary = Some(PathBuf::from(value()?)),
                "--basis" => parsed.basis = value()?.split(',').map(str::to_owned).collect(),
                "--only" => parsed.only = Some(value()?),
                "--json" => parsed.json = true,
                other => bail!("unknown argument {other:?}\n{}", crate::USAGE),
            }
        }
        Ok(parsed)
    }

    fn wants(&self, incident: &Incident) -> bool {
        self.only.as_ref().is_none_or(|id| *id == incident.id)
            && (self.basis.is_empty() || self.basis.contains(&incident.facts.shape_basis))
    }
}

/// Plays the incidents and prints the table. Fails only where something could not be run: a low score is a result.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let arguments = Arguments::parse(arguments)?;
    let mut incidents = incident::read(&root.join(FOLDER))?;
    incidents.retain(|incident| arguments.wants(incident));
    if incidents.is_empty() {
        bail!("no incident is chosen: check --only and --basis against {FOLDER}/incidents.jsonl");
    }
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None => binary::build(root)?,
    };
    let folder = tempfile::tempdir().context("cannot make a folder for the recordings")?;
    let rows: Vec<Row<'_>> = incidents.iter().map(|incident| row(incident, &binary, folder.path())).collect();
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", report::json(&rows)?)?;
    } else {
        write!(out, "{}", report::text(&rows))?;
    }
    let all_ran = rows.iter().all(|row| row.answer.is_ok());
    Ok(if all_ran { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row<'a>(incident: &'a Incident, binary: &Path, folder: &Path) -> Row<'a> {
    let played = shape::play(incident);
    let answer = check(binary, &folder.join(format!("{}.csv", incident.id)), &played.to_csv());
    Row { incident, rise: played.largest_rise(), answer: answer.map_err(|error| format!("{error:#}")) }
}

/// What `ebbtide check` says of a recording.
fn check(binary: &Path, file: &Path, csv: &str) -> Result<Answer> {
    std::fs::write(file, csv).with_context(|| format!("cannot write {}", file.display()))?;
    let output = Command::new(binary)
        .args(["check", "--json"])
        .arg(file)
        .output()
        .with_context(|| format!("cannot run {}", binary.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} ended with {}: {}",
            binary.display(),
            output.status,
            said.lines().last().unwrap_or_default()
        );
    }
    serde_json::from_slice(&output.stdout).context("its answer is not the JSON of docs/check.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments> {
        Arguments::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_as_the_usage_says() {
        let all = parse(&["--binary", "b", "--basis", "measured,levels", "--only", "x", "--json"]).unwrap();
        assert_eq!(all.basis, ["measured", "levels"]);
        assert!(all.json && all.binary == Some(PathBuf::from("b")) && all.only.as_deref() == Some("x"));
        assert!(parse(&["--only"]).unwrap_err().to_string().contains("--only needs a value"));
        assert!(parse(&["--all"]).is_err());
    }

    #[test]
    fn every_incident_of_the_fixtures_plays() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
        let incidents = incident::read(&folder).unwrap();
        assert_eq!(incidents.len(), 55);
        assert_eq!(incidents.iter().map(|incident| incident.stated.len()).sum::<usize>(), 11);
        for incident in &incidents {
            let played = shape::play(incident);
            let rows = played.times.len();
            assert!(
                rows > 10 && played.columns.iter().all(|(_, values)| values.len() == rows),
                "{}",
                incident.id
            );
            let stated = incident.stated.iter().any(|stated| stated.event.is_some());
            assert_eq!(stated, !played.events.is_empty(), "{}", incident.id);
        }
    }
}
