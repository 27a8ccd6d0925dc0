//! What the demo sets up and clears away: a temporary directory, a hook, an engine, a daemon.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::Context;
use ebbtide_core::{ByteRate, Bytes, Ts};
use ebbtide_daemon::RunError;
use ebbtide_daemon::config::{Config, LogLevel, SourceChoice};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::plan::{CARD, Plan};

/// Four samples a second: the whole story takes a minute and a half.
const INTERVAL_MS: u64 = 250;

/// The directory of the engine's status file.
const ENGINES: &str = "engines";
/// The file that says who asks the engine when.
const LOAD: &str = "load";

/// The hook: it appends each event to a file beside it.
const HOOK: &str = "#!/bin/sh\n# Gets the event as JSON on standard input, and its main facts as EBBTIDE_* variables.\n{ printf '%s %s %s ' \"$EBBTIDE_TRANSITION\" \"$EBBTIDE_KIND\" \"$EBBTIDE_SEVERITY\"; cat; echo; } >> \"${0%/*}/hook.log\"\n";

/// A daemon on a thread of this process.
struct RunningDaemon {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), RunError>>,
}

/// What the engine says when it ends.
#[derive(Deserialize)]
struct Account {
    begun_at_ms: Ts,
    /// `None` where the engine was ended before it began.
    injected_leak_bytes: Option<Bytes>,
}

/// What really happened.
pub(crate) struct Truth {
    /// How fast it leaked.
    pub(crate) rate: ByteRate,
    /// From when on.
    pub(crate) onset_at: Ts,
    /// What it lost, as it counted itself.
    pub(crate) leaked: Bytes,
}

/// What is left when all has ended.
pub(crate) struct Aftermath {
    /// What the engine did.
    pub(crate) truth: Truth,
    /// What the hook wrote: one line an event.
    pub(crate) hook_log: String,
}

/// Everything that runs.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
    seconds: u64,
    plan: Plan,
    engine: Child,
    daemon: RunningDaemon,
}

impl Stage {
    /// Sets it all up.
    ///
    /// # Errors
    /// When the machine has no room, or a directory, a process or a thread cannot be had.
    pub(crate) fn set(seconds: u64, seed: u64) -> anyhow::Result<Self> {
        let plan = Plan::drawn(seed, seconds);
        let arguments = plan.arguments()?;
        let dir = tempfile::Builder::new().prefix("ebbtide-demo-").tempdir().context("making a directory")?;
        fs::create_dir(dir.path().join(ENGINES))?;
        write_hook(&dir.path().join("hook.sh"))?;
        fs::write(dir.path().join(LOAD), plan.script())?;
        let engine = start_engine(dir.path(), &arguments)?;
        let config = config(dir.path(), engine.id())?;
        ebbtide_daemon::log::start(&config.log);
        let daemon = start_daemon(config)?;
        Ok(Self { dir, seconds, plan, engine, daemon })
    }

    /// Where the daemon answers.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("ebbtide.sock")
    }

    /// How long the story takes.
    pub(crate) const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Ends engine and daemon in order, and removes the directory.
    ///
    /// # Errors
    /// When the engine left no account behind, or the daemon failed.
    pub(crate) fn clear(self) -> anyhow::Result<Aftermath> {
        let truth = end_engine(self.engine, self.plan)?;
        let RunningDaemon { stop, thread } = self.daemon;
        // A daemon that has ended by itself says why below.
        let _ = stop.send(());
        thread.join().map_err(|_| anyhow::anyhow!("the daemon's thread panicked"))??;
        // No file means that the hook never ran, which the verdict says.
        let hook_log = fs::read_to_string(self.dir.path().join("hook.log")).unwrap_or_default();
        Ok(Aftermath { truth, hook_log })
    }
}

/// Ends the engine and hears what it knew all along.
fn end_engine(mut engine: Child, plan: Plan) -> anyhow::Result<Truth> {
    // It ends when its standard input does.
    drop(engine.stdin.take());
    let output = engine.wait_with_output().context("waiting for the engine")?;
    let account: Account =
        serde_json::from_slice(&output.stdout).context("the engine left no account of what it did")?;
    let after_ms = i64::try_from(plan.after_s).unwrap_or(i64::MAX).saturating_mul(1000);
    Ok(Truth {
        rate: plan.rate,
        onset_at: account.begun_at_ms.plus_ms(after_ms),
        leaked: account.injected_leak_bytes.unwrap_or_default(),
    })
}

fn write_hook(path: &Path) -> io::Result<()> {
    fs::write(path, HOOK)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn config(dir: &Path, engine: u32) -> anyhow::Result<Config> {
    let mut config = Config::default();
    config.probe.source = SourceChoice::Host;
    config.probe.interval_ms = INTERVAL_MS;
    config.probe.list_interval_ms = INTERVAL_MS;
    config.probe.host_total_mib = Some(CARD.mib() as u64);
    config.probe.host_pid = Some(engine);
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

fn start_engine(dir: &Path, arguments: &[String]) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    let load = dir.join(LOAD);
    let load = load.to_str().context("the temporary directory's name is not text")?;
    Command::new(program)
        .args(["engine", "--attached", "--json", "--no-sharing"])
        .args(arguments)
        .args(["--load", &format!("script:{load}")])
        .arg("--status-dir")
        .arg(dir.join(ENGINES))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A Ctrl-C is for the demo, which then ends the engine in order.
        .process_group(0)
        .spawn()
        .context("starting the engine")
}
