//! Models in GGUF, the file format of llama.cpp.

mod metadata;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use self::metadata::{Entry, Head, Value};
use super::encoding::Encoding;
use super::source::Source;
use super::tokenizer::{BytePairs, Split, Tokenizer, Vocabulary};
use super::{Geometry, Loaded, ModelError, RopeStyle, Tensor, Weights};

/// A GGUF file, open.
#[derive(Debug)]
struct Gguf {
    geometry: Geometry,
    source: Source,
    tensors: HashMap<String, Entry>,
    data: u64,
}

/// Opens the model at `path`.
pub(super) fn open(path: &Path) -> Result<Loaded, ModelError> {
    let file = File::open(path).map_err(|source| ModelError::read(path, source))?;
    let head =
        metadata::read(BufReader::new(&file)).map_err(|reason| ModelError::malformed(path, &reason))?;
    let facts = Facts { path, head: &head };
    let geometry = facts.geometry()?;
    let tokenizer = facts.tokenizer()?;
    let source = Source::file(file).map_err(|source| ModelError::read(path, source))?;
    let Head { tensors, data, .. } = head;
    Ok(Loaded { weights: Box::new(Gguf { geometry, source, tensors, data }), tokenizer })
}

impl Weights for Gguf {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, tensor: Tensor, out: &mut Vec<f32>) -> Result<(), ModelError> {
        let name = name_of(tensor);
        let entry = self.tensors.get(&name).ok_or(ModelError::Missing(tensor))?;
        let encoding = Encoding::of_ggml(entry.kind)
            .ok_or_else(|| ModelError::Encoding { tensor, found: format!("type {} of ggml", entry.kind) })?;
        let (rows, columns) = self.geometry.shape(tensor);
        if (entry.rows, entry.columns) != (rows as u64, columns as u64) {
            let found = entry.rows.saturating_mul(entry.columns);
            return Err(ModelError::size(tensor, rows * columns, found));
        }
        let bytes =
            self.source.tensor(tensor, encoding, self.data.saturating_add(entry.offset), (rows, columns))?;
        encoding.decode(&bytes, out);
        Ok(())
    }
}

/// The name of a tensor (the specification's list of standardised names).
fn name_of(tensor: Tensor) -> String {
    let (layer, part) = match tensor {
        Tensor::Embedding => return "token_embd.weight".into(),
        Tensor::FinalNorm => return "output_norm.weight".into(),
        Tensor::Output => return "output.weight".into(),
        Tensor::AttentionNorm(layer) => (layer, "attn_norm"),
        Tensor::Query(layer) => (layer, "attn_q"),
        Tensor::Key(layer) => (layer, "attn_k"),
        Tensor::Value(layer) => (layer, "attn_v"),
        Tensor::AttentionOut(layer) => (layer, "attn_output"),
        Tensor::FfnNorm(layer) => (layer, "ffn_norm"),
        Tensor::Gate(layer) => (layer, "ffn_gate"),
        Tensor::Up(layer) => (layer, "ffn_up"),
        Tensor::Down(layer) => (layer, "ffn_down"),
    };
    format!("blk.{layer}.{part}.weight")
}

/// What the head says of the model.
struct Facts<'a> {
    path: &'a Path,
    head: &'a Head,
}

impl Facts<'_> {
    fn geometry(&self) -> Result<Geometry, ModelError> {
        let architecture = self.value("general.architecture").and_then(Value::text);
        if architecture != Some("llama") {
            let found = architecture.unwrap_or("none").to_owned();
            return Err(ModelError::Architecture { path: self.path.into(), found });
        }
        if self.value("llama.rope.scaling.type").and_then(Value::text).is_some_and(|kind| kind != "none") {
            return Err(self.lacks("rotary embedding without scaling"));
        }
        if self.head.tensors.keys().any(|name| name.ends_with(".bias")) {
            return Err(self.lacks("matrices without biases"));
        }
        if self.head.tensors.contains_key("rope_freqs.weight") {
            return Err(self.lacks("rotary embedding without scaling"));
        }
        let (hidden, heads) =
            (self.size("llama.embedding_length")?, self.size("llama.attention.head_count")?);
        let head_dim = self.size_or("llama.attention.key_length", hidden / heads.max(1))?;
        if self.size_or("llama.rope.dimension_count", head_dim)? != head_dim {
            return Err(self.lacks("rotary embedding over whole heads"));
        }
        let embedding = self.head.tensors.get(&name_of(Tensor::Embedding));
        let geometry = Geometry {
            hidden,
            heads,
            head_dim,
            layers: self.size("llama.block_count")?,
            kv_heads: self.size_or("llama.attention.head_count_kv", heads)?,
            ffn: self.size("llama.feed_forward_length")?,
            vocab: embedding.map_or(0, |entry| usize::try_from(entry.rows).unwrap_or(usize::MAX)),
            context: self.size("llama.context_length")?,
            rope_base: self.real_or("llama.rope.freq_base", 10_000.0)?,
            rope_style: RopeStyle::Interleaved,
            rms_eps: self.real_or("llama.attention.layer_norm_rms_epsilon", 1e-5)?,
            tied: !self.head.tensors.contains_key(&name_of(Tensor::Output)),
        };
        geometry.check()?;
        Ok(geometry)
    }

    fn tokenizer(&self) -> Result<Box<dyn Tokenizer>, ModelError> {
        if self.value("tokenizer.ggml.model").and_then(Value::text) != Some("gpt2") {
            return Err(self.lacks("a tokenizer of byte pairs (tokenizer.ggml.model = gpt2)"));
        }
        let split = match self.value("tokenizer.ggml.pre").and_then(Value::text) {
            Some("smollm") => Split::SingleDigits,
            Some("gpt-2" | "default") | None => Split::Gpt2,
            Some(_) => return Err(self.lacks("a splitter of text that is known (gpt-2 or smollm)")),
        };
        let kinds = self.value("tokenizer.ggml.token_type").and_then(Value::list).unwrap_or_default();
        let special = |index: usize| kinds.get(index).and_then(Value::whole) == Some(CONTROL);
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let token = |name| self.value(name).and_then(Value::whole).and_then(|id| u32::try_from(id).ok());
        let vocabulary = Vocabulary {
            special: (0..tokens.len()).filter(|index| special(*index)).collect(),
            tokens,
            merges: self.texts("tokenizer.ggml.merges")?,
            begin: token("tokenizer.ggml.bos_token_id"),
            end: token("tokenizer.ggml.eos_token_id"),
        };
        let pairs =
            BytePairs::new(&vocabulary, split).map_err(|reason| ModelError::malformed(self.path, &reason))?;
        Ok(Box::new(pairs))
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.head.values.get(name)
    }

    fn size(&self, name: &'static str) -> Result<usize, ModelError> {
        let number = self.value(name).and_then(Value::whole).and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.lacks(name))
    }

    fn size_or(&self, name: &'static str, otherwise: usize) -> Result<usize, ModelError> {
        if self.value(name).is_some() { self.size(name) } else { Ok(otherwise) }
    }

    fn real_or(&self, name: &'static str, otherwise: f32) -> Result<f32, ModelError> {
        let Some(value) = self.value(name) else { return Ok(otherwise) };
        value.real().map(|number| number as f32).ok_or_else(|| self.lacks(name))
    }

    fn texts(&self, name: &'static str) -> Result<Vec<&str>, ModelError> {
        let values = self.value(name).and_then(Value::list).ok_or_else(|| self.lacks(name))?;
        values.iter().map(|value| value.text().ok_or_else(|| self.lacks(name))).collect()
    }

    fn lacks(&self, what: &'static str) -> ModelError {
        ModelError::Lacks { path: self.path.into(), what }
    }
}

/// The type of a token that stands for no text (llama.h, `LLAMA_TOKEN_TYPE_CONTROL`).
const CONTROL: u64 = 3;
