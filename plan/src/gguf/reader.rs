//! The bytes of a header.

use std::io::{Read, copy, sink};

use ebbtide_core::{Bytes, text};

use super::{GgufError, Value};

/// The longest name or key; together with the number of entries it bounds what is kept of a file to some 100 MiB.
const MAX_NAME: u64 = 1 << 12;
/// The longest single text; chat templates have some 10 KiB.
const MAX_TEXT: u64 = 1 << 24;
/// The longest list; vocabularies have some 300 000 entries, merges as many.
const MAX_LIST: u64 = 1 << 24;
/// The longest list whose numbers are kept: one for each layer.
const MAX_KEPT: u64 = 4096;
/// The most sides of a tensor.
const MAX_SIDES: u32 = 8;

pub(super) struct Reader<R> {
    file: R,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file }
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// A length of at most `most`.
    pub(super) fn count(&mut self, what: &'static str, most: u64) -> Result<u64, GgufError> {
        let length = self.u64()?;
        if length > most { Err(GgufError::TooLong { what, length }) } else { Ok(length) }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), GgufError> {
        let passed = copy(&mut self.file.by_ref().take(bytes), &mut sink())?;
        if passed < bytes {
            Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())
        } else {
            Ok(())
        }
    }

    fn name(&mut self) -> Result<String, GgufError> {
        let length = self.count("a name", MAX_NAME)?;
        let mut bytes = Vec::new();
        self.file.by_ref().take(length).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < length {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Key and value; `None` for a value that says nothing about memory.
    pub(super) fn entry(&mut self) -> Result<(String, Option<Value>), GgufError> {
        let key = self.name()?;
        let kind = self.u32()?;
        let value = match kind {
            TEXT => self.text(&key)?,
            LIST => Some(self.list()?),
            _ => self.scalar(kind)?.map(Value::Number),
        };
        Ok((key, value))
    }

    /// Of texts only the architecture matters.
    fn text(&mut self, key: &str) -> Result<Option<Value>, GgufError> {
        if key == "general.architecture" {
            return Ok(Some(Value::Text(text::clean(&self.name()?))));
        }
        let length = self.count("a text", MAX_TEXT)?;
        self.skip(length)?;
        Ok(None)
    }

    fn list(&mut self) -> Result<Value, GgufError> {
        let kind = self.u32()?;
        let length = self.count("a list", MAX_LIST)?;
        if kind == TEXT {
            for _ in 0..length {
                let bytes = self.count("a text", MAX_TEXT)?;
                self.skip(bytes)?;
            }
            return Ok(Value::Passed(length));
        }
        let size = size(kind)?;
        if length > MAX_KEPT {
            self.skip(length * size)?;
            return Ok(Value::Passed(length));
        }
        let numbers = (0..length).map(|_| self.scalar(kind)).collect::<Result<Option<Vec<u64>>, _>>()?;
        Ok(numbers.map_or(Value::Passed(length), Value::List))
    }

    /// A whole number of at least 0; `None` for others.
    fn scalar(&mut self, kind: u32) -> Result<Option<u64>, GgufError> {
        let width = size(kind)?;
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes[..width as usize])?;
        let raw = u64::from_le_bytes(bytes);
        let sign = 1u64 << (width * 8 - 1);
        Ok(match kind {
            FLOAT32 | FLOAT64 => None,
            _ if SIGNED.contains(&kind) && raw & sign != 0 => None,
            _ => Some(raw),
        })
    }

    /// Bytes of one tensor.
    pub(super) fn tensor(&mut self) -> Result<Bytes, GgufError> {
        self.name()?;
        let sides = self.u32()?;
        if sides > MAX_SIDES {
            return Err(GgufError::TooLong { what: "a tensor's sides", length: u64::from(sides) });
        }
        let mut elements = 1u64;
        for _ in 0..sides {
            elements = elements.saturating_mul(self.u64()?);
        }
        let id = self.u32()?;
        let _place = self.u64()?;
        let row = TENSORS.iter().find(|(known, ..)| *known == id);
        let (_, block, bytes) = row.ok_or(GgufError::UnknownType { what: "tensor type", id })?;
        Ok(Bytes(elements.div_ceil(*block).saturating_mul(*bytes)))
    }
}

const FLOAT32: u32 = 6;
const TEXT: u32 = 8;
const LIST: u32 = 9;
const FLOAT64: u32 = 12;
/// Kinds of value with a sign.
const SIGNED: [u32; 4] = [1, 3, 5, 11];

/// Bytes of a value of each kind; lists and texts have no size of their own.
fn size(kind: u32) -> Result<u64, GgufError> {
    /// Kinds 0 to 12: u8, i8, u16, i16, u32, i32, f32, bool, text, list, u64, i64, f64.
    const SIZES: [u64; 13] = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
    let size = SIZES.get(kind as usize).copied().filter(|&size| size > 0);
    size.ok_or(GgufError::UnknownType { what: "value type", id: kind })
}

/// Number of a tensor type, elements of its block, bytes of its block (`ggml.h`, `ggml-common.h`).
const TENSORS: [(u32, u64, u64); 32] = [
    (0, 1, 4),
    (1, 1, 2),
    (2, 32, 18),
    (3, 32, 20),
    (6, 32, 22),
    (7, 32, 24),
    (8, 32, 34),
    (9, 32, 36),
    (10, 256, 84),
    (11, 256, 110),
    (12, 256, 144),
    (13, 256, 176),
    (14, 256, 210),
    (15, 256, 292),
    (16, 256, 66),
    (17, 256, 74),
    (18, 256, 98),
    (19, 256, 50),
    (20, 32, 18),
    (21, 256, 110),
    (22, 256, 82),
    (23, 256, 136),
    (24, 1, 1),
    (25, 1, 2),
    (26, 1, 4),
    (27, 1, 8),
    (28, 1, 8),
    (29, 256, 56),
    (30, 1, 2),
    (34, 256, 54),
    (35, 256, 66),
    (39, 32, 17),
];
