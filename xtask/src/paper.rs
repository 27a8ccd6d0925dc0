//! Pages of which a part is printed by a program: it stands between two markers, and the rest is written by hand.

use std::path::Path;

use anyhow::{Context, Result};

/// Puts `text` between the markers called `name` in the page at `path`.
pub(crate) fn write(path: &Path, name: &str, text: &str) -> Result<()> {
    let page = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let [begin, end] = markers(name);
    let new = between(&page, name, text)
        .with_context(|| format!("{} lacks its markers {begin} and {end}: restore them", path.display()))?;
    std::fs::write(path, new).with_context(|| format!("cannot write {}", path.display()))
}

fn markers(name: &str) -> [String; 2] {
    [format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->")]
}

fn between(page: &str, name: &str, text: &str) -> Option<String> {
    let [begin, end] = markers(name);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_keeps_what_stands_around_what_is_printed() {
        let page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n";
        let new = between(page, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb\n");
        assert_eq!(between(page, "y", "new"), None);
    }

    #[test]
    fn pages_have_the_markers_that_tasks_look_for() {
        for (page, names) in [
            (include_str!("../../docs/kv-strategies.md"), &crate::lab::SECTIONS[..]),
            (include_str!("../../docs/detection.md"), &["bench-detect"]),
        ] {
            for name in names {
                assert!(between(page, name, "").is_some(), "{name}");
            }
        }
    }
}
