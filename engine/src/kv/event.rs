//! What happens in a pool, as it happens.

use super::host_file::Slot;
use super::layout::BlockId;
use super::table::SequenceId;

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A free block was given to a sequence.
    Alloc {
        /// The block.
        block: BlockId,
        /// To whom.
        sequence: SequenceId,
    },
    /// A block is free again.
    Free {
        /// The block.
        block: BlockId,
    },
    /// A sequence refers to a block that held its content already.
    Share {
        /// The block.
        block: BlockId,
        /// Who refers to it now.
        sequence: SequenceId,
    },
    /// A block nobody refers to keeps its content for others to find.
    Cache {
        /// The block.
        block: BlockId,
    },
    /// A shared block was copied, because a sequence wants to write to it.
    Copy {
        /// The block that stays with the others.
        from: BlockId,
        /// Its copy.
        to: BlockId,
        /// Who writes.
        sequence: SequenceId,
    },
    /// Cached content was given up.
    Evict {
        /// The block.
        block: BlockId,
    },
    /// A sequence's window moved past a block.
    Drop {
        /// The block.
        block: BlockId,
        /// Whose.
        sequence: SequenceId,
    },
    /// A block went to the host file.
    Offload {
        /// The block.
        block: BlockId,
        /// Its place in the file.
        slot: Slot,
        /// Whose.
        sequence: SequenceId,
    },
    /// A block came back from the host file.
    Restore {
        /// Its place in the file, vacant now.
        slot: Slot,
        /// The block.
        block: BlockId,
        /// Whose.
        sequence: SequenceId,
    },
    /// An extent was taken from the kernel.
    Take {
        /// Its number.
        extent: usize,
    },
    /// An extent went back to the kernel.
    GiveBack {
        /// Its number.
        extent: usize,
    },
    /// An extent should have gone back to the kernel, which refused; the pool keeps it.
    Refused {
        /// Its number.
        extent: usize,
    },
}

/// Is told of every event, in order, while it happens: it must be quick.
pub trait Observer: Send + Sync {
    /// `event` has happened.
    fn observe(&mut self, event: Event);
}

impl<F: FnMut(Event) + Send + Sync> Observer for F {
    fn observe(&mut self, event: Event) {
        self(event);
    }
}

/// How often each event has happened, and what prefix sharing was asked and gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// [`Event::Alloc`].
    pub allocated: u64,
    /// [`Event::Free`].
    pub freed: u64,
    /// [`Event::Share`].
    pub shared: u64,
    /// [`Event::Cache`].
    pub cached: u64,
    /// [`Event::Copy`].
    pub copied: u64,
    /// [`Event::Evict`].
    pub evicted: u64,
    /// [`Event::Drop`].
    pub dropped: u64,
    /// [`Event::Offload`].
    pub offloaded: u64,
    /// [`Event::Restore`].
    pub restored: u64,
    /// [`Event::Take`].
    pub taken: u64,
    /// [`Event::GiveBack`].
    pub given_back: u64,
    /// [`Event::Refused`].
    pub refused: u64,
    /// Tokens of prefixes that were looked for.
    pub prefix_queries: u64,
    /// Tokens of them that were found.
    pub prefix_hits: u64,
}

impl Counters {
    pub(super) const fn count(&mut self, event: &Event) {
        let counter = match event {
            Event::Alloc { .. } => &mut self.allocated,
            Event::Free { .. } => &mut self.freed,
            Event::Share { .. } => &mut self.shared,
            Event::Cache { .. } => &mut self.cached,
            Event::Copy { .. } => &mut self.copied,
            Event::Evict { .. } => &mut self.evicted,
            Event::Drop { .. } => &mut self.dropped,
            Event::Offload { .. } => &mut self.offloaded,
            Event::Restore { .. } => &mut self.restored,
            Event::Take { .. } => &mut self.taken,
            Event::GiveBack { .. } => &mut self.given_back,
            Event::Refused { .. } => &mut self.refused,
        };
        *counter += 1;
    }
}
