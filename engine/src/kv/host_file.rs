//! Blocks that were sent away from the pool into a file on the host.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebbtide_core::Bytes;

/// A block's place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(super) u32);

/// The host file cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum HostFileError {
    /// It could not be made.
    #[error(
        "no file for offloaded blocks can be made in {dir}; check that it exists, is writable and has room"
    )]
    Create {
        /// Where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Every slot is taken.
    #[error("all {slots} slots of the host file are taken; allow more, or preempt by recomputing")]
    Full {
        /// How many there are.
        slots: u32,
    },
    /// A block could not be written.
    #[error("a block could not be written to the host file; it stays in the pool")]
    Write(#[source] io::Error),
    /// A block could not be read back.
    #[error("a block could not be read back from the host file; end the sequence and compute it anew")]
    Read(#[source] io::Error),
}

/// What offloading has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Written to the file.
    pub written: Bytes,
    /// Read back.
    pub read: Bytes,
    /// Spent writing.
    pub writing: Duration,
    /// Spent reading.
    pub reading: Duration,
}

/// A file of block images, without a name, gone with its owner. Slots are reused, lowest first.
#[derive(Debug)]
pub struct HostFile {
    file: File,
    slots: u32,
    vacant: std::collections::BTreeSet<u32>,
    /// Slots ever used; those below and not vacant are taken.
    used_to: u32,
    traffic: Traffic,
}

impl HostFile {
    /// A file in `dir` for at most `slots` blocks.
    ///
    /// # Errors
    /// [`HostFileError::Create`].
    pub fn create_in(dir: &Path, slots: u32) -> Result<Self, HostFileError> {
        let failed = |source| HostFileError::Create { dir: dir.to_owned(), source };
        let path = dir.join(format!(".ebbtide-kv-{}-{:016x}", std::process::id(), fastrand::u64(..)));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
        // Without a name, nothing is left behind however this process ends.
        std::fs::remove_file(&path).map_err(failed)?;
        Ok(Self {
            file,
            slots,
            vacant: std::collections::BTreeSet::new(),
            used_to: 0,
            traffic: Traffic::default(),
        })
    }

    /// What it has cost so far.
    #[must_use]
    pub const fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Blocks that lie in it.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.used_to as usize - self.vacant.len()
    }

    /// Writes `block`; all blocks of one file have one size.
    pub(super) fn put(&mut self, block: &[u8]) -> Result<Slot, HostFileError> {
        let slot = self.vacant.first().copied().unwrap_or(self.used_to);
        if slot >= self.slots {
            return Err(HostFileError::Full { slots: self.slots });
        }
        let begun = Instant::now();
        self.file.write_all_at(block, offset(slot, block.len())).map_err(HostFileError::Write)?;
        self.traffic.writing += begun.elapsed();
        self.traffic.written = self.traffic.written.saturating_add(Bytes(block.len() as u64));
        if !self.vacant.remove(&slot) {
            self.used_to += 1;
        }
        Ok(Slot(slot))
    }

    /// Reads the block in `slot`, which stays taken.
    pub(super) fn get(&mut self, slot: Slot, block: &mut [u8]) -> Result<(), HostFileError> {
        let begun = Instant::now();
        let at = offset(slot.0, block.len());
        self.file.read_exact_at(block, at).map_err(HostFileError::Read)?;
        self.traffic.reading += begun.elapsed();
        self.traffic.read = self.traffic.read.saturating_add(Bytes(block.len() as u64));
        Ok(())
    }

    /// Lets go of `slot`.
    pub(super) fn free(&mut self, slot: Slot) {
        self.vacant.insert(slot.0);
    }
}

fn offset(slot: u32, block: usize) -> u64 {
    u64::from(slot) * block as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_as_they_went_and_slots_are_bounded_and_reused() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = HostFile::create_in(dir.path(), 2).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
        let (first, second) = (file.put(&[1; 64]).unwrap(), file.put(&[2; 64]).unwrap());
        assert!(matches!(file.put(&[3; 64]), Err(HostFileError::Full { slots: 2 })));
        let mut block = [0; 64];
        file.get(first, &mut block).unwrap();
        assert_eq!((block, file.blocks()), ([1; 64], 2));
        file.free(first);
        assert_eq!((file.put(&[4; 64]).unwrap(), file.blocks()), (first, 2));
        file.get(second, &mut block).unwrap();
        assert_eq!(block, [2; 64]);
        assert_eq!((file.traffic().written, file.traffic().read), (Bytes(192), Bytes(128)));
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = HostFile::create_in(Path::new("/nowhere/at/all"), 1).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
    }
}
