//! Questions about the past: which series there are, and what they did.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use ebbtide_core::{GpuUuid, Metric, ProcKey, SeriesKey, Ts, text};
use serde::Deserialize;

use super::{Refused, Sources};
use crate::server::HistoryFuture;
use crate::wire::{Histories, HistoriesQuery, History, HistoryQuery, SeriesEntry, SeriesQuery};

/// How long a look into the history may take.
pub const HISTORY_TIMEOUT: Duration = Duration::from_secs(10);

/// The most points of an answer: several for each column of the widest screen.
pub const MAX_POINTS: u32 = 10_000;

/// The most series whose histories are told at once: more lines than a chart can show apart.
pub const MAX_HISTORIES: usize = 100;

/// The most points of each of them: one for each column of a wide screen, and all of them some 20 MB of JSON.
const MAX_POINTS_EACH: u32 = 2_000;

/// Points, and the span before `to_ms`, when none are asked for.
const DEFAULT_POINTS: u32 = 600;
const DEFAULT_SPAN_MS: i64 = 3_600_000;

/// A query, or why it is none.
type Asked<T> = Result<Query<T>, QueryRejection>;

/// The query of `/v1/history`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryParams {
    gpu: Option<String>,
    pid: Option<u32>,
    start_ticks: Option<u64>,
    metric: String,
    from_ms: Option<i64>,
    to_ms: Option<i64>,
    points: Option<u32>,
}

/// The query of `/v1/histories`: that of `/v1/series` with a span. Written out, since a flattened query has only text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoriesParams {
    gpu: Option<GpuUuid>,
    pid: Option<u32>,
    metric: Option<Metric>,
    name: Option<String>,
    unit: Option<String>,
    container: Option<String>,
    pod: Option<String>,
    engine: Option<String>,
    #[serde(default)]
    open: bool,
    from_ms: Option<i64>,
    to_ms: Option<i64>,
    points: Option<u32>,
}

impl HistoryParams {
    fn query(self, now: Ts) -> Result<HistoryQuery, Refused> {
        let Some(metric) = Metric::from_name(&self.metric) else {
            let names = Metric::ALL.map(Metric::name).join(", ");
            return Err(Refused::bad_request(format!("metric is none of {names}")));
        };
        if self.start_ticks.is_some() && self.pid.is_none() {
            return Err(Refused::bad_request("start_ticks belongs to a pid: give that too".to_owned()));
        }
        let (from, to) = span(self.from_ms, self.to_ms, now)?;
        let proc = self.pid.map(|pid| ProcKey { pid, start_ticks: self.start_ticks });
        let series = SeriesKey { gpu: self.gpu.as_deref().map(GpuUuid::new), proc, metric };
        let points = self.points.unwrap_or(DEFAULT_POINTS).clamp(1, MAX_POINTS);
        Ok(HistoryQuery { series, from, to, points })
    }
}

impl HistoriesParams {
    fn query(self, now: Ts) -> Result<HistoriesQuery, Refused> {
        let (from, to) = span(self.from_ms, self.to_ms, now)?;
        let points = self.points.unwrap_or(DEFAULT_POINTS).clamp(1, MAX_POINTS_EACH);
        let Self { gpu, pid, metric, name, unit, container, pod, engine, open, .. } = self;
        let wanted = SeriesQuery { gpu, pid, metric, name, unit, container, pod, engine, open };
        Ok(HistoriesQuery { wanted, from, to, points })
    }
}

fn span(from: Option<i64>, to: Option<i64>, now: Ts) -> Result<(Ts, Ts), Refused> {
    let to = to.map_or(now, Ts);
    let from = from.map_or(to.plus_ms(-DEFAULT_SPAN_MS), Ts);
    if from >= to {
        return Err(Refused::bad_request("from_ms must be smaller than to_ms".to_owned()));
    }
    Ok((from, to))
}

pub(super) async fn history(
    State(sources): State<Sources>,
    params: Asked<HistoryParams>,
) -> Result<Json<History>, Refused> {
    let query = asked(params)?.query(now())?;
    in_time(sources.history.history(query)).await
}

pub(super) async fn series(
    State(sources): State<Sources>,
    wanted: Asked<SeriesQuery>,
) -> Result<Json<Vec<SeriesEntry>>, Refused> {
    let wanted = asked(wanted)?;
    in_time(sources.history.series(wanted)).await
}

pub(super) async fn histories(
    State(sources): State<Sources>,
    params: Asked<HistoriesParams>,
) -> Result<Json<Histories>, Refused> {
    let query = asked(params)?.query(now())?;
    in_time(sources.history.histories(query)).await
}

fn asked<T>(params: Asked<T>) -> Result<T, Refused> {
    let Query(params) = params.map_err(|error| Refused::bad_request(text::clean(&error.body_text())))?;
    Ok(params)
}

async fn in_time<T>(answer: HistoryFuture<'_, T>) -> Result<Json<T>, Refused> {
    let answer = tokio::time::timeout(HISTORY_TIMEOUT, answer).await.map_err(|_| {
        let seconds = HISTORY_TIMEOUT.as_secs();
        let reason = format!("the history did not answer within {seconds} s: ask for a shorter span");
        Refused(StatusCode::GATEWAY_TIMEOUT, reason)
    })??;
    Ok(Json(answer))
}

/// Only the default of `to_ms`: nothing is judged by this clock.
fn now() -> Ts {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ts(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
