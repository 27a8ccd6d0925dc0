//! A child that outlives its parent and holds memory: what is left of a worker whose parent was killed.

use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use ebbtide_core::Bytes;

use crate::vram::{MemoryFile, VramError, whole_pages};

/// How long an orphan holds its memory: long enough to be found, and the machine has it back by itself.
pub const HOLDER_SECONDS: u32 = 600;

/// No orphan could be left.
#[derive(Debug, thiserror::Error)]
pub enum OrphanError {
    /// There is no memory for it.
    #[error(transparent)]
    Vram(#[from] VramError),
    /// No process could be started.
    #[error("no child could be started to hold memory; the command `sleep` is needed in PATH")]
    Start(#[source] io::Error),
}

/// A child and what it holds.
#[derive(Debug)]
pub(super) struct Orphan {
    bytes: Bytes,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "nobody waits for an orphan: that is what makes it one")
    )]
    pub(super) child: Child,
}

impl Orphan {
    /// Starts a child that holds `bytes`, whole pages, in a memory file of its own: this process does not keep it.
    pub(super) fn leave(bytes: Bytes) -> Result<Self, OrphanError> {
        let bytes = whole_pages(bytes);
        let file = MemoryFile::create()?;
        file.take(0..bytes.0)?;
        let held = file.as_fd().try_clone_to_owned().map_err(OrphanError::Start)?;
        // A file that is somebody's standard input is open as long as he lives.
        let child = Command::new("sleep")
            .arg(HOLDER_SECONDS.to_string())
            .stdin(Stdio::from(held))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(OrphanError::Start)?;
        Ok(Self { bytes, child })
    }

    pub(super) const fn bytes(&self) -> Bytes {
        self.bytes
    }
}
