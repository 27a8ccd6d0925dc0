//! Attention through block tables: what is asked, and the checks that the kernels rest on.

use crate::kv::{Addressable, BLOCK_TOKENS, Entry, Format, Layout, Pool, PoolError, Row, SequenceId, Side};

/// 16 tokens of a sequence that are in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Where their block begins in the pool's memory, in bytes.
    pub at: usize,
    /// The position of the first of them in the sequence.
    pub position: usize,
}

impl Chunk {
    /// The blocks of `sequence` that attention can look at, in order, into `chunks`: what is dropped behind a sliding
    /// window is left out.
    ///
    /// # Errors
    /// [`PoolError::UnknownSequence`], and [`PoolError::NotResident`] where a block is in the host file.
    pub fn read<M: Addressable>(
        pool: &Pool<M>,
        sequence: SequenceId,
        chunks: &mut Vec<Self>,
    ) -> Result<(), PoolError> {
        chunks.clear();
        let table = pool.table(sequence)?;
        for (index, entry) in table.entries().iter().enumerate() {
            let position = index * BLOCK_TOKENS;
            if position >= table.tokens() {
                break;
            }
            match entry {
                Entry::Resident(block) => {
                    chunks.push(Self { at: pool.layout().block(*block).start, position });
                }
                Entry::Dropped => {}
                Entry::Offloaded(_) => return Err(PoolError::NotResident { sequence, index }),
            }
        }
        Ok(())
    }
}

/// How heads lie in one layer of a block, and how many queries share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// What keys and values are kept as.
    pub format: Format,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Heads of queries for each of them (grouped-query attention).
    pub group: usize,
    /// Numbers a head.
    pub head_dim: usize,
    /// The first of the heads, among those of the layout.
    first: usize,
    /// Bytes from the start of a layer to its rows, and of a layer as a whole.
    pub(super) rows_at: usize,
    pub(super) layer_bytes: usize,
}

impl Shape {
    /// The shape of `layout` with `heads` of queries; `None` where they are no multiple of the KV heads.
    #[must_use]
    pub fn new(layout: &Layout, heads: usize) -> Option<Self> {
        let geometry = layout.geometry();
        let group = heads / geometry.kv_heads;
        let first = Row { layer: 0, head: 0, side: Side::Key, token: 0 };
        (heads > 0 && group * geometry.kv_heads == heads).then(|| Self {
            format: layout.format(),
            kv_heads: geometry.kv_heads,
            group,
            head_dim: geometry.head_dim,
            first: 0,
            rows_at: layout.row(first).start,
            layer_bytes: layout.layer_bytes(),
        })
    }

    /// The shape of one of its heads of keys and values, as if there were no other.
    #[must_use]
    pub(crate) const fn only(self, head: usize) -> Self {
        Self { kv_heads: 1, first: self.first + head, ..self }
    }

    /// Heads of queries.
    #[must_use]
    pub const fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Bytes of a row.
    pub(super) const fn row_bytes(&self) -> usize {
        self.head_dim * self.format.element_bytes()
    }

    /// From the start of a layer to the 16 rows of a side of a head.
    pub(super) const fn side(&self, head: usize, side: Side) -> usize {
        self.rows_at + self.ordinal(head, side) * BLOCK_TOKENS * self.row_bytes()
    }

    /// From the start of a layer to the 16 scales of a side of a head, where the format has any.
    pub(super) const fn scales(&self, head: usize, side: Side) -> usize {
        self.ordinal(head, side) * BLOCK_TOKENS * size_of::<u16>()
    }

    const fn ordinal(&self, head: usize, side: Side) -> usize {
        (self.first + head) * 2 + matches!(side, Side::Value) as usize
    }
}

/// Queries of successive tokens of one sequence, all heads of each.
#[derive(Debug, Clone, Copy)]
pub struct Queries<'a> {
    /// `[token][head][head_dim]`, the rows of tokens `stride` apart.
    pub values: &'a [f32],
    /// From a token to the next.
    pub stride: usize,
    /// The position of the first token; each looks at itself and what is before it.
    pub start: usize,
    /// How many tokens.
    pub tokens: usize,
}

/// What attention computes with on the way; its memory is used again.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    pub(super) numbers: Vec<f32>,
}

impl Workspace {
    /// `count` numbers, whatever they were.
    pub(super) fn take(&mut self, count: usize) -> &mut [f32] {
        if self.numbers.len() < count {
            self.numbers.resize(count, 0.0);
        }
        &mut self.numbers[..count]
    }
}

/// What one sequence asks of one layer.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// How heads lie.
    pub shape: Shape,
    /// The pool's memory.
    pub memory: &'a [u8],
    /// The sequence's blocks, in order of their positions.
    pub chunks: &'a [Chunk],
    /// Which layer, from 0.
    pub layer: usize,
    /// Who asks.
    pub queries: Queries<'a>,
}

impl Attention<'_> {
    /// Where this layer of `chunk` begins.
    pub(super) const fn base(&self, chunk: Chunk) -> usize {
        chunk.at + self.layer * self.shape.layer_bytes
    }

    /// Checks everything that the kernels take for granted about lengths. `out` is `[token][head][head_dim]`.
    pub(super) fn check(&self, out: &[f32]) {
        let width = self.shape.heads() * self.shape.head_dim;
        let Queries { values, stride, tokens, start } = self.queries;
        assert!(stride >= width, "queries of {width} numbers every {stride}");
        assert!(
            tokens == 0 || values.len() >= (tokens - 1) * stride + width,
            "queries shorter than {tokens}"
        );
        assert_eq!(out.len(), tokens * width, "room for other than {tokens} tokens");
        let ends = self.chunks.iter().map(|chunk| self.base(*chunk) + self.shape.layer_bytes);
        assert!(ends.max().is_none_or(|end| end <= self.memory.len()), "a block beyond the pool");
        assert!(self.chunks.is_sorted_by_key(|chunk| chunk.position), "blocks out of order");
        let first = self.chunks.first().map(|chunk| chunk.position);
        assert!(tokens == 0 || first.is_some_and(|first| first <= start), "a query that sees nothing");
    }
}

/// What several sequences ask of one layer, in portions that threads can take in any order: each is computed alike
/// whoever takes it.
#[derive(Debug)]
pub struct Portions<'a> {
    portions: Vec<(Attention<'a>, &'a mut [f32])>,
    /// Multiplications of queries and keys, about.
    products: usize,
    /// Whether there are so few sequences that single tokens are split by heads.
    by_heads: bool,
    is_shared: bool,
}

/// Tokens of a prompt that go together at least: a chunk is converted once for all of them.
const STRETCH: usize = 64;

impl<'a> Portions<'a> {
    /// None yet, of `sequences` in all, for `threads` threads.
    #[must_use]
    pub fn new(sequences: usize, threads: usize) -> Self {
        // A block's heads lie one after the other, so that whole blocks are read faster than heads of them.
        let by_heads = sequences < threads;
        Self { portions: Vec::with_capacity(sequences), products: 0, by_heads, is_shared: threads > 1 }
    }

    /// Multiplications of queries and keys in all of them, about: it says how long they take.
    pub(super) const fn products(&self) -> usize {
        self.products
    }

    /// Adds those of `attention`, for which `out` is `[token][head][head_dim]`.
    pub fn add(&mut self, attention: Attention<'a>, out: &'a mut [f32]) {
        self.products += out.len() * attention.chunks.len() * BLOCK_TOKENS;
        match attention.queries.tokens {
            1 if self.by_heads => self.add_heads(attention, out),
            tokens if self.is_shared && tokens >= 2 * STRETCH => self.add_stretches(attention, out),
            _ => self.portions.push((attention, out)),
        }
    }

    /// One token, a head of keys and values at a time.
    fn add_heads(&mut self, attention: Attention<'a>, out: &'a mut [f32]) {
        let Attention { shape, queries, .. } = attention;
        let width = shape.group * shape.head_dim;
        for (head, out) in out.chunks_exact_mut(width).enumerate() {
            let queries = Queries { values: &queries.values[head * width..], ..queries };
            self.portions.push((Attention { shape: shape.only(head), queries, ..attention }, out));
        }
    }

    /// Stretches of a prompt. All have more than one token: one alone would be added up in another order.
    fn add_stretches(&mut self, attention: Attention<'a>, mut out: &'a mut [f32]) {
        let Attention { shape, queries, .. } = attention;
        let (width, count) = (shape.heads() * shape.head_dim, queries.tokens / STRETCH);
        let begin = |stretch: usize| stretch * queries.tokens / count;
        for stretch in 0..count {
            let (first, tokens) = (begin(stretch), begin(stretch + 1) - begin(stretch));
            let (part, rest) = out.split_at_mut(tokens * width);
            let values = &queries.values[first * queries.stride..];
            let queries = Queries { values, start: queries.start + first, tokens, ..queries };
            self.portions.push((Attention { queries, ..attention }, part));
            out = rest;
        }
    }
}

impl<'a> IntoIterator for Portions<'a> {
    type Item = (Attention<'a>, &'a mut [f32]);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.portions.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Geometry;

    #[test]
    fn a_shape_finds_what_the_layout_wrote() {
        for format in [Format::F32, Format::F16, Format::Int8, Format::Fp8] {
            let geometry = Geometry { layers: 3, kv_heads: 2, head_dim: 24 };
            let layout = Layout::new(geometry, format, 4096).unwrap();
            let shape = Shape::new(&layout, 6).unwrap();
            assert_eq!((shape.group, shape.heads()), (3, 6));
            for (head, side) in [(0, Side::Key), (0, Side::Value), (1, Side::Key), (1, Side::Value)] {
                let row = Row { layer: 2, head, side, token: 0 };
                assert_eq!(2 * shape.layer_bytes + shape.side(head, side), layout.row(row).start);
                let scales = 2 * shape.layer_bytes + shape.scales(head, side);
                assert_eq!(layout.scale(row).map(|scale| scale.start), format.is_scaled().then_some(scales));
            }
            assert_eq!(Shape::new(&layout, 5), None);
        }
    }
}
