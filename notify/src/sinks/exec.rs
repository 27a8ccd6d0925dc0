//! A sink that runs a program: argv, no shell, a small environment, and the event as JSON on standard input.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ebbtide_core::text;
use serde::{Deserialize, Serialize};

use super::halt::Halt;
use super::supervision::{self, Ended, Limits};
use super::{Attempt, SinkError, check_timeout, hook_file};
use crate::message::Message;

/// What a hook exits with to be run again later: `EX_TEMPFAIL` of `sysexits.h`.
const TEMPORARY_FAILURE: i32 = 75;

/// How long a hook has to end after SIGTERM before it is killed.
pub const TERM_GRACE: Duration = Duration::from_secs(2);

/// The variables of the daemon that a hook inherits. `PATH` has a default, because a hook without one cannot even
/// find `logger`.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that is run for every event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// The program by its absolute path, and its arguments.
    pub argv: Vec<String>,
    /// How long it may run before its group gets SIGTERM, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

const fn default_timeout_ms() -> u64 {
    10_000
}

impl ExecConfig {
    /// Runs `argv` with the default time-out.
    #[must_use]
    pub const fn new(argv: Vec<String>) -> Self {
        Self { argv, timeout_ms: default_timeout_ms() }
    }

    pub(super) fn check(&self) -> Result<(), SinkError> {
        check_timeout(self.timeout_ms)?;
        let program = self.argv.first().ok_or(SinkError::EmptyArgv)?;
        Ok(hook_file::check(Path::new(program))?)
    }

    pub(super) fn name(&self) -> String {
        format!("exec {}", self.argv.first().map_or_else(String::new, |program| text::clean(program)))
    }
}

/// The sink itself.
pub(super) struct Exec {
    config: ExecConfig,
    term: Duration,
}

impl Exec {
    pub(super) const fn new(config: ExecConfig) -> Self {
        Self { config, term: TERM_GRACE }
    }

    pub(super) fn attempt(&self, message: &Message, halt: &Halt) -> Attempt {
        if let Err(error) = self.config.check() {
            return Attempt::Failed { reason: with_causes(&error) };
        }
        let limits = Limits { run: Duration::from_millis(self.config.timeout_ms), term: self.term };
        match supervision::run(self.command(message), message.json().as_bytes(), limits, halt) {
            Ok(ended) if ended.timed_out && halt.deadline().is_some() => {
                Attempt::Retry { reason: "was stopped because the daemon is ending".to_owned(), after: None }
            }
            Ok(ended) => self.verdict(&ended),
            Err(error) => spawn_failure(&error),
        }
    }

    fn command(&self, message: &Message) -> Command {
        let mut command = Command::new(&self.config.argv[0]);
        command.args(&self.config.argv[1..]).current_dir("/").env_clear();
        for name in INHERITED {
            let default = (name == "PATH").then(|| OsString::from(DEFAULT_PATH));
            if let Some(value) = std::env::var_os(name).or(default) {
                command.env(name, value);
            }
        }
        command.envs(message.environment());
        command
    }

    fn verdict(&self, ended: &Ended) -> Attempt {
        let said = first_line(&ended.output);
        let Some(status) = ended.status else {
            return Attempt::Failed { reason: format!("could not be killed: it hangs in the kernel{said}") };
        };
        if ended.timed_out {
            let limit = self.config.timeout_ms;
            return Attempt::Failed {
                reason: format!("did not end within {limit} ms and was stopped{said}"),
            };
        }
        match status.code() {
            Some(0) => Attempt::Delivered,
            Some(TEMPORARY_FAILURE) => {
                Attempt::Retry { reason: format!("asked to be run again (exit 75){said}"), after: None }
            }
            _ => Attempt::Failed { reason: format!("{}{said}", describe(status)) },
        }
    }
}

fn describe(status: ExitStatus) -> String {
    status
        .code()
        .map_or_else(|| format!("was ended by a {status}"), |code| format!("failed with exit code {code}"))
}

/// A file that is being written (an upgrade), a full process table and a lack of memory pass; the rest does not.
fn spawn_failure(error: &io::Error) -> Attempt {
    let reason = format!("could not be started: {error}");
    match error.kind() {
        io::ErrorKind::ExecutableFileBusy | io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            Attempt::Retry { reason, after: None }
        }
        _ => Attempt::Failed { reason },
    }
}

/// What a hook said first, made safe for a log line.
fn first_line(output: &[u8]) -> String {
    let line = output.split(|byte| *byte == b'\n').map(|line| text::clean(&String::from_utf8_lossy(line)));
    line.into_iter()
        .find(|line| !line.is_empty())
        .map_or_else(String::new, |line| format!("; it said: {line}"))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
