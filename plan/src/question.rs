//! The question, and its answer: does it fit, how many requests, how long a context.

use ebbtide_core::Bytes;
use serde::Serialize;

use crate::cache::Cache;
use crate::deployment::{Deployment, Load};
use crate::lever::{self, Lever};
use crate::model::Model;
use crate::pool::pool;
use crate::remainder::{DRIVER_RESERVE, Remainder};
use crate::span::Span;
use crate::weights::{Source, Weights};

/// The longest context that is looked for where the model names none.
const LONGEST: u64 = 1 << 24;
/// The most requests that are looked for.
const MOST: u64 = 1 << 32;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question<'m> {
    /// Of which model.
    pub model: &'m Model,
    /// Its weights, where they are known.
    pub weights: Option<Weights>,
    /// How it is served.
    pub deployment: Deployment,
    /// Under which load.
    pub load: Load,
    /// Total memory of each card as NVML reports it, where a card was named.
    pub card: Option<Bytes>,
}

/// Whether it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Even where the remainder is as large as it may be.
    Fits,
    /// Only where the remainder is small.
    Tight,
    /// Not even then.
    TooBig,
    /// No card was named, or the weights are not known.
    Unknown,
}

/// Who holds what of one card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Division {
    /// The card.
    pub total_bytes: Bytes,
    /// Weights on the GPU that has most of them.
    pub weights: Span,
    /// What the process holds beside weights and pool.
    pub remainder: Remainder,
    /// All of the remainder.
    pub remainder_total: Span,
    /// The pool that the engine makes.
    pub pool: Span,
    /// What the load needs of it.
    pub kv_bytes: Bytes,
}

/// The answer. Its JSON is a contract: `docs/plan.md`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Bytes of keys and values of one token in all layers of the whole model.
    pub kv_bytes_per_token: Bytes,
    /// Of each further token once all windows are full.
    pub kv_bytes_per_token_beyond_window: Bytes,
    /// Of one token's key in a sparse indexer, which comes on top.
    pub index_bytes_per_token: Bytes,
    /// Of one token on one GPU, as the engine lays it out.
    pub kv_bytes_per_token_per_gpu: Bytes,
    /// Of one request of this context on one GPU: cache, state and what the encoder left.
    pub kv_bytes_per_request: Bytes,
    /// Of the whole load on the busiest GPU.
    pub kv_bytes_load: Bytes,
    /// Of recurrent state, the same for each request.
    pub state_bytes_per_request: Bytes,
    /// Over an encoder's output, the same for each request.
    pub cross_bytes_per_request: Bytes,
    /// The whole model's weights.
    pub weights_bytes: Option<Bytes>,
    /// How those are known.
    pub weights_source: Option<Source>,
    /// One card, where one was named and the weights are known.
    pub gpu: Option<Division>,
    /// Whether the load surely fits; absent where it cannot be said.
    pub fits: Option<bool>,
    /// The same in four steps.
    pub verdict: Verdict,
    /// The most requests of this context that surely fit.
    pub max_requests: Option<u64>,
    /// The most that fit where the remainder is as large as it usually is.
    pub max_requests_likely: Option<u64>,
    /// The longest context at which this many requests surely fit, at most what the model is made for.
    pub max_context: Option<u64>,
    /// What else could be done, and what it would give.
    pub levers: Vec<Lever>,
    /// What was assumed.
    pub notes: Vec<String>,
}

impl Question<'_> {
    /// The answer.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let (model, kv) = (self.model, self.deployment.kv_type);
        let cache = self.cache();
        let gpu = self.division();
        let verdict = verdict(gpu.as_ref());
        Answer {
            kv_bytes_per_token: model.kv_per_token(kv),
            kv_bytes_per_token_beyond_window: model.kv_per_token_beyond(kv),
            index_bytes_per_token: model.index_per_token(),
            kv_bytes_per_token_per_gpu: cache.per_token(),
            kv_bytes_per_request: cache.request(self.load.context),
            kv_bytes_load: cache.load(self.load),
            state_bytes_per_request: model.state_per_request(),
            cross_bytes_per_request: model.cross_per_request(kv),
            weights_bytes: self.weights.map(|w| w.bytes),
            weights_source: self.weights.map(|w| w.source),
            fits: (verdict != Verdict::Unknown).then_some(verdict == Verdict::Fits),
            verdict,
            max_requests: gpu.map(|gpu| self.max_requests(gpu.pool.low)),
            max_requests_likely: gpu.map(|gpu| self.max_requests(gpu.pool.likely)),
            max_context: gpu.map(|gpu| self.max_context(gpu.pool.low)),
            levers: lever::all(self),
            notes: self.notes(),
            gpu,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.model.notes.clone();
        if self.model.max_context.is_some_and(|longest| self.load.context > longest) {
            notes.push("the context is longer than what the model is made for".to_owned());
        }
        notes
    }

    /// The cache as the engine lays it out.
    #[must_use]
    pub fn cache(&self) -> Cache<'_> {
        Cache::new(self.model, self.deployment)
    }

    /// Who holds what of one card.
    #[must_use]
    pub fn division(&self) -> Option<Division> {
        let (card, weights) = (self.card?, self.weights?);
        let weights = weights.per_gpu(self.model, &self.deployment);
        let remainder = Remainder::of(self.model, &self.deployment);
        let least = pool(&self.deployment, &remainder, card, weights.high);
        let most = pool(&self.deployment, &remainder, card, weights.low);
        // vLLM's context lies outside of the share it reckons with, so that a large share can promise too much.
        let left = (weights + remainder.total()).rest_of(card.saturating_sub(DRIVER_RESERVE));
        Some(Division {
            total_bytes: card,
            weights,
            remainder,
            remainder_total: remainder.total(),
            pool: Span { low: least.low.min(left.low), ..most },
            kv_bytes: self.cache().load(self.load),
        })
    }

    /// The most requests of this context, over all replicas, whose cache a pool on each GPU holds.
    #[must_use]
    pub fn max_requests(&self, pool: Bytes) -> u64 {
        let request = self.cache().request(self.load.context).0;
        let each = pool.0.checked_div(request).unwrap_or(MOST).min(MOST);
        each.saturating_mul(self.deployment.dp.max(1))
    }

    /// The longest context at which this many requests fit into a pool on each GPU: at most what the model is made
    /// for, or what was asked about where that is longer.
    #[must_use]
    pub fn max_context(&self, pool: Bytes) -> u64 {
        let cache = self.cache();
        let longest = self.model.max_context.unwrap_or(LONGEST).max(self.load.context);
        let (mut fits, mut too_long) = (0, longest.saturating_add(1));
        // The cache grows with the context, so that halving finds the edge.
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            if cache.load(Load { context: middle, ..self.load }) <= pool {
                fits = middle;
            } else {
                too_long = middle;
            }
        }
        fits
    }
}

fn verdict(gpu: Option<&Division>) -> Verdict {
    match gpu {
        None => Verdict::Unknown,
        Some(gpu) if gpu.kv_bytes <= gpu.pool.low => Verdict::Fits,
        Some(gpu) if gpu.kv_bytes <= gpu.pool.high => Verdict::Tight,
        Some(_) => Verdict::TooBig,
    }
}
