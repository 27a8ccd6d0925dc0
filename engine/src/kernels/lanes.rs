//! Row by row arithmetic in plain Rust, written so that a compiler makes vectors of it.
//!
//! Every set compiles these same functions for its own instructions. Rust fuses no multiplication with an addition
//! by itself, so that the results are the same to the bit in all sets.

use super::GROUP;
use super::activations::{Activations, quantise_group};

/// Sums kept side by side: one AVX-512 register of them.
const LANES: usize = 16;

/// `row * weight / sqrt(mean(row^2) + eps)` into `out` (RMSNorm, arXiv 1910.07467).
#[inline(always)]
pub(super) fn normalise(row: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut sums = [0f32; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value * value;
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += value * value;
    }
    let mean = sums.iter().sum::<f32>() / row.len() as f32;
    let inverse = (mean + eps).sqrt().recip();
    for ((out, value), weight) in out.iter_mut().zip(row).zip(weight) {
        *out = value * inverse * weight;
    }
}

/// [`normalise`] for each row of `weight.len()` numbers.
#[inline(always)]
pub(super) fn normalise_rows(rows: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len().max(1);
    for (row, out) in rows.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        normalise(row, weight, eps, out);
    }
}

/// Adds `delta` to `row`.
#[inline(always)]
pub(super) fn add(row: &mut [f32], delta: &[f32]) {
    for (value, delta) in row.iter_mut().zip(delta) {
        *value += delta;
    }
}

/// `silu(gate) * up` into `gate`, where `silu(x) = x / (1 + exp(-x))` (SwiGLU, arXiv 2002.05202).
#[inline(always)]
pub(super) fn gate(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + exp(-*gate)) * up;
    }
}

/// Turns each pair of neighbours by an angle given as its cosine and sine (RoPE, arXiv 2104.09864, interleaved as
/// in the paper).
#[inline(always)]
pub(super) fn rotate(head: &mut [f32], turns: &[[f32; 2]]) {
    for (pair, [cosine, sine]) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
        let [x, y] = *pair;
        *pair = [x * cosine - y * sine, x * sine + y * cosine];
    }
}

/// [`rotate`] for each head of twice as many numbers as there are turns.
#[inline(always)]
pub(super) fn rotate_heads(heads: &mut [f32], turns: &[[f32; 2]]) {
    for head in heads.chunks_exact_mut((2 * turns.len()).max(1)) {
        rotate(head, turns);
    }
}

/// [`quantise`] for each row of `into`, from rows `stride` apart.
#[inline(always)]
pub(super) fn quantise_rows(values: &[f32], stride: usize, into: &mut Activations) {
    for (row, values) in values.chunks(stride).enumerate().take(into.rows) {
        quantise(&values[..into.columns], row, into);
    }
}

/// Row `row` of `into` from `values`.
#[inline(always)]
pub(super) fn quantise(values: &[f32], row: usize, into: &mut Activations) {
    for (group, values) in values.chunks(GROUP).enumerate() {
        let place = group * into.rows + row;
        let out = &mut into.values[place * GROUP..(place + 1) * GROUP];
        (into.scales[place], into.offsets[place]) = quantise_group(values, out);
    }
}

/// `e^x` within two units in the last place, from -87 to 88; beyond that its value at the nearer end.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = if x > EXP_MAX { EXP_MAX } else { x };
    let x = if x < EXP_MIN { EXP_MIN } else { x };
    // x = n ln 2 + r with |r| <= ln 2 / 2; n in the low bits of a float near 1.5 * 2^23.
    let shifted = x * std::f32::consts::LOG2_E + ROUNDING;
    let n = shifted - ROUNDING;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut p = EXP_COEFFICIENTS[0];
    for coefficient in &EXP_COEFFICIENTS[1..] {
        p = p * r + coefficient;
    }
    let p = p * r * r + r + 1.0;
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits().wrapping_sub(ROUNDING.to_bits()) << 23))
}

/// The largest `x` with a finite `e^x`, and the smallest with a normal one, both rounded inwards.
pub(super) const EXP_MAX: f32 = 88.0;
/// See [`EXP_MAX`].
pub(super) const EXP_MIN: f32 = -87.0;
/// 1.5 * 2^23: a float beside which the last bit weighs one.
const ROUNDING: f32 = 12_582_912.0;
/// ln 2 in two parts, the first short enough that `n` times it is exact (Cephes, `expf`).
pub(super) const LN2_HIGH: f32 = 0.693_359_4;
/// See [`LN2_HIGH`].
pub(super) const LN2_LOW: f32 = -2.121_944_4e-4;
/// `(e^r - 1 - r) / r^2` for `|r| <= ln 2 / 2`, highest power first (Cephes, `expf`).
pub(super) const EXP_COEFFICIENTS: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
