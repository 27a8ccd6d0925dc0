//! Block tables: where the tokens of a sequence lie.

use super::host_file::Slot;
use super::layout::BlockId;
use super::prefix::Hash;

/// A sequence that the pool keeps a table for; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId {
    pub(super) slot: u32,
    pub(super) serial: u64,
}

impl std::fmt::Display for SequenceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.serial)
    }
}

/// Where 16 tokens of a sequence are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// In this block.
    Resident(BlockId),
    /// In the host file; attention needs them back first.
    Offloaded(Slot),
    /// Gone for good, behind the sliding window.
    Dropped,
}

/// The table of one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(super) entries: Vec<Entry>,
    pub(super) tokens: usize,
    /// The hash of the blocks before `published`, which others may find.
    pub(super) chain: Hash,
    pub(super) published: usize,
}

impl Table {
    pub(super) const fn empty() -> Self {
        Self { entries: Vec::new(), tokens: 0, chain: Hash::ROOT, published: 0 }
    }

    /// Tokens that were appended; there may be room for more.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// One entry for 16 tokens, the first for tokens 0 to 15; behind those of all tokens what was reserved.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What is in the pool now: index of the entry, and its block.
    pub fn resident(&self) -> impl DoubleEndedIterator<Item = (usize, BlockId)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| match entry {
            Entry::Resident(block) => Some((index, *block)),
            Entry::Offloaded(_) | Entry::Dropped => None,
        })
    }

    /// What lies in the host file: index of the entry, and its slot.
    pub fn offloaded(&self) -> impl Iterator<Item = (usize, Slot)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| match entry {
            Entry::Offloaded(slot) => Some((index, *slot)),
            Entry::Resident(_) | Entry::Dropped => None,
        })
    }
}

/// All tables, by sequence.
#[derive(Debug, Default)]
pub(super) struct Tables {
    slots: Vec<(u64, Option<Table>)>,
    vacant: Vec<u32>,
    /// How many there ever were: the next serial number.
    opened: u64,
}

impl Tables {
    pub(super) fn insert(&mut self, table: Table) -> SequenceId {
        let serial = self.opened;
        self.opened += 1;
        let entry = (serial, Some(table));
        let slot = if let Some(slot) = self.vacant.pop() {
            self.slots[slot as usize] = entry;
            slot
        } else {
            self.slots.push(entry);
            self.slots.len() as u32 - 1
        };
        SequenceId { slot, serial }
    }

    pub(super) fn get(&self, sequence: SequenceId) -> Option<&Table> {
        let (serial, table) = self.slots.get(sequence.slot as usize)?;
        table.as_ref().filter(|_| *serial == sequence.serial)
    }

    pub(super) fn get_mut(&mut self, sequence: SequenceId) -> Option<&mut Table> {
        let (serial, table) = self.slots.get_mut(sequence.slot as usize)?;
        table.as_mut().filter(|_| *serial == sequence.serial)
    }

    pub(super) fn remove(&mut self, sequence: SequenceId) -> Option<Table> {
        self.get(sequence)?;
        self.vacant.push(sequence.slot);
        self.slots[sequence.slot as usize].1.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.slots.iter().filter_map(|(_, table)| table.as_ref())
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}
