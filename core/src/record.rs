//! What one tick leaves in the history.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, ProcKey};
use crate::sample::{GpuKind, ProcInfo};
use crate::series::SeriesKey;
use crate::units::Tick;

/// One tick as it is stored: numbers by series, and the names that are introduced with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TickRecord {
    /// When.
    pub tick: Tick,
    /// The values of this tick. `None` is "absent", and a series without an entry was not asked.
    pub points: Vec<Point>,
    /// GPUs introduced in this tick: new ones at once, known ones again now and then.
    pub gpus: Vec<GpuCard>,
    /// Processes introduced likewise.
    pub processes: Vec<ProcessCard>,
}

/// One value of one series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Which series.
    pub series: SeriesKey,
    /// The value in the unit of its metric.
    pub value: Option<i64>,
}

/// What is remembered of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCard {
    /// Its identity.
    pub uuid: GpuUuid,
    /// Its number when first seen.
    pub index: u32,
    /// Product name.
    pub name: Arc<str>,
    /// What sort of memory it has.
    pub kind: GpuKind,
}

/// What is remembered of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessCard {
    /// Its identity.
    pub key: ProcKey,
    /// What did not change while it lived.
    pub info: Arc<ProcInfo>,
    /// The engine in it, as its makers write it; `None` where none was found, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}
