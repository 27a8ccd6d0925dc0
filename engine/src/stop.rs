//! When to end: a workload ends with whoever started it.

use std::io::Read;
use std::sync::mpsc::{Receiver, channel};

/// A receiver that is told once `input` (usually standard input, a pipe from the parent) ends, be it that the
/// parent closed it or died.
///
/// What arrives before the end is ignored. Where no thread can be started the end counts as come: a workload that
/// nobody could stop is worse than none.
#[must_use]
pub fn at_end_of(mut input: impl Read + Send + 'static) -> Receiver<()> {
    let (sender, stop) = channel();
    let wait = move || {
        let mut ignored = [0; 256];
        while matches!(input.read(&mut ignored), Ok(n) if n > 0) {}
        drop(sender);
    };
    // The thread ends with the input, or with the process.
    let _ = std::thread::Builder::new().name("stop".to_owned()).spawn(wait);
    stop
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
    use std::time::Duration;

    #[test]
    fn the_end_comes_when_the_parent_closes_the_pipe_and_not_before() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let stop = at_end_of(reader);
        writer.write_all(b"ignored").unwrap();
        assert_eq!(stop.try_recv(), Err(TryRecvError::Empty));
        drop(writer);
        assert_eq!(stop.recv_timeout(Duration::from_secs(30)), Err(RecvTimeoutError::Disconnected));
    }
}
