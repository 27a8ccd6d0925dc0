//! Models of the Llama architecture: their sizes, and where their weights come from.

mod geometry;
mod synthetic;

pub use geometry::{Geometry, RopeStyle};
pub use synthetic::{Synthetic, synthetic};

/// A matrix or vector of weights; `usize` is the layer, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// `[vocab][hidden]`: the vector of each token.
    Embedding,
    /// `[hidden]`: the norm behind the last layer.
    FinalNorm,
    /// `[vocab][hidden]`: what logits are read with; the embedding where the model is tied.
    Output,
    /// `[hidden]`: the norm before attention.
    AttentionNorm(usize),
    /// `[heads * head_dim][hidden]`.
    Query(usize),
    /// `[kv_heads * head_dim][hidden]`.
    Key(usize),
    /// `[kv_heads * head_dim][hidden]`.
    Value(usize),
    /// `[hidden][heads * head_dim]`.
    AttentionOut(usize),
    /// `[hidden]`: the norm before the feed-forward network.
    FfnNorm(usize),
    /// `[ffn][hidden]`.
    Gate(usize),
    /// `[ffn][hidden]`.
    Up(usize),
    /// `[hidden][ffn]`.
    Down(usize),
}

/// Weights that can be read one tensor at a time.
pub trait Weights {
    /// The model's sizes.
    fn geometry(&self) -> &Geometry;

    /// Appends `tensor`, row-major, to `out`.
    ///
    /// # Errors
    /// Where the model has no such tensor or it cannot be read; `out` is then as it was.
    fn read(&self, tensor: Tensor, out: &mut Vec<f32>) -> Result<(), ModelError>;
}

/// A model that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Sizes that do not belong together.
    #[error("the model's sizes make no sense: {0}")]
    Geometry(&'static str),
    /// A tensor that is not there.
    #[error("the model has no {0:?}; it is not of the Llama architecture, or the file is cut short")]
    Missing(Tensor),
    /// A tensor of another size than the model's sizes ask for.
    #[error("{tensor:?} has {found} numbers instead of {expected}")]
    Size {
        /// Which.
        tensor: Tensor,
        /// As the sizes have it.
        expected: usize,
        /// As read.
        found: usize,
    },
}
