//! Scalar conversions of the formats that a KV cache is kept in: the oracle that faster kernels are held against.

/// The f16 (IEEE 754 binary16) nearest to `value`, ties to even; beyond 65504 infinity, as F16C does.
#[must_use]
pub fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude > F32_INFINITY {
        // Quiet, with what fits of the payload.
        0x7e00 | ((magnitude >> 13) & 0x3ff)
    } else if magnitude >= 0x4780_0000 {
        // 65536 and more; what rounds up to it ends at infinity by the carry below.
        0x7c00
    } else if magnitude >= 0x3880_0000 {
        // From 2^-14 on f16 is normal: round away 13 bits, move the bias from 127 to 15.
        (magnitude + 0x0fff + ((magnitude >> 13) & 1) - (112 << 23)) >> 13
    } else {
        // Beside 0.5 the last bit of an f32 weighs 2^-24, as the last bit of a subnormal f16 does: adding rounds.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    };
    sign | half as u16
}

const F32_INFINITY: u32 = 0x7f80_0000;

/// The value of the f16 `half`; exact.
#[must_use]
pub fn f16_to_f32(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let fraction = u32::from(half & 0x3ff);
    let bits = match u32::from(half >> 10) & 0x1f {
        0 => (fraction as f32 * F16_SUBNORMAL).to_bits(),
        0x1f => F32_INFINITY | (fraction << 13),
        exponent => ((exponent + 112) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | bits)
}

/// The smallest f16 above zero, 2^-24.
const F16_SUBNORMAL: f32 = 1.0 / 16_777_216.0;

/// The largest e4m3 (OCP 8-bit floating point specification, E4M3: no infinity, one NaN).
pub(crate) const E4M3_MAX: f32 = 448.0;
const E4M3_NAN: u8 = 0x7f;
/// The smallest e4m3 above zero, 2^-9.
const E4M3_SUBNORMAL: f32 = 1.0 / 512.0;

/// The FP8 e4m3 nearest to `value`, ties to even; beyond 448 it saturates, as `cvt.rn.satfinite` does.
#[must_use]
pub fn e4m3_from_f32(value: f32) -> u8 {
    let bits = value.to_bits();
    let sign = ((bits >> 24) & 0x80) as u8;
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    let byte = if magnitude.is_nan() {
        E4M3_NAN
    } else if magnitude >= E4M3_MAX {
        0x7e
    } else if magnitude >= 1.0 / 64.0 {
        // From 2^-6 on e4m3 is normal: round away 20 bits, move the bias from 127 to 7.
        let bits = magnitude.to_bits();
        ((bits + 0x7_ffff + ((bits >> 20) & 1) - (120 << 23)) >> 20) as u8
    } else {
        // Beside 2^14 the last bit of an f32 weighs 2^-9, as the last bit of a subnormal e4m3 does: adding rounds.
        ((magnitude + 16_384.0).to_bits() - 16_384.0f32.to_bits()) as u8
    };
    sign | byte
}

/// The value of the FP8 e4m3 `byte`; exact.
#[must_use]
pub fn e4m3_to_f32(byte: u8) -> f32 {
    let fraction = u32::from(byte & 7);
    let magnitude = match u32::from(byte >> 3) & 0xf {
        0 => fraction as f32 * E4M3_SUBNORMAL,
        0xf if fraction == 7 => f32::NAN,
        exponent => f32::from_bits(((exponent + 120) << 23) | (fraction << 20)),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Known pairs of f16: one, the largest, the smallest normal, the smallest subnormal, infinity.
    const F16_PAIRS: [(u16, f32); 6] = [
        (0x3c00, 1.0),
        (0x7bff, 65_504.0),
        (0x0400, 1.0 / 16_384.0),
        (0x0001, 1.0 / 16_777_216.0),
        (0xc000, -2.0),
        (0x7c00, f32::INFINITY),
    ];
    /// Known pairs of e4m3, from the specification's table.
    const E4M3_PAIRS: [(u8, f32); 5] =
        [(0x38, 1.0), (0x7e, 448.0), (0x08, 1.0 / 64.0), (0x01, 1.0 / 512.0), (0xb8, -1.0)];

    #[test]
    fn known_values_are_met() {
        for (half, value) in F16_PAIRS {
            assert_eq!((f16_to_f32(half), f16_from_f32(value)), (value, half));
        }
        for (byte, value) in E4M3_PAIRS {
            assert_eq!((e4m3_to_f32(byte), e4m3_from_f32(value)), (value, byte));
        }
        assert_eq!(f16_from_f32(65_519.9), 0x7bff);
        assert_eq!(f16_from_f32(65_520.0), 0x7c00, "a tie goes to the even neighbour, which is infinity");
        assert_eq!((e4m3_from_f32(1e9), e4m3_from_f32(f32::NEG_INFINITY)), (0x7e, 0xfe));
        assert!(f16_to_f32(f16_from_f32(f32::NAN)).is_nan() && e4m3_to_f32(e4m3_from_f32(f32::NAN)).is_nan());
    }

    #[test]
    fn every_code_survives_its_value() {
        for half in 0..=u16::MAX {
            let value = f16_to_f32(half);
            assert!(value.is_nan() || f16_from_f32(value) == half, "{half:#06x} is {value}");
        }
        for byte in 0..=u8::MAX {
            let value = e4m3_to_f32(byte);
            assert!(value.is_nan() || e4m3_from_f32(value) == byte, "{byte:#04x} is {value}");
        }
    }

    /// The code at `value`'s side that is nearer, by the distances alone; `None` on a tie.
    fn is_nearest(value: f32, code: u32, decode: impl Fn(u32) -> f32) -> bool {
        let distance = |code: u32| (f64::from(decode(code)) - f64::from(value)).abs();
        let here = distance(code);
        let beats = |other: u32| {
            let there = distance(other);
            !there.is_finite() || here < there || (here == there && code & 1 == 0)
        };
        beats(code + 1) && (code == 0 || beats(code - 1))
    }

    proptest! {
        #[test]
        fn f16_is_the_nearest_and_even_on_a_tie(value in 0f32..65_504.0, scale in -40..1i32) {
            let value = value * 2f32.powi(scale);
            let half = f16_from_f32(value);
            prop_assert!(is_nearest(value, u32::from(half), |code| f16_to_f32(code as u16)), "{value} as {half:#x}");
            prop_assert_eq!(f16_from_f32(-value), half | 0x8000);
        }

        #[test]
        fn e4m3_is_the_nearest_and_even_on_a_tie(value in 0f32..448.0, scale in -18..1i32) {
            let value = value * 2f32.powi(scale);
            let byte = e4m3_from_f32(value);
            prop_assert!(is_nearest(value, u32::from(byte), |code| e4m3_to_f32(code as u8)), "{value} as {byte:#x}");
            prop_assert_eq!(e4m3_from_f32(-value), byte | 0x80);
        }

        #[test]
        fn ties_go_to_even(half in 0u16..0x7bff, byte in 0u8..0x7d) {
            let tie = f32::midpoint(f16_to_f32(half), f16_to_f32(half + 1));
            prop_assert_eq!(f16_from_f32(tie), half + (half & 1));
            let tie = f32::midpoint(e4m3_to_f32(byte), e4m3_to_f32(byte + 1));
            prop_assert_eq!(e4m3_from_f32(tie), byte + (byte & 1));
        }
    }
}
