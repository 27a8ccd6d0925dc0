//! Where what lies inside a block, and where a block lies in the pool.
//!
//! ```text
//! extent  = blocks, then padding to whole granules
//! block   = layer 0 | layer 1 | ...                  a block goes and comes back as a whole
//! layer   = scales [head][K|V][16] of f16 | rows [head][K|V][16][head_dim], padded to a cache line
//! ```
//!
//! A walk over the heads of a block in turn is one linear run; a 16-token chunk of one head, 2 KiB of f16 at
//! `head_dim` 64, is what an attention kernel reads at a time.

use std::ops::Range;

use super::BLOCK_TOKENS;
use super::format::Format;

/// A block of the pool, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the pool has to know of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Layers that keep keys and values.
    pub layers: usize,
    /// Heads of keys and values a layer; fewer than the query's with grouped-query attention.
    pub kv_heads: usize,
    /// Numbers a head.
    pub head_dim: usize,
}

/// Keys or values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The keys.
    Key,
    /// The values.
    Value,
}

/// One row of a block: what one token left in one head of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// The layer, from 0.
    pub layer: usize,
    /// The KV head, from 0.
    pub head: usize,
    /// Keys or values.
    pub side: Side,
    /// The token's place in its block, from 0 to 15.
    pub token: usize,
}

/// A layout that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A dimension is zero.
    #[error("{0:?} holds nothing; layers, heads and head size must all be at least 1")]
    Empty(Geometry),
    /// A block would be larger than anything.
    #[error("a block of {0:?} is larger than {max}; check the model's sizes", max = ebbtide_core::Bytes(MAX_BLOCK_BYTES as u64))]
    TooLarge(Geometry),
}

/// The largest block. Llama-3.1-405B takes 16 MiB at f32; what is far beyond that is a mistake in a file.
const MAX_BLOCK_BYTES: usize = 1 << 30;
/// Rows start at a cache line where `head_dim` allows it, so that vector loads never straddle two.
const LINE: usize = 64;
/// Padding an extent may have: 1/256 keeps INT8 within 0.52 of f16 (0.516 before padding, at `head_dim` 64).
const PADDING_PARTS: usize = 256;

/// Sizes and offsets, all in bytes, of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    geometry: Geometry,
    format: Format,
    header_bytes: usize,
    layer_bytes: usize,
    extent_blocks: usize,
    extent_bytes: usize,
}

impl Layout {
    /// The layout of `geometry` kept as `format`, in memory that is taken and given back by `granule` bytes: a
    /// page, or a huge page.
    ///
    /// An extent is the fewest blocks whose padding to granules is at most 1/256.
    ///
    /// # Errors
    /// Where the geometry is empty, or too large to be a model's.
    pub fn new(geometry: Geometry, format: Format, granule: usize) -> Result<Self, LayoutError> {
        let Geometry { layers, kv_heads, head_dim } = geometry;
        if layers == 0 || kv_heads == 0 || head_dim == 0 {
            return Err(LayoutError::Empty(geometry));
        }
        let rows = kv_heads.checked_mul(2 * BLOCK_TOKENS);
        let elements = rows.and_then(|rows| rows.checked_mul(head_dim));
        let block = elements.and_then(|n| n.checked_mul(4)).and_then(|n| n.checked_mul(layers));
        let fits = block.is_some_and(|bytes| bytes <= MAX_BLOCK_BYTES);
        let (Some(rows), Some(elements), true) = (rows, elements, fits) else {
            return Err(LayoutError::TooLarge(geometry));
        };
        let header_bytes = if format.is_scaled() { rows * SCALE_BYTES } else { 0 };
        let layer_bytes = (header_bytes + elements * format.element_bytes()).next_multiple_of(LINE);
        let (extent_blocks, extent_bytes) = extent(layer_bytes * layers, granule.max(1));
        Ok(Self { geometry, format, header_bytes, layer_bytes, extent_blocks, extent_bytes })
    }

    /// The same with extents of `blocks`, whatever their padding to `granule` bytes: with the blocks of a sequence's
    /// longest answer, each that reserves as much has an extent of its own, whose blocks are in order. That is
    /// contiguous preallocation, read by the same kernels through the same tables.
    #[must_use]
    pub const fn with_extent(self, blocks: usize, granule: usize) -> Self {
        let extent_blocks = if blocks == 0 { 1 } else { blocks };
        let extent_bytes = (extent_blocks * self.block_bytes()).next_multiple_of(granule);
        Self { extent_blocks, extent_bytes, ..self }
    }

    /// What it was made for.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What numbers are kept as.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Bytes of a block: 16 tokens, all layers.
    #[must_use]
    pub const fn block_bytes(&self) -> usize {
        self.layer_bytes * self.geometry.layers
    }

    /// Bytes of one layer of a block.
    #[must_use]
    pub const fn layer_bytes(&self) -> usize {
        self.layer_bytes
    }

    /// Blocks that are taken from the kernel and given back to it together.
    #[must_use]
    pub const fn extent_blocks(&self) -> usize {
        self.extent_blocks
    }

    /// Bytes of such an extent, whole granules.
    #[must_use]
    pub const fn extent_bytes(&self) -> usize {
        self.extent_bytes
    }

    /// Bytes of one row, without its scale.
    #[must_use]
    pub const fn row_bytes(&self) -> usize {
        self.geometry.head_dim * self.format.element_bytes()
    }

    /// Where `block` lies in the pool's memory.
    #[must_use]
    pub const fn block(&self, block: BlockId) -> Range<usize> {
        let (extent, within) = (block.index() / self.extent_blocks, block.index() % self.extent_blocks);
        let start = extent * self.extent_bytes + within * self.block_bytes();
        start..start + self.block_bytes()
    }

    /// Where `row` lies in its block.
    #[must_use]
    pub const fn row(&self, row: Row) -> Range<usize> {
        let start = row.layer * self.layer_bytes + self.header_bytes + Self::ordinal(row) * self.row_bytes();
        start..start + self.row_bytes()
    }

    /// Where the f16 scale of `row` lies in its block; `None` where the format has none.
    #[must_use]
    pub const fn scale(&self, row: Row) -> Option<Range<usize>> {
        if !self.format.is_scaled() {
            return None;
        }
        let start = row.layer * self.layer_bytes + Self::ordinal(row) * SCALE_BYTES;
        Some(start..start + SCALE_BYTES)
    }

    const fn ordinal(row: Row) -> usize {
        let side = matches!(row.side, Side::Value) as usize;
        (row.head * 2 + side) * BLOCK_TOKENS + row.token
    }
}

const SCALE_BYTES: usize = 2;

/// Blocks and bytes of the smallest extent with little enough padding.
fn extent(block: usize, granule: usize) -> (usize, usize) {
    let mut bytes = block.next_multiple_of(granule);
    // Padding is less than a block, so this ends at 256 blocks' worth of granules at the latest.
    while bytes % block > bytes / PADDING_PARTS {
        bytes += granule;
    }
    (bytes / block, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: usize = 4096;
    const HUGE: usize = 2 << 20;
    const SMOLLM2: Geometry = Geometry { layers: 30, kv_heads: 3, head_dim: 64 };

    #[test]
    fn blocks_of_a_known_model_have_known_sizes() {
        let f16 = Layout::new(SMOLLM2, Format::F16, PAGE).unwrap();
        // 22.5 KiB a token: 2 x 30 x 3 x 64 numbers of two bytes.
        assert_eq!((f16.block_bytes(), f16.extent_blocks()), (360 << 10, 1));
        let int8 = Layout::new(SMOLLM2, Format::Int8, PAGE).unwrap();
        let a_block = int8.extent_bytes() as f64 / int8.extent_blocks() as f64;
        assert!(a_block <= 0.52 * f16.extent_bytes() as f64, "{int8:?}");
        let llama = Geometry { layers: 32, kv_heads: 8, head_dim: 128 };
        assert_eq!(Layout::new(llama, Format::F16, HUGE).unwrap().extent_bytes(), HUGE);
    }

    #[test]
    fn nonsense_is_refused() {
        let none = Geometry { layers: 0, ..SMOLLM2 };
        assert_eq!(Layout::new(none, Format::F16, PAGE), Err(LayoutError::Empty(none)));
        let vast = Geometry { head_dim: usize::MAX / 2, ..SMOLLM2 };
        let error = Layout::new(vast, Format::F16, PAGE).unwrap_err();
        assert!(error.to_string().contains("1.0 GiB"), "{error}");
    }

    fn formats() -> impl Strategy<Value = Format> {
        prop::sample::select(vec![Format::F32, Format::F16, Format::Int8, Format::Fp8])
    }

    proptest! {
        #[test]
        fn rows_and_scales_tile_a_block(
            layers in 1..4usize, kv_heads in 1..4usize, head_dim in 1..70usize, format in formats(),
        ) {
            let layout = Layout::new(Geometry { layers, kv_heads, head_dim }, format, PAGE).unwrap();
            let mut taken = vec![false; layout.block_bytes()];
            for layer in 0..layers {
                for head in 0..kv_heads {
                    for (side, token) in [Side::Key, Side::Value].into_iter().flat_map(|s| (0..16).map(move |t| (s, t))) {
                        let row = Row { layer, head, side, token };
                        for at in layout.row(row).chain(layout.scale(row).into_iter().flatten()) {
                            prop_assert!(!std::mem::replace(&mut taken[at], true), "{:?} overlaps", row);
                        }
                    }
                }
            }
            let padding = taken.iter().filter(|taken| !**taken).count();
            prop_assert!(padding < LINE * layers);
        }

        #[test]
        fn extents_are_whole_granules_with_little_padding(
            layers in 1..81usize, kv_heads in 1..9usize, head_dim in 1..257usize, format in formats(), huge: bool,
        ) {
            let granule = if huge { HUGE } else { PAGE };
            let layout = Layout::new(Geometry { layers, kv_heads, head_dim }, format, granule).unwrap();
            let filled = layout.extent_blocks() * layout.block_bytes();
            prop_assert_eq!(layout.extent_bytes() % granule, 0);
            prop_assert!((layout.extent_bytes() - filled) * PADDING_PARTS <= layout.extent_bytes());
            let last = BlockId(layout.extent_blocks() as u32 - 1);
            prop_assert!(layout.block(last).end <= layout.extent_bytes());
            prop_assert_eq!(layout.block(BlockId(last.0 + 1)).start, layout.extent_bytes());
        }
    }
}
