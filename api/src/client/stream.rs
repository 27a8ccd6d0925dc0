//! Statuses as the daemon publishes them.

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::runtime::Runtime;

use super::events::EventParser;
use super::{MAX_ANSWER_BYTES, Sender, SocketClient, understood};
use crate::wire::Status;
use crate::{ClientError, absence};

/// A stream that is open. After an error, and after the daemon has ended it, it gives nothing more.
pub(super) struct Statuses {
    client: SocketClient,
    runtime: Runtime,
    open: Option<Open>,
    events: EventParser,
}

struct Open {
    body: Incoming,
    /// The connection lives as long as this does.
    _connection: Sender,
}

impl Statuses {
    pub(super) fn open(client: SocketClient) -> Result<Self, ClientError> {
        let runtime = client.runtime()?;
        let (connection, response) =
            client.within(&runtime, client.answer_timeout, client.ask("/v1/frames"))?;
        let open = Some(Open { body: response.into_body(), _connection: connection });
        Ok(Self { client, runtime, open, events: EventParser::new(MAX_ANSWER_BYTES) })
    }

    fn advance(&mut self) -> Result<Option<Status>, ClientError> {
        loop {
            if let Some(event) = self.events.next() {
                let status = absence::parse(&event).map_err(ClientError::Garbled)?;
                return understood(status).map(Some);
            }
            let Some(bytes) = self.more()? else { return Ok(None) };
            self.events.push(&bytes).map_err(|e| self.client.broken(e))?;
        }
    }

    fn more(&mut self) -> Result<Option<Bytes>, ClientError> {
        let client = &self.client;
        let Some(open) = &mut self.open else { return Ok(None) };
        let frame = client.within(&self.runtime, client.silence_timeout, async {
            open.body.frame().await.transpose().map_err(|e| client.broken(e))
        })?;
        // Trailers carry nothing of ours.
        Ok(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }
}

impl Iterator for Statuses {
    type Item = Result<Status, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.open.as_ref()?;
        let next = self.advance().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.open = None;
        }
        next
    }
}
