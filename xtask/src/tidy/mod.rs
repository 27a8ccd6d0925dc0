//! `cargo xtask tidy`: what clippy, rustfmt and rustdoc cannot check about this repository.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

mod budgets;
mod dependencies;
mod layers;
mod licences;
mod links;
mod migrations;
mod phrases;
mod source;

/// One thing that is not as agreed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    file: String,
    line: usize,
    what: String,
}

impl Violation {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Checks the repository at `root` and prints one line a violation.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let files = tracked_files(root)?;
    let texts = read_texts(root, &files)?;
    let tests = test_files(&texts);
    let mut violations = Vec::new();
    for (file, text) in &texts {
        violations.extend(phrases::check(file, text));
        if file.ends_with(".md") {
            violations.extend(links::check(file, text, |target| exists(&files, target)));
        }
        if file.ends_with(".rs") && !tests.iter().any(|test| file.starts_with(test)) {
            violations.extend(budgets::check(file, text));
        }
    }
    violations.extend(migrations::check(root)?);
    violations.extend(check_packages(root, &texts)?);
    violations.sort();
    let mut out = io::stdout().lock();
    for violation in &violations {
        writeln!(out, "{violation}")?;
    }
    if violations.is_empty() {
        writeln!(out, "tidy: {} files are as agreed", files.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "tidy: {} violations", violations.len())?;
    Ok(ExitCode::FAILURE)
}

/// What git tracks and what it would, by path below the root, with `/` between the parts.
fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git lists the files to check: install git")?;
    if !listing.status.success() {
        bail!("git cannot list {}: {}", root.display(), String::from_utf8_lossy(&listing.stderr).trim());
    }
    let names = String::from_utf8_lossy(&listing.stdout);
    let mut files: Vec<String> = names.split_terminator('\0').map(str::to_owned).collect();
    files.retain(|file| root.join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// The files that hold text, by path.
fn read_texts(root: &Path, files: &[String]) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for file in files {
        let path = root.join(file);
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Ok(text) = String::from_utf8(bytes) {
            texts.push((file.clone(), text));
        }
    }
    Ok(texts)
}

/// What paths of test modules begin with: those that another file declares for tests alone.
fn test_files(texts: &[(String, String)]) -> Vec<String> {
    let mut paths = Vec::new();
    for (file, text) in texts.iter().filter(|(file, _)| file.ends_with(".rs")) {
        let stem = file.trim_end_matches(".rs");
        let is_root = ["mod", "lib", "main"].iter().any(|name| stem.ends_with(&format!("/{name}")));
        let folder = if is_root { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
        for module in source::test_modules(text) {
            paths.extend([format!("{folder}/{module}.rs"), format!("{folder}/{module}/")]);
        }
    }
    paths
}

/// Whether a link leads to something that git has; a folder is one that holds such a file.
fn exists(files: &[String], target: &str) -> bool {
    let folder = format!("{}/", target.trim_end_matches('/'));
    target.is_empty() || files.iter().any(|file| file == target || file.starts_with(&folder))
}

fn check_packages(root: &Path, texts: &[(String, String)]) -> Result<Vec<Violation>> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(root)
        // The deployed platform; without it cargo fetches what only other systems would compile.
        .other_options(["--filter-platform".to_owned(), "x86_64-unknown-linux-gnu".to_owned()])
        .exec()
        .context("cargo metadata lists the packages to check")?;
    let path = root.join(layers::MAP);
    let map = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut violations = layers::check(&map, &dependencies::crates_of(&metadata));
    violations.extend(dependencies::check(&metadata, texts));
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_for_tests_are_found_beside_and_below_their_parents() {
        let declares = "#[cfg(test)]\nmod tests;\n".to_owned();
        let texts =
            ["a/src/lib.rs", "a/src/b.rs", "a/src/c/mod.rs"].map(|file| (file.to_owned(), declares.clone()));
        let files = test_files(&texts);
        for file in ["a/src/tests.rs", "a/src/b/tests.rs", "a/src/c/tests.rs"] {
            assert!(files.iter().any(|test| file.starts_with(test)), "{file}");
        }
        assert!(!files.iter().any(|test| "a/src/b.rs".starts_with(test)));
    }

    #[test]
    fn a_link_to_a_folder_needs_a_file_in_it() {
        let files = ["docs/adr/0001.md", "README.md"].map(str::to_owned);
        assert!(exists(&files, "docs/adr") && exists(&files, "README.md") && exists(&files, ""));
        assert!(!exists(&files, "docs/ad") && !exists(&files, "READ"));
    }
}
