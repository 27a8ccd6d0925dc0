//! The real binary, end to end: against the fake driver, on host memory, on files, and killed on purpose.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod check;
mod configuration;
mod db;
mod engine;
mod faults;
mod incidents;
mod kill;
mod lab;
mod plan;
mod runner;
mod serving;
mod status;
mod top;
mod usage;
mod workload;
