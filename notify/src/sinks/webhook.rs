//! A sink that posts the event as JSON to a URL.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::time::Duration;

use ebbtide_core::text;
use serde::{Deserialize, Serialize};
use ureq::http::{HeaderName, HeaderValue, Response, StatusCode, Uri};

use super::{Attempt, SinkError, check_timeout};
use crate::message::Message;

/// The most of an answer that is read: enough for the one line that is logged.
const MAX_ANSWER_BYTES: u64 = 4096;

/// The longest time that a receiver may ask for with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// A URL that gets every event.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Where to post. May hold a secret: never logged in full.
    pub url: String,
    /// More headers to send, e.g. `Authorization`. Never logged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long one try may take from the look-up of the name to the end of the answer, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

const fn default_timeout_ms() -> u64 {
    10_000
}

impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookConfig")
            .field("url", &self.name())
            .field("headers", &self.headers.keys())
            .field("timeout_ms", &self.timeout_ms)
            .finish()
    }
}

impl WebhookConfig {
    /// Posts to `url` without further headers and with the default time-out.
    #[must_use]
    pub const fn new(url: String) -> Self {
        Self { url, headers: BTreeMap::new(), timeout_ms: default_timeout_ms() }
    }

    pub(super) fn check(&self) -> Result<(), SinkError> {
        check_timeout(self.timeout_ms)?;
        let uri = self.url.parse::<Uri>().ok();
        if !uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
        {
            return Err(SinkError::Url { url: without_secrets(&self.url) });
        }
        let valid = |(name, value): (&String, &String)| {
            name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok()
        };
        match self.headers.iter().find(|header| !valid(*header)) {
            Some((name, _)) => Err(SinkError::Header { name: text::clean(name) }),
            None => Ok(()),
        }
    }

    pub(super) fn name(&self) -> String {
        let uri = self.url.parse::<Uri>().unwrap_or_default();
        format!("webhook {}", text::clean(uri.host().unwrap_or("?")))
    }
}

/// As much of what should be a URL as helps to find it: neither the user in it nor the path, which often is the secret.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) =
        url.split_once("://").map_or(("", url), |(_, rest)| url.split_at(url.len() - rest.len()));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    text::clean(&format!("{scheme}{host}{}", if path.is_empty() { "" } else { "/…" }))
}

/// The sink itself.
pub(super) struct Webhook {
    config: WebhookConfig,
    agent: ureq::Agent,
}

impl Webhook {
    pub(super) fn new(config: WebhookConfig) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_millis(config.timeout_ms)))
            .http_status_as_error(false)
            // A redirect turns a POST into a GET, or leads where nobody wrote it: it is an answer like any other.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("ebbtide/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Self { config, agent }
    }

    pub(super) fn attempt(&self, message: &Message) -> Attempt {
        if let Err(error) = self.config.check() {
            return Attempt::Failed { reason: error.to_string() };
        }
        let mut request = self.agent.post(&self.config.url).content_type("application/json");
        for (name, value) in &self.config.headers {
            request = request.header(name, value);
        }
        let sent = request.header("Idempotency-Key", message.idempotency_key()).send(message.json());
        match sent {
            Ok(response) => verdict(response),
            // Nobody there, a broken connection, a name that does not resolve, an answer that is no HTTP.
            Err(error) => Attempt::Retry { reason: text::clean(&error.to_string()), after: None },
        }
    }
}

/// What receivers mean (Prometheus' and Alertmanager's senders read it alike): 5xx and 429 pass, other refusals are
/// of this very message and stay.
fn verdict(response: Response<ureq::Body>) -> Attempt {
    let status = response.status();
    if status.is_success() {
        return Attempt::Delivered;
    }
    let after = retry_after(&response);
    let reason = format!("answered {}{}", status.as_u16(), answer(response));
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        Attempt::Retry { reason, after }
    } else {
        Attempt::Failed { reason }
    }
}

/// The form in seconds; the form with a date is rare and our own back-off does for it.
fn retry_after(response: &Response<ureq::Body>) -> Option<Duration> {
    let seconds = response.headers().get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

fn answer(response: Response<ureq::Body>) -> String {
    let mut said = Vec::new();
    // A body that breaks off has still said what it has.
    let _read = response.into_body().into_reader().take(MAX_ANSWER_BYTES).read_to_end(&mut said);
    let said = text::clean(&String::from_utf8_lossy(&said));
    if said.is_empty() { said } else { format!(": {said}") }
}

#[cfg(test)]
mod tests;
