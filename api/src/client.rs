//! Asks a daemon over its unix socket.

mod events;
mod stream;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ebbtide_core::text;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::Error as _;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::wire::{History, HistoryQuery, Refusal, SCHEMA, Status};
use crate::{Client, ClientError, StatusStream, absence};

/// How long an answer may take: a little longer than the daemon gives its own look-ups.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a stream may say nothing, not even that it is alive: four of the daemon's signs of life.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of an answer, and of one event of a stream. A status of a machine with 16 GPUs and a thousand
/// processes has about 1 MiB.
pub const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Asks the daemon at one socket. Each call makes a connection of its own, so a restarted daemon is found again.
///
/// Calls block on a small runtime of their own and must not be made from within another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketClient {
    path: PathBuf,
    answer_timeout: Duration,
    silence_timeout: Duration,
}

impl SocketClient {
    /// A client of the daemon at `path`; see [`crate::address::default_socket`]. Nothing is asked yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), answer_timeout: ANSWER_TIMEOUT, silence_timeout: SILENCE_TIMEOUT }
    }

    fn get(&self, target: &str) -> Result<Bytes, ClientError> {
        let runtime = self.runtime()?;
        self.within(&runtime, self.answer_timeout, async {
            let (_connection, response) = self.ask(target).await?;
            self.body(response).await
        })
    }

    fn runtime(&self) -> Result<Runtime, ClientError> {
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| self.broken(e))
    }

    fn within<T>(
        &self,
        runtime: &Runtime,
        limit: Duration,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let late = || ClientError::Timeout { address: self.address(), seconds: limit.as_secs() };
        // The timer of the runtime is only known inside of it.
        runtime.block_on(async { tokio::time::timeout(limit, work).await }).unwrap_or_else(|_| Err(late()))
    }

    /// Sends a request; the connection lives as long as its sender, which is returned with the answer.
    async fn ask(&self, target: &str) -> Result<(Sender, Response<Incoming>), ClientError> {
        let stream = UnixStream::connect(&self.path).await.map_err(|e| self.unreachable(e))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(e))?;
        tokio::spawn(connection);
        let request = Request::get(target).header("host", "ebbtide").body(Empty::new());
        let request = request.map_err(|e| self.broken(e))?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(e))?;
        let status = response.status();
        if status.is_success() {
            return Ok((sender, response));
        }
        let body = self.body(response).await?;
        let message = serde_json::from_slice::<Refusal>(&body).map_or_else(
            |_| format!("it gave no reason (HTTP status {})", status.as_u16()),
            |refusal| text::clean(&refusal.error),
        );
        Err(ClientError::Refused { status: status.as_u16(), message })
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
        Ok(body.collect().await.map_err(|e| self.broken(e))?.to_bytes())
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        let address = self.address();
        match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NoPermission { address, source },
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning { address, source }
            }
            _ => self.broken(source),
        }
    }

    fn broken(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Broken { address: self.address(), source: source.into() }
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }
}

type Sender = SendRequest<Empty<Bytes>>;

impl Client for SocketClient {
    fn status(&self) -> Result<Status, ClientError> {
        understood(absence::parse(&self.get("/v1/status")?).map_err(ClientError::Garbled)?)
    }

    fn history(&self, query: &HistoryQuery) -> Result<History, ClientError> {
        serde_json::from_slice(&self.get(&history_target(query))?).map_err(ClientError::Garbled)
    }

    fn watch(&self) -> Result<StatusStream, ClientError> {
        Ok(Box::new(stream::Statuses::open(self.clone())?))
    }
}

/// A status of this version's meaning: additions are compatible, a raised schema is not.
fn understood(status: Status) -> Result<Status, ClientError> {
    if status.schema == SCHEMA {
        return Ok(status);
    }
    let text = format!("the daemon speaks schema {}, this program schema {SCHEMA}", status.schema);
    Err(ClientError::Garbled(serde_json::Error::custom(text)))
}

fn history_target(query: &HistoryQuery) -> String {
    let HistoryQuery { series, from, to, points } = query;
    let mut target = format!(
        "/v1/history?metric={}&from_ms={}&to_ms={}&points={points}",
        series.metric.name(),
        from.0,
        to.0
    );
    if let Some(gpu) = &series.gpu {
        target.push_str("&gpu=");
        target.push_str(&percent_encoded(gpu.as_str()));
    }
    if let Some(proc) = series.proc {
        target.push_str(&format!("&pid={}", proc.pid));
        if let Some(start_ticks) = proc.start_ticks {
            target.push_str(&format!("&start_ticks={start_ticks}"));
        }
    }
    target
}

/// All but the unreserved characters of RFC 3986, section 2.3.
fn percent_encoded(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for byte in raw.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests;
