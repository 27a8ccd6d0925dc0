//! Phrases that no tracked file holds: work left undone, and paths of one machine.

use super::Violation;

/// Phrase, and what to do instead. Split so that this file does not hold them.
const BANNED: [(&str, &str); 5] = [
    (concat!("TO", "DO"), "finish it, or file an issue and say nothing here"),
    (concat!("FIX", "ME"), "fix it, or file an issue and say nothing here"),
    (concat!("/wo", "rk/"), "a path of one machine: name it relative to the repository"),
    (concat!(".lib", "rary/"), "a path of one machine: name it relative to the repository"),
    (concat!("../sha", "red"), "a folder outside the repository: copy what is needed, or say it in words"),
];

/// Checks the text of one file.
pub(super) fn check(file: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (phrase, advice) in BANNED {
            if stands_alone(line, phrase) {
                violations.push(Violation::new(file, number + 1, format!("{phrase}: {advice}")));
            }
        }
    }
    violations
}

/// Whether the phrase stands there as a word or path of its own, not inside another.
fn stands_alone(line: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let ends_in_word = phrase.ends_with(is_word);
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_none_or(|c| !is_word(c));
        let after = line[at + phrase.len()..].chars().next().is_none_or(|c| !is_word(c));
        before && (after || !ends_in_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_as_a_word_and_not_inside_one() {
        let (undone, path) = (BANNED[0].0, BANNED[2].0);
        assert_eq!(
            check("a.rs", &format!("x\n// {undone}: later\n")),
            [Violation::new("a.rs", 2, format!("{undone}: {}", BANNED[0].1))]
        );
        assert_eq!(check("a.rs", &format!("MY{undone} {undone}S net{path}x todo")), []);
        assert_eq!(check("a.md", &format!("see {path}main")).len(), 1);
    }
}
