//! An engine that serves: requests over HTTP and from a load, figures for whoever watches.
//!
//! ```text
//! HTTP (a thread, Face) --orders--> Worker (the caller's thread): Scheduler, Forward, Pool, Load, Injector
//!            ^  <-------pieces------   |
//!            +-- /metrics <-- Figures -+--> status file
//! ```
//!
//! The worker waits for nobody: what it has to tell goes into queues that are as long as the longest answer, and a
//! reader who has gone away is noticed at the next token.

mod completion;
mod face;
mod figures;
mod notice;
#[cfg(test)]
mod tests;
mod worker;

pub use face::{Face, FaceError, Identity};
pub use figures::{Figures, StepTime};
pub use worker::{Capacity, Order, Piece, Service, ServiceError, Worker};

/// Orders that may wait for the worker: it takes them all between two steps, so that more would only hide that it
/// does not come round.
pub const ORDERS_MAX: usize = 256;
