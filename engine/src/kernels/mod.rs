//! The arithmetic of inference, in three sets: AVX-512, AVX2, and plain Rust, which is the oracle of the others.
//!
//! ```text
//! Activations (i8, scale per 32)  x  Tiles (8-bit weights, 16 rows by 32 columns)   -> f32     Kernels::multiply
//! queries (f32)                   x  KV blocks of a pool, through a block table      -> f32     Kernels::attend
//! rows of f32                     -> norms, rotations, gates                          lanes
//! ```
//!
//! A set is chosen once, at start, by what the processor says it can do; `EBBTIDE_KERNELS` asks for one by name.
//! [`Kernels`] can only be had for a set that the processor has, which is what every call into one rests on.

mod activations;
mod attention;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions over raw rows; the invariants are in `simd`")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions over raw rows; the invariants are in `simd`")]
mod avx512;
#[allow(unsafe_code, reason = "one reference that outlives its type; the invariant is in `Crew::run`")]
mod crew;
#[allow(unsafe_code, reason = "a call into a set whose instructions the processor has, as `Kernels` proves")]
mod dispatch;
mod lanes;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions over raw rows; the invariants are in `simd`")]
mod paged;
#[allow(
    unsafe_code,
    reason = "columns of one matrix that several threads write; the invariants are beside `Products`"
)]
mod products;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions over raw rows; the invariants are in `simd`")]
mod prompt;
mod scalar;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector instructions over raw rows; the invariants are in `simd`")]
mod simd;
#[cfg(test)]
mod tests;
mod tiles;

pub use activations::Activations;
pub use attention::{Attention, Chunk, Portions, Queries, Shape, Workspace};
pub use crew::Crew;
pub use dispatch::Kernels;
pub use tiles::Tiles;

/// Columns that share a scale, in weights and activations: what GGUF's 8-bit format has (ggml's `Q8_0`).
pub const GROUP: usize = 32;

/// A set of kernels, slower ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Plain Rust: the oracle, and what other processors run.
    Scalar,
    /// AVX2 with FMA and F16C: x86-64 processors since 2013.
    Avx2,
    /// AVX-512 with VNNI: servers since 2019, Zen 4 and later.
    Avx512,
}

impl Tier {
    /// All of them, the fastest first.
    pub const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Scalar];

    /// The name that `EBBTIDE_KERNELS` knows it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Whether this processor has its instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of kernels that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// The processor lacks its instructions.
    #[error("this processor has no {0} kernels; leave EBBTIDE_KERNELS unset to take the fastest it has")]
    Unavailable(Tier),
    /// There is no such set.
    #[error("EBBTIDE_KERNELS is {0:?}; it may be scalar, avx2 or avx512")]
    Unknown(String),
}
