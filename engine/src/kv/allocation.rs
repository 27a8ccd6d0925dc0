//! Where blocks come from and go to: held memory, memory that can be taken, cached content that is given up.

use super::blocks::Released;
use super::event::Event;
use super::layout::BlockId;
use super::memory::Memory;
use super::pool::{Pool, PoolError};
use super::table::SequenceId;

impl<M: Memory> Pool<M> {
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
