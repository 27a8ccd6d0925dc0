//! The pointers through which callers receive their answers, and the records that go through them.
//!
//! The pointer types are sound to use as long as the caller keeps NVML's contract: a pointer is null or valid for
//! what it points to, and a buffer is as long as the length beside it says. They are only ever made by the ABI.

mod records;

use std::ffi::{CStr, c_char, c_uint, c_ulonglong};

use crate::code::{Answer, Code};

pub(crate) use records::*;

/// "No MIG instance" in an instance id.
pub(crate) const NO_INSTANCE: c_uint = c_uint::MAX;
/// "Not known" in an amount.
pub(crate) const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

/// The version field of a record: its size and its number, as NVML's macro builds it.
pub(crate) const fn version_of<T>(number: c_uint) -> c_uint {
    size_of::<T>() as c_uint | number << 24
}

/// Where one value goes, or comes from.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// An address that a caller gave in a record, or as a bare word.
    pub(crate) fn to(address: *mut T) -> Self {
        Self(address)
    }

    /// Hands the caller a value.
    pub(crate) fn set(&self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so the caller vouches for room for one T; a write needs no valid old value.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Reads what the caller put there.
    pub(crate) fn get(&self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and every T used here is a plain record for which any bytes are a value.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Whether the caller asked for nothing.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Fills the caller's array from `values`; the caller has been told that it is long enough.
    pub(crate) fn fill(&self, values: impl Iterator<Item = T>, room: usize) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        for (place, value) in values.take(room).enumerate() {
            // SAFETY: place < room, and the caller's array has room elements by NVML's contract.
            unsafe { self.0.add(place).write_unaligned(value) };
        }
        Ok(())
    }

    /// The element at `place` of the caller's array.
    pub(crate) fn at(&self, place: usize) -> Self {
        Self(self.0.wrapping_add(place))
    }

    /// The same address as the start of other records.
    pub(crate) fn cast<U>(&self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// Hands out a list in NVML's way: `count` says how many fit; too few are answered with the true number.
pub(crate) fn hand_out<T: Copy>(count: &Out<c_uint>, list: &Out<T>, values: &[T]) -> Answer {
    let room = count.get()? as usize;
    count.set(values.len() as c_uint)?;
    match values {
        [] => Ok(()),
        _ if room < values.len() || list.is_null() => Err(Code::INSUFFICIENT_SIZE),
        _ => list.fill(values.iter().copied(), room),
    }
}

/// A text buffer of the caller's.
#[repr(transparent)]
pub(crate) struct Text(*mut c_char);

impl Text {
    /// Copies `text` and a final zero into a buffer of `room` bytes.
    pub(crate) fn set(&self, room: c_uint, text: &str) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        if (room as usize) <= text.len() {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        // SAFETY: the buffer has `room` bytes by contract, and room > text.len() was checked; a fresh caller's
        // buffer cannot overlap our string.
        unsafe {
            self.0.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// A text of the caller's.
#[repr(transparent)]
pub(crate) struct Given(*const c_char);

impl Given {
    /// The text; a text that is not UTF-8 names nothing here.
    pub(crate) fn text(&self) -> Result<&str, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so a zero-terminated string by contract, which outlives the call and so `self`.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::NOT_FOUND)
    }
}

/// A device: a number dressed as the pointer that callers expect. It is never followed.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) usize);
