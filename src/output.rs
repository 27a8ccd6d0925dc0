//! Writing for people and for scripts.

use std::io::Write;

use serde::Serialize;

/// Prints one JSON document, indented, with a line end.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    Ok(writeln!(out)?)
}

/// Prints text as it is.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn text(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
