//! Writing for people and for scripts.

use std::io::{self, Write};

use serde::Serialize;

/// Prints one JSON document, indented, with a line end.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let mut document = serde_json::to_string_pretty(value)?;
    document.push('\n');
    Ok(text(&document)?)
}

/// Prints text as it is. Whoever has heard enough (`ebbtide status | head -1`) changes nothing about the outcome.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if is_enough(&error) => Ok(()),
        written => written,
    }
}

/// Whether a reader has heard enough: what streams stops there, and that is no failure.
pub(crate) fn is_enough(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
