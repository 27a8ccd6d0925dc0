//! Where the bytes of a model lie.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::encoding::Encoding;
use super::{ModelError, Tensor};

/// Bytes that are read where they are wanted: a model's file is never in memory as a whole.
#[derive(Debug)]
pub(super) enum Source {
    File { file: File, length: u64 },
    Bundled(&'static [u8]),
}

impl Source {
    pub(super) fn file(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self::File { file, length })
    }

    /// The bytes of `tensor`, `rows` times `columns` numbers that begin at `offset`.
    pub(super) fn tensor(
        &self,
        tensor: Tensor,
        encoding: Encoding,
        offset: u64,
        (rows, columns): (usize, usize),
    ) -> Result<Vec<u8>, ModelError> {
        let bytes = encoding.bytes(rows * columns, columns);
        let unfilled = || ModelError::Encoding { tensor, found: "blocks that its rows do not fill".into() };
        let bytes = bytes.ok_or_else(unfilled)?;
        self.read(offset, bytes).map_err(|source| ModelError::Tensor { tensor, source })
    }

    pub(super) const fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } => *length,
            Self::Bundled(bytes) => bytes.len() as u64,
        }
    }

    /// The `length` bytes from `offset` on; refused before anything is allocated where the source ends earlier.
    pub(super) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.length());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        match self {
            Self::File { file, .. } => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes)
            }
            Self::Bundled(bytes) => {
                let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
                let found = range.and_then(|(from, to)| bytes.get(from..to));
                found.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}
