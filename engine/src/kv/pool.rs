//! The pool: who gets which block, shares it, copies it, and gives it up.

use std::collections::HashMap;

use ebbtide_core::Bytes;

use super::BLOCK_TOKENS;
use super::blocks::{Blocks, Released};
use super::event::{Counters, Event, Observer};
use super::format::Format;
use super::host_file::{HostFile, HostFileError, Traffic};
use super::layout::{BlockId, Geometry, Layout, LayoutError, Row};
use super::memory::{Backing, HostMemory, Memory};
use super::prefix::{Prefixes, Token};
use super::table::{Entry, SequenceId, Table, Tables};
use crate::vram::VramError;

/// The pool could not do what it was asked for; nothing has changed then, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// There are not enough blocks.
    #[error(
        "{needed} blocks are needed and {available} are to be had; preempt a sequence, or make the pool larger"
    )]
    Exhausted {
        /// Blocks asked for.
        needed: usize,
        /// Free and cached blocks.
        available: usize,
    },
    /// The host or the device has no memory for a block that the pool may still hand out.
    #[error(transparent)]
    Memory(#[from] VramError),
    /// The host file failed.
    #[error(transparent)]
    HostFile(#[from] HostFileError),
    /// There is no host file.
    #[error("this pool has no host file to offload to; give it one when it is made")]
    NoHostFile,
    /// The model's geometry makes no sense.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// There is no such sequence.
    #[error("sequence {0} is closed or was never opened in this pool")]
    UnknownSequence(SequenceId),
    /// A block that must be in the pool is elsewhere.
    #[error("block {index} of sequence {sequence} is not in the pool; restore the sequence first")]
    NotResident {
        /// Whose.
        sequence: SequenceId,
        /// Which of its blocks, from 0.
        index: usize,
    },
    /// Somebody else reads the block that was to be written.
    #[error("block {index} of sequence {sequence} is shared and must not be written; append to it first")]
    Shared {
        /// Whose.
        sequence: SequenceId,
        /// Which of its blocks, from 0.
        index: usize,
    },
}

/// How a pool behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Blocks there may be.
    pub capacity: u32,
    /// Blocks that [`Pool::can_admit`] leaves to the sequences that run already, so that they do not preempt each
    /// other the moment one is admitted.
    pub watermark: u32,
    /// Blocks nobody refers to that are kept for their content; `None` for as many as there are.
    pub cached_max: Option<u32>,
    /// Keep what was taken from the kernel, as a caching allocator does, instead of giving free extents back.
    pub high_water: bool,
}

impl PoolOptions {
    /// A pool of `capacity` blocks that caches what it can, gives everything else back, and admits while 1 % is
    /// left, as vLLM's default watermark has it.
    #[must_use]
    pub const fn with_capacity(capacity: u32) -> Self {
        Self { capacity, watermark: capacity / 100, cached_max: None, high_water: false }
    }
}

/// A sliding window: what attention still looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The newest tokens.
    pub tokens: usize,
    /// The first tokens, kept for good: attention rests on them (StreamingLLM, arXiv 2309.17453). They are kept by
    /// whole blocks.
    pub sinks: usize,
}

/// How full a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Blocks there may be: used, cached and free together.
    pub capacity: usize,
    /// Blocks that somebody refers to.
    pub used: usize,
    /// Blocks nobody refers to, kept for their content.
    pub cached: usize,
    /// Blocks that hold nothing.
    pub free: usize,
    /// Of the free ones, those whose memory is held all the same.
    pub idle: usize,
    /// Blocks in the host file.
    pub offloaded: usize,
    /// Open sequences.
    pub sequences: usize,
    /// Memory held: whole extents.
    pub held: Bytes,
    /// Memory of one block.
    pub block: Bytes,
}

/// A paged KV cache in memory `M`.
pub struct Pool<M = HostMemory> {
    pub(super) layout: Layout,
    pub(super) options: PoolOptions,
    pub(super) blocks: Blocks,
    pub(super) prefixes: Prefixes,
    pub(super) tables: Tables,
    pub(super) memory: M,
    pub(super) host_file: Option<HostFile>,
    /// References that leaks injected on purpose have lost.
    pub(super) forgotten: HashMap<BlockId, u32>,
    observer: Option<Box<dyn Observer>>,
    pub(super) counters: Counters,
    /// One block on its way to or from the host file.
    pub(super) passage: Vec<u8>,
}

impl Pool {
    /// A pool in host memory for `geometry` kept as `format`. Nothing is held yet.
    ///
    /// # Errors
    /// Where the geometry makes no sense or address space is not to be had.
    pub fn on_host(
        geometry: Geometry,
        format: Format,
        backing: Backing,
        options: PoolOptions,
    ) -> Result<Self, PoolError> {
        let layout = Layout::new(geometry, format, backing.granule())?;
        Self::new(layout, options, |bytes| HostMemory::reserve(bytes, backing))
    }

    /// All of its memory, by [`Layout::block`]; only blocks of tables have content.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// What `block` holds; `None` where it is free.
    #[must_use]
    pub fn block(&self, block: BlockId) -> Option<&[u8]> {
        let is_kept = block.index() < self.blocks.capacity()
            && (self.blocks.references(block) > 0 || self.blocks.hash(block).is_some());
        is_kept.then(|| &self.memory.bytes()[self.layout.block(block)])
    }

    /// The block in which the token at `position` of `sequence` lies, to write to.
    ///
    /// # Errors
    /// [`PoolError::Shared`] where others read it or may find it, [`PoolError::NotResident`] where it is not there.
    pub fn block_mut(&mut self, sequence: SequenceId, position: usize) -> Result<&mut [u8], PoolError> {
        let index = position / BLOCK_TOKENS;
        let block = self.resident(sequence, index)?;
        if !self.blocks.is_exclusive(block) {
            return Err(PoolError::Shared { sequence, index });
        }
        let place = self.layout.block(block);
        Ok(&mut self.memory.bytes_mut()[place])
    }

    /// Writes one row of the token at `position`; [`Row::token`] is taken from `position`.
    ///
    /// # Errors
    /// As [`Self::block_mut`].
    pub fn write_row(
        &mut self,
        sequence: SequenceId,
        position: usize,
        row: Row,
        values: &[f32],
    ) -> Result<(), PoolError> {
        let layout = self.layout;
        let row = Row { token: position % BLOCK_TOKENS, ..row };
        let block = self.block_mut(sequence, position)?;
        let scale = layout.format().encode(values, &mut block[layout.row(row)]);
        if let Some(place) = layout.scale(row) {
            block[place].copy_from_slice(&scale.to_le_bytes());
        }
        Ok(())
    }

    /// Reads what [`Self::write_row`] wrote.
    ///
    /// # Errors
    /// [`PoolError::NotResident`] where it is not there.
    pub fn read_row(
        &self,
        sequence: SequenceId,
        position: usize,
        row: Row,
        values: &mut [f32],
    ) -> Result<(), PoolError> {
        let row = Row { token: position % BLOCK_TOKENS, ..row };
        let block = self.resident(sequence, position / BLOCK_TOKENS)?;
        let block = &self.memory.bytes()[self.layout.block(block)];
        let scale =
            self.layout.scale(row).map_or([0, 0], |place| [block[place.start], block[place.start + 1]]);
        self.layout.format().decode(&block[self.layout.row(row)], u16::from_le_bytes(scale), values);
        Ok(())
    }
}

impl<M: Memory> Pool<M> {
    /// A pool laid out as `layout` says, in what `reserve` makes of the bytes it may come to hold.
    ///
    /// # Errors
    /// What `reserve` says.
    pub fn new(
        layout: Layout,
        options: PoolOptions,
        reserve: impl FnOnce(usize) -> Result<M, VramError>,
    ) -> Result<Self, PoolError> {
        let extent_blocks = u32::try_from(layout.extent_blocks()).unwrap_or(u32::MAX);
        let blocks = Blocks::new(options.capacity, extent_blocks);
        let bytes = blocks.extents().count().saturating_mul(layout.extent_bytes());
        Ok(Self {
            layout,
            options,
            blocks,
            prefixes: Prefixes::default(),
            tables: Tables::default(),
            memory: reserve(bytes)?,
            host_file: None,
            forgotten: HashMap::new(),
            observer: None,
            counters: Counters::default(),
            passage: Vec::new(),
        })
    }

    /// With `file` to offload to.
    #[must_use]
    pub fn with_host_file(mut self, file: HostFile) -> Self {
        self.host_file = Some(file);
        self
    }

    /// With `observer` to be told of events.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Where what lies.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What it lies in.
    #[must_use]
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// What the memory's owner, the kernel or a driver, says is held: what is seen from outside. It equals
    /// [`Usage::held`].
    ///
    /// # Errors
    /// Where it does not tell.
    pub fn memory_held(&self) -> Result<Bytes, VramError> {
        self.memory.held()
    }

    /// How often what has happened.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// What offloading has cost.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.host_file.as_ref().map_or(Traffic::default(), HostFile::traffic)
    }

    /// How full it is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let extents = self.blocks.extents();
        Usage {
            capacity: self.blocks.capacity(),
            used: self.blocks.used(),
            cached: self.blocks.cached(),
            free: self.blocks.free(),
            idle: extents.idle(),
            offloaded: self.host_file.as_ref().map_or(0, HostFile::blocks),
            sequences: self.tables.len(),
            held: Bytes((extents.held() * self.layout.extent_bytes()) as u64),
            block: Bytes(self.layout.block_bytes() as u64),
        }
    }

    /// The table of `sequence`.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`].
    pub fn table(&self, sequence: SequenceId) -> Result<&Table, PoolError> {
        self.tables.get(sequence).ok_or(PoolError::UnknownSequence(sequence))
    }

    /// Blocks that could be had now: free ones, and cached ones at the price of their content.
    #[must_use]
    pub const fn available(&self) -> usize {
        self.blocks.free() + self.blocks.cached()
    }

    /// Whether a new sequence that needs `blocks` leaves the watermark to the others.
    #[must_use]
    pub const fn can_admit(&self, blocks: usize) -> bool {
        blocks.saturating_add(self.options.watermark as usize) <= self.available()
    }

    /// Opens a sequence without tokens.
    pub fn open(&mut self) -> SequenceId {
        self.tables.insert(Table::empty())
    }

    /// How many of `tokens` lie in blocks that [`Self::open_with_prefix`] would share.
    #[must_use]
    pub fn known_prefix(&self, tokens: &[Token]) -> usize {
        let mut chain = super::prefix::Hash::ROOT;
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

    /// Opens a sequence that shares everything with `parent`; whichever appends to a shared block first copies it.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`], and [`PoolError::NotResident`] where blocks of `parent` are offloaded.
    pub fn fork(&mut self, parent: SequenceId) -> Result<SequenceId, PoolError> {
        let table = self.table(parent)?.clone();
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

    /// Makes room for `tokens` more at the end of `sequence`, in blocks that nobody else reads.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] asks for a preemption: [`Self::close`] to compute the victim anew later (what it
    /// published stays cached), or [`Self::swap_out`]. [`PoolError::NotResident`] where the last block is away.
    pub fn append(&mut self, sequence: SequenceId, tokens: usize) -> Result<(), PoolError> {
        let table = self.table(sequence)?;
        let (old_len, length) = (table.entries.len(), table.tokens + tokens);
        let new = length.div_ceil(BLOCK_TOKENS) - old_len;
        let shared = match table.partial() {
            Some((_, Entry::Resident(block))) if tokens > 0 => {
                (!self.blocks.is_exclusive(block)).then_some(block)
            }
            Some((index, Entry::Offloaded(_) | Entry::Dropped)) if tokens > 0 => {
                return Err(PoolError::NotResident { sequence, index });
            }
            _ => None,
        };
        self.check_room(new + usize::from(shared.is_some()))?;
        let copy = shared.map(|_| self.allocate(sequence)).transpose()?;
        if let Err(error) = self.extend(sequence, new) {
            self.shrink(sequence, old_len);
            copy.into_iter().for_each(|block| self.release(block));
            return Err(error);
        }
        if let (Some(from), Some(to)) = (shared, copy) {
            self.replace(sequence, old_len - 1, from, to);
        }
        if let Some(table) = self.tables.get_mut(sequence) {
            table.tokens = length;
        }
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

    /// Gives up all cached content, and in high-water mode every idle extent too: what an engine does when it is
    /// put to sleep.
    pub fn trim(&mut self) {
        while self.evict() {}
        let empty: Vec<usize> = self.blocks.extents().empty().collect();
        empty.into_iter().for_each(|extent| self.give_back(extent));
        self.settle();
    }

    pub(super) fn check_room(&self, needed: usize) -> Result<(), PoolError> {
        let available = self.available();
        if needed > available { Err(PoolError::Exhausted { needed, available }) } else { Ok(()) }
    }

    /// The block at `index` of `sequence`.
    fn resident(&self, sequence: SequenceId, index: usize) -> Result<BlockId, PoolError> {
        match self.table(sequence)?.entries.get(index) {
            Some(Entry::Resident(block)) => Ok(*block),
            _ => Err(PoolError::NotResident { sequence, index }),
        }
    }

    /// A block for `sequence`: free memory that is held first, then memory that can be taken, then what the oldest
    /// cached content lies in.
    pub(super) fn allocate(&mut self, sequence: SequenceId) -> Result<BlockId, PoolError> {
        if self.blocks.extents().idle() == 0 {
            self.make_room()?;
        }
        let exhausted = PoolError::Exhausted { needed: 1, available: 0 };
        let block = self.blocks.take().ok_or(exhausted)?;
        self.emit(Event::Alloc { block, sequence });
        Ok(block)
    }

    fn make_room(&mut self) -> Result<(), PoolError> {
        let Some(extent) = self.blocks.extents().absent() else {
            self.evict_for_reuse();
            return Ok(());
        };
        match self.memory.take(self.extent(extent)) {
            Ok(()) => {
                self.blocks.extents_mut().hold(extent);
                self.emit(Event::Take { extent });
                Ok(())
            }
            // The host is short of memory; what we hold already can still serve.
            Err(error) => self.evict_for_reuse().map(|_| ()).ok_or(PoolError::Memory(error)),
        }
    }

    /// Adds `count` blocks to the end of `sequence`; on an error those it has got so far are in its table.
    fn extend(&mut self, sequence: SequenceId, count: usize) -> Result<(), PoolError> {
        for _ in 0..count {
            let block = self.allocate(sequence)?;
            if let Some(table) = self.tables.get_mut(sequence) {
                table.entries.push(Entry::Resident(block));
            }
        }
        Ok(())
    }

    /// Takes the entries from `len` on away again.
    fn shrink(&mut self, sequence: SequenceId, len: usize) {
        let Some(table) = self.tables.get_mut(sequence) else { return };
        for entry in table.entries.split_off(len) {
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

    pub(super) fn release(&mut self, block: BlockId) {
        match self.blocks.release(block) {
            Released::Shared => {}
            Released::Cached => {
                self.emit(Event::Cache { block });
                let max = self.options.cached_max.map_or(usize::MAX, |max| max as usize);
                while self.blocks.cached() > max && self.evict() {}
            }
            Released::Freed(emptied) => {
                self.emit(Event::Free { block });
                self.settle_extent(emptied);
            }
        }
    }

    /// Gives up the oldest cached content; whether there was any.
    fn evict(&mut self) -> bool {
        let evicted = self.evict_for_reuse();
        if let Some(emptied) = evicted {
            self.settle_extent(emptied);
        }
        evicted.is_some()
    }

    /// As [`Self::evict`], but keeps the extent for whoever needs a block now: its number, if it is wholly free.
    fn evict_for_reuse(&mut self) -> Option<Option<usize>> {
        let (block, hash, emptied) = self.blocks.evict()?;
        self.prefixes.remove(hash);
        self.emit(Event::Evict { block });
        self.emit(Event::Free { block });
        Some(emptied)
    }

    fn settle_extent(&mut self, emptied: Option<usize>) {
        if let Some(extent) = emptied.filter(|_| !self.options.high_water) {
            self.give_back(extent);
        }
    }

    fn give_back(&mut self, extent: usize) {
        // What the kernel refuses to take back is kept and used again: the pool's count stays true.
        let event = match self.memory.give_back(self.extent(extent)) {
            Ok(()) => {
                self.blocks.extents_mut().let_go(extent);
                Event::GiveBack { extent }
            }
            Err(_) => Event::Refused { extent },
        };
        self.emit(event);
    }

    const fn extent(&self, extent: usize) -> std::ops::Range<usize> {
        let start = extent * self.layout.extent_bytes();
        start..start + self.layout.extent_bytes()
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.counters.count(&event);
        if let Some(observer) = &mut self.observer {
            observer.observe(event);
        }
    }

    /// Every operation ends here: in debug builds the books must balance.
    pub(super) fn settle(&self) {
        #[cfg(debug_assertions)]
        if let Err(discrepancy) = self.audit() {
            debug_assert!(false, "the pool's books do not balance: {discrepancy}");
        }
    }
}
