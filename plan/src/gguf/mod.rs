//! Models in llama.cpp's file format: what their metadata says of the cache, and the bytes of their tensors.
//!
//! Only the header is read, front to back, and of it only numbers, short lists and names are kept; vocabularies are
//! passed over. Every length in the file is bounded before it is believed.

mod layers;
mod reader;

use std::collections::HashMap;
use std::io::Read;

use ebbtide_core::Bytes;

use crate::config::ConfigError;
use crate::model::Model;
use reader::Reader;

/// Versions of the format that are read.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// The most entries of metadata; real files have about 50.
const MAX_ENTRIES: u64 = 1 << 12;
/// The most tensors; real files have a few thousand.
const MAX_TENSORS: u64 = 1 << 20;

/// Why a header cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file ends before its header does, or cannot be read.
    #[error("the header cannot be read: is the download complete?")]
    Read(#[from] std::io::Error),
    /// Another magic number or version.
    #[error("{0}: this is not a GGUF file of version 2 or 3 in little-endian order")]
    NotGguf(String),
    /// A length beyond what headers have.
    #[error("{what} of {length}: the file is damaged")]
    TooLong {
        /// Of what.
        what: &'static str,
        /// The length that the file states.
        length: u64,
    },
    /// A type that is not known.
    #[error("{what} {id} is not known: the file is damaged, or newer than this planner")]
    UnknownType {
        /// A kind of value, or of tensor.
        what: &'static str,
        /// Its number in the file.
        id: u32,
    },
}

/// A value of the metadata, as far as values are kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A number, or a truth value as 0 or 1.
    Number(u64),
    /// Numbers or truth values.
    List(Vec<u64>),
    /// A name, cleaned.
    Text(String),
    /// A list that was passed over: its length.
    Passed(u64),
}

/// What the header of a file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    values: HashMap<String, Value>,
    /// Bytes of all tensors in this file.
    pub tensor_bytes: Bytes,
    /// How many tensors.
    pub tensors: u64,
}

impl Header {
    /// Reads the header and leaves the weights alone. Give it a buffered reader.
    ///
    /// # Errors
    /// [`GgufError`] where the file is none of this format, short, or damaged.
    pub fn read(file: impl Read) -> Result<Self, GgufError> {
        let mut reader = Reader::new(file);
        let magic = reader.bytes::<4>()?;
        let version = reader.u32()?;
        if &magic != b"GGUF" || !VERSIONS.contains(&version) {
            return Err(GgufError::NotGguf(format!("magic {magic:02x?}, version {version}")));
        }
        let tensors = reader.count("a list of tensors", MAX_TENSORS)?;
        let entries = reader.count("metadata", MAX_ENTRIES)?;
        let mut values = HashMap::new();
        for _ in 0..entries {
            let (key, value) = reader.entry()?;
            if let Some(value) = value {
                values.insert(key, value);
            }
        }
        let mut tensor_bytes = Bytes::ZERO;
        for _ in 0..tensors {
            tensor_bytes = tensor_bytes + reader.tensor()?;
        }
        Ok(Self { values, tensor_bytes, tensors })
    }

    /// Files that the model was split into.
    #[must_use]
    pub fn parts(&self) -> u64 {
        match self.values.get("split.count") {
            Some(&Value::Number(parts)) => parts.max(1),
            _ => 1,
        }
    }

    /// The model.
    ///
    /// # Errors
    /// [`ConfigError`] where a number is missing or out of range, or the cache is not modelled.
    pub fn model(&self) -> Result<Model, ConfigError> {
        layers::model(self)
    }

    pub(crate) fn architecture(&self) -> Result<&str, ConfigError> {
        match self.values.get("general.architecture") {
            Some(Value::Text(name)) => Ok(name),
            _ => Err(ConfigError::Missing("general.architecture")),
        }
    }

    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }
}
