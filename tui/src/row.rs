//! The rows of the process table: who holds a GPU's memory, so that the sum can be seen.

use std::cmp::{Ordering, Reverse};

use ebbtide_api::wire::GpuStatus;
use ebbtide_core::{
    Diagnosis, Judgement, Metric, ProcKey, ProcSample, Reading, SeriesKey, SeriesPart, SignedBytes,
};

/// What a row stands for; survives from one status to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKey {
    /// One process.
    Process(ProcKey),
    /// What no process explains.
    Unattributed,
    /// What driver and firmware take.
    Reserved,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// What it stands for.
    pub key: RowKey,
    /// The process, where it is one.
    pub process: Option<&'a ProcSample>,
    /// How much it holds.
    pub memory: Reading<SignedBytes>,
    /// What is said of it; nothing is judged of what the driver reserves.
    pub judgement: Option<&'a Judgement>,
}

/// The order of processes. Rows that are no processes always stand last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Largest first.
    #[default]
    Memory,
    /// Fastest growing first.
    Slope,
    /// By process id.
    Pid,
    /// By name.
    Name,
}

impl Order {
    /// The order after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Memory => Self::Slope,
            Self::Slope => Self::Pid,
            Self::Pid => Self::Name,
            Self::Name => Self::Memory,
        }
    }

    /// The name on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Slope => "slope",
            Self::Pid => "pid",
            Self::Name => "name",
        }
    }

    fn compare(self, a: &Row<'_>, b: &Row<'_>) -> Ordering {
        let by = match self {
            // An unknown amount or slope is not a small one: it goes below all that are known.
            Self::Memory => Reverse(a.memory.ok()).cmp(&Reverse(b.memory.ok())),
            Self::Slope => slope(b).total_cmp(&slope(a)),
            Self::Pid => Ordering::Equal,
            Self::Name => name(a).cmp(name(b)),
        };
        by.then_with(|| a.process.map(|p| p.key).cmp(&b.process.map(|p| p.key)))
    }
}

fn slope(row: &Row<'_>) -> f64 {
    row.judgement.and_then(|j| j.slope.ok()).map_or(f64::NEG_INFINITY, |band| band.rate.0)
}

fn name<'a>(row: &Row<'a>) -> &'a str {
    row.process.and_then(|p| p.info.name.as_deref().ok()).unwrap_or_default()
}

impl RowKey {
    /// The series that is stored of the row.
    #[must_use]
    pub fn series(self, gpu: &GpuStatus) -> SeriesKey {
        let (proc, metric) = match self {
            Self::Process(key) => (Some(key), Metric::ProcessBytes),
            Self::Unattributed => (None, Metric::UnattributedBytes),
            Self::Reserved => (None, Metric::ReservedBytes),
        };
        SeriesKey { gpu: Some(gpu.gpu.uuid.clone()), proc, metric }
    }
}

/// All rows of a GPU: its processes in `order`, then what no process explains, then what the driver reserves.
#[must_use]
pub fn rows(gpu: &GpuStatus, order: Order) -> Vec<Row<'_>> {
    let entries = gpu.gpu.processes.as_ref().map_or(&[][..], |list| &list.entries);
    let mut rows: Vec<Row<'_>> = entries
        .iter()
        .map(|process| Row {
            key: RowKey::Process(process.key),
            process: Some(process),
            memory: process.memory.map(|b| SignedBytes(i64::try_from(b.0).unwrap_or(i64::MAX))),
            judgement: judgement(gpu, SeriesPart::Process(process.key)),
        })
        .collect();
    rows.sort_by(|a, b| order.compare(a, b));
    rows.push(Row {
        key: RowKey::Unattributed,
        process: None,
        memory: gpu.ledger.unattributed,
        judgement: judgement(gpu, SeriesPart::Unattributed),
    });
    rows.push(Row {
        key: RowKey::Reserved,
        process: None,
        memory: gpu.ledger.driver_reserved.map(|b| SignedBytes(i64::try_from(b.0).unwrap_or(i64::MAX))),
        judgement: None,
    });
    rows
}

/// What is said of one part of a GPU's memory.
#[must_use]
pub fn judgement(gpu: &GpuStatus, part: SeriesPart) -> Option<&Judgement> {
    gpu.judgements.iter().find(|j| j.series.part == part)
}

/// The cause that matters most among all parts of a GPU's memory: one that rises, or else the device's own.
#[must_use]
pub fn gravest(gpu: &GpuStatus) -> Option<Diagnosis> {
    let graver = [
        Diagnosis::Leak,
        Diagnosis::SlopeChange,
        Diagnosis::KvPoolLeak,
        Diagnosis::NotReleased,
        Diagnosis::Orphan,
        Diagnosis::HostLeak,
        Diagnosis::Imbalance,
        Diagnosis::Fragmented,
        Diagnosis::Growth,
        Diagnosis::HighWater,
        Diagnosis::KvGrowth,
        Diagnosis::IdleHolder,
    ];
    let stands = |diagnosis: &Diagnosis| gpu.judgements.iter().any(|j| j.diagnosis == *diagnosis);
    let device = || judgement(gpu, SeriesPart::Device).map(|j| j.diagnosis);
    graver.into_iter().find(stands).or_else(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world;
    use ebbtide_core::{Absent, Bytes};

    fn pids(gpu: &GpuStatus, order: Order) -> Vec<u32> {
        rows(gpu, order).iter().filter_map(|r| r.process).map(|p| p.key.pid).collect()
    }

    #[test]
    fn each_order_sorts_and_the_unknown_comes_last() {
        let tick = world::tick(0);
        let mut hidden = world::process(1, "m", 0);
        hidden.memory = Err(Absent::NoPermission);
        let listed =
            vec![hidden, world::process(2, "z", 10), world::process(3, "a", 20), world::process(4, "k", 30)];
        let mut gpu = world::gpu(0, tick, listed);
        for (pid, diagnosis) in [(2, Diagnosis::Leak), (3, Diagnosis::Steady)] {
            let part = SeriesPart::Process(ProcKey { pid, start_ticks: Some(u64::from(pid) * 10) });
            let series = world::series(&gpu, part);
            gpu.judgements.push(world::judgement(series, diagnosis, Bytes::from_mib(10), tick.at));
        }
        assert_eq!(pids(&gpu, Order::Memory), [4, 3, 2, 1]);
        assert_eq!(pids(&gpu, Order::Slope), [2, 3, 1, 4]);
        assert_eq!(pids(&gpu, Order::Pid), [1, 2, 3, 4]);
        assert_eq!(pids(&gpu, Order::Name), [3, 4, 1, 2]);
        assert_eq!(gravest(&gpu), Some(Diagnosis::Leak));
    }

    #[test]
    fn the_rows_and_what_is_free_add_up_to_the_whole() {
        let gpu =
            world::gpu(0, world::tick(0), vec![world::process(1, "a", 500), world::process(2, "b", 700)]);
        let held: i64 = rows(&gpu, Order::Memory).iter().map(|r| r.memory.unwrap().0).sum();
        let memory = gpu.gpu.memory.unwrap();
        assert_eq!(held as u64 + memory.free.0, memory.total.0);
    }
}
