//! A client that answers from a database file instead of a daemon: `ebbtide top --db FILE`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use ebbtide_api::wire::{History, HistoryQuery, Span, Status};
use ebbtide_api::{Client, ClientError, StatusStream};
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
    reader: Reader,
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
        Ok(Self { path: path.to_owned(), reader, runtime, status, shown: AtomicBool::new(false) })
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
        let points = usize::try_from(query.points).unwrap_or(usize::MAX);
        let asked = self.reader.history(&query.series, query.from, query.to.plus_ms(-1), points);
        let spans = self.runtime.block_on(asked).map_err(|error| ClientError::Broken {
            address: self.path.display().to_string(),
            source: Box::new(error),
        })?;
        let spans = spans
            .into_iter()
            .map(|span| Span {
                at: span.from,
                min: Some(span.min),
                max: Some(span.max),
                last: Some(span.last),
            })
            .collect();
        Ok(History { series: query.series.clone(), spans, gaps: Vec::new() })
    }

    /// The one status there is; refused once it was shown, as the end of a recording is.
    fn watch(&self) -> Result<StatusStream, ClientError> {
        if self.shown.swap(true, Ordering::Relaxed) {
            return Err(ClientError::Refused { status: 410, message: "the recording has ended".to_owned() });
        }
        Ok(Box::new(std::iter::once(Ok(self.status.clone()))))
    }
}
