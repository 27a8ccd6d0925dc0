//! From blocks and tokens to bytes, with what is assumed on the way.

use std::sync::Arc;

use ebbtide_core::{
    Absent, Amount, Appraisal, Bytes, EngineReport, EngineRole, EngineSample, KvUnit, Reading,
};
use ebbtide_plan::{Cache, Deployment, Engine, KvType, cache};
use ebbtide_probe::engine::Launch;

use crate::model_files::Found;

/// By which share bytes of a cache may be off that the planner computed: in 57 public start-ups of vLLM they were
/// never further from the log's (docs/plan.md).
const KV_ERROR: f64 = 0.001;

/// A model, and how its engine was started.
#[derive(Debug)]
pub(super) struct Known {
    /// What the model is called.
    pub(super) name: String,
    /// Where its shapes come from.
    pub(super) source: String,
    /// Whether they are the model's own.
    pub(super) is_file: bool,
    pub(super) found: Found,
    pub(super) launch: Launch,
}

/// In how many parts an engine is seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    /// Processes on GPUs.
    pub(super) processes: u64,
    /// GPUs that they are on.
    pub(super) gpus: u64,
}

/// Adds to an engine's figures what `known` makes of them.
pub(super) fn complete(engine: &mut EngineSample, known: &Known, parts: Parts) {
    let Some(report) = engine.report.as_mut() else { return };
    let report = Arc::make_mut(report);
    if report.role == EngineRole::Unknown {
        report.role = known.launch.role.unwrap_or(EngineRole::Unknown);
    }
    let mut assumed = Vec::new();
    let Some(deployment) = deployment(report, known, parts, &mut assumed) else { return };
    let unit = unit_bytes(report, known, deployment);
    let sizes_kv = engine.kv_pool.is_err() && engine.kv_used.is_err() && unit.is_ok();
    if sizes_kv {
        let ranks = f64::from(report.ranks.max(1));
        let bytes = |count: Reading<u64>| Ok(Bytes((count? as f64 * unit? / ranks).round() as u64));
        engine.kv_pool = bytes(report.kv.pool);
        engine.kv_used = bytes(report.kv.used);
        engine.kv_cached = bytes(report.kv.cached);
    }
    if !known.is_file {
        assumed.push(format!("the model has the layers of {}", known.name));
    }
    report.appraisal = Some(Appraisal {
        model: known.name.clone(),
        source: known.source.clone(),
        weights: weights(known, deployment),
        kv_bytes_per_token: Cache::new(&known.found.model, deployment).per_token(),
        sizes_kv,
        kv_error: KV_ERROR,
        assumed,
    });
}

/// How the model is served; `None` where the parts make no sense or the cache's type has no known size.
fn deployment(
    report: &EngineReport,
    known: &Known,
    parts: Parts,
    assumed: &mut Vec<String>,
) -> Option<Deployment> {
    let model = &known.found.model;
    let told = report.kv_type.clone().ok().or_else(|| known.launch.kv_type.clone());
    let kv_type = match told.as_deref() {
        Some("auto") => model.kv_type,
        // vLLM names the layouts of its 8-bit floats, which are of one size.
        Some(name) if name.starts_with("fp8") => KvType::Fp8,
        Some(name) => name.parse().ok()?,
        None => {
            assumed.push(format!("keys and values are kept in the model's own type, {}", model.kv_type));
            model.kv_type
        }
    };
    let engine = engine(&report.engine);
    let (ranks, pp) = (u64::from(report.ranks.max(1)), known.launch.pipeline_parallel.unwrap_or(1));
    let tp = match known.launch.tensor_parallel {
        _ if engine == Engine::LlamaCpp => parts.gpus,
        Some(tp) => tp,
        // Each process is a rank; those of other replicas and stages are no part of this one's layers.
        None if parts.processes.is_multiple_of(ranks * pp) => parts.processes / (ranks * pp),
        None => return None,
    };
    let usual = Deployment::new(engine, kv_type);
    let block_tokens = report.kv.tokens_per_unit.ok().filter(|tokens| *tokens > 1);
    let block_tokens = block_tokens.unwrap_or(usual.block_tokens);
    Some(Deployment { tp: tp.max(1), pp, dp: ranks, block_tokens, ..usual })
}

/// The planner's engine of a table's title. What the planner does not know lays out its cache plainly, as SGLang does.
fn engine(title: &str) -> Engine {
    match title {
        _ if title.contains("vLLM") || title == "Aphrodite" => Engine::Vllm,
        _ if title.contains("TensorRT-LLM") => Engine::TensorRtLlm,
        "llama.cpp" | "Ollama" => Engine::LlamaCpp,
        "LMDeploy" => Engine::Lmdeploy,
        _ => Engine::Sglang,
    }
}

/// Bytes of one block or token of one rank on its GPU.
fn unit_bytes(report: &EngineReport, known: &Known, deployment: Deployment) -> Reading<f64> {
    let model = &known.found.model;
    match report.kv.unit.ok_or(Absent::NotSupported)? {
        KvUnit::Block if deployment.engine == Engine::Vllm => {
            Ok(cache::vllm_pool(model, deployment, 1).0 as f64)
        }
        _ => {
            let per_token = Cache::new(model, deployment).per_token().0 as f64;
            Ok(per_token * report.kv.tokens_per_unit? as f64)
        }
    }
}

fn weights(known: &Known, deployment: Deployment) -> Reading<Amount> {
    let weights = known.found.weights.ok_or(Absent::NotSupported)?;
    let span = weights.per_gpu(&known.found.model, &deployment);
    Ok(Amount { bytes: span.likely, error: span.high.saturating_sub(span.low) })
}
