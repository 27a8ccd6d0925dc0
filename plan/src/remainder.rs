//! What a process holds beside weights and cache: context, activations, communication, graphs.
//!
//! The ranges are fitted to 59 public start-ups of vLLM 0.19.0 on an H100 with 1024 sequences a step, and judged on
//! the same runs, since there are no others; for other engines and versions they are a starting point. Within that
//! version the activation peak is the sampler's, not the layers': 0.14 GiB and 14.7 bytes for each sequence and
//! vocabulary entry, whatever the model's size, its context or its parts.

use ebbtide_core::Bytes;
use ebbtide_core::units::GIB;
use serde::Serialize;

use crate::deployment::{Deployment, Engine};
use crate::model::Model;
use crate::span::Span;

/// The version of vLLM whose start-ups the ranges come from.
pub const FITTED_TO: &str = "vLLM 0.19.0";

/// The terms of the remainder of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Remainder {
    /// The CUDA context and what is there before the model is loaded.
    pub context: Span,
    /// The peak of activations while a full step runs; the allocator keeps some or all of it.
    pub activation: Span,
    /// What libraries and communication allocate beside PyTorch.
    pub non_torch: Span,
    /// CUDA graphs.
    pub graphs: Span,
}

/// Sampler: bytes for each sequence of a step and each entry of the vocabulary.
const SAMPLER_BYTES: f64 = 14.7;
/// Activations that do not depend on the sampler, in GiB.
const BASE_GIB: f64 = 0.14;
/// What a model with experts needs more, in GiB: -0.1 to 0.6 in the start-ups.
const EXPERTS_GIB: f64 = 0.65;
/// A vocabulary to assume where the file does not say: the median of models since 2024.
const COMMON_VOCABULARY: u64 = 151_936;

impl Remainder {
    /// The remainder of each process of a deployment.
    #[must_use]
    pub fn of(model: &Model, deployment: &Deployment) -> Self {
        if deployment.engine == Engine::LlamaCpp {
            return Self::llama_cpp(model, deployment);
        }
        let (shared, staged) = (deployment.tp > 1, deployment.pp > 1);
        Self {
            context: if shared || staged { Span::gib(1.4, 1.6, 2.1) } else { Span::gib(0.45, 0.51, 0.55) },
            activation: activation(model, deployment),
            non_torch: match (shared, staged) {
                (true, _) => Span::gib(2.0, 2.1, 2.3),
                (_, true) => Span::gib(0.05, 0.07, 0.5),
                _ => Span::gib(0.22, 0.25, 0.48),
            },
            graphs: match (shared || staged, model.experts) {
                (true, _) => Span::gib(0.5, 1.1, 1.9),
                (_, true) => Span::gib(0.9, 1.4, 1.65),
                _ => Span::gib(0.65, 0.91, 1.25),
            },
        }
    }

    /// llama.cpp logs its buffers when it loads: logits of a step in 32 bits at the least, and layers' scratch up to
    /// a GiB more. Its context is no part of them.
    fn llama_cpp(model: &Model, deployment: &Deployment) -> Self {
        let logits = vocabulary(model).saturating_mul(deployment.batch_tokens).saturating_mul(4) as f64;
        let logits = logits / GIB as f64;
        Self {
            context: Span::gib(0.3, 0.4, 0.55),
            activation: Span::gib(logits, logits + 0.3, logits + 1.0),
            non_torch: Span::default(),
            graphs: Span::gib(0.0, 0.05, 0.2),
        }
    }

    /// All terms together.
    #[must_use]
    pub fn total(&self) -> Span {
        self.context + self.activation + self.non_torch + self.graphs
    }
}

/// The last stage samples, and the others only run layers: the range covers both.
fn activation(model: &Model, deployment: &Deployment) -> Span {
    let sequences = deployment.max_sequences as f64;
    let likely = BASE_GIB + SAMPLER_BYTES * sequences * vocabulary(model) as f64 / GIB as f64;
    let more = if model.experts { EXPERTS_GIB } else { 0.3 };
    let low = if deployment.pp > 1 { likely * 0.5 } else { likely * 0.9 - 0.05 };
    Span::gib(low, if model.experts { likely + 0.3 } else { likely }, likely + more)
}

fn vocabulary(model: &Model) -> u64 {
    model.vocabulary.unwrap_or(COMMON_VOCABULARY)
}

/// What the driver keeps of a card: NVML's total less CUDA's is 0.4 to 0.5 GiB on cards from 32 to 80 GiB.
pub const DRIVER_RESERVE: Bytes = Bytes::from_mib(480);
