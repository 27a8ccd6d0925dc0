//! Which series there are.

use std::borrow::Cow;

use ebbtide_core::{GpuUuid, Metric, Owner, ProcInfo, ProcKey, SeriesKey};
use sqlx::sqlite::SqliteConnection;

use crate::json;
use crate::names::StoredProcess;

/// Series returned at once, the newest: more than a screen lists or a person reads.
const MAX_SERIES: i64 = 10_000;

/// Which series are wanted: those that fulfil everything that is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesFilter {
    /// On this GPU.
    pub gpu: Option<GpuUuid>,
    /// Of a process with this PID.
    pub pid: Option<u32>,
    /// Of this quantity.
    pub metric: Option<Metric>,
    /// Of a process with this name.
    pub name: Option<String>,
    /// Of a process in this systemd unit.
    pub unit: Option<String>,
    /// Of a process in a container whose id begins so.
    pub container: Option<String>,
    /// Of a process in the pod of this name or uid.
    pub pod: Option<String>,
    /// Of a process in which this engine was found, in whichever case its name is written.
    pub engine: Option<String>,
    /// Only those that are still read.
    pub open: bool,
}

/// A series that the file holds something of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSeries {
    /// Its name, by which a history is asked for.
    pub key: SeriesKey,
    /// The name of its process, where it has one that is known.
    pub name: Option<String>,
    /// Whom its process belongs to.
    pub owner: Owner,
    /// The engine in its process, where one was found.
    pub engine: Option<String>,
    /// Whether it was in the newest ticks; a process that ended has none that is.
    pub open: bool,
}

/// A row: GPU, PID, start ticks, metric, whether it is open, what is known of the process.
type Stored = (Option<String>, Option<u32>, Option<i64>, String, bool, Option<String>);

/// The series that the filter lets through, in the order in which they were first seen.
pub(crate) async fn list(
    conn: &mut SqliteConnection,
    filter: &SeriesFilter,
) -> Result<Vec<StoredSeries>, sqlx::Error> {
    // What is known of a process is asked only where it can be read: damaged JSON would end the whole query.
    let rows: Vec<Stored> = sqlx::query_as(
        "SELECT gpu, pid, start_ticks, metric, open, info FROM (
             SELECT s.id, s.gpu, s.pid, s.start_ticks, s.metric, s.closed_window IS NULL AS open,
                    CASE WHEN json_valid(p.info) THEN p.info END AS info
             FROM series s LEFT JOIN process p
               ON p.pid = s.pid AND coalesce(p.start_ticks, -1) = coalesce(s.start_ticks, -1))
         WHERE (?1 IS NULL OR gpu = ?1) AND (?2 IS NULL OR pid = ?2) AND (?3 IS NULL OR metric = ?3)
           AND (NOT ?4 OR open)
           AND (?5 IS NULL OR info ->> '$.name' = ?5)
           AND (?6 IS NULL OR info ->> '$.owner.unit' = ?6)
           AND (?7 IS NULL OR substr(info ->> '$.owner.container', 1, length(?7)) = ?7)
           AND (?8 IS NULL OR ?8 IN (info ->> '$.owner.pod.uid', info ->> '$.owner.pod.name'))
           AND (?9 IS NULL OR lower(info ->> '$.engine') = lower(?9))
         ORDER BY id DESC LIMIT ?10",
    )
    .bind(filter.gpu.as_ref().map(|gpu| gpu.as_str().to_owned()))
    .bind(filter.pid)
    .bind(filter.metric.map(Metric::name))
    .bind(filter.open)
    .bind(filter.name.clone())
    .bind(filter.unit.clone())
    .bind(filter.container.clone())
    .bind(filter.pod.clone())
    .bind(filter.engine.clone())
    .bind(MAX_SERIES)
    .fetch_all(conn)
    .await?;
    let series = rows.into_iter().rev().filter_map(|(gpu, pid, start_ticks, metric, open, info)| {
        let stored: Option<StoredProcess<'_>> = info.and_then(|info| json::value("process", &info));
        let (info, engine) = stored.map(|stored| (stored.info.into_owned(), stored.engine)).unzip();
        let proc = pid.map(|pid| ProcKey { pid, start_ticks: start_ticks.map(i64::cast_unsigned) });
        Some(StoredSeries {
            // What a later build has added is left out.
            key: SeriesKey {
                gpu: gpu.as_deref().map(GpuUuid::new),
                proc,
                metric: Metric::from_name(&metric)?,
            },
            name: info.as_ref().and_then(|info: &ProcInfo| info.name.clone().ok()),
            owner: info.map(|info| info.owner).unwrap_or_default(),
            engine: engine.flatten().map(Cow::into_owned),
            open,
        })
    });
    Ok(series.collect())
}
