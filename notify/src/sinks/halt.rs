//! The word that it is time to end, in a form that every wait of a sink's thread can wait for too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The side of a sink's thread.
#[derive(Debug, Clone)]
pub(super) struct Halt {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Nothing is ever written: its other end hangs up when it is time.
    pipe: io::PipeReader,
    deadline: OnceLock<Instant>,
}

/// The side that says when. Dropping it says "now, at once".
#[derive(Debug)]
pub(super) struct HaltSwitch {
    shared: Arc<Shared>,
    _pipe: io::PipeWriter,
}

impl Halt {
    pub(super) fn new() -> io::Result<(HaltSwitch, Self)> {
        let (pipe, writer) = io::pipe()?;
        let shared = Arc::new(Shared { pipe, deadline: OnceLock::new() });
        Ok((HaltSwitch { shared: Arc::clone(&shared), _pipe: writer }, Self { shared }))
    }

    /// Until when work may go on; `None` while nobody wants to end.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.wait(Duration::ZERO).then(|| *self.shared.deadline.get_or_init(Instant::now))
    }

    /// Whether it is time to drop everything.
    pub(super) fn expired(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits for `limit` and says whether somebody wants to end; if so, returns at once.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(until.saturating_duration_since(Instant::now())))) {
                Ok(0) => return false,
                Err(Errno::INTR) => {}
                // An error here would mean that the pipe is no pipe: ending is the safe reading.
                Ok(_) | Err(_) => return true,
            }
        }
    }
}

impl AsFd for Halt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.pipe.as_fd()
    }
}

impl HaltSwitch {
    /// Asks every thread to be done by `deadline`.
    pub(super) fn throw(self, deadline: Instant) {
        self.shared.deadline.get_or_init(|| deadline);
    }
}

/// `duration` as the kernel wants it, rounded up to a millisecond, so that a wait does not end just before its time.
pub(super) fn timespec(duration: Duration) -> Timespec {
    let ms = duration.as_micros().div_ceil(1_000);
    Timespec {
        tv_sec: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1_000 * 1_000_000).unwrap_or(0),
    }
}
