//! How a row of keys or values is written down: one token, one head, `head_dim` numbers.

use super::float::{E4M3_MAX, e4m3_from_f32, e4m3_to_f32, f16_from_f32, f16_to_f32};

/// What a number is kept as.
///
/// The 8-bit formats have a scale a row, so that a block is only ever appended to: no row is rescaled when a larger
/// one follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// 16-bit floats (IEEE 754 binary16).
    F16,
    /// Integers from -127 to 127 times an f16 scale.
    Int8,
    /// FP8 e4m3 times an f16 scale.
    Fp8,
}

impl Format {
    /// Bytes a number takes.
    #[must_use]
    pub const fn element_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Int8 | Self::Fp8 => 1,
        }
    }

    /// Whether each row has a scale beside it.
    #[must_use]
    pub const fn is_scaled(self) -> bool {
        matches!(self, Self::Int8 | Self::Fp8)
    }

    /// The name people give it on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Fp8 => "fp8",
        }
    }

    /// Writes `values` as a row into `row`, little-endian, and returns the row's scale, one where the format has
    /// none. What `row` has no room for is not written.
    ///
    /// Numbers that are not finite make no sense in a cache: an infinite one saturates, NaN becomes 0 as an integer
    /// and stays NaN as a float.
    pub fn encode(self, values: &[f32], row: &mut [u8]) -> u16 {
        match self {
            Self::F32 => {
                for (bytes, value) in row.chunks_exact_mut(4).zip(values) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
                F16_ONE
            }
            Self::F16 => {
                for (bytes, value) in row.chunks_exact_mut(2).zip(values) {
                    bytes.copy_from_slice(&f16_from_f32(*value).to_le_bytes());
                }
                F16_ONE
            }
            Self::Int8 => {
                let (scale, inverse) = scale(values, 127.0);
                for (byte, value) in row.iter_mut().zip(values) {
                    *byte = ((value * inverse).round_ties_even().clamp(-127.0, 127.0) as i8).cast_unsigned();
                }
                scale
            }
            Self::Fp8 => {
                let (scale, inverse) = scale(values, E4M3_MAX);
                for (byte, value) in row.iter_mut().zip(values) {
                    *byte = e4m3_from_f32(value * inverse);
                }
                scale
            }
        }
    }

    /// Reads the row that [`Self::encode`] wrote, with its scale.
    pub fn decode(self, row: &[u8], scale: u16, values: &mut [f32]) {
        let scale = f16_to_f32(scale);
        match self {
            Self::F32 => {
                for (value, bytes) in values.iter_mut().zip(row.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Self::F16 => {
                for (value, bytes) in values.iter_mut().zip(row.as_chunks::<2>().0) {
                    *value = f16_to_f32(u16::from_le_bytes(*bytes));
                }
            }
            Self::Int8 => {
                for (value, byte) in values.iter_mut().zip(row) {
                    *value = f32::from(byte.cast_signed()) * scale;
                }
            }
            Self::Fp8 => {
                for (value, byte) in values.iter_mut().zip(row) {
                    *value = e4m3_to_f32(*byte) * scale;
                }
            }
        }
    }
}

/// One, as an f16.
pub(crate) const F16_ONE: u16 = 0x3c00;
/// The largest finite f16.
const F16_MAX: u16 = 0x7bff;

/// The scale that maps the largest of `values` to `top`, and what to multiply by. Rounded up to an f16, so that no
/// number is clipped; zero with an inverse of zero where all are zero.
fn scale(values: &[f32], top: f32) -> (u16, f32) {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let mut half = f16_from_f32(largest / top).min(F16_MAX);
    if half < F16_MAX && f16_to_f32(half) * top < largest {
        half += 1;
    }
    let scale = f16_to_f32(half);
    (half, if scale == 0.0 { 0.0 } else { scale.recip() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(format: Format, values: &[f32]) -> (Vec<f32>, f32) {
        let mut row = vec![0; values.len() * format.element_bytes()];
        let scale = format.encode(values, &mut row);
        let mut back = vec![0.0; values.len()];
        format.decode(&row, scale, &mut back);
        (back, f16_to_f32(scale))
    }

    /// Rows as a model makes them: many magnitudes, some all zero.
    fn rows() -> impl Strategy<Value = Vec<f32>> {
        (proptest::collection::vec(-1f32..1.0, 1..130), -26..14i32)
            .prop_map(|(values, power)| values.into_iter().map(|v| v * 2f32.powi(power)).collect())
    }

    proptest! {
        #[test]
        fn floats_return_as_they_were(values in rows()) {
            prop_assert_eq!(&round_trip(Format::F32, &values).0, &values);
            for (back, value) in round_trip(Format::F16, &values).0.iter().zip(&values) {
                let bound = (value.abs() / 2048.0).max(0.5 / 16_777_216.0);
                prop_assert!((back - value).abs() <= bound, "{} as {}", value, back);
            }
        }

        #[test]
        fn integers_are_within_half_a_scale(values in rows()) {
            let (back, scale) = round_trip(Format::Int8, &values);
            for (back, value) in back.iter().zip(&values) {
                prop_assert!((back - value).abs() <= 0.5001 * scale, "{} as {} by {}", value, back, scale);
            }
        }

        #[test]
        fn fp8_keeps_three_bits_of_mantissa(values in rows()) {
            let (back, scale) = round_trip(Format::Fp8, &values);
            for (back, value) in back.iter().zip(&values) {
                let bound = (value.abs() / 16.0).max(scale / 1024.0) * 1.001;
                prop_assert!((back - value).abs() <= bound, "{} as {} by {}", value, back, scale);
            }
        }
    }

    #[test]
    fn zero_stays_zero_and_what_is_not_finite_saturates() {
        for format in [Format::F32, Format::F16, Format::Int8, Format::Fp8] {
            assert_eq!(round_trip(format, &[0.0, -0.0, 0.0]).0, [0.0, 0.0, 0.0], "{}", format.name());
        }
        let (back, scale) = round_trip(Format::Int8, &[f32::INFINITY, f32::NAN, 1.0]);
        assert_eq!((back[0], back[1]), (127.0 * scale, 0.0));
        assert!(back.iter().all(|value| value.is_finite()));
    }
}
