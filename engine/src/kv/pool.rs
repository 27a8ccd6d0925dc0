//! The pool: who gets which block, shares it, copies it, and gives it up.

use std::collections::HashMap;

use ebbtide_core::Bytes;

use super::blocks::Blocks;
use super::event::{Counters, Observer};
use super::format::Format;
use super::host_file::{HostFile, HostFileError, Traffic};
use super::layout::{BlockId, Geometry, Layout, LayoutError};
use super::memory::{Backing, HostMemory, Memory};
use super::prefix::Prefixes;
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
    pub(super) observer: Option<Box<dyn Observer>>,
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

    /// The block at `index` of `sequence`.
    pub(super) fn resident(&self, sequence: SequenceId, index: usize) -> Result<BlockId, PoolError> {
        match self.table(sequence)?.entries.get(index) {
            Some(Entry::Resident(block)) => Ok(*block),
            _ => Err(PoolError::NotResident { sequence, index }),
        }
    }
}
