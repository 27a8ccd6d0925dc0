//! The state of every block: free, used or cached.

use super::extents::Extents;
use super::layout::BlockId;
use super::lru::Lru;
use super::prefix::Hash;

/// What became of a block that lost a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    /// Others refer to it.
    Shared,
    /// Nobody does, and its content is kept.
    Cached,
    /// It is free; with its extent, if that is now wholly free.
    Freed(Option<usize>),
}

/// References, content hashes and the order of eviction. Who calls passes only blocks that are in the state asked
/// for; [`super::Pool`] is the one that does.
#[derive(Debug)]
pub(super) struct Blocks {
    references: Vec<u32>,
    hashes: Vec<Option<Hash>>,
    lru: Lru,
    extents: Extents,
    used: usize,
}

impl Blocks {
    pub(super) fn new(capacity: u32, extent_blocks: u32) -> Self {
        Self {
            references: vec![0; capacity as usize],
            hashes: vec![None; capacity as usize],
            lru: Lru::new(capacity as usize),
            extents: Extents::new(capacity, extent_blocks),
            used: 0,
        }
    }

    pub(super) const fn capacity(&self) -> usize {
        self.references.len()
    }

    /// Blocks with references.
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// Blocks nobody refers to whose content is kept.
    pub(super) const fn cached(&self) -> usize {
        self.lru.len()
    }

    pub(super) const fn free(&self) -> usize {
        self.capacity() - self.used - self.cached()
    }

    pub(super) const fn extents(&self) -> &Extents {
        &self.extents
    }

    pub(super) const fn extents_mut(&mut self) -> &mut Extents {
        &mut self.extents
    }

    pub(super) const fn lru(&self) -> &Lru {
        &self.lru
    }

    pub(super) fn references(&self, block: BlockId) -> u32 {
        self.references[block.index()]
    }

    /// The hash of `block`'s content, where others may find it by that.
    pub(super) fn hash(&self, block: BlockId) -> Option<Hash> {
        self.hashes[block.index()]
    }

    /// A used `block` is found by `hash` from now on, or by nothing; what it was found by.
    pub(super) fn set_hash(&mut self, block: BlockId, hash: Option<Hash>) -> Option<Hash> {
        std::mem::replace(&mut self.hashes[block.index()], hash)
    }

    /// Whether its one holder may write to `block`.
    pub(super) fn is_exclusive(&self, block: BlockId) -> bool {
        self.references[block.index()] == 1 && self.hashes[block.index()].is_none()
    }

    /// A free block out of what is held, with one reference.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        let block = self.extents.take()?;
        self.references[block.index()] = 1;
        self.used += 1;
        Some(block)
    }

    /// One more reference to a used or cached block.
    pub(super) fn retain(&mut self, block: BlockId) {
        let references = &mut self.references[block.index()];
        *references += 1;
        if *references == 1 {
            self.lru.remove(block);
            self.used += 1;
        }
    }

    /// One reference to a used block less.
    pub(super) fn release(&mut self, block: BlockId) -> Released {
        let references = &mut self.references[block.index()];
        *references -= 1;
        if *references > 0 {
            return Released::Shared;
        }
        self.used -= 1;
        if self.hashes[block.index()].is_some() {
            self.lru.push(block);
            return Released::Cached;
        }
        Released::Freed(self.extents.put(block))
    }

    /// Frees the cached block that was let go of longest ago: the block, what it was found by, and its extent if
    /// that is now wholly free.
    pub(super) fn evict(&mut self) -> Option<(BlockId, Hash, Option<usize>)> {
        let block = self.lru.oldest()?;
        self.lru.remove(block);
        let hash = self.hashes[block.index()].take()?;
        Some((block, hash, self.extents.put(block)))
    }
}
