//! What an earlier run left in the store.

use std::time::Duration;

use ebbtide_core::Ts;
use ebbtide_store::{Error, Pending, Reader, Replay};
use tracing::{info, warn};

use crate::config::StoreSection;
use crate::log::with_causes;
use crate::pipeline::{self, Pipeline};
use crate::record::Replayer;

/// How long the store may take to answer one question at start.
const READ_DEADLINE: Duration = Duration::from_secs(5);
/// What there is to take up again.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Findings and alerts that were open.
    pub(crate) open: pipeline::Past,
    /// The last window of ticks, oldest first.
    replay: Option<Replay>,
    /// Deliveries that were committed and not brought to their end.
    pub(crate) undelivered: Vec<Pending>,
    /// The sequence number of the next tick.
    pub(crate) next_seq: u64,
}

impl Past {
    /// Reads it. Where there is no history yet, or none that can be read, the daemon starts without: the reason is
    /// logged here, and the writer says in the status whether it can write.
    pub(crate) async fn read(section: &StoreSection) -> Self {
        if !section.path.exists() {
            return Self { next_seq: 1, ..Self::default() };
        }
        match read(section).await {
            Ok(past) => past,
            Err(error) => {
                let error = with_causes(&error);
                warn!(error, "the history of earlier runs cannot be read; starting without it");
                Self { next_seq: past_any_count(), ..Self::default() }
            }
        }
    }
}

async fn read(section: &StoreSection) -> Result<Past, Error> {
    let reader = Reader::new(&section.path, READ_DEADLINE);
    let findings = reader.findings(Ts(i64::MAX)).await?;
    let open = pipeline::Past { findings, alerts: reader.open_alerts().await? };
    let undelivered = reader.pending_deliveries().await?;
    let next_seq = reader.next_seq().await?;
    let replay = Some(reader.replay_last(i64::from(section.replay_minutes) * 60_000).await?);
    Ok(Past { open, replay, undelivered, next_seq })
}

impl Past {
    /// Feeds the past to the pipeline, tick by tick: a window of samples at once would be the daemon's largest piece
    /// of memory.
    pub(crate) async fn play(&mut self, pipeline: &mut Pipeline) {
        pipeline.restore(std::mem::take(&mut self.open));
        let Some(mut replay) = self.replay.take() else { return };
        let mut replayer = Replayer::default();
        let mut ticks = 0_u64;
        loop {
            match replay.next().await {
                Ok(Some(record)) => pipeline.replay(replayer.sample(record)),
                Ok(None) => break,
                Err(error) => {
                    warn!(error = with_causes(&error), "the rest of the history cannot be read");
                    break;
                }
            }
            ticks += 1;
        }
        info!(ticks, unreadable = replay.unreadable(), "took up from an earlier run");
    }
}

/// A sequence number that no count of ticks has reached, for a start without the file: the wall clock.
fn past_any_count() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX / 2)
}
