//! Text from strangers: process names, model names, labels. Cleaned once, where it enters.

/// The most bytes of a stranger's text that are kept.
pub const MAX_TEXT_BYTES: usize = 256;

/// `raw` without control characters, escape sequences' introducers and bidirectional overrides, cut to
/// [`MAX_TEXT_BYTES`] at a character boundary; what was cut shows as `…`.
///
/// A removed run of characters becomes one space, so that words stay apart.
#[must_use]
pub fn clean(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len().min(MAX_TEXT_BYTES));
    let mut pending_space = false;
    for c in raw.chars() {
        if is_hostile(c) || c.is_whitespace() {
            pending_space = !out.is_empty();
            continue;
        }
        let needed = c.len_utf8() + usize::from(pending_space) + '…'.len_utf8();
        if out.len() + needed > MAX_TEXT_BYTES {
            out.push('…');
            return out;
        }
        if std::mem::take(&mut pending_space) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Control characters (C0, DEL, C1) and the marks that reorder or hide text around them: bidirectional
/// embeddings, overrides and isolates, zero-width characters, line separators, tags, private "annotation" marks.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}')
        || matches!(c, '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_and_overrides_are_gone_and_words_stay_apart() {
        assert_eq!(clean("vllm\x1b[31m\nserve\u{202e}gpj"), "vllm [31m serve gpj");
        assert_eq!(clean("  python3\0-m\0vllm\0"), "python3 -m vllm");
    }

    proptest! {
        #[test]
        fn cleaned_text_is_short_clean_and_stable(raw in "\\PC*|.*") {
            let once = clean(&raw);
            prop_assert!(once.len() <= MAX_TEXT_BYTES);
            prop_assert!(!once.chars().any(is_hostile));
            prop_assert_eq!(clean(&once), once.clone());
        }
    }
}
