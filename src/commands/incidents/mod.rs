//! `ebbtide incidents`: processes that ended out of order, and the ten minutes before.

mod show;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ebbtide_core::text::clean;
use ebbtide_core::{Absent, ExitStatus, Reading};
use ebbtide_store::{Reader, StoredIncident};
use serde_json::{Value, json};

use super::config;
use super::db::{refused, runtime};
use super::status::clock;
use crate::cli::ConfigArgs;
use crate::{exit, output};

/// How long one question may take: five hundred incidents, or the ticks before one, be it from a slow disk.
const DEADLINE: Duration = Duration::from_secs(30);

/// `ebbtide incidents`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  ebbtide incidents                      which GPU processes ended out of order\n  ebbtide incidents show 3               what was known of the third, and the ten minutes before\n  ebbtide incidents show 3 --json | jq '.series[] | select(.metric == \"process-bytes\").points'\n\nExits 65 where there is no database, or no incident of that number."
)]
pub(crate) struct IncidentsArgs {
    #[command(subcommand)]
    command: Option<IncidentsCommand>,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, Subcommand)]
enum IncidentsCommand {
    /// All of them, the newest first
    List(SourceArgs),
    /// One of them, with the ticks before it
    Show {
        /// Its number in the list
        id: u32,
        #[command(flatten)]
        source: SourceArgs,
    },
}

/// Which database, and in which form.
#[derive(Debug, Default, Args)]
struct SourceArgs {
    /// The database; the configured one where none is given
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl SourceArgs {
    fn reader(self) -> anyhow::Result<Reader> {
        let path = match self.db {
            Some(file) => file,
            None => config::effective(self.config)?.config.store.path,
        };
        Ok(Reader::new(&path, DEADLINE))
    }
}

pub(crate) fn run(args: IncidentsArgs) -> anyhow::Result<u8> {
    match args.command {
        None => list(args.source),
        Some(IncidentsCommand::List(source)) => list(source),
        Some(IncidentsCommand::Show { id, source }) => {
            let as_json = source.json;
            let found = runtime()?.block_on(source.reader()?.incident(id)).map_err(refused)?;
            let Some(found) = found else {
                let message = format!("there is no incident {id}: `ebbtide incidents` lists them");
                return Err(exit::Coded { code: exit::DATA, message }.into());
            };
            if as_json {
                output::json(&show::document(&found))?;
            } else {
                output::text(&show::listing(&found)?)?;
            }
            Ok(0)
        }
    }
}

fn list(source: SourceArgs) -> anyhow::Result<u8> {
    let as_json = source.json;
    let found = runtime()?.block_on(source.reader()?.incidents()).map_err(refused)?;
    if as_json {
        output::json(&found.iter().map(document).collect::<Vec<_>>())?;
    } else {
        output::text(&listing(&found)?)?;
    }
    Ok(0)
}

fn document(stored: &StoredIncident) -> Value {
    json!({ "id": stored.id, "cause": stored.incident.cause.name(), "incident": stored.incident })
}

fn listing(found: &[StoredIncident]) -> Result<String, std::fmt::Error> {
    if found.is_empty() {
        return Ok("no process on a GPU has ended out of order\n".to_owned());
    }
    let mut text = String::new();
    for StoredIncident { id, incident } in found {
        writeln!(
            text,
            "{id:>5}  {}  {:<9}  {}",
            clock(incident.at),
            incident.cause.name(),
            clean(&incident.summary)
        )?;
        if incident.repeats > 0 {
            writeln!(text, "       and {} times more shortly before", incident.repeats)?;
        }
    }
    Ok(text)
}

fn how(status: Reading<ExitStatus>) -> String {
    status.map_or_else(|_: Absent| "not told by the kernel".to_owned(), |status| status.to_string())
}
