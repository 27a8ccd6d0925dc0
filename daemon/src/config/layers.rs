//! Laying the sources of configuration over each other, with the origin of every key.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::Config;

/// Prefix of environment variables that set a key: `EBBTIDE_PROBE__INTERVAL_MS=500`.
const ENV_PREFIX: &str = "EBBTIDE_";
/// What stands for the dot between section and key in a variable's name; a single underscore belongs to a key.
const ENV_SEPARATOR: &str = "__";
/// No configuration is larger; a larger file is not one.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layer {
    /// Built in.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => path.display().fmt(f),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag => f.write_str("command line"),
        }
    }
}

/// What there is to lay over the defaults, lowest first.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Files that may be missing.
    pub optional_files: Vec<PathBuf>,
    /// A file that was named, so it must be there.
    pub required_file: Option<PathBuf>,
    /// The environment.
    pub env: Vec<(String, String)>,
    /// Dotted keys and TOML values from flags.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// The usual places: `/etc/ebbtide/config.toml`, the user's own, and the process's environment.
    ///
    /// A named file stands in place of both usual files.
    #[must_use]
    pub fn usual(named: Option<PathBuf>) -> Self {
        // An empty or relative one is to be ignored (XDG Base Directory Specification): it would name a file in
        // whatever directory this was started from.
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let user = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
        let mut optional_files = vec![PathBuf::from("/etc/ebbtide/config.toml")];
        optional_files.extend(user.map(|dir| dir.join("ebbtide/config.toml")));
        Self {
            optional_files: if named.is_some() { Vec::new() } else { optional_files },
            required_file: named,
            env: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            flags: Vec::new(),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file is too large to be a configuration.
    #[error("{} is larger than {MAX_CONFIG_BYTES} bytes: that is no configuration", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// A file says something that is not understood.
    #[error("{}:{line}: {message}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// In which line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// An environment variable or a flag says something that is not understood.
    #[error("{layer}: {message}")]
    Value {
        /// Which one.
        layer: Layer,
        /// What is wrong.
        message: String,
    },
    /// A value is outside its range.
    #[error("{key} (from {layer}): {message}")]
    Range {
        /// The dotted key.
        key: String,
        /// Who set it.
        layer: Layer,
        /// What is wrong.
        message: String,
    },
}

/// A configuration, and where each of its values comes from.
#[derive(Debug, Clone)]
pub struct Effective {
    /// The configuration.
    pub config: Config,
    /// Every key that has a value: dotted name, value as TOML, origin; in order of name.
    pub origins: BTreeMap<String, (String, Layer)>,
}

/// Reads all sources and lays them over the defaults.
///
/// # Errors
/// When a source cannot be read, holds an unknown key or a wrong type, or a value is out of its range.
pub fn load(sources: &Sources) -> Result<Effective, ConfigError> {
    let mut stack = Stack::default();
    stack.lay(defaults(), &Layer::Default);
    for path in &sources.optional_files {
        if let Some(table) = read_file(path, false)? {
            stack.lay(table, &Layer::File(path.clone()));
        }
    }
    if let Some(path) = &sources.required_file
        && let Some(table) = read_file(path, true)?
    {
        stack.lay(table, &Layer::File(path.clone()));
    }
    for (name, value) in &sources.env {
        if let Some(key) = env_key(name) {
            stack.lay_checked(&key, value, Layer::Env(name.clone()))?;
        }
    }
    for (key, value) in &sources.flags {
        stack.lay_checked(key, value, Layer::Flag)?;
    }
    stack.finish()
}

/// Values so far, and who set them.
#[derive(Default)]
struct Stack {
    table: Table,
    origins: BTreeMap<String, Layer>,
}

impl Stack {
    fn lay(&mut self, over: Table, layer: &Layer) {
        merge(&mut self.table, over, "", &mut |key| {
            self.origins.insert(key, layer.clone());
        });
    }

    /// Lays one value after checking it on its own, so that the message names the variable and not the whole.
    fn lay_checked(&mut self, key: &str, value: &str, layer: Layer) -> Result<(), ConfigError> {
        let table = single(key, parse_value(value));
        match Config::deserialize_table(table.clone()) {
            Ok(_) => self.lay(table, &layer),
            Err(error) => {
                return Err(ConfigError::Value { layer, message: format!("{key}: {}", error.message()) });
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Effective, ConfigError> {
        let config = Config::deserialize_table(self.table.clone())
            .map_err(|e| ConfigError::Value { layer: Layer::Default, message: e.message().to_owned() })?;
        let origin = |key: &str| self.origins.get(key).cloned().unwrap_or(Layer::Default);
        config.validate().map_err(|(key, message)| ConfigError::Range {
            key: key.to_owned(),
            layer: origin(key),
            message,
        })?;
        let mut shown = BTreeMap::new();
        flatten(&self.table, "", &mut |key, value| {
            shown.insert(key.to_owned(), (value.to_string(), origin(key)));
        });
        Ok(Effective { config, origins: shown })
    }
}

impl Config {
    fn deserialize_table(table: Table) -> Result<Self, toml::de::Error> {
        table.try_into()
    }
}

fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the defaults are plain tables, which TOML can always say")
}

fn read_file(path: &Path, required: bool) -> Result<Option<Table>, ConfigError> {
    let read = |source| ConfigError::Read { path: path.to_owned(), source };
    let size = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !required => return Ok(None),
        Err(e) => return Err(read(e)),
    };
    if size > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    let wrong = |error: &toml::de::Error| ConfigError::File {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(&text, span.start)),
        message: error.message().to_owned(),
    };
    toml::from_str::<Config>(&text).map_err(|e| wrong(&e))?;
    toml::from_str(&text).map(Some).map_err(|e| wrong(&e))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|&&b| b == b'\n').count()
}

/// `EBBTIDE_PROBE__INTERVAL_MS` is `probe.interval_ms`; variables without the separator mean something else.
fn env_key(name: &str) -> Option<String> {
    let rest = name.strip_prefix(ENV_PREFIX)?;
    rest.contains(ENV_SEPARATOR).then(|| rest.to_ascii_lowercase().replace(ENV_SEPARATOR, "."))
}

/// A TOML value where the text is one, else the text itself, so that paths and words need no quotes.
fn parse_value(text: &str) -> Value {
    toml::from_str::<Table>(&format!("value = {text}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn single(dotted: &str, value: Value) -> Table {
    let (key, value) = match dotted.split_once('.') {
        Some((section, rest)) => (section, Value::Table(single(rest, value))),
        None => (dotted, value),
    };
    Table::from_iter([(key.to_owned(), value)])
}

fn merge(under: &mut Table, over: Table, prefix: &str, set: &mut impl FnMut(String)) {
    for (key, value) in over {
        let dotted = format!("{prefix}{key}");
        match (under.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => {
                merge(below, above, &format!("{dotted}."), set);
            }
            (_, value) => {
                let mut leaves = Vec::new();
                match &value {
                    Value::Table(table) => {
                        flatten(table, &format!("{dotted}."), &mut |k, _| leaves.push(k.to_owned()));
                    }
                    _ => leaves.push(dotted),
                }
                leaves.into_iter().for_each(&mut *set);
                under.insert(key, value);
            }
        }
    }
}

fn flatten(table: &Table, prefix: &str, each: &mut impl FnMut(&str, &Value)) {
    for (key, value) in table {
        let dotted = format!("{prefix}{key}");
        match value {
            Value::Table(inner) => flatten(inner, &format!("{dotted}."), each),
            leaf => each(&dotted, leaf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, file).unwrap();
        let own = |pairs: &[(&str, &str)]| pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let sources = Sources {
            optional_files: vec![dir.path().join("missing.toml"), path],
            required_file: None,
            env: own(env),
            flags: own(flags),
        };
        (dir, sources)
    }

    #[test]
    fn later_layers_win_and_every_value_knows_its_origin() {
        let (_dir, sources) = sources(
            "[probe]\ninterval_ms = 2000\nlist_interval_ms = 9000\nhealth_interval_ms = 60000\n",
            &[
                ("EBBTIDE_PROBE__INTERVAL_MS", "500"),
                ("EBBTIDE_SOCKET", "/x"),
                ("EBBTIDE_STORE__PATH", "/tmp/a b.db"),
            ],
            &[("probe.list_interval_ms", "7000")],
        );
        let effective = load(&sources).unwrap();
        let probe = &effective.config.probe;
        assert_eq!(
            (
                probe.interval_ms,
                probe.list_interval_ms,
                probe.health_interval_ms,
                probe.nvml_budget_ms_per_min
            ),
            (500, 7000, 60_000, 600)
        );
        assert_eq!(effective.config.store.path, PathBuf::from("/tmp/a b.db"));
        let origin = |key: &str| effective.origins[key].1.to_string();
        assert_eq!(origin("probe.interval_ms"), "environment EBBTIDE_PROBE__INTERVAL_MS");
        assert_eq!(origin("probe.list_interval_ms"), "command line");
        assert!(origin("probe.health_interval_ms").ends_with("config.toml"));
        assert_eq!(origin("probe.nvml_budget_ms_per_min"), "default");
    }

    #[test]
    fn an_unknown_key_names_its_file_and_line() {
        let (_dir, sources) = sources("[probe]\ninterval_ms = 1000\n\n[store]\npaht = \"x\"\n", &[], &[]);
        let error = load(&sources).unwrap_err().to_string();
        assert!(error.contains("config.toml:5:"), "{error}");
        assert!(error.contains("paht") && error.contains("path"), "{error}");
    }

    #[test]
    fn a_wrong_type_names_its_line_and_a_wrong_variable_its_name() {
        let (_dir, wrong_type) = sources("[probe]\ninterval_ms = \"fast\"\n", &[], &[]);
        assert!(load(&wrong_type).unwrap_err().to_string().contains("config.toml:2:"));
        let (_dir, wrong_env) = sources("", &[("EBBTIDE_PROBE__INTERVALL", "1")], &[]);
        let error = load(&wrong_env).unwrap_err().to_string();
        assert!(error.contains("EBBTIDE_PROBE__INTERVALL") && error.contains("interval_ms"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_says_who_set_it() {
        let (_dir, fast) = sources("[probe]\ninterval_ms = 5\n", &[], &[]);
        let error = load(&fast).unwrap_err().to_string();
        assert!(error.starts_with("probe.interval_ms (from ") && error.contains("100 to 300000"), "{error}");
        for pages in ["0", "-1.5", "nan", "1000"] {
            let text = format!("[detect]\nfalse_pages_per_week = {pages}\n");
            let (_dir, file) = sources(&text, &[], &[]);
            let error = load(&file).unwrap_err().to_string();
            assert!(error.starts_with("detect.false_pages_per_week (from "), "{error}");
        }
        let (_dir, whole) = sources("[detect]\nfalse_pages_per_week = 1\nfleet_gpus = 10000\n", &[], &[]);
        assert_eq!(load(&whole).unwrap().config.detect.judged().fleet_gpus.map(u32::from), Some(10_000));
    }

    #[test]
    fn a_named_file_must_be_there() {
        let sources = Sources { required_file: Some("/nowhere/config.toml".into()), ..Sources::default() };
        assert!(matches!(load(&sources), Err(ConfigError::Read { .. })));
    }
}
