//! How processes that used a GPU came to their end, and what is kept of an end that was not in order.

use serde::{Deserialize, Serialize};

use crate::finding::{Evidence, Finding, Subject};
use crate::ids::{GpuUuid, ProcKey};
use crate::ledger::Ledger;
use crate::reading::{self, Reading};
use crate::units::{Bytes, Ts};

/// How a process ended, as `waitpid(2)` tells its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Signalled(u8),
}

impl ExitStatus {
    /// The meaning of a wait status (`wait(2)`): the low seven bits are the signal, the second byte the code.
    #[must_use]
    pub const fn of_wait_status(raw: i32) -> Self {
        match (raw & 0x7f) as u8 {
            0 => Self::Exited((raw >> 8 & 0xff) as u8),
            signal => Self::Signalled(signal),
        }
    }

    /// Whether somebody asked it to end, or it had nothing more to do: code 0, and the signals HUP, INT, PIPE and TERM,
    /// also where a shell or a runtime turned them into 128 and their number.
    #[must_use]
    pub const fn is_orderly(self) -> bool {
        match self {
            Self::Exited(code) => code == 0 || code > 128 && Self::Signalled(code - 128).is_orderly(),
            Self::Signalled(signal) => matches!(signal, 1 | 2 | 13 | 15),
        }
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Signalled(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "SIG{name}"),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

/// The signals that end processes by themselves, on every architecture that NVIDIA's driver runs on (signal(7)).
const fn signal_name(signal: u8) -> Option<&'static str> {
    // tidy: table
    match signal {
        1 => Some("HUP"),
        2 => Some("INT"),
        3 => Some("QUIT"),
        4 => Some("ILL"),
        5 => Some("TRAP"),
        6 => Some("ABRT"),
        7 => Some("BUS"),
        8 => Some("FPE"),
        9 => Some("KILL"),
        11 => Some("SEGV"),
        13 => Some("PIPE"),
        15 => Some("TERM"),
        24 => Some("XCPU"),
        25 => Some("XFSZ"),
        31 => Some("SYS"),
        _ => None,
    }
}

/// The end of a process that was listed on a GPU, as far as it could be read. We are not its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Which process.
    pub proc: ProcKey,
    /// How it ended, where the kernel tells others than the parent.
    #[serde(with = "reading")]
    pub status: Reading<ExitStatus>,
    /// Processes of its control group that the out-of-memory killer ended between the last look at it alive, up to
    /// half a minute before, and its end.
    #[serde(with = "reading")]
    pub oom_kills: Reading<u64>,
}

/// Why a process ended, as far as could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndCause {
    /// The kernel's out-of-memory killer ended it, or another process of its control group.
    OomKill,
    /// The driver reported this XID on its GPU shortly before.
    Xid(u64),
    /// A signal that nobody asked it to end with.
    Signal(u8),
    /// By itself, with a code that means failure.
    ExitCode(u8),
    /// It is gone, something was amiss, and nothing says why it ended.
    Unknown,
}

impl EndCause {
    /// The name in JSON and on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OomKill => "oom-kill",
            Self::Xid(_) => "xid",
            Self::Signal(_) => "signal",
            Self::ExitCode(_) => "exit-code",
            Self::Unknown => "unknown",
        }
    }
}

/// One GPU at the end of a process that used it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuAtEnd {
    /// Which.
    pub gpu: GpuUuid,
    /// Its number then.
    pub index: u32,
    /// What the process held in the last list that had it.
    #[serde(with = "reading")]
    pub held: Reading<Bytes>,
    /// The last ledger with the process in it in which every term was of one instant; where there is none, the last.
    pub ledger: Ledger,
}

/// The end of a process that was not in order, and how things stood then. The store keeps the ticks before it as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// When the process was found to be gone.
    pub at: Ts,
    /// Where the ticks begin that are kept with it.
    pub from: Ts,
    /// Which process.
    pub proc: ProcKey,
    /// Who that was.
    pub subject: Subject,
    /// Why, as far as could be read.
    pub cause: EndCause,
    /// How it ended.
    #[serde(with = "reading")]
    pub status: Reading<ExitStatus>,
    /// The GPUs that it was last listed on.
    pub gpus: Vec<GpuAtEnd>,
    /// Its resident host memory.
    #[serde(with = "reading")]
    pub rss: Reading<Bytes>,
    /// The limit of that.
    #[serde(with = "reading")]
    pub host_limit: Reading<Bytes>,
    /// What was open about it, or about its GPUs.
    pub findings: Vec<Finding>,
    /// What the cause rests on.
    pub evidence: Vec<Evidence>,
    /// Ends of the same program for the same cause shortly before, of which no record was made.
    pub repeats: u32,
    /// One sentence for a person at 3 a.m.
    pub summary: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_a_code_or_a_signal() {
        // 0x80 says that a core was dumped.
        let read = [0, 3 << 8, 9, 11 | 0x80, 15, 143 << 8].map(ExitStatus::of_wait_status);
        use ExitStatus::{Exited, Signalled};
        assert_eq!(read, [Exited(0), Exited(3), Signalled(9), Signalled(11), Signalled(15), Exited(143)]);
        assert_eq!(read.map(ExitStatus::is_orderly), [true, false, false, false, true, true]);
        assert_eq!(
            [read[1], read[2], Signalled(40)].map(|status| status.to_string()),
            ["exit code 3", "SIGKILL", "signal 40"]
        );
    }

    #[test]
    fn no_code_is_orderly_by_accident() {
        let orderly: Vec<u8> = (0..=255).filter(|code| ExitStatus::Exited(*code).is_orderly()).collect();
        assert_eq!(orderly, [0, 129, 130, 141, 143]);
    }
}
