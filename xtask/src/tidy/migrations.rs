//! Migrations are append-only: a database that has run one must find it unchanged for ever.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Violation;
use crate::checksum::fnv1a64;

/// Name and checksum of each migration, one a line.
const SEALS: &str = "migrations/checksums.txt";

/// Compares the migrations with their seals.
pub(super) fn check(root: &Path) -> Result<Vec<Violation>> {
    let folder = root.join("migrations");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut migrations = BTreeMap::new();
    for entry in fs::read_dir(&folder).context("cannot list migrations")? {
        let path = entry.context("cannot list migrations")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".sql") {
            migrations
                .insert(name, fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    let seals = fs::read_to_string(root.join(SEALS)).unwrap_or_default();
    Ok(compare(&migrations, &seals))
}

fn compare(migrations: &BTreeMap<String, Vec<u8>>, seals: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut sealed = BTreeMap::new();
    for (number, line) in seals.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        if let Some((name, sum)) = line.split_once(' ') {
            sealed.insert(name, (number + 1, sum.trim()));
        }
    }
    for (name, content) in migrations {
        let sum = format!("{:016x}", fnv1a64(content));
        match sealed.remove(name.as_str()) {
            None => {
                let what = format!("{name} is not sealed: append the line `{name} {sum}` once it is final");
                violations.push(Violation::new(SEALS, 1, what));
            }
            Some((line, seal)) if seal != sum => {
                let what = format!(
                    "{name} was changed after it was sealed: restore it and write the next migration"
                );
                violations.push(Violation::new(SEALS, line, what));
            }
            Some(_) => {}
        }
    }
    for (name, (line, _)) in sealed {
        violations.push(Violation::new(
            SEALS,
            line,
            format!("{name} is gone: restore it, databases have run it"),
        ));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_missing_and_an_unsealed_migration_are_named() {
        let migrations: BTreeMap<String, Vec<u8>> =
            [("0001_a.sql", b"a".to_vec()), ("0002_b.sql", b"b".to_vec())]
                .map(|(n, c)| (n.to_owned(), c))
                .into();
        let good = "# seals\n0001_a.sql af63dc4c8601ec8c\n";
        let unsealed = compare(&migrations, good);
        assert_eq!(unsealed.len(), 1);
        assert!(unsealed[0].what.contains("`0002_b.sql af63df4c8601f1a5`"), "{}", unsealed[0]);
        let wrong = compare(&migrations, "0001_a.sql 0\n0002_b.sql af63df4c8601f1a5\n0003_c.sql 0\n");
        assert!(wrong[0].what.starts_with("0001_a.sql was changed") && wrong[0].line == 1);
        assert!(wrong[1].what.starts_with("0003_c.sql is gone") && wrong[1].line == 3);
    }
}
