//! Answers over HTTP on a unix socket.
//!
//! `GET /v1/status`, `/v1/frames` (a stream of statuses), `/v1/findings`, `/v1/history`, `/v1/series`,
//! `/v1/histories` and `/healthz`. Whoever asks may be hostile: sizes, counts and times are bounded, and a refusal is JSON like any answer. A status is turned
//! into JSON once, whatever number of clients asks for it; when nobody does it is not even made.

mod bulletin;
mod connection;
mod freshness;
mod interest;
mod routes;
mod socket;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use ebbtide_core::Tick;
use tokio::sync::watch;

use crate::wire::{Histories, HistoriesQuery, History, HistoryQuery, SeriesEntry, SeriesQuery, Status};

pub use connection::{HEADER_TIMEOUT, MAX_CONNECTIONS, MAX_REQUEST_HEAD_BYTES, SHUTDOWN_GRACE};
pub use interest::Interest;
pub use routes::{HISTORY_TIMEOUT, KEEP_ALIVE, MAX_HISTORIES, MAX_POINTS, MAX_STREAMS};
pub use socket::{BindError, Socket};

/// Somebody who can look up the past.
pub trait HistorySource: Send + Sync {
    /// Part of the history of one series.
    fn history(&self, query: HistoryQuery) -> HistoryFuture<'_, History>;

    /// The series that the history holds something of, in the order in which they were first seen.
    fn series(&self, wanted: SeriesQuery) -> HistoryFuture<'_, Vec<SeriesEntry>>;

    /// Part of the history of several series, [`HistoryError::TooMany`] where more than [`MAX_HISTORIES`] are wanted.
    fn histories(&self, query: HistoriesQuery) -> HistoryFuture<'_, Histories>;
}

/// An answer of a [`HistorySource`] to come.
pub type HistoryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, HistoryError>> + Send + 'a>>;

/// Why there is no history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// None is kept, or the database cannot be reached now.
    #[error("there is no history to be had now: {0}")]
    Unavailable(String),
    /// The look-up failed.
    #[error("the history could not be read: {0}")]
    Failed(String),
    /// So many series are wanted that the answer would be none that somebody reads.
    #[error(
        "{0} series fulfil that, and at most {MAX_HISTORIES} are told of at once: ask for fewer, by metric or GPU"
    )]
    TooMany(usize),
}

/// What is served.
#[derive(Clone)]
pub struct Api {
    status: watch::Receiver<Arc<Status>>,
    ticks: watch::Receiver<Tick>,
    interest: Interest,
    history: Arc<dyn HistorySource>,
}

impl Api {
    /// Serves statuses, and what `history` knows. Every tick is told in `ticks`; its status is published in `status`
    /// while `interest` says that somebody watches, or when it was asked for. The default tick is "no sample yet".
    #[must_use]
    pub fn new(
        status: watch::Receiver<Arc<Status>>,
        ticks: watch::Receiver<Tick>,
        interest: Interest,
        history: Arc<dyn HistorySource>,
    ) -> Self {
        Self { status, ticks, interest, history }
    }
}

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket could not be had.
    #[error("the API has no socket")]
    Bind(#[from] BindError),
    /// The socket cannot be waited on.
    #[error("the API's socket cannot be used by this runtime")]
    Listen(#[source] std::io::Error),
}

/// Binds `path` and answers until `shutdown`. Streams end then, and other answers have [`SHUTDOWN_GRACE`] to finish.
///
/// To learn of a socket that cannot be had before anything else starts, call [`Socket::bind`] and [`Socket::serve`].
///
/// # Errors
/// When the socket cannot be had; see [`BindError`].
pub async fn serve(path: &Path, api: Api, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
    Socket::bind(path)?.serve(api, shutdown).await
}
