//! What the weights take, and how well that is known.

use ebbtide_core::Bytes;
use serde::Serialize;

use crate::deployment::{Deployment, Engine};
use crate::model::Model;
use crate::span::{Span, part};

/// Where the bytes of the weights come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// From the headers of the files that hold them.
    File,
    /// Computed from the configuration.
    Configuration,
    /// Said by whoever asks.
    Stated,
}

/// The weights of a whole model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Their bytes.
    pub bytes: Bytes,
    /// How those are known.
    pub source: Source,
}

impl Weights {
    /// From the model's configuration, where its family's formula is known.
    #[must_use]
    pub fn computed(model: &Model) -> Option<Self> {
        model.parameters.map(|parameters| Self { bytes: parameters.bytes(), source: Source::Configuration })
    }

    /// What lies on the GPU that has most of them. Small parts are repeated on every rank, which is within the margin.
    #[must_use]
    pub fn per_gpu(&self, model: &Model, deployment: &Deployment) -> Span {
        let (tp, pp) = (deployment.tp.max(1), deployment.pp.max(1));
        let stages = if deployment.engine == Engine::LlamaCpp { tp.saturating_mul(pp) } else { pp };
        let ranks = if deployment.engine == Engine::LlamaCpp { 1 } else { tp };
        let likely = Bytes(self.stage(model, stages).div_ceil(ranks));
        let high = likely + part(likely, self.margin(model));
        Span { low: likely, likely, high }
    }

    /// The first and the last stage have a table of embeddings beside their layers.
    fn stage(&self, model: &Model, stages: u64) -> u64 {
        let (layers, whole) = (model.layers.max(1), self.bytes.0);
        if stages == 1 {
            return whole;
        }
        let tables = model.parameters.map_or(0, |p| p.embedding_bytes().saturating_mul(p.tables).min(whole));
        let own = model.parameters.map_or(0, |p| p.embedding_bytes().min(whole));
        let body = u128::from(whole - tables) * u128::from(layers.div_ceil(stages)) / u128::from(layers);
        own.saturating_add(u64::try_from(body).unwrap_or(u64::MAX))
    }

    /// By how much an engine may hold more. Against public start-ups of vLLM, files are 0.2 % low, computed text
    /// models 1 to 2 %, and computed multimodal models up to 7 %.
    fn margin(&self, model: &Model) -> f64 {
        match self.source {
            Source::File | Source::Stated => 0.005,
            Source::Configuration if model.parameters.is_some_and(|p| p.tower > 0) => 0.08,
            Source::Configuration => 0.02,
        }
    }
}
