//! One run of a hook: fed, listened to, and ended in time.
//!
//! The end of the process is what counts, not the end of its output: a grandchild may hold the pipe for ever. The
//! process is reaped last, so its id names nobody else while signals are sent to its group.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::halt::{Halt, timespec};

/// The most of a hook's output that is kept; the rest is read and thrown away, so that the hook is not blocked.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// How long the kernel is given to end what was killed. A process in an uninterruptible call (a dead network file
/// system) is left behind then, and a thread waits to reap it.
const REAP_GRACE: Duration = Duration::from_secs(2);

/// How long a hook may run, and how long it may take to end when it is asked to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) run: Duration,
    pub(super) term: Duration,
}

impl Limits {
    /// The same, but over by `deadline`: the time to obey SIGTERM lies before it, not after.
    fn within(self, deadline: Instant) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        let term = self.term.min(left / 4);
        Self { run: self.run.min(left - term), term }
    }
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` where the process could not be ended.
    pub(super) status: Option<ExitStatus>,
    /// Whether it had to be ended.
    pub(super) timed_out: bool,
    /// Its output, both streams in one, at most [`MAX_OUTPUT_BYTES`].
    pub(super) output: Vec<u8>,
}

/// Runs `command` in a process group of its own, with `input` on its standard input.
pub(super) fn run(mut command: Command, input: &[u8], limits: Limits, halt: &Halt) -> io::Result<Ended> {
    let (output, writer) = io::pipe()?;
    command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
    let mut child = command.spawn()?;
    // It holds our copies of the output's write end: while they are open, the output never ends.
    drop(command);
    let stdin = child.stdin.take();
    let guard = Guard::over(child)?;
    let mut talk = Talk { stdin, input, output: Some(output), heard: Vec::new(), halting: false };
    talk.unblock()?;
    let timed_out = supervise(&guard, &mut talk, limits, halt);
    talk.listen_to_the_end();
    Ok(Ended { status: guard.reap(), timed_out, output: talk.heard })
}

/// Waits for the end of the process, and brings it about when its time is up. Returns whether that was needed.
fn supervise(guard: &Guard, talk: &mut Talk<'_>, mut limits: Limits, halt: &Halt) -> bool {
    let mut until = Instant::now() + limits.run;
    loop {
        match talk.turn(guard, halt, until) {
            Turn::Exited => return false,
            Turn::Busy => {}
            Turn::Halting(deadline) => {
                limits = limits.within(deadline);
                until = until.min(Instant::now() + limits.run);
            }
            Turn::Late => break,
        }
    }
    guard.signal(Signal::TERM);
    let until = Instant::now() + limits.term;
    while talk.turn(guard, halt, until).goes_on() {}
    // Sent even where the leader has ended by now: its children may have ignored the request.
    guard.signal(Signal::KILL);
    let until = Instant::now() + REAP_GRACE;
    while talk.turn(guard, halt, until).goes_on() {}
    true
}

/// What happened in one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Exited,
    Busy,
    Halting(Instant),
    Late,
}

impl Turn {
    const fn goes_on(self) -> bool {
        matches!(self, Self::Busy | Self::Halting(_))
    }
}

/// A running child, its exit as something that can be polled, and the right to signal its group.
struct Guard {
    group: Pid,
    /// Hangs up when the child has exited.
    exit: io::PipeReader,
    /// While it is held, the child is not reaped.
    unreaped: mpsc::Sender<()>,
    reaper: JoinHandle<Option<ExitStatus>>,
}

impl Guard {
    /// A pipe and a thread instead of a pidfd: the kernels of RHEL 8 have none.
    fn over(mut child: Child) -> io::Result<Self> {
        let group = Pid::from_child(&child);
        let (exit, exited) = io::pipe()?;
        let (unreaped, permission) = mpsc::channel();
        let reaper = thread::Builder::new().name("hook-exit".into()).spawn(move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(group), options), Err(Errno::INTR)) {}
            drop(exited);
            // Nothing is ever sent: the hang-up is the permission.
            let _hung_up: Result<(), _> = permission.recv();
            child.wait().ok()
        });
        match reaper {
            Ok(reaper) => Ok(Self { group, exit, unreaped, reaper }),
            Err(error) => {
                // The child went with the closure that never ran; it must not outlive the attempt.
                let _gone: Result<(), Errno> = kill_process_group(group, Signal::KILL);
                Err(error)
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.group, signal) {
            tracing::debug!(%error, group = self.group.as_raw_pid(), "a hook's group could not be signalled");
        }
    }

    fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(&self.exit, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&timespec(Duration::ZERO))), Ok(1..))
    }

    /// The exit status; `None` where the process is still there: the thread reaps it whenever that changes.
    fn reap(self) -> Option<ExitStatus> {
        let exited = self.has_exited();
        drop(self.unreaped);
        if exited { self.reaper.join().ok().flatten() } else { None }
    }
}

/// Both directions of the talk with a hook.
struct Talk<'a> {
    stdin: Option<ChildStdin>,
    input: &'a [u8],
    output: Option<io::PipeReader>,
    heard: Vec<u8>,
    halting: bool,
}

impl Talk<'_> {
    /// Only our ends of the pipes stop blocking; the hook's ends are as it expects them.
    fn unblock(&self) -> io::Result<()> {
        if let Some(stdin) = &self.stdin {
            ioctl_fionbio(stdin, true)?;
        }
        if let Some(output) = &self.output {
            ioctl_fionbio(output, true)?;
        }
        Ok(())
    }

    /// Waits until something happens or it is `until`, and moves at most one buffer in each direction.
    fn turn(&mut self, guard: &Guard, halt: &Halt, until: Instant) -> Turn {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Turn::Late;
        }
        let mut fds = vec![PollFd::new(&guard.exit, PollFlags::IN)];
        fds.extend((!self.halting).then(|| PollFd::new(halt, PollFlags::IN)));
        fds.extend(self.output.iter().map(|output| PollFd::new(output, PollFlags::IN)));
        fds.extend(self.stdin.iter().map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
        let polled = poll(&mut fds, Some(&timespec(left)));
        let exited = !fds[0].revents().is_empty();
        match polled {
            Ok(0) => return Turn::Late,
            Ok(_) if exited => return Turn::Exited,
            // Interrupted, or out of kernel memory for a moment: the next turn looks again.
            Ok(_) | Err(_) => {}
        }
        self.speak();
        self.listen();
        if self.halting {
            return Turn::Busy;
        }
        halt.deadline().map_or(Turn::Busy, |deadline| {
            self.halting = true;
            Turn::Halting(deadline)
        })
    }

    /// Writes what the hook takes now, and closes its input after the last byte, or when it does not want to know.
    fn speak(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(self.input) {
            Ok(written) => self.input = &self.input[written..],
            Err(error) if is_momentary(&error) => return,
            Err(_) => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    /// Reads one buffer; returns whether there may be more.
    fn listen(&mut self) -> bool {
        let Some(output) = &mut self.output else { return false };
        let mut buffer = [0; 16 * 1024];
        match output.read(&mut buffer) {
            Ok(0) => self.output = None,
            Ok(n) => {
                let room = MAX_OUTPUT_BYTES - self.heard.len();
                self.heard.extend_from_slice(&buffer[..n.min(room)]);
                return true;
            }
            Err(error) if is_momentary(&error) => {}
            Err(_) => self.output = None,
        }
        false
    }

    /// Takes what is in the pipe when the process has ended, and no more than would be kept: a grandchild may go on
    /// writing for ever.
    fn listen_to_the_end(&mut self) {
        while self.heard.len() < MAX_OUTPUT_BYTES && self.listen() {}
    }
}

fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
