//! Runs the binary in a world of its own: no configuration, environment or socket of the machine reaches it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use ebbtide_api::Client;
use ebbtide_api::client::SocketClient;
use ebbtide_api::wire::Status;

/// How long any state may take to come about. Generous, because two cores may be building at the same time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A directory with a home, a configuration, a database and a socket.
pub(crate) struct World {
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The binary, told nothing but what the test tells it.
    pub(crate) fn ebbtide(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.dir.path())
            .env("PATH", "/usr/bin:/bin")
            .env("TZ", "UTC")
            .env("EBBTIDE_SOCKET", self.socket())
            .current_dir(self.dir.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.ebbtide(args).output().unwrap()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("ebbtide.sock")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("ebbtide.db")
    }

    /// Starts a daemon that reads the driver at `library`, with `extra` keys as `section.key = value` lines.
    pub(crate) fn daemon_on(&self, library: &Path, extra: &[(&str, &str)]) -> Daemon<'_> {
        let library = library.display().to_string();
        let mut keys = vec![
            ("probe.library", library.as_str()),
            ("probe.interval_ms", "200"),
            ("probe.list_interval_ms", "200"),
        ];
        keys.extend(extra);
        self.daemon(&keys)
    }

    /// Starts a daemon on host memory.
    pub(crate) fn daemon_on_host(&self, extra: &[(&str, &str)]) -> Daemon<'_> {
        let mut keys =
            vec![("probe.source", "host"), ("probe.interval_ms", "100"), ("probe.list_interval_ms", "100")];
        keys.extend(extra);
        self.daemon(&keys)
    }

    fn daemon(&self, keys: &[(&str, &str)]) -> Daemon<'_> {
        let database = format!("store.path={}", self.database().display());
        let mut command = self.ebbtide(&["daemon", "--set", &database]);
        for (key, value) in keys {
            command.args(["--set", &format!("{key}={value}")]);
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("daemon.log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Daemon { child, world: self }
    }

    /// What daemons have logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }
}

/// A running daemon; killed when the test is done with it.
pub(crate) struct Daemon<'w> {
    child: Child,
    world: &'w World,
}

impl Daemon<'_> {
    /// Waits for a status of which `holds` is true.
    pub(crate) fn wait(&mut self, what: &str, mut holds: impl FnMut(&Status) -> bool) -> Status {
        let client = SocketClient::new(self.world.socket());
        let deadline = Instant::now() + DEADLINE;
        let mut last = None;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the daemon ended ({status}) while waiting for {what}:\n{}", self.world.log());
            }
            let Ok(stream) = client.watch() else {
                std::thread::park_timeout(Duration::from_millis(10));
                continue;
            };
            for status in stream.take_while(|_| Instant::now() < deadline).map_while(Result::ok) {
                if holds(&status) {
                    return status;
                }
                last = Some(status);
            }
        }
        panic!("no {what} within {DEADLINE:?}; last status: {last:#?}\nlog:\n{}", self.world.log());
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> ExitStatus {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
        self.ended()
    }

    /// Ends it at once, as the kernel's out-of-memory killer would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the daemon did not end:\n{}", self.world.log());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
