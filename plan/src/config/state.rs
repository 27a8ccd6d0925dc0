//! Layers that keep a recurrent state of fixed size.

use super::ConfigError;
use super::fields::Fields;
use super::layers::Role;
use crate::model::Recurrent;

/// Elements of one layer: the state proper, and the window of its short convolution.
struct Elements {
    state: u64,
    convolution: u64,
}

/// The recurrent layers, where there are any.
pub(super) fn recurrent(fields: &Fields<'_>, roles: &[Role]) -> Result<Option<Recurrent>, ConfigError> {
    let layers = roles.iter().filter(|&&role| role == Role::State).count() as u64;
    if layers == 0 {
        return Ok(None);
    }
    let readers = [delta_net, kimi_delta, mamba2, mamba1, short_convolution];
    for reader in readers {
        if let Some(Elements { state, convolution }) = reader(fields)? {
            let state_bytes = state_bytes(fields);
            return Ok(Some(Recurrent { layers, state, convolution, state_bytes, convolution_bytes: 2 }));
        }
    }
    Err(ConfigError::Unsupported(format!("the recurrent state of {}", fields.family())))
}

/// Models that say so keep the state in 32 bits; engines follow the model's type otherwise.
fn state_bytes(fields: &Fields<'_>) -> u64 {
    let stated = fields.text("mamba_ssm_dtype").or_else(|| fields.text("mamba_ssm_cache_dtype"));
    if stated == Some("float32") { 4 } else { 2 }
}

type Found = Result<Option<Elements>, ConfigError>;

/// Gated delta nets: a key x value matrix for each value head; queries, keys and values pass the convolution.
fn delta_net(fields: &Fields<'_>) -> Found {
    let Some(values) = fields.number("linear_num_value_heads")? else { return Ok(None) };
    let keys = fields.need(&["linear_num_key_heads"])?;
    let (key, value) = (fields.need(&["linear_key_head_dim"])?, fields.need(&["linear_value_head_dim"])?);
    let kernel = fields.number("linear_conv_kernel_dim")?.unwrap_or(4);
    let channels = product(&[2, keys, key]).saturating_add(product(&[values, value]));
    Ok(Some(Elements {
        state: product(&[values, key, value]),
        convolution: product(&[channels, kernel.saturating_sub(1)]),
    }))
}

/// Kimi's delta attention: a square matrix for each head, and a convolution for each of query, key and value.
fn kimi_delta(fields: &Fields<'_>) -> Found {
    const OBJECT: &str = "linear_attn_config";
    let (heads, dim) = (fields.number_in(OBJECT, "num_heads")?, fields.number_in(OBJECT, "head_dim")?);
    let (Some(heads), Some(dim)) = (heads, dim) else { return Ok(None) };
    let kernel = fields.number_in(OBJECT, "short_conv_kernel_size")?.unwrap_or(4);
    Ok(Some(Elements {
        state: product(&[heads, dim, dim]),
        convolution: product(&[3, kernel.saturating_sub(1), heads, dim]),
    }))
}

/// Mamba 2: heads x width x state, and a convolution over the input and the two projections of each group.
fn mamba2(fields: &Fields<'_>) -> Found {
    let heads = fields.first(&["mamba_num_heads", "mamba_n_heads"])?;
    let dim = fields.first(&["mamba_head_dim", "mamba_d_head"])?;
    let (Some(heads), Some(dim)) = (heads, dim) else { return Ok(None) };
    let state = fields.need(&["ssm_state_size", "mamba_d_state"])?;
    let groups = fields.first(&["n_groups", "mamba_n_groups"])?.unwrap_or(1);
    let kernel = fields.first(&["conv_kernel", "mamba_d_conv"])?.unwrap_or(4);
    let channels = product(&[heads, dim]).saturating_add(product(&[2, groups, state]));
    Ok(Some(Elements {
        state: product(&[heads, dim, state]),
        convolution: product(&[channels, kernel.saturating_sub(1)]),
    }))
}

/// Mamba 1: inner width x state, and a convolution over the inner width.
fn mamba1(fields: &Fields<'_>) -> Found {
    let Some(state) = fields.first(&["mamba_d_state", "state_size"])? else { return Ok(None) };
    let expand = fields.first(&["mamba_expand", "expand"])?.unwrap_or(2);
    let inner = product(&[expand, fields.need(&["hidden_size"])?]);
    let kernel = fields.first(&["mamba_d_conv", "conv_kernel"])?.unwrap_or(4);
    Ok(Some(Elements {
        state: product(&[inner, state]),
        convolution: product(&[inner, kernel.saturating_sub(1)]),
    }))
}

/// LFM2: nothing but a short convolution over the width.
fn short_convolution(fields: &Fields<'_>) -> Found {
    let Some(kernel) = fields.number("conv_L_cache")? else { return Ok(None) };
    let width = fields.need(&["hidden_size"])?;
    Ok(Some(Elements { state: 0, convolution: product(&[width, kernel.saturating_sub(1)]) }))
}

fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, &factor| product.saturating_mul(factor))
}
