//! A model's files: the configuration, and the headers of what holds its weights.
//!
//! The planner takes bytes; here they are read, for `ebbtide plan` and for engines that are running.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ebbtide_core::Bytes;
use ebbtide_plan::config::MAX_CONFIG_BYTES;
use ebbtide_plan::gguf::Header;
use ebbtide_plan::weights::{Source, Weights};
use ebbtide_plan::{Model, safetensors};

/// `O_NONBLOCK` as the standard library takes it.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// The most bytes of an index of weights; those of the largest models have some 10 MiB.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// A model and, where its files say so, its weights.
#[derive(Debug, Clone)]
pub struct Found {
    /// The model.
    pub model: Model,
    /// Its weights.
    pub weights: Option<Weights>,
}

/// A file that cannot be read as part of a model.
#[derive(Debug, thiserror::Error)]
#[error("{path}")]
pub struct ModelFileError {
    /// Which file, cleaned.
    path: String,
    /// What is wrong with it.
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Says which file it was.
trait At<T> {
    fn at(self, path: &Path) -> Result<T, ModelFileError>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> At<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T, ModelFileError> {
        self.map_err(|error| ModelFileError { path: shown(path), source: error.into() })
    }
}

impl Found {
    /// Both models, and the weights of both where those are known.
    #[must_use]
    pub fn with_draft(&self, draft: &Self) -> Self {
        let sum = |(own, draft): (Weights, Weights)| Weights { bytes: own.bytes + draft.bytes, ..own };
        Self { model: self.model.with_draft(&draft.model), weights: self.weights.zip(draft.weights).map(sum) }
    }
}

/// From a `config.json` alone.
///
/// # Errors
/// It cannot be read, or is no model's.
pub fn config(path: &Path) -> Result<Found, ModelFileError> {
    let bytes = read_capped(path, MAX_CONFIG_BYTES as u64 + 1)?;
    let model = Model::from_config(&bytes).at(path)?;
    Ok(Found { weights: Weights::computed(&model), model })
}

/// From a GGUF file, and the other parts of a split one.
///
/// # Errors
/// A part cannot be read, or is no model's.
pub fn gguf(path: &Path) -> Result<Found, ModelFileError> {
    let header = gguf_header(path)?;
    let mut model = header.model().at(path)?;
    let mut bytes = header.tensor_bytes;
    for part in other_parts(path, header.parts()) {
        if part.is_file() {
            bytes = bytes + gguf_header(&part)?.tensor_bytes;
        } else {
            model.notes.push(format!("{} is not there, and its weights are not counted", shown(&part)));
        }
    }
    Ok(Found { model, weights: Some(Weights { bytes, source: Source::File }) })
}

fn gguf_header(path: &Path) -> Result<Header, ModelFileError> {
    let file = open(path)?;
    Header::read(BufReader::new(file)).at(path)
}

/// `model-00001-of-00003.gguf` has two brothers.
fn other_parts(path: &Path, parts: u64) -> Vec<PathBuf> {
    /// The most parts that are looked for.
    const MAX_PARTS: u64 = 1000;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let first = format!("-00001-of-{parts:05}.gguf");
    let Some(stem) = name.strip_suffix(&first) else { return Vec::new() };
    let other = |part| path.with_file_name(format!("{stem}-{part:05}-of-{parts:05}.gguf"));
    (2..=parts.min(MAX_PARTS)).map(other).collect()
}

/// From a folder: its configuration with its safetensors files, or its GGUF file.
///
/// # Errors
/// A file cannot be read, or is no model's.
pub fn folder(dir: &Path) -> Result<Found, ModelFileError> {
    let path = dir.join("config.json");
    if !path.is_file()
        && let Some(file) = files_of(dir, "gguf")?.into_iter().next()
    {
        return gguf(&file);
    }
    let Found { mut model, weights } = config(&path)?;
    let files = weight_files(dir)?;
    if files.is_empty() {
        model.notes.push("no safetensors files: the weights are computed from the configuration".to_owned());
        return Ok(Found { model, weights });
    }
    let bytes = files.iter().map(|file| tensor_bytes(file)).sum::<Result<Bytes, ModelFileError>>()?;
    Ok(Found { model, weights: Some(Weights { bytes, source: Source::File }) })
}

fn tensor_bytes(path: &Path) -> Result<Bytes, ModelFileError> {
    let file = open(path)?;
    Ok(safetensors::tensors(BufReader::new(file)).at(path)?.bytes)
}

/// What an index lists, or the one file without a number, or all: a folder may hold the same weights twice.
fn weight_files(dir: &Path) -> Result<Vec<PathBuf>, ModelFileError> {
    let index = dir.join("model.safetensors.index.json");
    if index.is_file() {
        let names = safetensors::indexed_files(&read_capped(&index, MAX_INDEX_BYTES)?);
        let names = names.at(&index)?;
        // A name is a file of this folder and nothing else.
        return Ok(names
            .iter()
            .filter_map(|name| Path::new(name).file_name())
            .map(|name| dir.join(name))
            .collect());
    }
    let single = dir.join("model.safetensors");
    if single.is_file() { Ok(vec![single]) } else { files_of(dir, "safetensors") }
}

fn files_of(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, ModelFileError> {
    let entries = fs::read_dir(dir).at(dir)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().at(dir)?;
    let mut files: Vec<PathBuf> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    Ok(files)
}

fn read_capped(path: &Path, most: u64) -> Result<Vec<u8>, ModelFileError> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    file.take(most).read_to_end(&mut bytes).at(path)?;
    Ok(bytes)
}

/// Opens a file. Nobody waits for a writer where somebody put a FIFO in its place.
fn open(path: &Path) -> Result<File, ModelFileError> {
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path).at(path)?;
    let is_file = file.metadata().at(path)?.is_file();
    if is_file { Ok(file) } else { Err("is no regular file").at(path) }
}

/// A path as it may be printed.
pub(crate) fn shown(path: &Path) -> String {
    ebbtide_core::text::clean(&path.display().to_string())
}
