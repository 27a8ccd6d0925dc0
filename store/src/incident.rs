//! Incidents: the end of a process, and the ticks before it, taken out of the reach of retention.

use std::collections::BTreeMap;

use ebbtide_core::{GpuUuid, Incident, Metric, SeriesKey, Tick};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{Cell, Cells, chunk_id};
use crate::codec::SeriesId;
use crate::column::MAX_LENGTH;
use crate::json;
use crate::names::{self, Names};
use crate::walk::Walk;
use crate::window;

/// Incidents that are kept; beyond it the oldest go. With 400 series each takes some 90 KB, so all of them 50 MB.
const KEPT_INCIDENTS: i64 = 500;

/// Deletes incidents beyond those that are kept, and their series.
const FORGET: &str = "DELETE FROM incident WHERE id <= (SELECT max(id) FROM incident) - ?";
const FORGET_SERIES: &str =
    "DELETE FROM incident_series WHERE id < ((SELECT max(id) FROM incident) - ? + 1) << 32";

/// An incident as it is listed.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredIncident {
    /// Its number in this file.
    pub id: u32,
    /// What happened.
    pub incident: Incident,
}

/// An incident with the ticks before it.
#[derive(Debug, Clone, PartialEq)]
pub struct FrozenIncident {
    /// Its number in this file.
    pub id: u32,
    /// What happened.
    pub incident: Incident,
    /// The ticks, in the order in which they were made; empty where there were none, or their times are damaged.
    pub ticks: Vec<Tick>,
    /// What the series on its GPUs and of the host did in them; those whose values are damaged are left out.
    pub series: Vec<FrozenSeries>,
}

/// One series before the end of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct FrozenSeries {
    /// Its name.
    pub key: SeriesKey,
    /// For each tick: `None` where it was not asked, `Some(None)` where it was absent.
    pub cells: Vec<Option<Option<i64>>>,
}

/// The ticks before an incident.
#[derive(Debug, Default)]
struct Recent {
    ticks: Vec<Tick>,
    series: BTreeMap<SeriesId, (SeriesKey, Cells)>,
}

/// Keeps an incident and the ticks before it; nothing where it is kept already.
pub(crate) async fn freeze(conn: &mut SqliteConnection, incident: &Incident) -> Result<(), sqlx::Error> {
    let recent = Recent::before(conn, incident).await?;
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let next: u32 =
        sqlx::query_scalar("SELECT coalesce(max(id), 0) + 1 FROM incident").fetch_one(&mut *tx).await?;
    let entered = sqlx::query(
        "INSERT INTO incident (id, at_ms, pid, start_ticks, times, body) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT DO NOTHING",
    )
    .bind(next)
    .bind(incident.at.0)
    .bind(incident.proc.pid)
    .bind(incident.proc.start_ticks.map(u64::cast_signed))
    .bind(window::encode(next, &recent.ticks))
    .bind(json::text(incident)?)
    .execute(&mut *tx)
    .await?;
    if entered.rows_affected() > 0 {
        recent.store(&mut tx, next).await?;
        sqlx::query(FORGET_SERIES).bind(KEPT_INCIDENTS).execute(&mut *tx).await?;
        sqlx::query(FORGET).bind(KEPT_INCIDENTS).execute(&mut *tx).await?;
    }
    tx.commit().await
}

impl Recent {
    async fn before(conn: &mut SqliteConnection, incident: &Incident) -> Result<Self, sqlx::Error> {
        let gpus: Vec<&GpuUuid> = incident.gpus.iter().map(|at_end| &at_end.gpu).collect();
        let mut walk = Walk::new(incident.from, incident.at);
        let (mut names, mut recent) = (Names::default(), Self::default());
        while let Some((tick, row)) = walk.next(conn).await? {
            names.learn(conn, row).await?;
            for (id, value) in row {
                let Some(key) = names.series(*id) else { continue };
                if key.gpu.as_ref().is_none_or(|gpu| gpus.contains(&gpu)) {
                    let (_, cells) =
                        recent.series.entry(*id).or_insert_with(|| (key.clone(), Cells::default()));
                    cells.pad_to(recent.ticks.len());
                    cells.push(Some(*value));
                }
            }
            recent.ticks.push(tick);
            if recent.ticks.len() >= MAX_LENGTH {
                break;
            }
        }
        Ok(recent)
    }

    async fn store(self, conn: &mut SqliteConnection, incident: u32) -> Result<(), sqlx::Error> {
        for ((key, mut cells), place) in self.series.into_values().zip(0..) {
            cells.pad_to(self.ticks.len());
            let id = chunk_id(incident, place);
            sqlx::query(
                "INSERT INTO incident_series (id, gpu, pid, start_ticks, metric, data) VALUES (?, ?, ?, ?, ?, ?)",
            )
            .bind(id)
            .bind(key.gpu.as_ref().map(|gpu| gpu.as_str().to_owned()))
            .bind(key.proc.map(|proc| proc.pid))
            .bind(key.proc.and_then(|proc| proc.start_ticks).map(u64::cast_signed))
            .bind(key.metric.name())
            .bind(cells.encode(id))
            .execute(&mut *conn)
            .await?;
        }
        Ok(())
    }
}

/// All incidents, the newest first.
pub(crate) async fn list(conn: &mut SqliteConnection) -> Result<Vec<StoredIncident>, sqlx::Error> {
    let rows: Vec<(u32, String)> =
        sqlx::query_as("SELECT id, body FROM incident ORDER BY id DESC").fetch_all(conn).await?;
    let read =
        |(id, body): (u32, String)| Some(StoredIncident { id, incident: json::value("incident", &body)? });
    Ok(rows.into_iter().filter_map(read).collect())
}

/// One incident with its ticks; `None` where there is none of that number.
pub(crate) async fn find(
    conn: &mut SqliteConnection,
    id: u32,
) -> Result<Option<FrozenIncident>, sqlx::Error> {
    type Named = (i64, Option<String>, Option<i64>, Option<i64>, String, Vec<u8>);
    let mut view = conn.begin().await?;
    let found: Option<(Vec<u8>, String)> = sqlx::query_as("SELECT times, body FROM incident WHERE id = ?")
        .bind(id)
        .fetch_optional(&mut *view)
        .await?;
    let Some((times, body)) = found else { return Ok(None) };
    let Some(incident) = json::value("incident", &body) else { return Ok(None) };
    let ticks = window::decode(id, &times).unwrap_or_else(|damage| {
        tracing::warn!(id, ?damage, "the times of an incident are damaged: its ticks are left out");
        Vec::new()
    });
    let rows: Vec<Named> = sqlx::query_as(
        "SELECT id, gpu, pid, start_ticks, metric, data FROM incident_series WHERE id BETWEEN ? AND ? ORDER BY id",
    )
    .bind(chunk_id(id, 0))
    .bind(chunk_id(id, u32::MAX))
    .fetch_all(&mut *view)
    .await?;
    let series = rows.into_iter().filter_map(|(id, gpu, pid, start_ticks, metric, data)| {
        let metric = Metric::from_name(&metric)?;
        let proc = pid.map(|pid| names::proc_key(pid, start_ticks));
        let key = SeriesKey { gpu: gpu.as_deref().map(GpuUuid::new), proc, metric };
        Some(FrozenSeries { key, cells: cells(id, &data, ticks.len())? })
    });
    let series = series.collect();
    Ok(Some(FrozenIncident { id, incident, ticks, series }))
}

fn cells(id: i64, data: &[u8], ticks: usize) -> Option<Vec<Cell>> {
    let cells = Cells::decode(id, data).ok().filter(|cells| cells.len() == ticks);
    if cells.is_none() {
        tracing::warn!(id, "a series of an incident is damaged and left out");
    }
    cells.map(|cells| cells.play().collect())
}
