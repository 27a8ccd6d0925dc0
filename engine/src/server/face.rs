//! The engine's HTTP: completions and metrics, on loopback only.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::sync::{mpsc, oneshot};

use super::completion::{Answer, Ask, Characters, Spent};
use super::figures::Figures;
use super::worker::{Order, Piece};
use crate::model::Tokenizer;

/// Who answers.
#[derive(Clone)]
pub struct Identity {
    /// The model's name.
    pub model: String,
    /// How keys and values are kept.
    pub kv_format: &'static str,
    /// In a word or two, how the engine works.
    pub strategy: String,
    /// Tokens there are.
    pub vocab: usize,
    /// Tokens a sequence may have.
    pub context: usize,
    /// How the model writes.
    pub text: Arc<dyn Tokenizer>,
}

/// It cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum FaceError {
    /// Others could ask.
    #[error("{0} is not on loopback; the engine answers this machine only, so give it 127.0.0.1 or [::1]")]
    NotLoopback(SocketAddr),
    /// The address is not to be had.
    #[error("the engine cannot listen at {address}; choose another port, or 0 for any")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No thread to answer on.
    #[error("no thread for HTTP can be started")]
    Thread(#[source] io::Error),
}

/// HTTP on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Face {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Clone)]
struct Desk {
    identity: Arc<Identity>,
    orders: SyncSender<Order>,
    figures: Arc<Mutex<Figures>>,
    numbers: Arc<AtomicU64>,
}

impl Face {
    /// Answers at `address`: orders go to `orders`, metrics come from `figures`.
    ///
    /// # Errors
    /// See [`FaceError`].
    pub fn start(
        address: SocketAddr,
        identity: Identity,
        orders: SyncSender<Order>,
        figures: Arc<Mutex<Figures>>,
    ) -> Result<Self, FaceError> {
        if !address.ip().is_loopback() {
            return Err(FaceError::NotLoopback(address));
        }
        let refused = |source| FaceError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let desk =
            Desk { identity: Arc::new(identity), orders, figures, numbers: Arc::new(AtomicU64::new(0)) };
        let (stop, stopped) = oneshot::channel();
        let answer = move || answer(listener, desk, stopped);
        let thread =
            std::thread::Builder::new().name("http".to_owned()).spawn(answer).map_err(FaceError::Thread)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it answers.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Face {
    fn drop(&mut self) {
        // Both are there until now; a thread that has failed has nothing more to end.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(listener: TcpListener, desk: Desk, stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let serve = async {
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/v1/completions", post(complete))
            .route("/v1/models", get(models))
            .route("/health", get(|| async { StatusCode::OK }))
            .with_state(desk);
        let server = axum::serve(tokio::net::TcpListener::from_std(listener)?, router);
        // Streams that are open do not hold up the end.
        tokio::select! {
            result = server.into_future() => result,
            _ = stopped => Ok(()),
        }
    };
    runtime.block_on(serve)
}

async fn metrics(State(desk): State<Desk>) -> Response {
    let figures = desk.figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], figures.page(&desk.identity)).into_response()
}

async fn models(State(desk): State<Desk>) -> Response {
    let model = serde_json::json!({ "id": desk.identity.model, "object": "model", "owned_by": "ebbtide" });
    Json(serde_json::json!({ "object": "list", "data": [model] })).into_response()
}

async fn complete(State(desk): State<Desk>, ask: Result<Json<Ask>, JsonRejection>) -> Response {
    let ask = match ask {
        Ok(Json(ask)) => ask,
        Err(rejection) => return refusal(StatusCode::BAD_REQUEST, &rejection.body_text()),
    };
    let Some(request) = ask.request(&*desk.identity.text, desk.identity.vocab) else {
        return refusal(StatusCode::BAD_REQUEST, "the prompt has a token that the model does not know");
    };
    let prompt = request.prompt.len();
    // Room for the whole answer, which the context bounds, and its end.
    let (reply, mut pieces) = mpsc::channel(desk.identity.context.min(request.most.max(1)) + 1);
    match desk.orders.try_send(Order { request, reply }) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many orders wait");
        }
        Err(TrySendError::Disconnected(_)) => {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended");
        }
    }
    // A refusal comes before any token, and is told by its status.
    let first = pieces.recv().await;
    match first {
        Some(Piece::Refused(why)) => return refusal(StatusCode::UNPROCESSABLE_ENTITY, &why.to_string()),
        None => return refusal(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended"),
        Some(Piece::Token(_) | Piece::End(_)) => {}
    }
    let talk = Talk { first, pieces, characters: Characters::default(), number: desk.number(), desk, prompt };
    if ask.stream { talk.stream() } else { talk.whole().await }
}

impl Desk {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// An answer that comes in pieces.
struct Talk {
    first: Option<Piece>,
    pieces: mpsc::Receiver<Piece>,
    characters: Characters,
    number: u64,
    desk: Desk,
    prompt: usize,
}

impl Talk {
    async fn next(&mut self) -> Option<Piece> {
        match self.first.take() {
            Some(first) => Some(first),
            None => self.pieces.recv().await,
        }
    }

    async fn whole(mut self) -> Response {
        let mut tokens = Vec::new();
        let mut finish = None;
        while let Some(piece) = self.next().await {
            match piece {
                Piece::Token(token) => tokens.push(token),
                Piece::End(end) => finish = Some(end),
                Piece::Refused(_) => break,
            }
        }
        let Identity { text, model, .. } = &*self.desk.identity;
        let said = self.characters.take(&text.decode(&tokens)) + &self.characters.rest();
        let answer = Answer::new(self.number, model, said, finish);
        Json(answer.with(Spent::new(self.prompt, tokens.len()))).into_response()
    }

    /// Server-sent events: one for each piece, and `[DONE]`.
    fn stream(self) -> Response {
        let events = futures_util::stream::unfold(Some(self), |talk| async {
            let mut talk = talk?;
            let (event, is_last) = match talk.next().await {
                Some(Piece::Token(token)) => {
                    let bytes = talk.desk.identity.text.decode(&[token]);
                    let said = talk.characters.take(&bytes);
                    (talk.event(said, None), false)
                }
                Some(Piece::End(finish)) => {
                    let rest = std::mem::take(&mut talk.characters).rest();
                    (talk.event(rest, Some(finish)) + "data: [DONE]\n\n", true)
                }
                Some(Piece::Refused(_)) | None => return None,
            };
            Some((Ok::<_, std::convert::Infallible>(Bytes::from(event)), (!is_last).then_some(talk)))
        });
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
    }

    fn event(&self, said: String, finish: Option<crate::scheduler::Finish>) -> String {
        let answer = Answer::new(self.number, &self.desk.identity.model, said, finish);
        // Numbers and strings always have a JSON.
        format!("data: {}\n\n", serde_json::to_string(&answer).unwrap_or_default())
    }
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, Json(serde_json::json!({ "error": { "message": why, "type": "invalid_request_error" } })))
        .into_response()
}
