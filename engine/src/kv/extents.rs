//! Which extents the pool holds, and which blocks in them are free.
//!
//! The lowest extent with a free block serves first, so that what is used gathers at the low end and extents at the
//! high end empty out: only an extent that is wholly free can go back to the kernel.

use super::layout::BlockId;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Extent {
    is_held: bool,
    free: u32,
    /// The first of its free blocks; [`Extents::next`] leads on.
    head: u32,
}

/// The extents of a pool.
#[derive(Debug)]
pub(super) struct Extents {
    blocks_each: u32,
    capacity: u32,
    extents: Vec<Extent>,
    /// Of a free block, the next free one of its extent.
    next: Vec<u32>,
    /// Held, with a free block.
    open: NumberSet,
    absent: NumberSet,
    idle: usize,
    held: usize,
}

impl Extents {
    /// Room for `capacity` blocks in extents of `blocks_each`, none of them held.
    pub(super) fn new(capacity: u32, blocks_each: u32) -> Self {
        let count = capacity.div_ceil(blocks_each) as usize;
        let mut absent = NumberSet::new(count);
        (0..count).for_each(|extent| absent.insert(extent));
        Self {
            blocks_each,
            capacity,
            extents: vec![Extent { is_held: false, free: 0, head: NONE }; count],
            next: vec![NONE; capacity as usize],
            open: NumberSet::new(count),
            absent,
            idle: 0,
            held: 0,
        }
    }

    /// Free blocks in extents that are held.
    pub(super) const fn idle(&self) -> usize {
        self.idle
    }

    /// Extents held.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    pub(super) const fn count(&self) -> usize {
        self.extents.len()
    }

    /// Takes a free block out of what is held.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        let at = self.open.first()?;
        let extent = &mut self.extents[at];
        let block = extent.head;
        extent.head = self.next[block as usize];
        extent.free -= 1;
        if extent.free == 0 {
            self.open.remove(at);
        }
        self.idle -= 1;
        Some(BlockId(block))
    }

    /// Puts `block` back; its extent, if nothing else in it is taken.
    pub(super) fn put(&mut self, block: BlockId) -> Option<usize> {
        let at = (block.0 / self.blocks_each) as usize;
        let len = self.blocks_in(at);
        let extent = &mut self.extents[at];
        self.next[block.index()] = std::mem::replace(&mut extent.head, block.0);
        extent.free += 1;
        let (is_first, is_empty) = (extent.free == 1, extent.free == len);
        if is_first {
            self.open.insert(at);
        }
        self.idle += 1;
        is_empty.then_some(at)
    }

    /// The lowest extent that is not held.
    pub(super) fn absent(&self) -> Option<usize> {
        self.absent.first()
    }

    /// `extent` is held from now on, all of it free.
    pub(super) fn hold(&mut self, extent: usize) {
        let len = self.blocks_in(extent);
        let first = extent as u32 * self.blocks_each;
        let blocks = first..first + len;
        for block in blocks.clone() {
            self.next[block as usize] = if block + 1 < blocks.end { block + 1 } else { NONE };
        }
        self.extents[extent] = Extent { is_held: true, free: len, head: first };
        self.absent.remove(extent);
        self.open.insert(extent);
        self.idle += len as usize;
        self.held += 1;
    }

    /// `extent`, wholly free, is held no longer.
    pub(super) fn let_go(&mut self, extent: usize) {
        self.idle -= self.extents[extent].free as usize;
        self.extents[extent] = Extent { is_held: false, free: 0, head: NONE };
        self.open.remove(extent);
        self.absent.insert(extent);
        self.held -= 1;
    }

    /// Extents that are held and wholly free.
    pub(super) fn empty(&self) -> impl Iterator<Item = usize> {
        let is_empty = |(at, extent): &(usize, &Extent)| extent.is_held && extent.free == self.blocks_in(*at);
        self.extents.iter().enumerate().filter(is_empty).map(|(at, _)| at)
    }

    /// Every free block in what is held, extent by extent.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.extents.iter().flat_map(move |extent| {
            let link = |block: u32| (block != NONE).then_some(block);
            std::iter::successors(link(extent.head), move |block| link(self.next[*block as usize]))
                .map(BlockId)
        })
    }

    /// Every block of what is not held.
    pub(super) fn absent_blocks(&self) -> impl Iterator<Item = BlockId> {
        let absent = self.extents.iter().enumerate().filter(|(_, extent)| !extent.is_held);
        absent.flat_map(|(at, _)| {
            let first = at as u32 * self.blocks_each;
            (first..first + self.blocks_in(at)).map(BlockId)
        })
    }

    /// Blocks of `extent`: the last one may have fewer.
    const fn blocks_in(&self, extent: usize) -> u32 {
        let left = self.capacity - extent as u32 * self.blocks_each;
        if left < self.blocks_each { left } else { self.blocks_each }
    }
}

/// Numbers below a bound; knows its smallest member within a few words, however many there are.
#[derive(Debug)]
struct NumberSet {
    words: Vec<u64>,
    /// A bit for each word that is not zero.
    summary: Vec<u64>,
}

impl NumberSet {
    fn new(bound: usize) -> Self {
        let words = bound.div_ceil(64);
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(64)] }
    }

    fn insert(&mut self, number: usize) {
        self.words[number / 64] |= 1 << (number % 64);
        self.summary[number / 4096] |= 1 << (number / 64 % 64);
    }

    fn remove(&mut self, number: usize) {
        self.words[number / 64] &= !(1 << (number % 64));
        if self.words[number / 64] == 0 {
            self.summary[number / 4096] &= !(1 << (number / 64 % 64));
        }
    }

    fn first(&self) -> Option<usize> {
        let at = self.summary.iter().position(|word| *word != 0)?;
        let word = at * 64 + self.summary[at].trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_number_set_knows_its_smallest(steps in proptest::collection::vec((any::<bool>(), 0..9000usize), 0..200)) {
            let (mut set, mut model) = (NumberSet::new(9000), BTreeSet::new());
            for (insert, number) in steps {
                if insert {
                    set.insert(number);
                    model.insert(number);
                } else {
                    set.remove(number);
                    model.remove(&number);
                }
                prop_assert_eq!(set.first(), model.first().copied());
            }
        }

        #[test]
        fn blocks_are_taken_once_and_extents_empty_when_all_is_back(
            capacity in 1..40u32, each in 1..9u32, steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..120),
        ) {
            let mut extents = Extents::new(capacity, each);
            let mut taken: Vec<BlockId> = Vec::new();
            for (take, pick) in steps {
                if take {
                    if extents.idle() == 0 && let Some(absent) = extents.absent() {
                        extents.hold(absent);
                    }
                    let lowest = extents.free_blocks().map(|b| b.0 / each).min();
                    let block = extents.take();
                    prop_assert_eq!(block.map(|b| b.0 / each), lowest);
                    prop_assert_eq!(block.is_none(), taken.len() == capacity as usize);
                    taken.extend(block);
                } else if !taken.is_empty() {
                    let block = taken.swap_remove(pick.index(taken.len()));
                    let emptied = extents.put(block);
                    let others = taken.iter().any(|b| b.0 / each == block.0 / each);
                    prop_assert_eq!(emptied.is_none(), others);
                    if let Some(extent) = emptied.filter(|e| e % 2 == 0) {
                        extents.let_go(extent);
                    }
                }
                let free: BTreeSet<BlockId> = extents.free_blocks().collect();
                prop_assert_eq!(free.len(), extents.idle());
                prop_assert!(taken.iter().all(|block| !free.contains(block)));
            }
        }
    }
}
