//! How people are told: each sink is a thread with a bounded queue, so that a slow receiver delays nobody else.

mod backoff;
mod dispatcher;
mod exec;
mod halt;
mod hook_file;
#[cfg(test)]
mod receiver;
mod supervision;
mod webhook;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use dispatcher::{DeliveryReport, Dispatcher, Handed, MAX_ATTEMPTS, Outcome, QUEUE_EVENTS, StartError};
pub use exec::{ExecConfig, TERM_GRACE};
pub use hook_file::HookFileError;
pub use supervision::MAX_OUTPUT_BYTES;
pub use webhook::WebhookConfig;

use crate::message::Message;
use halt::Halt;

/// The longest time that one delivery may be given: its sink's other events wait behind it.
pub const MAX_TIMEOUT_MS: u64 = 600_000;

/// One way to tell people, an entry of `[[sinks]]` in the configuration: `exec.argv = [...]` or `webhook.url = "..."`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SinkConfig {
    /// A program is run.
    Exec(ExecConfig),
    /// A URL is posted to.
    Webhook(WebhookConfig),
}

/// Why a sink cannot work as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// No program is named.
    #[error("a sink `exec` has an empty argv: name the program to run and its arguments")]
    EmptyArgv,
    /// The program must not or cannot be run.
    #[error("the hook cannot be run")]
    HookFile(#[from] HookFileError),
    /// The URL is none that can be posted to.
    #[error("{url:?} is no URL to post to: write http://host/path or https://host/path")]
    Url {
        /// What was given.
        url: String,
    },
    /// The time-out is none that a delivery can be given.
    #[error("a sink's timeout_ms is {timeout_ms}: it must lie between 1 and {MAX_TIMEOUT_MS}")]
    Timeout {
        /// What was given.
        timeout_ms: u64,
    },
    /// A header's name or value is none that HTTP allows.
    #[error("the header {name:?} of a webhook is not valid in HTTP: use visible ASCII characters only")]
    Header {
        /// Its name; the value may be a secret.
        name: String,
    },
}

impl SinkConfig {
    /// Whether it can work as it stands: the same look that precedes every delivery, for `ebbtide config check`.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub fn check(&self) -> Result<(), SinkError> {
        match self {
            Self::Exec(config) => config.check(),
            Self::Webhook(config) => config.check(),
        }
    }

    /// What the sink is called in logs and reports; free of secrets.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Exec(config) => config.name(),
            Self::Webhook(config) => config.name(),
        }
    }
}

fn check_timeout(timeout_ms: u64) -> Result<(), SinkError> {
    if (1..=MAX_TIMEOUT_MS).contains(&timeout_ms) { Ok(()) } else { Err(SinkError::Timeout { timeout_ms }) }
}

/// What one try to deliver came to.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Delivered,
    /// It may work later; the receiver may say when.
    Retry {
        reason: String,
        after: Option<Duration>,
    },
    /// Trying again would not help.
    Failed {
        reason: String,
    },
}

/// A sink that is ready to deliver.
enum Sink {
    Exec(exec::Exec),
    Webhook(webhook::Webhook),
}

impl Sink {
    fn new(config: SinkConfig) -> Self {
        match config {
            SinkConfig::Exec(config) => Self::Exec(exec::Exec::new(config)),
            SinkConfig::Webhook(config) => Self::Webhook(webhook::Webhook::new(config)),
        }
    }

    fn attempt(&self, message: &Message, halt: &Halt) -> Attempt {
        match self {
            Self::Exec(exec) => exec.attempt(message, halt),
            Self::Webhook(webhook) => webhook.attempt(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        sinks: Vec<SinkConfig>,
    }

    #[test]
    fn a_configuration_reads_as_people_write_it_and_survives_a_round_trip() {
        let text = "[[sinks]]\nexec.argv = [\"/usr/local/bin/page\", \"--now\"]\n\
                    [[sinks]]\nwebhook = { url = \"https://example.org/h\", timeout_ms = 500 }\n";
        let file: File = toml::from_str(text).unwrap();
        let argv = vec!["/usr/local/bin/page".to_owned(), "--now".to_owned()];
        let webhook = WebhookConfig { timeout_ms: 500, ..WebhookConfig::new("https://example.org/h".into()) };
        let expected = vec![SinkConfig::Exec(ExecConfig::new(argv)), SinkConfig::Webhook(webhook)];
        assert_eq!(file.sinks, expected);
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<File>(&json).unwrap(), file);
    }

    #[test]
    fn a_misspelt_key_is_an_error_with_its_line() {
        let text = "[[sinks]]\n[sinks.exec]\nargv = [\"/bin/true\"]\ntimeout = 5\n";
        let error = toml::from_str::<File>(text).unwrap_err();
        assert!(error.to_string().contains("unknown field `timeout`"), "{error}");
        assert!(error.to_string().contains("line 4"), "{error}");
    }

    #[test]
    fn a_sink_without_a_program_says_so() {
        let error = SinkConfig::Exec(ExecConfig::new(Vec::new())).check().unwrap_err();
        assert!(error.to_string().contains("empty argv"), "{error}");
    }

    #[test]
    fn a_time_out_that_no_delivery_can_be_given_is_refused_before_it_is_counted_with() {
        for timeout_ms in [0, MAX_TIMEOUT_MS + 1, u64::MAX] {
            let exec = ExecConfig { timeout_ms, ..ExecConfig::new(vec!["/bin/sh".into()]) };
            let webhook = WebhookConfig { timeout_ms, ..WebhookConfig::new("http://127.0.0.1/".into()) };
            for sink in [SinkConfig::Exec(exec), SinkConfig::Webhook(webhook)] {
                assert!(matches!(sink.check(), Err(SinkError::Timeout { .. })));
                let (_switch, halt) = Halt::new().unwrap();
                let message = Message::new(&crate::message::tests::firing()).unwrap();
                assert!(matches!(Sink::new(sink).attempt(&message, &halt), Attempt::Failed { .. }));
            }
        }
    }
}
