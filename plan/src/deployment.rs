//! How a model is served: by which engine, in how many parts, with which settings.

use std::fmt;
use std::str::FromStr;

use crate::kv_type::KvType;

/// An engine, as far as it differs in how it divides memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM from 0.21 on, which keeps its CUDA graphs inside of its share.
    Vllm,
    /// vLLM up to 0.20, whose graphs come on top of its share.
    Vllm020,
    /// SGLang.
    Sglang,
    /// llama.cpp, and Ollama, which runs it.
    LlamaCpp,
    /// TensorRT-LLM.
    TensorRtLlm,
    /// LMDeploy (TurboMind).
    Lmdeploy,
}

/// Name and engine; the first name of an engine is the one it is printed as.
const NAMES: [(&str, Engine); 8] = [
    ("vllm", Engine::Vllm),
    ("vllm-0.20", Engine::Vllm020),
    ("sglang", Engine::Sglang),
    ("llama.cpp", Engine::LlamaCpp),
    ("trt-llm", Engine::TensorRtLlm),
    ("lmdeploy", Engine::Lmdeploy),
    ("ollama", Engine::LlamaCpp),
    ("tensorrt-llm", Engine::TensorRtLlm),
];

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 6] =
        [Self::Vllm, Self::Vllm020, Self::Sglang, Self::LlamaCpp, Self::TensorRtLlm, Self::Lmdeploy];

    /// Its name, as the command line takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, engine)| *engine == self).map_or("vllm", |(name, _)| name)
    }

    /// Tokens in a block of its cache by default: vLLM 16, SGLang 1, TensorRT-LLM 32, LMDeploy 64; llama.cpp pads
    /// each sequence to 256 cells.
    #[must_use]
    pub const fn block_tokens(self) -> u64 {
        match self {
            Self::Vllm | Self::Vllm020 => 16,
            Self::Sglang => 1,
            Self::LlamaCpp => 256,
            Self::TensorRtLlm => 32,
            Self::Lmdeploy => 64,
        }
    }

    /// The share it takes by default, of what [`crate::pool`] says; absent where it has none, or computes it.
    #[must_use]
    pub const fn default_share(self) -> Option<f64> {
        match self {
            // gpu_memory_utilization; 0.9 before.
            Self::Vllm => Some(0.92),
            Self::Vllm020 | Self::TensorRtLlm => Some(0.9),
            // cache_max_entry_count.
            Self::Lmdeploy => Some(0.8),
            Self::Sglang | Self::LlamaCpp => None,
        }
    }

    /// Tokens of a step by default: vLLM's and SGLang's chunk on large cards, llama.cpp's `n_ubatch`.
    #[must_use]
    pub const fn batch_tokens(self) -> u64 {
        match self {
            Self::LlamaCpp => 512,
            _ => 8192,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called {0:?}: vllm, vllm-0.20, sglang, llama.cpp, ollama, trt-llm or lmdeploy")]
pub struct UnknownEngine(pub String);

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, engine)| *engine).ok_or_else(|| UnknownEngine(ebbtide_core::text::clean(name)))
    }
}

/// How a model is served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deployment {
    /// By which engine.
    pub engine: Engine,
    /// The type of the cache.
    pub kv_type: KvType,
    /// GPUs that share each layer; at least 1.
    pub tp: u64,
    /// Stages that the layers are cut into; at least 1.
    pub pp: u64,
    /// Replicas that share the requests; each has the whole model. At least 1.
    pub dp: u64,
    /// The engine's share, 0 to 1, where it is not the default.
    pub share: Option<f64>,
    /// Tokens in a block; at least 1.
    pub block_tokens: u64,
    /// The most tokens of one step (`max_num_batched_tokens`, chunk, `n_ubatch`).
    pub batch_tokens: u64,
    /// The most requests of one step (`max_num_seqs`), for which activations and graphs are sized.
    pub max_sequences: u64,
    /// Whether the model's built-in draft layers are in use.
    pub draft: bool,
}

impl Deployment {
    /// One GPU, with the engine's defaults for a large card.
    #[must_use]
    pub const fn new(engine: Engine, kv_type: KvType) -> Self {
        Self {
            engine,
            kv_type,
            tp: 1,
            pp: 1,
            dp: 1,
            share: None,
            block_tokens: engine.block_tokens(),
            batch_tokens: engine.batch_tokens(),
            max_sequences: 1024,
            draft: false,
        }
    }

    /// GPUs of one replica.
    #[must_use]
    pub const fn gpus(&self) -> u64 {
        self.tp.saturating_mul(self.pp)
    }

    /// Requests of the busiest replica.
    #[must_use]
    pub fn requests_each(&self, requests: u64) -> u64 {
        requests.div_ceil(self.dp.max(1))
    }
}

/// What is asked of the engine at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Tokens of each request, prompt and answer.
    pub context: u64,
    /// Requests at a time, over all replicas.
    pub requests: u64,
}
