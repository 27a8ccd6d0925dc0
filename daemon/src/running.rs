//! Models that engines are serving now: which, how, and in how many parts.

use std::path::{Path, PathBuf};

use ebbtide_core::{EngineReport, ProcKey};
use ebbtide_plan::{Deployment, Engine, KvType, Weights, catalogue};
use ebbtide_probe::engine::Launch;

use crate::model_files::{self, Found};

/// The processes of this machine.
pub(crate) const PROC: &str = "/proc";

/// A model that is being served, and how its engine was started.
#[derive(Debug, Clone)]
pub struct Running {
    /// What the model is called.
    pub name: String,
    /// Where its shapes come from, in words.
    pub source: String,
    /// Whether they are the model's own, and not those of one that is called so.
    pub is_file: bool,
    /// The model and its weights.
    pub found: Found,
    /// What the engine's command line says.
    pub launch: Launch,
}

/// In how many parts an engine is seen.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Processes on GPUs.
    pub processes: u64,
    /// GPUs that they are on.
    pub gpus: u64,
}

/// The model that process `key` serves, which calls it `served`: from its files where they can be read, else by its
/// name. Reads files, and waits for them.
#[must_use]
pub fn look_up(key: ProcKey, served: Option<&str>) -> Option<Running> {
    in_proc(Path::new(PROC), key, served)
}

/// The same below another directory than `/proc`.
pub(crate) fn in_proc(proc: &Path, key: ProcKey, served: Option<&str>) -> Option<Running> {
    let launch = Launch::of(proc, key.pid);
    let process = proc.join(key.pid.to_string());
    let as_served = Launch { model: served.map(str::to_owned), process, ..Launch::default() };
    for path in launch.iter().chain(std::iter::once(&as_served)).flat_map(Launch::model_files) {
        if let Ok(found) = files_at(&path) {
            let source = format!("its files ({})", model_files::shown(&inside(&path, proc)));
            let named = launch.as_ref().and_then(|launch| launch.model.as_deref());
            let name = served.or(named).unwrap_or_default().to_owned();
            return Some(Running { name, source, is_file: true, found, launch: launch.unwrap_or_default() });
        }
    }
    let named = launch.as_ref().and_then(|launch| launch.model.as_deref());
    let entry = named.into_iter().chain(served).find_map(|name| catalogue::find(name).ok())?;
    let model = entry.model().ok()?;
    let found = Found { weights: Weights::computed(&model), model };
    let (name, source) = (entry.name.to_owned(), "the catalogue, by its name".to_owned());
    Some(Running { name, source, is_file: false, found, launch: launch.unwrap_or_default() })
}

fn files_at(path: &Path) -> Result<Found, model_files::ModelFileError> {
    if path.is_dir() { model_files::folder(path) } else { model_files::gguf(path) }
}

/// A path as the engine itself would write it.
fn inside(path: &Path, proc: &Path) -> PathBuf {
    let mut parts = path.strip_prefix(proc).unwrap_or(path).components();
    // The process, and `root` or `cwd`.
    let (_, base) = (parts.next(), parts.next());
    let rest = parts.as_path();
    if base.is_some_and(|base| base.as_os_str() == "root") {
        Path::new("/").join(rest)
    } else {
        rest.to_owned()
    }
}

impl Running {
    /// How the model is served, and what was assumed for that, in sentences; `None` where the parts make no sense or
    /// the cache's type has no known size.
    #[must_use]
    pub fn deployment(&self, report: &EngineReport, parts: Parts) -> Option<(Deployment, Vec<String>)> {
        let mut assumed = Vec::new();
        if !self.is_file {
            assumed.push(format!("the model has the layers of {}", self.name));
        }
        let model = &self.found.model;
        let told = report.kv_type.clone().ok().or_else(|| self.launch.kv_type.clone());
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
        let (ranks, pp) = (u64::from(report.ranks.max(1)), self.launch.pipeline_parallel.unwrap_or(1));
        let tp = match self.launch.tensor_parallel {
            _ if engine == Engine::LlamaCpp => parts.gpus,
            Some(tp) => tp,
            // Each process is a rank; those of other replicas and stages are no part of this one's layers.
            None if parts.processes.is_multiple_of(ranks * pp) => parts.processes / (ranks * pp),
            None => return None,
        };
        let usual = Deployment::new(engine, kv_type);
        let block_tokens = report.kv.tokens_per_unit.ok().filter(|tokens| *tokens > 1);
        let block_tokens = block_tokens.unwrap_or(usual.block_tokens);
        let share = report.share.ok();
        Some((Deployment { tp: tp.max(1), pp, dp: ranks, share, block_tokens, ..usual }, assumed))
    }
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
