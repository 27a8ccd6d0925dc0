//! What a model, a context and a load will need of a GPU's memory, before anything is started.
//!
//! Pure: files come in as bytes, and nothing here opens one. A [`Model`] is read from a Hugging Face `config.json`,
//! from a GGUF header or from the [`catalogue`]; with a [`Deployment`] and a [`Load`] it makes a [`Question`], and its
//! [`Answer`] says who will hold what.

pub mod cache;
pub mod card;
pub mod catalogue;
pub mod config;
pub mod deployment;
pub mod gguf;
pub mod kv_type;
pub mod lever;
pub mod model;
pub mod parameters;
pub mod pool;
pub mod question;
pub mod remainder;
pub mod safetensors;
pub mod span;
pub mod weights;

pub use cache::Cache;
pub use config::ConfigError;
pub use deployment::{Deployment, Engine, Load};
pub use kv_type::KvType;
pub use lever::Lever;
pub use model::{Cross, LayerGroup, Model, Reach, Recurrent, Shape};
pub use parameters::Parameters;
pub use question::{Answer, Division, Question, Verdict};
pub use remainder::Remainder;
pub use span::Span;
pub use weights::Weights;

/// Runs the code blocks of the page for users.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kv-cache.md")]
pub struct KvCachePage;
