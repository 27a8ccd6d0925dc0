//! What lies in the blocks, for pools in memory that this process can address.

use super::BLOCK_TOKENS;
use super::layout::{BlockId, Row};
use super::memory::Addressable;
use super::pool::{Pool, PoolError};
use super::table::SequenceId;

impl<M: Addressable> Pool<M> {
    /// All of its memory; [`Self::layout`] says where a block lies. Only blocks of tables have content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
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
