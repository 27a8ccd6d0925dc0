//! The types in which engines keep keys and values, and their real cost with scales and blocks.

use std::fmt;
use std::str::FromStr;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats, `float16` or `bfloat16`.
    F16,
    /// 8-bit floats with one scale a tensor (vLLM `fp8`), which costs nothing a token.
    Fp8,
    /// 8 bits with a 4-byte scale for each token and head (vLLM `int8_per_token_head`; LMDeploy's scale and zero).
    Int8,
    /// 4 bits with a 4-byte scale for each token and head.
    Int4,
    /// llama.cpp's blocks of 32 elements in 34 bytes.
    Q8_0,
    /// llama.cpp's blocks of 32 elements in 18 bytes.
    Q4_0,
    /// 4-bit floats with an 8-bit scale for every 16 elements.
    Nvfp4,
}

/// Name and type; the first name of a type is the one it is printed as.
const NAMES: [(&str, KvType); 14] = [
    ("f32", KvType::F32),
    ("float32", KvType::F32),
    ("f16", KvType::F16),
    ("fp16", KvType::F16),
    ("bf16", KvType::F16),
    ("float16", KvType::F16),
    ("bfloat16", KvType::F16),
    ("fp8", KvType::Fp8),
    ("int8", KvType::Int8),
    ("int4", KvType::Int4),
    ("q8_0", KvType::Q8_0),
    ("q4_0", KvType::Q4_0),
    ("nvfp4", KvType::Nvfp4),
    ("fp8_e4m3", KvType::Fp8),
];

/// Elements in a block of llama.cpp's quantised types (`QK8_0`, `QK4_0`).
const GGML_BLOCK: u64 = 32;

impl KvType {
    /// Every type, the widest first.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::Int8, Self::Q8_0, Self::Fp8, Self::Int4, Self::Q4_0, Self::Nvfp4];

    /// Its name, as the command line takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kv)| *kv == self).map_or("f16", |(name, _)| name)
    }

    /// Bytes of the keys (or the values) of one token in one layer: `heads` vectors of `dim` elements.
    #[must_use]
    pub const fn row_bytes(self, heads: u64, dim: u64) -> u64 {
        let elements = heads.saturating_mul(dim);
        match self {
            Self::F32 => elements.saturating_mul(4),
            Self::F16 => elements.saturating_mul(2),
            Self::Fp8 => elements,
            Self::Int8 => heads.saturating_mul(dim.saturating_add(4)),
            Self::Int4 => heads.saturating_mul(dim.div_ceil(2).saturating_add(4)),
            Self::Q8_0 => elements.div_ceil(GGML_BLOCK).saturating_mul(34),
            Self::Q4_0 => elements.div_ceil(GGML_BLOCK).saturating_mul(18),
            Self::Nvfp4 => heads.saturating_mul(dim.div_ceil(2).saturating_add(dim.div_ceil(16))),
        }
    }

    /// Bytes of one token's latent vector in one layer. Under a sparse indexer, vLLM's FP8 layout keeps a scale for
    /// every 128 elements and the rotary part in 16 bits (`fp8_ds_mla`, 656 bytes for 512 + 64); NVFP4 keeps the
    /// rotary part in 8 bits (352 bytes).
    #[must_use]
    pub const fn latent_bytes(self, rank: u64, rope: u64, sparse: bool) -> u64 {
        match self {
            Self::Fp8 if sparse => rank
                .saturating_add(rank.div_ceil(128).saturating_mul(4))
                .saturating_add(rope.saturating_mul(2)),
            Self::Nvfp4 => rank.div_ceil(2).saturating_add(rank.div_ceil(16)).saturating_add(rope),
            _ => self.row_bytes(1, rank.saturating_add(rope)),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no KV type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no KV type is called {0:?}: f32, f16, fp8, int8, int4, q8_0, q4_0 or nvfp4")]
pub struct UnknownKvType(pub String);

impl FromStr for KvType {
    type Err = UnknownKvType;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, kv)| *kv).ok_or_else(|| UnknownKvType(ebbtide_core::text::clean(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_blocks_cost_what_the_engines_pay() {
        let ratio = |kv: KvType, dim| kv.row_bytes(8, dim) as f64 / KvType::F16.row_bytes(8, dim) as f64;
        for (kv, at_64, at_128) in [
            (KvType::Fp8, 0.5, 0.5),
            (KvType::Int8, 0.531, 0.516),
            (KvType::Int4, 0.281, 0.266),
            (KvType::Q8_0, 0.531, 0.531),
            (KvType::Q4_0, 0.281, 0.281),
            (KvType::Nvfp4, 0.281, 0.281),
        ] {
            assert!((ratio(kv, 64) - at_64).abs() < 0.001, "{kv} at 64: {}", ratio(kv, 64));
            assert!((ratio(kv, 128) - at_128).abs() < 0.001, "{kv} at 128: {}", ratio(kv, 128));
        }
    }

    #[test]
    fn latent_layouts_have_their_published_sizes() {
        assert_eq!(KvType::F16.latent_bytes(512, 64, false), 1152);
        assert_eq!(KvType::Fp8.latent_bytes(512, 64, false), 576);
        assert_eq!(KvType::Fp8.latent_bytes(512, 64, true), 656);
        assert_eq!(KvType::Nvfp4.latent_bytes(512, 64, true), 352);
    }

    #[test]
    fn names_read_back() {
        for kv in KvType::ALL {
            assert_eq!(kv.name().parse(), Ok(kv));
        }
        assert!("q2".parse::<KvType>().is_err());
    }
}
