//! Vectors of f32, as the paged attention needs them, and what every `unsafe` of the kernels rests on.
//!
//! - The functions of [`Simd`] are called only beneath an entry point with `#[target_feature]`, into which all of them
//!   are inlined, and an entry point is called only by [`Kernels`](super::Kernels), which exists only for a set whose
//!   instructions the processor has.
//!   In debug builds the larger functions are not inlined: unoptimised, all of them together would take more stack
//!   than a thread has. Vectors pass between functions through memory there, which is slow and right.
//! - A pointer points at as many readable (or writable) numbers as the function's name and [`Simd::LANES`] say. The
//!   safe methods of `Kernels` check the lengths of all slices before a pointer is made of one.
//! - Prefetching touches no memory as far as the language can see; its address may be anything.

use crate::kv::Format;

/// A register of f32.
pub(super) trait Simd {
    /// The register.
    type Vector: Copy;
    /// Numbers in it: 8 or 16.
    /// Numbers in it: 8 or 16.
    const LANES: usize;
    /// Rows of queries that share one reading of a converted chunk: what fits the registers beside it.
    const QUERY_ROWS: usize;

    /// # Safety
    /// As the module says; so for every function here.
    unsafe fn splat(value: f32) -> Self::Vector;
    /// Loads [`Self::LANES`] numbers, not aligned.
    unsafe fn load(from: *const f32) -> Self::Vector;
    /// Loads as many f16.
    unsafe fn load_f16(from: *const u8) -> Self::Vector;
    /// Loads as many i8.
    unsafe fn load_i8(from: *const u8) -> Self::Vector;
    /// Loads as many e4m3 numbers, each divided by [`E4M3_SHIFT`].
    unsafe fn load_e4m3(from: *const u8) -> Self::Vector;
    /// Stores [`Self::LANES`] numbers, not aligned.
    unsafe fn store(value: Self::Vector, to: *mut f32);
    /// Stores as many f16.
    unsafe fn store_f16(value: Self::Vector, to: *mut u8);
    /// `a * b + c`, rounded once.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// `a * b`.
    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a + b`.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The larger of each pair.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The largest number of all.
    unsafe fn largest(a: Self::Vector) -> f32;
    /// The sum of each of [`Self::LANES`] vectors.
    unsafe fn sums(of: *const Self::Vector) -> Self::Vector;
    /// `e^x` for `x` of at most zero; at -87 and below next to nothing.
    unsafe fn exp(x: Self::Vector) -> Self::Vector;
    /// Asks for the cache line at `at`.
    unsafe fn prefetch(at: *const u8);
}

/// An e4m3 byte moved into the bits of an f16 is 256 times too small, exactly: the exponents' biases are 7 and 15.
pub(super) const E4M3_SHIFT: f32 = 256.0;

/// How a row of keys or values is read, as a type, so that each format has a kernel of its own.
pub(super) trait Cell {
    /// What it reads.
    const FORMAT: Format;
    /// What the numbers it loads must be multiplied by, beside the row's scale.
    const SHIFT: f32 = 1.0;

    /// [`Simd::LANES`] numbers of a row.
    ///
    /// # Safety
    /// As the module says.
    unsafe fn load<S: Simd>(from: *const u8) -> S::Vector;
}

macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident, $shift:expr, $from:ident => $load:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Cell for $name {
            const FORMAT: Format = Format::$name;
            const SHIFT: f32 = $shift;

            #[inline(always)]
            unsafe fn load<S: Simd>($from: *const u8) -> S::Vector {
                // SAFETY: the caller's.
                unsafe { $load }
            }
        }
    )*};
}

cells! {
    /// 32-bit floats.
    F32, 1.0, from => S::load(from.cast());
    /// 16-bit floats.
    F16, 1.0, from => S::load_f16(from);
    /// Integers with a scale.
    Int8, 1.0, from => S::load_i8(from);
    /// FP8 e4m3 with a scale.
    Fp8, E4M3_SHIFT, from => S::load_e4m3(from);
}
