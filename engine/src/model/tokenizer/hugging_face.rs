//! Byte pairs out of Hugging Face's tokenizer.json.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::byte_pairs::VocabularyError;
use super::{BytePairs, Split, Vocabulary};

/// Most numbers that tokens may have; vocabularies end below 300,000.
const MAX_TOKENS: usize = 1 << 22;

#[derive(Debug, Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
    pre_tokenizer: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: HashMap<String, usize>,
    merges: Vec<Merge>,
}

/// A pair in the older or the newer way of writing.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair(String, String),
}

#[derive(Debug, Deserialize)]
struct Added {
    id: usize,
    content: String,
    #[serde(default)]
    special: bool,
}

/// A tokenizer.json that cannot be used; the words are put behind the file's name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenizerError {
    #[error("it is no tokenizer.json")]
    Json(#[from] serde_json::Error),
    #[error("its model is not of byte pairs, or its text is not split as GPT-2's is")]
    Kind,
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
}

/// The tokenizer that `text`, a tokenizer.json, tells of.
pub(crate) fn hugging_face(text: &[u8]) -> Result<BytePairs, TokenizerError> {
    let file: File = serde_json::from_slice(text)?;
    if file.model.kind.as_deref().is_some_and(|kind| kind != "BPE") {
        return Err(TokenizerError::Kind);
    }
    let split = file.pre_tokenizer.as_ref().and_then(split_of).ok_or(TokenizerError::Kind)?;
    let added = file.added_tokens.iter().map(|token| (token.content.as_str(), token.id));
    let named: Vec<(&str, usize)> =
        file.model.vocab.iter().map(|(text, id)| (text.as_str(), *id)).chain(added).collect();
    let last = named.iter().map(|(_, id)| *id).max().unwrap_or(0);
    if last >= MAX_TOKENS {
        return Err(VocabularyError::TooMany.into());
    }
    let mut tokens = vec![""; last + 1];
    for (text, id) in named {
        tokens[id] = text;
    }
    let merges: Vec<String> = file.model.merges.into_iter().map(Merge::into_text).collect();
    let special = file.added_tokens.iter().filter(|token| token.special);
    let marked = |text: &str| {
        let token = file.added_tokens.iter().find(|token| token.content == text)?;
        u32::try_from(token.id).ok()
    };
    let vocabulary = Vocabulary {
        special: special.map(|token| token.id).collect(),
        tokens,
        merges: merges.iter().map(String::as_str).collect(),
        begin: marked("<|im_start|>").or_else(|| marked("<|endoftext|>")),
        end: marked("<|im_end|>").or_else(|| marked("<|endoftext|>")),
    };
    Ok(BytePairs::new(&vocabulary, split)?)
}

impl Merge {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Pair(left, right) => format!("{left} {right}"),
        }
    }
}

/// How text is split; `None` where it is a rule that is not known.
fn split_of(rule: &Value) -> Option<Split> {
    match rule["type"].as_str()? {
        "ByteLevel" => Some(Split::Gpt2),
        "Sequence" => {
            let parts = rule["pretokenizers"].as_array()?;
            let (last, before) = parts.split_last()?;
            let digits = |part: &Value| part["type"] == "Digits" && part["individual_digits"] == true;
            match before {
                [] => split_of(last),
                [part] if digits(part) && last["type"] == "ByteLevel" => Some(Split::SingleDigits),
                _ => None,
            }
        }
        _ => None,
    }
}
