//! The bodies that are kept as JSON text.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// `value` as text. Fails only on maps whose keys are no strings, of which the vocabulary has none; said as an error
/// all the same.
pub(crate) fn text(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|e| sqlx::Error::Encode(e.into()))
}

/// The value of a row's text, or `None` where another build wrote what this one does not understand: one odd row must
/// not hide the others.
pub(crate) fn value<T: DeserializeOwned>(table: &'static str, text: &str) -> Option<T> {
    serde_json::from_str(text)
        .inspect_err(
            |error| tracing::warn!(table, %error, "a stored row is left out: this build cannot read it"),
        )
        .ok()
}
