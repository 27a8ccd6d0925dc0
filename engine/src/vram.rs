//! Host memory that plays VRAM: one memory file a process, handed out in extents.
//!
//! Memory is really taken when an extent is (`fallocate`) and really given back when it is freed (a hole punched
//! into the file), so the kernel's own count of allocated blocks is what the workload holds, to the page.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ebbtide_core::Bytes;
use ebbtide_core::engine_status::VRAM_FILE;
use ebbtide_core::units::MIB;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

/// The unit a KV pool grows by: CUDA's own granularity for mapped memory (`cuMemGetAllocationGranularity`) is 2 MiB.
pub const EXTENT: Bytes = Bytes(2 * MIB);

/// Memory could not be taken or given back.
#[derive(Debug, thiserror::Error)]
pub enum VramError {
    /// No memory file could be made.
    #[error("no memory file can be made here; a kernel of 3.17 or newer that permits memfd_create is needed")]
    Create(#[source] Errno),
    /// Addresses could not be had.
    #[error(
        "{bytes} of address space could not be mapped; make the pool smaller, or raise the limit on virtual memory (ulimit -v)"
    )]
    Map {
        /// How much was asked for.
        bytes: Bytes,
        /// What the kernel said.
        source: Errno,
    },
    /// The memory is not to be had.
    #[error("{bytes} could not be allocated; free host memory, or raise the memory limit of this cgroup")]
    Allocate {
        /// How much was asked for.
        bytes: Bytes,
        /// What the kernel said.
        source: Errno,
    },
    /// Freed memory could not be given back.
    #[error("{bytes} could not be given back to the host; end this process to release it")]
    Free {
        /// How much was to be freed.
        bytes: Bytes,
        /// What the kernel said.
        source: Errno,
    },
    /// The kernel would not tell how much is allocated.
    #[error("the kernel does not tell how much memory is allocated; mount /proc")]
    Count(#[source] Errno),
}

/// The memory of one workload.
#[derive(Debug)]
pub struct Vram {
    file: MemoryFile,
    extents: Extents,
}

/// A memory file whose pages are taken and given back by their place in it.
#[derive(Debug)]
pub struct MemoryFile(OwnedFd);

impl MemoryFile {
    /// A file that grows as it is taken.
    ///
    /// # Errors
    /// [`VramError::Create`] where the kernel refuses.
    pub fn create() -> Result<Self, VramError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        rustix::fs::memfd_create(VRAM_FILE, flags).map(Self).map_err(VramError::Create)
    }

    /// A file of `bytes`, all of them a hole, sealed so that nobody can make it smaller: an address in a mapping of
    /// it never faults.
    ///
    /// # Errors
    /// [`VramError::Create`] where the kernel refuses.
    pub fn sized(bytes: Bytes) -> Result<Self, VramError> {
        let file = Self::create()?;
        rustix::fs::ftruncate(&file.0, bytes.0).map_err(VramError::Create)?;
        rustix::fs::fcntl_add_seals(&file.0, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(VramError::Create)?;
        Ok(file)
    }

    /// Takes the pages of `range`, zeroed where they were a hole.
    ///
    /// # Errors
    /// [`VramError::Allocate`] where the host has no more; nothing is taken then.
    pub fn take(&self, range: Range<u64>) -> Result<(), VramError> {
        let len = range.end - range.start;
        retrying(|| rustix::fs::fallocate(&self.0, FallocateFlags::empty(), range.start, len))
            .map_err(|source| VramError::Allocate { bytes: Bytes(len), source })
    }

    /// Gives the pages of `range` back to the host.
    ///
    /// # Errors
    /// [`VramError::Free`] where the kernel refuses.
    pub fn give_back(&self, range: Range<u64>) -> Result<(), VramError> {
        let len = range.end - range.start;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retrying(|| rustix::fs::fallocate(&self.0, hole, range.start, len))
            .map_err(|source| VramError::Free { bytes: Bytes(len), source })
    }

    /// What the kernel says is allocated.
    ///
    /// # Errors
    /// [`VramError::Count`].
    pub fn allocated(&self) -> Result<Bytes, VramError> {
        let file = rustix::fs::fstat(&self.0).map_err(VramError::Count)?;
        // st_blocks counts in units of 512 bytes (stat(2)).
        Ok(Bytes(u64::try_from(file.st_blocks).unwrap_or(0).saturating_mul(512)))
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A piece of [`Vram`]. To drop one without [`Vram::free`] is to forget that it is held: exactly what a leak is.
#[derive(Debug, PartialEq, Eq)]
pub struct Extent(Range<u64>);

impl Extent {
    /// Its size.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.0.end - self.0.start)
    }
}

impl Vram {
    /// An empty memory file.
    ///
    /// # Errors
    /// [`VramError::Create`] where the kernel refuses.
    pub fn create() -> Result<Self, VramError> {
        Ok(Self { file: MemoryFile::create()?, extents: Extents::default() })
    }

    /// Takes `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// [`VramError::Allocate`] where the host has no more; nothing is taken then.
    pub fn allocate(&mut self, bytes: Bytes) -> Result<Extent, VramError> {
        let extent = self.extents.take(whole_pages(bytes).0);
        match self.file.take(extent.0.clone()) {
            Ok(()) => Ok(extent),
            Err(error) => {
                self.extents.give_back(extent);
                Err(error)
            }
        }
    }

    /// Gives `extent` back to the host.
    ///
    /// # Errors
    /// [`VramError::Free`] where the kernel refuses.
    pub fn free(&mut self, extent: Extent) -> Result<(), VramError> {
        self.file.give_back(extent.0.clone())?;
        self.extents.give_back(extent);
        Ok(())
    }

    /// What the kernel says is allocated.
    ///
    /// # Errors
    /// [`VramError::Count`].
    pub fn allocated(&self) -> Result<Bytes, VramError> {
        self.file.allocated()
    }
}

/// `bytes` rounded up to whole pages, at least one.
#[must_use]
pub fn whole_pages(bytes: Bytes) -> Bytes {
    let page = rustix::param::page_size() as u64;
    Bytes(bytes.0.max(1).next_multiple_of(page))
}

/// A signal can interrupt `fallocate` on a memory file (mm/shmem.c gives what it had taken back).
fn retrying(mut call: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Which parts of the file are handed out: first fit, the file grows where no gap is large enough.
#[derive(Debug, Default)]
struct Extents {
    /// Gaps by offset; no two touch each other or the end.
    gaps: BTreeMap<u64, u64>,
    end: u64,
}

impl Extents {
    fn take(&mut self, len: u64) -> Extent {
        let Some((&offset, &gap)) = self.gaps.iter().find(|(_, gap)| **gap >= len) else {
            let offset = self.end;
            self.end += len;
            return Extent(offset..offset + len);
        };
        self.gaps.remove(&offset);
        if gap > len {
            self.gaps.insert(offset + len, gap - len);
        }
        Extent(offset..offset + len)
    }

    fn give_back(&mut self, extent: Extent) {
        let mut free = extent.0;
        if let Some((&before, &gap)) = self.gaps.range(..free.start).next_back()
            && before + gap == free.start
        {
            self.gaps.remove(&before);
            free.start = before;
        }
        if let Some(gap) = self.gaps.remove(&free.end) {
            free.end += gap;
        }
        if free.end == self.end {
            self.end = free.start;
        } else {
            self.gaps.insert(free.start, free.end - free.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernel_counts_what_is_taken_freed_and_forgotten() {
        let mut vram = Vram::create().unwrap();
        let page = rustix::param::page_size() as u64;
        let weights = vram.allocate(Bytes::from_mib(8)).unwrap();
        let block = vram.allocate(EXTENT).unwrap();
        let _forgotten = vram.allocate(Bytes(1)).unwrap();
        assert_eq!(vram.allocated().unwrap(), Bytes(10 * MIB + page));
        vram.free(block).unwrap();
        assert_eq!(vram.allocated().unwrap(), Bytes(8 * MIB + page));
        vram.free(weights).unwrap();
        assert_eq!(vram.allocated().unwrap(), Bytes(page), "what was forgotten stays");
    }

    proptest! {
        #[test]
        fn extents_never_overlap_and_all_returns_to_nothing(
            steps in proptest::collection::vec((any::<bool>(), 1..64u64, any::<prop::sample::Index>()), 1..120),
        ) {
            let mut extents = Extents::default();
            let mut held: Vec<Extent> = Vec::new();
            for (take, len, pick) in steps {
                if take || held.is_empty() {
                    held.push(extents.take(len));
                } else {
                    let extent = held.swap_remove(pick.index(held.len()));
                    extents.give_back(extent);
                }
                let mut spans: Vec<(u64, u64)> = held.iter().map(|e| (e.0.start, e.bytes().0)).collect();
                spans.extend(extents.gaps.iter().map(|(offset, len)| (*offset, *len)));
                spans.sort_unstable();
                let end = spans.iter().try_fold(0, |at, (offset, len)| (at == *offset).then_some(at + len));
                prop_assert_eq!(end, Some(extents.end), "extents and gaps tile the file: {:?}", spans);
            }
            for extent in held {
                extents.give_back(extent);
            }
            prop_assert_eq!((extents.end, extents.gaps.len()), (0, 0));
        }
    }
}
