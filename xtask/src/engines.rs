//! `cargo xtask engines`: writes `docs/engines.md` from the engine tables, or with `--check` compares the two.
//!
//! The probe knows its tables and makes the page; this asks its test to write it, so that this crate needs nothing of
//! the product.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// The environment variable by which the test writes instead of comparing.
const WRITE: &str = "EBBTIDE_WRITE_DOCS";

/// Runs the test that owns the page.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let mut test = Command::new(env!("CARGO"));
    test.current_dir(root).args(["test", "--quiet", "-p", "ebbtide-probe", "--test", "engines"]);
    test.arg("the_page_for_people");
    match arguments {
        [] => drop(test.env(WRITE, "1")),
        [only] if only == "--check" => drop(test.env_remove(WRITE)),
        _ => bail!("{}", crate::USAGE),
    }
    let status = test.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
