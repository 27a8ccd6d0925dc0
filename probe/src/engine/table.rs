//! Tables: where an engine of some range of versions writes what, as data.
//!
//! Each engine has a TOML file. Those of this crate are embedded; a directory of the user's can add engines, and
//! tables that are tried before the embedded ones of the same engine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ebbtide_core::KvSemantics;
use serde::Deserialize;

use crate::proc::file::read_text;

/// A table file is a few KiB; what is larger is none.
const FILE_CAP: u64 = 256 << 10;
/// Files of a user's directory: one with more holds something else.
const MAX_FILES: usize = 64;

/// The embedded files, the most used engines first: where a page fits two engines, the first one names it.
const EMBEDDED: [&str; 15] = [
    include_str!("tables/vllm.toml"),
    include_str!("tables/sglang.toml"),
    include_str!("tables/llamacpp.toml"),
    include_str!("tables/ollama.toml"),
    include_str!("tables/tgi.toml"),
    include_str!("tables/trtllm.toml"),
    include_str!("tables/triton.toml"),
    include_str!("tables/lmdeploy.toml"),
    include_str!("tables/mistralrs.toml"),
    include_str!("tables/ray.toml"),
    include_str!("tables/aphrodite.toml"),
    include_str!("tables/tabbyapi.toml"),
    include_str!("tables/dynamo.toml"),
    include_str!("tables/lmcache.toml"),
    include_str!("tables/ebbtide.toml"),
];

/// One engine's file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EngineFile {
    /// The engine's short name, by which a target hints at it.
    pub engine: String,
    /// The engine's name as its makers write it.
    pub title: String,
    /// Whether it lives on another engine's page and names it only where that one is not recognised.
    #[serde(default)]
    pub companion: bool,
    /// Where the names were read.
    pub source: String,
    /// The tables, those of newer versions first: on each path the first that is recognised counts.
    pub table: Vec<Table>,
}

/// What one page of an engine says, for a range of versions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    /// The range of versions, for people.
    pub versions: String,
    /// The page.
    pub path: String,
    /// How the page is written.
    #[serde(default)]
    pub format: Format,
    /// Metrics or JSON pointers that must all be on the page.
    pub has: Vec<String>,
    /// Metrics or JSON pointers none of which may be on it.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Asked only where no other page of the engine was recognised.
    #[serde(default)]
    pub fallback: bool,
    /// Whether the page says only what does not change while the engine runs, so that it is asked once.
    #[serde(default)]
    pub once: bool,
    /// What the engine calls used.
    #[serde(default = "unknown_semantics")]
    pub semantics: KvSemantics,
    /// Blocks of each rank's pool that are never given out.
    #[serde(default)]
    pub null_blocks: u32,
    /// The label that tells data-parallel ranks apart, or the pointer at them: their counts are added up.
    pub ranks: Option<String>,
    /// Labels that tell copies of one and the same count apart: of those the largest is taken.
    #[serde(default)]
    pub replicas: Vec<String>,
    /// What a reader of the figures has to know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Where each quantity stands; the first place that has a value counts.
    pub fields: BTreeMap<Field, Places>,
}

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The Prometheus text format.
    #[default]
    Exposition,
    /// JSON.
    Json,
}

/// What can be read of an engine. Counts are of the whole engine, bytes are added up over its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// Share of the KV pool in use, 0 to 1.
    KvFill,
    /// Blocks in use.
    KvUsedBlocks,
    /// Tokens in use.
    KvUsedTokens,
    /// Blocks kept for reuse and not counted as used.
    KvCachedBlocks,
    /// Tokens kept for reuse and not counted as used.
    KvCachedTokens,
    /// Blocks of the pool.
    KvPoolBlocks,
    /// Tokens of the pool.
    KvPoolTokens,
    /// Bytes of the pool.
    KvPoolBytes,
    /// Tokens of a block.
    TokensPerBlock,
    /// Requests being served.
    Running,
    /// Requests waiting.
    Waiting,
    /// Requests finished since the engine started.
    Served,
    /// Tokens of prompts read since it started.
    ReadTokens,
    /// Tokens written since it started.
    WrittenTokens,
    /// Bytes that the engine's allocator has taken from the driver.
    ArenaBytes,
    /// Bytes of those that are in use.
    ArenaUsedBytes,
    /// 1 while the engine has given its memory back.
    Asleep,
    /// Bytes of weights.
    WeightsBytes,
    /// Bytes of captured graphs.
    GraphsBytes,
    /// Bytes held on devices, all in all.
    DeviceBytes,
    /// Bytes of KV cache in host memory.
    OffloadedBytes,
    /// The share of a GPU that the engine takes ahead, 0 to 1.
    Share,
    /// The type of keys and values, as the engine writes it.
    KvType,
    /// The model's name.
    Model,
    /// `prefill`, `decode` or `both`.
    Role,
}

/// One place or several, the best first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Places {
    /// The only one.
    One(Place),
    /// Those of a list.
    Many(Vec<Place>),
}

/// Where a quantity stands on a page.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Place {
    /// The metric, on a page in the Prometheus format.
    pub metric: Option<String>,
    /// The JSON pointer (RFC 6901), on a page of JSON; a `*` stands for every element of a list or
    /// an object, a `-` for the last of a list.
    pub pointer: Option<String>,
    /// Labels that must have one of the given values.
    #[serde(default, rename = "where")]
    pub conditions: BTreeMap<String, Vec<String>>,
    /// The label whose text is the value, instead of the metric's own.
    pub label: Option<String>,
    /// What a value is multiplied with.
    #[serde(default = "one")]
    pub scale: f64,
    /// Another place whose value it is multiplied with.
    pub times: Option<Box<Place>>,
    /// How several values become one.
    #[serde(default)]
    pub across: Across,
    /// What texts stand for.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

/// How several values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Across {
    /// Their sum.
    #[default]
    Sum,
    /// Their mean: shares of equally large pools.
    Mean,
    /// The largest: figures of the whole that every rank repeats.
    Max,
}

const fn one() -> f64 {
    1.0
}

const fn unknown_semantics() -> KvSemantics {
    KvSemantics::Unknown
}

/// Why tables cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A directory or file cannot be read.
    #[error("cannot read engine tables at {path}: make it readable, or take it out of the configuration", path = .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
    },
    /// A directory holds something else than tables.
    #[error("more than {MAX_FILES} engine tables at {path}: name a directory of tables only", path = .path.display())]
    TooMany {
        /// Which.
        path: PathBuf,
    },
    /// A file is no table.
    #[error("{name} is no engine table")]
    Syntax {
        /// Which file.
        name: String,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A table contradicts itself.
    #[error("{name}, table \"{versions}\": {reason}")]
    Meaning {
        /// Which file.
        name: String,
        /// Which table.
        versions: String,
        /// What to change.
        reason: &'static str,
    },
}

/// All tables, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Tables {
    files: Vec<EngineFile>,
}

impl Tables {
    /// The embedded ones.
    ///
    /// # Panics
    /// Never: a test reads every embedded file.
    #[must_use]
    pub fn embedded() -> Self {
        let read =
            |text: &&str| parse("embedded table", text).expect("every embedded table is read by a test");
        Self { files: EMBEDDED.iter().map(read).collect() }
    }

    /// The files of `dir`, by name, and then the embedded ones.
    ///
    /// # Errors
    /// The directory or one of its `*.toml` files is unreadable or no table.
    pub fn with_directory(dir: &Path) -> Result<Self, TableError> {
        let unreadable = |path: &Path| TableError::Unreadable { path: path.to_owned() };
        let entries = std::fs::read_dir(dir).map_err(|_| unreadable(dir))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        paths.sort();
        let mut files = Vec::new();
        if paths.len() > MAX_FILES {
            return Err(TableError::TooMany { path: dir.to_owned() });
        }
        for path in &paths {
            let text = read_text(path, FILE_CAP).map_err(|_| unreadable(path))?;
            files.push(parse(&path.display().to_string(), &text)?);
        }
        files.extend(Self::embedded().files);
        Ok(Self { files })
    }

    /// The files, in the order in which they are tried.
    #[must_use]
    pub fn files(&self) -> &[EngineFile] {
        &self.files
    }

    /// The tables for `path`, with their engines; only those of engine `hint` where it is given.
    pub fn on<'a>(
        &'a self,
        path: &'a str,
        hint: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a EngineFile, &'a Table)> {
        let wanted = move |file: &&EngineFile| file.companion || hint.is_none_or(|hint| hint == file.engine);
        let of = move |file: &'a EngineFile| file.table.iter().map(move |table| (file, table));
        self.files.iter().filter(wanted).flat_map(of).filter(move |(_, table)| table.path == path)
    }
}

impl EngineFile {
    /// The pages of this engine, without those that are only a fallback where `fallback` is false, each once.
    #[must_use]
    pub fn pages(&self, fallback: bool) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let wanted = self.table.iter().filter(|table| table.fallback == fallback);
        wanted.map(|table| table.path.as_str()).filter(|path| seen.insert(*path)).collect()
    }
}

impl Table {
    /// The metrics that are looked for on its page.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        let places = self.fields.values().flat_map(Places::all);
        let read = places.flat_map(|place| std::iter::once(place).chain(place.times.as_deref()));
        let marks = self.has.iter().chain(&self.lacks).map(String::as_str);
        marks.chain(read.filter_map(|place| place.metric.as_deref()))
    }
}

impl Places {
    /// The places, the best first.
    #[must_use]
    pub fn all(&self) -> &[Place] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Many(places) => places,
        }
    }
}

/// The tables in `text`, checked.
///
/// # Errors
/// It is no table, or one that contradicts itself.
pub fn parse(name: &str, text: &str) -> Result<EngineFile, TableError> {
    let file: EngineFile = toml::from_str(text)
        .map_err(|source| TableError::Syntax { name: name.to_owned(), source: Box::new(source) })?;
    for table in &file.table {
        if let Some(reason) = contradiction(table) {
            let versions = table.versions.clone();
            return Err(TableError::Meaning { name: name.to_owned(), versions, reason });
        }
    }
    Ok(file)
}

fn contradiction(table: &Table) -> Option<&'static str> {
    if table.has.is_empty() {
        return Some("say in `has` what the page is recognised by");
    }
    if !table.path.starts_with('/') || table.path.contains(|c: char| c.is_control() || c == ' ') {
        return Some("`path` is the path of a page and starts with a slash");
    }
    let places = table.fields.values().flat_map(Places::all);
    let mut places = places.flat_map(|place| std::iter::once(place).chain(place.times.as_deref()));
    let fits = |place: &Place| match table.format {
        Format::Exposition => place.metric.is_some() && place.pointer.is_none(),
        Format::Json => place.pointer.is_some() && place.metric.is_none(),
    };
    let sound = places.all(|place| fits(place) && place.scale.is_finite());
    (!sound).then_some("each place names a `metric`, or in a table of format json a `pointer`, and not both")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_table_is_sound_and_every_engine_named_once() {
        let names: BTreeSet<String> =
            EMBEDDED.iter().map(|text| parse("embedded", text).unwrap().engine).collect();
        assert_eq!(names.len(), EMBEDDED.len());
        assert!(
            Tables::embedded().files().iter().all(|file| !file.table.is_empty() && !file.source.is_empty())
        );
    }

    const MINE: &str = r#"
engine = "mine"
title = "Mine"
source = "own"
[[table]]
versions = "1"
path = "/stats"
has = ["mine_used"]
[table.fields]
kv-fill = { metric = "mine_used" }
"#;

    #[test]
    fn a_directory_adds_tables_before_the_embedded_ones() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine.toml"), MINE).unwrap();
        std::fs::write(dir.path().join("README"), "no table").unwrap();
        let tables = Tables::with_directory(dir.path()).unwrap();
        assert_eq!(tables.files()[0].engine, "mine");
        assert_eq!(tables.files().len(), 1 + EMBEDDED.len());
        assert_eq!(tables.on("/stats", None).count(), 1);
        let missing = Tables::with_directory(&dir.path().join("none")).unwrap_err();
        assert!(matches!(missing, TableError::Unreadable { .. }));
    }

    #[test]
    fn a_table_that_makes_no_sense_says_which_and_why() {
        for (from, to, wanted) in [
            ("has = [\"mine_used\"]", "has = []", "recognised by"),
            ("path = \"/stats\"", "path = \"stats\"", "starts with a slash"),
            ("metric =", "pointer =", "names a `metric`"),
        ] {
            let error = parse("x.toml", &MINE.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("x.toml"), "{error}");
        }
        let unknown = parse("x.toml", &MINE.replace("kv-fill", "kv-fil")).unwrap_err();
        assert!(matches!(unknown, TableError::Syntax { .. }), "{unknown}");
    }
}
