//! Engines that are read all the time, each on a thread of its own, so that a slow one delays neither the others nor a
//! tick: a tick takes the latest figures with their age.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebbtide_core::text::clean;
use ebbtide_core::{Absent, EngineReport, EngineSample, KvCount, ProcKey};

use super::scout::Scout;
use super::table::Tables;
use super::target::{EngineTarget, Scraper, TargetError};

/// Between two readings of one engine, at least: whatever asks more often wants a profiler.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Figures older than this many intervals are no longer shown.
const STALE_AFTER: u32 = 3;
/// Between two attempts at a target that does not answer, at most.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Targets read at once, each a thread: a node has 8 or 16 GPUs, seldom more than one engine on each.
pub const MAX_TARGETS: usize = 64;
/// A scraper's thread holds a page of at most 8 MiB on the heap and little on its stack.
const STACK: usize = 512 << 10;

/// What is read, and how often.
#[derive(Debug, Clone)]
pub struct WatchConfig {
    /// Engines to read wherever they are.
    pub targets: Vec<EngineTarget>,
    /// Whether the listening sockets of GPU processes are tried too.
    pub discover: bool,
    /// Between two readings of one engine; below 100 ms it is 100 ms.
    pub interval: Duration,
    /// A directory of tables that go before the embedded ones.
    pub tables: Option<PathBuf>,
    /// The proc file system.
    pub proc: PathBuf,
}

/// Engines that are being read. Dropping it ends the reading without waiting.
#[derive(Debug)]
pub struct EngineWatch {
    shared: Arc<Shared>,
}

/// What threads and ticks share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    tables: Arc<Tables>,
    interval: Duration,
    /// Tells the scout that something has changed. One message waits at most: the scout reads the state and not the
    /// messages.
    changed: SyncSender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Who holds GPU memory.
    holders: Vec<ProcKey>,
    watched: BTreeMap<u64, Watched>,
    next_id: u64,
    /// Whether the reading has ended, so that a scout at work starts no more of it.
    is_closed: bool,
    /// What is wrong with the tables or the threads.
    faults: Vec<String>,
}

/// One engine that is read.
#[derive(Debug)]
pub(crate) struct Watched {
    /// What the user, or the scout, said of it.
    pub(crate) target: EngineTarget,
    /// Whether the scout found it, so that it goes when its processes go.
    pub(crate) is_found: bool,
    /// Where it listens, once that is resolved.
    pub(crate) address: Option<SocketAddr>,
    /// The GPU processes that its figures belong to.
    pub(crate) attached: Vec<ProcKey>,
    latest: Option<(Instant, EngineSample)>,
    problem: Option<String>,
    /// Ends its thread when dropped.
    _stop: Sender<()>,
}

impl EngineWatch {
    /// Starts reading. Tables that cannot be used are said in [`EngineWatch::notes`], and the embedded ones are used.
    #[must_use]
    pub fn start(config: WatchConfig) -> Self {
        let mut state = State::default();
        let tables = config.tables.as_deref().map_or_else(|| Ok(Tables::embedded()), Tables::with_directory);
        let tables = tables.unwrap_or_else(|error| {
            state.faults.push(said(&error));
            Tables::embedded()
        });
        let (changed, changes) = mpsc::sync_channel(1);
        let (state, tables) = (Mutex::new(state), Arc::new(tables));
        let shared =
            Arc::new(Shared { state, tables, interval: config.interval.max(SHORTEST_INTERVAL), changed });
        for target in config.targets {
            shared.watch(target, false, Vec::new());
        }
        let scout = Scout::new(Arc::clone(&shared), config.proc, config.discover);
        shared.spawn("engine scout", move || scout.run(&changes));
        Self { shared }
    }

    /// Says who holds GPU memory now: figures are given to these processes only.
    pub fn set_holders(&self, mut holders: Vec<ProcKey>) {
        holders.retain(|key| key.start_ticks.is_some());
        holders.sort_unstable();
        holders.dedup();
        let mut state = self.shared.lock();
        if state.holders != holders {
            state.holders = holders;
            self.shared.nudge();
        }
    }

    /// The latest figures of the engine in process `key`; `None` where none is known. Old figures are absent as
    /// [`Absent::Timeout`], and what the engine is stays.
    #[must_use]
    pub fn read(&self, key: ProcKey) -> Option<EngineSample> {
        let state = self.shared.lock();
        // An engine that was configured has the lower number, and goes before one that was found.
        let mut watched = state.watched.values().filter(|watched| watched.attached.contains(&key));
        let (read_at, sample) = watched.find_map(|watched| watched.latest.as_ref())?;
        if read_at.elapsed() <= self.shared.interval * STALE_AFTER {
            return Some(sample.clone());
        }
        Some(faded(sample))
    }

    /// One line for each target that is not read, or whose process is not known, and what to do about it.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let state = self.shared.lock();
        let of = |watched: &Watched| {
            let address = &watched.target.address;
            match (&watched.problem, &watched.latest) {
                (Some(problem), _) => Some(format!("engine at {address}: {problem}")),
                (None, Some(_)) if watched.attached.is_empty() => Some(format!(
                    "engine at {address}: no GPU process is known to be its own; give its pid, or the daemon CAP_SYS_PTRACE"
                )),
                _ => None,
            }
        };
        state.faults.iter().cloned().chain(state.watched.values().filter_map(of)).collect()
    }
}

impl Drop for EngineWatch {
    /// The threads share the list that holds what ends them, so it is emptied here.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.watched.clear();
        self.shared.nudge();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while it held the lock leaves figures that are whole: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nudge(&self) {
        let _ = self.changed.try_send(());
    }

    /// Whether the reading has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// The tables in use.
    pub(crate) const fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Who holds GPU memory.
    pub(crate) fn holders(&self) -> Vec<ProcKey> {
        self.lock().holders.clone()
    }

    /// Calls `change` with every engine that is read, and ends the reading of those for which it says no.
    pub(crate) fn review(&self, change: impl FnMut(&u64, &mut Watched) -> bool) {
        self.lock().watched.retain(change);
    }

    /// Starts reading `target` unless there are [`MAX_TARGETS`] already.
    pub(crate) fn watch(self: &Arc<Self>, target: EngineTarget, is_found: bool, attached: Vec<ProcKey>) {
        let (stop, stopped) = mpsc::channel();
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        if state.watched.len() >= MAX_TARGETS {
            let full = format!("more than {MAX_TARGETS} engines: those beyond are not read");
            if !state.faults.contains(&full) {
                state.faults.push(full);
            }
            return;
        }
        let id = state.next_id;
        state.next_id += 1;
        let reader = target.clone();
        let address = target.address.parse().ok();
        let watched =
            Watched { target, is_found, address, attached, latest: None, problem: None, _stop: stop };
        state.watched.insert(id, watched);
        drop(state);
        let shared = Arc::clone(self);
        self.spawn("engine", move || shared.keep_reading(id, &reader, &stopped));
    }

    fn spawn(&self, name: &'static str, work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work);
        if thread.is_err() {
            let fault = format!(
                "cannot start a thread for an {name}; raise the limit of tasks (ulimit -u, TasksMax=)"
            );
            self.lock().faults.push(fault);
        }
    }

    fn keep_reading(&self, id: u64, target: &EngineTarget, stopped: &Receiver<()>) {
        let mut scraper = None;
        let mut failures = 0;
        loop {
            let read = self.read_once(&mut scraper, target);
            failures = if read.is_ok() { 0 } else { failures + 1 };
            self.publish(id, scraper.as_ref().map(Scraper::address), read);
            if stopped.recv_timeout(pause(self.interval, failures)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn read_once(
        &self,
        scraper: &mut Option<Scraper>,
        target: &EngineTarget,
    ) -> Result<EngineSample, TargetError> {
        let scraper = match scraper {
            Some(scraper) => scraper,
            // A host name may become resolvable later.
            None => scraper.insert(Scraper::new(target, Arc::clone(&self.tables))?),
        };
        let quantities = scraper.scrape()?;
        Ok(quantities.sample(&scraper.address().to_string(), target.kv_bytes_per_token))
    }

    fn publish(&self, id: u64, address: Option<SocketAddr>, read: Result<EngineSample, TargetError>) {
        let mut state = self.lock();
        let Some(watched) = state.watched.get_mut(&id) else { return };
        if watched.address != address {
            watched.address = address;
            self.nudge();
        }
        match read {
            Ok(sample) => {
                watched.latest = Some((Instant::now(), sample));
                watched.problem = None;
            }
            Err(error) => watched.problem = Some(said(&error)),
        }
    }
}

/// `sample` once it is too old: what the engine is stays, what changes from second to second goes.
fn faded(sample: &EngineSample) -> EngineSample {
    let report = sample.report.as_deref().map(|report| {
        let (kv, asleep) = (KvCount::absent(Absent::Timeout), Err(Absent::Timeout));
        Arc::new(EngineReport { kv, asleep, ..report.clone() })
    });
    EngineSample { semantics: sample.semantics, report, ..EngineSample::absent(Absent::Timeout) }
}

/// The interval, doubled with each failure in a row.
fn pause(interval: Duration, failures: u32) -> Duration {
    let doubled = interval.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST_WAIT.max(interval))
}

/// An error with its causes, cleaned: it may quote what a stranger's server sent.
fn said(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    clean(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_fails_is_asked_less_and_less() {
        let second = Duration::from_secs(1);
        let pauses = [0, 1, 2, 3, 7, 100].map(|failures| pause(second, failures).as_secs());
        assert_eq!(pauses, [1, 1, 2, 4, 60, 60]);
        assert_eq!(pause(second * 300, 9), second * 300, "never more often than asked for");
    }
    fn config(targets: Vec<EngineTarget>, tables: Option<PathBuf>) -> WatchConfig {
        let interval = Duration::from_millis(10);
        WatchConfig { targets, discover: true, interval, tables, proc: "/proc".into() }
    }

    #[test]
    fn all_threads_end_when_the_watch_is_dropped() {
        let target = EngineTarget { address: "127.0.0.1:1".to_owned(), ..EngineTarget::default() };
        let watch = EngineWatch::start(config(vec![target], None));
        let shared = Arc::downgrade(&watch.shared);
        drop(watch);
        let (_never, pause) = mpsc::channel::<()>();
        let started = Instant::now();
        while shared.strong_count() > 0 && started.elapsed() < Duration::from_secs(30) {
            let _ = pause.recv_timeout(Duration::from_millis(5));
        }
        assert_eq!(shared.strong_count(), 0);
    }

    #[test]
    fn tables_that_cannot_be_used_are_said_and_done_without() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("bad.toml"), "engine = 1").unwrap();
        let watch = EngineWatch::start(config(Vec::new(), Some(dir.path().to_owned())));
        assert!(watch.notes()[0].contains("bad.toml is no engine table"), "{:?}", watch.notes());
        assert_eq!(**watch.shared.tables(), Tables::embedded());
    }

    #[test]
    fn engines_beyond_the_limit_are_said_once() {
        let target = EngineTarget { address: "127.0.0.1:1".to_owned(), ..EngineTarget::default() };
        let watch = EngineWatch::start(config(vec![target; MAX_TARGETS + 2], None));
        assert_eq!(watch.notes().iter().filter(|note| note.contains("not read")).count(), 1);
    }
}
