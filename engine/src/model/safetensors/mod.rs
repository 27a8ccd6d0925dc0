//! Models in safetensors beside a config.json, as Hugging Face publishes them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::encoding::Encoding;
use super::source::Source;
use super::tokenizer::{self, Bytes, Tokenizer};
use super::{Geometry, Loaded, ModelError, RopeStyle, Tensor, Weights};

/// Most bytes of the header, of config.json and of tokenizer.json; those of large models take a few MiB.
const MAX_TEXT: u64 = 64 << 20;

/// A safetensors file, open.
#[derive(Debug)]
pub(super) struct Safetensors {
    geometry: Geometry,
    source: Source,
    tensors: HashMap<String, Entry>,
    data: u64,
}

/// What the header says of a tensor.
#[derive(Debug, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// Opens the model whose weights are at `path`; config.json and tokenizer.json lie beside it.
pub(super) fn open(path: &Path) -> Result<Loaded, ModelError> {
    let beside = |name: &str| path.with_file_name(name);
    let config = beside("config.json");
    let config = Config::parse(&text(&config)?).map_err(|reason| ModelError::malformed(&config, &reason))?;
    let geometry =
        config.geometry().map_err(|what| ModelError::Lacks { path: beside("config.json"), what })?;
    let tokenizer = tokenizer_of(&config, &beside("tokenizer.json"))?;
    let file = File::open(path).and_then(Source::file).map_err(|source| ModelError::read(path, source))?;
    let weights = Safetensors::new(file, geometry).map_err(|reason| ModelError::malformed(path, &reason))?;
    Ok(Loaded { weights: Box::new(weights), tokenizer })
}

impl Safetensors {
    /// The file in `source`, which holds a model of `geometry`.
    pub(super) fn new(source: Source, geometry: Geometry) -> Result<Self, HeaderError> {
        geometry.check().map_err(HeaderError::Geometry)?;
        let length: [u8; 8] = source.read(0, 8)?.try_into().map_err(|_| HeaderError::TooLong)?;
        let length = u64::from_le_bytes(length);
        let bytes = usize::try_from(length.min(MAX_TEXT + 1)).map_err(|_| HeaderError::TooLong)?;
        if length > MAX_TEXT {
            return Err(HeaderError::TooLong);
        }
        let mut header: HashMap<String, serde_json::Value> = serde_json::from_slice(&source.read(8, bytes)?)?;
        header.remove("__metadata__");
        let tensors = header.into_iter().map(|(name, entry)| Ok((name, serde_json::from_value(entry)?)));
        let tensors = tensors.collect::<Result<HashMap<_, _>, HeaderError>>()?;
        let data = 8 + length;
        check_places(&tensors, source.length() - data)?;
        Ok(Self { geometry, source, tensors, data })
    }
}

/// Tensors lie within the `length` bytes behind the header, and none begins before another ends.
fn check_places(tensors: &HashMap<String, Entry>, length: u64) -> Result<(), HeaderError> {
    let mut places: Vec<(u64, u64)> = tensors.values().map(|entry| entry.data_offsets).collect();
    places.sort_unstable();
    let ends = [0].into_iter().chain(places.iter().map(|(_, end)| *end));
    if ends.zip(&places).any(|(before, (begin, end))| *begin < before || end < begin || *end > length) {
        return Err(HeaderError::Places);
    }
    Ok(())
}

/// Why a header cannot be read; the words are put behind the file's name.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("it cannot be read or is cut short")]
    Read(#[from] std::io::Error),
    #[error("its header is no JSON of safetensors")]
    Json(#[from] serde_json::Error),
    #[error("its header is longer than 64 MiB, which no model's is")]
    TooLong,
    #[error("its tensors overlap or reach beyond its end; it is cut short or damaged")]
    Places,
    #[error("it does not fit its config.json")]
    Geometry(#[source] ModelError),
}

impl Weights for Safetensors {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, tensor: Tensor, out: &mut Vec<f32>) -> Result<(), ModelError> {
        let entry = self.tensors.get(&name_of(tensor)).ok_or(ModelError::Missing(tensor))?;
        let encoding = Encoding::of_safetensors(&entry.dtype)
            .ok_or_else(|| ModelError::Encoding { tensor, found: entry.dtype.clone() })?;
        let (rows, columns) = self.geometry.shape(tensor);
        let expected: &[usize] = if rows == 1 { &[columns] } else { &[rows, columns] };
        if entry.shape != expected {
            let found = entry.shape.iter().fold(1u64, |product, size| product.saturating_mul(*size as u64));
            return Err(ModelError::size(tensor, rows * columns, found));
        }
        let (begin, end) = entry.data_offsets;
        let bytes = encoding.bytes(rows * columns, columns).map_or(0, |bytes| bytes as u64);
        if end - begin != bytes {
            return Err(ModelError::size(
                tensor,
                rows * columns,
                (end - begin) * (rows * columns) as u64 / bytes.max(1),
            ));
        }
        let bytes = self.source.tensor(tensor, encoding, self.data.saturating_add(begin), (rows, columns))?;
        encoding.decode(&bytes, out);
        Ok(())
    }
}

/// The name of a tensor in Hugging Face's Llama.
fn name_of(tensor: Tensor) -> String {
    let (layer, part) = match tensor {
        Tensor::Embedding => return "model.embed_tokens.weight".into(),
        Tensor::FinalNorm => return "model.norm.weight".into(),
        Tensor::Output => return "lm_head.weight".into(),
        Tensor::AttentionNorm(layer) => (layer, "input_layernorm"),
        Tensor::Query(layer) => (layer, "self_attn.q_proj"),
        Tensor::Key(layer) => (layer, "self_attn.k_proj"),
        Tensor::Value(layer) => (layer, "self_attn.v_proj"),
        Tensor::AttentionOut(layer) => (layer, "self_attn.o_proj"),
        Tensor::FfnNorm(layer) => (layer, "post_attention_layernorm"),
        Tensor::Gate(layer) => (layer, "mlp.gate_proj"),
        Tensor::Up(layer) => (layer, "mlp.up_proj"),
        Tensor::Down(layer) => (layer, "mlp.down_proj"),
    };
    format!("model.layers.{layer}.{part}.weight")
}

/// What config.json says, as far as it matters.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    rope_theta: Option<f32>,
    rope_scaling: Option<serde_json::Value>,
    rope_parameters: Option<RopeParameters>,
    hidden_act: Option<String>,
    rms_norm_eps: Option<f32>,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    tokenizer: Option<String>,
}

/// Where newer files say how positions turn.
#[derive(Debug, Deserialize)]
struct RopeParameters {
    rope_theta: Option<f32>,
    rope_type: Option<String>,
}

impl Config {
    pub(super) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// The sizes, or what the model has that this engine lacks.
    pub(super) fn geometry(&self) -> Result<Geometry, &'static str> {
        if self.model_type != "llama" {
            return Err("the Llama architecture (model_type = llama)");
        }
        let rope = self.rope_parameters.as_ref();
        let rope_type = rope.and_then(|rope| rope.rope_type.as_deref()).unwrap_or("default");
        if self.rope_scaling.is_some() || rope_type != "default" {
            return Err("rotary embedding without scaling");
        }
        if self.attention_bias || self.mlp_bias {
            return Err("matrices without biases");
        }
        if self.hidden_act.as_deref().is_some_and(|name| name != "silu") {
            return Err("SwiGLU (hidden_act = silu)");
        }
        let heads = self.num_attention_heads;
        Ok(Geometry {
            hidden: self.hidden_size,
            layers: self.num_hidden_layers,
            heads,
            kv_heads: self.num_key_value_heads.unwrap_or(heads),
            head_dim: self.head_dim.unwrap_or(self.hidden_size / heads.max(1)),
            ffn: self.intermediate_size,
            vocab: self.vocab_size,
            context: self.max_position_embeddings,
            rope_base: self.rope_theta.or(rope.and_then(|rope| rope.rope_theta)).unwrap_or(10_000.0),
            rope_style: RopeStyle::HalfSplit,
            rms_eps: self.rms_norm_eps.unwrap_or(1e-6),
            tied: self.tie_word_embeddings,
        })
    }
}

fn tokenizer_of(config: &Config, path: &Path) -> Result<Box<dyn Tokenizer>, ModelError> {
    if config.tokenizer.as_deref() == Some("bytes") {
        return Ok(Box::new(Bytes));
    }
    let pairs =
        tokenizer::hugging_face(&text(path)?).map_err(|reason| ModelError::malformed(path, &reason))?;
    Ok(Box::new(pairs))
}

/// The file at `path`, which is a text of some MiB at most.
fn text(path: &Path) -> Result<Vec<u8>, ModelError> {
    let length = fs::metadata(path).map_err(|source| ModelError::read(path, source))?.len();
    if length > MAX_TEXT {
        return Err(ModelError::Lacks { path: PathBuf::from(path), what: "a size below 64 MiB" });
    }
    fs::read(path).map_err(|source| ModelError::read(path, source))
}
