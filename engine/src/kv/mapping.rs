//! The one place of the pool where memory is mapped by hand.
//!
//! What every block below rests on:
//!
//! - `base..base + len` is mapped readable and writable from the constructor to `drop`, by this value alone: the
//!   kernel chose the addresses, nothing else unmaps or re-protects them, and `len` is at most `isize::MAX`.
//! - Behind a file there is always a page: it is as long as the mapping and sealed against shrinking, both checked
//!   here, so that no access ends in SIGBUS. Whoever writes to the file by another way (a debugger through
//!   `/proc/PID/fd`) changes bytes, which every pattern of bits is fine for.
//! - Pages that were never written read as zero, so every byte is initialised.
//! - Bytes change only through `&mut self`; a slice borrows from it.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// Bytes of address space and what lies behind them.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// What was mapped in all, alignment and guards included.
    whole: NonNull<c_void>,
    whole_len: usize,
}

// SAFETY: the mapping belongs to this value and to no thread; access follows the borrow rules of `&self` and
// `&mut self` like that of a `Box<[u8]>`.
unsafe impl Send for Mapping {}
// SAFETY: `&self` only reads, and nothing else writes meanwhile (see the module).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `len` bytes of the memory file `file`, shared with it.
    ///
    /// # Errors
    /// `EINVAL` where the file is shorter or not sealed against shrinking; otherwise what the kernel says.
    pub(super) fn of_file(file: impl AsFd, len: usize) -> Result<Self, Errno> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let size = rustix::fs::fstat(&file)?.st_size;
        if !seals.contains(SealFlags::SHRINK) || usize::try_from(size).is_ok_and(|size| size < len) {
            return Err(Errno::INVAL);
        }
        checked(len)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let whole = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let whole = NonNull::new(whole).ok_or(Errno::FAULT)?;
        Ok(Self { base: whole.cast(), len, whole, whole_len: len })
    }

    /// `len` bytes of anonymous memory that begin at a multiple of `align`, a power of two not below the page size,
    /// with huge pages where the kernel has them. Inaccessible pages stand on either side, so that `smaps` never
    /// joins it with a neighbour.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` where `len` is no multiple of `align`.
    pub(super) fn anonymous(len: usize, align: usize) -> Result<Self, Errno> {
        let whole_len = len.checked_add(align.saturating_mul(2)).ok_or(Errno::NOMEM)?;
        checked(whole_len)?;
        if !align.is_power_of_two() || !len.is_multiple_of(align) {
            return Err(Errno::INVAL);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let whole =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), whole_len, ProtFlags::empty(), flags) }?;
        let whole = NonNull::new(whole).ok_or(Errno::FAULT)?;
        // At least one page before it, and as `len` is `2 * align` shorter than the whole, one behind it.
        let offset = align - whole.as_ptr().addr() % align;
        // SAFETY: `offset <= align`, and `whole_len` is `len + 2 * align`: the result lies inside the mapping.
        let base = unsafe { whole.cast::<u8>().add(offset) };
        // Owned from here on: whatever fails below, `drop` unmaps it.
        let mapping = Self { base, len, whole, whole_len };
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: `base..base + len` lies inside our own mapping and nobody has a reference into it yet.
        unsafe { rustix::mm::mprotect(base.as_ptr().cast(), len, protection) }?;
        // SAFETY: as above; the advice changes no content. A kernel without huge pages refuses it and goes on with
        // small ones.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Ok(mapping)
    }

    /// All of it.
    pub(super) const fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, readable and initialised for as long as `self` is borrowed (see the module).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// All of it, to write to.
    pub(super) const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped, writable and initialised, and `&mut self` is the only way to it (see the module).
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    /// Forgets what anonymous memory in `start..start + len` holds, whole pages, and returns it to the kernel: it
    /// reads as zero from now on.
    ///
    /// # Errors
    /// `EINVAL` where that is outside; otherwise what the kernel says.
    pub(super) fn forget(&mut self, start: usize, len: usize) -> Result<(), Errno> {
        let bytes =
            self.bytes_mut().get_mut(start..).and_then(|bytes| bytes.get_mut(..len)).ok_or(Errno::INVAL)?;
        // SAFETY: the range is inside the mapping and exclusively borrowed; zero is a value of every byte.
        unsafe { rustix::mm::madvise(bytes.as_mut_ptr().cast(), len, Advice::LinuxDontNeed) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns exactly these addresses and no slice of them outlives it. Nothing can be done
        // about a failure, which only wrong arguments cause.
        let _ = unsafe { rustix::mm::munmap(self.whole.as_ptr(), self.whole_len) };
    }
}

/// A length that a slice may have (`std::slice::from_raw_parts`) and the kernel can map.
const fn checked(len: usize) -> Result<(), Errno> {
    if len == 0 || len > isize::MAX as usize { Err(Errno::INVAL) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vram::MemoryFile;
    use ebbtide_core::Bytes;

    const HUGE: usize = 2 << 20;

    #[test]
    fn a_file_that_could_shrink_or_is_short_is_refused() {
        let open = MemoryFile::create().unwrap();
        open.take(0..4096).unwrap();
        assert_eq!(Mapping::of_file(&open, 4096).unwrap_err(), Errno::INVAL);
        let sized = MemoryFile::sized(Bytes(4096)).unwrap();
        assert_eq!(Mapping::of_file(&sized, 8192).unwrap_err(), Errno::INVAL);
        assert_eq!(Mapping::of_file(&sized, 0).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn a_mapping_is_its_file() {
        let file = MemoryFile::sized(Bytes(8192)).unwrap();
        let mut mapping = Mapping::of_file(&file, 8192).unwrap();
        mapping.bytes_mut()[5000] = 7;
        assert_eq!((mapping.bytes()[5000], mapping.bytes()[4999]), (7, 0));
        file.give_back(4096..8192).unwrap();
        assert_eq!(mapping.bytes()[5000], 0);
    }

    #[test]
    fn anonymous_memory_is_aligned_and_forgets_what_it_is_told_to() {
        let mut mapping = Mapping::anonymous(2 * HUGE, HUGE).unwrap();
        assert_eq!(mapping.bytes().as_ptr().addr() % HUGE, 0);
        mapping.bytes_mut().fill(9);
        mapping.forget(HUGE, HUGE).unwrap();
        assert_eq!((mapping.bytes()[HUGE - 1], mapping.bytes()[HUGE]), (9, 0));
        assert_eq!(mapping.forget(2 * HUGE, 4096), Err(Errno::INVAL));
        assert_eq!(Mapping::anonymous(4096, HUGE).unwrap_err(), Errno::INVAL);
    }
}
