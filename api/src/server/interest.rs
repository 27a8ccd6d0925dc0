//! Who wants statuses: with nobody there none is made.
//!
//! A status is words for every series. Between two looks of a person it would be made and thrown away each tick, so it
//! is made while somebody watches a stream, and else when somebody asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// What the server wants of whoever makes statuses. Clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Interest {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    streams: AtomicUsize,
    asked: Notify,
}

/// Somebody who watches; the interest ends with it.
#[derive(Debug)]
pub(super) struct Watching {
    interest: Interest,
}

impl Interest {
    /// Whether each new status is wanted.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.inner.streams.load(Ordering::Relaxed) > 0
    }

    /// Ends when somebody has asked for the newest status.
    pub async fn asked(&self) {
        self.inner.asked.notified().await;
    }

    /// Asks for the newest status.
    pub(super) fn ask(&self) {
        self.inner.asked.notify_one();
    }

    /// Wants each status for as long as the answer lives.
    pub(super) fn watch(&self) -> Watching {
        self.inner.streams.fetch_add(1, Ordering::Relaxed);
        Watching { interest: self.clone() }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.interest.inner.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
