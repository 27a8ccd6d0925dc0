//! Inference engines as they report on themselves over HTTP: what they export is found by tables, one file an engine,
//! and becomes an [`ebbtide_core::EngineSample`] of the process that holds the GPU memory.

pub mod exposition;
pub mod page;
pub mod quantity;
pub mod table;

pub use quantity::Quantities;
pub use table::{TableError, Tables};
