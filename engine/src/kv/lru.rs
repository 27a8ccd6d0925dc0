//! Cached blocks in the order in which they were last let go of: a list threaded through the blocks' numbers, so
//! that taking one out of the middle costs as little as taking the oldest.

use super::layout::BlockId;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

/// The list. A block is in it at most once; who calls keeps to that.
#[derive(Debug)]
pub(super) struct Lru {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Lru {
    /// An empty list over blocks `0..capacity`.
    pub(super) fn new(capacity: usize) -> Self {
        Self { links: vec![Link { older: NONE, newer: NONE }; capacity], oldest: NONE, newest: NONE, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The block that was let go of longest ago.
    pub(super) fn oldest(&self) -> Option<BlockId> {
        (self.oldest != NONE).then_some(BlockId(self.oldest))
    }

    /// All blocks, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> {
        std::iter::successors(self.oldest(), |block| {
            let newer = self.links[block.index()].newer;
            (newer != NONE).then_some(BlockId(newer))
        })
    }

    /// Puts `block` at the newest end.
    pub(super) fn push(&mut self, block: BlockId) {
        let older = std::mem::replace(&mut self.newest, block.0);
        self.links[block.index()] = Link { older, newer: NONE };
        match older {
            NONE => self.oldest = block.0,
            older => self.links[older as usize].newer = block.0,
        }
        self.len += 1;
    }

    /// Takes `block`, which is in the list, out of it.
    pub(super) fn remove(&mut self, block: BlockId) {
        let Link { older, newer } = self.links[block.index()];
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_queue_that_can_be_left_anywhere(steps in proptest::collection::vec(0..12u32, 0..80)) {
            let mut lru = Lru::new(12);
            let mut model: Vec<BlockId> = Vec::new();
            for block in steps.into_iter().map(BlockId) {
                if let Some(at) = model.iter().position(|b| *b == block) {
                    model.remove(at);
                    lru.remove(block);
                } else {
                    model.push(block);
                    lru.push(block);
                }
                prop_assert_eq!(lru.iter().collect::<Vec<_>>(), model.clone());
                prop_assert_eq!((lru.len(), lru.oldest()), (model.len(), model.first().copied()));
            }
        }
    }
}
