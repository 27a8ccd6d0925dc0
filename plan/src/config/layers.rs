//! Which layer keeps what: the many ways in which configurations say so.

use ebbtide_core::text;
use serde_json::Value;

use super::ConfigError;
use super::fields::{Fields, out_of_range};

/// What a layer keeps of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Keys and values of every token.
    Full,
    /// Keys and values of a sliding window.
    Window,
    /// Keys and values of the current chunk.
    Chunk,
    /// A recurrent state.
    State,
    /// Nothing.
    None,
}

/// Word in `layer_types`, and role.
const TYPES: [(&str, Role); 12] = [
    ("full_attention", Role::Full),
    ("global_attention", Role::Full),
    ("attention", Role::Full),
    ("hybrid", Role::Full),
    ("sliding_attention", Role::Window),
    ("local_attention", Role::Window),
    ("chunked_attention", Role::Chunk),
    ("linear_attention", Role::State),
    ("mamba", Role::State),
    ("mamba2", Role::State),
    ("recurrent", Role::State),
    ("conv", Role::State),
];

/// Families whose configuration leaves out how often a layer is global: every so-manieth.
const PATTERNS: [(&str, u64); 5] =
    [("gemma2", 2), ("gemma3", 6), ("gemma3_text", 6), ("cohere2", 4), ("gpt_oss", 2)];

/// The role of each layer, in order.
pub(super) fn roles(fields: &Fields<'_>) -> Result<Vec<Role>, ConfigError> {
    let layers = fields.layers()?;
    let stated = [listed, patterned, numbered, kimi, periodic, chunked];
    for reader in stated {
        if let Some(roles) = reader(fields, layers)? {
            return same_length(roles, layers);
        }
    }
    windowed(fields, layers)
}

/// Layers at the end that use the cache of earlier ones; absent or 0 where none do.
pub(super) fn shared(fields: &Fields<'_>) -> Result<Option<u64>, ConfigError> {
    let shared = fields.number("num_kv_shared_layers")?.filter(|&n| n > 0);
    let layers = fields.layers()?;
    match shared {
        Some(n) if n >= layers => Err(out_of_range("num_kv_shared_layers", &Value::from(n))),
        other => Ok(other),
    }
}

fn same_length(roles: Vec<Role>, layers: u64) -> Result<Vec<Role>, ConfigError> {
    if roles.len() as u64 == layers {
        Ok(roles)
    } else {
        Err(out_of_range(
            "num_hidden_layers",
            &Value::from(format!("{layers} beside {} layer types", roles.len())),
        ))
    }
}

type Stated = Result<Option<Vec<Role>>, ConfigError>;

/// `layer_types`, a word for each layer.
fn listed(fields: &Fields<'_>, _: u64) -> Stated {
    let Some(list) = fields.list("layer_types") else { return Ok(None) };
    let role = |value: &Value| {
        let word = value.as_str().unwrap_or_default();
        let found = TYPES.iter().find(|(known, _)| *known == word).map(|(_, role)| *role);
        match found {
            Some(Role::Window) if !has_window(fields) => Ok(Role::Full),
            Some(role) => Ok(role),
            None => Err(ConfigError::Unsupported(format!(
                "a layer of type {:?}",
                text::clean(&value.to_string())
            ))),
        }
    };
    list.iter().map(role).collect::<Result<Vec<_>, _>>().map(Some)
}

/// Nemotron-H: a letter for each layer, `*` attention, `M` Mamba, others without a cache.
fn patterned(fields: &Fields<'_>, _: u64) -> Stated {
    let role = |letter| match letter {
        '*' => Role::Full,
        'M' => Role::State,
        _ => Role::None,
    };
    Ok(fields.text("hybrid_override_pattern").map(|pattern| pattern.chars().map(role).collect()))
}

/// MiMo: 0 for a full layer, 1 for a window.
fn numbered(fields: &Fields<'_>, _: u64) -> Stated {
    let role = |value: &Value| match value.as_u64() {
        Some(0) => Ok(Role::Full),
        Some(1) => Ok(Role::Window),
        _ => Err(out_of_range("hybrid_layer_pattern", value)),
    };
    fields.list("hybrid_layer_pattern").map(|list| list.iter().map(role).collect()).transpose()
}

/// Kimi Linear: the full layers by their number, counted from 1; the others are linear.
fn kimi(fields: &Fields<'_>, layers: u64) -> Stated {
    let list = fields.object("linear_attn_config").and_then(|o| o.get("full_attn_layers")?.as_array());
    let Some(full) = list.filter(|full| !full.is_empty()) else { return Ok(None) };
    let role = |layer| if full.contains(&Value::from(layer)) { Role::Full } else { Role::State };
    Ok(Some((1..=layers).map(role).collect()))
}

/// Jamba: attention every so many layers; Qwen-Next: full attention at the end of every so many.
fn periodic(fields: &Fields<'_>, layers: u64) -> Stated {
    let (period, offset) = if let Some(period) = fields.number("attn_layer_period")? {
        (period, fields.number("attn_layer_offset")?.unwrap_or(0))
    } else if fields.has("linear_num_value_heads") {
        let interval = fields.number("full_attention_interval")?.unwrap_or(4);
        (interval, interval.saturating_sub(1))
    } else {
        return Ok(None);
    };
    if period == 0 || offset >= period {
        return Err(out_of_range("attn_layer_period", &Value::from(period)));
    }
    Ok(Some((0..layers).map(|i| if i % period == offset { Role::Full } else { Role::State }).collect()))
}

/// Llama 4: layers without rotary positions are global, the others see their chunk.
fn chunked(fields: &Fields<'_>, layers: u64) -> Stated {
    if !fields.has("attention_chunk_size") {
        return Ok(None);
    }
    if let Some(list) = fields.list("no_rope_layers").filter(|list| !list.is_empty()) {
        let role = |value: &Value| if value.as_u64() == Some(0) { Role::Full } else { Role::Chunk };
        return Ok(Some(list.iter().map(role).collect()));
    }
    // 4 is the default of the configuration class.
    let interval = fields.number("no_rope_layer_interval")?.unwrap_or(4).max(1);
    Ok(Some(every(interval, layers, Role::Chunk)))
}

/// A window for all layers, for those of a pattern, or for none.
fn windowed(fields: &Fields<'_>, layers: u64) -> Result<Vec<Role>, ConfigError> {
    if !has_window(fields) {
        return Ok(vec![Role::Full; layers as usize]);
    }
    if let Some(pattern) = fields.text("sliding_window_pattern") {
        let letters = pattern.chars().cycle().take(if pattern.is_empty() { 0 } else { layers as usize });
        let roles = letters.map(|c| if c.eq_ignore_ascii_case(&'g') { Role::Full } else { Role::Window });
        return same_length(roles.collect(), layers);
    }
    let family = fields.family();
    let known = PATTERNS.iter().find(|(name, _)| *name == family).map(|(_, every)| *every);
    if let Some(interval) = fields.number("sliding_window_pattern")?.or(known) {
        return Ok(every(interval.max(1), layers, Role::Window));
    }
    if fields.has("use_sliding_window")
        && let Some(first) = fields.number("max_window_layers")?
    {
        return Ok((0..layers).map(|i| if i < first { Role::Full } else { Role::Window }).collect());
    }
    Ok(vec![Role::Window; layers as usize])
}

/// Every `interval`-th layer is full, the others are `other`.
fn every(interval: u64, layers: u64, other: Role) -> Vec<Role> {
    (1..=layers).map(|i| if i % interval == 0 { Role::Full } else { other }).collect()
}

/// Whether a window is set, in use, and shorter than what the model takes anyway.
fn has_window(fields: &Fields<'_>) -> bool {
    let number = |name| fields.get(name).and_then(Value::as_u64);
    let switched_off = fields.get("use_sliding_window").and_then(Value::as_bool) == Some(false);
    let window = number("sliding_window").or_else(|| number("sliding_window_size"));
    let longest = number("max_position_embeddings").unwrap_or(u64::MAX);
    !switched_off && window.is_some_and(|window| window > 0 && window < longest)
}
