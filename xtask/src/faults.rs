//! `cargo xtask faults`: what disks, clocks, readers and kills can do to the history, at length and with figures.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Plays the store's faults in their full form; `rest` are words of the names of those that are wanted.
///
/// # Errors
/// When the program that plays them cannot be built or started.
pub(crate) fn run(repository: &Path, rest: &[String]) -> anyhow::Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["test", "--quiet", "--package", "ebbtide-store", "--test", "faults", "--", "--full"])
        .args(rest)
        .current_dir(repository)
        .status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
