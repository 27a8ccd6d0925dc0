//! Paged attention over vectors, for many tokens of one sequence at once: what a prompt asks.
//!
//! A chunk (16 tokens of one head) is converted to f32 once for all queries, its keys transposed, so that 16 scores of
//! a query are sums side by side and nothing is added across a vector. The softmax is that of `paged`.

use super::attention::{Attention, Chunk, Workspace};
use super::simd::{Cell, Simd};
use crate::kv::{BLOCK_TOKENS, Side, f16_to_f32};

/// One head of keys and values, and the rows of queries that ask it: `group` a token.
struct Rows<'a> {
    /// `[row][head_dim]`, over the root of `head_dim`.
    queries: &'a mut [f32],
    /// `[row][head_dim]`: values times weights so far.
    out: &'a mut [f32],
    /// `[row]`: the largest score so far, and the sum of the weights.
    largest: &'a mut [f32],
    sums: &'a mut [f32],
    /// The chunk: keys `[head_dim][16]`, values `[16][head_dim]`.
    keys: &'a mut [f32],
    values: &'a mut [f32],
    width: usize,
}

/// As `scalar::attend`.
///
/// # Safety
/// As `paged::attend`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) unsafe fn attend<S: Simd, C: Cell>(a: &Attention<'_>, workspace: &mut Workspace, out: &mut [f32]) {
    let (shape, queries) = (a.shape, a.queries);
    let (width, count) = (shape.head_dim, queries.tokens * shape.group);
    let chunk = BLOCK_TOKENS * width;
    let numbers = workspace.take(2 * count * (width + 1) + 2 * chunk);
    let (packed, rest) = numbers.split_at_mut(count * width);
    let (sums_out, rest) = rest.split_at_mut(count * width);
    let (largest, rest) = rest.split_at_mut(count);
    let (sums, rest) = rest.split_at_mut(count);
    let (keys, values) = rest.split_at_mut(chunk);
    let mut rows = Rows { queries: packed, out: sums_out, largest, sums, keys, values, width };
    let last = queries.start + queries.tokens;
    for head in 0..shape.kv_heads {
        rows.begin(a, head);
        for chunk in a.chunks.iter().take_while(|chunk| chunk.position < last) {
            rows.convert::<S, C>(a, (*chunk, head), last - chunk.position);
            // Tokens before the chunk see nothing of it.
            let first = chunk.position.saturating_sub(queries.start);
            // SAFETY: the caller's.
            unsafe { rows.walk::<S>(a, *chunk, first * shape.group) };
        }
        for (row, (sum, from)) in rows.sums.iter().zip(rows.out.chunks_exact(width)).enumerate() {
            let place = (row / shape.group * shape.heads() + head * shape.group + row % shape.group) * width;
            let inverse = sum.recip();
            out[place..place + width].iter_mut().zip(from).for_each(|(to, from)| *to = from * inverse);
        }
    }
}

impl Rows<'_> {
    /// Copies the queries of a head and forgets what was before.
    #[inline(always)]
    fn begin(&mut self, a: &Attention<'_>, head: usize) {
        let (shape, width) = (a.shape, self.width);
        let factor = (width as f32).sqrt().recip();
        for (token, to) in self.queries.chunks_exact_mut(shape.group * width).enumerate() {
            let from = token * a.queries.stride + head * shape.group * width;
            let from = &a.queries.values[from..from + shape.group * width];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from * factor);
        }
        self.out.fill(0.0);
        self.largest.fill(f32::NEG_INFINITY);
        self.sums.fill(0.0);
    }

    /// Converts the first `tokens` of a chunk; what is behind them counts as zero.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn convert<S: Simd, C: Cell>(&mut self, a: &Attention<'_>, (chunk, head): (Chunk, usize), tokens: usize) {
        let (shape, width, tokens) = (a.shape, self.width, tokens.min(BLOCK_TOKENS));
        let layer = &a.memory[a.base(chunk)..][..shape.layer_bytes];
        // Keys first into the place of the values, to be transposed from there.
        decode::<S, C>(&layer[shape.side(head, Side::Key)..], self.values, (width, tokens));
        scale::<C>(&layer[shape.scales(head, Side::Key)..], self.values, width);
        let (columns, _) = self.keys.as_chunks_mut::<BLOCK_TOKENS>();
        for (column, key) in columns.iter_mut().enumerate() {
            *key = std::array::from_fn(|token| self.values[token * width + column]);
        }
        decode::<S, C>(&layer[shape.side(head, Side::Value)..], self.values, (width, tokens));
        scale::<C>(&layer[shape.scales(head, Side::Value)..], self.values, width);
    }

    /// All rows from `first` on go over the chunk.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn walk<S: Simd>(&mut self, a: &Attention<'_>, chunk: Chunk, first: usize) {
        let count = self.sums.len();
        let mut row = first;
        while row < count {
            // SAFETY: the rows exist.
            row += unsafe {
                if row + S::QUERY_ROWS <= count && S::QUERY_ROWS == 8 {
                    self.step::<S, 8>(a, chunk, row)
                } else if row + 4 <= count {
                    self.step::<S, 4>(a, chunk, row)
                } else {
                    self.step::<S, 1>(a, chunk, row)
                }
            };
        }
    }

    /// `R` rows from `row` on go over the chunk; `R`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn step<S: Simd, const R: usize>(&mut self, a: &Attention<'_>, chunk: Chunk, row: usize) -> usize {
        // SAFETY: the caller's; the chunk's arrays have 16 times `width` numbers, vectors divide both.
        unsafe {
            let mut weights = self.scores::<S, R>(row);
            for (at, weights) in weights.iter_mut().enumerate() {
                let sees = a.queries.start + (row + at) / a.shape.group + 1 - chunk.position;
                if sees < BLOCK_TOKENS {
                    weights[sees..].fill(f32::NEG_INFINITY);
                }
                self.soften::<S>(row + at, weights);
            }
            for (at, weights) in weights.as_chunks::<ROWS>().0.iter().enumerate() {
                self.gather_rows::<S, ROWS>(row + at * ROWS, weights);
            }
            for (at, weights) in weights.iter().enumerate().skip(R - R % ROWS) {
                self.gather_rows::<S, 1>(
                    row + at,
                    std::slice::from_ref(weights).as_array().unwrap_or(&[*weights]),
                );
            }
        }
        R
    }

    /// The products of `R` queries and 16 keys.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn scores<S: Simd, const R: usize>(&self, row: usize) -> [[f32; BLOCK_TOKENS]; R] {
        let mut scores = [[0.0; BLOCK_TOKENS]; R];
        // SAFETY: the caller's.
        unsafe {
            let queries = self.queries.as_ptr().add(row * self.width);
            // One vector of 16 keys, or two of 8: both at a time, so that a query's number is read once.
            let mut sums = [[S::splat(0.0); R]; 2];
            let vectors = BLOCK_TOKENS / S::LANES;
            for column in 0..self.width {
                let keys = self.keys.as_ptr().add(column * BLOCK_TOKENS);
                for (vector, sums) in sums.iter_mut().enumerate().take(vectors) {
                    let key = S::load(keys.add(vector * S::LANES));
                    for (at, sum) in sums.iter_mut().enumerate() {
                        *sum = S::multiply_add(S::splat(*queries.add(at * self.width + column)), key, *sum);
                    }
                }
            }
            for (vector, sums) in sums.iter().enumerate().take(vectors) {
                for (scores, sum) in scores.iter_mut().zip(sums) {
                    S::store(*sum, scores.as_mut_ptr().add(vector * S::LANES));
                }
            }
        }
        scores
    }

    /// Turns the scores of a row into weights, and brings what it has so far to their measure.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn soften<S: Simd>(&mut self, row: usize, scores: &mut [f32; BLOCK_TOKENS]) {
        // SAFETY: the caller's; vectors divide the 16 scores.
        unsafe {
            let mut top = S::load(scores.as_ptr());
            for first in (S::LANES..BLOCK_TOKENS).step_by(S::LANES) {
                top = S::max(top, S::load(scores.as_ptr().add(first)));
            }
            let (top, largest) = (S::largest(top), self.largest[row]);
            if top > largest {
                let factor = S::exp(S::splat(largest - top));
                self.largest[row] = top;
                let mut first = [0.0; BLOCK_TOKENS];
                S::store(factor, first.as_mut_ptr());
                self.sums[row] *= first[0];
                for column in (0..self.width).step_by(S::LANES) {
                    let out = self.out.as_mut_ptr().add(row * self.width + column);
                    S::store(S::multiply(S::load(out), factor), out);
                }
            }
            for first in (0..BLOCK_TOKENS).step_by(S::LANES) {
                let place = scores.as_mut_ptr().add(first);
                S::store(S::exp(S::add(S::load(place), S::splat(-self.largest[row]))), place);
            }
            self.sums[row] += pairwise(scores);
        }
    }

    /// Adds the chunk's values times the weights of `R` rows from `row` on.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn gather_rows<S: Simd, const R: usize>(
        &mut self,
        row: usize,
        weights: &[[f32; BLOCK_TOKENS]; R],
    ) {
        let mut column = 0;
        // SAFETY: the caller's.
        unsafe {
            while column + COLUMNS * S::LANES <= self.width {
                self.gather::<S, R, COLUMNS>(row, weights, column);
                column += COLUMNS * S::LANES;
            }
            while column < self.width {
                self.gather::<S, R, 1>(row, weights, column);
                column += S::LANES;
            }
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn gather<S: Simd, const R: usize, const N: usize>(
        &mut self,
        row: usize,
        weights: &[[f32; BLOCK_TOKENS]; R],
        column: usize,
    ) {
        let (width, out) = (self.width, self.out.as_mut_ptr());
        // SAFETY: the caller's; `column + N * LANES` is at most the head's size.
        unsafe {
            let place = |at: usize, vector: usize| out.add((row + at) * width + column + vector * S::LANES);
            let mut sums: [[S::Vector; N]; R] =
                std::array::from_fn(|at| std::array::from_fn(|vector| S::load(place(at, vector))));
            for token in 0..BLOCK_TOKENS {
                let values = self.values.as_ptr().add(token * width + column);
                for vector in 0..N {
                    let value = S::load(values.add(vector * S::LANES));
                    for (sums, weights) in sums.iter_mut().zip(weights) {
                        sums[vector] = S::multiply_add(S::splat(weights[token]), value, sums[vector]);
                    }
                }
            }
            for (at, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    S::store(*sum, place(at, vector));
                }
            }
        }
    }
}

/// Rows and vectors of a row whose sums of values stay in registers: eight of AVX2's 16, the rest for values and
/// weights.
const ROWS: usize = 4;
/// See [`ROWS`].
const COLUMNS: usize = 2;

/// Decodes rows `[token][width]` without their scales, zeros behind the last.
#[inline(always)]
fn decode<S: Simd, C: Cell>(bytes: &[u8], out: &mut [f32], (width, tokens): (usize, usize)) {
    let (rows, rest) = out.split_at_mut(tokens * width);
    let vector = S::LANES * C::FORMAT.element_bytes();
    for (to, from) in rows.chunks_exact_mut(S::LANES).zip(bytes.chunks_exact(vector)) {
        // SAFETY: both are a vector long.
        unsafe { S::store(C::load::<S>(from.as_ptr()), to.as_mut_ptr()) };
    }
    rest.fill(0.0);
}

/// Multiplies each row by its scale, where the format has any.
#[inline(always)]
fn scale<C: Cell>(scales: &[u8], rows: &mut [f32], width: usize) {
    if C::FORMAT.is_scaled() {
        for (row, scale) in rows.chunks_exact_mut(width).zip(scales.as_chunks::<2>().0) {
            let scale = f16_to_f32(u16::from_le_bytes(*scale)) * C::SHIFT;
            row.iter_mut().for_each(|value| *value *= scale);
        }
    }
}

/// The sum, by halves, so that a compiler can add side by side.
#[inline(always)]
fn pairwise(numbers: &[f32; BLOCK_TOKENS]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|at| numbers[at] + numbers[at + 8]);
    let four: [f32; 4] = std::array::from_fn(|at| eight[at] + eight[at + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}
