//! The embedded inference workload: a process whose memory is measured like anybody's.
//!
//! Its VRAM is a memory file ([`vram`]), so that it runs on a machine without a GPU; it tells its KV cache and its
//! load in a status file ([`status`]), and leaks on purpose ([`inject`]). [`kv`] is the paged KV cache, pure of model
//! code; [`lab`] tries its strategies side by side.

pub mod forward;
pub mod inject;
pub mod kernels;
pub mod kv;
pub mod lab;
pub mod load;
pub mod model;
pub mod room;
pub mod scheduler;
pub mod server;
pub mod status;
pub mod stop;
pub mod vram;
