//! Models of the Llama architecture: their sizes, where their weights come from, and how they read text.

mod bundled;
mod encoding;
mod geometry;
mod gguf;
mod safetensors;
mod source;
mod synthetic;
mod tokenizer;

use std::io;
use std::path::{Path, PathBuf};

pub use bundled::bundled;
pub use geometry::{Geometry, RopeStyle};
pub use synthetic::{Synthetic, synthetic};
pub use tokenizer::{Bytes, Tokenizer};

/// A model that is ready to be loaded.
#[derive(Debug)]
pub struct Loaded {
    /// Its weights.
    pub weights: Box<dyn Weights>,
    /// How it reads and writes text.
    pub tokenizer: Box<dyn Tokenizer>,
}

/// Opens the model at `path`: a GGUF file, a safetensors file beside its config.json (and its tokenizer.json), or a
/// folder with those. Nothing is read of it but what tells where its weights lie.
///
/// # Errors
/// Where there is no such model, it is cut short or malformed, or it needs what this engine lacks.
pub fn open(path: &Path) -> Result<Loaded, ModelError> {
    let folder = path.join("model.safetensors");
    let path = if path.is_dir() { &folder } else { path };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gguf") => gguf::open(path),
        Some("safetensors") => safetensors::open(path),
        _ => Err(ModelError::Lacks { path: path.into(), what: "a name that ends in .gguf or .safetensors" }),
    }
}

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
pub trait Weights: std::fmt::Debug {
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
    /// A file that cannot be read.
    #[error("{} cannot be read; is it the path of a model?", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is not what its name says.
    #[error("{} cannot be used: {reason}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A model of another architecture.
    #[error("{} is of the architecture {found:?}; only llama can be run", path.display())]
    Architecture {
        /// Which.
        path: PathBuf,
        /// As the file names it.
        found: String,
    },
    /// A model without something that this engine needs.
    #[error("{} lacks what this engine needs: {what}", path.display())]
    Lacks {
        /// Which.
        path: PathBuf,
        /// What.
        what: &'static str,
    },
    /// Numbers written in a way that is not known.
    #[error(
        "{tensor:?} is written as {found}; this engine reads F32, F16, BF16, Q8_0, Q4_0 and Q4_1: convert the model to one of them"
    )]
    Encoding {
        /// Which.
        tensor: Tensor,
        /// As the file names it.
        found: String,
    },
    /// Threads that do not start.
    #[error("no {threads} threads can be started to compute with; ask for fewer")]
    Threads {
        /// How many were asked for.
        threads: u16,
        /// Why.
        source: io::Error,
    },
    /// A tensor that cannot be read.
    #[error("{tensor:?} cannot be read; the file is cut short, or was changed while it was open")]
    Tensor {
        /// Which.
        tensor: Tensor,
        /// Why.
        source: io::Error,
    },
}

impl ModelError {
    fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.into(), source }
    }

    /// With the whole chain of reasons, since what is beneath is private to a format.
    fn malformed(path: &Path, reason: &dyn std::error::Error) -> Self {
        let mut words = reason.to_string();
        let mut beneath = reason.source();
        while let Some(cause) = beneath {
            words.push_str(": ");
            words.push_str(&cause.to_string());
            beneath = cause.source();
        }
        Self::Malformed { path: path.into(), reason: words }
    }

    fn size(tensor: Tensor, expected: usize, found: u64) -> Self {
        Self::Size { tensor, expected, found: usize::try_from(found).unwrap_or(usize::MAX) }
    }
}
