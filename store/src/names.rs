//! What the numbers in blobs stand for, looked up as they turn up.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ebbtide_core::{GpuCard, GpuKind, GpuUuid, Metric, ProcInfo, ProcKey, ProcessCard, SeriesKey};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteConnection;

use crate::chunk::WindowId;
use crate::codec::{Row, SeriesId};
use crate::json;

/// The names met so far in one walk.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// `None` where the file does not say, or says what this build does not understand.
    series: HashMap<SeriesId, Option<SeriesKey>>,
    gpus: HashSet<GpuUuid>,
    processes: HashSet<ProcKey>,
}

/// The body of a row of `process`: the engine stands among what else is known. Rows of before it was kept have none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredProcess<'a> {
    #[serde(flatten)]
    pub(crate) info: Cow<'a, ProcInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<Cow<'a, str>>,
}

/// A row of `series`: id, GPU, PID, start ticks, metric.
type Named = (i64, Option<String>, Option<i64>, Option<i64>, String);

/// Who turned up for the first time.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    pub(crate) gpus: Vec<GpuCard>,
    pub(crate) processes: Vec<ProcessCard>,
}

impl Names {
    /// The series behind an id that [`Self::learn`] has seen.
    pub(crate) fn series(&self, id: SeriesId) -> Option<&SeriesKey> {
        self.series.get(&id)?.as_ref()
    }

    /// Looks up what is new in a row, and introduces the GPUs and processes in it.
    pub(crate) async fn learn(
        &mut self,
        conn: &mut SqliteConnection,
        row: &Row,
    ) -> Result<Cards, sqlx::Error> {
        let new: Vec<SeriesId> =
            row.iter().map(|entry| entry.0).filter(|id| !self.series.contains_key(id)).collect();
        let mut cards = Cards::default();
        if new.is_empty() {
            return Ok(cards);
        }
        self.series.extend(new.iter().map(|id| (*id, None)));
        let found: Vec<Named> = sqlx::query_as(
            "SELECT id, gpu, pid, start_ticks, metric FROM series
             WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        )
        .bind(json::text(&new)?)
        .fetch_all(&mut *conn)
        .await?;
        for (id, gpu, pid, start_ticks, metric) in found {
            let gpu = gpu.as_deref().map(|uuid| self.one_gpu(uuid));
            let proc = pid.map(|pid| proc_key(pid, start_ticks));
            if let Some(gpu) = gpu.as_ref().filter(|gpu| self.gpus.insert((*gpu).clone())) {
                cards.gpus.extend(gpu_card(conn, gpu).await?);
            }
            if let Some(key) = proc.filter(|key| self.processes.insert(*key)) {
                cards.processes.extend(process_card(conn, key).await?);
            }
            let key = Metric::from_name(&metric).map(|metric| SeriesKey { gpu, proc, metric });
            self.series.extend(SeriesId::try_from(id).ok().map(|id| (id, key)));
        }
        Ok(cards)
    }

    /// The UUID, sharing its text with the series that named it before.
    fn one_gpu(&self, uuid: &str) -> GpuUuid {
        let uuid = GpuUuid::new(uuid);
        self.gpus.get(&uuid).cloned().unwrap_or(uuid)
    }
}

/// The id of a series, and its newest window that is in the rollups; `None` where the file has none.
pub(crate) async fn series_id(
    conn: &mut SqliteConnection,
    key: &SeriesKey,
) -> Result<Option<(SeriesId, WindowId)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, rolled_window FROM series
         WHERE coalesce(pid, -1) = ? AND coalesce(start_ticks, -1) = ? AND coalesce(gpu, '') = ? AND metric = ?",
    )
    .bind(key.proc.map_or(-1, |proc| i64::from(proc.pid)))
    .bind(key.proc.and_then(|proc| proc.start_ticks).map_or(-1, u64::cast_signed))
    .bind(key.gpu.as_ref().map_or_else(String::new, |gpu| gpu.as_str().to_owned()))
    .bind(key.metric.name())
    .fetch_optional(conn)
    .await
}

/// A number that is no PID can only come from a damaged row; such a process is nobody's.
pub(crate) fn proc_key(pid: i64, start_ticks: Option<i64>) -> ProcKey {
    ProcKey { pid: u32::try_from(pid).unwrap_or(0), start_ticks: start_ticks.map(i64::cast_unsigned) }
}

async fn gpu_card(conn: &mut SqliteConnection, uuid: &GpuUuid) -> Result<Option<GpuCard>, sqlx::Error> {
    let found: Option<(u32, String, String)> =
        sqlx::query_as("SELECT position, name, kind FROM gpu WHERE uuid = ?")
            .bind(uuid.as_str().to_owned())
            .fetch_optional(conn)
            .await?;
    Ok(found.and_then(|(index, name, kind)| {
        let kind: GpuKind = json::value("gpu", &kind)?;
        Some(GpuCard { uuid: uuid.clone(), index, name: name.into(), kind })
    }))
}

async fn process_card(conn: &mut SqliteConnection, key: ProcKey) -> Result<Option<ProcessCard>, sqlx::Error> {
    let info: Option<String> =
        sqlx::query_scalar("SELECT info FROM process WHERE pid = ? AND coalesce(start_ticks, -1) = ?")
            .bind(key.pid)
            .bind(key.start_ticks.map_or(-1, u64::cast_signed))
            .fetch_optional(conn)
            .await?;
    Ok(info.and_then(|info| {
        let StoredProcess { info, engine } = json::value("process", &info)?;
        Some(ProcessCard { key, info: Arc::new(info.into_owned()), engine: engine.map(Cow::into_owned) })
    }))
}
