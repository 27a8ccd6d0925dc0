//! AVX2 with FMA and F16C.

use std::arch::x86_64::*;

use super::activations::Activations;
use super::attention::{Attention, Workspace};
use super::lanes::{EXP_COEFFICIENTS, EXP_MIN, LN2_HIGH, LN2_LOW};
use super::paged;
use super::products::Products;
use super::simd::Simd;
use super::tiles::{Block, QUAD, TILE_ROWS, Tiles};
use super::{GROUP, lanes};

/// Whether this processor has every instruction that the functions here are compiled for.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

super::dispatch::entries!("avx2,fma,f16c", Avx2);

/// A register of 8.
pub(super) struct Avx2;

// Every block: SAFETY as `simd` says, the pointers are the caller's.
impl Simd for Avx2 {
    type Vector = __m256;
    const LANES: usize = 8;
    const QUERY_ROWS: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m256 {
        // SAFETY: see above; 16 bytes are read.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m256 {
        // SAFETY: see above; 8 bytes are read.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_e4m3(from: *const u8) -> __m256 {
        // SAFETY: see above; 8 bytes are read.
        unsafe {
            let bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(from.cast()));
            let sign = _mm_slli_epi16::<8>(_mm_and_si128(bytes, _mm_set1_epi16(0x80)));
            let rest = _mm_slli_epi16::<7>(_mm_and_si128(bytes, _mm_set1_epi16(0x7f)));
            _mm256_cvtph_ps(_mm_or_si128(sign, rest))
        }
    }

    #[inline(always)]
    unsafe fn store(value: __m256, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    #[inline(always)]
    unsafe fn store_f16(value: __m256, to: *mut u8) {
        // SAFETY: see above; 16 bytes are written.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn largest(a: __m256) -> f32 {
        // SAFETY: see above.
        unsafe {
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        }
    }

    #[inline(always)]
    unsafe fn sums(of: *const __m256) -> __m256 {
        // SAFETY: see above; 8 vectors are read.
        unsafe {
            let four = |at: usize| {
                let [a, b, c, d] = of.add(at).cast::<[__m256; 4]>().read();
                _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d))
            };
            let (first, last) = (four(0), four(4));
            let low = _mm256_permute2f128_ps::<0x20>(first, last);
            _mm256_add_ps(low, _mm256_permute2f128_ps::<0x31>(first, last))
        }
    }

    #[inline(always)]
    unsafe fn exp(x: __m256) -> __m256 {
        // SAFETY: see above. The steps are those of `lanes::exp`.
        unsafe {
            let x = _mm256_max_ps(x, _mm256_set1_ps(EXP_MIN));
            let n = _mm256_mul_ps(x, _mm256_set1_ps(std::f32::consts::LOG2_E));
            let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(n);
            let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_HIGH), x);
            let r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LN2_LOW), r);
            let mut p = _mm256_set1_ps(EXP_COEFFICIENTS[0]);
            for coefficient in &EXP_COEFFICIENTS[1..] {
                p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(*coefficient));
            }
            let p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, _mm256_add_ps(r, _mm256_set1_ps(1.0)));
            let power = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a hint, see `simd`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

/// Rows of activations that share one reading of a block: two sums each, in half of the 16 registers.
const ROWS: usize = 4;

/// As `scalar::multiply`.
///
/// # Safety
/// The processor has the instructions, and `weights` [fits](Tiles::fits).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn multiply(weights: &Tiles, input: &Activations, out: &mut Products<'_>) {
    for tile in out.tiles() {
        let Some((blocks, scales)) = weights.tile(tile) else { return };
        let mut row = 0;
        while row < input.rows() {
            let mut products = [[0.0; TILE_ROWS]; ROWS];
            // SAFETY: rows `row..row + R` exist in `input`.
            let count = unsafe {
                match input.rows() - row {
                    ROWS.. => rows::<ROWS>(blocks, scales, (input, row), &mut products),
                    2.. => rows::<2>(blocks, scales, (input, row), &mut products),
                    _ => rows::<1>(blocks, scales, (input, row), &mut products),
                }
            };
            out.put((row, tile), &products[..count]);
            row += count;
        }
    }
}

/// `R` rows of activations from `row` on times one tile, `[row][lane]` into `products`; `R`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<const R: usize>(
    blocks: &[Block],
    scales: &[[u16; TILE_ROWS]],
    (input, row): (&Activations, usize),
    products: &mut [[f32; TILE_ROWS]; ROWS],
) -> usize {
    // SAFETY: `blocks`, `scales` and each row of `input` have as many groups; a block is 16 registers, two a quad.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); 2]; R];
        for (group, (block, scales)) in blocks.iter().zip(scales).enumerate() {
            let place = group * input.rows() + row;
            let values = input.values.as_ptr().add(place * GROUP);
            let mut integers = [[_mm256_setzero_si256(); 2]; R];
            for quad in 0..GROUP / QUAD {
                for half in 0..2 {
                    let at = block.0.as_ptr().add(64 * quad + 32 * half);
                    let signed = _mm256_xor_si256(_mm256_load_si256(at.cast()), _mm256_set1_epi8(i8::MIN));
                    let magnitude = _mm256_abs_epi8(signed);
                    for (row, integers) in integers.iter_mut().enumerate() {
                        let value = values.add(row * GROUP + quad * QUAD).cast::<i32>();
                        let value = _mm256_set1_epi32(value.read_unaligned());
                        // At most 2 * 127 * 127, so that sixteen bits hold it.
                        let pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(value, signed));
                        let quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                        integers[half] = _mm256_add_epi32(integers[half], quads);
                    }
                }
            }
            for (at, (sums, integers)) in sums.iter_mut().zip(integers).enumerate() {
                let scale = _mm256_set1_ps(*input.scales.as_ptr().add(place + at));
                for half in 0..2 {
                    let scales = _mm256_cvtph_ps(_mm_loadu_si128(scales.as_ptr().add(8 * half).cast()));
                    let integers = _mm256_cvtepi32_ps(integers[half]);
                    sums[half] = _mm256_fmadd_ps(integers, _mm256_mul_ps(scales, scale), sums[half]);
                }
            }
        }
        for (sums, products) in sums.iter().zip(products) {
            _mm256_storeu_ps(products.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(products.as_mut_ptr().add(8), sums[1]);
        }
    }
    R
}
