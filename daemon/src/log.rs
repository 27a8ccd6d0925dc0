//! What the daemon says of itself: structured lines on stderr, for journald or a terminal.

use std::error::Error;

use tracing::level_filters::LevelFilter;

use crate::config::{LogFormat, LogLevel, LogSection};

/// An error with all its causes in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Starts logging for the whole process. A second call changes nothing.
pub fn start(section: &LogSection) {
    let level = match section.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let lines =
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    // Only a second start can fail, and then the first one's choice stands.
    let _ = match section.format {
        LogFormat::Text => lines.with_ansi(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}
