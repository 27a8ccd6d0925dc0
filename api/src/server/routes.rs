//! What is asked for, and what is answered.

mod past;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ebbtide_core::{Finding, Tick};
use tokio::sync::{Semaphore, watch};

use super::bulletin::Bulletin;
use super::freshness::{Freshness, Stale, outdated};
use super::{Api, HistoryError, HistorySource, Interest};
use crate::wire::{Refusal, Status};

pub use past::{HISTORY_TIMEOUT, MAX_HISTORIES, MAX_POINTS};

/// Streams at a time. Each is a dashboard that somebody looks at.
pub const MAX_STREAMS: usize = 64;

/// How long a stream says nothing before it says that it is alive.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long the making of a status may take: it takes a millisecond, behind a tick that is being kept.
const MAKING: Duration = Duration::from_secs(5);

const ENDPOINTS: &str =
    "/v1/status, /v1/frames, /v1/findings, /v1/history, /v1/series, /v1/histories and /healthz";

/// What every answer is made from.
#[derive(Clone)]
struct Sources {
    bulletin: Arc<Bulletin>,
    history: Arc<dyn HistorySource>,
    freshness: Arc<Mutex<Freshness>>,
    streams: Arc<Semaphore>,
    ticks: watch::Receiver<Tick>,
    interest: Interest,
    stopped: watch::Receiver<bool>,
}

impl Sources {
    /// The newest status, which is made now where nobody has wanted it before.
    async fn newest(&self) -> Result<Arc<Status>, Refused> {
        let seq = self.ticks.borrow().seq;
        if !self.bulletin.has(seq) {
            self.interest.ask();
        }
        self.bulletin.since(seq, MAKING).await.ok_or_else(Refused::busy)
    }

    /// The age of the newest status, where it is fresh.
    fn age(&self) -> Result<Duration, Stale> {
        self.freshness.lock().unwrap_or_else(PoisonError::into_inner).age(Instant::now())
    }
}

pub(super) fn router(api: Api, freshness: Arc<Mutex<Freshness>>, stopped: watch::Receiver<bool>) -> Router {
    let sources = Sources {
        bulletin: Arc::new(Bulletin::new(api.status)),
        history: api.history,
        freshness,
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        ticks: api.ticks,
        interest: api.interest,
        stopped,
    };
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/frames", get(frames))
        .route("/v1/findings", get(findings))
        .route("/v1/history", get(past::history))
        .route("/v1/series", get(past::series))
        .route("/v1/histories", get(past::histories))
        .route("/healthz", get(healthz))
        .fallback(async || Refused::not_found())
        .method_not_allowed_fallback(async || Refused::method_not_allowed())
        .with_state(sources)
}

/// An answer that is none.
struct Refused(StatusCode, String);

impl Refused {
    fn not_found() -> Self {
        Self(StatusCode::NOT_FOUND, format!("there is no such endpoint; there are {ENDPOINTS}"))
    }

    fn method_not_allowed() -> Self {
        Self(StatusCode::METHOD_NOT_ALLOWED, "every endpoint is only read: use GET".to_owned())
    }

    fn busy() -> Self {
        let reason = "the daemon is busy and has made no status in time: ask again";
        Self(StatusCode::SERVICE_UNAVAILABLE, reason.to_owned())
    }

    fn bad_request(reason: String) -> Self {
        Self(StatusCode::BAD_REQUEST, reason)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(Refusal { error: self.1 })).into_response()
    }
}

impl From<serde_json::Error> for Refused {
    fn from(error: serde_json::Error) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, format!("the status has no form in JSON: {error}"))
    }
}

impl From<HistoryError> for Refused {
    fn from(error: HistoryError) -> Self {
        let status = match error {
            HistoryError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            HistoryError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            HistoryError::TooMany(_) => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

async fn status(State(sources): State<Sources>) -> Result<Response, Refused> {
    let mut newest = sources.newest().await?;
    if let Err(stale @ Stale::Old { .. }) = sources.age() {
        newest = Arc::new(outdated(&newest, &stale));
    }
    Ok(json(sources.bulletin.written(newest)?.json()))
}

fn json(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn findings(State(sources): State<Sources>) -> Result<Json<Vec<Finding>>, Refused> {
    Ok(Json(sources.newest().await?.findings.clone()))
}

async fn frames(State(sources): State<Sources>) -> Result<Response, Refused> {
    let place = Arc::clone(&sources.streams).try_acquire_owned().map_err(|_| {
        let reason =
            format!("{MAX_STREAMS} clients are being streamed to: ask /v1/status now and then instead");
        Refused(StatusCode::SERVICE_UNAVAILABLE, reason)
    })?;
    let watching = sources.interest.watch();
    // The first event is the newest status, not one of an earlier asker's.
    sources.newest().await?;
    let stream = sources.bulletin.stream(KEEP_ALIVE, sources.stopped, (place, watching));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(stream)).into_response())
}

async fn healthz(State(sources): State<Sources>) -> Result<Json<serde_json::Value>, Refused> {
    match sources.age() {
        Ok(age) => Ok(Json(serde_json::json!({ "age_ms": age.as_millis() as u64 }))),
        Err(stale) => Err(Refused(StatusCode::SERVICE_UNAVAILABLE, stale.to_string())),
    }
}
