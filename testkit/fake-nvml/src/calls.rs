//! The answers, one file a topic of NVML's manual.

mod accounting;
mod board;
mod errors;
mod events;
mod export_table;
mod fields;
mod identity;
mod lifecycle;
mod memory;
mod mig;
mod pcie;
mod processes;
mod system;
mod utilization;
