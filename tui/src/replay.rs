//! A client that plays recorded statuses: for replays, and wherever the dashboard runs without a daemon.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebbtide_api::wire::{History, HistoryQuery, Span, Status};
use ebbtide_api::{Client, ClientError, StatusStream};

use crate::trace::value_in;

/// Plays statuses once, in order, and answers for their history.
pub struct Replay {
    statuses: Arc<[Status]>,
    next: Arc<Mutex<usize>>,
    pace: Duration,
}

impl Replay {
    /// A replay that hands on a status every `pace`; zero for as fast as it is read.
    #[must_use]
    pub fn new(statuses: Vec<Status>, pace: Duration) -> Self {
        Self { statuses: statuses.into(), next: Arc::default(), pace }
    }
}

impl Client for Replay {
    /// The status that was played last; before the first, the first.
    fn status(&self) -> Result<Status, ClientError> {
        let next = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.statuses.get(next.saturating_sub(1)).cloned().ok_or_else(ended)
    }

    /// What the recording holds of the series in the asked span, as it is: a recording in memory needs no thinning.
    fn history(&self, query: &HistoryQuery) -> Result<History, ClientError> {
        let mut spans: Vec<Span> = Vec::new();
        for status in self.statuses.iter() {
            let Some((at, value)) = value_in(status, &query.series) else { continue };
            let known = spans.last().is_some_and(|last| last.at >= at);
            if !known && (query.from..query.to).contains(&at) {
                let value = value.ok();
                spans.push(Span { at, min: value, max: value, last: value });
            }
        }
        Ok(History { series: query.series.clone(), spans, gaps: Vec::new() })
    }

    /// The rest of the recording; refused once it has ended.
    fn watch(&self) -> Result<StatusStream, ClientError> {
        if *self.next.lock().unwrap_or_else(PoisonError::into_inner) >= self.statuses.len() {
            return Err(ended());
        }
        let (never, silence) = sync_channel(1);
        let reel = Reel {
            statuses: Arc::clone(&self.statuses),
            next: Arc::clone(&self.next),
            pace: self.pace,
            silence,
            _never: never,
        };
        Ok(Box::new(reel))
    }
}

fn ended() -> ClientError {
    ClientError::Refused { status: 410, message: "the recording has ended".to_owned() }
}

struct Reel {
    statuses: Arc<[Status]>,
    next: Arc<Mutex<usize>>,
    pace: Duration,
    /// Nothing is ever sent here: a wait on it is a wait for time to pass.
    silence: Receiver<()>,
    _never: SyncSender<()>,
}

impl Iterator for Reel {
    type Item = Result<Status, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.pace.is_zero() {
            let _elapsed = self.silence.recv_timeout(self.pace);
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let status = self.statuses.get(*next).cloned()?;
        *next += 1;
        Some(Ok(status))
    }
}
