//! The only code that reads hardware, `/proc` and other people's files.

pub mod engine;
pub mod engine_status;
pub mod host_gpu;
pub mod nvml;
pub mod proc;
pub mod recorded;
mod roster;
pub mod sampler;
pub mod source;

pub use engine::EngineTarget;
pub use host_gpu::HostGpuConfig;
pub use sampler::{Probe, ProbeConfig, ProbeError, SourceConfig, start};
