//! Requests, and what becomes of them.

use super::sampling::{Sampler, Sampling};
use crate::kv::Token;

/// A request that was taken; later ones are larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// On whose behalf a request comes: clients take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientId(pub u64);

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// By whom.
    pub client: ClientId,
    /// What to go on from; at least one token.
    pub prompt: Vec<Token>,
    /// The longest answer, in tokens; at least one is given.
    pub most: usize,
    /// How the next token is chosen.
    pub sampling: Sampling,
    /// The token that ends an answer.
    pub stop: Option<Token>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// By the token that ends an answer.
    Stop,
    /// At its greatest length.
    Length,
    /// Even alone it had no room in the pool.
    NoRoom,
}

impl Finish {
    /// As the field's interfaces call it; the last has no name there.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::NoRoom => "no_room",
        }
    }
}

/// A request with what it has come to.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: RequestId,
    pub(super) client: ClientId,
    /// The prompt, and the answer so far.
    pub(super) tokens: Vec<Token>,
    /// Of them the prompt's.
    pub(super) prompt: usize,
    pub(super) sampler: Sampler,
    /// The answer ends when there are so many tokens.
    end: usize,
    stop: Option<Token>,
}

impl Job {
    pub(super) fn new(id: RequestId, request: Request, context: usize) -> Self {
        let Request { client, prompt: tokens, most, sampling, stop } = request;
        let prompt = tokens.len();
        let end = prompt.saturating_add(most.max(1)).min(context);
        Self { id, client, tokens, prompt, sampler: Sampler::new(sampling), end, stop }
    }

    /// Adds a token to the answer; how that ends it, if it does.
    pub(super) fn push(&mut self, token: Token) -> Option<Finish> {
        self.tokens.push(token);
        if self.stop == Some(token) {
            Some(Finish::Stop)
        } else {
            (self.tokens.len() >= self.end).then_some(Finish::Length)
        }
    }
}
