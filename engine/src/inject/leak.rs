//! Kinds of leaks, and how they are written on a command line.

use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use ebbtide_core::Bytes;

/// A kind of leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leak {
    /// Of so many requests one loses a reference to a block when it ends.
    ForgottenRefs {
        /// Requests for each reference.
        requests: NonZeroU64,
    },
    /// Activation scratch that is never freed.
    Scratch {
        /// A minute.
        per_minute: Bytes,
    },
    /// Something is kept of each request.
    PerRequest {
        /// For each.
        bytes: Bytes,
    },
    /// Nothing for a while, then much at once.
    Bursts {
        /// Each time.
        bytes: Bytes,
        /// From one to the next; not zero.
        every: Duration,
    },
    /// A rate that doubles, and doubles again.
    Doubling {
        /// A minute, at the beginning.
        per_minute: Bytes,
        /// To twice the rate; not zero.
        every: Duration,
    },
    /// The content of prompts is copied into a cache of prefixes that has no bound.
    PrefixUnbounded,
    /// What is held when the model is unloaded stays held.
    NotReleased,
    /// As scratch, but in host memory, where no device shows it.
    HostRam {
        /// A minute.
        per_minute: Bytes,
    },
    /// A child process that holds memory and outlives the engine.
    Orphan {
        /// What it holds.
        bytes: Bytes,
    },
}

impl Leak {
    /// Its name on the command line and in `/metrics`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ForgottenRefs { .. } => "forgotten-refs",
            Self::Scratch { .. } => "scratch",
            Self::PerRequest { .. } => "per-request",
            Self::Bursts { .. } => "bursts",
            Self::Doubling { .. } => "doubling",
            Self::PrefixUnbounded => "prefix-unbounded",
            Self::NotReleased => "not-released",
            Self::HostRam { .. } => "host-ram",
            Self::Orphan { .. } => "orphan",
        }
    }
}

/// Words that are no leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a leak; write one of forgotten-refs:REQUESTS, scratch:BYTES (a minute), per-request:BYTES, bursts:BYTES:SECONDS, doubling:BYTES:SECONDS, prefix-unbounded, not-released, host-ram:BYTES (a minute), orphan:BYTES; bytes as 512K, 64M, 1G"
)]
pub struct SyntaxError;

impl FromStr for Leak {
    type Err = SyntaxError;

    // tidy: table
    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let words: Vec<&str> = text.split(':').collect();
        Ok(match words.as_slice() {
            ["forgotten-refs", requests] => {
                Self::ForgottenRefs { requests: requests.parse().map_err(|_| SyntaxError)? }
            }
            ["scratch", rate] => Self::Scratch { per_minute: bytes(rate)? },
            ["per-request", size] => Self::PerRequest { bytes: bytes(size)? },
            ["bursts", size, every] => Self::Bursts { bytes: bytes(size)?, every: seconds(every)? },
            ["doubling", rate, every] => Self::Doubling { per_minute: bytes(rate)?, every: seconds(every)? },
            ["prefix-unbounded"] => Self::PrefixUnbounded,
            ["not-released"] => Self::NotReleased,
            ["host-ram", rate] => Self::HostRam { per_minute: bytes(rate)? },
            ["orphan", size] => Self::Orphan { bytes: bytes(size)? },
            _ => return Err(SyntaxError),
        })
    }
}

/// A number with K, M or G for powers of 1024, or none.
fn bytes(text: &str) -> Result<Bytes, SyntaxError> {
    let shift = match text.bytes().last() {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        _ => 0,
    };
    let number: u64 = text.trim_end_matches(['K', 'M', 'G']).parse().map_err(|_| SyntaxError)?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes > 0);
    bytes.map(Bytes).ok_or(SyntaxError)
}

/// More than nothing.
fn seconds(text: &str) -> Result<Duration, SyntaxError> {
    let seconds: f64 = text.parse().map_err(|_| SyntaxError)?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| SyntaxError)?;
    if duration.is_zero() { Err(SyntaxError) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_by_its_name() {
        for text in [
            "forgotten-refs:10",
            "scratch:64M",
            "per-request:512K",
            "bursts:64M:30",
            "doubling:1M:2.5",
            "prefix-unbounded",
            "not-released",
            "host-ram:4096",
            "orphan:1G",
        ] {
            let leak: Leak = text.parse().unwrap();
            assert_eq!(leak.name(), text.split(':').next().unwrap());
        }
        let doubling = Leak::Doubling { per_minute: Bytes(1 << 20), every: Duration::from_millis(2500) };
        assert_eq!("doubling:1M:2.5".parse(), Ok(doubling));
    }

    #[test]
    fn what_would_never_leak_or_never_end_is_refused() {
        for text in [
            "",
            "scratch",
            "scratch:0",
            "scratch:64MiB",
            "forgotten-refs:0",
            "bursts:1M:0",
            "bursts:1M:-1",
            "doubling:1M:nan",
            "orphan:99999999999G",
            "scratch:1M:2",
            "scratch:M",
        ] {
            assert_eq!(text.parse::<Leak>(), Err(SyntaxError), "{text}");
        }
    }
}
