//! The history as the API asks for it.

use std::path::PathBuf;
use std::time::Duration;

use ebbtide_api::server::{HistoryError, HistoryFuture, HistorySource};
use ebbtide_api::wire::{History, HistoryQuery, Span};
use ebbtide_store::Reader;

/// How long one question may take: a dashboard redraws meanwhile, and the writer's log must not grow under a reader.
const DEADLINE: Duration = Duration::from_secs(2);

/// Answers from the store's file, beside its writer.
pub(crate) struct StoredHistory {
    path: PathBuf,
}

impl StoredHistory {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl HistorySource for StoredHistory {
    fn history(&self, query: HistoryQuery) -> HistoryFuture<'_> {
        let reader = Reader::new(&self.path, DEADLINE);
        Box::pin(async move {
            let points = usize::try_from(query.points).unwrap_or(usize::MAX);
            let spans = reader
                .history(&query.series, query.from, query.to.plus_ms(-1), points)
                .await
                .map_err(|error| HistoryError::Unavailable(error.to_string()))?;
            let spans = spans
                .into_iter()
                .map(|s| Span { at: s.from, min: Some(s.min), max: Some(s.max), last: Some(s.last) })
                .collect();
            Ok(History { series: query.series, spans })
        })
    }
}
