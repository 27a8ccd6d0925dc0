//! One call for each piece of arithmetic, whatever the processor: lengths are checked here, then the set is entered.

use std::sync::{Mutex, PoisonError};

use super::activations::Activations;
use super::attention::{Attention, Portions, Workspace};
use super::crew::Crew;
use super::products::Products;
use super::tiles::Tiles;
use super::{Tier, TierError, lanes, scalar};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::kv::{F16_ONE, Format};

/// The entry points of a set: the functions of `lanes` compiled for its instructions, and attention over its vectors.
#[cfg(target_arch = "x86_64")]
macro_rules! entries {
    ($features:literal, $simd:ty) => {
        #[target_feature(enable = $features)]
        pub(super) fn normalise(rows: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
            lanes::normalise_rows(rows, weight, eps, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn add(values: &mut [f32], delta: &[f32]) {
            lanes::add(values, delta);
        }

        #[target_feature(enable = $features)]
        pub(super) fn gate(gate: &mut [f32], up: &[f32]) {
            lanes::gate(gate, up);
        }

        #[target_feature(enable = $features)]
        pub(super) fn rotate(heads: &mut [f32], turns: &[[f32; 2]]) {
            lanes::rotate_heads(heads, turns);
        }

        #[target_feature(enable = $features)]
        pub(super) fn quantise(values: &[f32], stride: usize, into: &mut Activations) {
            lanes::quantise_rows(values, stride, into);
        }

        #[target_feature(enable = $features)]
        pub(super) fn encode_f16(values: &[f32], row: &mut [u8]) {
            paged::encode_f16::<$simd>(values, row);
        }

        /// # Safety
        /// The processor has the instructions, `attention` was [checked](Attention::check) with `out`, and heads are
        /// whole vectors.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn attend(attention: &Attention<'_>, workspace: &mut Workspace, out: &mut [f32]) {
            // SAFETY: the caller's.
            unsafe { paged::attend::<$simd>(attention, workspace, out) }
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use entries;

/// Enters `$name` of the set in use, or computes `$scalar`.
macro_rules! enter {
    ($tier:expr, $scalar:expr, $name:ident($($argument:expr),*)) => {
        match $tier {
            // SAFETY: a `Kernels` of this set exists, so the processor has its instructions; what else the function
            // asks for is checked by the method around this.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => unsafe { avx512::$name($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => unsafe { avx2::$name($($argument),*) },
            _ => $scalar,
        }
    };
}

/// The arithmetic of one [`Tier`] that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernels {
    /// Only ever one that is available.
    tier: Tier,
}

impl Kernels {
    /// The environment variable that asks for a set by its name.
    pub const VARIABLE: &str = "EBBTIDE_KERNELS";

    /// The fastest that this processor has.
    #[must_use]
    pub fn fastest() -> Self {
        let tier = Tier::ALL.into_iter().find(|tier| tier.is_available());
        Self { tier: tier.unwrap_or(Tier::Scalar) }
    }

    /// Those of `tier`.
    ///
    /// # Errors
    /// [`TierError::Unavailable`].
    pub fn of(tier: Tier) -> Result<Self, TierError> {
        if tier.is_available() { Ok(Self { tier }) } else { Err(TierError::Unavailable(tier)) }
    }

    /// Those that `EBBTIDE_KERNELS` asks for, the fastest where it is not set.
    ///
    /// # Errors
    /// Where it names a set that is unknown, or that this processor lacks.
    pub fn from_environment() -> Result<Self, TierError> {
        std::env::var_os(Self::VARIABLE).map_or_else(
            || Ok(Self::fastest()),
            |name| {
                let tier = Tier::ALL.into_iter().find(|tier| name == tier.name());
                let unknown = || TierError::Unknown(ebbtide_core::text::clean(&name.to_string_lossy()));
                Self::of(tier.ok_or_else(unknown)?)
            },
        )
    }

    /// Which they are.
    #[must_use]
    pub const fn tier(self) -> Tier {
        self.tier
    }

    /// `row * weight / sqrt(mean(row^2) + eps)` for each row of `weight.len()` numbers, into `out` (RMSNorm).
    pub fn normalise(self, rows: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        enter!(self.tier, lanes::normalise_rows(rows, weight, eps, out), normalise(rows, weight, eps, out));
    }

    /// Adds `delta` to `values`.
    pub fn add(self, values: &mut [f32], delta: &[f32]) {
        enter!(self.tier, lanes::add(values, delta), add(values, delta));
    }

    /// `silu(gate) * up` into `gate` (SwiGLU).
    pub fn gate(self, gate: &mut [f32], up: &[f32]) {
        enter!(self.tier, lanes::gate(gate, up), gate(gate, up));
    }

    /// Turns neighbouring pairs of each head in `heads` by the angles whose cosines and sines are `turns`, one for
    /// each pair of a head (RoPE, interleaved).
    pub fn rotate(self, heads: &mut [f32], turns: &[[f32; 2]]) {
        enter!(self.tier, lanes::rotate_heads(heads, turns), rotate(heads, turns));
    }

    /// The first `columns` of every `stride` numbers, as 8-bit integers.
    pub fn quantise(self, values: &[f32], stride: usize, columns: usize, into: &mut Activations) {
        assert!(0 < columns && columns <= stride, "rows of {columns} every {stride} numbers");
        into.reshape((values.len() + stride - columns) / stride, columns);
        enter!(self.tier, lanes::quantise_rows(values, stride, into), quantise(values, stride, into));
    }

    /// Writes a row of a KV block as [`Format::encode`] does; its scale.
    pub fn encode(self, format: Format, values: &[f32], row: &mut [u8]) -> u16 {
        if format != Format::F16 || self.tier == Tier::Scalar {
            return format.encode(values, row);
        }
        enter!(self.tier, _ = format.encode(values, row), encode_f16(values, row));
        F16_ONE
    }

    /// `input` times the transposed weights, `[row][weight row]` into `out`, shared among `crew`: to the bit the same
    /// for any number of threads.
    ///
    /// # Panics
    /// Where the shapes do not belong together: a mistake of the caller.
    pub fn multiply(self, crew: &mut Crew, weights: &Tiles, input: &Activations, out: &mut [f32]) {
        assert!(weights.fits(input, out), "{} rows of {} columns", input.rows(), input.columns());
        let all = Products::new(out, weights.rows());
        let work = |mut products: Products<'_>| {
            enter!(
                self.tier,
                scalar::multiply(weights, input, &mut products),
                multiply(weights, input, &mut products)
            );
        };
        let products = input.rows() * weights.rows() * weights.columns();
        if crew.threads() == 1 || products < WORTH_WAKING {
            return work(all);
        }
        let portion = weights.tiles().div_ceil(PORTIONS * crew.threads());
        crew.share(all.portions(portion), |_, products| work(products));
    }

    /// `softmax(q k / sqrt(head_dim)) v` for every head of every query, `[token][head][head_dim]` into `out`. A
    /// query looks at the tokens in `attention.chunks` up to its own position.
    ///
    /// # Panics
    /// Where lengths do not belong together or a query sees nothing: a mistake of the caller.
    pub fn attend(self, attention: &Attention<'_>, workspace: &mut Workspace, out: &mut [f32]) {
        attention.check(out);
        if attention.shape.head_dim.is_multiple_of(VECTOR) {
            enter!(self.tier, scalar::attend(attention, out), attend(attention, workspace, out));
        } else {
            scalar::attend(attention, out);
        }
    }

    /// [`Self::attend`] for all of `portions`, shared among `crew`; a thread computes with its own of `workspaces`.
    ///
    /// # Panics
    /// Also where there are fewer workspaces than threads.
    pub fn attend_all(self, crew: &mut Crew, portions: Portions<'_>, workspaces: &[Mutex<Workspace>]) {
        let work = |thread: usize, (attention, out): (Attention<'_>, &mut [f32])| {
            // Nobody else locks it. What a panic leaves in it is written over.
            let mut workspace = workspaces[thread].lock().unwrap_or_else(PoisonError::into_inner);
            self.attend(&attention, &mut workspace, out);
        };
        if portions.products() < WORTH_WAKING {
            portions.into_iter().for_each(|portion| work(0, portion));
        } else {
            crew.share(portions.into_iter(), work);
        }
    }
}

/// Multiplications that are worth waking a thread for. A core does as many in 11 to 50 us, the latter where weights
/// come from memory for one row; to wake a thread that sleeps takes several, more in a virtual machine.
const WORTH_WAKING: usize = 1 << 21;
/// Portions a thread, where there is that much to do: one that is held up leaves the rest to others.
const PORTIONS: usize = 4;
/// Numbers of a head that every set of vectors divides; heads of other sizes are left to plain Rust. All models that
/// the planner's catalogue knows have heads of whole vectors.
const VECTOR: usize = 16;
