//! The budgets of docs/architecture.md: lengths, parameters, match arms, and words that production code does without.

use super::Violation;
use super::source::Source;

/// Lines of production code in a file.
const FILE_LINES: usize = 600;
/// Lines of production code in a function, its signature included.
const FUNCTION_LINES: usize = 80;
/// Parameters of a function beside `self`.
const PARAMETERS: usize = 5;
/// Arms of a match.
const ARMS: usize = 12;

/// Checks one file of Rust source. Tests, benches and examples keep their own measure.
pub(super) fn check(file: &str, text: &str) -> Vec<Violation> {
    let production = !file.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"));
    if !production {
        return Vec::new();
    }
    let source = Source::scan(text);
    let mut violations = Vec::new();
    let lines = source.code_lines(0, source.code.len());
    if lines > FILE_LINES && !source.is_table_file() {
        let what =
            format!("{lines} lines of production code, {FILE_LINES} at most: move a part to its own module");
        violations.push(Violation::new(file, 1, what));
    }
    for at in source.words("fn") {
        violations.extend(function(file, &source, at));
    }
    for at in source.words("match") {
        violations.extend(arms(file, &source, at));
    }
    violations.extend(unwraps(file, &source));
    violations.extend(statics(file, &source));
    violations.extend(unsafes(file, &source));
    violations
}

fn function(file: &str, source: &Source, at: usize) -> Vec<Violation> {
    // Parameters follow the generics; a bound in those like `F: Fn(A) -> B` has parentheses of its own.
    let Some(open) = parameters_start(source, at) else { return Vec::new() };
    let end_of_parameters = source.closing(open);
    let line = source.line_of(at);
    if source.is_table(line) {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let count = parameters(&source.code[open + 1..end_of_parameters.saturating_sub(1)]);
    if count > PARAMETERS {
        let what =
            format!("{count} parameters, {PARAMETERS} at most: group those that belong together in a type");
        violations.push(Violation::new(file, line, what));
    }
    let body = source.find_outside(end_of_parameters, &['{', ';']).filter(|&body| source.code[body] == '{');
    let lines = body.map_or(0, |body| source.code_lines(at, source.closing(body)));
    if lines > FUNCTION_LINES {
        let what =
            format!("a function of {lines} lines, {FUNCTION_LINES} at most: name its steps as functions");
        violations.push(Violation::new(file, line, what));
    }
    violations
}

/// The parenthesis that opens the parameters of the function whose `fn` stands at `at`; `None` for a type like
/// `fn(u8)`, which has no name.
fn parameters_start(source: &Source, at: usize) -> Option<usize> {
    let name = at + "fn".len();
    let mut angles = 0_i32;
    let mut named = false;
    let mut position = name;
    while let Some(&c) = source.code.get(position) {
        match c {
            '<' => angles += 1,
            '>' if source.code[position - 1] != '-' => angles -= 1,
            '(' if angles == 0 => return named.then_some(position),
            '(' | '[' | '{' if angles > 0 => {
                position = source.closing(position);
                continue;
            }
            '{' | ';' | ')' => return None,
            c => named = named || c.is_alphanumeric(),
        }
        position += 1;
    }
    None
}

/// How many parameters stand between the parentheses, `self` apart.
fn parameters(inside: &[char]) -> usize {
    let (mut depth, mut parts, mut part) = (0_i32, Vec::new(), String::new());
    for (at, &c) in inside.iter().enumerate() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if at > 0 && inside[at - 1] == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
    }
    parts.push(part);
    let is_self = |part: &str| part.split([' ', '&', ':']).any(|word| word == "self");
    parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty() && !is_self(part)).count()
}

fn arms(file: &str, source: &Source, at: usize) -> Option<Violation> {
    let open = source.find_outside(at + "match".len(), &['{'])?;
    let line = source.line_of(at);
    if source.is_table(line) {
        return None;
    }
    let end = source.closing(open).saturating_sub(1);
    let (mut count, mut position) = (0, open + 1);
    while let Some(arrow) = next_arrow(source, position, end) {
        count += 1;
        position = arrow + 2;
    }
    let what = || {
        format!(
            "a match of {count} arms, {ARMS} at most: split it, or mark a flat table with `// tidy: table`"
        )
    };
    (count > ARMS).then(|| Violation::new(file, line, what()))
}

/// The next `=>` before `end` outside nested brackets.
fn next_arrow(source: &Source, from: usize, end: usize) -> Option<usize> {
    let mut at = from;
    while at < end {
        match source.code[at] {
            '=' if source.code[at + 1] == '>' => return Some(at),
            '(' | '[' | '{' => at = source.closing(at),
            _ => at += 1,
        }
    }
    None
}

fn unwraps(file: &str, source: &Source) -> Vec<Violation> {
    let called = |at: &usize| {
        let after: String = source.code[at + "unwrap".len()..].iter().take(2).collect();
        *at > 0 && source.code[at - 1] == '.' && after == "()"
    };
    let what = "unwrap outside a test: handle it, or `expect` the invariant that makes it impossible";
    let places = source.words("unwrap").into_iter().filter(called);
    places.map(|at| Violation::new(file, source.line_of(at), what)).collect()
}

/// Statics hide state. The fake driver may: a C library has nowhere else to keep its world.
fn statics(file: &str, source: &Source) -> Vec<Violation> {
    if file.starts_with("testkit/fake-nvml/") {
        return Vec::new();
    }
    let is_item = |at: &usize| *at == 0 || source.code[at - 1] != '\'';
    let what = "a static: pass the value, or make it a const";
    let places = source.words("static").into_iter().filter(is_item).map(|at| source.line_of(at));
    places.filter(|&line| !source.is_table(line)).map(|line| Violation::new(file, line, what)).collect()
}

/// Where raw calls are made; everywhere else the language's guarantees hold.
const RAW: [&str; 5] = [
    "testkit/fake-nvml/",
    "probe/src/nvml/",
    "probe/src/proc/exit.rs",
    "engine/src/kv/mapping.rs",
    "engine/src/kernels/",
];

fn unsafes(file: &str, source: &Source) -> Vec<Violation> {
    if RAW.iter().any(|folder| file.starts_with(folder)) {
        return Vec::new();
    }
    let what = format!("unsafe outside {}: use a safe wrapper such as rustix", RAW.join(" and "));
    let places = source.words("unsafe").into_iter();
    places.map(|at| Violation::new(file, source.line_of(at), what.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check("core/src/x.rs", text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn code_within_its_budgets_passes() {
        let text = "fn f<F: Fn(u8, u8) -> u8>(&self, a: HashMap<u8, u8>, b: (u8, u8), c: F) -> Option<u8> {\n\
                    match a { 1 => Some(2), _ => None }\n}\nconst G: fn(u8) -> u8 = g;\n";
        assert_eq!(found(text), [] as [String; 0]);
    }

    #[test]
    fn parameters_are_counted_without_self() {
        let six = "fn f(&mut self, a: A, b: B, c: Box<dyn Fn(u8) -> u8>, d: [u8; 2], e: E, f: F,) {}\n";
        assert!(found(six)[0].starts_with("core/src/x.rs:1: 6 parameters"));
        assert_eq!(found(&six.replace(", f: F", "")), [] as [String; 0]);
    }

    #[test]
    fn long_functions_and_files_are_named() {
        let body = "    let x = 1;\n    // a comment counts for nothing\n\n".repeat(81);
        assert!(
            found(&format!("\nfn f() {{\n{body}}}\n"))[0].starts_with("core/src/x.rs:2: a function of 83")
        );
        assert!(found(&"const X: u8 = 1;\n".repeat(601))[0].starts_with("core/src/x.rs:1: 601 lines"));
        let table = format!("//! Flat.\n// tidy: table\n\n{}", "const X: u8 = 1;\n".repeat(601));
        assert_eq!(found(&table), [] as [String; 0]);
    }

    #[test]
    fn arms_of_nested_matches_are_not_those_of_the_outer() {
        let arms = |count: usize| "    1 => { match y { 2 => 3, _ => 4 } }\n".repeat(count);
        assert_eq!(found(&format!("fn f() {{ match x {{\n{}}} }}", arms(12))), [] as [String; 0]);
        assert!(found(&format!("fn f() {{ match x {{\n{}}} }}", arms(13)))[0].contains("13 arms"));
        let table = format!("fn f() {{\n    // tidy: table\n    match x {{\n{}}} }}", arms(13));
        assert_eq!(found(&table), [] as [String; 0]);
    }

    #[test]
    fn unwraps_and_statics_outside_tests_are_named() {
        let text = "fn f() {\n    x.unwrap();\n    y.unwrap_or(1);\n}\n#[cfg(test)]\nmod tests { fn g() { x.unwrap() } }\n";
        assert_eq!(found(text).len(), 1);
        assert!(found(text)[0].starts_with("core/src/x.rs:2: unwrap"));
        assert!(
            found("static X: Mutex<u8> = y;\nfn f(a: &'static str) {}\n")[0].starts_with("core/src/x.rs:1")
        );
        assert_eq!(check("daemon/tests/x.rs", text), []);
        assert!(found("\nfn f() { unsafe { g() } }\n")[0].starts_with("core/src/x.rs:2: unsafe outside"));
        assert_eq!(check("probe/src/nvml/x.rs", "fn f() { unsafe { g() } }\n"), []);
    }
}
