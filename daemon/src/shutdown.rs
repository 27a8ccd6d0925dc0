//! When to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Ends with the first SIGTERM or SIGINT.
///
/// # Errors
/// When the process may not listen to signals.
pub(crate) fn signals() -> std::io::Result<impl Future<Output = &'static str>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    })
}
