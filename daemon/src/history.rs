//! The history as the API asks for it, and whoever shows a file without a daemon.

use std::path::Path;
use std::time::Duration;

use ebbtide_api::server::{HistoryError, HistoryFuture, HistorySource, MAX_HISTORIES};
use ebbtide_api::wire::{
    Gap, Histories, HistoriesQuery, History, HistoryQuery, SeriesEntry, SeriesHistory, SeriesQuery, Span,
};
use ebbtide_core::{SeriesKey, Ts};
use ebbtide_store::{Error, Reader, SeriesFilter, StoredSeries};

/// How long one question to a live file may take: a dashboard redraws meanwhile, and the writer's log must not grow under a
/// reader.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// Answers from a store's file, also beside its writer.
pub struct StoredHistory {
    reader: Reader,
}

impl StoredHistory {
    /// That of the file at `path`, where each question may take as long as `deadline`.
    #[must_use]
    pub fn new(path: &Path, deadline: Duration) -> Self {
        Self { reader: Reader::new(path, deadline) }
    }

    /// Part of the history of one series.
    ///
    /// # Errors
    /// Any [`Error`] of opening and reading.
    pub async fn history(&self, query: HistoryQuery) -> Result<History, Error> {
        let points = usize::try_from(query.points).unwrap_or(usize::MAX);
        let (from, to) = (query.from, query.to.plus_ms(-1));
        let found = self.reader.history(&query.series, from, to, points).await?;
        Ok(History { series: query.series, spans: spans(found), gaps: self.gaps((from, to)).await? })
    }

    async fn list(&self, wanted: SeriesQuery) -> Result<Vec<SeriesEntry>, Error> {
        let SeriesQuery { gpu, pid, metric, name, unit, container, pod, engine, open } = wanted;
        let filter = SeriesFilter { gpu, pid, metric, name, unit, container, pod, engine, open };
        let entry = |StoredSeries { key, name, owner, engine, open }| SeriesEntry {
            series: key,
            name,
            owner,
            engine,
            open,
        };
        Ok(self.reader.series(&filter).await?.into_iter().map(entry).collect())
    }

    async fn gaps(&self, (from, to): (Ts, Ts)) -> Result<Vec<Gap>, Error> {
        let gap = |gap: ebbtide_store::Gap| Gap {
            from: gap.from,
            to: gap.to,
            ticks: gap.ticks,
            reason: gap.reason,
        };
        Ok(self.reader.gaps(from, to).await?.into_iter().map(gap).collect())
    }

    async fn told(&self, query: HistoriesQuery) -> Result<Histories, HistoryError> {
        let entries = heard(self.list(query.wanted).await)?;
        if entries.len() > MAX_HISTORIES {
            return Err(HistoryError::TooMany(entries.len()));
        }
        let points = usize::try_from(query.points).unwrap_or(usize::MAX);
        let (from, to) = (query.from, query.to.plus_ms(-1));
        let keys: Vec<SeriesKey> = entries.iter().map(|entry| entry.series.clone()).collect();
        let found = heard(self.reader.histories(&keys, from, to, points).await)?;
        let told = entries.into_iter().zip(found);
        let histories = told.map(|(entry, found)| SeriesHistory { entry, spans: spans(found) }).collect();
        let gaps = heard(self.gaps((from, to)).await)?;
        Ok(Histories { histories, gaps })
    }
}

impl HistorySource for StoredHistory {
    fn history(&self, query: HistoryQuery) -> HistoryFuture<'_, History> {
        Box::pin(async move { heard(self.history(query).await) })
    }

    fn series(&self, wanted: SeriesQuery) -> HistoryFuture<'_, Vec<SeriesEntry>> {
        Box::pin(async move { heard(self.list(wanted).await) })
    }

    fn histories(&self, query: HistoriesQuery) -> HistoryFuture<'_, Histories> {
        Box::pin(self.told(query))
    }
}

fn heard<T>(answer: Result<T, Error>) -> Result<T, HistoryError> {
    answer.map_err(|error| HistoryError::Unavailable(error.to_string()))
}

fn spans(found: Vec<ebbtide_store::Span>) -> Vec<Span> {
    found
        .into_iter()
        .map(|s| Span { at: s.from, min: Some(s.min), max: Some(s.max), last: Some(s.last) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::{Absent, Metric, Owner, Point, ProcInfo, ProcKey, ProcessCard, Tick, TickRecord};
    use ebbtide_store::Writer;

    fn held(pid: u32) -> SeriesKey {
        let proc = Some(ProcKey { pid, start_ticks: Some(1) });
        SeriesKey { gpu: None, proc, metric: Metric::ProcessBytes }
    }

    /// One tick of `processes` processes, the first of which is an engine in a unit.
    fn record(processes: u32) -> TickRecord {
        let info = ProcInfo {
            owner: Owner { unit: Some("vllm.service".into()), ..Owner::default() },
            ..ProcInfo::absent(Absent::NotYet)
        };
        let key = ProcKey { pid: 1, start_ticks: Some(1) };
        let card = ProcessCard { key, info: info.into(), engine: Some("vLLM".into()) };
        TickRecord {
            tick: Tick { seq: 1, at: Ts(1_000), mono_ms: 1_000 },
            points: (1..=processes).map(|pid| Point { series: held(pid), value: Some(pid.into()) }).collect(),
            gpus: Vec::new(),
            processes: vec![card],
        }
    }

    #[tokio::test]
    async fn histories_are_told_by_unit_and_engine_and_of_no_more_than_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let mut writer = Writer::new(&path);
        writer.append(&record(MAX_HISTORIES as u32 + 1)).await.unwrap();
        writer.close().await;
        let history = StoredHistory::new(&path, DEADLINE);
        let ask = async |wanted: SeriesQuery| {
            history.histories(HistoriesQuery { wanted, from: Ts(0), to: Ts(1_001), points: 10 }).await
        };
        for wanted in [
            SeriesQuery { unit: Some("vllm.service".into()), ..SeriesQuery::default() },
            SeriesQuery { engine: Some("vllm".into()), ..SeriesQuery::default() },
        ] {
            let told = ask(wanted).await.unwrap().histories;
            assert_eq!(told.len(), 1, "{told:?}");
            assert_eq!((&told[0].entry.series, told[0].entry.engine.as_deref()), (&held(1), Some("vLLM")));
            assert_eq!(told[0].spans.iter().map(|span| span.last).collect::<Vec<_>>(), [Some(1)]);
        }
        assert!(matches!(ask(SeriesQuery::default()).await, Err(HistoryError::TooMany(101))));
    }
}
