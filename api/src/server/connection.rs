//! Connections: how many, how long they may take to ask, and how they end.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::freshness::Freshness;
use super::{Api, routes};

/// Connections at a time; more wait in the kernel's backlog. A handful of dashboards and a scraper are usual, and a
/// process may open 1024 files by default.
pub const MAX_CONNECTIONS: u32 = 128;

/// How long a client may take to send a request, and to send its next one.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a request's line and headers. Ours have a few hundred.
pub const MAX_REQUEST_HEAD_BYTES: usize = 16 * 1024;

/// How long an answer may take to finish once the daemon is ending.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// How long no connection is taken after the system had no file descriptor for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes connections until `shutdown`, then waits for those that are open to end.
pub(super) async fn accept(listener: &UnixListener, api: Api, shutdown: impl Future<Output = ()>) {
    let (stop, stopped) = watch::channel(false);
    let freshness = Arc::new(Mutex::new(Freshness::default()));
    let observer = tokio::spawn(observe(api.ticks.clone(), Arc::clone(&freshness)));
    let router = routes::router(api, freshness, stopped.clone());
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS as usize));
    let mut shutdown = pin!(shutdown);
    loop {
        let taken = tokio::select! {
            () = &mut shutdown => break,
            taken = next(listener, &places) => taken,
        };
        match taken {
            Ok((stream, place)) => {
                tokio::spawn(converse(stream, router.clone(), stopped.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "the API cannot take a connection: are too many files open?");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    observer.abort();
    stop.send_replace(true);
    // Every connection ends within its grace, so this does; all places are free again when all have ended.
    let _all_ended = places.acquire_many(MAX_CONNECTIONS).await;
}

async fn next(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn converse(
    stream: UnixStream,
    router: Router,
    mut stopped: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    let mut conversation = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_REQUEST_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let ended = tokio::select! {
        ended = conversation.as_mut() => ended,
        () = stopping(&mut stopped) => {
            conversation.as_mut().graceful_shutdown();
            tokio::time::timeout(SHUTDOWN_GRACE, conversation).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client of the API went away or spoke no HTTP");
    }
}

/// Waits until the daemon is ending.
pub(super) async fn stopping(stopped: &mut watch::Receiver<bool>) {
    // An error says that the other side is gone, which is an end too.
    let _ended = stopped.wait_for(|stopped| *stopped).await;
}

/// Notes when ticks come, so that `/healthz` can tell a daemon at work from one that hangs.
async fn observe(mut ticks: watch::Receiver<ebbtide_core::Tick>, freshness: Arc<Mutex<Freshness>>) {
    loop {
        if *ticks.borrow_and_update() != ebbtide_core::Tick::default() {
            freshness.lock().unwrap_or_else(std::sync::PoisonError::into_inner).note(Instant::now());
        }
        if ticks.changed().await.is_err() {
            return;
        }
    }
}
