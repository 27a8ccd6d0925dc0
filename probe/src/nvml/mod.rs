//! NVIDIA GPUs through NVML, on one thread that owns the driver.
//!
//! A call into the driver can hang: 45 s a call while the GPU's firmware does not answer, or for ever. So all calls
//! are made by one thread that nobody joins. [`NvmlSource`] asks it for a sweep, waits until a deadline, and
//! otherwise says that what it shows is stale; it takes up again when the outstanding answer arrives.

mod account;
mod budget;
mod census;
mod device;
mod driver;
mod fault;
mod list;
mod schedule;
mod session;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use ebbtide_core::{Absent, Bytes, GpuState, ProbeHealth, Reading, Tick, WorldEvent};

use self::device::Round;
use self::session::Session;
use crate::source::{GpuSource, RawGpu, Sweep};

/// One question and one answer may be under way: a second question before the answer would only pile up behind a
/// driver that hangs.
const UNDER_WAY: usize = 1;

/// How long a source that is dropped waits for the driver to be shut down in order. Killing a client in the middle
/// of a call has wedged GPUs (github.com/NVIDIA/dcgm-exporter, issue 84); a call that hangs is not waited for.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// Until then a driver that has never answered is being opened rather than hung: without persistence mode that
/// takes 1 to 3 s a GPU (docs.nvidia.com/deploy/driver-persistence/overview.html).
const OPENING: Duration = Duration::from_secs(60);

/// The most events kept while nobody asks; older ones are dropped and the drop is noted.
const MAX_EVENTS: usize = 256;

/// How NVML is asked.
#[derive(Debug, Clone)]
pub struct NvmlConfig {
    /// The library; `None` is `libnvidia-ml.so.1` where the loader finds it.
    pub library: Option<PathBuf>,
    /// Between two readings of the process lists of one GPU; below 5 s it is 5 s.
    pub list_interval: Duration,
    /// Between two looks at the GPUs' health, at their number and at their partitioning.
    pub health_interval: Duration,
    /// Driver time a minute and GPU. Where it is used up, lists are read less often, then memory.
    pub budget: Duration,
    /// How long a sweep waits for the driver.
    pub deadline: Duration,
    /// The host's memory: the total of parts that share it.
    pub host_total: Reading<Bytes>,
}

impl Default for NvmlConfig {
    fn default() -> Self {
        Self {
            library: None,
            list_interval: schedule::LIST_FLOOR,
            health_interval: Duration::from_secs(30),
            budget: Duration::from_millis(600),
            deadline: Duration::from_millis(667),
            host_total: Err(Absent::NotYet),
        }
    }
}

/// NVML as a source of GPUs. Never blocks beyond its deadline, whatever the driver does.
#[derive(Debug)]
pub struct NvmlSource {
    config: NvmlConfig,
    link: Link,
    /// Since when an answer is outstanding beyond its deadline.
    hung_since: Option<Instant>,
    last: Sweep,
    answered: bool,
    restarts: u64,
    /// The thread ended and could not be started again.
    down: bool,
}

/// The two channels to the NVML thread.
#[derive(Debug)]
struct Link {
    ask: Option<SyncSender<Round>>,
    answers: Receiver<Sweep>,
}

impl NvmlSource {
    /// Starts the NVML thread. A driver that is absent is no error: it is looked for until it comes.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(config: NvmlConfig) -> io::Result<Self> {
        let link = Link::start(config.clone())?;
        let health = ProbeHealth { source: "nvml".to_owned(), ..ProbeHealth::default() };
        let last = Sweep { gpus: Vec::new(), events: Vec::new(), health };
        Ok(Self { config, link, hung_since: None, last, answered: false, restarts: 0, down: false })
    }

    fn take_late_answer(&mut self) {
        if self.hung_since.is_none() {
            return;
        }
        match self.link.answers.try_recv() {
            Ok(answer) => {
                self.hung_since = None;
                self.keep(answer);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.restart(),
        }
    }

    fn ask(&mut self, tick: Tick) -> bool {
        let asked = Instant::now();
        let deadline = asked + self.config.deadline;
        let sent = self.link.ask.as_ref().is_some_and(|ask| ask.try_send(Round { tick, deadline }).is_ok());
        if !sent {
            self.restart();
            return false;
        }
        match self.link.answers.recv_timeout(self.config.deadline) {
            Ok(answer) => {
                self.keep(answer);
                true
            }
            Err(RecvTimeoutError::Timeout) => {
                self.hung_since = Some(asked);
                false
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.restart();
                false
            }
        }
    }

    /// Remembers an answer; events of answers that came too late are not lost.
    fn keep(&mut self, answer: Sweep) {
        let mut events = std::mem::take(&mut self.last.events);
        events.extend(answer.events);
        let excess = events.len().saturating_sub(MAX_EVENTS);
        if excess > 0 {
            events.drain(..excess);
            tracing::warn!(excess, "more driver events than are kept while the driver hangs");
        }
        self.last = Sweep { events, ..answer };
        self.answered = true;
    }

    /// A new thread in the place of one that ended, which only a panic makes it do.
    fn restart(&mut self) {
        match Link::start(self.config.clone()) {
            Ok(link) => {
                self.link = link;
                self.hung_since = None;
                self.restarts += 1;
                self.down = false;
                tracing::error!("the NVML thread ended and was started again");
            }
            Err(error) if !self.down => {
                self.down = true;
                tracing::error!(%error, "the NVML thread ended and could not be started again");
            }
            Err(_) => {}
        }
    }

    fn fresh(&mut self) -> Sweep {
        let events = std::mem::take(&mut self.last.events);
        self.annotated(self.last.gpus.clone(), events)
    }

    fn stale(&self) -> Sweep {
        let gpus = self.last.gpus.iter().cloned().map(stale).collect();
        self.annotated(gpus, Vec::new())
    }

    fn annotated(&self, gpus: Vec<RawGpu>, events: Vec<WorldEvent>) -> Sweep {
        let mut health = self.last.health.clone();
        health.reopened += self.restarts;
        health.notes.extend(self.hung_since.map(|since| hang_note(since.elapsed(), self.answered)));
        if self.down {
            health.notes.push("the NVML thread cannot be started: raise the limit of tasks".to_owned());
        }
        Sweep { gpus, events, health }
    }
}

/// How long the driver has not answered, in steps that double: whoever logs what is new logs a handful of lines and
/// not one a second.
fn hang_note(waited: Duration, has_answered: bool) -> String {
    let seconds = waited.as_secs().max(1);
    let seconds = 1_u64 << seconds.ilog2();
    if !has_answered && waited < OPENING {
        return format!(
            "the NVIDIA driver is being opened, for more than {seconds} s now: persistence mode (nvidia-smi -pm 1) \
             makes that faster"
        );
    }
    format!(
        "the NVIDIA driver has not answered for more than {seconds} s, so GPU figures are missing: look at the \
         kernel log for XID 119 or a stuck nvidia task"
    )
}

impl GpuSource for NvmlSource {
    fn sweep(&mut self, tick: Tick) -> Sweep {
        self.take_late_answer();
        if self.hung_since.is_none() && self.ask(tick) { self.fresh() } else { self.stale() }
    }
}

impl Drop for NvmlSource {
    fn drop(&mut self) {
        self.link.ask = None;
        if self.hung_since.is_none() {
            // The thread closes the channel once it has shut the driver down.
            let _closed = self.link.answers.recv_timeout(SHUTDOWN_WAIT);
        }
    }
}

impl Link {
    fn start(config: NvmlConfig) -> io::Result<Self> {
        let (ask, questions) = mpsc::sync_channel(UNDER_WAY);
        let (reply, answers) = mpsc::sync_channel(UNDER_WAY);
        std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || answer(config, &questions, reply))?;
        Ok(Self { ask: Some(ask), answers })
    }
}

/// The NVML thread. It is detached on purpose: it may never come back from the driver.
fn answer(config: NvmlConfig, questions: &Receiver<Round>, reply: SyncSender<Sweep>) {
    let mut session = Session::new(config);
    while let Ok(round) = questions.recv() {
        if reply.send(session.sweep(round)).is_err() {
            break;
        }
    }
    drop(session);
    drop(reply);
}

fn stale(gpu: RawGpu) -> RawGpu {
    if gpu.state == GpuState::Lost {
        return gpu;
    }
    RawGpu {
        state: GpuState::Stale,
        memory: Err(Absent::Timeout),
        utilization: Err(Absent::Timeout),
        processes: Err(Absent::Timeout),
        ..gpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_silence_is_said_in_a_handful_of_words() {
        let day = (0..86_400).map(|second| hang_note(Duration::from_secs(second), true));
        let said: std::collections::BTreeSet<String> = day.collect();
        assert_eq!(said.len(), 17, "1 s to 65536 s");
        assert!(hang_note(Duration::from_secs(70), true).contains("for more than 64 s"));
    }
}
