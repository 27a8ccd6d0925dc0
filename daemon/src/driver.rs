//! Runs the daemon: starts the tasks, executes the pipeline's effects, and ends it all in order.

use std::fs::DirBuilder;
use std::future::Future;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebbtide_api::address::{Surroundings, default_socket};
use ebbtide_api::server::{Api, BindError, Interest, ServeError, Socket};
use ebbtide_api::wire::{Health, Level, SCHEMA, Status};
use ebbtide_core::{Absent, AlertEvent, HostSample, ProbeHealth, Sample, Tick, Ts};
use ebbtide_notify::{SinkConfig, StartError};
use ebbtide_probe::{Probe, ProbeError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tracing::{debug, error, info, warn};

use crate::appraiser::Appraiser;
use crate::books::{Books, SharedHealth};
use crate::config::Config;
use crate::history::{DEADLINE, StoredHistory};
use crate::keeper::{self, Decisions, Keeper, Op};
use crate::past::Past;
use crate::pipeline::{Effect, Input, Pipeline, PipelineConfig};
use crate::running::PROC;
use crate::{log, probing, selfwatch, shutdown};

/// Samples that may wait for the pipeline: a step takes well under a millisecond, so one is the rule and 64 cover
/// the replay at start.
const SAMPLE_QUEUE: usize = 64;
/// How long the sources may take to end.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
/// How long the sinks may take to end.
const SINK_DEADLINE: Duration = Duration::from_secs(2);
/// How long it may take to step through what is queued, to write it, and to let the sinks end.
const KEEPER_DEADLINE: Duration = Duration::from_secs(4);
/// How long the API may take to end, and after it a look-up that hangs on a dead disk.
const API_DEADLINE: Duration = Duration::from_millis(2_500);
const RUNTIME_DEADLINE: Duration = Duration::from_secs(1);
/// What container runtimes grant between SIGTERM and SIGKILL; systemd grants more.
const GRANTED: Duration = Duration::from_secs(10);
const _: () = assert!(
    PROBE_DEADLINE.as_millis()
        + KEEPER_DEADLINE.as_millis()
        + API_DEADLINE.as_millis()
        + RUNTIME_DEADLINE.as_millis()
        < GRANTED.as_millis()
        && SINK_DEADLINE.as_millis() < KEEPER_DEADLINE.as_millis()
);
/// Ticks between two looks at what the daemon itself costs.
const SELF_WATCH_TICKS: u64 = 10;
/// Mode of a directory that is made for the database: command lines in it may hold secrets.
const STORE_MODE: u32 = 0o750;

/// Why the daemon could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system refused something basic.
    #[error("the daemon cannot start: {what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Nothing can be sampled.
    #[error("the probe cannot start")]
    Probe(#[source] ProbeError),
    /// A sink cannot work as it is configured.
    #[error("alerts could not be delivered as configured")]
    Sinks(#[source] StartError),
    /// Nobody could ask.
    #[error("the daemon cannot answer on its socket")]
    Api(#[source] BindError),
    /// A part that works as long as the daemon does is at its end.
    #[error(
        "{part} ended by itself, so the daemon ends too: its log says why, and a service manager starts it anew"
    )]
    Ended {
        /// Which part.
        part: &'static str,
    },
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When a part cannot start; a part that fails later is said in the status and tried again.
pub fn run(config: &Config) -> Result<(), RunError> {
    run_until(config, std::future::pending())
}

/// Runs until `stop` ends, or a signal comes.
///
/// # Errors
/// As for [`run`].
pub fn run_until(config: &Config, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let system = |what| move |source| RunError::System { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("starting its runtime"))?;
    let result = runtime.block_on(async {
        let signals = shutdown::signals().map_err(system("listening to signals"))?;
        let stop = async {
            tokio::select! {
                () = stop => debug!("asked to stop"),
                name = signals => info!(signal = name, "stopping"),
            }
        };
        supervise(config, stop).await
    });
    // A history query that hangs on a dead disk must not hold up the end.
    runtime.shutdown_timeout(RUNTIME_DEADLINE);
    result
}

async fn supervise(config: &Config, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let mut pipeline = Pipeline::new(pipeline_config(config));
    let mut past = Past::read(&config.store).await;
    past.play(&mut pipeline).await;

    // The socket first: it refuses a second daemon before that one touches anything else.
    let (audience, api) = Audience::new();
    let (end_api, api) = serve(config, api)?;
    make_directory(&config.store.path);
    warn_of_sinks(&config.sinks);
    let health = SharedHealth::default();
    let (ops, queue) = mpsc::channel(keeper::QUEUE);
    let (reports, reported) = mpsc::channel(keeper::REPORT_QUEUE);
    let dispatcher = keeper::dispatcher(config.sinks.clone(), reports).map_err(RunError::Sinks)?;
    let books = Books::new(&config.store.path, config.store.kept(), health.clone());
    let keeper =
        tokio::spawn(Keeper::new(books, dispatcher, past.undelivered).run(queue, reported, SINK_DEADLINE));
    let (sink, mut samples) = mpsc::channel(SAMPLE_QUEUE);
    let dropped = Arc::new(AtomicU64::new(0));
    let probe = start_probe(config, past.next_seq, sink, &dropped)?;

    let costs = Costs::default();
    let (appraiser, noted) = (Appraiser::start(PROC.into()), Vec::new());
    let mut driver = Driver { appraiser, pipeline, ops, audience, health, dropped, costs, noted, end_api };
    info!(socket = %socket(config).display(), database = %config.store.path.display(), "watching");
    let settled = driver.pipeline.go_live();
    driver.execute(settled).await;
    let ended = driver.drive(&mut samples, stop).await;
    if !probe.stop(PROBE_DEADLINE) {
        warn!("the driver does not answer; its thread is left behind");
    }
    driver.finish(samples, keeper, api).await;
    ended
}

/// Makes the directory of the database where it is missing. Without one the daemon watches all the same, and the
/// writer says so in the status.
fn make_directory(database: &Path) {
    let Some(directory) = database.parent().filter(|directory| !directory.as_os_str().is_empty()) else {
        return;
    };
    if let Err(error) = DirBuilder::new().recursive(true).mode(STORE_MODE).create(directory) {
        warn!(%error, directory = %directory.display(), "the directory of the database cannot be made");
    }
}

/// A sink that cannot work now is said before it is needed: its hook may still be installed.
fn warn_of_sinks(sinks: &[SinkConfig]) {
    for sink in sinks {
        if let Err(error) = sink.check() {
            let why = log::with_causes(&error);
            warn!(sink = sink.name(), "as things stand no alert can be delivered: {why}");
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn pipeline_config(config: &Config) -> PipelineConfig {
    PipelineConfig { host: host(), detect: config.detect.judged(), policy: config.alerts.clone() }
}

fn socket(config: &Config) -> PathBuf {
    config.api.socket.clone().unwrap_or_else(|| default_socket(&Surroundings::here()))
}

type ApiTask = JoinHandle<Result<(), ServeError>>;

fn serve(
    config: &Config,
    api: impl FnOnce(Arc<StoredHistory>) -> Api,
) -> Result<(oneshot::Sender<()>, ApiTask), RunError> {
    let history = Arc::new(StoredHistory::new(&config.store.path, DEADLINE));
    let socket = Socket::bind(&socket(config)).map_err(RunError::Api)?;
    let (end, ended) = oneshot::channel::<()>();
    let task = tokio::spawn(socket.serve(api(history), async move {
        // A dropped sender is an end too.
        let _ = ended.await;
    }));
    Ok((end, task))
}

fn start_probe(
    config: &Config,
    next_seq: u64,
    sink: mpsc::Sender<Sample>,
    dropped: &Arc<AtomicU64>,
) -> Result<Probe, RunError> {
    let dropped = Arc::clone(dropped);
    let hand_on = move |sample| match sink.try_send(sample) {
        Ok(()) => true,
        Err(mpsc::error::TrySendError::Full(_)) => {
            dropped.fetch_add(1, Ordering::Relaxed);
            true
        }
        Err(mpsc::error::TrySendError::Closed(_)) => false,
    };
    ebbtide_probe::start(probing::config(&config.probe, next_seq), hand_on).map_err(RunError::Probe)
}

/// The status before the first sample.
fn nothing_yet() -> Status {
    Status {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host(),
        tick: Tick::default(),
        level: Level::Unknown,
        gpus: Vec::new(),
        machine: HostSample { total: Err(Absent::NotYet), available: Err(Absent::NotYet) },
        findings: Vec::new(),
        alerts: Vec::new(),
        health: Health::default(),
    }
}

/// What the daemon itself costs, looked at now and then.
#[derive(Debug, Default)]
struct Costs {
    started_at: Option<Ts>,
    looked_at_seq: Option<u64>,
    rss_bytes: Option<u64>,
    cpu_ms: Option<u64>,
}

impl Costs {
    fn look(&mut self, tick: Tick) {
        self.started_at.get_or_insert(tick.at);
        if self.looked_at_seq.is_none_or(|seq| tick.seq >= seq + SELF_WATCH_TICKS) {
            self.looked_at_seq = Some(tick.seq);
            self.rss_bytes = selfwatch::rss_bytes();
            self.cpu_ms = selfwatch::cpu_ms();
        }
    }
}

/// Those who look: every tick is told, and a status made where somebody wants it.
struct Audience {
    status: watch::Sender<Arc<Status>>,
    ticks: watch::Sender<Tick>,
    interest: Interest,
}

impl Audience {
    /// An audience, and what it needs of the history to be served.
    fn new() -> (Self, impl FnOnce(Arc<StoredHistory>) -> Api) {
        let (status, published) = watch::channel(Arc::new(nothing_yet()));
        let (ticks, told) = watch::channel(Tick::default());
        let interest = Interest::default();
        let shared = interest.clone();
        let api = move |history: Arc<StoredHistory>| Api::new(published, told, shared, history);
        (Self { status, ticks, interest }, api)
    }
}

/// Executes what the pipeline wants done.
struct Driver {
    appraiser: Appraiser,
    pipeline: Pipeline,
    ops: mpsc::Sender<Op>,
    audience: Audience,
    health: SharedHealth,
    dropped: Arc<AtomicU64>,
    costs: Costs,
    noted: Vec<String>,
    end_api: oneshot::Sender<()>,
}

impl Driver {
    /// Steps through samples until asked to stop, or until a part of the daemon is no longer there.
    async fn drive(
        &mut self,
        samples: &mut mpsc::Receiver<Sample>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = self.ops.closed() => return Err(RunError::Ended { part: "the keeper of the history" }),
                () = self.audience.interest.asked() => self.show(),
                () = self.end_api.closed() => return Err(RunError::Ended { part: "the API" }),
                sample = samples.recv() => match sample {
                    Some(sample) => self.step(sample).await,
                    None => return Err(RunError::Ended { part: "the probe" }),
                },
            }
        }
    }

    async fn step(&mut self, mut sample: Sample) {
        self.appraiser.complete(&mut sample);
        let tick = sample.tick;
        self.costs.look(tick);
        self.log_new_notes(&sample.probe.notes);
        let effects = self.pipeline.step(Input::Sample(sample));
        self.execute(effects).await;
        self.audience.ticks.send_replace(tick);
        if self.audience.interest.is_watched() {
            self.show();
        }
    }

    async fn execute(&mut self, effects: Vec<Effect>) {
        let mut decisions = Decisions::default();
        for effect in effects {
            match effect {
                Effect::Persist(record) => self.keep(Op::Tick(Box::new(record))).await,
                Effect::Record(event) => decisions.findings.push(event),
                Effect::Deliver(event) => {
                    log_alert(&event);
                    decisions.events.push(event);
                }
                Effect::Freeze(incident) => {
                    warn!("{}", incident.summary);
                    self.keep(Op::Ended(incident)).await;
                }
            }
        }
        if !decisions.is_empty() {
            self.keep(Op::Decided(decisions)).await;
        }
    }

    /// Waits for room: the keeper's task never blocks for long, for it has its own backlog while it cannot write.
    async fn keep(&mut self, op: Op) {
        if self.ops.send(op).await.is_err() {
            error!("the keeper's task has ended; nothing more is kept");
        }
    }

    /// Shows the newest status, which is made for this.
    fn show(&self) {
        let Some(mut status) = self.pipeline.status() else { return };
        let kept = self.health.read();
        let drops = [("decisions", kept.lost_decisions), ("deliveries", kept.dropped_deliveries)];
        let dropped_samples = self.dropped.load(Ordering::Relaxed);
        status.health = Health {
            probe: ProbeHealth { dropped_samples, ..status.health.probe },
            stored_ticks: kept.stored_ticks,
            last_stored_seq: kept.last_stored_seq,
            unstored_ticks: kept.unstored_ticks,
            store_error: kept.store_error,
            store_log_bytes: Some(kept.log_bytes),
            delivered: kept.delivered,
            undelivered: kept.undelivered,
            started_at: self.costs.started_at.unwrap_or(status.tick.at),
            rss_bytes: self.costs.rss_bytes,
            cpu_ms: self.costs.cpu_ms,
            dropped: drops.into_iter().filter(|(_, n)| *n > 0).map(|(k, n)| (k.to_owned(), n)).collect(),
        };
        self.audience.status.send_replace(Arc::new(status));
    }

    /// What the probe cannot see, and what would open it: said once, when it is noticed.
    fn log_new_notes(&mut self, notes: &[String]) {
        for note in notes.iter().filter(|note| !self.noted.contains(*note)) {
            warn!("{note}");
        }
        notes.clone_into(&mut self.noted);
    }

    /// What is queued is judged, what is decided is written, then told, then the store closes; the API ends last, so
    /// that it can be watched.
    async fn finish(mut self, mut samples: mpsc::Receiver<Sample>, keeper: JoinHandle<()>, api: ApiTask) {
        samples.close();
        let written = async {
            while let Some(sample) = samples.recv().await {
                self.step(sample).await;
            }
            let Self { ops, audience, end_api, .. } = self;
            drop(ops);
            log_keeper(keeper.await);
            drop(audience);
            // The server may have ended already, with the error that is logged below.
            let _ = end_api.send(());
        };
        if tokio::time::timeout(KEEPER_DEADLINE, written).await.is_err() {
            warn!("the store did not close in time; what was acknowledged is safe");
        }
        match tokio::time::timeout(API_DEADLINE, api).await {
            Ok(ended) => log_api(ended),
            Err(_) => warn!("the API did not end in time"),
        }
    }
}

fn log_keeper(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(%error, "the keeper of the history has failed; what was acknowledged is safe");
    }
}

fn log_api(ended: Result<Result<(), ServeError>, JoinError>) {
    match ended {
        Ok(Ok(())) => info!("stopped"),
        Ok(Err(error)) => error!(%error, "the API ended with an error"),
        Err(error) => error!(%error, "the API has failed"),
    }
}

fn log_alert(event: &AlertEvent) {
    let finding = &event.alert.finding;
    info!(
        transition = event.transition.name(),
        kind = finding.key.kind.name(),
        severity = finding.severity.name(),
        gpu = %finding.key.series.gpu,
        process = %finding.subject.process,
        summary = %finding.summary,
        "alert"
    );
}

#[cfg(test)]
mod tests;
