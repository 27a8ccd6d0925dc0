//! A client that answers from a database file instead of a daemon: `ebbtide top --db FILE`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use ebbtide_api::wire::{History, HistoryQuery, Status};
use ebbtide_api::{Client, ClientError, StatusStream};
use ebbtide_daemon::history::StoredHistory;
use ebbtide_daemon::pipeline::{Input, Pipeline, PipelineConfig};
use ebbtide_daemon::record::Replayer;
use ebbtide_store::Reader;
use tokio::runtime::Runtime;

/// How long one question to the file may take: a copied file may lie on a slow disk, and nobody else waits for it.
const DEADLINE: Duration = Duration::from_secs(30);
/// How much of the file's end is judged again: as much as a daemon takes up at its start.
const WINDOW_MS: i64 = 3_600_000;

/// A file as it was when it was opened: its last status, and its history.
pub(crate) struct StoredClient {
    path: PathBuf,
    history: StoredHistory,
    runtime: Runtime,
    status: Status,
    shown: AtomicBool,
}

impl StoredClient {
    /// Reads the file's last hour and judges it as the daemon would have.
    ///
    /// # Errors
    /// When the file cannot be read or holds no tick.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reader = Reader::new(path, DEADLINE);
        let status = runtime
            .block_on(last_status(&reader))
            .with_context(|| format!("reading {}", path.display()))?
            .with_context(|| format!("{} holds no sample yet", path.display()))?;
        let history = StoredHistory::new(path, DEADLINE);
        Ok(Self { path: path.to_owned(), history, runtime, status, shown: AtomicBool::new(false) })
    }
}

async fn last_status(reader: &Reader) -> Result<Option<Status>, ebbtide_store::Error> {
    let mut pipeline =
        Pipeline::new(PipelineConfig { host: "recorded".to_owned(), ..PipelineConfig::default() });
    let mut replayer = Replayer::default();
    let mut replay = reader.replay_last(WINDOW_MS).await?;
    while let Some(record) = replay.next().await? {
        let mut sample = replayer.sample(record);
        "recorded file".clone_into(&mut sample.probe.source);
        pipeline.step(Input::Sample(sample));
    }
    Ok(pipeline.status())
}

impl Client for StoredClient {
    fn status(&self) -> Result<Status, ClientError> {
        Ok(self.status.clone())
    }

    fn history(&self, query: &HistoryQuery) -> Result<History, ClientError> {
        self.runtime.block_on(self.history.history(query.clone())).map_err(|error| ClientError::Broken {
            address: self.path.display().to_string(),
            source: Box::new(error),
        })
    }

    /// The one status there is; refused once it was shown, as the end of a recording is.
    fn watch(&self) -> Result<StatusStream, ClientError> {
        if self.shown.swap(true, Ordering::Relaxed) {
            return Err(ClientError::Refused { status: 410, message: "the recording has ended".to_owned() });
        }
        Ok(Box::new(std::iter::once(Ok(self.status.clone()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::{GpuUuid, Metric, Point, SeriesKey, Tick, TickRecord, Ts};
    use ebbtide_store::Writer;

    /// A tick a quarter of an hour for two weeks, one of them a spike.
    #[test]
    fn a_year_of_a_file_shows_a_spike_of_one_tick() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        let gpu = Some(GpuUuid::new("GPU-1"));
        let series = SeriesKey { gpu, proc: None, metric: Metric::UsedBytes };
        let at = |seq: u64| Ts(1_700_000_000_000 + seq.cast_signed() * 900_000);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut writer = Writer::new(&path);
            for seq in 1..=1_344 {
                let value = if seq == 500 { 70 << 30 } else { 20 << 30 };
                let points = vec![Point { series: series.clone(), value: Some(value) }];
                let tick = Tick { seq, at: at(seq), mono_ms: seq * 900_000 };
                let record = TickRecord { tick, points, gpus: Vec::new(), processes: Vec::new() };
                writer.append(&record).await.unwrap();
            }
            writer.close().await;
        });
        let client = StoredClient::open(&path).unwrap();
        let to = at(1_345);
        let query = HistoryQuery { series, from: to.plus_ms(-365 * 86_400_000), to, points: 512 };
        let spans = client.history(&query).unwrap().spans;
        assert!((20..=24).contains(&spans.len()), "{} spans", spans.len());
        let spikes: Vec<_> = spans.iter().filter(|span| span.max == Some(70 << 30)).collect();
        assert!(spikes.len() == 1 && spikes[0].min == Some(20 << 30), "{spikes:?}");
    }
}
