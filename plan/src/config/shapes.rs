//! Heads and widths of the layers of one role.

use super::ConfigError;
use super::fields::Fields;
use super::layers::Role;
use crate::model::Shape;

/// What a layer of this role keeps of one token.
pub(super) fn shape(fields: &Fields<'_>, role: Role) -> Result<Shape, ConfigError> {
    if let Some(rank) = fields.number("kv_lora_rank")? {
        let rope = fields.number("qk_rope_head_dim")?.ok_or(ConfigError::Missing("qk_rope_head_dim"))?;
        return Ok(Shape::Latent { rank, rope, index: fields.number("index_head_dim")?.unwrap_or(0) });
    }
    let (heads, key) = (kv_heads(fields)?, key_dim(fields)?);
    let value = fields.number("v_head_dim")?;
    let (heads, key, value) = match role {
        Role::Window => (
            fields.number("swa_num_key_value_heads")?.unwrap_or(heads),
            fields.number("swa_head_dim")?.unwrap_or(key),
            fields.number("swa_v_head_dim")?.or(value),
        ),
        _ => (
            fields.number("num_global_key_value_heads")?.unwrap_or(heads),
            fields.number("global_head_dim")?.unwrap_or(key),
            value,
        ),
    };
    Ok(Shape::Heads { heads, key, value: value.unwrap_or(key) })
}

fn query_heads(fields: &Fields<'_>) -> Result<u64, ConfigError> {
    fields.need(&["num_attention_heads", "decoder_attention_heads", "n_head", "n_heads", "num_heads"])
}

/// Absent means one KV head for each query head. Falcon's first design says "one" with a flag, and its second
/// keeps that flag but counts.
fn kv_heads(fields: &Fields<'_>) -> Result<u64, ConfigError> {
    if fields.flag("multi_query") && !fields.flag("new_decoder_architecture") {
        return Ok(1);
    }
    let names = ["num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_head_kv"];
    match fields.first(&names)? {
        Some(_) => fields.need(&names),
        None => query_heads(fields),
    }
}

/// `head_dim`, or width over heads only where no field says otherwise: it is wrong for many models that do.
pub(crate) fn key_dim(fields: &Fields<'_>) -> Result<u64, ConfigError> {
    let names = ["head_dim", "attention_head_dim", "kv_channels", "d_kv"];
    if fields.first(&names)?.is_some() {
        return fields.need(&names);
    }
    let (hidden, heads) = (fields.need(&["hidden_size", "d_model", "n_embd"])?, query_heads(fields)?);
    Ok((hidden / heads).max(1))
}
