//! The newest status as JSON: written once, read by all.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::Stream;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::connection::stopping;
use super::interest::Watching;
use crate::absence::Reasoned;
use crate::wire::Status;

/// An event of a stream begins with this and ends with an empty line; JSON in one line needs nothing more.
const EVENT_START: &[u8] = b"data: ";
const EVENT_END: &[u8] = b"\n\n";

/// A line that clients skip, so that both sides notice a connection that is dead.
const COMMENT: &[u8] = b":\n\n";

/// The statuses that are published.
pub(super) struct Bulletin {
    newest: watch::Receiver<Arc<Status>>,
    written: Mutex<Option<Written>>,
}

/// A status and its text; all that carry the text share one allocation.
#[derive(Clone)]
pub(super) struct Written {
    of: Arc<Status>,
    event: Bytes,
}

impl Written {
    /// As one event of a stream.
    pub(super) fn event(&self) -> Bytes {
        self.event.clone()
    }

    /// As a document.
    pub(super) fn json(&self) -> Bytes {
        self.event.slice(EVENT_START.len()..self.event.len() - EVENT_END.len())
    }
}

impl Bulletin {
    pub(super) const fn new(newest: watch::Receiver<Arc<Status>>) -> Self {
        Self { newest, written: Mutex::new(None) }
    }

    /// Whether the newest status is of tick `seq` or a later one.
    pub(super) fn has(&self, seq: u64) -> bool {
        self.newest.borrow().tick.seq >= seq
    }

    /// The status of tick `seq` or a later one, once it is there; `None` where it does not come in `time`.
    pub(super) async fn since(&self, seq: u64, time: Duration) -> Option<Arc<Status>> {
        let mut newest = self.newest.clone();
        let there = newest.wait_for(|status| status.tick.seq >= seq);
        let status = tokio::time::timeout(time, there).await.ok()?.ok()?;
        Some(Arc::clone(&status))
    }

    /// The text of a status, written now if it is the first time that somebody asks for it.
    pub(super) fn written(&self, status: Arc<Status>) -> Result<Written, serde_json::Error> {
        let mut last = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(written) = last.as_ref().filter(|written| Arc::ptr_eq(&written.of, &status)) {
            return Ok(written.clone());
        }
        let mut text = EVENT_START.to_vec();
        serde_json::to_writer(&mut text, &Reasoned::of(&status))?;
        text.extend_from_slice(EVENT_END);
        let written = Written { of: status, event: text.into() };
        *last = Some(written.clone());
        Ok(written)
    }

    /// The newest status now and each one that follows, until `stopped` or until nothing is published any more.
    /// While a client does not read, nothing is kept for it: it goes on with the newest.
    pub(super) fn stream(
        self: Arc<Self>,
        keep_alive: Duration,
        stopped: watch::Receiver<bool>,
        place: (OwnedSemaphorePermit, Watching),
    ) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let mut newest = self.newest.clone();
        newest.mark_changed();
        let reader = Reader { bulletin: self, newest, stopped, keep_alive, _place: place };
        futures_util::stream::unfold(reader, async |mut reader| {
            let event = reader.next().await?;
            Some((Ok(event), reader))
        })
    }
}

/// One client of the stream.
struct Reader {
    bulletin: Arc<Bulletin>,
    newest: watch::Receiver<Arc<Status>>,
    stopped: watch::Receiver<bool>,
    keep_alive: Duration,
    _place: (OwnedSemaphorePermit, Watching),
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        tokio::select! {
            () = stopping(&mut self.stopped) => return None,
            changed = self.newest.changed() => changed.ok()?,
            () = tokio::time::sleep(self.keep_alive) => return Some(Bytes::from_static(COMMENT)),
        }
        let status = Arc::clone(&self.newest.borrow_and_update());
        match self.bulletin.written(status) {
            Ok(written) => Some(written.event()),
            Err(error) => {
                tracing::error!(%error, "a status has no form in JSON");
                None
            }
        }
    }
}
