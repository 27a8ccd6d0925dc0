//! AVX-512 with VNNI.

use std::arch::x86_64::*;

use super::activations::Activations;
use super::attention::{Attention, Workspace};
use super::lanes::{EXP_COEFFICIENTS, EXP_MIN, LN2_HIGH, LN2_LOW};
use super::paged;
use super::products::{Products, Sink};
use super::simd::Simd;
use super::tiles::{Block, QUAD, TILE_ROWS, Tiles};
use super::{GROUP, lanes};

/// Whether this processor has every instruction that the functions here are compiled for.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
        && super::avx2::is_available()
}

super::dispatch::entries!("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c", Avx512);

/// A register of 16.
pub(super) struct Avx512;

// Every block: SAFETY as `simd` says, the pointers are the caller's.
impl Simd for Avx512 {
    type Vector = __m512;
    const LANES: usize = 16;
    const QUERY_ROWS: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        // SAFETY: see above; 32 bytes are read.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m512 {
        // SAFETY: see above; 16 bytes are read.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_e4m3(from: *const u8) -> __m512 {
        // SAFETY: see above; 16 bytes are read.
        unsafe {
            let bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast()));
            let sign = _mm256_slli_epi16::<8>(_mm256_and_si256(bytes, _mm256_set1_epi16(0x80)));
            let rest = _mm256_slli_epi16::<7>(_mm256_and_si256(bytes, _mm256_set1_epi16(0x7f)));
            _mm512_cvtph_ps(_mm256_or_si256(sign, rest))
        }
    }

    #[inline(always)]
    unsafe fn store(value: __m512, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to, value) }
    }

    #[inline(always)]
    unsafe fn store_f16(value: __m512, to: *mut u8) {
        // SAFETY: see above; 32 bytes are written.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    unsafe fn sums(of: *const __m512) -> __m512 {
        // SAFETY: see above; 16 vectors are read. Each step halves what is still to be added: within four numbers
        // twice, then across the four quarters twice.
        unsafe {
            let mut quads = [_mm512_setzero_ps(); 4];
            for (at, quad) in quads.iter_mut().enumerate() {
                let [a, b, c, d] = of.add(4 * at).cast::<[__m512; 4]>().read();
                let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
                let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
                *quad = _mm512_add_ps(low, _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
            }
            let [a, b, c, d] = quads;
            let fold = |a, b| {
                let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                _mm512_add_ps(even, _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
            };
            fold(fold(a, b), fold(c, d))
        }
    }

    #[inline(always)]
    unsafe fn exp(x: __m512) -> __m512 {
        // SAFETY: see above. The steps are those of `lanes::exp`.
        unsafe {
            let x = _mm512_max_ps(x, _mm512_set1_ps(EXP_MIN));
            let n = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
            let n = _mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(n);
            let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HIGH), x);
            let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LOW), r);
            let mut p = _mm512_set1_ps(EXP_COEFFICIENTS[0]);
            for coefficient in &EXP_COEFFICIENTS[1..] {
                p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*coefficient));
            }
            let p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, _mm512_add_ps(r, _mm512_set1_ps(1.0)));
            _mm512_scalef_ps(p, n)
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a hint, see `simd`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}

/// Rows of activations that share one reading of a block: 16 sums beside its eight registers and a few to work with.
const ROWS: usize = 16;
/// Rows whose sums, one chain each, keep both multipliers busy: an addition takes four or five cycles.
const CHAINS: usize = 8;
/// Blocks, in the order of memory, between the one that is multiplied and the one that is asked for: a page, at whose
/// end the processor's own prefetching stops.
const AHEAD: usize = 8;

/// As `scalar::multiply`.
///
/// # Safety
/// The processor has the instructions, and `weights` [fits](Tiles::fits).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn multiply(weights: &Tiles, input: &Activations, out: &mut Products<'_>) {
    for tile in out.tiles() {
        let Some((blocks, scales)) = weights.tile(tile) else { return };
        let mut row = 0;
        while row < input.rows() {
            let (from, count) = (Source::new(input, row), portion(input.rows() - row));
            let to = out.sink((row, tile), count);
            // SAFETY: rows `row..row + R` exist in `input` and are those of `to`.
            unsafe {
                match count {
                    ROWS => rows::<ROWS>(blocks, scales, from, to),
                    8 => rows::<8>(blocks, scales, from, to),
                    4 => rows::<4>(blocks, scales, from, to),
                    2 => rows::<2>(blocks, scales, from, to),
                    _ => rows::<1>(blocks, scales, from, to),
                }
            }
            row += count;
        }
    }
}

/// How many of `rest` rows go over a tile together.
const fn portion(rest: usize) -> usize {
    match rest {
        ROWS.. => ROWS,
        8.. => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// Rows of activations, from one on.
#[derive(Clone, Copy)]
struct Source {
    values: *const i8,
    scales: *const f32,
    offsets: *const i32,
    /// Rows there are in all: from a group to the next.
    stride: usize,
    /// Whether no rows are left for the same tile, so that the next one is wanted soon.
    is_last: bool,
}

impl Source {
    fn new(input: &Activations, row: usize) -> Self {
        Self {
            values: input.values[row * GROUP..].as_ptr(),
            scales: input.scales[row..].as_ptr(),
            offsets: input.offsets[row..].as_ptr(),
            stride: input.rows(),
            is_last: row + ROWS >= input.rows(),
        }
    }
}

/// `R` rows of activations times one tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn rows<const R: usize>(blocks: &[Block], scales: &[[u16; TILE_ROWS]], from: Source, to: Sink) {
    // SAFETY: `blocks`, `scales` and each row of `from` have as many groups; a block is 8 registers; the mask keeps to
    // the columns of `to`.
    unsafe {
        let mut sums = [_mm512_setzero_ps(); R];
        for (group, (block, scales)) in blocks.iter().zip(scales).enumerate() {
            let quads: [__m512i; GROUP / 4] =
                std::array::from_fn(|quad| _mm512_load_si512(block.0.as_ptr().add(64 * quad).cast()));
            if from.is_last {
                let ahead = block.0.as_ptr().wrapping_add(AHEAD * size_of::<Block>());
                for line in 0..GROUP / QUAD {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * line).cast());
                }
            }
            let scales = _mm512_cvtph_ps(_mm256_loadu_si256(scales.as_ptr().cast()));
            for (row, sum) in sums.iter_mut().enumerate() {
                let place = group * from.stride + row;
                let values = from.values.add(place * GROUP).cast::<i32>();
                let value = |quad: usize| _mm512_set1_epi32(values.add(quad).read_unaligned());
                let mut integers = _mm512_set1_epi32(*from.offsets.add(place));
                if R >= CHAINS {
                    for (quad, weights) in quads.iter().enumerate() {
                        integers = _mm512_dpbusd_epi32(integers, *weights, value(quad));
                    }
                } else {
                    // Two chains of additions, so that few rows do not wait for each of their own.
                    let mut odd = _mm512_setzero_si512();
                    for (pair, [even, odds]) in quads.as_chunks::<2>().0.iter().enumerate() {
                        integers = _mm512_dpbusd_epi32(integers, *even, value(2 * pair));
                        odd = _mm512_dpbusd_epi32(odd, *odds, value(2 * pair + 1));
                    }
                    integers = _mm512_add_epi32(integers, odd);
                }
                let scale = _mm512_mul_ps(scales, _mm512_set1_ps(*from.scales.add(place)));
                *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers), scale, *sum);
            }
        }
        let mask = u16::MAX >> (TILE_ROWS - to.width);
        for (row, sum) in sums.iter().enumerate() {
            _mm512_mask_storeu_ps(to.out.add(row * to.stride), mask, *sum);
        }
    }
}
