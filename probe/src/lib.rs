//! The only code that reads hardware, `/proc` and other people's files.

pub mod source;
