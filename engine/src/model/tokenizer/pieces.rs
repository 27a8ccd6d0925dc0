//! Where text is split before pairs are merged: no token reaches over the border of a piece.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Which rule splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// GPT-2's: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
    Gpt2,
    /// Every digit by itself, and what lies between as GPT-2 does (`smollm` in GGUF).
    SingleDigits,
}

/// What a contraction ends with, the apostrophe included, in the rule's order.
const CONTRACTIONS: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];

impl Split {
    /// The pieces of `text`, which together are `text`.
    pub(super) fn pieces(self, text: &str) -> Vec<&str> {
        match self {
            Self::Gpt2 => gpt2(text).collect(),
            Self::SingleDigits => digits_apart(text).flat_map(gpt2).collect(),
        }
    }
}

fn digits_apart(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_numeric).flat_map(|part| {
        let digit = part.char_indices().next_back().filter(|(_, last)| last.is_numeric());
        let (before, digit) = part.split_at(digit.map_or(part.len(), |(at, _)| at));
        [before, digit].into_iter().filter(|piece| !piece.is_empty())
    })
}

fn gpt2(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(first(rest));
        rest = after;
        Some(piece)
    })
}

/// Bytes of the first piece of `text`, which is not empty.
fn first(text: &str) -> usize {
    if let Some(contraction) = CONTRACTIONS.iter().find(|contraction| text.starts_with(**contraction)) {
        return contraction.len();
    }
    let lead = usize::from(text.starts_with(' '));
    let Some(kind) = text[lead..].chars().next().map(Kind::of).filter(|kind| *kind != Kind::Space) else {
        return spaces(text);
    };
    lead + run(&text[lead..], kind)
}

/// White space leaves its last character to the word behind it, where one follows and it is not the only one.
fn spaces(text: &str) -> usize {
    let all = run(text, Kind::Space);
    let last = text[..all].chars().next_back().map_or(0, char::len_utf8);
    if all == text.len() || all == last { all } else { all - last }
}

/// Bytes of the characters of one kind that `text` begins with.
fn run(text: &str, kind: Kind) -> usize {
    text.find(|character| Kind::of(character) != kind).unwrap_or(text.len())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Letter,
    Number,
    Other,
}

impl Kind {
    fn of(character: char) -> Self {
        if character.is_whitespace() {
            return Self::Space;
        }
        match character.general_category_group() {
            GeneralCategoryGroup::Letter => Self::Letter,
            GeneralCategoryGroup::Number => Self::Number,
            _ => Self::Other,
        }
    }
}
