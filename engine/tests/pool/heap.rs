//! Memory without a kernel: what Miri can look at, and what can run short.

use std::ops::Range;

use ebbtide_core::Bytes;
use ebbtide_engine::kv::{Addressable, Memory};
use ebbtide_engine::vram::VramError;
use rustix::io::Errno;

/// What nobody may read lies in memory that was given back.
const POISON: u8 = 0xa5;

/// A vector of bytes that counts what is held.
#[derive(Debug)]
pub(crate) struct Heap {
    bytes: Vec<u8>,
    held: usize,
    /// The most there is.
    pub(crate) room: usize,
    /// Takes nothing back.
    pub(crate) is_stubborn: bool,
}

impl Heap {
    pub(crate) fn of(bytes: usize) -> Self {
        Self { bytes: vec![POISON; bytes], held: 0, room: bytes, is_stubborn: false }
    }
}

impl Memory for Heap {
    fn take(&mut self, range: Range<usize>) -> Result<(), VramError> {
        if self.held + range.len() > self.room {
            return Err(VramError::Allocate { bytes: Bytes(range.len() as u64), source: Errno::NOSPC });
        }
        self.held += range.len();
        self.bytes[range].fill(0);
        Ok(())
    }

    fn give_back(&mut self, range: Range<usize>) -> Result<(), VramError> {
        if self.is_stubborn {
            return Err(VramError::Free { bytes: Bytes(range.len() as u64), source: Errno::NOMEM });
        }
        self.held -= range.len();
        self.bytes[range].fill(POISON);
        Ok(())
    }

    fn held(&self) -> Result<Bytes, VramError> {
        Ok(Bytes(self.held as u64))
    }

    fn copy(&mut self, from: Range<usize>, to: usize) {
        self.bytes.copy_within(from, to);
    }

    fn read(&self, from: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[from..from + into.len()]);
    }

    fn write(&mut self, to: usize, bytes: &[u8]) {
        self.bytes[to..to + bytes.len()].copy_from_slice(bytes);
    }
}

impl Addressable for Heap {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
