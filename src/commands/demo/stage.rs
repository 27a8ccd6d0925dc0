//! What the demo sets up and clears away: a temporary directory, a hook, a workload, a daemon.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::Context;
use ebbtide_daemon::RunError;
use ebbtide_daemon::config::{Config, LogLevel, SourceChoice};
use ebbtide_engine::rehearsal::{self, Truth};
use tokio::sync::oneshot;

/// Size of the imaginary card.
pub(crate) const CARD_MIB: u64 = 2048;
/// Four samples a second: the whole story takes a minute and a half.
const INTERVAL_MS: u64 = 250;

/// The directory of the workload's files.
const ENGINES: &str = "engines";

/// The hook: it appends each event to a file beside it.
const HOOK: &str = "#!/bin/sh\n# Gets the event as JSON on standard input, and its main facts as EBBTIDE_* variables.\n{ printf '%s %s %s ' \"$EBBTIDE_TRANSITION\" \"$EBBTIDE_KIND\" \"$EBBTIDE_SEVERITY\"; cat; echo; } >> \"${0%/*}/hook.log\"\n";

/// A daemon on a thread of this process.
struct RunningDaemon {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), RunError>>,
}

/// What is left when all has ended.
pub(crate) struct Aftermath {
    /// What the workload did.
    pub(crate) truth: Truth,
    /// What the hook wrote: one line an event.
    pub(crate) hook_log: String,
}

/// Everything that runs.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
    seconds: u64,
    workload: Child,
    daemon: RunningDaemon,
}

impl Stage {
    /// Sets it all up.
    ///
    /// # Errors
    /// When a directory, a process or a thread cannot be had.
    pub(crate) fn set(seconds: u64, seed: u64) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("ebbtide-demo-").tempdir().context("making a directory")?;
        fs::create_dir(dir.path().join(ENGINES))?;
        write_hook(&dir.path().join("hook.sh"))?;
        let config = config(dir.path())?;
        ebbtide_daemon::log::start(&config.log);
        let daemon = start_daemon(config)?;
        let workload = start_workload(&dir.path().join(ENGINES), seconds, seed)?;
        Ok(Self { dir, seconds, workload, daemon })
    }

    /// Where the daemon answers.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("ebbtide.sock")
    }

    /// How long the story takes.
    pub(crate) const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Ends workload and daemon in order, and removes the directory.
    ///
    /// # Errors
    /// When the workload left no account behind, or the daemon failed.
    pub(crate) fn clear(mut self) -> anyhow::Result<Aftermath> {
        let truth = self.end_workload()?;
        let RunningDaemon { stop, thread } = self.daemon;
        // A daemon that has ended by itself says why below.
        let _ = stop.send(());
        thread.join().map_err(|_| anyhow::anyhow!("the daemon's thread panicked"))??;
        // No file means that the hook never ran, which the verdict says.
        let hook_log = fs::read_to_string(self.dir.path().join("hook.log")).unwrap_or_default();
        Ok(Aftermath { truth, hook_log })
    }

    /// Ends the workload and reads what it knew all along.
    fn end_workload(&mut self) -> anyhow::Result<Truth> {
        // The workload ends when its standard input does.
        drop(self.workload.stdin.take());
        self.workload.wait().context("waiting for the workload")?;
        let path = self.dir.path().join(ENGINES).join(rehearsal::TRUTH_FILE);
        let text = fs::read(&path).context("the workload left no account of what it did")?;
        serde_json::from_slice(&text).context("reading the workload's account of what it did")
    }
}

fn write_hook(path: &Path) -> io::Result<()> {
    fs::write(path, HOOK)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn config(dir: &Path) -> anyhow::Result<Config> {
    let mut config = Config::default();
    config.probe.source = SourceChoice::Host;
    config.probe.interval_ms = INTERVAL_MS;
    config.probe.list_interval_ms = INTERVAL_MS;
    config.probe.host_total_mib = Some(CARD_MIB);
    config.probe.engine_dir = Some(dir.join(ENGINES));
    config.store.path = dir.join("ebbtide.db");
    config.api.socket = Some(dir.join("ebbtide.sock"));
    config.log.level = LogLevel::Error;
    let hook = dir.join("hook.sh");
    let hook = hook.to_str().context("the temporary directory's name is not text")?;
    config.sinks = vec![ebbtide_daemon::config::exec_sink(&[hook])];
    Ok(config)
}

fn start_daemon(config: Config) -> anyhow::Result<RunningDaemon> {
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name("daemon".to_owned()).spawn(move || {
        ebbtide_daemon::run_until(&config, async {
            // A dropped sender is an end too.
            let _ = stopped.await;
        })
    })?;
    Ok(RunningDaemon { stop, thread })
}

fn start_workload(dir: &Path, seconds: u64, seed: u64) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    Command::new(program)
        .arg("workload")
        .args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()])
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("starting the workload")
}
