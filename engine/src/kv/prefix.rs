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

#[cfg(test)]
mod tests {
    use super::*;

    const ONES: BlockTokens = [1; BLOCK_TOKENS];
    const TWOS: BlockTokens = [2; BLOCK_TOKENS];

    #[test]
    fn a_block_is_found_after_its_own_prefix_only() {
        let mut prefixes = Prefixes::default();
        let (first, is_new) = prefixes.insert(Hash::ROOT, &ONES, BlockId(3));
        assert!(is_new);
        assert_eq!(prefixes.insert(Hash::ROOT, &ONES, BlockId(4)), (first, false));
        let (second, _) = prefixes.insert(first, &ONES, BlockId(5));
        assert_eq!(prefixes.find(Hash::ROOT, &ONES), Some((first, BlockId(3))));
        assert_eq!(prefixes.find(first, &ONES), Some((second, BlockId(5))));
        assert_eq!((prefixes.find(second, &ONES), prefixes.find(Hash::ROOT, &TWOS)), (None, None));
        prefixes.remove(first);
        assert_eq!((prefixes.find(Hash::ROOT, &ONES), prefixes.len()), (None, 1));
    }

    #[test]
    fn equal_hashes_alone_are_not_believed() {
        let mut prefixes = Prefixes::default();
        let hash = prefixes.chain(Hash::ROOT, &ONES);
        prefixes.nodes.insert(hash, Node { block: BlockId(1), before: Hash::ROOT, tokens: TWOS });
        assert_eq!(prefixes.find(Hash::ROOT, &ONES), None);
        prefixes.nodes.insert(hash, Node { block: BlockId(1), before: Hash(9), tokens: ONES });
        assert_eq!(prefixes.find(Hash::ROOT, &ONES), None);
    }

    #[test]
    fn each_pool_hashes_in_its_own_way() {
        let (one, other) = (Prefixes::default(), Prefixes::default());
        assert_ne!(one.chain(Hash::ROOT, &ONES), other.chain(Hash::ROOT, &ONES));
    }
}
