//! Tells people: what a finding is worth saying ([`policy`], pure), and how it is said ([`sinks`]).
//!
//! The policy decides without a clock and without I/O, so a replay of history and `ebbtide check` ask the same
//! policy as the daemon does. The sinks wait, retry and fail on threads of their own, so nothing here ever holds up
//! sampling.

pub mod fingerprint;
pub mod message;
pub mod policy;
pub mod rules;
pub mod sinks;

pub use fingerprint::fingerprint;
pub use message::Message;
pub use policy::Policy;
pub use rules::{PolicyConfig, Rule};
pub use sinks::{
    DeliveryReport, Dispatcher, ExecConfig, Handed, Outcome, SinkConfig, SinkError, StartError, WebhookConfig,
};
