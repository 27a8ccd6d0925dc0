//! One thread and one bounded queue a sink.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide_core::{AlertEvent, AlertTransition, Ts};

use super::backoff::Backoff;
use super::halt::{Halt, HaltSwitch};
use super::{Attempt, Sink, SinkConfig};
use crate::message::{Message, fnv1a};

/// Events that wait for one sink. Hundreds of alerts at once is a machine-wide event that the first few have told;
/// beyond that a queue only delays what is new. At a few KiB an event it is about a mebibyte.
pub const QUEUE_EVENTS: usize = 256;

/// Tries of one event before it is given up: with the back-off from 1 s to 5 min that is about a quarter of an hour,
/// in which the sink's other events wait in their order.
pub const MAX_ATTEMPTS: u32 = 12;

/// What became of one try to deliver one event to one sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    /// Which sink; free of secrets.
    pub sink: Arc<str>,
    /// Of which alert.
    pub fingerprint: String,
    /// Which event of it.
    pub transition: AlertTransition,
    /// When that event was.
    pub at: Ts,
    /// The number of the try, from 1.
    pub attempt: u32,
    /// What became of it.
    pub outcome: Outcome,
}

/// How a try ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has it.
    Delivered,
    /// It did not work; another try follows.
    Retrying {
        /// What happened.
        reason: String,
        /// When the next try is made.
        wait: Duration,
    },
    /// It did not work, and no more tries follow.
    GivenUp {
        /// What happened.
        reason: String,
    },
}

/// What became of an event that was handed to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handed {
    /// The sink has it; reports follow.
    Queued,
    /// Its queue is full, so the event was dropped: nothing of it is reported.
    Full,
    /// There is no sink of that name.
    NoSuchSink,
}

/// Why the dispatcher could not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "the thread for the sink {sink} could not be started: are the limits on processes or open files reached?"
)]
pub struct StartError {
    /// Which sink.
    pub sink: String,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// The sinks at work.
pub struct Dispatcher {
    lanes: Vec<Lane>,
    halt: HaltSwitch,
    /// Hangs up when the last sink's thread has ended.
    ended: Receiver<Infallible>,
}

type Report = dyn Fn(DeliveryReport) + Send + Sync;

/// The dispatcher's side of one sink.
struct Lane {
    name: Arc<str>,
    queue: SyncSender<AlertEvent>,
    /// Events that were queued and are not yet delivered or given up.
    pending: Arc<AtomicU64>,
}

impl Dispatcher {
    /// Starts one thread a sink. `report` hears of every try, on the sinks' threads and never on a caller's; while it
    /// blocks, that sink waits.
    ///
    /// A sink that cannot work as configured starts nevertheless and fails its deliveries by name: a hook may be
    /// installed later. [`SinkConfig::check`] says so beforehand.
    ///
    /// # Errors
    /// When the system has no thread or no file descriptor left.
    pub fn start(
        sinks: Vec<SinkConfig>,
        report: impl Fn(DeliveryReport) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let report: Arc<Report> = Arc::new(report);
        Self::paced(sinks, &report, Backoff::default())
    }

    fn paced(sinks: Vec<SinkConfig>, report: &Arc<Report>, backoff: Backoff) -> Result<Self, StartError> {
        let (switch, halt) = Halt::new().map_err(|source| StartError { sink: "(any)".into(), source })?;
        let (alive, ended) = mpsc::channel();
        let mut lanes = Vec::with_capacity(sinks.len());
        for config in sinks {
            let name: Arc<str> = unique_name(&config, &lanes).into();
            let (queue, events) = mpsc::sync_channel(QUEUE_EVENTS);
            let pending = Arc::new(AtomicU64::new(0));
            let worker = Worker {
                name: Arc::clone(&name),
                sink: Sink::new(config),
                backoff,
                halt: halt.clone(),
                report: Arc::clone(report),
                pending: Arc::clone(&pending),
                _alive: alive.clone(),
            };
            thread::Builder::new()
                .name("sink".into())
                .spawn(move || worker.run(&events))
                .map_err(|source| StartError { sink: name.to_string(), source })?;
            lanes.push(Lane { name, queue, pending });
        }
        Ok(Self { lanes, halt: switch, ended })
    }

    /// The names of the sinks, in the order of the configuration.
    pub fn sinks(&self) -> impl Iterator<Item = &str> {
        self.lanes.iter().map(|lane| &*lane.name)
    }

    /// Hands an event to one sink and returns at once.
    pub fn deliver(&self, sink: &str, event: &AlertEvent) -> Handed {
        let Some(lane) = self.lanes.iter().find(|lane| &*lane.name == sink) else {
            return Handed::NoSuchSink;
        };
        lane.pending.fetch_add(1, Ordering::Relaxed);
        match lane.queue.try_send(event.clone()) {
            Ok(()) => Handed::Queued,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                lane.pending.fetch_sub(1, Ordering::Relaxed);
                Handed::Full
            }
        }
    }

    /// Lets the sinks work off what they hold, at most for `limit`, and returns how many deliveries were left.
    ///
    /// What fails while ending is not tried again. A hook that still runs at the end is stopped; a webhook that is
    /// still waiting is left to its own time-out, which nobody waits for.
    pub fn shutdown(self, limit: Duration) -> u64 {
        let deadline = Instant::now() + limit;
        // The threads stop a little earlier, so that a hook is killed before we stop looking.
        self.halt.throw(deadline - limit / 10);
        let pending: Vec<_> = self.lanes.into_iter().map(|lane| lane.pending).collect();
        // The queues are closed now, so each thread ends with its last event or at the deadline.
        let left = deadline.saturating_duration_since(Instant::now());
        let _hung_up_or_late = self.ended.recv_timeout(left);
        pending.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// A sink's name, numbered where another bears it already: deliveries are booked by it.
fn unique_name(config: &SinkConfig, others: &[Lane]) -> String {
    let name = config.name();
    let same = others.iter().filter(|lane| lane.name.split(" #").next() == Some(&name)).count();
    if same == 0 { name } else { format!("{name} #{}", same + 1) }
}

impl DeliveryReport {
    fn of(sink: &Arc<str>, event: &AlertEvent, attempt: u32, outcome: Outcome) -> Self {
        Self {
            sink: Arc::clone(sink),
            fingerprint: event.alert.fingerprint.clone(),
            transition: event.transition,
            at: event.at,
            attempt,
            outcome,
        }
    }
}

/// The thread's side of one sink.
struct Worker {
    name: Arc<str>,
    sink: Sink,
    backoff: Backoff,
    halt: Halt,
    report: Arc<Report>,
    pending: Arc<AtomicU64>,
    _alive: Sender<Infallible>,
}

impl Worker {
    fn run(&self, events: &Receiver<AlertEvent>) {
        for event in events {
            if self.halt.expired() || !self.carry(&event) {
                // What remains stays pending, which is how the dispatcher counts it.
                continue;
            }
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Tries until the event is delivered or given up; `false` where the daemon's end came first.
    fn carry(&self, event: &AlertEvent) -> bool {
        let message = match Message::new(event) {
            Ok(message) => message,
            Err(error) => {
                self.tell(event, 1, Outcome::GivenUp { reason: format!("it has no form in JSON: {error}") });
                return true;
            }
        };
        let salt = fnv1a(message.idempotency_key().as_bytes());
        for attempt in 1..=MAX_ATTEMPTS {
            let (reason, after) = match self.sink.attempt(&message, &self.halt) {
                Attempt::Delivered => {
                    self.tell(event, attempt, Outcome::Delivered);
                    return true;
                }
                Attempt::Failed { reason } => {
                    self.tell(event, attempt, Outcome::GivenUp { reason });
                    return true;
                }
                Attempt::Retry { reason, after } => (reason, after),
            };
            if attempt == MAX_ATTEMPTS {
                let reason = format!("{reason}; given up after {attempt} tries");
                self.tell(event, attempt, Outcome::GivenUp { reason });
                return true;
            }
            let wait = self.backoff.after(attempt, salt).max(after.unwrap_or_default());
            let ending = self.halt.deadline().is_some();
            self.tell(event, attempt, Outcome::Retrying { reason, wait });
            if ending {
                return false;
            }
            // When the end comes during the wait, one last try is made at once.
            self.halt.wait(wait);
        }
        true
    }

    fn tell(&self, event: &AlertEvent, attempt: u32, outcome: Outcome) {
        match &outcome {
            Outcome::Delivered => {}
            Outcome::Retrying { reason, wait } => {
                tracing::warn!(sink = %self.name, attempt, reason, ?wait, "an alert is not delivered yet");
            }
            Outcome::GivenUp { reason } => {
                tracing::error!(sink = %self.name, attempt, reason, "an alert is not delivered");
            }
        }
        (self.report)(DeliveryReport::of(&self.name, event, attempt, outcome));
    }
}

#[cfg(test)]
mod tests;
