//! The sizes of a model.

use super::{ModelError, Tensor};
use crate::kv;

/// Which numbers of a head rotary embedding turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Neighbours, as the paper (arXiv 2104.09864) and GGUF's Llama have it.
    Interleaved,
    /// One of the first half and one of the second, as Hugging Face's files have it.
    HalfSplit,
}

/// The sizes of a model of the Llama architecture.
#[derive(Debug, Clone, PartialEq)]
pub struct Geometry {
    /// Numbers a token is between layers.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; a divisor of `heads`.
    pub kv_heads: usize,
    /// Numbers a head; even.
    pub head_dim: usize,
    /// Numbers inside the feed-forward network.
    pub ffn: usize,
    /// Tokens there are.
    pub vocab: usize,
    /// Positions it was trained on.
    pub context: usize,
    /// The base of the rotary embedding's frequencies.
    pub rope_base: f32,
    /// How the rows of queries and keys are ordered in the file.
    pub rope_style: RopeStyle,
    /// What RMSNorm adds under the root.
    pub rms_eps: f32,
    /// Whether logits are read with the embedding.
    pub tied: bool,
}

impl Geometry {
    /// What the KV pool has to know of it.
    #[must_use]
    pub const fn kv(&self) -> kv::Geometry {
        kv::Geometry { layers: self.layers, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// Rows and columns of `tensor`; a vector is one row.
    #[must_use]
    pub const fn shape(&self, tensor: Tensor) -> (usize, usize) {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        match tensor {
            Tensor::Embedding | Tensor::Output => (self.vocab, self.hidden),
            Tensor::FinalNorm | Tensor::AttentionNorm(_) | Tensor::FfnNorm(_) => (1, self.hidden),
            Tensor::Query(_) => (queries, self.hidden),
            Tensor::Key(_) | Tensor::Value(_) => (keys, self.hidden),
            Tensor::AttentionOut(_) => (self.hidden, queries),
            Tensor::Gate(_) | Tensor::Up(_) => (self.ffn, self.hidden),
            Tensor::Down(_) => (self.hidden, self.ffn),
        }
    }

    /// Checks that the sizes belong together and are a model's.
    ///
    /// # Errors
    /// [`ModelError::Geometry`] says what does not.
    pub fn check(&self) -> Result<(), ModelError> {
        let sizes =
            [self.hidden, self.layers, self.heads, self.kv_heads, self.head_dim, self.ffn, self.vocab];
        let wrong = if sizes.contains(&0) || self.context == 0 {
            "one of them is zero"
        } else if sizes.iter().any(|size| *size > MAX_SIZE) {
            "one of them is over a billion"
        } else if self.heads * self.head_dim > MAX_SIZE {
            "all heads together have over a billion numbers"
        } else if !self.heads.is_multiple_of(self.kv_heads) {
            "heads are no multiple of the heads of keys and values"
        } else if !self.head_dim.is_multiple_of(2) {
            "a head has an odd number of numbers, so that rotary embedding has no pairs"
        } else if !(self.rope_base > 0.0 && self.rope_base.is_finite() && self.rms_eps >= 0.0) {
            "the base of the rotary embedding or the epsilon of the norms is no positive number"
        } else {
            return Ok(());
        };
        Err(ModelError::Geometry(wrong))
    }
}

/// Far beyond any model; two of them still multiply without overflow.
const MAX_SIZE: usize = 1 << 30;
