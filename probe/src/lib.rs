//! The only code that reads hardware, `/proc` and other people's files.

pub mod engine_status;
pub mod host_gpu;
pub mod proc;
pub mod recorded;
pub mod source;
