//! Weights as the kernels read them.

use super::{Activations, GROUP};
use crate::kv::{f16_from_f32, f16_to_f32};

/// Rows of weights in a tile: what one AVX-512 register of 32-bit sums holds.
pub(super) const TILE_ROWS: usize = 16;
/// Weights that one 32-bit lane multiplies at a time.
pub(super) const QUAD: usize = 4;

/// 16 rows by 32 columns of weights, `[column / 4][row][column % 4]`: eight registers, each with four columns of all
/// rows. A byte is the weight over its scale, plus 128: the multiplication `vpdpbusd` wants one side unsigned.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Block(pub(super) [u8; TILE_ROWS * GROUP]);

/// What weights are offset by in a [`Block`].
pub(super) const OFFSET: i32 = 128;

/// A matrix of weights, 8 bits and a sixteenth each: 32 columns of a row share an f16 scale.
///
/// Rows beyond the last and columns beyond the last count as zero, up to whole tiles.
#[derive(Debug, Clone)]
pub struct Tiles {
    rows: usize,
    columns: usize,
    /// `[row / 16][column / 32]`.
    blocks: Vec<Block>,
    /// The f16 scales of the rows of each block.
    scales: Vec<[u16; TILE_ROWS]>,
}

impl Tiles {
    /// Quantises `weights`, row-major `[rows][columns]` of f32: the scale of a group is its largest magnitude over
    /// 127, as an f16.
    ///
    /// `None` where `columns` is zero or does not divide the length.
    #[must_use]
    pub fn new(weights: &[f32], columns: usize) -> Option<Self> {
        let rows = weights.len().checked_div(columns)?;
        if rows * columns != weights.len() {
            return None;
        }
        let groups = columns.div_ceil(GROUP);
        let count = rows.div_ceil(TILE_ROWS) * groups;
        let mut blocks = vec![Block([OFFSET as u8; TILE_ROWS * GROUP]); count];
        let mut scales = vec![[0; TILE_ROWS]; count];
        for (row, weights) in weights.chunks_exact(columns).enumerate() {
            for (group, weights) in weights.chunks(GROUP).enumerate() {
                let at = row / TILE_ROWS * groups + group;
                scales[at][row % TILE_ROWS] = quantise(weights, row % TILE_ROWS, &mut blocks[at]);
            }
        }
        Some(Self { rows, columns, blocks, scales })
    }

    /// Rows: numbers that come out of a multiplication.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: numbers that go into it.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<Block>() + self.scales.len() * size_of::<[u16; TILE_ROWS]>()
    }

    /// One row as f32, [`Self::columns`] numbers into `out`; nothing where there is no such row.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        let (tile, lane) = (row / TILE_ROWS, row % TILE_ROWS);
        let Some((blocks, scales)) = self.tile(tile).filter(|_| row < self.rows) else { return };
        for ((out, block), scales) in out[..self.columns].chunks_mut(GROUP).zip(blocks).zip(scales) {
            let scale = f16_to_f32(scales[lane]);
            for (column, out) in out.iter_mut().enumerate() {
                *out = (i32::from(block.0[place(lane, column)]) - OFFSET) as f32 * scale;
            }
        }
    }

    /// Tiles of 16 rows.
    pub(super) const fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// The blocks of tile `tile` and their scales, as many as there are groups of columns.
    pub(super) fn tile(&self, tile: usize) -> Option<(&[Block], &[[u16; TILE_ROWS]])> {
        let groups = self.columns.div_ceil(GROUP);
        let range = tile * groups..(tile + 1) * groups;
        Some((self.blocks.get(range.clone())?, self.scales.get(range)?))
    }

    /// Whether `input` can be multiplied by it, with room for the products in `out`.
    pub(super) const fn fits(&self, input: &Activations, out: &[f32]) -> bool {
        input.columns() == self.columns && out.len() == input.rows() * self.rows
    }
}

/// Where the weight at `row` of the tile and `column` of the group lies.
pub(super) const fn place(row: usize, column: usize) -> usize {
    column / QUAD * (TILE_ROWS * QUAD) + row * QUAD + column % QUAD
}

/// Writes one row of a block and returns its scale.
fn quantise(weights: &[f32], row: usize, block: &mut Block) -> u16 {
    let largest = weights.iter().fold(0f32, |largest, weight| largest.max(weight.abs()));
    let scale = f16_from_f32(largest / 127.0);
    let inverse = f16_to_f32(scale).recip();
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    for (column, weight) in weights.iter().enumerate() {
        let value = (weight * inverse).round_ties_even().clamp(-127.0, 127.0) as i32;
        block.0[place(row, column)] = (value + OFFSET) as u8;
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]
        #[test]
        fn weights_come_back_within_half_a_step(
            columns in 1..100usize, rows in 1..40usize, seed: u64, power in -10..4i32,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let weights: Vec<f32> =
                (0..rows * columns).map(|_| (random.f32() - 0.5) * 2f32.powi(power)).collect();
            let tiles = Tiles::new(&weights, columns).unwrap();
            let mut back = vec![0.0; columns];
            for (row, weights) in weights.chunks_exact(columns).enumerate() {
                tiles.read_row(row, &mut back);
                for (group, back) in weights.chunks(GROUP).zip(back.chunks(GROUP)) {
                    let largest = group.iter().fold(0f32, |a, b| a.max(b.abs()));
                    // Half a step, and half the last bit of the f16 scale, at least 2^-25, at its 127th multiple.
                    let bound = largest / 127.0 * 0.5 + largest / 2048.0 + 128.0 / 33_554_432.0;
                    for (weight, back) in group.iter().zip(back) {
                        prop_assert!((weight - back).abs() <= bound, "{} came back as {}", weight, back);
                    }
                }
            }
        }
    }

    #[test]
    fn a_ragged_matrix_is_refused_and_an_absent_row_reads_as_nothing() {
        assert!(Tiles::new(&[1.0; 7], 3).is_none() && Tiles::new(&[1.0; 7], 0).is_none());
        let tiles = Tiles::new(&[1.0; 6], 3).unwrap();
        let mut out = [9.0; 3];
        tiles.read_row(2, &mut out);
        assert_eq!(out, [9.0; 3]);
    }
}
