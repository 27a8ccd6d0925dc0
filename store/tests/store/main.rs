//! The store against real files: what goes in comes out, what is refused stays as it was, and what was acknowledged
//! is there whatever happens to the disk or the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "what was counted is worth reading, and the child talks to its parent so"
)]

mod damage;
mod faults;
mod incidents;
mod records;
mod retention;
mod round_trip;
mod sealed;
mod upgrade;
mod verdicts;
