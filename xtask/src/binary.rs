//! The product's own binary, for tasks that run it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Builds the binary as `cargo build` does and says where it lies.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    build_as(root, "debug", &[])
}

/// The same as it is shipped: for whoever runs the engine, which computes.
pub(crate) fn build_shipped(root: &Path) -> Result<PathBuf> {
    build_as(root, "release", &["--release"])
}

fn build_as(root: &Path, directory: &str, flags: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--package", "ebbtide"])
        .args(flags)
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("the binary does not build: mend it, or name another with --binary");
    }
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root).no_deps().exec()?;
    Ok(metadata.target_directory.join(directory).join("ebbtide").into_std_path_buf())
}
