//! Byte-level byte-pair encoding, as GPT-2 introduced it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::{Split, Tokenizer};
use crate::kv::Token;

/// What a file says of its tokens.
#[derive(Debug)]
pub(crate) struct Vocabulary<'a> {
    /// By number, each byte as GPT-2's printable character for it; an empty text stands for no token.
    pub(crate) tokens: Vec<&'a str>,
    /// The numbers of those that stand for no text.
    pub(crate) special: HashSet<usize>,
    /// Pairs that become one, `left right`, the most important first.
    pub(crate) merges: Vec<&'a str>,
    pub(crate) begin: Option<Token>,
    pub(crate) end: Option<Token>,
}

/// A tokenizer of byte pairs.
#[derive(Debug)]
pub(crate) struct BytePairs {
    /// What each token stands for; nothing for a special one.
    texts: Vec<Box<[u8]>>,
    /// The token of each byte. Vocabularies that were trained on text lack bytes that never stood in it.
    bytes: [Option<Token>; 256],
    /// The rank of a pair of tokens, and what it becomes.
    merges: HashMap<(Token, Token), (u32, Token)>,
    split: Split,
    begin: Option<Token>,
    end: Option<Token>,
}

/// A vocabulary that cannot be used; the words are put behind the file's name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VocabularyError {
    #[error("its tokens lack the byte {0:#04x}, so that plain text could not be encoded")]
    NoByte(u8),
    #[error("its merge {0} is no pair of tokens that make a third")]
    Merge(usize),
    #[error("it has more tokens than numbers of 32 bits")]
    TooMany,
}

impl BytePairs {
    pub(crate) fn new(vocabulary: &Vocabulary<'_>, split: Split) -> Result<Self, VocabularyError> {
        let alphabet = Alphabet::new();
        let mut tokens: HashMap<&str, Token> = HashMap::new();
        let mut texts = Vec::with_capacity(vocabulary.tokens.len());
        for (index, text) in vocabulary.tokens.iter().enumerate() {
            let special = vocabulary.special.contains(&index);
            texts.push(if special { Box::default() } else { alphabet.bytes(text) });
            if !special && !text.is_empty() {
                tokens.insert(text, Token::try_from(index).map_err(|_| VocabularyError::TooMany)?);
            }
        }
        let mut bytes = [None; 256];
        for (byte, token) in (0..=u8::MAX).zip(&mut bytes) {
            let character = alphabet.characters[usize::from(byte)];
            *token = tokens.get(character.encode_utf8(&mut [0; 4]) as &str).copied();
            if token.is_none() && matches!(byte, b' '..=b'~') {
                return Err(VocabularyError::NoByte(byte));
            }
        }
        let mut merges = HashMap::with_capacity(vocabulary.merges.len());
        for (rank, merge) in (0..).zip(&vocabulary.merges) {
            let merged = pair(&tokens, merge).ok_or(VocabularyError::Merge(rank as usize))?;
            merges.entry((merged.0, merged.1)).or_insert((rank, merged.2));
        }
        let Vocabulary { begin, end, .. } = *vocabulary;
        Ok(Self { texts, bytes, merges, split, begin, end })
    }

    /// Appends the tokens of one piece: the pair that ranks first is merged until none is left.
    fn merge(&self, piece: &str, out: &mut Vec<Token>) {
        let mut chain = Chain::new(piece.bytes().filter_map(|byte| self.bytes[usize::from(byte)]).collect());
        let mut open = BinaryHeap::new();
        let offer = |chain: &Chain, at: usize, open: &mut BinaryHeap<_>| {
            let pair = chain.pair(at)?;
            let (rank, token) = *self.merges.get(&pair)?;
            open.push(Reverse((rank, at, pair, token)));
            Some(())
        };
        for at in 0..chain.tokens.len() {
            offer(&chain, at, &mut open);
        }
        while let Some(Reverse((_, at, pair, token))) = open.pop() {
            if chain.pair(at) != Some(pair) {
                continue; // one of the two has become part of another since
            }
            chain.join(at, token);
            offer(&chain, at, &mut open);
            if let Some(before) = chain.before(at) {
                offer(&chain, before, &mut open);
            }
        }
        out.extend(chain.tokens.iter().flatten());
    }
}

impl Tokenizer for BytePairs {
    fn encode(&self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        for piece in self.split.pieces(text) {
            self.merge(piece, &mut tokens);
        }
        tokens
    }

    fn decode(&self, tokens: &[Token]) -> Vec<u8> {
        tokens.iter().filter_map(|token| self.texts.get(*token as usize)).flatten().copied().collect()
    }

    fn begin(&self) -> Option<Token> {
        self.begin
    }

    fn end(&self) -> Option<Token> {
        self.end
    }
}

/// The left, the right, and what they become.
fn pair(tokens: &HashMap<&str, Token>, merge: &str) -> Option<(Token, Token, Token)> {
    let (left, right) = merge.split_once(' ')?;
    let joined = format!("{left}{right}");
    Some((*tokens.get(left)?, *tokens.get(right)?, *tokens.get(joined.as_str())?))
}

/// Tokens in a row of which two neighbours become one; positions stay what they were.
struct Chain {
    tokens: Vec<Option<Token>>,
    /// The position behind each, skipping what was merged; the length at the end.
    next: Vec<usize>,
    /// The position before each; `usize::MAX` at the beginning.
    previous: Vec<usize>,
}

impl Chain {
    fn new(tokens: Vec<Token>) -> Self {
        let count = tokens.len();
        Self {
            tokens: tokens.into_iter().map(Some).collect(),
            next: (1..=count).collect(),
            previous: (0..count).map(|at| at.wrapping_sub(1)).collect(),
        }
    }

    /// The token at a position and the one behind it, where both are.
    fn pair(&self, at: usize) -> Option<(Token, Token)> {
        let left = (*self.tokens.get(at)?)?;
        let right = (*self.tokens.get(*self.next.get(at)?)?)?;
        Some((left, right))
    }

    fn join(&mut self, at: usize, token: Token) {
        let gone = self.next[at];
        self.tokens[at] = Some(token);
        self.tokens[gone] = None;
        self.next[at] = self.next[gone];
        if let Some(previous) = self.previous.get_mut(self.next[gone]) {
            *previous = at;
        }
    }

    fn before(&self, at: usize) -> Option<usize> {
        self.previous.get(at).copied().filter(|before| *before != usize::MAX)
    }
}

/// GPT-2's printable character for each byte.
struct Alphabet {
    characters: [char; 256],
    bytes: HashMap<char, u8>,
}

impl Alphabet {
    /// Bytes that are printable in Latin-1 stand for themselves, the others for characters from U+0100 on, in order.
    fn new() -> Self {
        let mut other = (0x100..).filter_map(char::from_u32);
        let mut characters = ['\0'; 256];
        for (byte, character) in (0..=u8::MAX).zip(&mut characters) {
            let printable = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            *character = if printable { char::from(byte) } else { other.next().unwrap_or_default() };
        }
        let bytes = (0..=u8::MAX).map(|byte| (characters[usize::from(byte)], byte)).collect();
        Self { characters, bytes }
    }

    /// What a token's text stands for. A character outside the alphabet stands for itself, as in tokens that were
    /// added later.
    fn bytes(&self, text: &str) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(text.len());
        for character in text.chars() {
            match self.bytes.get(&character) {
                Some(byte) => bytes.push(*byte),
                None => bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        bytes.into()
    }
}
