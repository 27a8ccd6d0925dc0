//! A model from the `config.json` that Hugging Face repositories carry.
//!
//! The file is a stranger's: its size, its nesting and each number in it are bounded, and what does not add up is
//! refused by name. Sources of the fields: the configuration classes of `transformers` and the cache specifications
//! of vLLM, SGLang and llama.cpp.

mod fields;
mod layers;
mod shapes;
mod state;

use serde_json::Value;

use crate::kv_type::KvType;
use crate::model::{Cross, LayerGroup, Model, Reach, Shape};
use crate::parameters::Parameters;
use fields::Fields;
use layers::Role;

/// The most bytes of a `config.json` that are read; the largest known has 60 KiB.
pub const MAX_CONFIG_BYTES: usize = 4 << 20;

/// Why a model cannot be planned from its file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// More than [`MAX_CONFIG_BYTES`].
    #[error(
        "the file has {0} bytes, and a model's configuration at most {MAX_CONFIG_BYTES}: is it the right file?"
    )]
    TooLarge(usize),
    /// No JSON object.
    #[error("not a JSON object ({0}): name the config.json that lies beside the weights")]
    NotJson(String),
    /// A field without which nothing can be computed.
    #[error("{0} is missing: this is not a language model's configuration, or an incomplete one")]
    Missing(&'static str),
    /// A field with a value that no model has.
    #[error("{field} = {value} is outside of what models have: the file is damaged")]
    OutOfRange {
        /// The field.
        field: String,
        /// Its value, cleaned.
        value: String,
    },
    /// A cache that is not modelled.
    #[error("{0} is not modelled: measure the engine instead")]
    Unsupported(String),
}

impl Model {
    /// Reads a Hugging Face `config.json`.
    ///
    /// # Errors
    /// [`ConfigError`] where the file is damaged or describes a cache that is not modelled.
    pub fn from_config(json: &[u8]) -> Result<Self, ConfigError> {
        if json.len() > MAX_CONFIG_BYTES {
            return Err(ConfigError::TooLarge(json.len()));
        }
        // Python writes Infinity and NaN, which are no JSON; no field that is read here has them.
        let strict = fields::strict(json);
        let value: Value =
            serde_json::from_slice(&strict).map_err(|error| ConfigError::NotJson(error.to_string()))?;
        Self::from_config_value(&value)
    }

    pub(crate) fn from_config_value(value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::Object(object) => from_fields(&Fields::of(object)),
            _ => Err(ConfigError::NotJson("another kind of value".to_owned())),
        }
    }
}

fn from_fields(fields: &Fields<'_>) -> Result<Model, ConfigError> {
    if fields.has("compress_ratios") {
        return Err(ConfigError::Unsupported(
            "attention over compressed states (compress_ratios)".to_owned(),
        ));
    }
    let roles = layers::roles(fields)?;
    let mut notes = Vec::new();
    if let Some(shared) = layers::shared(fields)? {
        notes.push(format!("{shared} layers share the cache of earlier ones"));
    }
    let groups = groups(fields, &roles)?;
    let recurrent = state::recurrent(fields, &roles)?;
    let parameters = Parameters::from_config(fields, &groups, recurrent.map_or(0, |r| r.layers))?;
    if fields.is_nested() && parameters.is_some() {
        notes.push("the weights of a multimodal model are estimated low, by up to 7 %".to_owned());
    }
    Ok(Model {
        family: fields.family(),
        layers: roles.len() as u64,
        recurrent,
        cross: cross(fields, &mut notes)?,
        draft_layers: fields.first(&["num_nextn_predict_layers", "mtp_num_hidden_layers"])?.unwrap_or(0),
        max_context: fields.first(&["max_position_embeddings", "n_positions", "max_target_positions"])?,
        vocabulary: fields.number("vocab_size")?,
        kv_type: kv_type(fields),
        experts: fields.first(&["num_experts", "num_local_experts", "n_routed_experts"])?.unwrap_or(0) > 1,
        parameters,
        groups,
        notes,
    })
}

/// Layers of one role have one shape and reach; models are made that way.
fn groups(fields: &Fields<'_>, roles: &[Role]) -> Result<Vec<LayerGroup>, ConfigError> {
    let owned = &roles[..roles.len() - layers::shared(fields)?.unwrap_or(0) as usize];
    let mut groups = Vec::new();
    for role in [Role::Full, Role::Window, Role::Chunk] {
        let layers = owned.iter().filter(|&&r| r == role).count() as u64;
        if layers == 0 {
            continue;
        }
        let reach = match role {
            Role::Window => Reach::Window(window(fields)?),
            Role::Chunk => Reach::Chunk(
                fields.number("attention_chunk_size")?.ok_or(ConfigError::Missing("attention_chunk_size"))?,
            ),
            _ => Reach::Full,
        };
        groups.push(LayerGroup { layers, shape: shapes::shape(fields, role)?, reach });
    }
    Ok(groups)
}

fn window(fields: &Fields<'_>) -> Result<u64, ConfigError> {
    fields.first(&["sliding_window", "sliding_window_size"])?.ok_or(ConfigError::Missing("sliding_window"))
}

fn cross(fields: &Fields<'_>, notes: &mut Vec<String>) -> Result<Option<Cross>, ConfigError> {
    if !fields.flag("is_encoder_decoder") {
        return Ok(None);
    }
    let Some(positions) = fields.number("max_source_positions")? else {
        notes.push("the cache over the encoder's output depends on its length and is not counted".to_owned());
        return Ok(None);
    };
    let layers = fields.layers()?;
    let Shape::Heads { heads, key, .. } = shapes::shape(fields, Role::Full)? else { return Ok(None) };
    Ok(Some(Cross { positions, layers, heads, dim: key }))
}

/// The cache follows the model's own type, unless its quantisation brings scales for an 8-bit cache.
fn kv_type(fields: &Fields<'_>) -> KvType {
    let scheme = fields.object("quantization_config").and_then(|q| q.get("kv_cache_scheme"));
    if scheme.and_then(|s| s.get("num_bits")).and_then(Value::as_u64) == Some(8) {
        return KvType::Fp8;
    }
    match fields.text("torch_dtype").or_else(|| fields.text("dtype")) {
        Some("float32") => KvType::F32,
        _ => KvType::F16,
    }
}

pub(crate) use fields::Fields as ConfigFields;
