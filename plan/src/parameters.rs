//! How many weights a model has, from its configuration, for families whose layers are known.
//!
//! Norms, biases and position tables are left out: together they are below 0.1 % of the weights. Of a multimodal
//! model the tower for images is counted by its main matrices, which leaves it up to 7 % low. A file's own tensor
//! table is exact and always preferred.

use ebbtide_core::Bytes;
use serde_json::{Map, Value};

use crate::config::{ConfigError, ConfigFields};
use crate::model::{LayerGroup, Shape};

/// Numbers of weights, and the bits in which each kind is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// In one table of token embeddings.
    pub embedding: u64,
    /// Tables of that size: 1 where input and output share it, 2 otherwise.
    pub tables: u64,
    /// In attention and in layers that every token passes.
    pub body: u64,
    /// In the tower for images of a multimodal model, which is kept in 16 bits.
    pub tower: u64,
    /// In experts, of which a token passes a few.
    pub experts: u64,
    /// Bits of a body weight, in hundredths of a bit, scales included.
    pub body_centibits: u64,
    /// Bits of an expert's weight, in hundredths of a bit, scales included.
    pub expert_centibits: u64,
    /// Bytes of an embedding's element.
    pub element_bytes: u64,
}

impl Parameters {
    /// Weights in all.
    #[must_use]
    pub const fn count(&self) -> u64 {
        let text = self.embedding.saturating_mul(self.tables).saturating_add(self.body);
        text.saturating_add(self.experts).saturating_add(self.tower)
    }

    /// Bytes of one table of embeddings, which are hardly ever quantised.
    #[must_use]
    pub const fn embedding_bytes(&self) -> u64 {
        self.embedding.saturating_mul(self.element_bytes)
    }

    /// Bytes of all weights.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let stored = |count: u64, centibits: u64| {
            u64::try_from(u128::from(count) * u128::from(centibits) / 800).unwrap_or(u64::MAX)
        };
        let embeddings = self.embedding_bytes().saturating_mul(self.tables);
        Bytes(embeddings)
            + Bytes(self.tower.saturating_mul(2))
            + Bytes(stored(self.body, self.body_centibits))
            + Bytes(stored(self.experts, self.expert_centibits))
    }
}

/// Family and matrices of its feed-forward layer: 3 where a gate multiplies, 2 otherwise.
const FAMILIES: [(&str, u64); 38] = [
    ("llama", 3),
    ("mistral", 3),
    ("mistral3", 3),
    ("mixtral", 3),
    ("qwen2", 3),
    ("qwen2_moe", 3),
    ("qwen3", 3),
    ("qwen3_moe", 3),
    ("gemma", 3),
    ("gemma2", 3),
    ("gemma3", 3),
    ("gemma3_text", 3),
    ("gemma4_text", 3),
    ("phi", 2),
    ("phi3", 3),
    ("olmo", 3),
    ("olmo2", 3),
    ("granite", 3),
    ("cohere", 3),
    ("cohere2", 3),
    ("internlm2", 3),
    ("starcoder2", 2),
    ("falcon", 2),
    ("deepseek_v2", 3),
    ("deepseek_v3", 3),
    ("deepseek_v32", 3),
    ("kimi_k2", 3),
    ("glm_moe_dsa", 3),
    ("gpt_oss", 3),
    ("minimax_m2", 3),
    ("llama4_text", 3),
    ("mimo_v2_flash", 3),
    ("step3p7", 3),
    ("qwen3_next", 3),
    ("qwen3_5_text", 3),
    ("qwen3_5_moe_text", 3),
    ("jamba", 3),
    ("nemotron_h", 2),
];

impl Parameters {
    /// Counts the weights; `None` where the family is not in the table above or lacks a size.
    pub(crate) fn from_config(
        fields: &ConfigFields<'_>,
        groups: &[LayerGroup],
        recurrent_layers: u64,
    ) -> Result<Option<Self>, ConfigError> {
        let family = fields.family();
        let Some((_, matrices)) = FAMILIES.iter().find(|(name, _)| *name == family) else { return Ok(None) };
        let sizes = (
            fields.number("hidden_size")?,
            fields.number("vocab_size")?,
            fields.number("num_attention_heads")?,
        );
        let (Some(hidden), Some(vocabulary), Some(heads)) = sizes else { return Ok(None) };
        let Some(width) = width(fields, &family, hidden)? else { return Ok(None) };
        let Some(bits) = Bits::of(fields.object("quantization_config")) else { return Ok(None) };
        let forward = Forward::of(fields, matrices.saturating_mul(hidden), width)?;
        let attention = groups.iter().map(|group| {
            group.layers.saturating_mul(attention(fields, group.shape, hidden, heads).unwrap_or(0))
        });
        let mixers = recurrent_layers.saturating_mul(mixer(fields, hidden)?);
        let tied = fields.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(family == "falcon");
        let float32 = fields.text("torch_dtype").or_else(|| fields.text("dtype")) == Some("float32");
        Ok(Some(Self {
            embedding: vocabulary.saturating_mul(hidden),
            tables: if tied { 1 } else { 2 },
            body: attention.fold(forward.body, u64::saturating_add).saturating_add(mixers),
            tower: tower(fields)?,
            experts: forward.experts,
            body_centibits: if float32 { 3200 } else { bits.body },
            expert_centibits: if float32 { 3200 } else { bits.experts },
            element_bytes: if float32 { 4 } else { 2 },
        }))
    }
}

/// Width of a dense feed-forward layer. Falcon's are four times as wide as the model without saying so, and a model
/// may have experts only.
fn width(fields: &ConfigFields<'_>, family: &str, hidden: u64) -> Result<Option<u64>, ConfigError> {
    let usual = if family == "falcon" { Some(hidden.saturating_mul(4)) } else { None };
    Ok(fields.first(&["intermediate_size", "moe_intermediate_size"])?.or(usual))
}

/// Weights of one recurrent layer, beside its feed-forward part.
fn mixer(fields: &ConfigFields<'_>, hidden: u64) -> Result<u64, ConfigError> {
    let number = |name| fields.number(name).map(Option::unwrap_or_default);
    let (inputs, inner) = if fields.has("linear_num_value_heads") {
        // Queries and keys, values and their gates, and two numbers for each head.
        let keys = product(&[number("linear_num_key_heads")?, number("linear_key_head_dim")?]);
        let heads = number("linear_num_value_heads")?;
        let values = product(&[heads, number("linear_value_head_dim")?]);
        (keys.saturating_add(values).saturating_add(heads).saturating_mul(2), values)
    } else if fields.has("mamba_num_heads") {
        // Input and gate, two projections of each group, and a step for each head.
        let heads = number("mamba_num_heads")?;
        let inner = product(&[heads, number("mamba_head_dim")?]);
        let groups = product(&[number("n_groups")?, number("ssm_state_size")?]);
        (inner.saturating_add(groups).saturating_mul(2).saturating_add(heads), inner)
    } else {
        // Input and gate; what makes the step and the state from the input is a few per cent of them.
        let inner = product(&[hidden, fields.number("mamba_expand")?.unwrap_or(2)]);
        let state = number("mamba_d_state")?.saturating_mul(2);
        (inner.saturating_mul(2).saturating_add(state), inner)
    };
    Ok(hidden.saturating_mul(inputs.saturating_add(inner)))
}

/// Weights of the layers of an image tower: four square matrices of attention and two of feed-forward.
fn tower(fields: &ConfigFields<'_>) -> Result<u64, ConfigError> {
    let number = |name| fields.number_in("vision_config", name);
    let (hidden, layers) = (number("hidden_size")?, number("num_hidden_layers")?);
    let (Some(hidden), Some(layers), Some(width)) = (hidden, layers, number("intermediate_size")?) else {
        return Ok(0);
    };
    let layer = product(&[4, hidden, hidden]).saturating_add(product(&[2, hidden, width]));
    Ok(layers.saturating_mul(layer))
}

/// Weights of one layer's attention.
fn attention(fields: &ConfigFields<'_>, shape: Shape, hidden: u64, heads: u64) -> Result<u64, ConfigError> {
    match shape {
        Shape::Heads { heads: kv, key, value } => {
            let gated = fields.flag("attn_output_gate") || fields.family() == "qwen3_next";
            let query = product(&[hidden, heads, key, if gated { 2 } else { 1 }]);
            let output = product(&[heads, value, hidden]);
            Ok(query.saturating_add(output).saturating_add(product(&[hidden, kv, key.saturating_add(value)])))
        }
        Shape::Latent { rank, rope, index } => {
            let plain = fields.number("qk_nope_head_dim")?.unwrap_or(128);
            let value = fields.number("v_head_dim")?.unwrap_or(128);
            let query_width = heads.saturating_mul(plain.saturating_add(rope));
            let low = fields.number("q_lora_rank")?;
            let query = match low {
                Some(low) => low.saturating_mul(hidden.saturating_add(query_width)),
                None => hidden.saturating_mul(query_width),
            };
            let down = hidden.saturating_mul(rank.saturating_add(rope));
            let up = product(&[rank, heads, plain.saturating_add(value)]);
            let output = product(&[heads, value, hidden]);
            let index_heads = fields.number("index_n_heads")?.unwrap_or(0);
            let indexer = product(&[low.unwrap_or(hidden), index_heads, index])
                .saturating_add(hidden.saturating_mul(index));
            Ok([query, down, up, output, indexer].into_iter().fold(0, u64::saturating_add))
        }
    }
}

/// Weights of all feed-forward layers.
struct Forward {
    body: u64,
    experts: u64,
}

impl Forward {
    /// `unit`: weights of a feed-forward layer one element wide; `width`: of a dense layer.
    fn of(fields: &ConfigFields<'_>, unit: u64, width: u64) -> Result<Self, ConfigError> {
        let experts = fields.first(&["num_experts", "num_local_experts", "n_routed_experts"])?.unwrap_or(0);
        let Layers { dense, sparse } = Layers::of(fields, experts > 1)?;
        let expert_width = fields.number("moe_intermediate_size")?.unwrap_or(width);
        let dense_width = fields.number("intermediate_size_mlp")?.unwrap_or(width);
        let dense = product(&[dense, unit, dense_width]);
        let shared = product(&[sparse, unit, shared_width(fields, width, expert_width)?]);
        let router = product(&[sparse, experts, fields.number("hidden_size")?.unwrap_or(0)]);
        Ok(Self {
            body: dense.saturating_add(shared).saturating_add(router),
            experts: product(&[sparse, experts, unit, expert_width]),
        })
    }
}

/// Feed-forward layers without and with experts.
struct Layers {
    dense: u64,
    sparse: u64,
}

impl Layers {
    /// All layers have experts, those behind the first few, every so-manieth, or those that a list names. In
    /// Nemotron-H feed-forward layers are layers of their own.
    fn of(fields: &ConfigFields<'_>, experts: bool) -> Result<Self, ConfigError> {
        let layers = fields.layers()?;
        if let Some(pattern) = fields.text("hybrid_override_pattern") {
            let count = |letter| pattern.chars().filter(|&c| c == letter).count() as u64;
            return Ok(Self { dense: count('-'), sparse: count('E') });
        }
        if !experts {
            return Ok(Self { dense: layers, sparse: 0 });
        }
        let sparse = if let Some(list) = fields.list("moe_layer_freq") {
            list.iter().filter(|value| value.as_u64() != Some(0)).count() as u64
        } else {
            let first = fields.number("first_k_dense_replace")?.unwrap_or(0);
            let steps = ["decoder_sparse_step", "interleave_moe_layer_step", "expert_layer_period"];
            layers.saturating_sub(first) / fields.first(&steps)?.unwrap_or(1).max(1)
        };
        let sparse = sparse.min(layers);
        Ok(Self { dense: layers - sparse, sparse })
    }
}

/// Width of what every token passes beside its experts.
fn shared_width(fields: &ConfigFields<'_>, width: u64, expert_width: u64) -> Result<u64, ConfigError> {
    let names =
        ["shared_expert_intermediate_size", "share_expert_dim", "moe_shared_expert_intermediate_size"];
    if let Some(stated) = fields.first(&names)? {
        return Ok(stated);
    }
    // Gemma 4 keeps its dense layer beside the experts; Llama 4 has one shared expert.
    if fields.flag("enable_moe_block") || fields.has("interleave_moe_layer_step") {
        return Ok(width);
    }
    Ok(fields.first(&["n_shared_experts", "num_shared_experts"])?.unwrap_or(0).saturating_mul(expert_width))
}

/// Bits of a weight in hundredths, scales included.
struct Bits {
    body: u64,
    experts: u64,
}

impl Bits {
    /// `None` for a quantisation that is not known.
    fn of(quantisation: Option<&Map<String, Value>>) -> Option<Self> {
        let Some(config) = quantisation else { return Some(Self { body: 1600, experts: 1600 }) };
        let even = |centibits| Some(Self { body: centibits, experts: centibits });
        match config.get("quant_method")?.as_str()? {
            "fp8" | "fbgemm_fp8" => even(800),
            // Only the experts, 32 four-bit elements to an 8-bit scale.
            "mxfp4" => Some(Self { body: 1600, experts: 425 }),
            "gptq" | "awq" => even(grouped(config.get("bits")?.as_u64()?, config.get("group_size"))?),
            "compressed-tensors" => {
                let groups = config.get("config_groups")?.as_object()?;
                let weights = groups.values().next()?.get("weights")?;
                even(grouped(weights.get("num_bits")?.as_u64()?, weights.get("group_size"))?)
            }
            _ => None,
        }
    }
}

/// A 16-bit scale for each group of weights; per-channel scales are lost in rounding.
fn grouped(bits: u64, group: Option<&Value>) -> Option<u64> {
    let scale = group.and_then(Value::as_u64).filter(|&g| g > 0).map_or(0, |g| 1600 / g);
    (1..=16).contains(&bits).then_some(bits * 100 + scale)
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, &factor| product.saturating_mul(factor))
}
