//! Keeps, then tells: the task that owns the store's writer and the sinks' dispatcher.
//!
//! An alert is committed before anybody is told, so a restart knows what people know; and people are told even while
//! nothing can be committed, for a full disk must not silence an alert. What cannot be kept waits in memory, bounded,
//! and what has to go is counted.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ebbtide_core::{AlertEvent, FindingEvent, Incident, TickRecord};
use ebbtide_notify::{DeliveryReport, Dispatcher, Handed, Outcome, SinkConfig, StartError};
use ebbtide_store::{DeliveryId, Pending, Verdicts};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::books::Books;

/// Work that may wait for this task, which never holds it up for longer than a write may take.
pub(crate) const QUEUE: usize = 64;
/// Reports that may wait likewise; a sink delivers a few a second at most, and waits where there is no room.
pub(crate) const REPORT_QUEUE: usize = 256;
/// Ticks kept in memory while nothing can be written: five minutes at 1 Hz, about 3 MiB at 8 GPUs and 40 processes.
const BACKLOG_TICKS: usize = 300;
/// Decisions kept likewise; they are rare, so this is months of them.
const BACKLOG_DECISIONS: usize = 4_096;

/// Something to keep.
#[derive(Debug)]
pub(crate) enum Op {
    /// A tick.
    Tick(Box<TickRecord>),
    /// What was decided in a tick.
    Decided(Decisions),
    /// The end of a process.
    Ended(Box<Incident>),
}

/// What detector and policy made of a tick.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    pub(crate) findings: Vec<FindingEvent>,
    pub(crate) events: Vec<AlertEvent>,
    /// Whether people have been told already, as they are when the commit fails.
    pub(crate) told: bool,
}

impl Decisions {
    pub(crate) fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.events.is_empty()
    }
}

/// The sinks, whose reports go to the keeper's task: on a sink's own thread it is no harm to wait for room there.
///
/// # Errors
/// When the system has no thread or no file descriptor left.
pub(crate) fn dispatcher(
    sinks: Vec<SinkConfig>,
    reports: mpsc::Sender<DeliveryReport>,
) -> Result<Dispatcher, StartError> {
    Dispatcher::start(sinks, move |report| {
        if reports.blocking_send(report).is_err() {
            debug!("a delivery ended after the daemon did");
        }
    })
}

/// The task.
pub(crate) struct Keeper {
    books: Books,
    dispatcher: Dispatcher,
    sinks: Vec<String>,
    backlog: VecDeque<Op>,
    /// Sinks whose queue was full: what is for them waits in the store until some of it has ended.
    full: BTreeSet<String>,
    /// A delivery has ended since, so there is room.
    has_room: bool,
}

impl Keeper {
    /// Takes over the writer and the sinks, and tells again what an earlier run did not bring to its end.
    pub(crate) fn new(books: Books, dispatcher: Dispatcher, left: Vec<Pending>) -> Self {
        let sinks = dispatcher.sinks().map(str::to_owned).collect();
        let (backlog, full) = (VecDeque::new(), BTreeSet::new());
        let mut keeper = Self { books, dispatcher, sinks, backlog, full, has_room: false };
        for Pending { sink, event, id } in left {
            keeper.hand_over(&sink, &event, Some(id));
        }
        keeper
    }

    /// Works until `ops` ends; `limit` is how long the sinks may then take to finish.
    pub(crate) async fn run(
        mut self,
        mut ops: mpsc::Receiver<Op>,
        mut reports: mpsc::Receiver<DeliveryReport>,
        limit: Duration,
    ) {
        loop {
            tokio::select! {
                op = ops.recv() => {
                    let Some(op) = op else { break };
                    self.push(op);
                    while let Ok(op) = ops.try_recv() {
                        self.push(op);
                    }
                    self.write_backlog().await;
                    self.tell_waiting().await;
                }
                Some(report) = reports.recv() => {
                    self.has_room |= !matches!(report.outcome, Outcome::Retrying { .. });
                    self.books.settle(report).await;
                }
            }
        }
        self.write_backlog().await;
        self.end(reports, limit).await;
    }

    /// Enters work; where memory for it ends, the oldest of its sort goes and is counted.
    fn push(&mut self, op: Op) {
        let is_tick = matches!(op, Op::Tick(_));
        let same_sort = |held: &Op| matches!(held, Op::Tick(_)) == is_tick;
        let limit = if is_tick { BACKLOG_TICKS } else { BACKLOG_DECISIONS };
        if self.backlog.len() >= limit && self.backlog.iter().filter(|held| same_sort(held)).count() >= limit
        {
            let oldest = self.backlog.iter().position(same_sort);
            match self.backlog.remove(oldest.unwrap_or(0)) {
                Some(Op::Tick(record)) => self.books.lose(record.tick),
                _ => self.books.health().note(|h| h.lost_decisions += 1),
            }
        }
        self.backlog.push_back(op);
    }

    /// Writes in order until all is written or something fails; then people are told all the same.
    async fn write_backlog(&mut self) {
        while let Some(op) = self.backlog.pop_front() {
            let unwritten = match op {
                Op::Tick(mut record) => (!self.books.tick(&mut record).await).then_some(Op::Tick(record)),
                Op::Decided(decisions) => self.write_decisions(decisions).await.map(Op::Decided),
                Op::Ended(incident) => (!self.books.ended(&incident).await).then_some(Op::Ended(incident)),
            };
            if let Some(op) = unwritten {
                self.backlog.push_front(op);
                self.tell_unkept();
                return;
            }
        }
    }

    /// Gives the decisions back where they could not be written.
    async fn write_decisions(&mut self, decisions: Decisions) -> Option<Decisions> {
        let sinks: &[String] = if decisions.told { &[] } else { &self.sinks };
        let verdicts =
            Verdicts { findings: &decisions.findings, alerts: &[], events: &decisions.events, sinks };
        let Some(ids) = self.books.decided(&verdicts).await else { return Some(decisions) };
        if !decisions.told {
            self.tell(&decisions.events, ids);
        }
        None
    }

    /// Tells what waits because something could not be written.
    fn tell_unkept(&mut self) {
        let mut untold = Vec::new();
        for op in &mut self.backlog {
            if let Op::Decided(decisions) = op
                && !std::mem::replace(&mut decisions.told, true)
            {
                untold.extend(decisions.events.iter().cloned());
            }
        }
        self.tell(&untold, Vec::new());
    }

    /// Hands events to the sinks; `ids` name the deliveries in the store, event by event and sink by sink.
    fn tell(&mut self, events: &[AlertEvent], ids: Vec<DeliveryId>) {
        let (sinks, mut ids) = (self.sinks.clone(), ids.into_iter());
        for event in events {
            sinks.iter().for_each(|sink| self.hand_over(sink, event, ids.next()));
        }
    }

    /// Hands one event to one sink. What finds no room waits in the store, and all behind it, so that the order stays;
    /// what is not in the store is counted as dropped.
    fn hand_over(&mut self, sink: &str, event: &AlertEvent, id: Option<DeliveryId>) {
        if id.is_some() && self.full.contains(sink) {
            return;
        }
        match self.dispatcher.deliver(sink, event) {
            Handed::Queued => id.into_iter().for_each(|id| self.books.expect(sink, event, id)),
            Handed::Full => {
                warn!(sink, fingerprint = event.alert.fingerprint, "an alert found the sink's queue full");
                if id.is_some() {
                    self.full.insert(sink.to_owned());
                } else {
                    self.books.health().note(|h| h.dropped_deliveries += 1);
                }
            }
            Handed::NoSuchSink => info!(sink, "a delivery is left for a sink that is no longer configured"),
        }
    }

    /// Tells what found a queue full, once there is room in it.
    async fn tell_waiting(&mut self) {
        if self.full.is_empty() || !std::mem::take(&mut self.has_room) {
            return;
        }
        for sink in std::mem::take(&mut self.full) {
            let Some(waiting) = self.books.untold(&sink).await else {
                self.full.insert(sink);
                self.has_room = true;
                continue;
            };
            for Pending { event, id, .. } in waiting {
                self.hand_over(&sink, &event, Some(id));
            }
        }
    }

    /// Lets the sinks finish, notes what they report meanwhile, closes the store.
    async fn end(self, mut reports: mpsc::Receiver<DeliveryReport>, limit: Duration) {
        let Self { mut books, dispatcher, .. } = self;
        let mut shutdown = tokio::task::spawn_blocking(move || dispatcher.shutdown(limit));
        let left = loop {
            tokio::select! {
                Some(report) = reports.recv() => books.settle(report).await,
                left = &mut shutdown => break left.unwrap_or(0),
            }
        };
        while let Ok(report) = reports.try_recv() {
            books.settle(report).await;
        }
        if left > 0 {
            warn!(left, "deliveries were still waiting; they are tried again after the next start");
        }
        books.close().await;
    }
}

#[cfg(test)]
mod tests;
