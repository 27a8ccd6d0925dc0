//! The weights of a safetensors file, from its header alone.
//!
//! A header is 8 bytes of length and JSON that names each tensor with its type, shape and place; the format allows
//! neither holes nor overlaps, so that the sizes must add up to the last place.

use std::fmt;
use std::io::Read;

use ebbtide_core::Bytes;
use ebbtide_core::text;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// The most bytes of a header, as the format's own reader has it.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The tensors of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensors {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Why a header cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    /// The file ends before its header does, or cannot be read.
    #[error("the header cannot be read: is the download complete?")]
    Read(#[source] std::io::Error),
    /// A length that no header has.
    #[error("a header of {0} bytes: this is not a safetensors file")]
    TooLarge(u64),
    /// JSON that is none, or of another form.
    #[error("the header is no list of tensors: this is not a safetensors file, or a damaged one")]
    NotJson(#[source] serde_json::Error),
    /// Sizes that do not add up.
    #[error("{0}: the file is damaged")]
    Inconsistent(String),
}

/// Reads the header and leaves the weights alone.
///
/// # Errors
/// [`SafetensorsError`] where the header is short, too long, damaged or does not add up.
pub fn tensors(mut file: impl Read) -> Result<Tensors, SafetensorsError> {
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(SafetensorsError::Read)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Err(SafetensorsError::TooLarge(length));
    }
    let mut json = Vec::new();
    let read = file.take(length).read_to_end(&mut json).map_err(SafetensorsError::Read)?;
    if (read as u64) < length {
        return Err(SafetensorsError::Read(std::io::ErrorKind::UnexpectedEof.into()));
    }
    let sum: Sum = serde_json::from_slice(&json).map_err(SafetensorsError::NotJson)?;
    match sum.wrong {
        Some(name) => {
            Err(SafetensorsError::Inconsistent(format!("tensor {name:?} has another size than its shape")))
        }
        None if sum.bytes != sum.end => {
            Err(SafetensorsError::Inconsistent(format!("tensors of {} bytes end at {}", sum.bytes, sum.end)))
        }
        None => Ok(Tensors { count: sum.count, bytes: Bytes(sum.bytes) }),
    }
}

/// The names of the files that an index (`model.safetensors.index.json`) lists.
///
/// # Errors
/// When it is no such index.
pub fn indexed_files(json: &[u8]) -> Result<Vec<String>, SafetensorsError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(json).map_err(SafetensorsError::NotJson)?;
    let files: std::collections::BTreeSet<String> = index.weight_map.into_values().collect();
    Ok(files.into_iter().collect())
}

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Bits of an element, by type.
const TYPES: [(&str, u64); 18] = [
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
    ("F32", 32),
    ("I32", 32),
    ("U32", 32),
    ("F16", 16),
    ("BF16", 16),
    ("I16", 16),
    ("U16", 16),
    ("F8_E4M3", 8),
    ("F8_E5M2", 8),
    ("F8_E8M0", 8),
    ("I8", 8),
    ("U8", 8),
    ("BOOL", 8),
    ("F4", 4),
    ("F4_E2M1", 4),
];

impl Tensor {
    /// Its bytes, where its place agrees with its shape; types that are not known are believed.
    fn bytes(&self) -> Option<u64> {
        let placed = self.data_offsets.1.checked_sub(self.data_offsets.0)?;
        let Some((_, bits)) = TYPES.iter().find(|(name, _)| *name == self.dtype) else { return Some(placed) };
        let elements = self.shape.iter().try_fold(1u64, |product, &side| product.checked_mul(side))?;
        (elements.checked_mul(*bits)?.div_ceil(8) == placed).then_some(placed)
    }
}

/// What is kept of the header while it is read: sums, so that a header of 100 MB needs no memory of its own.
#[derive(Default)]
struct Sum {
    count: u64,
    bytes: u64,
    end: u64,
    wrong: Option<String>,
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Summing)
    }
}

struct Summing;

impl<'de> Visitor<'de> for Summing {
    type Value = Sum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sum, A::Error> {
        let mut sum = Sum::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let tensor: Tensor = map.next_value()?;
            match tensor.bytes() {
                Some(bytes) => sum.bytes = sum.bytes.saturating_add(bytes),
                None => sum.wrong = Some(text::clean(&name)),
            }
            sum.count += 1;
            sum.end = sum.end.max(tensor.data_offsets.1);
        }
        Ok(sum)
    }
}
