//! From metadata to layers, as llama.cpp reads its keys.

use super::{Header, Value};
use crate::config::ConfigError;
use crate::kv_type::KvType;
use crate::model::{LayerGroup, Model, Reach, Recurrent, Shape};

/// The most layers of a model.
const MAX_LAYERS: u64 = 4096;
/// The largest number in any other key.
const MAX_NUMBER: u64 = 1 << 32;

/// Architectures whose files leave out how often a layer is global: every so-manieth.
const PATTERNS: [(&str, u64); 5] =
    [("gemma2", 2), ("gemma3", 6), ("gemma3n", 5), ("cohere2", 4), ("gpt-oss", 2)];
/// Llama 4's chunk, and how often a layer is global; both are constants of llama.cpp.
const LLAMA4: (u64, u64) = (8192, 4);

/// The keys of one architecture.
struct Keys<'h> {
    header: &'h Header,
    prefix: &'h str,
}

pub(super) fn model(header: &Header) -> Result<Model, ConfigError> {
    let keys = Keys { header, prefix: header.architecture()? };
    let blocks = keys.need("block_count")?;
    let draft_layers = keys.number("nextn_predict_layers")?.unwrap_or(0);
    if blocks > MAX_LAYERS || draft_layers >= blocks {
        return Err(keys.out_of_range("block_count", blocks));
    }
    let layers = blocks - draft_layers;
    let mut notes = Vec::new();
    let per_layer = (0..layers).map(|layer| keys.layer(layer, layers)).collect::<Result<Vec<_>, _>>()?;
    if keys.number("attention.sliding_window")?.unwrap_or(0) > 0 && keys.pattern()?.is_none() {
        notes.push("the file's window is counted in full: llama.cpp knows no pattern for it".to_owned());
    }
    let vocabulary = match header.value("tokenizer.ggml.tokens") {
        Some(&Value::Passed(tokens)) => Some(tokens),
        _ => keys.number("vocab_size")?,
    };
    Ok(Model {
        family: keys.prefix.to_owned(),
        layers,
        groups: grouped(&per_layer),
        recurrent: keys.recurrent(&per_layer)?,
        cross: None,
        draft_layers,
        max_context: keys.number("context_length")?,
        vocabulary,
        kv_type: KvType::F16,
        experts: keys.number("expert_count")?.unwrap_or(0) > 1,
        parameters: None,
        notes,
    })
}

/// What a layer keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Cache(Shape, Reach),
    State,
    Nothing,
}

/// Equal layers together, in the order of their first.
fn grouped(layers: &[Kept]) -> Vec<LayerGroup> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    for kept in layers {
        let Kept::Cache(shape, reach) = *kept else { continue };
        match groups.iter_mut().find(|group| group.shape == shape && group.reach == reach) {
            Some(group) => group.layers += 1,
            None => groups.push(LayerGroup { layers: 1, shape, reach }),
        }
    }
    groups
}

impl Keys<'_> {
    fn raw(&self, key: &str) -> Option<&Value> {
        self.header.value(&format!("{}.{key}", self.prefix))
    }

    fn number(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        match self.raw(key) {
            Some(&Value::Number(n)) if n <= MAX_NUMBER => Ok(Some(n)),
            Some(&Value::Number(n)) => Err(self.out_of_range(key, n)),
            _ => Ok(None),
        }
    }

    fn need(&self, key: &'static str) -> Result<u64, ConfigError> {
        match self.number(key)? {
            None => Err(ConfigError::Missing(key)),
            Some(0) => Err(self.out_of_range(key, 0)),
            Some(n) => Ok(n),
        }
    }

    /// The number for a layer, of a key that holds one for all or one for each.
    fn at(&self, key: &str, layer: u64) -> Result<Option<u64>, ConfigError> {
        match self.raw(key) {
            Some(Value::List(list)) => match list.get(layer as usize) {
                Some(&n) if n <= MAX_NUMBER => Ok(Some(n)),
                Some(&n) => Err(self.out_of_range(key, n)),
                None => Err(self.out_of_range(key, list.len() as u64)),
            },
            _ => self.number(key),
        }
    }

    fn out_of_range(&self, key: &str, value: u64) -> ConfigError {
        ConfigError::OutOfRange { field: format!("{}.{key}", self.prefix), value: value.to_string() }
    }

    fn layer(&self, layer: u64, layers: u64) -> Result<Kept, ConfigError> {
        let shared = self.number("attention.shared_kv_layers")?.unwrap_or(0);
        if layer >= layers.saturating_sub(shared) {
            return Ok(Kept::Nothing);
        }
        let heads = match self.at("attention.head_count_kv", layer)? {
            Some(heads) => heads,
            None => {
                self.at("attention.head_count", layer)?.ok_or(ConfigError::Missing("attention.head_count"))?
            }
        };
        if self.is_recurrent(layer, heads)? {
            return Ok(Kept::State);
        }
        if heads == 0 {
            return Ok(Kept::Nothing);
        }
        let reach = self.reach(layer)?;
        Ok(Kept::Cache(self.shape(layer, heads, reach)?, reach))
    }

    /// A layer that a list or an interval names, or one without KV heads that is not a bare feed-forward layer.
    fn is_recurrent(&self, layer: u64, heads: u64) -> Result<bool, ConfigError> {
        if let Some(named) = self.at("attention.recurrent_layers", layer)? {
            return Ok(named != 0);
        }
        if self.raw("ssm.state_size").is_none() && self.raw("shortconv.l_cache").is_none() {
            return Ok(false);
        }
        let default =
            (self.prefix.starts_with("qwen3next") || self.prefix.starts_with("qwen35")).then_some(4);
        if let Some(interval) = self.number("full_attention_interval")?.or(default).filter(|&n| n > 0) {
            return Ok(!(layer + 1).is_multiple_of(interval));
        }
        let bare = match self.raw("feed_forward_length") {
            Some(Value::List(list)) if list.contains(&0) => list.get(layer as usize).is_some_and(|&n| n > 0),
            _ => false,
        };
        Ok(heads == 0 && !bare)
    }

    /// How often a layer is global, where the file or llama.cpp says so.
    fn pattern(&self) -> Result<Option<u64>, ConfigError> {
        let known = PATTERNS.iter().find(|(name, _)| *name == self.prefix).map(|(_, every)| *every);
        match self.raw("attention.sliding_window_pattern") {
            // A list says it for each layer.
            Some(Value::List(_)) => Ok(Some(0)),
            _ => Ok(self.number("attention.sliding_window_pattern")?.filter(|&n| n > 0).or(known)),
        }
    }

    fn reach(&self, layer: u64) -> Result<Reach, ConfigError> {
        if self.prefix == "llama4" {
            let (chunk, every) = LLAMA4;
            return Ok(if (layer + 1).is_multiple_of(every) { Reach::Full } else { Reach::Chunk(chunk) });
        }
        let window = self.number("attention.sliding_window")?.unwrap_or(0);
        let (true, Some(every)) = (window > 0, self.pattern()?) else { return Ok(Reach::Full) };
        let windowed = match every {
            0 => self.at("attention.sliding_window_pattern", layer)? != Some(0),
            _ => !(layer + 1).is_multiple_of(every),
        };
        Ok(if windowed { Reach::Window(window) } else { Reach::Full })
    }

    fn shape(&self, layer: u64, heads: u64, reach: Reach) -> Result<Shape, ConfigError> {
        let rank = self.number("attention.kv_lora_rank")?;
        // Files from before llama.cpp compressed the cache lack this key, and it keeps all their heads.
        if let Some(rank) = rank.filter(|_| self.raw("attention.key_length_mla").is_some()) {
            let rope = self.number("rope.dimension_count")?.unwrap_or(64);
            return Ok(Shape::Latent { rank, rope, index: 0 });
        }
        let windowed = matches!(reach, Reach::Window(_));
        let length = |key: &str| -> Result<Option<u64>, ConfigError> {
            let own = if windowed { self.number(&format!("{key}_swa"))? } else { None };
            own.map_or_else(|| self.number(key), |n| Ok(Some(n)))
        };
        let key = match length("attention.key_length")? {
            Some(key) => key,
            None => {
                let query = self.at("attention.head_count", layer)?.filter(|&n| n > 0);
                self.need("embedding_length")? / query.ok_or(ConfigError::Missing("attention.head_count"))?
            }
        };
        Ok(Shape::Heads { heads, key, value: length("attention.value_length")?.unwrap_or(key) })
    }

    /// llama.cpp keeps state and convolution window in 32 bits.
    fn recurrent(&self, layers: &[Kept]) -> Result<Option<Recurrent>, ConfigError> {
        let layers = layers.iter().filter(|&&kept| kept == Kept::State).count() as u64;
        if layers == 0 {
            return Ok(None);
        }
        let (state, convolution) = if let Some(kernel) = self.number("shortconv.l_cache")? {
            (0, kernel.saturating_sub(1).saturating_mul(self.need("embedding_length")?))
        } else {
            let (inner, state) = (self.need("ssm.inner_size")?, self.need("ssm.state_size")?);
            let groups = self.number("ssm.group_count")?.unwrap_or(0);
            let channels = inner.saturating_add(groups.saturating_mul(state).saturating_mul(2));
            let kernel = self.number("ssm.conv_kernel")?.unwrap_or(4);
            (inner.saturating_mul(state), channels.saturating_mul(kernel.saturating_sub(1)))
        };
        Ok(Some(Recurrent { layers, state, convolution, state_bytes: 4, convolution_bytes: 4 }))
    }
}
