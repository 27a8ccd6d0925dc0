//! What an inference engine says of itself, in its own units.
//!
//! Most engines count blocks or tokens and never bytes. What they counted is kept as it was read; bytes are only in
//! [`crate::EngineSample`], and only where the engine, or somebody who knows the model, gave the size of a unit.

use serde::{Deserialize, Serialize};

use crate::engine_ledger::Amount;
use crate::reading::{self, Absent, Reading};
use crate::units::Bytes;

/// What an engine reports beside the counters of [`crate::EngineSample`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Which engine, as its makers write it: `vLLM`, `llama.cpp`.
    pub engine: String,
    /// The range of versions whose names were found; not the exact version, which few engines tell.
    pub versions: String,
    /// Where it was read: an address without credentials.
    pub address: String,
    /// The model it says it serves, cleaned.
    #[serde(with = "reading")]
    pub model: Reading<String>,
    /// Its part in serving a request.
    pub role: EngineRole,
    /// Whether it was told to give its memory back: then its cache gauges keep old values and are not believed.
    #[serde(with = "reading")]
    pub asleep: Reading<bool>,
    /// Data-parallel ranks that the counts of [`EngineReport::kv`] are summed over; at least 1.
    pub ranks: u32,
    /// The KV cache of the whole engine in its own units.
    pub kv: KvCount,
    /// Weights on one GPU.
    #[serde(with = "reading")]
    pub weights: Reading<Bytes>,
    /// Captured graphs on one GPU.
    #[serde(with = "reading")]
    pub graphs: Reading<Bytes>,
    /// All that the engine says it holds on its devices. Without the CUDA context where it adds up its buffers.
    #[serde(with = "reading")]
    pub device: Reading<Bytes>,
    /// KV cache kept in host memory.
    #[serde(with = "reading")]
    pub offloaded: Reading<Bytes>,
    /// The share of a GPU that it takes ahead, 0 to 1 (`gpu_memory_utilization`, `mem_fraction_static`).
    #[serde(default = "reading::not_yet", with = "reading")]
    pub share: Reading<f64>,
    /// The type it keeps keys and values in, as it writes it; `auto` is the model's own.
    #[serde(default = "reading::not_yet", with = "reading")]
    pub kv_type: Reading<String>,
    /// What is known of the model beside what the engine says; `None` where nobody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appraisal: Option<Appraisal>,
}

impl EngineReport {
    /// An engine of which nothing else is known, for the given reason.
    #[must_use]
    pub fn absent(engine: &str, address: &str, why: Absent) -> Self {
        Self {
            engine: engine.to_owned(),
            versions: String::new(),
            address: address.to_owned(),
            model: Err(why),
            role: EngineRole::Unknown,
            asleep: Err(why),
            ranks: 1,
            kv: KvCount::absent(why),
            weights: Err(why),
            graphs: Err(why),
            device: Err(why),
            offloaded: Err(why),
            share: Err(why),
            kv_type: Err(why),
            appraisal: None,
        }
    }
}

/// What the planner makes of the model that an engine serves: bytes where the engine counts blocks and tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Appraisal {
    /// The model, as the planner calls it.
    pub model: String,
    /// Where its shapes come from: a file, or the catalogue.
    pub source: String,
    /// Weights on one GPU.
    #[serde(with = "reading")]
    pub weights: Reading<Amount>,
    /// KV bytes of one token on one GPU.
    pub kv_bytes_per_token: Bytes,
    /// Whether the KV amounts of the sample were made with it, rather than by the engine.
    pub sizes_kv: bool,
    /// By which share those may be off.
    pub kv_error: f64,
    /// What was assumed, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
}

/// A KV cache as an engine counts it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KvCount {
    /// What is counted; `None` where only [`KvCount::fill`] is known.
    pub unit: Option<KvUnit>,
    /// Units in use, as the semantics of the sample count them.
    #[serde(with = "reading")]
    pub used: Reading<u64>,
    /// Units kept for reuse that no request refers to and that `used` does not count.
    #[serde(with = "reading")]
    pub cached: Reading<u64>,
    /// Units there are.
    #[serde(with = "reading")]
    pub pool: Reading<u64>,
    /// Tokens that one unit holds; 1 where tokens are counted.
    #[serde(with = "reading")]
    pub tokens_per_unit: Reading<u64>,
    /// Share of the pool in use, 0 to 1.
    #[serde(with = "reading")]
    pub fill: Reading<f64>,
}

impl KvCount {
    /// Nothing known, for the given reason.
    #[must_use]
    pub const fn absent(why: Absent) -> Self {
        Self {
            unit: None,
            used: Err(why),
            cached: Err(why),
            pool: Err(why),
            tokens_per_unit: Err(why),
            fill: Err(why),
        }
    }
}

/// What a KV cache is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvUnit {
    /// Blocks (pages) of a fixed number of tokens.
    Block,
    /// Tokens.
    Token,
}

/// An engine's part in serving a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineRole {
    /// It reads prompts, and holds their blocks until a decoding peer has fetched them.
    Prefill,
    /// It writes answers.
    Decode,
    /// It does both.
    Both,
    /// Not told.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::EngineSample;
    use std::sync::Arc;

    #[test]
    fn a_sample_from_before_there_were_reports_is_understood() {
        let old = r#"{"kv_used":5,"kv_pool":null,"running":2,"waiting":null,"semantics":"referenced"}"#;
        let sample: EngineSample = serde_json::from_str(old).unwrap();
        assert_eq!(
            (sample.kv_used, sample.kv_cached, sample.report),
            (Ok(Bytes(5)), Err(Absent::NotYet), None)
        );
    }

    #[test]
    fn what_is_not_known_is_null_on_the_wire_and_comes_back() {
        let report = EngineReport {
            versions: "1".to_owned(),
            role: EngineRole::Both,
            asleep: Ok(false),
            ranks: 2,
            kv: KvCount { unit: Some(KvUnit::Block), pool: Ok(7), ..KvCount::absent(Absent::NotYet) },
            offloaded: Ok(Bytes(9)),
            ..EngineReport::absent("vLLM", "127.0.0.1:8000", Absent::NotYet)
        };
        let sample = EngineSample { report: Some(Arc::new(report)), ..EngineSample::absent(Absent::NotYet) };
        let text = serde_json::to_string(&sample).unwrap();
        assert!(text.contains(r#""kv":{"unit":"block","used":null,"cached":null,"pool":7"#), "{text}");
        assert_eq!(serde_json::from_str::<EngineSample>(&text).unwrap(), sample);
    }
}
