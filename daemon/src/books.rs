//! The writer, what it is owed, and how it fares.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebbtide_core::{AlertEvent, AlertTransition, Incident, TickRecord, Ts};
use ebbtide_notify::{DeliveryReport, Outcome};
use ebbtide_store::{DeliveryId, Error, Settlement, Verdicts, Writer};
use tracing::{info, warn};

use crate::log::with_causes;

/// A write that takes longer is given up and tried again: the disk hangs.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);

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
    writer: Writer,
    pending: HashMap<DeliveryName, VecDeque<DeliveryId>>,
    /// Deliveries that have ended and are still pending in the store, which was not to be written. Never more than
    /// there were in the sinks' queues: while nothing can be written, no new numbers are given.
    unsettled: VecDeque<(DeliveryId, Settlement)>,
    health: SharedHealth,
}

impl Books {
    pub(crate) fn new(writer: Writer, health: SharedHealth) -> Self {
        Self { writer, pending: HashMap::new(), unsettled: VecDeque::new(), health }
    }

    pub(crate) fn health(&self) -> &SharedHealth {
        &self.health
    }

    /// Writes a tick; whether its commit has returned.
    pub(crate) async fn tick(&mut self, record: &TickRecord) -> bool {
        let written = within(self.writer.append(record)).await;
        let stored = self.judge(written).is_some();
        if stored {
            self.health.note(|h| {
                h.stored_ticks += 1;
                h.last_stored_seq = Some(record.tick.seq);
            });
            self.note_settlements().await;
        }
        stored
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
    fn judge<T>(&self, written: Result<T, String>) -> Option<T> {
        let (value, now) = match written {
            Ok(value) => (Some(value), None),
            Err(reason) => (None, Some(reason)),
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

/// The outcome, or in words why there is none in time.
async fn within<T>(write: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(WRITE_DEADLINE, write).await {
        Ok(outcome) => outcome.map_err(|error| with_causes(&error)),
        Err(_) => Err(format!("the disk has not answered within {} s", WRITE_DEADLINE.as_secs())),
    }
}

#[cfg(test)]
pub(crate) mod tests;
