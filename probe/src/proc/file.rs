//! Reading small files that somebody else writes, with a cap and with a reason when it fails.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ebbtide_core::Absent;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Why a file of a process could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The process, or the file, is not there.
    Gone,
    /// A privilege is missing.
    Denied,
    /// It is there, and unreadable or not what the kernel writes.
    Unreadable,
}

impl Missing {
    /// The reason as a reading gives it.
    pub(crate) const fn absent(self) -> Absent {
        match self {
            Self::Denied => Absent::NoPermission,
            Self::Gone | Self::Unreadable => Absent::NotSupported,
        }
    }
}

impl From<io::Error> for Missing {
    fn from(error: io::Error) -> Self {
        // A process that ends between open and read answers ESRCH.
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::SRCH | Errno::NOTDIR) => Self::Gone,
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied,
            _ => Self::Unreadable,
        }
    }
}

/// At most the first `cap` bytes of the file at `path`.
///
/// Does not wait for a writer where somebody put a FIFO in the place of the file.
pub(crate) fn read_capped(path: &Path, cap: u64) -> Result<Vec<u8>, Missing> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut content = Vec::new();
    file.take(cap).read_to_end(&mut content)?;
    Ok(content)
}

/// As [`read_capped`], as text; what is not UTF-8 is replaced.
pub(crate) fn read_text(path: &Path, cap: u64) -> Result<String, Missing> {
    read_capped(path, cap).map(|raw| String::from_utf8_lossy(&raw).into_owned())
}
