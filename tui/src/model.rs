//! What the dashboard knows and what is selected in it. Nothing here draws, waits or has a clock.

use std::time::Duration;

use ebbtide_api::wire::{GpuStatus, Status};
use ebbtide_core::{
    Finding, FindingKey, GpuUuid, Judgement, Metric, Reading, SeriesKey, SeriesPart, SeriesRef, Ts,
};

use crate::row::{self, Order, Row, RowKey};
use crate::trace::{self, SPANS_MS, Trace};

/// Whether the daemon is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Nothing has come yet.
    Connecting,
    /// Statuses come.
    Live,
    /// Connected, but no status has come for so many seconds: what is shown is old.
    Silent(u64),
    /// Not connected, in words; it is tried again.
    Broken(String),
}

/// The part of the screen that the arrow keys move in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    /// The list of GPUs.
    Gpus,
    /// The processes of the selected GPU.
    Processes,
    /// The open findings of the machine.
    Findings,
}

/// What lies over the panes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlay {
    /// The list of keys.
    Help,
    /// What the daemon says of itself.
    Notes,
    /// Everything about what is selected.
    Detail,
}

/// The vertical range of the chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Fitted to the values, so that a slow leak on a large card can be seen.
    Fitted,
    /// From zero to the capacity.
    Whole,
}

/// The whole state of the dashboard. Selections are kept by identity, so that a row that moves stays selected.
#[derive(Debug)]
pub struct Model {
    /// Whether the daemon is heard.
    pub link: Link,
    /// The newest status.
    pub status: Option<Status>,
    /// Where the arrow keys move.
    pub pane: Pane,
    /// The selected GPU, if one was chosen.
    pub gpu: Option<GpuUuid>,
    /// The selected row of the process table, if one was chosen.
    pub row: Option<RowKey>,
    /// The selected finding, if one was chosen.
    pub finding: Option<FindingKey>,
    /// The order of processes.
    pub order: Order,
    /// Which of [`SPANS_MS`] the chart covers.
    pub span: usize,
    /// The vertical range of the chart.
    pub scale: Scale,
    /// What lies over the panes.
    pub overlay: Option<Overlay>,
    /// How often its page was turned; after the last page comes the first, and how many there are is known to who
    /// draws them.
    pub page: usize,
    /// The past of what is selected.
    pub trace: Option<Trace>,
    /// When the newest status came, on the clock of [`crate::update::update`].
    pub received: Duration,
    /// The time between the last two statuses.
    pub interval: Duration,
}

/// 15 minutes: long enough for a floor to show, short enough for a second's resolution.
const FIRST_SPAN: usize = 3;

impl Default for Model {
    fn default() -> Self {
        Self {
            link: Link::Connecting,
            status: None,
            pane: Pane::Gpus,
            gpu: None,
            row: None,
            finding: None,
            order: Order::default(),
            span: FIRST_SPAN,
            scale: Scale::Fitted,
            overlay: None,
            page: 0,
            trace: None,
            received: Duration::ZERO,
            interval: Duration::ZERO,
        }
    }
}

impl Model {
    /// One whose chart covers `span_ms` at first, or the next longer span there is.
    #[must_use]
    pub fn covering(span_ms: i64) -> Self {
        let span = SPANS_MS.iter().position(|&span| span >= span_ms).unwrap_or(SPANS_MS.len() - 1);
        Self { span, ..Self::default() }
    }

    /// All GPUs; none before the first status.
    #[must_use]
    pub fn gpus(&self) -> &[GpuStatus] {
        self.status.as_ref().map_or(&[], |s| &s.gpus)
    }

    /// The open findings of the machine.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.status.as_ref().map_or(&[], |s| &s.findings)
    }

    /// The place of the selected GPU in [`Model::gpus`]; the first where the chosen one is gone.
    #[must_use]
    pub fn gpu_place(&self) -> usize {
        place(self.gpus(), |g| Some(&g.gpu.uuid) == self.gpu.as_ref())
    }

    /// The selected GPU.
    #[must_use]
    pub fn selected_gpu(&self) -> Option<&GpuStatus> {
        self.gpus().get(self.gpu_place())
    }

    /// The rows of the process table.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        self.selected_gpu().map_or_else(Vec::new, |gpu| row::rows(gpu, self.order))
    }

    /// The place of the selected row among `rows`.
    #[must_use]
    pub fn row_place(&self, rows: &[Row<'_>]) -> usize {
        place(rows, |r| Some(r.key) == self.row)
    }

    /// The place of the selected finding in [`Model::findings`].
    #[must_use]
    pub fn finding_place(&self) -> usize {
        place(self.findings(), |f| Some(&f.key) == self.finding.as_ref())
    }

    /// The selected finding.
    #[must_use]
    pub fn selected_finding(&self) -> Option<&Finding> {
        self.findings().get(self.finding_place())
    }

    /// How far back the chart reaches.
    #[must_use]
    pub fn span_ms(&self) -> i64 {
        SPANS_MS[self.span.min(SPANS_MS.len() - 1)]
    }

    /// The series that the chart shows: the GPU's, the selected process's, or the one that the selected finding is
    /// about, by the pane that has the keys.
    #[must_use]
    pub fn charted(&self) -> Option<SeriesKey> {
        let gpu = self.selected_gpu()?;
        let device = SeriesKey { gpu: Some(gpu.gpu.uuid.clone()), proc: None, metric: Metric::UsedBytes };
        Some(match self.pane {
            Pane::Gpus => device,
            Pane::Processes => {
                let rows = self.rows();
                rows.get(self.row_place(&rows)).map_or(device, |row| row.key.series(gpu))
            }
            Pane::Findings => self.selected_finding().map_or(device, |f| stored(&f.key.series)),
        })
    }

    /// The GPU that a series belongs to.
    #[must_use]
    pub fn gpu_of(&self, series: &SeriesKey) -> Option<&GpuStatus> {
        self.gpus().iter().find(|g| Some(&g.gpu.uuid) == series.gpu.as_ref())
    }

    /// What is said of a series.
    #[must_use]
    pub fn judgement_of(&self, series: &SeriesKey) -> Option<&Judgement> {
        row::judgement(self.gpu_of(series)?, part(series)?)
    }

    /// The newest value of a series and the instant it belongs to; `None` where the series is no longer there.
    #[must_use]
    pub fn newest(&self, series: &SeriesKey) -> Option<(Ts, Reading<i64>)> {
        trace::value_in(self.status.as_ref()?, series)
    }
}

/// The place of the first item that `chosen` accepts, or the first place.
fn place<T>(items: &[T], chosen: impl Fn(&T) -> bool) -> usize {
    items.iter().position(chosen).unwrap_or(0)
}

/// The part of a GPU's memory that a stored series measures, where that part is judged.
fn part(series: &SeriesKey) -> Option<SeriesPart> {
    match (series.metric, series.proc) {
        (Metric::UsedBytes, None) => Some(SeriesPart::Device),
        (Metric::UnattributedBytes, None) => Some(SeriesPart::Unattributed),
        (Metric::ProcessBytes, Some(key)) => Some(SeriesPart::Process(key)),
        (Metric::RssBytes, Some(key)) => Some(SeriesPart::Host(key)),
        _ => None,
    }
}

/// The stored series that measures a judged one.
fn stored(series: &SeriesRef) -> SeriesKey {
    let (proc, metric) = match series.part {
        SeriesPart::Device => (None, Metric::UsedBytes),
        SeriesPart::Process(key) => (Some(key), Metric::ProcessBytes),
        SeriesPart::Unattributed => (None, Metric::UnattributedBytes),
        SeriesPart::Host(key) => (Some(key), Metric::RssBytes),
    };
    SeriesKey { gpu: Some(series.gpu.clone()), proc, metric }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_covers_what_was_asked_or_the_next_longer_span() {
        assert_eq!(Model::covering(100_000).span_ms(), 120_000);
        assert_eq!(Model::covering(900_000).span_ms(), Model::default().span_ms());
        assert_eq!(Model::covering(i64::MAX).span_ms(), 730 * 24 * 3_600_000);
    }
}
