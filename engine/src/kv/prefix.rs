//! Finding a block by what it holds: the tokens of the block and of all before it.
//!
//! A block's hash is made of the hash before it and its own tokens, so equal hashes at equal depth mean equal
//! prefixes. The hash is keyed at random for each pool, so that no prompt can be made to collide with another's; and
//! a hit is believed only where the tokens and the hash before them are equal too. What is left is an accident
//! between two whole prefixes, at 2^-64 a pair.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::BLOCK_TOKENS;
use super::layout::BlockId;

/// A token, as the tokenizer numbers it.
pub type Token = u32;
/// The tokens of a full block.
pub(super) type BlockTokens = [Token; BLOCK_TOKENS];

/// The hash of a prefix that ends with a full block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Hash(u64);

impl Hash {
    /// Before the first block.
    pub(super) const ROOT: Self = Self(0);
}

#[derive(Debug)]
struct Node {
    block: BlockId,
    before: Hash,
    tokens: BlockTokens,
}

/// Blocks by their hash.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    key: RandomState,
    nodes: HashMap<Hash, Node>,
}

impl Prefixes {
    /// The hash of the prefix `before` followed by `tokens`.
    pub(super) fn chain(&self, before: Hash, tokens: &BlockTokens) -> Hash {
        Hash(self.key.hash_one((before.0, tokens)))
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The block that holds `tokens` after `before`.
    pub(super) fn find(&self, before: Hash, tokens: &BlockTokens) -> Option<(Hash, BlockId)> {
        let hash = self.chain(before, tokens);
        let node = self.nodes.get(&hash)?;
        (node.before == before && node.tokens == *tokens).then_some((hash, node.block))
    }

    /// The block that is found by `hash`.
    pub(super) fn block(&self, hash: Hash) -> Option<BlockId> {
        self.nodes.get(&hash).map(|node| node.block)
    }

    /// `block` holds `tokens` after `before`: their hash, and whether `block` is found by it from now on. It is not
    /// where another block answers to that hash already.
    pub(super) fn insert(&mut self, before: Hash, tokens: &BlockTokens, block: BlockId) -> (Hash, bool) {
        let hash = self.chain(before, tokens);
        let is_new = !self.nodes.contains_key(&hash);
        if is_new {
            self.nodes.insert(hash, Node { block, before, tokens: *tokens });
        }
        (hash, is_new)
    }

    /// Nobody finds a block by `hash` any more.
    pub(super) fn remove(&mut self, hash: Hash) {
        self.nodes.remove(&hash);
    }
}
