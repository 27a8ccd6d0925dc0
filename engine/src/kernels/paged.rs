//! Paged attention over vectors, for one token at a time: what decoding does.
//!
//! Blocks are walked in order and the heads of a block in turn, which is one linear run of memory. A chunk (16 tokens
//! of one head) updates a softmax that knows the largest weight so far (arXiv 1805.02867). A chunk is half a page or
//! less, so that the processor's own prefetching ends where it begins to be of use; each row therefore asks for the
//! same row of the chunk [`AHEAD`] further on.

use std::mem::MaybeUninit;

use super::attention::{Attention, Chunk, Workspace};
use super::prompt;
use super::simd::{Cell, F16, F32, Fp8, Int8, Simd};
use crate::kv::{BLOCK_TOKENS, Format, Side, f16_from_f32};

/// Chunks between the one that is computed and the one that is asked for: less comes late, much more falls out of
/// the first cache again (measured by `cargo bench -p ebbtide-engine --bench attention`).
const AHEAD: usize = 2;
/// Heads of queries that share one reading of a row; their sums stay in registers.
const HEADS: usize = 4;
/// Bytes that arrive together.
const LINE: usize = 64;

/// As `scalar::attend`, with one token or many.
///
/// # Safety
/// `attention` was checked with `out`, its heads are whole vectors, and this is inlined into an entry point.
#[inline(always)]
pub(super) unsafe fn attend<S: Simd>(attention: &Attention<'_>, workspace: &mut Workspace, out: &mut [f32]) {
    // SAFETY: the caller's.
    unsafe {
        match attention.shape.format {
            Format::F32 => attend_cells::<S, F32>(attention, workspace, out),
            Format::F16 => attend_cells::<S, F16>(attention, workspace, out),
            Format::Int8 => attend_cells::<S, Int8>(attention, workspace, out),
            Format::Fp8 => attend_cells::<S, Fp8>(attention, workspace, out),
        }
    }
}

#[inline(always)]
unsafe fn attend_cells<S: Simd, C: Cell>(a: &Attention<'_>, workspace: &mut Workspace, out: &mut [f32]) {
    // SAFETY: the caller's. 64 is what most models have; as a constant it unrolls the loops over a row.
    unsafe {
        if a.queries.tokens > 1 {
            prompt::attend::<S, C>(a, workspace, out);
        } else if a.queries.tokens == 1 && a.shape.head_dim == 64 {
            decode::<S, C, 64>(a, workspace, out);
        } else if a.queries.tokens == 1 {
            decode::<S, C, 0>(a, workspace, out);
        }
    }
}

/// Keys or values of one chunk, and those to ask for meanwhile.
#[derive(Clone, Copy)]
struct Rows {
    rows: *const u8,
    scales: *const u8,
    ahead: *const u8,
    row_bytes: usize,
}

impl Rows {
    /// Those of one side of a head in chunk `index`.
    #[inline(always)]
    fn new(a: &Attention<'_>, index: usize, (head, side): (usize, Side)) -> Self {
        let shape = a.shape;
        let place = |chunk: Chunk, head| a.memory[a.base(chunk) + shape.side(head, side)..].as_ptr();
        let next = index * shape.kv_heads + head + AHEAD;
        let ahead = a.chunks.get(next / shape.kv_heads).unwrap_or(&a.chunks[index]);
        Self {
            rows: place(a.chunks[index], head),
            scales: a.memory[a.base(a.chunks[index]) + shape.scales(head, side)..].as_ptr(),
            ahead: place(*ahead, next % shape.kv_heads),
            row_bytes: shape.row_bytes(),
        }
    }

    #[inline(always)]
    unsafe fn prefetch<S: Simd>(self, token: usize) {
        for line in (0..self.row_bytes).step_by(LINE) {
            // SAFETY: a hint; the address is only computed.
            unsafe { S::prefetch(self.ahead.wrapping_add(token * self.row_bytes + line)) };
        }
    }
}

/// The state of a few heads of queries: pointers to the first one's part of each array.
#[derive(Clone, Copy)]
struct Heads {
    /// `[head][head_dim]`, over the root of `head_dim`.
    queries: *const f32,
    /// The largest weight so far.
    largest: *mut f32,
    /// `[head][lane]`: the sums of all weights.
    sums: *mut f32,
    /// `[head][head_dim]`: values times weights so far.
    out: *mut f32,
    /// Numbers a head.
    width: usize,
}

/// One token. `D` is the head's size, or 0 to read it at run time.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn decode<S: Simd, C: Cell, const D: usize>(
    a: &Attention<'_>,
    workspace: &mut Workspace,
    out: &mut [f32],
) {
    let shape = a.shape;
    let (heads, width) = (shape.heads(), if D == 0 { shape.head_dim } else { D });
    let (queries, state) = workspace.take(heads * (width + 1 + S::LANES)).split_at_mut(heads * width);
    let (largest, sums) = state.split_at_mut(heads);
    let factor = C::SHIFT / (width as f32).sqrt();
    queries.iter_mut().zip(a.queries.values).for_each(|(to, query)| *to = query * factor);
    largest.fill(f32::NEG_INFINITY);
    sums.fill(0.0);
    out.fill(0.0);
    let end = a.queries.start + 1;
    for (index, chunk) in a.chunks.iter().enumerate() {
        let Some(tokens @ 1..) = end.checked_sub(chunk.position) else { break };
        for head in 0..shape.kv_heads {
            let (key, value) =
                (Rows::new(a, index, (head, Side::Key)), Rows::new(a, index, (head, Side::Value)));
            let first = head * shape.group;
            let heads = Heads {
                queries: queries[first * width..].as_ptr(),
                largest: largest[first..].as_mut_ptr(),
                sums: sums[first * S::LANES..].as_mut_ptr(),
                out: out[first * width..].as_mut_ptr(),
                width,
            };
            // SAFETY: every array has a part for each of the `group` heads from `first` on.
            unsafe {
                if tokens >= BLOCK_TOKENS {
                    group::<S, C>(heads, shape.group, (key, value), BLOCK_TOKENS);
                } else {
                    group::<S, C>(heads, shape.group, (key, value), tokens);
                }
            }
        }
    }
    finish(out, sums, width);
}

/// All `count` heads that share the chunk's keys and values, a few at a time.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn group<S: Simd, C: Cell>(mut heads: Heads, count: usize, rows: (Rows, Rows), tokens: usize) {
    let mut rest = count;
    while rest > 0 {
        // SAFETY: the caller's: `rest` heads are left.
        let done = unsafe {
            match rest {
                HEADS.. => step::<S, C, HEADS>(heads, rows, tokens),
                3 => step::<S, C, 3>(heads, rows, tokens),
                2 => step::<S, C, 2>(heads, rows, tokens),
                _ => step::<S, C, 1>(heads, rows, tokens),
            }
        };
        rest -= done;
        heads.queries = heads.queries.wrapping_add(done * heads.width);
        heads.largest = heads.largest.wrapping_add(done);
        heads.sums = heads.sums.wrapping_add(done * S::LANES);
        heads.out = heads.out.wrapping_add(done * heads.width);
    }
}

/// `G` heads go over one chunk of 1 to 16 `tokens`; `G`.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn step<S: Simd, C: Cell, const G: usize>(
    heads: Heads,
    (keys, values): (Rows, Rows),
    tokens: usize,
) -> usize {
    // SAFETY: the caller's: 16 rows and scales, of which the first `tokens` are looked at, and `G` heads.
    unsafe {
        let mut weights = scores::<S, C, G>(heads, keys, tokens);
        for (head, weights) in weights.iter_mut().enumerate() {
            soften::<S, C>(heads, head, values, weights);
        }
        let width = heads.width;
        let mut column = 0;
        // As many sums side by side as registers hold: four heads by four vectors of 32, or by two of 16.
        while S::LANES == 16 && column + 4 * S::LANES <= width {
            gather::<S, C, G, 4>(heads, values, (&weights, tokens), column);
            column += 4 * S::LANES;
        }
        while column + 2 * S::LANES <= width {
            gather::<S, C, G, 2>(heads, values, (&weights, tokens), column);
            column += 2 * S::LANES;
        }
        while column < width {
            gather::<S, C, G, 1>(heads, values, (&weights, tokens), column);
            column += S::LANES;
        }
    }
    G
}

/// The products of queries and keys, minus infinity where there is no token.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn scores<S: Simd, C: Cell, const G: usize>(
    heads: Heads,
    keys: Rows,
    tokens: usize,
) -> [[f32; BLOCK_TOKENS]; G] {
    let mut scores = [[f32::NEG_INFINITY; BLOCK_TOKENS]; G];
    // SAFETY: the caller's; `first + token` is below 16, as the vectors of 8 or 16 lanes divide it. `sums` is
    // written for every lane before it is read.
    unsafe {
        for first in (0..BLOCK_TOKENS).step_by(S::LANES) {
            let mut sums = MaybeUninit::<[[S::Vector; BLOCK_TOKENS]; G]>::uninit();
            let mut place = |head: usize| sums.as_mut_ptr().cast::<S::Vector>().add(head * BLOCK_TOKENS);
            for token in 0..S::LANES {
                let sum = if first + token < tokens {
                    keys.prefetch::<S>(first + token);
                    let row = keys.rows.add((first + token) * keys.row_bytes);
                    products::<S, C, G>(heads, row)
                } else {
                    [S::splat(0.0); G]
                };
                for (head, sum) in sum.into_iter().enumerate() {
                    place(head).add(token).write(sum);
                }
            }
            for (head, scores) in scores.iter_mut().enumerate() {
                let mut sum = S::sums(place(head));
                if C::FORMAT.is_scaled() {
                    sum = S::multiply(sum, S::load_f16(keys.scales.add(2 * first)));
                }
                S::store(sum, scores.as_mut_ptr().add(first));
            }
        }
        for scores in &mut scores {
            scores[tokens..].fill(f32::NEG_INFINITY);
        }
    }
    scores
}

/// One row of keys times `G` queries, not yet added up across a vector.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn products<S: Simd, C: Cell, const G: usize>(heads: Heads, row: *const u8) -> [S::Vector; G] {
    // SAFETY: the caller's.
    unsafe {
        let mut sums = [S::splat(0.0); G];
        for column in (0..heads.width).step_by(S::LANES) {
            let key = C::load::<S>(row.add(column * C::FORMAT.element_bytes()));
            for (head, sum) in sums.iter_mut().enumerate() {
                let query = S::load(heads.queries.add(head * heads.width + column));
                *sum = S::multiply_add(query, key, *sum);
            }
        }
        sums
    }
}

/// Turns the scores of one head into weights, and brings what it has so far to their measure.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn soften<S: Simd, C: Cell>(
    heads: Heads,
    head: usize,
    values: Rows,
    scores: &mut [f32; BLOCK_TOKENS],
) {
    // SAFETY: the caller's; the vectors of 8 or 16 lanes divide the 16 scores.
    unsafe {
        let mut top = S::load(scores.as_ptr());
        for first in (S::LANES..BLOCK_TOKENS).step_by(S::LANES) {
            top = S::max(top, S::load(scores.as_ptr().add(first)));
        }
        let (top, sums) = (S::largest(top), heads.sums.add(head * S::LANES));
        let largest = heads.largest.add(head);
        if top > *largest {
            let factor = S::exp(S::splat(*largest - top));
            *largest = top;
            S::store(S::multiply(S::load(sums), factor), sums);
            for column in (0..heads.width).step_by(S::LANES) {
                let out = heads.out.add(head * heads.width + column);
                S::store(S::multiply(S::load(out), factor), out);
            }
        }
        for first in (0..BLOCK_TOKENS).step_by(S::LANES) {
            let place = scores.as_mut_ptr().add(first);
            let mut weight = S::exp(S::add(S::load(place), S::splat(-*largest)));
            S::store(S::add(S::load(sums), weight), sums);
            if C::FORMAT.is_scaled() {
                let scales = S::load_f16(values.scales.add(2 * first));
                weight = S::multiply(weight, S::multiply(scales, S::splat(C::SHIFT)));
            }
            S::store(weight, place);
        }
    }
}

/// Adds the values times their weights, `N` vectors of each head from `column` on.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn gather<S: Simd, C: Cell, const G: usize, const N: usize>(
    heads: Heads,
    values: Rows,
    (weights, tokens): (&[[f32; BLOCK_TOKENS]; G], usize),
    column: usize,
) {
    // SAFETY: the caller's; `column + N * LANES` is at most the head's size, and `tokens` at most 16.
    unsafe {
        let place = |head: usize, at: usize| heads.out.add(head * heads.width + column + at * S::LANES);
        let mut sums: [[S::Vector; N]; G] =
            std::array::from_fn(|head| std::array::from_fn(|at| S::load(place(head, at))));
        for token in 0..tokens {
            if column == 0 {
                values.prefetch::<S>(token);
            }
            let row = values.rows.add(token * values.row_bytes + column * C::FORMAT.element_bytes());
            for at in 0..N {
                let value = C::load::<S>(row.add(at * S::LANES * C::FORMAT.element_bytes()));
                for (sums, weights) in sums.iter_mut().zip(weights) {
                    sums[at] = S::multiply_add(S::splat(weights[token]), value, sums[at]);
                }
            }
        }
        for (head, sums) in sums.iter().enumerate() {
            for (at, sum) in sums.iter().enumerate() {
                S::store(*sum, place(head, at));
            }
        }
    }
}

/// Divides what each head of `width` numbers has by the sum of its weights, which is spread over a few lanes.
#[inline(always)]
fn finish(out: &mut [f32], sums: &[f32], width: usize) {
    let lanes = sums.len() * width / out.len().max(1);
    for (out, sums) in out.chunks_exact_mut(width).zip(sums.chunks_exact(lanes.max(1))) {
        let inverse = sums.iter().sum::<f32>().recip();
        out.iter_mut().for_each(|out| *out *= inverse);
    }
}

/// As [`Format::encode`] for f16.
#[inline(always)]
pub(super) fn encode_f16<S: Simd>(values: &[f32], row: &mut [u8]) {
    let count = values.len().min(row.len() / 2);
    let whole = count - count % S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        // SAFETY: `at + LANES` is at most the numbers of either, two bytes each in `row`.
        unsafe { S::store_f16(S::load(values.as_ptr().add(at)), row.as_mut_ptr().add(2 * at)) };
    }
    for (bytes, value) in row.as_chunks_mut::<2>().0.iter_mut().zip(values).skip(whole) {
        *bytes = f16_from_f32(*value).to_le_bytes();
    }
}
