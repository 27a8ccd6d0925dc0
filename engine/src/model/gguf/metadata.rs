//! The head of a GGUF file: named values and where tensors lie (the format's specification, versions 2 and 3).

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

/// Most bytes of one text. Chat templates are a few KiB.
const MAX_TEXT: u64 = 1 << 20;
/// Most entries of a list. Vocabularies end below 300,000, merges as well.
const MAX_LIST: u64 = 1 << 22;
/// Most named values and most tensors. The largest models published have some thousand tensors.
const MAX_ENTRIES: u64 = 1 << 16;
/// Most dimensions that a tensor has in ggml.
const MAX_DIMENSIONS: u32 = 4;
/// Tensors begin at multiples of this many bytes where the file does not say otherwise.
const ALIGNMENT: u64 = 32;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    Negative(i64),
    Real(f64),
    Truth(bool),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    pub(super) const fn whole(&self) -> Option<u64> {
        if let Self::Whole(number) = self { Some(*number) } else { None }
    }

    pub(super) const fn real(&self) -> Option<f64> {
        if let Self::Real(number) = self { Some(*number) } else { None }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn list(&self) -> Option<&[Self]> {
        if let Self::List(values) = self { Some(values) } else { None }
    }
}

/// Where a tensor lies and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Numbers that lie beside each other.
    pub(super) columns: u64,
    pub(super) rows: u64,
    /// ggml's number for the type.
    pub(super) kind: u32,
    /// Bytes from the beginning of the data.
    pub(super) offset: u64,
}

/// All that stands before the data.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) values: HashMap<String, Value>,
    pub(super) tensors: HashMap<String, Entry>,
    /// Bytes from the beginning of the file.
    pub(super) data: u64,
}

/// Why a head cannot be read; the words are put behind the file's name.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeadError {
    #[error("it cannot be read or is cut short")]
    Read(#[from] io::Error),
    #[error("{0}")]
    Malformed(&'static str),
}

pub(super) fn read(input: impl BufRead) -> Result<Head, HeadError> {
    let mut input = Counted { input, read: 0 };
    if input.array()? != *b"GGUF" {
        return Err(HeadError::Malformed("it does not begin as a GGUF file"));
    }
    if !(2..=3).contains(&input.u32()?) {
        return Err(HeadError::Malformed("it is neither of version 2 nor 3 of GGUF; convert the model anew"));
    }
    let (tensors, values) = (input.count(MAX_ENTRIES)?, input.count(MAX_ENTRIES)?);
    let values = (0..values).map(|_| input.named_value()).collect::<Result<HashMap<_, _>, _>>()?;
    let tensors = (0..tensors).map(|_| input.tensor()).collect::<Result<HashMap<_, _>, _>>()?;
    let alignment = values.get("general.alignment").map_or(Some(ALIGNMENT), Value::whole);
    let alignment = alignment.filter(|bytes| bytes.is_power_of_two() && *bytes <= MAX_TEXT);
    let alignment = alignment.ok_or(HeadError::Malformed("its alignment is no power of two"))?;
    Ok(Head { values, tensors, data: input.read.next_multiple_of(alignment) })
}

/// What is read, and how much of it so far.
struct Counted<R> {
    input: R,
    read: u64,
}

impl<R: Read> Counted<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeadError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.read += N as u64;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, HeadError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, HeadError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn count(&mut self, most: u64) -> Result<u64, HeadError> {
        let count = self.u64()?;
        if count > most {
            Err(HeadError::Malformed("it tells of more entries than any model has"))
        } else {
            Ok(count)
        }
    }

    fn text(&mut self) -> Result<String, HeadError> {
        let length = self.count(MAX_TEXT)?;
        let mut bytes = Vec::new();
        (&mut self.input).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(HeadError::Read(io::ErrorKind::UnexpectedEof.into()));
        }
        self.read += length;
        String::from_utf8(bytes).map_err(|_| HeadError::Malformed("a name in it is no UTF-8"))
    }

    fn named_value(&mut self) -> Result<(String, Value), HeadError> {
        let name = self.text()?;
        let kind = self.u32()?;
        let value = if kind == LIST { Value::List(self.list()?) } else { self.value(kind)? };
        Ok((name, value))
    }

    fn list(&mut self) -> Result<Vec<Value>, HeadError> {
        let kind = self.u32()?;
        let count = self.count(MAX_LIST)?;
        (0..count).map(|_| self.value(kind)).collect()
    }

    fn value(&mut self, kind: u32) -> Result<Value, HeadError> {
        // tidy: table
        Ok(match kind {
            0 => Value::Whole(u64::from(u8::from_le_bytes(self.array()?))),
            1 => signed(i64::from(i8::from_le_bytes(self.array()?))),
            2 => Value::Whole(u64::from(u16::from_le_bytes(self.array()?))),
            3 => signed(i64::from(i16::from_le_bytes(self.array()?))),
            4 => Value::Whole(u64::from(self.u32()?)),
            5 => signed(i64::from(i32::from_le_bytes(self.array()?))),
            6 => Value::Real(f64::from(f32::from_le_bytes(self.array()?))),
            7 => Value::Truth(self.array::<1>()? != [0]),
            8 => Value::Text(self.text()?),
            10 => Value::Whole(self.u64()?),
            11 => signed(i64::from_le_bytes(self.array()?)),
            12 => Value::Real(f64::from_le_bytes(self.array()?)),
            _ => return Err(HeadError::Malformed("a value in it is of an unknown type, or a list of lists")),
        })
    }

    fn tensor(&mut self) -> Result<(String, Entry), HeadError> {
        let name = self.text()?;
        let dimensions = self.u32()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(HeadError::Malformed("a tensor in it has more than four dimensions"));
        }
        let sizes = (0..dimensions).map(|_| self.u64()).collect::<Result<Vec<_>, _>>()?;
        let (columns, others) = sizes.split_first().map_or((1, &[][..]), |(first, rest)| (*first, rest));
        let rows = others.iter().try_fold(1u64, |rows, size| rows.checked_mul(*size));
        let rows = rows.ok_or(HeadError::Malformed("a tensor in it is larger than memory can be"))?;
        Ok((name, Entry { columns, rows, kind: self.u32()?, offset: self.u64()? }))
    }
}

/// The specification's number for a list.
const LIST: u32 = 9;

fn signed(number: i64) -> Value {
    u64::try_from(number).map_or(Value::Negative(number), Value::Whole)
}
