//! `/v1/completions` as the field's clients speak it.

use serde::{Deserialize, Serialize};

use crate::kv::Token;
use crate::model::Tokenizer;
use crate::scheduler::{ClientId, Finish, Request, Sampling};

/// A request's body. What is not named here is ignored, as servers of the field do with what they do not know.
#[derive(Debug, Deserialize)]
pub(super) struct Ask {
    prompt: Prompt,
    #[serde(default = "default_tokens")]
    max_tokens: usize,
    temperature: Option<f32>,
    seed: Option<u64>,
    #[serde(default)]
    pub(super) stream: bool,
    user: Option<String>,
}

/// As the interface has it.
const fn default_tokens() -> usize {
    16
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<Token>),
}

impl Ask {
    /// The request; `None` where it has a token that is not among `vocab`.
    pub(super) fn request(&self, text: &dyn Tokenizer, vocab: usize) -> Option<Request> {
        let prompt = match &self.prompt {
            Prompt::Text(words) => text.begin().into_iter().chain(text.encode(words)).collect(),
            Prompt::Tokens(tokens) => tokens.clone(),
        };
        if prompt.iter().any(|token| *token as usize >= vocab) {
            return None;
        }
        let sampling = match self.temperature {
            Some(temperature) if temperature > 0.0 => {
                let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
                Sampling::Temperature { temperature, seed }
            }
            _ => Sampling::Greedy,
        };
        let client = ClientId(self.user.as_deref().map_or(0, client));
        Some(Request { client, prompt, most: self.max_tokens, sampling, stop: text.end() })
    }
}

/// A number for a user's name (FNV-1a): who shares one by chance only takes turns with the other.
fn client(user: &str) -> u64 {
    user.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// An answer, or a piece of one.
#[derive(Debug, Serialize)]
pub(super) struct Answer<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Spent>,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: u32,
    text: String,
    finish_reason: Option<&'static str>,
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Spent {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
}

impl Spent {
    pub(super) const fn new(prompt: usize, answer: usize) -> Self {
        Self { prompt_tokens: prompt, completion_tokens: answer, total_tokens: prompt + answer }
    }
}

impl<'a> Answer<'a> {
    pub(super) fn new(number: u64, model: &'a str, text: String, finish: Option<Finish>) -> Self {
        let created = crate::status::now().0.unsigned_abs() / 1000;
        let choice = Choice { index: 0, text, finish_reason: finish.map(Finish::name) };
        let id = format!("cmpl-{number}");
        Self { id, object: "text_completion", created, model, choices: [choice], usage: None }
    }

    pub(super) fn with(self, usage: Spent) -> Self {
        Self { usage: Some(usage), ..self }
    }
}

/// Bytes of tokens as they come, and out of them whole characters.
#[derive(Debug, Default)]
pub(super) struct Characters(Vec<u8>);

impl Characters {
    /// What is whole with `bytes` added. What can never become a character is shown as one that says so.
    pub(super) fn take(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let whole = self.0.len() - unfinished(&self.0);
        let rest = self.0.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.0, rest)).into_owned()
    }

    /// What is left at the end.
    pub(super) fn rest(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// Bytes at the end that begin a character and do not end it (RFC 3629).
fn unfinished(bytes: &[u8]) -> usize {
    (1..=3.min(bytes.len()))
        .find(|back| {
            let length = match bytes[bytes.len() - back] {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => return false,
            };
            length > *back
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_come_out_whole_however_they_are_cut() {
        let text = "a€𝄞é";
        let mut characters = Characters::default();
        let shown: Vec<String> = text.bytes().map(|byte| characters.take(&[byte])).collect();
        assert_eq!(shown.concat(), text);
        assert!(shown.iter().all(|piece| !piece.contains('\u{fffd}')));
        assert_eq!(characters.take(&[0xff, b'x', 0xe2, 0x82]), "\u{fffd}x");
        assert_eq!(characters.take(&[0xac]), "€");
        assert_eq!(characters.take(&[0xe2]), "");
        assert_eq!(characters.rest(), "\u{fffd}");
    }
}
