//! Text to tokens and back.

mod byte_pairs;
mod hugging_face;
mod pieces;
#[cfg(test)]
mod tests;

pub(super) use byte_pairs::{BytePairs, Vocabulary};
pub(super) use hugging_face::hugging_face;
pub(super) use pieces::Split;

use crate::kv::Token;

/// What turns text into a model's tokens and back. Decoding what was encoded gives the same bytes, but for bytes that
/// the model has no token of, which are left out as the package tokenizers does.
pub trait Tokenizer: std::fmt::Debug + Send + Sync {
    /// The tokens of `text`; nothing in it is taken for a special token.
    fn encode(&self, text: &str) -> Vec<Token>;

    /// The bytes that `tokens` stand for; tokens that are none, and special ones, stand for nothing. A character may
    /// end in the middle, so that a stream has to wait for the rest.
    fn decode(&self, tokens: &[Token]) -> Vec<u8>;

    /// The token that begins a text, where the model has one.
    fn begin(&self) -> Option<Token>;

    /// The token that ends a text, where the model has one.
    fn end(&self) -> Option<Token>;
}

/// Each byte is its own token.
#[derive(Debug, Clone, Copy)]
pub struct Bytes;

impl Tokenizer for Bytes {
    fn encode(&self, text: &str) -> Vec<Token> {
        text.bytes().map(Token::from).collect()
    }

    fn decode(&self, tokens: &[Token]) -> Vec<u8> {
        tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect()
    }

    fn begin(&self) -> Option<Token> {
        None
    }

    fn end(&self) -> Option<Token> {
        None
    }
}
