//! What can be asked of `ebbtide plan`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use ebbtide_core::Bytes;
use ebbtide_core::units::GIB;
use ebbtide_plan::{Deployment, Engine, KvType};

use crate::cli::SocketArgs;

/// `ebbtide plan`
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").required(true).args(["model", "config", "gguf", "dir", "live"])),
    after_help = "Examples:\n  ebbtide plan llama-3.1-8b --gpu h100-80g --context 8192 --requests 32\n  ebbtide plan --dir ./model --gpu-mib 24564 --context 16k --kv-type fp8\n  ebbtide plan --gguf model.gguf --engine llama.cpp --gpu 4090 --json | jq .max_context\n  ebbtide plan --live --context 32k                  what is running now\n\nExits 0 when there is an answer, whatever it is; with --exit-code 1 when the load does not surely fit and 3 when that cannot be said; 65 when a file cannot be read as a model. docs/plan.md has the contract, docs/kv-cache.md the arithmetic."
)]
pub(crate) struct PlanArgs {
    /// A model by name, more or less: llama-2-7b, qwen3-32b, deepseek-v3
    pub(crate) model: Option<String>,
    /// A model's config.json
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A model's GGUF file; of a split one, its first part
    #[arg(long, value_name = "FILE")]
    pub(crate) gguf: Option<PathBuf>,
    /// A model's folder, with config.json and safetensors files
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The engines that are running now, as the daemon sees them
    #[arg(long, conflicts_with_all = ["gpu", "gpu_mib", "weights_gib", "draft_model", "exit_code"])]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// The card, by name or size: h100, a100-40g, rtx-4090, 24g
    #[arg(long, value_name = "CARD")]
    pub(crate) gpu: Option<String>,
    /// The card's total memory as nvidia-smi prints it
    #[arg(long, value_name = "MIB", conflicts_with = "gpu", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) gpu_mib: Option<u64>,
    /// Tokens of each request, prompt and answer [default: 8192, or what the model is made for]
    #[arg(long, value_name = "TOKENS", value_parser = tokens)]
    pub(crate) context: Option<u64>,
    /// Requests at a time [default: 1; with --live those that run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) requests: Option<u64>,
    /// Type of the cache: f16, fp8, int8, int4, nvfp4, q8_0, q4_0, f32 [default: the model's own]
    #[arg(long, value_name = "TYPE")]
    pub(crate) kv_type: Option<KvType>,
    /// vllm, vllm-0.20 (and older), sglang, llama.cpp, ollama, trt-llm, lmdeploy
    #[arg(long, default_value = "vllm", value_name = "NAME")]
    pub(crate) engine: Engine,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// A smaller model that drafts tokens beside it, by name
    #[arg(long, value_name = "MODEL")]
    pub(crate) draft_model: Option<String>,
    /// Bytes of the weights in GiB, where no file is at hand and the catalogue does not know them
    #[arg(long, value_name = "GIB", value_parser = gib)]
    pub(crate) weights_gib: Option<Bytes>,
    /// Print the contract documented in docs/plan.md
    #[arg(long)]
    pub(crate) json: bool,
    /// Let the exit code say whether the load fits
    #[arg(long)]
    pub(crate) exit_code: bool,
}

/// How the engine is set up.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// GPUs that share each layer (tensor parallel)
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) tp: u64,
    /// Stages that the layers are cut into (pipeline parallel)
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) pp: u64,
    /// Replicas that share the requests (data parallel)
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) dp: u64,
    /// The engine's share of the card, 0 to 1: gpu_memory_utilization, mem_fraction_static [default: the engine's]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) share: Option<f64>,
    /// Tokens in a block of the cache [default: the engine's]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) block_tokens: Option<u64>,
    /// The most tokens of one step [default: 8192, in llama.cpp 512]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) batch_tokens: Option<u64>,
    /// The most requests of one step [default: 1024 on cards from 70 GiB on, 256 on others]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) max_sequences: Option<u64>,
    /// Count the cache of the model's built-in draft layers
    #[arg(long)]
    pub(crate) draft: bool,
}

/// Cards from this size on get 1024 sequences a step from vLLM by default, smaller ones 256.
const LARGE_CARD: Bytes = Bytes(70 * GIB);

/// Requests of one step where none are set.
pub(super) fn usual_sequences(card: Option<Bytes>) -> u64 {
    if card.is_some_and(|card| card < LARGE_CARD) { 256 } else { 1024 }
}

impl PlanArgs {
    /// The deployment that is asked about.
    pub(crate) fn deployment(&self, model_type: KvType, card: Option<Bytes>) -> Deployment {
        let settings = &self.settings;
        let usual = Deployment::new(self.engine, self.kv_type.unwrap_or(model_type));
        Deployment {
            tp: settings.tp,
            pp: settings.pp,
            dp: settings.dp,
            share: settings.share,
            block_tokens: settings.block_tokens.unwrap_or(usual.block_tokens),
            batch_tokens: settings.batch_tokens.unwrap_or(usual.batch_tokens),
            max_sequences: settings.max_sequences.unwrap_or_else(|| usual_sequences(card)),
            draft: settings.draft,
            ..usual
        }
    }
}

/// `8192`, `8k`, `1m`.
fn tokens(text: &str) -> Result<u64, String> {
    let lower = text.to_lowercase();
    let (digits, unit) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (lower.as_str(), 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    number
        .filter(|n| (1..=1 << 32).contains(n))
        .ok_or_else(|| "expected tokens, such as 8192 or 8k".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "expected a share above 0 and up to 1, such as 0.9".to_owned())
}

fn gib(text: &str) -> Result<Bytes, String> {
    let gib: Option<f64> = text.parse().ok().filter(|gib| (0.0..=1e6).contains(gib));
    gib.map(|gib| Bytes((gib * GIB as f64) as u64)).ok_or_else(|| "expected GiB, such as 14.9".to_owned())
}
