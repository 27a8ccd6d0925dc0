//! How numbers are written in models' files, and back to f32.

use crate::kv::f16_to_f32;

/// A way to write numbers. Blocks are those of ggml (ggml-common.h): 32 numbers that share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    F32,
    F16,
    Bf16,
    /// An f16 scale and 32 signed bytes.
    Q8_0,
    /// An f16 scale and 32 halves of a byte around 8: the lower halves first.
    Q4_0,
    /// An f16 scale, an f16 minimum, and 32 halves of a byte.
    Q4_1,
}

/// Numbers in a block of the quantised encodings.
const BLOCK: usize = 32;

impl Encoding {
    /// By ggml's number for the type (ggml.h, `ggml_type`).
    pub(super) const fn of_ggml(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// By the name that safetensors gives it.
    pub(super) fn of_safetensors(name: &str) -> Option<Self> {
        Some(match name {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            _ => return None,
        })
    }

    /// Numbers and bytes of the smallest unit.
    const fn unit(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q8_0 => (BLOCK, 34),
            Self::Q4_0 => (BLOCK, 18),
            Self::Q4_1 => (BLOCK, 20),
        }
    }

    /// Bytes of `count` numbers in rows of `columns`; `None` where a row is no whole number of blocks.
    pub(super) fn bytes(self, count: usize, columns: usize) -> Option<usize> {
        let (numbers, bytes) = self.unit();
        columns.is_multiple_of(numbers).then(|| (count / numbers).checked_mul(bytes))?
    }

    /// Appends the numbers in `bytes` to `out`; what is left of the last unit is dropped.
    pub(super) fn decode(self, bytes: &[u8], out: &mut Vec<f32>) {
        match self {
            Self::F32 => out.extend(bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four))),
            Self::F16 => {
                out.extend(bytes.as_chunks().0.iter().map(|two| f16_to_f32(u16::from_le_bytes(*two))));
            }
            Self::Bf16 => out.extend(bytes.as_chunks().0.iter().map(|two| bf16(u16::from_le_bytes(*two)))),
            Self::Q8_0 => bytes.as_chunks().0.iter().for_each(|block| eight_bits(block, out)),
            Self::Q4_0 => bytes.as_chunks().0.iter().for_each(|block| four_bits_centred(block, out)),
            Self::Q4_1 => bytes.as_chunks().0.iter().for_each(|block| four_bits(block, out)),
        }
    }
}

/// The upper half of an f32.
fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn eight_bits(block: &[u8; 34], out: &mut Vec<f32>) {
    let scale = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
    out.extend(block[2..].iter().map(|byte| f32::from(byte.cast_signed()) * scale));
}

fn four_bits_centred(block: &[u8; 18], out: &mut Vec<f32>) {
    let scale = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
    halves(&block[2..], out, |half| (f32::from(half) - 8.0) * scale);
}

fn four_bits(block: &[u8; 20], out: &mut Vec<f32>) {
    let scale = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
    let minimum = f16_to_f32(u16::from_le_bytes([block[2], block[3]]));
    halves(&block[4..], out, |half| f32::from(half) * scale + minimum);
}

/// The lower halves of all bytes, then the upper ones.
fn halves(bytes: &[u8], out: &mut Vec<f32>, number: impl Fn(u8) -> f32) {
    out.extend(bytes.iter().map(|byte| number(byte & 15)));
    out.extend(bytes.iter().map(|byte| number(byte >> 4)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(encoding: Encoding, bytes: &[u8]) -> Vec<f32> {
        let mut out = Vec::new();
        encoding.decode(bytes, &mut out);
        out
    }

    #[test]
    fn plain_numbers_are_read_as_written() {
        let numbers = [0.0f32, -1.5, 3.25, 1024.0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(decoded(Encoding::F32, &bytes), numbers);
        let upper: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()[2..].to_vec()).collect();
        assert_eq!(decoded(Encoding::Bf16, &upper), numbers);
        assert_eq!(decoded(Encoding::F16, &[0x00, 0x3c, 0x00, 0xc0]), [1.0, -2.0]);
    }

    #[test]
    fn a_block_of_eight_bits_has_one_scale() {
        let mut block = vec![0x00, 0x38]; // 0.5
        block.extend((0..32u8).map(|index| index.wrapping_sub(16)));
        let expected: Vec<f32> = (0..32u8).map(|index| (f32::from(index) - 16.0) / 2.0).collect();
        assert_eq!(decoded(Encoding::Q8_0, &block), expected);
    }

    #[test]
    fn halves_of_bytes_are_in_ggmls_order() {
        let halves: Vec<u8> = (0..16u8).map(|index| index | (15 - index) << 4).collect();
        let values = (0..16u8).chain((0..16u8).rev());
        let centred: Vec<u8> = [0x00, 0x3c].into_iter().chain(halves.clone()).collect();
        let expected: Vec<f32> = values.clone().map(|value| f32::from(value) - 8.0).collect();
        assert_eq!(decoded(Encoding::Q4_0, &centred), expected);
        let lifted: Vec<u8> = [0x00, 0x40, 0x00, 0xbc].into_iter().chain(halves).collect(); // 2, -1
        let expected: Vec<f32> = values.map(|value| f32::from(value) * 2.0 - 1.0).collect();
        assert_eq!(decoded(Encoding::Q4_1, &lifted), expected);
    }

    #[test]
    fn a_row_that_is_no_whole_number_of_blocks_is_refused() {
        assert_eq!(Encoding::Q4_1.bytes(96, 48), None);
        assert_eq!(Encoding::Q4_1.bytes(128, 64), Some(80));
        assert_eq!(Encoding::F16.bytes(15, 5), Some(30));
    }
}
