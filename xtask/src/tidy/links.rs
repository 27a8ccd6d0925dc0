//! Relative links in Markdown lead somewhere.

use super::Violation;

/// Checks one Markdown file; `exists` knows the paths below the root.
pub(super) fn check(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        for target in targets(line).filter(|_| !in_code) {
            let inside = resolve(file, target);
            if !inside.as_deref().is_some_and(&exists) {
                let what = format!("the link to {target:?} leads nowhere: correct it, or add the file");
                violations.push(Violation::new(file, number + 1, what));
            }
        }
    }
    violations
}

/// Targets of relative links in a line, outside inline code, without their anchors.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let text = line.split('`').step_by(2);
    let links =
        text.flat_map(|part| part.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()));
    links
        .filter(|target| {
            !target.contains("://") && !target.starts_with(['#', '<']) && !target.starts_with("mailto:")
        })
        .map(|target| target.split('#').next().unwrap_or(target))
}

/// The path below the root of what `target` means in `file`; `None` where it leaves the repository.
fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => file.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev().collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_from_their_file() {
        let exists = |path: &str| matches!(path, "docs/check.md" | "README.md" | "docs/adr");
        let good =
            "[a](check.md) [b](../README.md#top) [c](adr/) [d](https://x.org) [e](#here) `[f](no.md)`\n";
        assert_eq!(check("docs/a.md", good, exists), []);
        let bad = check("docs/a.md", "\n[a](chek.md) and [b](../../x.md)\n```\n[c](no.md)\n```\n", exists);
        assert_eq!(bad.iter().map(|v| v.line).collect::<Vec<_>>(), [2, 2]);
        assert!(bad[0].what.contains("chek.md"));
    }
}
