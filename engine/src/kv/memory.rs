//! What the pool's blocks lie in: the seam behind which another kind of memory can stand.

use std::ops::Range;

use ebbtide_core::Bytes;
use rustix::io::Errno;

use super::mapping::Mapping;
use crate::vram::{MemoryFile, VramError};

/// Memory that is held piece by piece. Offsets are bytes from its start.
///
/// Only what is held has content; it is zero when it is taken.
pub trait Memory {
    /// Takes `range`, whole granules.
    ///
    /// # Errors
    /// Where there is no more; nothing is taken then.
    fn take(&mut self, range: Range<usize>) -> Result<(), VramError>;

    /// Gives `range` back to where it came from.
    ///
    /// # Errors
    /// Where that is refused; it stays held then.
    fn give_back(&mut self, range: Range<usize>) -> Result<(), VramError>;

    /// What its owner, the kernel or a driver, says is held.
    ///
    /// # Errors
    /// Where it does not tell.
    fn held(&self) -> Result<Bytes, VramError>;

    /// Copies what `from` holds to `to`.
    fn copy(&mut self, from: Range<usize>, to: usize);

    /// Reads `into.len()` bytes at `from`.
    fn read(&self, from: usize, into: &mut [u8]);

    /// Writes `bytes` at `to`.
    fn write(&mut self, to: usize, bytes: &[u8]);
}

/// Memory that this process can look at.
pub trait Addressable: Memory {
    /// All of it, held or not. To read what is not held can take it: look at blocks of a table only.
    fn bytes(&self) -> &[u8];

    /// All of it, to write to; the same holds.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// What host memory is backed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backing {
    /// A memory file named `ebbtide-vram`, which a probe measures through `/proc/PID/fd`.
    #[default]
    File,
    /// Anonymous memory with huge pages, which a probe measures through `/proc/PID/smaps`. Faster to walk; memory
    /// files get no huge pages where `shmem_enabled` is `never`, as it usually is.
    Anonymous,
}

impl Backing {
    /// What it is taken and given back by, in bytes: a page, or a huge page (2 MiB on x86-64 and on arm64 with
    /// 4 KiB pages), because touching any of one takes all of it.
    #[must_use]
    pub fn granule(self) -> usize {
        match self {
            Self::File => rustix::param::page_size(),
            Self::Anonymous => HUGE_PAGE,
        }
    }
}

const HUGE_PAGE: usize = 2 << 20;

/// Where a pool's memory lies, for whoever measures it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlace {
    /// What backs it.
    pub backing: Backing,
    /// Its addresses in this process.
    pub addresses: Range<usize>,
}

/// One mapping of host memory.
#[derive(Debug)]
pub struct HostMemory {
    mapping: Mapping,
    /// Behind the mapping, where it is not anonymous.
    file: Option<MemoryFile>,
}

impl HostMemory {
    /// Address space for `bytes`, rounded up to whole granules; nothing is held yet.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn reserve(bytes: usize, backing: Backing) -> Result<Self, VramError> {
        let refused = |source| VramError::Map { bytes: Bytes(bytes as u64), source };
        let granule = backing.granule();
        let len = bytes.max(1).checked_next_multiple_of(granule).ok_or(refused(Errno::NOMEM))?;
        match backing {
            Backing::File => {
                let file = MemoryFile::sized(Bytes(len as u64))?;
                let mapping = Mapping::of_file(&file, len).map_err(refused)?;
                Ok(Self { mapping, file: Some(file) })
            }
            Backing::Anonymous => {
                let mapping = Mapping::anonymous(len, granule).map_err(refused)?;
                Ok(Self { mapping, file: None })
            }
        }
    }

    /// Where it lies.
    #[must_use]
    pub fn place(&self) -> MemoryPlace {
        let start = self.bytes().as_ptr().addr();
        let backing = if self.file.is_some() { Backing::File } else { Backing::Anonymous };
        MemoryPlace { backing, addresses: start..start + self.bytes().len() }
    }
}

impl Addressable for HostMemory {
    fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.mapping.bytes_mut()
    }
}

impl Memory for HostMemory {
    fn take(&mut self, range: Range<usize>) -> Result<(), VramError> {
        if let Some(file) = &self.file {
            return file.take(range.start as u64..range.end as u64);
        }
        // Anonymous memory is taken by touching it. A kernel that has none kills a process instead of refusing, so
        // there is no error to tell of: how much there may be is the pool's capacity to say.
        let page = rustix::param::page_size();
        for byte in self.bytes_mut()[range].iter_mut().step_by(page) {
            // Zero already, but a page that was only read is not taken.
            *std::hint::black_box(byte) = 0;
        }
        Ok(())
    }

    fn give_back(&mut self, range: Range<usize>) -> Result<(), VramError> {
        if let Some(file) = &self.file {
            return file.give_back(range.start as u64..range.end as u64);
        }
        let len = range.len();
        self.mapping
            .forget(range.start, len)
            .map_err(|source| VramError::Free { bytes: Bytes(len as u64), source })
    }

    fn held(&self) -> Result<Bytes, VramError> {
        if let Some(file) = &self.file {
            return file.allocated();
        }
        let failed =
            |error: std::io::Error| VramError::Count(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let text = std::fs::read_to_string("/proc/self/smaps").map_err(failed)?;
        Ok(resident(&text, &self.place().addresses))
    }

    fn copy(&mut self, from: Range<usize>, to: usize) {
        self.bytes_mut().copy_within(from, to);
    }

    fn read(&self, from: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes()[from..from + into.len()]);
    }

    fn write(&mut self, to: usize, bytes: &[u8]) {
        self.bytes_mut()[to..to + bytes.len()].copy_from_slice(bytes);
    }
}

/// The `Rss` of the mappings inside `addresses`, from the text of `/proc/PID/smaps` (proc(5)), which counts in KiB
/// and calls them kB.
fn resident(smaps: &str, addresses: &Range<usize>) -> Bytes {
    let mut is_ours = false;
    let mut kib = 0u64;
    for line in smaps.lines() {
        if let Some(mapped) = mapped_range(line) {
            is_ours = addresses.start <= mapped.start && mapped.end <= addresses.end;
        } else if is_ours && let Some(rss) = line.strip_prefix("Rss:") {
            kib += rss.trim().strip_suffix(" kB").and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Bytes(kib * 1024)
}

/// The addresses in a line that opens a mapping: `7f00-7f10 rw-p ...`.
fn mapped_range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: usize = 2 << 20;

    #[test]
    fn what_is_taken_is_held_and_zero_again_after_it_was_given_back() {
        for backing in [Backing::File, Backing::Anonymous] {
            let mut memory = HostMemory::reserve(4 * EXTENT, backing).unwrap();
            assert_eq!(memory.held().unwrap(), Bytes::ZERO);
            memory.take(0..EXTENT).unwrap();
            memory.take(2 * EXTENT..3 * EXTENT).unwrap();
            memory.write(2 * EXTENT, b"kept");
            memory.copy(2 * EXTENT..2 * EXTENT + 4, 10);
            assert_eq!(memory.held().unwrap(), Bytes(2 * EXTENT as u64), "{backing:?}");
            memory.give_back(2 * EXTENT..3 * EXTENT).unwrap();
            assert_eq!(memory.held().unwrap(), Bytes(EXTENT as u64), "{backing:?}");
            memory.take(2 * EXTENT..3 * EXTENT).unwrap();
            let mut read = [1; 4];
            memory.read(2 * EXTENT, &mut read);
            assert_eq!((read, &memory.bytes()[10..14]), ([0; 4], b"kept".as_slice()));
        }
    }

    #[test]
    fn only_our_own_mappings_are_counted() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0\nSize: 8 kB\nRss: 4 kB\n\
                     3000-4000 ---p 00000000 00:00 0\nRss: 9 kB\n";
        assert_eq!(resident(smaps, &(0x1000..0x3000)), Bytes(4096));
        assert_eq!(resident(smaps, &(0x2000..0x3000)), Bytes::ZERO);
    }
}
