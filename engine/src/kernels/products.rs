//! Where products go: a matrix that threads fill at once, each some of its columns.

use std::marker::PhantomData;
use std::ops::Range;

use super::tiles::TILE_ROWS;

/// The columns that some tiles of weights fill, in every row of a matrix `[row][weight row]`. Nobody else writes or
/// reads them while it lives.
#[derive(Debug)]
pub(super) struct Products<'a> {
    /// The first of its columns in the first row.
    first: *mut f32,
    rows: usize,
    /// From a row to the next.
    stride: usize,
    columns: usize,
    tiles: Range<usize>,
    lives: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for `&mut` to the numbers of its columns, and numbers may go to any thread.
unsafe impl Send for Products<'_> {}

impl<'a> Products<'a> {
    /// All columns of `out`, whose rows have `columns` numbers.
    pub(super) fn new(out: &'a mut [f32], columns: usize) -> Self {
        let rows = out.len().checked_div(columns).unwrap_or(0);
        let tiles = 0..columns.div_ceil(TILE_ROWS);
        Self { first: out.as_mut_ptr(), rows, stride: columns, columns, tiles, lives: PhantomData }
    }

    /// The tiles whose products these are.
    pub(super) fn tiles(&self) -> Range<usize> {
        self.tiles.clone()
    }

    /// Takes the first `tiles` off; `None` where none are left.
    fn split_off(&mut self, tiles: usize) -> Option<Self> {
        let tiles = tiles.min(self.tiles.len());
        if tiles == 0 {
            return None;
        }
        let columns = (tiles * TILE_ROWS).min(self.columns);
        let (first, middle) = (self.first, self.tiles.start + tiles);
        let taken = Self { first, columns, tiles: self.tiles.start..middle, ..*self };
        // One past the last column of the first row at most, and never looked at there.
        self.first = first.wrapping_add(columns);
        self.columns -= columns;
        self.tiles.start = middle;
        Some(taken)
    }

    /// Portions of `tiles` tiles each, the last may have fewer.
    pub(super) fn portions(mut self, tiles: usize) -> impl Iterator<Item = Self> + Send {
        std::iter::from_fn(move || self.split_off(tiles.max(1)))
    }

    /// Writes the products of `tile`, from row `row` on; numbers behind the last column are left out.
    pub(super) fn put(&mut self, (row, tile): (usize, usize), products: &[[f32; TILE_ROWS]]) {
        let Sink { out, stride, width } = self.sink((row, tile), products.len());
        for (at, products) in products.iter().enumerate() {
            // SAFETY: as `Sink` says.
            unsafe { std::ptr::copy_nonoverlapping(products.as_ptr(), out.add(at * stride), width) };
        }
    }

    /// Where the products of `tile` with `rows` rows from `row` on go.
    pub(super) fn sink(&mut self, (row, tile): (usize, usize), rows: usize) -> Sink {
        assert!(self.tiles.contains(&tile), "a tile of somebody else");
        assert!(row < self.rows && rows <= self.rows - row, "a row beyond the last");
        let column = (tile - self.tiles.start) * TILE_ROWS;
        let out = self.first.wrapping_add(row * self.stride + column);
        Sink { out, stride: self.stride, width: TILE_ROWS.min(self.columns - column) }
    }
}

/// Rows `stride` apart, of which `width` numbers each may be written while the [`Products`] they are from live.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sink {
    pub(super) out: *mut f32,
    pub(super) stride: usize,
    pub(super) width: usize,
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::kernels::Crew;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]
        #[test]
        fn threads_fill_everything_once(
            rows in 0..4usize, columns in 0..100usize, portion in 0..8usize, threads in 1..4u16,
        ) {
            let mut out = vec![0.0; rows * columns];
            let tiles = AtomicUsize::new(0);
            let mut crew = Crew::new(NonZeroU16::new(threads).unwrap()).unwrap();
            crew.share(Products::new(&mut out, columns).portions(portion), |_, mut portion| {
                for tile in portion.tiles() {
                    tiles.fetch_add(tile + 1, Ordering::Relaxed);
                    for row in 0..rows {
                        portion.put((row, tile), &[[(row * 100 + tile + 1) as f32; TILE_ROWS]]);
                    }
                }
            });
            let count = columns.div_ceil(TILE_ROWS);
            prop_assert_eq!(tiles.into_inner(), count * (count + 1) / 2);
            for (at, value) in out.iter().enumerate() {
                prop_assert_eq!(*value, (at / columns * 100 + at % columns / TILE_ROWS + 1) as f32);
            }
        }
    }

    #[test]
    #[should_panic(expected = "somebody else")]
    fn a_portion_writes_only_its_own() {
        let mut out = vec![0.0; 64];
        let mut portions = Products::new(&mut out, 64).portions(2).collect::<Vec<_>>();
        portions[1].put((0, 1), &[[1.0; TILE_ROWS]]);
    }
}
