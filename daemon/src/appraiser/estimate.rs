//! From blocks and tokens to bytes, with what is assumed on the way.

use std::sync::Arc;

use ebbtide_core::{
    Absent, Amount, Appraisal, Bytes, EngineReport, EngineRole, EngineSample, KvUnit, Reading,
};
use ebbtide_plan::{Cache, Deployment, Engine, cache};

use crate::running::{Parts, Running};

/// By which share bytes of a cache may be off that the planner computed: in 57 public start-ups of vLLM they were
/// never further from the log's (docs/plan.md).
const KV_ERROR: f64 = 0.001;

/// Adds to an engine's figures what `known` makes of them.
pub(super) fn complete(engine: &mut EngineSample, known: &Running, parts: Parts) {
    let Some(report) = engine.report.as_mut() else { return };
    let report = Arc::make_mut(report);
    if report.role == EngineRole::Unknown {
        report.role = known.launch.role.unwrap_or(EngineRole::Unknown);
    }
    let Some((deployment, assumed)) = known.deployment(report, parts) else { return };
    let unit = unit_bytes(report, known, deployment);
    let sizes_kv = engine.kv_pool.is_err() && engine.kv_used.is_err() && unit.is_ok();
    if sizes_kv {
        let ranks = f64::from(report.ranks.max(1));
        let bytes = |count: Reading<u64>| Ok(Bytes((count? as f64 * unit? / ranks).round() as u64));
        engine.kv_pool = bytes(report.kv.pool);
        engine.kv_used = bytes(report.kv.used);
        engine.kv_cached = bytes(report.kv.cached);
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

/// Bytes of one block or token of one rank on its GPU.
fn unit_bytes(report: &EngineReport, known: &Running, deployment: Deployment) -> Reading<f64> {
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

fn weights(known: &Running, deployment: Deployment) -> Reading<Amount> {
    let weights = known.found.weights.ok_or(Absent::NotSupported)?;
    let span = weights.per_gpu(&known.found.model, &deployment);
    Ok(Amount { bytes: span.likely, error: span.high.saturating_sub(span.low) })
}
