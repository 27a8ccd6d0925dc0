//! How an engine was started, as its command line says: the model, its parts, its settings.
//!
//! An engine's server is started by a person, and the process that holds the GPU memory is its child or grandchild,
//! which may have renamed itself. So the line that counts is the nearest ancestor's that names a model.

use std::path::{Path, PathBuf};

use ebbtide_core::EngineRole;
use ebbtide_core::text::clean;

use crate::proc::file::read_capped;
use crate::proc::stat::Stat;

/// Lines longer than this hold a prompt, not settings.
const LINE_CAP: u64 = 64 << 10;
const STAT_CAP: u64 = 4096;
/// From a worker over its engine's core to its server is two steps; what is beyond is who started the server.
const MAX_STEPS: usize = 4;

/// What a command line says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Launch {
    /// The model: a path, or a name.
    pub model: Option<String>,
    /// GPUs that share each layer.
    pub tensor_parallel: Option<u64>,
    /// Stages that the layers are cut into.
    pub pipeline_parallel: Option<u64>,
    /// The type of keys and values, as the engine calls it.
    pub kv_type: Option<String>,
    /// The part in serving a request, where it is said.
    pub role: Option<EngineRole>,
    /// The process that said it: its directory in `/proc`.
    pub process: PathBuf,
}

/// The options that are understood, by what they set. The same words mean the same in all engines that have them.
// tidy: table
const OPTIONS: [(Setting, &[&str]); 6] = [
    (Setting::Model, &["--model", "--model-path", "--model_path", "-m"]),
    (Setting::TensorParallel, &["--tensor-parallel-size", "-tp", "--tp-size", "--tp"]),
    (
        Setting::PipelineParallel,
        &["--pipeline-parallel-size", "-pp", "--pp-size", "--pipeline_parallel_size"],
    ),
    (Setting::KvType, &["--kv-cache-dtype", "--cache-type-k", "-ctk"]),
    (Setting::Disaggregation, &["--disaggregation-mode"]),
    (Setting::Transfer, &["--kv-transfer-config"]),
];

/// What an option sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Model,
    TensorParallel,
    PipelineParallel,
    KvType,
    /// SGLang: `prefill` or `decode`.
    Disaggregation,
    /// vLLM: JSON with a `kv_role`.
    Transfer,
}

impl Launch {
    /// How the engine of process `pid` was started; `None` where no line up to four processes above it names a model,
    /// or none can be read.
    #[must_use]
    pub fn of(proc: &Path, pid: u32) -> Option<Self> {
        let mut pid = pid;
        for _ in 0..=MAX_STEPS {
            let process = proc.join(pid.to_string());
            let line = read_capped(&process.join("cmdline"), LINE_CAP).ok()?;
            let launch = Self::parse(&line);
            if launch.model.is_some() {
                return Some(Self { process, ..launch });
            }
            let stat = read_capped(&process.join("stat"), STAT_CAP).ok()?;
            pid = Stat::parse(&String::from_utf8_lossy(&stat))?.parent;
        }
        None
    }

    /// Reads a line whose arguments end with a NUL each.
    #[must_use]
    pub fn parse(line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line);
        let arguments: Vec<&str> = text.split('\0').collect();
        let mut launch = Self::default();
        for (place, argument) in arguments.iter().enumerate() {
            let next = arguments.get(place + 1).copied().filter(|next| !next.is_empty());
            if let Some((setting, value)) = option(argument, next) {
                launch.set(setting, value);
            } else if *argument == "serve" && launch.model.is_none() {
                // `vllm serve MODEL`; an option here means that the model follows elsewhere.
                launch.model = next.filter(|next| !next.starts_with('-')).map(clean);
            }
        }
        launch
    }

    fn set(&mut self, setting: Setting, value: &str) {
        match setting {
            Setting::Model => self.model = Some(clean(value)),
            Setting::TensorParallel => self.tensor_parallel = count(value),
            Setting::PipelineParallel => self.pipeline_parallel = count(value),
            Setting::KvType => self.kv_type = Some(clean(value)),
            Setting::Disaggregation => self.role = disaggregation(value),
            Setting::Transfer => self.role = transfer(value),
        }
    }

    /// Places where the model's files may be as the engine's own process sees them, the likeliest first: the path
    /// itself, or the newest revision of that name in the usual caches of Hugging Face.
    #[must_use]
    pub fn model_files(&self) -> Vec<PathBuf> {
        let Some(model) = self.model.as_deref() else { return Vec::new() };
        let root = self.process.join("root");
        let given = Path::new(model);
        if let Ok(inside) = given.strip_prefix("/") {
            return vec![root.join(inside)];
        }
        let mut places = vec![self.process.join("cwd").join(given)];
        if model.split('/').count() == 2 && !model.contains("..") {
            let folder = format!("models--{}", model.replace('/', "--"));
            places.extend(CACHES.iter().filter_map(|cache| snapshot(&root.join(cache).join(&folder))));
        }
        places
    }
}

/// Where engines in containers keep what they fetched; elsewhere the path would have to be read from their
/// environment, which holds secrets.
const CACHES: [&str; 2] = ["root/.cache/huggingface/hub", "data/huggingface/hub"];

/// The folder of the revision that a cache entry's main branch stands at.
fn snapshot(entry: &Path) -> Option<PathBuf> {
    /// A commit id has 40 digits.
    const REVISION_CAP: u64 = 64;
    let revision = read_capped(&entry.join("refs/main"), REVISION_CAP).ok()?;
    let revision = String::from_utf8(revision).ok()?;
    let is_id = !revision.is_empty() && revision.trim().chars().all(|c| c.is_ascii_hexdigit());
    is_id.then(|| entry.join("snapshots").join(revision.trim()))
}

/// What `argument` sets, and to what: `--name=value`, or the argument after it.
fn option<'a>(argument: &'a str, next: Option<&'a str>) -> Option<(Setting, &'a str)> {
    let (name, own) = match argument.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (argument, None),
    };
    let (setting, _) = OPTIONS.iter().find(|(_, names)| names.contains(&name))?;
    // `python -m vllm.entrypoints...` runs a module, and is no model.
    let is_module = name == "-m" && next.is_some_and(|next| !next.ends_with(".gguf"));
    Some((*setting, own.or(next)?)).filter(|_| !is_module)
}

fn count(value: &str) -> Option<u64> {
    value.parse().ok().filter(|count| (1..=1024).contains(count))
}

fn disaggregation(value: &str) -> Option<EngineRole> {
    match value {
        "prefill" => Some(EngineRole::Prefill),
        "decode" => Some(EngineRole::Decode),
        _ => None,
    }
}

fn transfer(value: &str) -> Option<EngineRole> {
    let config: serde_json::Value = serde_json::from_str(value).ok()?;
    match config.get("kv_role")?.as_str()? {
        "kv_producer" => Some(EngineRole::Prefill),
        "kv_consumer" => Some(EngineRole::Decode),
        "kv_both" => Some(EngineRole::Both),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn parsed(arguments: &[&str]) -> Launch {
        Launch::parse(arguments.join("\0").as_bytes())
    }

    #[test]
    fn lines_of_engines_say_their_model_and_settings() {
        let vllm = parsed(&[
            "python3",
            "/usr/bin/vllm",
            "serve",
            "/models/llama",
            "-tp",
            "4",
            "--kv-cache-dtype=fp8",
            "",
        ]);
        assert_eq!(vllm.model.as_deref(), Some("/models/llama"));
        assert_eq!((vllm.tensor_parallel, vllm.kv_type.as_deref()), (Some(4), Some("fp8")));
        let module = parsed(&["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/name"]);
        assert_eq!(module.model.as_deref(), Some("org/name"));
        let sglang =
            parsed(&["sglang", "--model-path=q", "--pp-size", "2", "--disaggregation-mode", "prefill"]);
        assert_eq!((sglang.pipeline_parallel, sglang.role), (Some(2), Some(EngineRole::Prefill)));
        let llama = parsed(&["llama-server", "-m", "/m/a.gguf", "-ctk", "q8_0"]);
        assert_eq!((llama.model.as_deref(), llama.kv_type.as_deref()), (Some("/m/a.gguf"), Some("q8_0")));
        let producer =
            parsed(&["vllm", "serve", "m", "--kv-transfer-config", r#"{"kv_role":"kv_producer"}"#]);
        assert_eq!(producer.role, Some(EngineRole::Prefill));
        assert_eq!(parsed(&["vllm", "serve", "--port", "1"]).model, None);
        assert_eq!(parsed(&["x", "--model"]).model, None);
    }

    /// A renamed worker below a core below the server: the server's line counts.
    #[test]
    fn the_nearest_line_that_names_a_model_counts() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, parent, line) in [
            (10, 1, "vllm\0serve\0org/name\0"),
            (11, 10, "VLLM::EngineCore\0"),
            (12, 11, "VLLM::Worker_TP0\0"),
        ] {
            let dir = proc.path().join(pid.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("cmdline"), line).unwrap();
            let stat = format!("{pid} (x) S {parent} 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 100 1 1 1\n");
            fs::write(dir.join("stat"), stat).unwrap();
        }
        let launch = Launch::of(proc.path(), 12).unwrap();
        assert_eq!((launch.model.as_deref(), &launch.process), (Some("org/name"), &proc.path().join("10")));
        assert_eq!(Launch::of(proc.path(), 99), None);
    }

    #[test]
    fn files_are_looked_for_as_the_engine_sees_them() {
        let proc = tempfile::tempdir().unwrap();
        let launch = |model: &str| Launch {
            model: Some(model.to_owned()),
            process: proc.path().join("10"),
            ..Launch::default()
        };
        assert_eq!(launch("/models/a").model_files(), [proc.path().join("10/root/models/a")]);
        let entry = proc.path().join("10/root/root/.cache/huggingface/hub/models--org--name");
        fs::create_dir_all(entry.join("refs")).unwrap();
        fs::write(entry.join("refs/main"), "0123abcd").unwrap();
        assert_eq!(
            launch("org/name").model_files(),
            [proc.path().join("10/cwd/org/name"), entry.join("snapshots/0123abcd")]
        );
        fs::write(entry.join("refs/main"), "../../../etc").unwrap();
        assert_eq!(launch("org/name").model_files().len(), 1);
    }

    proptest! {
        #[test]
        fn any_line_is_read(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let model = Launch::parse(&line).model.unwrap_or_default();
            prop_assert!(!model.chars().any(char::is_control));
        }
    }
}
