//! A `libnvidia-ml.so.1` without a GPU: the symbols, record layouts and habits of NVIDIA's management library, over
//! a scenario file and the wall clock, so that any program that loads NVML sees the same simulated world.
//!
//! Which world: the scenario beside the library, else the file named by `EBBTIDE_FAKE_NVML`, else two idle GPUs.
//! The file, and the live file it may name, are looked at again in every millisecond in which a call arrives.
//! `EBBTIDE_FAKE_NVML_CALLS` names a file in which calls are counted. The format of all three is documented in the
//! crate `ebbtide-testkit`.
//!
//! What it copies from the original is what clients depend on: lists answer INSUFFICIENT_SIZE with the count,
//! version fields of records are checked, handles go stale when the driver is reloaded, waiting for events blocks,
//! and a call that hangs holds up its caller only. Layouts are checked against nvml-wrapper-sys in the tests.
//!
//! The modules follow a call: `entry` opens it, `library` knows whether NVML is initialised, `world` what is
//! true now, `target` what a handle means, and `calls` answers, one file a topic.

#![allow(unsafe_code, reason = "a C library: pointers come in from callers that NVML's contract binds")]
#![allow(non_snake_case, reason = "exported symbols are spelt as NVML spells them")]

mod abi;
mod calls;
mod code;
mod counting;
mod entry;
mod library;
mod symbols;
mod target;
mod world;

pub use symbols::SYMBOLS;
