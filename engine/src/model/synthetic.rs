//! Weights drawn at random, for experiments with memory at the sizes of real models.

use super::{Geometry, ModelError, Tensor, Weights};

/// Weights that nobody trained: see [`synthetic`].
#[derive(Debug, Clone)]
pub struct Synthetic {
    geometry: Geometry,
    seed: u64,
}

/// A model of `geometry` whose weights follow from `seed`: each matrix keeps the size of what goes through it, so that
/// numbers stay finite in any depth. What it says means nothing.
///
/// # Errors
/// Where the sizes do not belong together.
pub fn synthetic(geometry: Geometry, seed: u64) -> Result<Synthetic, ModelError> {
    geometry.check()?;
    Ok(Synthetic { geometry, seed })
}

impl Weights for Synthetic {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, tensor: Tensor, out: &mut Vec<f32>) -> Result<(), ModelError> {
        let (rows, columns) = self.geometry.shape(tensor);
        if rows == 1 {
            out.resize(out.len() + columns, 1.0);
            return Ok(());
        }
        let mut random = fastrand::Rng::with_seed(self.seed ^ ordinal(tensor).wrapping_mul(SPREAD));
        // Uniform within a bound b has a variance of b^2 / 3: one over `columns` keeps the size of a row's product.
        let bound = (3.0 / columns as f32).sqrt();
        out.extend((0..rows * columns).map(|_| (2.0 * random.f32() - 1.0) * bound));
        Ok(())
    }
}

/// An odd number with its bits spread out (the golden ratio), so that neighbours draw different numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A number of its own for each tensor that has random weights.
fn ordinal(tensor: Tensor) -> u64 {
    let (kind, layer) = match tensor {
        Tensor::Query(layer) => (1, layer),
        Tensor::Key(layer) => (2, layer),
        Tensor::Value(layer) => (3, layer),
        Tensor::AttentionOut(layer) => (4, layer),
        Tensor::Gate(layer) => (5, layer),
        Tensor::Up(layer) => (6, layer),
        Tensor::Down(layer) => (7, layer),
        Tensor::Output => (9, 0),
        Tensor::Embedding | Tensor::FinalNorm | Tensor::AttentionNorm(_) | Tensor::FfnNorm(_) => (8, 0),
    };
    layer as u64 * 16 + kind
}
