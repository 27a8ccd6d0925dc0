//! Sequences: opened, sharing what is there already, growing, and ended.

use super::BLOCK_TOKENS;
use super::event::Event;
use super::layout::BlockId;
use super::memory::Memory;
use super::pool::{Pool, PoolError, Window};
use super::prefix::{Hash, Token};
use super::table::{Entry, SequenceId, Table};

/// What a sequence takes of the pool to grow.
#[derive(Debug, Clone, Copy)]
struct Growth {
    /// Blocks behind those it has.
    new: usize,
    /// The block it goes on writing in, where others read that: by its index. Only the one that is partly filled
    /// can be; what lies behind it is never shared ([`Pool::fork`]).
    shared: Option<(usize, BlockId)>,
}

impl Growth {
    const fn blocks(self) -> usize {
        self.new + self.shared.is_some() as usize
    }
}

impl<M: Memory> Pool<M> {
    /// Opens a sequence without tokens.
    pub fn open(&mut self) -> SequenceId {
        self.tables.insert(Table::empty())
    }

    /// How many of `tokens` lie in blocks that [`Self::open_with_prefix`] would share.
    #[must_use]
    pub fn known_prefix(&self, tokens: &[Token]) -> usize {
        let mut chain = Hash::ROOT;
        let known = tokens.as_chunks().0.iter().take_while(|tokens| {
            let found = self.prefixes.find(chain, tokens);
            chain = found.map_or(chain, |(hash, _)| hash);
            found.is_some()
        });
        known.count() * BLOCK_TOKENS
    }

    /// Opens a sequence that begins with `tokens` and shares the blocks that hold them already. What it has is
    /// [`Table::tokens`]; the rest is to be computed and appended. A model needs at least one token to go on from,
    /// so leave out the last one of a prompt.
    pub fn open_with_prefix(&mut self, tokens: &[Token]) -> SequenceId {
        let sequence = self.tables.insert(Table::empty());
        let mut table = Table::empty();
        for tokens in tokens.as_chunks().0 {
            let Some((hash, block)) = self.prefixes.find(table.chain, tokens) else { break };
            self.blocks.retain(block);
            self.emit(Event::Share { block, sequence });
            table.entries.push(Entry::Resident(block));
            table.chain = hash;
        }
        table.published = table.entries.len();
        table.tokens = table.published * BLOCK_TOKENS;
        self.counters.prefix_queries += tokens.len() as u64;
        self.counters.prefix_hits += table.tokens as u64;
        if let Some(place) = self.tables.get_mut(sequence) {
            *place = table;
        }
        self.settle();
        sequence
    }

    /// Opens a sequence that shares all tokens with `parent`; whichever appends to a shared block first copies it.
    /// What `parent` has reserved beyond them stays its own.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`], and [`PoolError::NotResident`] where blocks of `parent` are offloaded.
    pub fn fork(&mut self, parent: SequenceId) -> Result<SequenceId, PoolError> {
        let mut table = self.table(parent)?.clone();
        table.entries.truncate(table.tokens.div_ceil(BLOCK_TOKENS));
        if let Some((index, _)) = table.offloaded().next() {
            return Err(PoolError::NotResident { sequence: parent, index });
        }
        let sequence = self.tables.insert(table.clone());
        for (_, block) in table.resident() {
            self.blocks.retain(block);
            self.emit(Event::Share { block, sequence });
        }
        self.settle();
        Ok(sequence)
    }

    /// Blocks that [`Self::append`] of `tokens` would take now.
    ///
    /// # Errors
    /// As [`Self::append`], but for [`PoolError::Exhausted`].
    pub fn needed(&self, sequence: SequenceId, tokens: usize) -> Result<usize, PoolError> {
        self.growth(sequence, tokens).map(Growth::blocks)
    }

    /// Makes room for `tokens` more at the end of `sequence`, in blocks that nobody else reads.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] asks for a preemption: [`Self::close`] to compute the victim anew later (what it
    /// published stays cached), or [`Self::swap_out`]. [`PoolError::NotResident`] where the last block is away.
    pub fn append(&mut self, sequence: SequenceId, tokens: usize) -> Result<(), PoolError> {
        let growth = self.growth(sequence, tokens)?;
        self.check_room(growth.blocks())?;
        let copy = growth.shared.map(|_| self.allocate(sequence)).transpose()?;
        if let Err(error) = self.extend(sequence, growth.new) {
            copy.into_iter().for_each(|block| self.release(block));
            return Err(error);
        }
        if let (Some((index, from)), Some(to)) = (growth.shared, copy) {
            self.replace(sequence, index, from, to);
        }
        if let Some(table) = self.tables.get_mut(sequence) {
            table.tokens += tokens;
        }
        self.settle();
        Ok(())
    }

    /// Takes blocks ahead, so that `sequence` has room for `tokens` in all: what an engine without paging does for
    /// the longest answer it may give. With extents of that size ([`Layout::with_extent`]) they lie side by side.
    ///
    /// # Errors
    /// As [`Self::append`].
    ///
    /// [`Layout::with_extent`]: super::Layout::with_extent
    pub fn reserve(&mut self, sequence: SequenceId, tokens: usize) -> Result<(), PoolError> {
        let held = self.table(sequence)?.entries.len();
        let new = tokens.div_ceil(BLOCK_TOKENS).saturating_sub(held);
        self.check_room(new)?;
        self.extend(sequence, new)?;
        self.settle();
        Ok(())
    }

    /// Lets others find the full blocks of `sequence`, whose content is written, by `tokens`: all of its tokens
    /// from the first. They are not written to any more.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`].
    pub fn publish(&mut self, sequence: SequenceId, tokens: &[Token]) -> Result<(), PoolError> {
        let Some(table) = self.tables.get_mut(sequence) else {
            return Err(PoolError::UnknownSequence(sequence));
        };
        let full = tokens.as_chunks().0;
        let full = &full[..full.len().min(table.tokens / BLOCK_TOKENS)];
        for (entry, tokens) in table.entries.iter().zip(full).skip(table.published) {
            table.chain = match *entry {
                Entry::Resident(block) if self.blocks.hash(block).is_none() => {
                    let (hash, is_found) = self.prefixes.insert(table.chain, tokens, block);
                    if is_found {
                        self.blocks.set_hash(block, Some(hash));
                    }
                    hash
                }
                _ => self.prefixes.chain(table.chain, tokens),
            };
            table.published += 1;
        }
        self.settle();
        Ok(())
    }

    /// Drops the blocks of `sequence` that lie wholly behind `window`; how many.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`].
    pub fn slide(&mut self, sequence: SequenceId, window: Window) -> Result<usize, PoolError> {
        let table = self.table(sequence)?;
        let first = window.sinks.div_ceil(BLOCK_TOKENS);
        let end = table.tokens.saturating_sub(window.tokens) / BLOCK_TOKENS;
        let mut dropped = 0;
        for index in first..end {
            let Some(table) = self.tables.get_mut(sequence) else { break };
            match std::mem::replace(&mut table.entries[index], Entry::Dropped) {
                Entry::Resident(block) => {
                    self.emit(Event::Drop { block, sequence });
                    self.release(block);
                    dropped += 1;
                }
                Entry::Offloaded(slot) => self.free_slot(slot),
                Entry::Dropped => {}
            }
        }
        self.settle();
        Ok(dropped)
    }

    /// Ends `sequence`. Its published blocks stay cached while there is room, the last of them to be evicted first.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`].
    pub fn close(&mut self, sequence: SequenceId) -> Result<(), PoolError> {
        self.forget(sequence, 0)
    }

    /// Ends `sequence` and loses its last `references` references to blocks: what a leak is. The pool knows what it
    /// has lost, so that an injected leak has a true size ([`Self::forgotten`]); nothing frees it.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`].
    pub fn forget(&mut self, sequence: SequenceId, references: usize) -> Result<(), PoolError> {
        let table = self.tables.remove(sequence).ok_or(PoolError::UnknownSequence(sequence))?;
        // The last first: a prefix is of use without its end, not without its beginning.
        for (at, (_, block)) in table.resident().rev().enumerate() {
            if at < references {
                *self.forgotten.entry(block).or_default() += 1;
            } else {
                self.release(block);
            }
        }
        table.offloaded().for_each(|(_, slot)| self.free_slot(slot));
        self.settle();
        Ok(())
    }

    /// Blocks that [`Self::forget`] keeps from ever being free.
    #[must_use]
    pub fn forgotten(&self) -> usize {
        self.forgotten.len()
    }

    /// What `tokens` more take of the pool.
    fn growth(&self, sequence: SequenceId, tokens: usize) -> Result<Growth, PoolError> {
        let table = self.table(sequence)?;
        let end = (table.tokens + tokens).div_ceil(BLOCK_TOKENS);
        let new = end.saturating_sub(table.entries.len());
        let mut shared = None;
        if tokens > 0 {
            // Blocks that are there already: the last one, not full yet, and those that were reserved.
            for index in table.tokens / BLOCK_TOKENS..end - new {
                let block = self.resident(sequence, index)?;
                shared = shared.or((!self.blocks.is_exclusive(block)).then_some((index, block)));
            }
        }
        Ok(Growth { new, shared })
    }

    /// Adds `count` blocks to the end of `sequence`, or none.
    fn extend(&mut self, sequence: SequenceId, count: usize) -> Result<(), PoolError> {
        for added in 0..count {
            match self.allocate(sequence) {
                Ok(block) => self.push(sequence, block),
                Err(error) => {
                    self.shrink(sequence, added);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, sequence: SequenceId, block: BlockId) {
        if let Some(table) = self.tables.get_mut(sequence) {
            table.entries.push(Entry::Resident(block));
        }
    }

    /// Takes the last `count` entries, blocks just allocated, away again.
    fn shrink(&mut self, sequence: SequenceId, count: usize) {
        let Some(table) = self.tables.get_mut(sequence) else { return };
        let kept = table.entries.len().saturating_sub(count);
        for entry in table.entries.split_off(kept) {
            if let Entry::Resident(block) = entry {
                self.release(block);
            }
        }
    }

    /// Puts `to`, a copy of `from`, at `index` of `sequence`.
    fn replace(&mut self, sequence: SequenceId, index: usize, from: BlockId, to: BlockId) {
        self.memory.copy(self.layout.block(from), self.layout.block(to).start);
        if let Some(table) = self.tables.get_mut(sequence) {
            table.entries[index] = Entry::Resident(to);
        }
        self.emit(Event::Copy { from, to, sequence });
        self.release(from);
    }
}
