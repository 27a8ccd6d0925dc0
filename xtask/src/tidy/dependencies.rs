//! What we build on: licences, crates that are banned, and crates that only one room may touch.

use cargo_metadata::{DependencyKind, Metadata, Package};

use super::Violation;
use super::layers::{Crate, Dependency};
use super::licences::is_allowed;

/// Licences that ask for no more than a notice; the last is for data alone (the root certificates of Mozilla).
const LICENCES: [&str; 10] = [
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
];

/// Crates that do not enter the tree, and why.
const BANNED: [(&str, &str); 6] = [
    ("openssl-sys", "needs a system library: use rustls"),
    ("native-tls", "needs a system library: use rustls"),
    ("chrono", "one calendar is enough: use jiff"),
    ("reqwest", "a second HTTP stack: use ureq outside tasks and hyper inside"),
    ("rusqlite", "two crates cannot link one SQLite: use sqlx in store"),
    ("tonic", "our wire is HTTP and JSON over a unix socket"),
];

/// Crates that only the named members may depend on.
const WRAPPED: [(&str, &[&str]); 6] = [
    ("sqlx", &["ebbtide-store"]),
    ("nvml-wrapper", &["ebbtide-probe", "fake-nvml"]),
    ("nvml-wrapper-sys", &["ebbtide-probe", "fake-nvml"]),
    ("procfs", &["ebbtide-probe"]),
    ("ratatui", &["ebbtide-tui"]),
    ("crossterm", &["ebbtide-tui"]),
];

/// Depended on for the library file that building it makes, which no source names.
const UNNAMED: [&str; 1] = ["fake-nvml"];

/// Checks all packages of the workspace's platform. `sources` are the files of Rust source by path.
pub(super) fn check(metadata: &Metadata, sources: &[(String, String)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let licence = package.license.as_deref().unwrap_or_default();
        if !is_allowed(licence, &LICENCES) {
            let what =
                format!("{name} is under {licence:?}: replace it, or argue for the licence in deny.toml");
            violations.push(Violation::new("Cargo.lock", 1, what));
        }
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            let what = format!("{name} is banned ({why}): `cargo tree -i {name}` shows who brings it");
            violations.push(Violation::new("Cargo.lock", 1, what));
        }
    }
    for member in crates_of(metadata) {
        violations.extend(wrapped(&member));
        violations.extend(unused(&member, sources));
    }
    violations
}

fn wrapped(member: &Crate) -> Vec<Violation> {
    let strays = member.dependencies.iter().filter_map(|dependency| {
        let (name, rooms) = WRAPPED.iter().find(|(name, _)| *name == dependency.name)?;
        (!rooms.contains(&member.name.as_str())).then(|| {
            let what = format!("{} depends on {name}, which only {} may", member.name, rooms.join(" and "));
            Violation::new(&member.manifest, 1, what)
        })
    });
    strays.collect()
}

/// Dependencies that no source of the member names: what a derive or a re-export needs is named too.
fn unused(member: &Crate, sources: &[(String, String)]) -> Vec<Violation> {
    let folder = member.manifest.trim_end_matches("Cargo.toml");
    // The root package's folder holds all others; its own sources are these.
    let own = ["src/", "tests/", "benches/", "examples/", "build.rs"].map(|part| format!("{folder}{part}"));
    let texts: Vec<&str> = sources
        .iter()
        .filter(|(file, _)| own.iter().any(|part| file.starts_with(part)))
        .map(|(_, text)| text.as_str())
        .collect();
    let is_named = |name: &str| texts.iter().any(|text| names(text, &name.replace('-', "_")));
    let dependencies = member.dependencies.iter().map(|dependency| dependency.name.as_str());
    let unused = dependencies.filter(|name| !UNNAMED.contains(name) && !is_named(name));
    unused
        .map(|name| {
            Violation::new(&member.manifest, 1, format!("no source names {name}: remove the dependency"))
        })
        .collect()
}

/// Whether the text has `name` as a word.
fn names(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word))
}

/// The members of the workspace and what they depend on.
pub(super) fn crates_of(metadata: &Metadata) -> Vec<Crate> {
    metadata.workspace_packages().into_iter().map(|package| crate_of(metadata, package)).collect()
}

fn crate_of(metadata: &Metadata, package: &Package) -> Crate {
    let manifest = package.manifest_path.strip_prefix(&metadata.workspace_root);
    let own = package.name.as_str();
    let dependencies = package
        .dependencies
        .iter()
        // A crate names itself to have its own features in its tests.
        .filter(|dependency| dependency.name != own)
        .map(|dependency| Dependency {
            name: dependency.name.clone(),
            is_dev: dependency.kind == DependencyKind::Development,
        })
        .collect();
    Crate {
        name: own.to_owned(),
        manifest: manifest.map_or_else(|_| own.to_owned(), |path| path.as_str().to_owned()),
        dependencies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_crate_outside_its_room_and_an_unused_one_are_named() {
        let member = |name: &str| Crate {
            name: name.to_owned(),
            manifest: "x/Cargo.toml".to_owned(),
            dependencies: vec![Dependency { name: "sqlx".to_owned(), is_dev: true }],
        };
        let source = |text: &str| [("x/src/lib.rs".to_owned(), text.to_owned())];
        assert_eq!(unused(&member("ebbtide-store"), &source("use sqlx::query;")), []);
        assert_eq!(unused(&member("ebbtide-store"), &source("use sqlx2::query;")).len(), 1);
        assert_eq!(wrapped(&member("ebbtide-store")), []);
        let stray = wrapped(&member("ebbtide-daemon"));
        assert!(stray[0].to_string().starts_with("x/Cargo.toml:1: ebbtide-daemon depends on sqlx"));
    }
}
