//! The history as the API asks for it.

use std::path::PathBuf;
use std::time::Duration;

use ebbtide_api::server::{HistoryError, HistoryFuture, HistorySource};
use ebbtide_api::wire::{Gap, History, HistoryQuery, Span};
use ebbtide_store::{Error, Reader};

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
            let unavailable = |error: Error| HistoryError::Unavailable(error.to_string());
            let (from, to) = (query.from, query.to.plus_ms(-1));
            let spans = reader.history(&query.series, from, to, points).await.map_err(unavailable)?;
            let gaps = reader.gaps(from, to).await.map_err(unavailable)?;
            let gap = |gap: ebbtide_store::Gap| Gap {
                from: gap.from,
                to: gap.to,
                ticks: gap.ticks,
                reason: gap.reason,
            };
            let spans = spans
                .into_iter()
                .map(|s| Span { at: s.from, min: Some(s.min), max: Some(s.max), last: Some(s.last) })
                .collect();
            Ok(History { series: query.series, spans, gaps: gaps.into_iter().map(gap).collect() })
        })
    }
}
