//! The sampler: one thread that makes a [`Sample`] each interval and hands it on.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebbtide_core::{Sample, Tick, Ts};

use crate::engine::source::EngineSource;
use crate::engine::{EngineTarget, EngineWatch, WatchConfig};
use crate::engine_status::EngineStatusDir;
use crate::host_gpu::{HostGpu, HostGpuConfig};
use crate::nvml::{NvmlConfig, NvmlSource};
use crate::proc::{ProcReader, ProcRoots};
use crate::roster::Roster;
use crate::source::{GpuSource, Sweep};

/// The shortest interval: the driver's own figures are no younger, and polling faster slows its users
/// (github.com/flightlessmango/MangoHud, issue 2104).
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The longest that a sweep is waited for: a healthy driver answers in milliseconds, and stopping waits for it too.
const LONGEST_SWEEP: Duration = Duration::from_secs(2);

/// As often as process lists are read: an engine's figures are compared with those. Each reading costs a Python server
/// some milliseconds of its one interpreter.
const ENGINE_INTERVAL: Duration = Duration::from_secs(5);

/// What is sampled, and how often.
#[derive(Debug, Clone)]
pub struct ProbeConfig {
    /// Between two samples; at least [`SHORTEST_INTERVAL`].
    pub interval: Duration,
    /// Between two readings of the process lists of one GPU; below 5 s it is 5 s.
    pub list_interval: Duration,
    /// Between two looks at the GPUs' health, at their number and at their partitioning.
    pub health_interval: Duration,
    /// Driver time a minute and GPU.
    pub nvml_budget: Duration,
    /// What GPUs are read.
    pub source: SourceConfig,
    /// Where `/proc`, `/dev` and the like are.
    pub roots: ProcRoots,
    /// Where engines leave their status files; `None` looks for none.
    pub engine_dir: Option<PathBuf>,
    /// Engines that are asked over HTTP, wherever they are.
    pub engines: Vec<EngineTarget>,
    /// Whether the listening sockets of GPU processes are tried for engines too: loopback in our own network
    /// namespace, a namespace's own address in another.
    pub discover_engines: bool,
    /// Between two readings of one engine.
    pub engine_interval: Duration,
    /// A directory of engine tables that go before the embedded ones.
    pub engine_tables: Option<PathBuf>,
    /// Sequence number of the first sample: one more than the last of the stored history.
    pub start_seq: u64,
}

/// What GPUs are read.
#[derive(Debug, Clone)]
pub enum SourceConfig {
    /// NVIDIA GPUs.
    Nvml {
        /// The library; `None` is `libnvidia-ml.so.1` where the loader finds it.
        library: Option<PathBuf>,
    },
    /// Host memory, presented as one GPU.
    Host(HostGpuConfig),
}

impl Default for ProbeConfig {
    fn default() -> Self {
        let nvml = NvmlConfig::default();
        Self {
            interval: Duration::from_secs(1),
            list_interval: nvml.list_interval,
            health_interval: nvml.health_interval,
            nvml_budget: nvml.budget,
            source: SourceConfig::Nvml { library: None },
            roots: ProcRoots::default(),
            engine_dir: None,
            engines: Vec::new(),
            discover_engines: false,
            engine_interval: ENGINE_INTERVAL,
            engine_tables: None,
            start_seq: 1,
        }
    }
}

/// Why sampling did not start.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The interval is too short.
    #[error("a sampling interval of {given:?} is too short: use {SHORTEST_INTERVAL:?} or more")]
    Interval {
        /// The interval asked for.
        given: Duration,
    },
    /// The operating system gave no thread.
    #[error("cannot start the {name} thread; raise the limit of tasks (ulimit -u, TasksMax=)")]
    Thread {
        /// Which thread.
        name: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// A running sampler. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Probe {
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

/// Starts sampling. Each sample goes to `sink`, on the sampler's own thread: a sink that waits delays the next
/// sample, and one that returns `false` ends the sampling.
///
/// # Errors
/// The interval is too short, or a thread could not be started. An absent driver is no error: it is looked for
/// until it comes, and the samples say so.
pub fn start(
    config: ProbeConfig,
    sink: impl FnMut(Sample) -> bool + Send + 'static,
) -> Result<Probe, ProbeError> {
    if config.interval < SHORTEST_INTERVAL {
        return Err(ProbeError::Interval { given: config.interval });
    }
    let interval = config.interval;
    let mut sampler = Sampler::new(config)?;
    let mut sink = sink;
    let (stop, stopped) = mpsc::channel();
    let (ending, ended) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("sampler".to_owned())
        .spawn(move || {
            run(interval, &stopped, || sink(sampler.sample()));
            drop(sampler);
            drop(ending);
        })
        .map_err(|source| ProbeError::Thread { name: "sampler", source })?;
    Ok(Probe { stop: Some(stop), ended, thread })
}

impl Probe {
    /// Ends the sampling and shuts the driver down; whether that was done `within` the given time. A driver that
    /// hangs is left behind.
    pub fn stop(mut self, within: Duration) -> bool {
        self.stop = None;
        if self.ended.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            return false;
        }
        if self.thread.join().is_err() {
            tracing::error!("the sampler thread has panicked");
        }
        true
    }

    /// Whether the sampler is still at work.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }
}

/// Calls `sample` at once and then on a grid of `interval`s, until it returns `false` or `stopped` closes.
fn run(interval: Duration, stopped: &Receiver<()>, mut sample: impl FnMut() -> bool) {
    let started = Instant::now();
    let mut due = 0;
    while sample() {
        due = next_due(due, started.elapsed(), interval);
        let wait = offset(due, interval).saturating_sub(started.elapsed());
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The number of the grid point after point `done`, once `elapsed` has passed: points that were missed are skipped
/// and never made up for, and the grid does not drift.
fn next_due(done: u64, elapsed: Duration, interval: Duration) -> u64 {
    let passed = elapsed.as_nanos() / interval.as_nanos().max(1);
    u64::try_from(passed).unwrap_or(u64::MAX - 1).max(done) + 1
}

fn offset(point: u64, interval: Duration) -> Duration {
    let nanos = u128::from(point).saturating_mul(interval.as_nanos());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// What the sampler's thread owns.
struct Sampler {
    source: Box<dyn GpuSource>,
    roster: Roster,
    /// What cannot be seen, as known at start.
    blind: Vec<String>,
    next_seq: u64,
}

impl Sampler {
    fn new(config: ProbeConfig) -> Result<Self, ProbeError> {
        let mut reader = ProcReader::new(config.roots.clone());
        let engines =
            EngineSource { watch: watch(&config), files: config.engine_dir.map(EngineStatusDir::new) };
        let source: Box<dyn GpuSource> = match config.source {
            SourceConfig::Nvml { library } => {
                let nvml = NvmlConfig {
                    library,
                    list_interval: config.list_interval,
                    health_interval: config.health_interval,
                    budget: config.nvml_budget,
                    deadline: (config.interval * 2 / 3).min(LONGEST_SWEEP),
                    host_total: reader.host().total,
                };
                let thread = |source| ProbeError::Thread { name: "nvml", source };
                Box::new(NvmlSource::start(nvml).map_err(thread)?)
            }
            SourceConfig::Host(host) => {
                reader = reader.for_own_pids();
                Box::new(HostGpu::new(&host, config.roots))
            }
        };
        let blind = reader.notes();
        Ok(Self { source, roster: Roster::new(reader, engines), blind, next_seq: config.start_seq })
    }

    fn sample(&mut self) -> Sample {
        let tick = Tick { seq: self.next_seq, at: wall_clock(), mono_ms: monotonic_ms() };
        self.next_seq += 1;
        let Sweep { gpus, mut events, mut health } = self.source.sweep(tick);
        let gpus: Vec<_> = gpus.into_iter().map(|raw| self.roster.resolve(raw, tick, &mut events)).collect();
        self.roster.keep_only(&gpus);
        self.roster.engines().set_gpus(&gpus);
        let endings = self.roster.endings(tick);
        health.notes.extend_from_slice(&self.blind);
        health.notes.append(&mut self.roster.engines().notes());
        Sample { tick, gpus, host: self.roster.reader().host(), events, endings, probe: health }
    }
}

/// The engines to ask, where the configuration names any or wants them found.
fn watch(config: &ProbeConfig) -> Option<EngineWatch> {
    let wanted = config.discover_engines || !config.engines.is_empty();
    wanted.then(|| {
        EngineWatch::start(WatchConfig {
            targets: config.engines.clone(),
            discover: config.discover_engines,
            interval: config.engine_interval,
            tables: config.engine_tables.clone(),
            proc: config.roots.proc.clone(),
        })
    })
}

fn wall_clock() -> Ts {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ts(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Milliseconds since boot, suspend included: it goes on over a restart of the daemon, so differences within one
/// history stay durations.
fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn missed_samples_are_skipped_and_the_grid_stays() {
        let second = Duration::from_secs(1);
        let due = |done, ms| next_due(done, Duration::from_millis(ms), second);
        assert_eq!(due(0, 3), 1);
        assert_eq!(due(5, 4_999), 6, "woken a moment early");
        assert_eq!(due(5, 5_001), 6);
        assert_eq!(due(5, 8_400), 9, "three are missed and not bunched");
    }

    proptest! {
        #[test]
        fn the_next_sample_is_later_and_at_most_an_interval_away(
            done in 0u64..1_000, late_ms in 0u64..100_000, interval_ms in 100u64..60_000,
        ) {
            let interval = Duration::from_millis(interval_ms);
            let elapsed = offset(done, interval) + Duration::from_millis(late_ms);
            let next = next_due(done, elapsed, interval);
            let wait = offset(next, interval).saturating_sub(elapsed);
            prop_assert!(next > done && wait <= interval && offset(next, interval) > elapsed);
        }
    }

    #[test]
    fn a_sink_that_has_enough_ends_the_sampling() {
        let (_stop, stopped) = mpsc::channel();
        let mut left = 3;
        run(Duration::from_millis(1), &stopped, || {
            left -= 1;
            left > 0
        });
        assert_eq!(left, 0);
    }
}
