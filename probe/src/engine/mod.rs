//! Inference engines as they report on themselves over HTTP: what they export is found by tables, one file an engine,
//! and becomes an [`ebbtide_core::EngineSample`] of the process that holds the GPU memory.

pub mod document;
pub mod exposition;
pub mod http;
mod kin;
pub mod launch;
pub mod page;
pub mod quantity;
mod scout;
mod sockets;
pub(crate) mod source;
pub mod table;
pub mod target;
pub mod watch;

pub use launch::Launch;
pub use quantity::Quantities;
pub use table::{TableError, Tables};
pub use target::{EngineTarget, Scraper, TargetError};
pub use watch::{EngineWatch, WatchConfig};
