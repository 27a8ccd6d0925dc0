//! What the daemon tells and how it is asked: wire types, what they mean in words, the HTTP server over a unix socket,
//! and its client.

pub mod absence;
pub mod address;
#[cfg(feature = "client")]
pub mod client;
pub mod explain;
#[cfg(feature = "server")]
pub mod server;
pub mod wire;

use wire::{History, HistoryQuery, Status};

/// Somebody who can answer for a daemon: over its socket, or in process from a database.
///
/// Calls block; a caller that must stay responsive makes them on a thread of its own.
pub trait Client: Send {
    /// The newest status.
    ///
    /// # Errors
    /// When nobody answers, or not in the language of this version.
    fn status(&self) -> Result<Status, ClientError>;

    /// Part of the history of one series.
    ///
    /// # Errors
    /// As for [`Client::status`]; also when the daemon has no history.
    fn history(&self, query: &HistoryQuery) -> Result<History, ClientError>;

    /// Each new status as it is published, until the daemon ends the stream. A client that is slow misses some.
    ///
    /// # Errors
    /// As for [`Client::status`]; items carry later errors.
    fn watch(&self) -> Result<StatusStream, ClientError>;
}

/// Statuses as they come.
pub type StatusStream = Box<dyn Iterator<Item = Result<Status, ClientError>> + Send>;

/// Why a client has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens there.
    #[error(
        "no ebbtide daemon answers at {address}: start it with `ebbtide daemon`, or name its socket with --socket"
    )]
    NotRunning {
        /// Where it was looked for.
        address: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The socket is there, but this user may not use it.
    #[error("no permission to use {address}: join the group that owns it, or run as its user")]
    NoPermission {
        /// The socket.
        address: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The daemon did not answer in time.
    #[error("the daemon at {address} did not answer within {seconds} s")]
    Timeout {
        /// The socket.
        address: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The connection broke.
    #[error("the connection to the daemon at {address} broke")]
    Broken {
        /// The socket.
        address: String,
        /// How.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The daemon refused the request.
    #[error("the daemon refused: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// The answer could not be understood.
    #[error("the daemon's answer could not be read: is it of another version?")]
    Garbled(#[source] serde_json::Error),
}
