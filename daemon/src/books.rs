//! The writer, what it is owed, and how it fares.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebbtide_core::{AlertEvent, AlertTransition, Incident, Tick, TickRecord, Ts};
use ebbtide_notify::{DeliveryReport, Outcome};
use ebbtide_store::{DeliveryId, Error, Gap, Pending, Reader, Settlement, StoreConfig, Verdicts, Writer};
use tracing::{info, warn};

use crate::log::with_causes;

/// A write that takes longer is given up and tried again: the disk hangs.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of a page of the write-ahead log, SQLite's default.
const LOG_PAGE_BYTES: u64 = 4096;

/// How keeping and telling fare, for the status.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeeperHealth {
    pub(crate) stored_ticks: u64,
    pub(crate) last_stored_seq: Option<u64>,
    pub(crate) unstored_ticks: u64,
    pub(crate) lost_decisions: u64,
    pub(crate) store_error: Option<String>,
    pub(crate) delivered: u64,
    pub(crate) undelivered: u64,
    pub(crate) dropped_deliveries: u64,
    /// Size of the write-ahead log at the last checkpoint.
    pub(crate) log_bytes: u64,
}

/// The health, shared with whoever publishes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedHealth(Arc<Mutex<KeeperHealth>>);

impl SharedHealth {
    pub(crate) fn read(&self) -> KeeperHealth {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut KeeperHealth)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What names one delivery in a report. Where two bear the same name, the queue of the sink keeps their order.
type DeliveryName = (Arc<str>, String, AlertTransition, Ts);

/// The writer with its books.
pub(crate) struct Books {
    path: PathBuf,
    writer: Writer,
    /// How far the file's numbers of ticks are ahead of ours: a file that was not there when we began can hold more.
    ahead: u64,
    /// Ticks that could not be kept and are not marked as missing yet.
    lost: Option<Gap>,
    pending: HashMap<DeliveryName, VecDeque<DeliveryId>>,
    /// Deliveries that have ended and are still pending in the store, which was not to be written. Never more than
    /// there were in the sinks' queues: while nothing can be written, no new numbers are given.
    unsettled: VecDeque<(DeliveryId, Settlement)>,
    health: SharedHealth,
}

impl Books {
    /// Books of the database at `path`, which keep what `kept` says.
    pub(crate) fn new(path: &Path, kept: StoreConfig, health: SharedHealth) -> Self {
        Self {
            path: path.to_path_buf(),
            writer: Writer::with(path, kept),
            ahead: 0,
            lost: None,
            pending: HashMap::new(),
            unsettled: VecDeque::new(),
            health,
        }
    }

    pub(crate) fn health(&self) -> &SharedHealth {
        &self.health
    }

    /// Writes a tick; whether its commit has returned.
    pub(crate) async fn tick(&mut self, record: &mut TickRecord) -> bool {
        let seq = record.tick.seq;
        record.tick.seq = seq.saturating_add(self.ahead);
        let mut written = within(self.writer.append(record)).await;
        if let Err(Failure::Store(Error::Behind { last, .. })) = &written {
            self.ahead = last.saturating_add(1).saturating_sub(seq);
            warn!(last, "the database holds more ticks than it did at the start: counting on from there");
            record.tick.seq = seq.saturating_add(self.ahead);
            written = within(self.writer.append(record)).await;
        }
        record.tick.seq = seq;
        let stored = self.judge(written).is_some();
        if stored {
            let log_bytes = self.writer.stats().log_pages * LOG_PAGE_BYTES;
            self.health.note(|h| {
                h.stored_ticks += 1;
                h.last_stored_seq = Some(seq);
                h.log_bytes = log_bytes;
            });
            self.mark_lost().await;
            self.note_settlements().await;
        }
        stored
    }

    /// A tick had to go unwritten.
    pub(crate) fn lose(&mut self, tick: Tick) {
        self.health.note(|h| h.unstored_ticks += 1);
        let reason = self.health.read().store_error.unwrap_or_else(|| "writing was too slow".to_owned());
        let lost = self.lost.get_or_insert(Gap { from: tick.at, to: tick.at, ticks: 0, reason });
        (lost.from, lost.to) = (lost.from.min(tick.at), lost.to.max(tick.at));
        lost.ticks += 1;
    }

    /// Marks in the history what is missing from it.
    async fn mark_lost(&mut self) {
        let Some(gap) = &self.lost else { return };
        let marked = within(self.writer.mark(gap)).await;
        if self.judge(marked).is_some() {
            self.lost = None;
        }
    }

    /// Writes what was decided; the numbers of its deliveries when its commit has returned.
    pub(crate) async fn decided(&mut self, verdicts: &Verdicts<'_>) -> Option<Vec<DeliveryId>> {
        let written = within(self.writer.record(verdicts)).await;
        self.judge(written)
    }

    /// Keeps an incident and the ticks before it; whether its commit has returned.
    pub(crate) async fn ended(&mut self, incident: &Incident) -> bool {
        let written = within(self.writer.freeze(incident)).await;
        self.judge(written).is_some()
    }

    /// Deliveries to `sink` that have not ended and are in nobody's hands, the oldest first; `None` where the store cannot
    /// be read now.
    pub(crate) async fn untold(&self, sink: &str) -> Option<Vec<Pending>> {
        let read = within(Reader::new(&self.path, WRITE_DEADLINE).pending_deliveries_to(sink)).await;
        let mut stored = read
            .inspect_err(|failure| {
                warn!(sink, error = with_causes(failure), "what waits for a sink cannot be read");
            })
            .ok()?;
        let in_hand = |id: &DeliveryId| {
            self.pending.values().any(|ids| ids.contains(id)) || self.unsettled.iter().any(|(of, _)| of == id)
        };
        stored.retain(|pending| !in_hand(&pending.id));
        Some(stored)
    }

    /// Expects a report of this delivery.
    pub(crate) fn expect(&mut self, sink: &str, event: &AlertEvent, id: DeliveryId) {
        let name = (Arc::from(sink), event.alert.fingerprint.clone(), event.transition, event.at);
        self.pending.entry(name).or_default().push_back(id);
    }

    /// Notes how a delivery ended.
    pub(crate) async fn settle(&mut self, report: DeliveryReport) {
        let how = match report.outcome {
            Outcome::Retrying { .. } => return,
            Outcome::Delivered => Settlement::Delivered,
            Outcome::GivenUp { .. } => Settlement::GivenUp,
        };
        self.health.note(|h| match how {
            Settlement::Delivered => h.delivered += 1,
            Settlement::GivenUp => h.undelivered += 1,
        });
        let name = (report.sink, report.fingerprint, report.transition, report.at);
        let Some(ids) = self.pending.get_mut(&name) else { return };
        self.unsettled.extend(ids.pop_front().map(|id| (id, how)));
        if ids.is_empty() {
            self.pending.remove(&name);
        }
        self.note_settlements().await;
    }

    /// Writes down how deliveries ended, as far as the store can be written: what stays is told again after a restart.
    async fn note_settlements(&mut self) {
        while let Some(&(id, how)) = self.unsettled.front() {
            let written = within(self.writer.settle(id, how)).await;
            if self.judge(written).is_none() {
                return;
            }
            self.unsettled.pop_front();
        }
    }

    pub(crate) async fn close(self) {
        self.writer.close().await;
    }

    /// Says once when writing begins to fail, and once when it works again.
    fn judge<T>(&self, written: Result<T, Failure>) -> Option<T> {
        let (value, now) = match written {
            Ok(value) => (Some(value), None),
            Err(failure) => (None, Some(with_causes(&failure))),
        };
        let before = self.health.read().store_error;
        match (&before, &now) {
            (None, Some(reason)) => {
                warn!(%reason, "nothing is being stored; sampling, judging and alerting go on");
            }
            (Some(_), None) => info!("storing again"),
            _ => {}
        }
        self.health.note(|h| h.store_error = now);
        value
    }
}

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] Error),
    #[error("the disk has not answered within {} s", WRITE_DEADLINE.as_secs())]
    Hangs,
}

/// The outcome, or that there is none in time.
async fn within<T>(write: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(WRITE_DEADLINE, write).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Failure::Hangs),
    }
}

#[cfg(test)]
pub(crate) mod tests;
