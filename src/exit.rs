//! One translation from errors to exit codes and to the line a person reads.

use std::io::Write;
use std::process::ExitCode;

use ebbtide_api::wire::Level;
use ebbtide_daemon::config::ConfigError;

/// Wrong usage: never one of the codes that page.
pub(crate) const USAGE: u8 = 64;
/// The input file does not say anything that can be judged.
pub(crate) const DATA: u8 = 65;
/// Something failed that is not the user's doing.
pub(crate) const FAILURE: u8 = 70;
/// The configuration cannot be used.
pub(crate) const CONFIG: u8 = 78;

/// An error that knows its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Coded {
    /// The exit code.
    pub(crate) code: u8,
    /// What happened and what to do.
    pub(crate) message: String,
}

/// The exit code of `ebbtide status`.
pub(crate) const fn of_level(level: Level) -> u8 {
    match level {
        Level::Ok => 0,
        Level::Warning => 1,
        Level::Critical => 2,
        Level::Unknown => 3,
    }
}

/// Prints an error with its causes and gives the process its exit code.
pub(crate) fn code(result: anyhow::Result<u8>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Nothing is left to tell when stderr is closed too.
            let _ = writeln!(std::io::stderr(), "ebbtide: {error:#}");
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(coded) = error.downcast_ref::<Coded>() {
        return coded.code;
    }
    if error.downcast_ref::<ConfigError>().is_some() { CONFIG } else { FAILURE }
}
