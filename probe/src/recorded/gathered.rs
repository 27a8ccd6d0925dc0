//! Rows of files that state one value a line: the values of one instant and subject come together here.

use std::collections::BTreeMap;

use ebbtide_core::{Absent, Metric, Reading};

use super::exported::ExportedValue;
use super::rows::{GpuCells, Quantity, Row, Rows, Skip, Subject, Values};

/// Values by instant, GPU and subject.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    rows: BTreeMap<(i64, u16, Subject), Values>,
    /// What the host had available, which is no GPU's.
    host: BTreeMap<i64, Reading<u64>>,
}

impl Gathered {
    /// How many rows there are so far.
    pub(super) fn len(&self) -> usize {
        self.rows.len().max(self.host.len())
    }

    /// Adds a value; of two for the same the later counts.
    pub(super) fn set(
        &mut self,
        (at_ms, gpu, subject): (i64, u16, Subject),
        quantity: Quantity,
        reading: Reading<u64>,
    ) {
        self.row(at_ms, gpu, subject).set(quantity, reading);
    }

    fn row(&mut self, at_ms: i64, gpu: u16, subject: Subject) -> &mut Values {
        self.rows.entry((at_ms, gpu, subject)).or_insert(Values::unrecorded())
    }

    /// Adds a line of an exported file.
    pub(super) fn exported(&mut self, value: &ExportedValue, rows: &mut Rows) -> Result<(), Skip> {
        let (series, at_ms) = (&value.point.series, value.at.0);
        let amount = value.point.value.and_then(|value| u64::try_from(value).ok()).ok_or(Absent::NotYet);
        let Some(gpu) = &series.gpu else {
            if series.metric == Metric::HostAvailableBytes {
                self.host.insert(at_ms, amount);
            }
            return Ok(());
        };
        let gpu = rows.gpu(GpuCells { uuid: Some(gpu.as_str()), ..GpuCells::default() })?;
        rows.lists_apart = true;
        if series.metric == Metric::ListedProcesses {
            self.row(at_ms, gpu, Subject::List);
            return Ok(());
        }
        let Some(quantity) = quantity(series.metric) else { return Ok(()) };
        let subject = match series.proc {
            Some(key) => Subject::Process(rows.process_of(key, None)?),
            None => Subject::Device,
        };
        self.set((at_ms, gpu, subject), quantity, amount);
        Ok(())
    }

    /// Hands over the rows. What the host had available goes with the first GPU.
    pub(super) fn finish(mut self, rows: &mut Rows) {
        if !rows.gpus.is_empty() {
            for (at_ms, available) in std::mem::take(&mut self.host) {
                self.set((at_ms, 0, Subject::Device), Quantity::HostAvailable, available);
            }
        }
        rows.rows.extend(self.rows.into_iter().map(|((at_ms, gpu, subject), values)| Row {
            at_ms: Some(at_ms),
            gpu,
            subject,
            values,
        }));
    }
}

/// What a stored metric is to a row. The rest follows from these.
const fn quantity(metric: Metric) -> Option<Quantity> {
    // tidy: table
    match metric {
        Metric::UsedBytes | Metric::ProcessBytes => Some(Quantity::Used),
        Metric::TotalBytes => Some(Quantity::Total),
        Metric::FreeBytes => Some(Quantity::Free),
        Metric::ReservedBytes => Some(Quantity::Reserved),
        Metric::UtilizationPercent => Some(Quantity::Utilization),
        Metric::RssBytes => Some(Quantity::HostRss),
        Metric::HostLimitBytes => Some(Quantity::HostLimit),
        Metric::KvUsedBytes => Some(Quantity::KvUsed),
        Metric::KvPoolBytes => Some(Quantity::KvPool),
        Metric::RunningRequests => Some(Quantity::Running),
        Metric::WaitingRequests => Some(Quantity::Waiting),
        _ => None,
    }
}
