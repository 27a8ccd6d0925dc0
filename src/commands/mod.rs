//! One file a subcommand. Each returns the exit code, or an error that [`crate::exit`] translates.

mod check;
mod config;
mod daemon;
pub(crate) mod db;
mod demo;
pub(crate) mod engine;
mod explain;
mod import;
pub(crate) mod incidents;
pub(crate) mod lab;
pub(crate) mod plan;
pub(crate) mod status;
mod top;

use crate::cli::{Command, ConfigCommand};

/// Runs a subcommand.
///
/// # Errors
/// Whatever the subcommand could not do.
pub(crate) fn run(command: Command) -> anyhow::Result<u8> {
    // tidy: table
    match command {
        Command::Daemon(args) => daemon::run(args),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(args),
        Command::Plan(args) => plan::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Engine(args) => engine::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Db(command) => db::run(command),
        Command::Import(args) => import::run(&args),
        Command::Incidents(args) => incidents::run(args),
        Command::Config(ConfigCommand::Check { config, json }) => config::check(config, json),
    }
}
