//! Blocks that leave the pool and come back: a whole sequence as bytes, or cold blocks of it by the host file.

use super::event::Event;
use super::host_file::{HostFile, Slot};
use super::layout::BlockId;
use super::memory::Memory;
use super::pool::{Pool, PoolError};
use super::prefix::Hash;
use super::table::{Entry, SequenceId, Table};

/// A sequence that was taken out of a pool, with everything it knew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swapped {
    table: Table,
    /// Of each block that was in the pool: by what others found it.
    hashes: Vec<Option<Hash>>,
    bytes: Vec<u8>,
}

impl Swapped {
    /// What its blocks hold, one behind the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its tokens.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.table.tokens()
    }

    /// Blocks that [`Pool::swap_in`] needs at most.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.hashes.len()
    }
}

impl<M: Memory> Pool<M> {
    /// Ends `sequence` and returns what its blocks hold, to go on with it later by [`Self::swap_in`].
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`], and [`PoolError::NotResident`] where some of it is in the host file: restore
    /// it, or offload the rest too.
    pub fn swap_out(&mut self, sequence: SequenceId) -> Result<Swapped, PoolError> {
        let table = self.table(sequence)?.clone();
        if let Some((index, _)) = table.offloaded().next() {
            return Err(PoolError::NotResident { sequence, index });
        }
        let len = self.layout.block_bytes();
        let hashes: Vec<_> = table.resident().map(|(_, block)| self.blocks.hash(block)).collect();
        let mut bytes = vec![0; hashes.len() * len];
        for ((_, block), into) in table.resident().zip(bytes.chunks_exact_mut(len)) {
            self.memory.read(self.layout.block(block).start, into);
        }
        self.close(sequence)?;
        Ok(Swapped { table, hashes, bytes })
    }

    /// Opens a sequence as it was when it was swapped out. Blocks that others still find are shared, the rest is
    /// written anew.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] where there is no room for it now.
    pub fn swap_in(&mut self, swapped: &Swapped) -> Result<SequenceId, PoolError> {
        let mut table = swapped.table.clone();
        // Publishing begins anew: blocks that were evicted meanwhile can be found again.
        (table.chain, table.published) = (Hash::ROOT, 0);
        let places: Vec<usize> = table.resident().map(|(index, _)| index).collect();
        table.entries.iter_mut().for_each(|entry| *entry = Entry::Dropped);
        let sequence = self.tables.insert(table);
        self.share_again(sequence, &places, &swapped.hashes);
        if let Err(error) = self.write_rest(sequence, &places, &swapped.bytes) {
            self.close(sequence)?;
            return Err(error);
        }
        self.settle();
        Ok(sequence)
    }

    fn share_again(&mut self, sequence: SequenceId, places: &[usize], hashes: &[Option<Hash>]) {
        for (index, hash) in places.iter().zip(hashes) {
            if let Some(block) = hash.and_then(|hash| self.prefixes.block(hash)) {
                self.blocks.retain(block);
                self.emit(Event::Share { block, sequence });
                self.set_entry(sequence, *index, Entry::Resident(block));
            }
        }
    }

    fn write_rest(&mut self, sequence: SequenceId, places: &[usize], bytes: &[u8]) -> Result<(), PoolError> {
        let table = self.table(sequence)?;
        let missing = |index: &usize| table.entries[*index] == Entry::Dropped;
        let rest: Vec<(usize, &[u8])> = places
            .iter()
            .copied()
            .zip(bytes.chunks_exact(self.layout.block_bytes()))
            .filter(|(index, _)| missing(index))
            .collect();
        self.check_room(rest.len())?;
        for (index, content) in rest {
            let block = self.allocate(sequence)?;
            self.memory.write(self.layout.block(block).start, content);
            self.set_entry(sequence, index, Entry::Resident(block));
        }
        Ok(())
    }

    /// Sends the block at `index` of `sequence` to the host file; whether it went. One that others refer to stays:
    /// to send it away would free nothing. Others find it no more by its content.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`], [`PoolError::NoHostFile`], and where the file fails.
    pub fn offload(&mut self, sequence: SequenceId, index: usize) -> Result<bool, PoolError> {
        let entry = self.table(sequence)?.entries.get(index).copied();
        let Some(Entry::Resident(block)) = entry else { return Ok(false) };
        if self.blocks.references(block) > 1 {
            return Ok(false);
        }
        let file = self.host_file.as_mut().ok_or(PoolError::NoHostFile)?;
        self.passage.resize(self.layout.block_bytes(), 0);
        self.memory.read(self.layout.block(block).start, &mut self.passage);
        let slot = file.put(&self.passage)?;
        self.unpublish(block);
        if let Some(table) = self.tables.get_mut(sequence) {
            table.entries[index] = Entry::Offloaded(slot);
            (table.chain, table.published) = (Hash::ROOT, 0);
        }
        self.emit(Event::Offload { block, slot, sequence });
        self.release(block);
        self.settle();
        Ok(true)
    }

    /// Sends all blocks of `sequence` but the newest `keep` to the host file, as [`Self::offload`] does; how many
    /// went.
    ///
    /// # Errors
    /// As [`Self::offload`]; blocks that went before stay where they are.
    pub fn offload_cold(&mut self, sequence: SequenceId, keep: usize) -> Result<usize, PoolError> {
        let cold = self.table(sequence)?.entries.len().saturating_sub(keep);
        let mut sent = 0;
        for index in 0..cold {
            sent += usize::from(self.offload(sequence, index)?);
        }
        Ok(sent)
    }

    /// Brings all blocks of `sequence` back from the host file; how many.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] where there is no room for all of them; where the file fails, blocks that came
    /// before stay in the pool.
    pub fn restore(&mut self, sequence: SequenceId) -> Result<usize, PoolError> {
        let away: Vec<(usize, Slot)> = self.table(sequence)?.offloaded().collect();
        self.check_room(away.len())?;
        for (index, slot) in &away {
            let block = self.allocate(sequence)?;
            if let Err(error) = self.fetch(*slot, block) {
                self.release(block);
                return Err(error);
            }
            self.set_entry(sequence, *index, Entry::Resident(block));
            self.free_slot(*slot);
            self.emit(Event::Restore { slot: *slot, block, sequence });
        }
        self.settle();
        Ok(away.len())
    }

    fn fetch(&mut self, slot: Slot, block: BlockId) -> Result<(), PoolError> {
        let file = self.host_file.as_mut().ok_or(PoolError::NoHostFile)?;
        self.passage.resize(self.layout.block_bytes(), 0);
        file.get(slot, &mut self.passage)?;
        self.memory.write(self.layout.block(block).start, &self.passage);
        Ok(())
    }

    pub(super) fn free_slot(&mut self, slot: Slot) {
        self.host_file.iter_mut().for_each(|file: &mut HostFile| file.free(slot));
    }

    fn unpublish(&mut self, block: BlockId) {
        if let Some(hash) = self.blocks.set_hash(block, None) {
            self.prefixes.remove(hash);
        }
    }

    fn set_entry(&mut self, sequence: SequenceId, index: usize, entry: Entry) {
        if let Some(table) = self.tables.get_mut(sequence) {
            table.entries[index] = entry;
        }
    }
}
