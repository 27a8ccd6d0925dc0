//! `cargo xtask lab`: what `ebbtide lab` prints, in `docs/kv-strategies.md`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::{binary, paper};

const PAPER: &str = "docs/kv-strategies.md";
/// What is printed of the bundled model, and of one that is named.
pub(crate) const SECTIONS: [&str; 2] = ["lab quick", "lab model"];

/// Runs the laboratory and writes its tables.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let (mut model, mut named) = (None, None);
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--model" => model = Some(PathBuf::from(value)),
            [flag, value] if flag == "--binary" => named = Some(PathBuf::from(value)),
            _ => bail!("{}", crate::USAGE),
        }
    }
    let binary = named.map_or_else(|| binary::build_shipped(root), Ok)?;
    let [quick, full] = SECTIONS;
    let paper = root.join(PAPER);
    paper::write(&paper, quick, &printed(&binary, ["--quick".as_ref()])?)?;
    if let Some(model) = model {
        paper::write(&paper, full, &printed(&binary, ["--model".as_ref(), model.as_os_str()])?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn printed<const N: usize>(binary: &Path, arguments: [&OsStr; N]) -> Result<String> {
    let mut lab = Command::new(binary);
    lab.args(["lab", "--markdown"]).args(arguments).stderr(std::process::Stdio::inherit());
    let output = lab.output().with_context(|| format!("cannot run {}", binary.display()))?;
    if !output.status.success() {
        bail!("{} lab {arguments:?} failed", binary.display());
    }
    String::from_utf8(output.stdout).context("what it prints is no text")
}
