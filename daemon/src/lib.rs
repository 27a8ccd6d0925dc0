//! The composition root: configuration, the pipeline, the tasks around it, ordered shutdown.
//!
//! ```text
//! probe thread -> samples -> pipeline -> effects -> keeper (store, then sinks) | status channel -> API
//! ```
//! Every arrow is a bounded queue; what does not fit is dropped at the sender and counted.

mod appraiser;
mod books;
pub mod config;
mod driver;
pub mod history;
mod keeper;
pub mod log;
pub mod model_files;
mod past;
pub mod pipeline;
mod probing;
pub mod record;
pub mod running;
mod selfwatch;
mod shutdown;

pub use driver::{RunError, run, run_until};
