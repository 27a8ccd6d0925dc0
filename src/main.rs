//! The command line of ebbtide. Glue only: each subcommand is one file under `commands/`.

mod chart;
mod cli;
mod commands;
mod exit;
mod output;
mod progress;
mod stored;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::parse() {
        Ok(command) => exit::code(commands::run(command)),
        Err(code) => code,
    }
}
