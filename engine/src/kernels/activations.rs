//! What is multiplied by weights.

use super::GROUP;
use super::tiles::OFFSET;

/// Rows of numbers as integers from -127 to 127, 32 columns of a row to a scale. Made by
/// [`Kernels::quantise`](super::Kernels::quantise); its memory is used again.
#[derive(Debug, Clone, Default)]
pub struct Activations {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// `[group][row][32]`, the last group padded with zeros: rows that are multiplied together lie side by side.
    pub(super) values: Vec<i8>,
    /// `[group][row]`.
    pub(super) scales: Vec<f32>,
    /// `[group][row]`: minus 128 times the sum of a group, which takes back the offset of the weights.
    pub(super) offsets: Vec<i32>,
}

impl Activations {
    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers a row.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Groups of 32 a row, the last may be padded.
    pub(super) const fn groups(&self) -> usize {
        self.columns.div_ceil(GROUP)
    }

    /// Takes the shape of `rows` by `columns`.
    pub(super) fn reshape(&mut self, rows: usize, columns: usize) {
        (self.rows, self.columns) = (rows, columns);
        let groups = rows * self.groups();
        // Padding must be zero; everything else is written anew.
        if columns.is_multiple_of(GROUP) {
            self.values.resize(groups * GROUP, 0);
        } else {
            self.values.clear();
            self.values.resize(groups * GROUP, 0);
        }
        self.scales.resize(groups, 0.0);
        self.offsets.resize(groups, 0);
    }
}

/// One group of at most 32 numbers: their integers into `out`, the scale and the offset returned. The scale is the
/// largest magnitude over 127.
#[inline(always)]
pub(super) fn quantise_group(values: &[f32], out: &mut [i8]) -> (f32, i32) {
    let mut largest = [0f32; 8];
    let (eights, rest) = values.as_chunks::<8>();
    for eight in eights {
        for (largest, value) in largest.iter_mut().zip(eight) {
            *largest = if value.abs() > *largest { value.abs() } else { *largest };
        }
    }
    for value in rest {
        largest[0] = largest[0].max(value.abs());
    }
    let largest = largest.iter().fold(0f32, |a, b| a.max(*b));
    let scale = largest / 127.0;
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let mut sum = 0;
    for (out, value) in out.iter_mut().zip(values) {
        // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, in the low bits of the sum.
        let bits = (value * inverse + ROUNDING).to_bits() as i32;
        *out = bits.wrapping_sub(ROUNDING.to_bits() as i32) as i8;
        sum += i32::from(*out);
    }
    (scale, -OFFSET * sum)
}

const ROUNDING: f32 = 12_582_912.0;
