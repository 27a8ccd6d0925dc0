//! What can be said on the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ebbtide_core::Ts;

use crate::commands::db::{DbCommand, ImportArgs, instant};
use crate::commands::engine::EngineArgs;
use crate::commands::incidents::IncidentsArgs;
use crate::commands::lab::LabArgs;
use crate::commands::plan::PlanArgs;
use crate::exit;

/// Tells people who serve language models on GPUs what their video memory is doing.
#[derive(Debug, Parser)]
#[command(
    name = "ebbtide",
    version,
    about,
    arg_required_else_help = true,
    after_help = "Examples:\n  ebbtide demo                       see it work, without a GPU\n  ebbtide daemon                     watch this machine\n  ebbtide top                        look at what the daemon sees\n  ebbtide status || page-somebody    0 fine, 1 warning, 2 critical, 3 unknown\n  ebbtide check nvidia-smi.csv       judge a recorded log\n  ebbtide plan qwen3-32b --gpu h100  ask what fits, before anything is started\n\nWrong usage exits with 64, a configuration that cannot be used with 78."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch this machine: sample, store, judge, alert, answer
    Daemon(DaemonArgs),
    /// The dashboard: GPUs, memory over time, processes, findings
    Top(TopArgs),
    /// One look at what the daemon knows; exits 0 fine, 1 warning, 2 critical, 3 unknown
    Status(StatusArgs),
    /// Why is it full, is it a leak, who holds it: the questions people ask, answered for a GPU or a process
    Explain(ExplainArgs),
    /// Judge a recorded series: an nvidia-smi log or a CSV
    Check(CheckArgs),
    /// What a model, a context and a load will need, before anything is started
    Plan(Box<PlanArgs>),
    /// See it work on this machine, without a GPU: an engine that leaks, and ebbtide finding it
    Demo(DemoArgs),
    /// The embedded engine: a model, a paged KV cache, a load, and leaks on purpose
    Engine(Box<EngineArgs>),
    /// Strategies of a KV cache side by side: memory, waste, speed, and what they do to text
    Lab(Box<LabArgs>),
    /// A database: what it holds, whether it is sound, its values as CSV or JSON
    #[command(subcommand)]
    Db(DbCommand),
    /// Take what others have recorded into a database: an export, answers of Prometheus, a log
    Import(ImportArgs),
    /// GPU processes that ended out of order, and the ten minutes before
    Incidents(IncidentsArgs),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// Which configuration to use.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Read this file instead of /etc/ebbtide/config.toml and the user's own
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key, e.g. `--set probe.interval_ms=500`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
}

/// `ebbtide daemon`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  ebbtide daemon --config ./ebbtide.toml --set probe.source=host\n\nSIGTERM and SIGINT end it in order: sources, pipeline, store, deliveries. Exits 0 then, 70 after a failure, 78 for a configuration that cannot be used."
)]
pub(crate) struct DaemonArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Which daemon to ask.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SocketArgs {
    /// The daemon's socket; $EBBTIDE_SOCKET and the usual places where none is given
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// `ebbtide top`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  ebbtide top --socket /run/ebbtide/ebbtide.sock\n\nKeys: q quits, ? shows all others."
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Look at a database file instead of asking a daemon: a copy of one, or one whose daemon has ended
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub(crate) db: Option<PathBuf>,
    /// Draw with plain ASCII characters
    #[arg(long)]
    pub(crate) ascii: bool,
}

/// `ebbtide status`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  ebbtide status --json | jq '.gpus[].memory.used'\n\nExits 0 fine, 1 warning, 2 critical, 3 unknown (no daemon, no driver, nothing read yet)."
)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// Print all of it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ebbtide explain`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ebbtide explain                    every GPU\n  ebbtide explain 0                  GPU 0\n  ebbtide explain 4711 --json        the process of that number\n\nExits 0 when there is an answer, 3 without a daemon, 65 when nothing is called so. ~ marks what is computed rather than counted."
)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// A GPU by its number or UUID, or else a process by its number; all GPUs where nothing is named
    #[arg(value_name = "GPU|PID")]
    pub(crate) what: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ebbtide check`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nvidia-smi --query-gpu=timestamp,uuid,memory.used,memory.total --format=csv -l 5 > smi.csv\n  ebbtide check smi.csv\n  ebbtide check --json series.csv | jq '.series[].diagnosis'\n  ebbtide check --db /var/lib/ebbtide/ebbtide.db --from 2026-11-30 --set detect.fleet_gpus=1000\n\nThe settings are the daemon's; with --set one sees what others would have done. Exits 0 when the file was judged, whatever was found; with --exit-code 1 when a warning and 2 when a critical alert would have fired; 65 when the file cannot be read as a series. docs/check.md says what files may look like."
)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) recording: CheckedFileArgs,
    /// Judge the history in this database instead of a file
    #[arg(long, value_name = "FILE", required_unless_present = "file", conflicts_with_all = ["file", "interval", "columns", "total_mib"])]
    pub(crate) db: Option<PathBuf>,
    /// From when on: RFC 3339, a date, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "file")]
    pub(crate) from: Option<Ts>,
    /// Until when, included
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "file")]
    pub(crate) to: Option<Ts>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print the contract documented in docs/check.md
    #[arg(long)]
    pub(crate) json: bool,
    /// Let the exit code say whether an alert would have fired
    #[arg(long)]
    pub(crate) exit_code: bool,
}

/// A recorded series, and what it does not say itself.
#[derive(Debug, Args)]
pub(crate) struct CheckedFileArgs {
    /// The recorded series; `-` for standard input
    pub(crate) file: Option<PathBuf>,
    /// Seconds between rows, where the file has no times
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub(crate) interval: Option<f64>,
    /// Names of the columns, where the file has no header; `-` is a column to ignore
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,
    /// Size of the GPU, where the file does not record it
    #[arg(long, value_name = "MIB")]
    pub(crate) total_mib: Option<u64>,
}

/// `ebbtide demo`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ebbtide demo\n  ebbtide demo --headless --seconds 90\n\nWith --headless exits 0 when the leak was found with its rate and the hook ran, 1 when not."
)]
pub(crate) struct DemoArgs {
    /// Print what happens instead of drawing it; the default without a terminal
    #[arg(long)]
    pub(crate) headless: bool,
    /// How long it lasts
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(60..=3600))]
    pub(crate) seconds: u64,
    /// Draw the same leak again
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// `ebbtide config`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and print each value with its origin; exits 78 when it cannot be used
    Check {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The range that the detector is built for.
fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.1..=300.0).contains(&seconds) { Ok(seconds) } else { Err("expected 0.1 to 300 seconds".to_owned()) }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, e.g. probe.interval_ms=500")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Reads the command line; `Err` is the exit code after help, version or a wrong usage have been printed.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    Cli::try_parse().map(|cli| cli.command).map_err(|error| {
        // A closed terminal is no reason to fail differently.
        let _ = error.print();
        if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_shows_an_example() {
        let shown = |c: &&clap::Command| !c.is_hide_set() && !c.has_subcommands();
        for command in Cli::command().get_subcommands().filter(shown) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }
}
