//! Answers over HTTP.
