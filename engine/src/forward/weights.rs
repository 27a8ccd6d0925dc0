//! Weights as the forward pass uses them: matrices that are used together are one.

use crate::kernels::Tiles;
use crate::model::{Geometry, ModelError, RopeStyle, Tensor, Weights};

/// One layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) attention_norm: Vec<f32>,
    /// Queries, keys and values, one under the other.
    pub(super) attention_in: Tiles,
    pub(super) attention_out: Tiles,
    pub(super) ffn_norm: Vec<f32>,
    /// Gate and up, one under the other.
    pub(super) ffn_in: Tiles,
    pub(super) ffn_out: Tiles,
}

/// All layers, and what stands before and behind them.
#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) embedding: Tiles,
    pub(super) layers: Vec<Layer>,
    pub(super) final_norm: Vec<f32>,
    /// `None` where the embedding serves.
    pub(super) output: Option<Tiles>,
}

impl Parameters {
    pub(super) fn read(weights: &dyn Weights) -> Result<Self, ModelError> {
        let geometry = weights.geometry();
        geometry.check()?;
        let mut reader = Reader { weights, geometry, numbers: Vec::new() };
        Ok(Self {
            embedding: reader.tiles(&[Tensor::Embedding])?,
            layers: (0..geometry.layers).map(|layer| reader.layer(layer)).collect::<Result<_, _>>()?,
            final_norm: reader.vector(Tensor::FinalNorm)?,
            output: if geometry.tied { None } else { Some(reader.tiles(&[Tensor::Output])?) },
        })
    }

    /// What logits are read with.
    pub(super) fn output(&self) -> &Tiles {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

struct Reader<'a> {
    weights: &'a dyn Weights,
    geometry: &'a Geometry,
    numbers: Vec<f32>,
}

impl Reader<'_> {
    fn layer(&mut self, layer: usize) -> Result<Layer, ModelError> {
        Ok(Layer {
            attention_norm: self.vector(Tensor::AttentionNorm(layer))?,
            attention_in: self.tiles(&[Tensor::Query(layer), Tensor::Key(layer), Tensor::Value(layer)])?,
            attention_out: self.tiles(&[Tensor::AttentionOut(layer)])?,
            ffn_norm: self.vector(Tensor::FfnNorm(layer))?,
            ffn_in: self.tiles(&[Tensor::Gate(layer), Tensor::Up(layer)])?,
            ffn_out: self.tiles(&[Tensor::Down(layer)])?,
        })
    }

    fn vector(&mut self, tensor: Tensor) -> Result<Vec<f32>, ModelError> {
        self.numbers.clear();
        self.append(tensor)?;
        Ok(self.numbers.clone())
    }

    /// Matrices of as many columns, one under the other.
    fn tiles(&mut self, tensors: &[Tensor]) -> Result<Tiles, ModelError> {
        self.numbers.clear();
        for tensor in tensors {
            self.append(*tensor)?;
        }
        let columns = tensors.first().map_or(0, |tensor| self.geometry.shape(*tensor).1);
        Tiles::new(&self.numbers, columns).ok_or(ModelError::Geometry("a matrix without columns"))
    }

    fn append(&mut self, tensor: Tensor) -> Result<(), ModelError> {
        let before = self.numbers.len();
        self.weights.read(tensor, &mut self.numbers)?;
        let (rows, columns) = self.geometry.shape(tensor);
        let (expected, found) = (rows * columns, self.numbers.len() - before);
        if expected != found {
            return Err(ModelError::Size { tensor, expected, found });
        }
        let is_turned = matches!(tensor, Tensor::Query(_) | Tensor::Key(_));
        if is_turned && self.geometry.rope_style == RopeStyle::HalfSplit {
            interleave(&mut self.numbers[before..], self.geometry.head_dim, columns);
        }
        Ok(())
    }
}

/// Brings the rows of each head from one half behind the other to pairs of neighbours: the kernels turn neighbours.
/// Queries and keys move alike, so that their products stay what they were.
fn interleave(matrix: &mut [f32], head_dim: usize, columns: usize) {
    for head in matrix.chunks_exact_mut(head_dim * columns) {
        let halves = head.to_vec();
        for (row, to) in head.chunks_exact_mut(columns).enumerate() {
            let from = (row / 2 + row % 2 * (head_dim / 2)) * columns;
            to.copy_from_slice(&halves[from..from + columns]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_become_neighbours() {
        let mut matrix: Vec<f32> = (0..16u8).map(f32::from).collect();
        interleave(&mut matrix, 4, 2);
        assert_eq!(matrix, [0., 1., 4., 5., 2., 3., 6., 7., 8., 9., 12., 13., 10., 11., 14., 15.]);
    }
}
