//! The store against real files: what goes in comes out, what is refused stays as it was, and what was acknowledged
//! is there whatever happens to the disk or the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod damage;
mod incidents;
mod records;
mod retention;
mod round_trip;
mod sealed;
mod upgrade;
mod verdicts;
