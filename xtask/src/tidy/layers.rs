//! The layer table of docs/architecture.md against what the crates depend on.

use std::collections::BTreeMap;

use super::Violation;

/// The file that holds the table.
pub(super) const MAP: &str = "docs/architecture.md";

/// First cells of the table's header, by which it is found.
const HEADER: [&str; 3] = ["crate", "layer", "may depend on"];

/// A member of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) manifest: String,
    pub(super) dependencies: Vec<Dependency>,
}

/// A crate that a member depends on, inside the workspace or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) is_dev: bool,
}

/// Where a crate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// In the house: may depend on lower numbers only, so that siblings never meet.
    House(u32),
    /// For tests: only ever a dev-dependency of crates of the house.
    Test,
    /// Outside: nobody depends on it, and it may look at all that it names.
    Outside,
}

#[derive(Debug, Clone)]
struct Row {
    line: usize,
    layer: Layer,
    may: Vec<String>,
}

/// Compares the table in `map` with the crates.
pub(super) fn check(map: &str, crates: &[Crate]) -> Vec<Violation> {
    let (rows, mut violations) = table(map);
    if rows.is_empty() {
        violations.push(Violation::new(
            MAP,
            1,
            "no table with the columns crate, layer, may depend on: restore it",
        ));
        return violations;
    }
    for (name, row) in &rows {
        violations.extend(row_violations(name, row, &rows));
        if !crates.iter().any(|member| member.name == *name) {
            violations.push(Violation::new(
                MAP,
                row.line,
                format!("{name} is no crate here: remove its row"),
            ));
        }
    }
    for member in crates {
        violations.extend(member_violations(member, &rows));
    }
    violations
}

/// The rows by crate, and rows that cannot be read.
fn table(map: &str) -> (BTreeMap<String, Row>, Vec<Violation>) {
    let mut rows = BTreeMap::new();
    let mut violations = Vec::new();
    let mut inside = false;
    for (number, line) in map.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if !line.trim_start().starts_with('|') {
            inside = false;
        } else if cells.len() >= HEADER.len() && cells[..HEADER.len()] == HEADER {
            inside = true;
        } else if inside && !cells[0].starts_with("--") {
            match row(number + 1, &cells) {
                Some((name, row)) => drop(rows.insert(name, row)),
                None => {
                    let what =
                        "a row of the layer table is a crate, a layer (a number, test, outside), and names";
                    violations.push(Violation::new(MAP, number + 1, what));
                }
            }
        }
    }
    (rows, violations)
}

fn row(line: usize, cells: &[&str]) -> Option<(String, Row)> {
    let layer = match *cells.get(1)? {
        "test" => Layer::Test,
        "outside" => Layer::Outside,
        number => Layer::House(number.parse().ok()?),
    };
    let names = cells.get(2)?.split(',').map(|name| name.trim().trim_matches('`').to_owned());
    let may = names.filter(|name| !name.is_empty() && name != "nothing").collect();
    Some((cells[0].trim_matches('`').to_owned(), Row { line, layer, may }))
}

/// A row that allows what no layer allows.
fn row_violations(name: &str, row: &Row, rows: &BTreeMap<String, Row>) -> Vec<Violation> {
    let forbidden = |other: &&String| match (row.layer, rows.get(*other).map(|row| row.layer)) {
        (Layer::House(own), Some(Layer::House(below))) => below >= own,
        (Layer::Test | Layer::Outside, Some(Layer::Test | Layer::House(_))) => false,
        _ => true,
    };
    let forbidden = row.may.iter().filter(forbidden);
    forbidden
        .map(|other| {
            Violation::new(MAP, row.line, format!("{name} may not depend on {other}: it is no layer below"))
        })
        .collect()
}

fn member_violations(member: &Crate, rows: &BTreeMap<String, Row>) -> Vec<Violation> {
    let Some(row) = rows.get(&member.name) else {
        let what = format!("{} has no row in {MAP}: say which layer it is", member.name);
        return vec![Violation::new(&member.manifest, 1, what)];
    };
    let inside = member.dependencies.iter().filter(|dependency| rows.contains_key(&dependency.name));
    let strays = inside.filter(|dependency| {
        let is_test = rows[&dependency.name].layer == Layer::Test;
        let in_tests = dependency.is_dev && is_test;
        !(row.may.contains(&dependency.name) || in_tests || below_in_tests(row, dependency, rows))
    });
    strays
        .map(|dependency| {
            let what = format!("{} depends on {}, which {MAP} does not allow", member.name, dependency.name);
            Violation::new(&member.manifest, 1, what)
        })
        .collect()
}

/// Tests may also use any crate of a lower layer: they look behind the seams.
fn below_in_tests(row: &Row, dependency: &Dependency, rows: &BTreeMap<String, Row>) -> bool {
    match (row.layer, rows[&dependency.name].layer) {
        (Layer::House(own), Layer::House(below)) => dependency.is_dev && below < own,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Map\n\n| crate | layer | may depend on | job |\n|---|---|---|---|\n\
        | `core` | 0 | nothing | words |\n| `probe` | 1 | `core` | reads |\n| `store` | 1 | `core` | keeps |\n\
        | `kit` | test | `core` | fakes |\n| `xtask` | outside | nothing | tasks |\n\ntext | with | bars\n";

    fn member(name: &str, dependencies: &[(&str, bool)]) -> Crate {
        let dependencies =
            dependencies.iter().map(|&(name, is_dev)| Dependency { name: name.to_owned(), is_dev }).collect();
        Crate { name: name.to_owned(), manifest: format!("{name}/Cargo.toml"), dependencies }
    }

    fn house(probe: &[(&str, bool)]) -> Vec<Crate> {
        ["core", "store", "kit", "xtask"]
            .map(|name| member(name, &[]))
            .into_iter()
            .chain([member("probe", probe)])
            .collect()
    }

    #[test]
    fn a_house_as_drawn_passes() {
        assert_eq!(check(TABLE, &house(&[("core", false), ("kit", true), ("serde", false)])), []);
    }

    #[test]
    fn siblings_and_test_crates_in_production_are_named() {
        let found =
            check(TABLE, &house(&[("store", false), ("kit", false), ("xtask", true), ("store", true)]));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("probe/Cargo.toml:1: probe depends on store"));
    }

    #[test]
    fn a_table_that_contradicts_itself_or_the_workspace_is_named() {
        let sideways = TABLE.replace("| `store` | 1 | `core` |", "| `store` | 1 | `core`, `probe` |");
        assert!(check(&sideways, &house(&[]))[0].what.contains("no layer below"));
        let mut more = house(&[]);
        more.push(member("plan", &[]));
        assert!(check(TABLE, &more)[0].what.contains("has no row"));
        assert!(check(TABLE, &house(&[])[1..])[0].what.contains("core is no crate"));
        assert_eq!(check("no table", &house(&[])).len(), 1);
    }
}
