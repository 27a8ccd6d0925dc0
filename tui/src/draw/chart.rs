//! The chart of one series: its memory as an area, its floor as a line in it.
//!
//! Below the floor line lies what stays when load ebbs; above it, what comes and goes.

use ebbtide_core::{Bytes, Judgement, SeriesKey, SignedBytes, Ts};

use super::palette::{self, FLOOR, LOUD, QUIET, USED};
use super::pen::Pen;
use super::wording;
use crate::model::{Model, Scale};
use crate::row;
use crate::trace::{Past, Spot, Trace};

/// Columns of the vertical axis: `1023.5 MiB`.
const AXIS: u16 = 11;
/// A glyph for each eighth of a cell.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Readings farther apart than this many usual distances have a gap between them.
const GAP: i64 = 3;
/// The smallest range of a fitted chart, as a share of the capacity: smaller and noise would look like a tide.
const SMALLEST_SHARE: f64 = 1.0 / 256.0;
/// The smallest range where no capacity is known.
const SMALLEST_RANGE: f64 = 1024.0 * 1024.0;

/// What one column of the chart shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column {
    /// The smallest and the largest value in it.
    range: (i64, i64),
    /// The floor in it.
    floor: Option<i64>,
}

pub(super) fn draw(pen: &mut Pen<'_>, model: &Model) {
    let (Some(status), Some(trace)) = (&model.status, &model.trace) else { return };
    let span = wording::duration(trace.span_ms);
    pen.rule(&title(model, &trace.series), &format!("last {span}"), false);
    let judgement = model.judgement_of(&trace.series);
    let capacity = model.gpu_of(&trace.series).and_then(|g| g.gpu.memory.ok()).map(|m| m.total);
    let legend = u16::from(pen.height() >= 4);
    if legend > 0 {
        draw_legend(&mut pen.below(1), model, &trace.series, judgement, status.tick.at);
    }
    let axis = u16::from(pen.height() >= 8);
    let plot_height = pen.height().saturating_sub(1 + legend + axis);
    let width = pen.width().saturating_sub(AXIS);
    if plot_height == 0 || width == 0 {
        return;
    }
    let floor = judgement.and_then(|j| j.floor.ok()).map(|b| i64::try_from(b.0).unwrap_or(i64::MAX));
    let columns = columns(trace, status.tick.at, usize::from(width), floor);
    let mut plot = pen.below(1 + legend);
    match range(&columns, capacity, model.scale) {
        Some(range) => draw_plot(&mut plot, plot_height, &columns, range, capacity),
        None => {
            plot.text((AXIS, plot_height / 2), &nothing(&trace.past), width, QUIET);
        }
    }
    if axis > 0 {
        plot.text((AXIS, plot_height), &format!("{span} ago"), width, QUIET);
        plot.right((AXIS + width, plot_height), "now", 3, QUIET);
    }
}

fn nothing(past: &Past) -> String {
    match past {
        Past::Asked => "asking for the past".to_owned(),
        Past::Known => "nothing was read in this span".to_owned(),
        Past::Unavailable(why) => format!("no past: {why}"),
    }
}

fn title(model: &Model, series: &SeriesKey) -> String {
    let gpu = model
        .gpu_of(series)
        .map_or_else(|| "a GPU that is gone".to_owned(), |g| format!("GPU {}", g.gpu.index));
    let what = match (series.metric, series.proc) {
        (_, Some(key)) => format!("process {key} {}", process_name(model, series).unwrap_or_default()),
        (ebbtide_core::Metric::UnattributedBytes, _) => "unattributed".to_owned(),
        (ebbtide_core::Metric::ReservedBytes, _) => "driver reserved".to_owned(),
        _ => "memory".to_owned(),
    };
    format!("{gpu}: {what}")
}

fn process_name<'a>(model: &'a Model, series: &SeriesKey) -> Option<&'a str> {
    let list = model.gpu_of(series)?.gpu.processes.as_ref().ok()?;
    list.entries.iter().find(|p| Some(p.key) == series.proc)?.info.name.as_deref().ok()
}

/// One line in words: the newest value, the floor, the slope, the diagnosis, and when it runs out.
fn draw_legend(pen: &mut Pen<'_>, model: &Model, series: &SeriesKey, judgement: Option<&Judgement>, now: Ts) {
    let value = model.newest(series).map_or(Err(ebbtide_core::Absent::NotYet), |(_, v)| v.map(SignedBytes));
    let shown = value.map_or_else(wording::unknown, |v| v.to_string());
    let width = pen.width();
    let mut x = pen.text((1, 0), &shown, width, LOUD) + 2;
    let Some(judgement) = judgement else { return };
    let style = palette::diagnosis(judgement.diagnosis);
    x = pen.text((x, 0), judgement.diagnosis.name(), width, style) + 2;
    let floor = format!("━ floor {}", judgement.floor.map_or_else(wording::unknown, |b| b.to_string()));
    x = pen.text((x, 0), &floor, width, FLOOR) + 2;
    if let Ok(band) = judgement.slope {
        x = pen.text((x, 0), &band.rate.to_string(), width, ratatui::style::Style::new()) + 2;
    }
    // A process or a part runs into the device's limit, so the device's forecast stands in for its own.
    let device =
        || row::judgement(model.gpu_of(series)?, ebbtide_core::SeriesPart::Device)?.forecast.as_ref();
    if let Some(forecast) = judgement.forecast.as_ref().or_else(device) {
        pen.text((x, 0), &wording::runs_full(forecast, now), width, LOUD);
    }
}

/// The values by column of the chart, `None` where nothing was read. The last column ends at `now`.
///
/// The floor of a column is the level that memory has not gone below since: the smallest value from there on,
/// seeded with the detector's own floor of now, so that the line ends where the detector puts it.
fn columns(trace: &Trace, now: Ts, width: usize, floor: Option<i64>) -> Vec<Option<Column>> {
    let spots: Vec<Spot> = trace.spots().collect();
    let span = trace.span_ms.max(1);
    let start = now.plus_ms(-span);
    let place = |at: Ts| {
        let offset = i128::from(at.0.saturating_sub(start.0)).clamp(0, i128::from(span));
        usize::try_from(offset * width as i128 / i128::from(span)).unwrap_or(0).min(width - 1)
    };
    let reach = usual_distance(&spots).saturating_mul(GAP).max(span / width as i64);
    let mut columns: Vec<Option<Column>> = vec![None; width];
    for (i, spot) in spots.iter().enumerate() {
        let Some(range) = spot.range else { continue };
        let from = place(spot.at);
        let next = spots.get(i + 1).map_or(now, |s| s.at);
        let close = next.0.saturating_sub(spot.at.0) <= reach;
        let to = if close { place(next).max(from + 1) } else { from + 1 };
        // The newest value holds until now.
        let to = if i + 1 == spots.len() && close { width } else { to };
        for column in &mut columns[from..to] {
            let merged = column.map_or(range, |c| (c.range.0.min(range.0), c.range.1.max(range.1)));
            *column = Some(Column { range: merged, floor: None });
        }
    }
    if let Some(mut lowest) = floor {
        for column in columns.iter_mut().rev().flatten() {
            lowest = lowest.min(column.range.0);
            column.floor = Some(lowest);
        }
    }
    columns
}

/// The median distance between readings, in milliseconds.
fn usual_distance(spots: &[Spot]) -> i64 {
    let mut distances: Vec<i64> = spots.windows(2).map(|w| w[1].at.0.saturating_sub(w[0].at.0)).collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied().unwrap_or(0)
}

/// The vertical range; `None` where there is nothing to show.
fn range(columns: &[Option<Column>], capacity: Option<Bytes>, scale: Scale) -> Option<(f64, f64)> {
    let shown = || columns.iter().flatten();
    let low = shown().map(|c| c.floor.map_or(c.range.0, |f| f.min(c.range.0))).min()? as f64;
    let high = shown().map(|c| c.range.1).max()? as f64;
    let whole = capacity.map(|c| c.0 as f64).filter(|c| *c > 0.0);
    if scale == Scale::Whole {
        return Some((low.min(0.0), whole.map_or(high, |c| c.max(high)).max(1.0)));
    }
    let smallest = whole.map_or(SMALLEST_RANGE, |c| c * SMALLEST_SHARE);
    let margin = ((high - low) * 0.1).max((smallest - (high - low)) / 2.0);
    let bottom = if low >= 0.0 { (low - margin).max(0.0) } else { low - margin };
    Some((bottom, high + margin))
}

fn draw_plot(
    pen: &mut Pen<'_>,
    height: u16,
    columns: &[Option<Column>],
    (low, high): (f64, f64),
    capacity: Option<Bytes>,
) {
    let eighths = f64::from(height) * 8.0;
    let level = |v: i64| (((v as f64 - low) / (high - low)).clamp(0.0, 1.0) * eighths).round() as u16;
    let row_of = |v: i64| (level(v) / 8).min(height - 1);
    let whole = capacity.and_then(|c| i64::try_from(c.0).ok()).filter(|c| *c as f64 <= high);
    for (x, column) in (AXIS..).zip(columns) {
        if let Some(whole) = whole {
            pen.glyph((x, height - 1 - row_of(whole)), "┄", QUIET);
        }
        let Some(column) = column else { continue };
        let top = level(column.range.1);
        let floor = column.floor.map(row_of);
        for row in 0..height {
            let filled = top.saturating_sub(row * 8).min(8);
            let (glyph, style) = match floor {
                Some(floor) if row == floor => ("━", FLOOR),
                Some(floor) if row < floor => ("░", USED),
                _ if filled == 0 => continue,
                _ => (EIGHTHS[usize::from(filled)], USED),
            };
            pen.glyph((x, height - 1 - row), glyph, style);
        }
    }
    let step = (high - low) / f64::from(height);
    for (row, value) in [(0, high), (height / 2, high - step * f64::from(height / 2)), (height - 1, low)] {
        if row == 0 || height > 2 {
            pen.right((AXIS - 1, row), &axis_label(value, high - low), AXIS - 1, QUIET);
        }
    }
}

/// A value with as many decimals as its neighbours on the axis need to differ from it.
fn axis_label(value: f64, range: f64) -> String {
    let (unit, name) = match range {
        r if r >= 1024.0 * 1024.0 * 1024.0 => (1024.0 * 1024.0 * 1024.0, "GiB"),
        r if r >= 1024.0 * 1024.0 => (1024.0 * 1024.0, "MiB"),
        _ => (1024.0, "KiB"),
    };
    let decimals = if range / unit >= 10.0 { 0 } else { 1 };
    format!("{:.decimals$} {name}", value / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_api::wire::{History, Span};
    use ebbtide_core::Metric;

    fn trace(values: &[(i64, Option<i64>)]) -> Trace {
        let series = SeriesKey { gpu: None, proc: None, metric: Metric::UsedBytes };
        let mut trace = Trace::new(series, 60_000);
        for &(at, value) in values {
            trace.observe(Ts(at * 1000), value);
        }
        trace
    }

    fn tops(columns: &[Option<Column>]) -> Vec<Option<i64>> {
        columns.iter().map(|c| c.map(|c| c.range.1)).collect()
    }

    #[test]
    fn a_value_holds_until_the_next_and_a_gap_stays_a_gap() {
        let t = trace(&[(10, Some(1)), (20, Some(2)), (30, None), (40, Some(4)), (60, Some(6))]);
        let shown = tops(&columns(&t, Ts(60_000), 6, None));
        assert_eq!(shown, [None, Some(1), Some(2), None, Some(4), Some(6)]);
    }

    #[test]
    fn the_floor_is_what_memory_has_not_gone_below_since_and_ends_at_the_detectors() {
        let t = trace(&[(0, Some(9)), (15, Some(3)), (30, Some(8)), (45, Some(5)), (60, Some(20))]);
        let floors: Vec<_> =
            columns(&t, Ts(60_000), 4, Some(6)).iter().map(|c| c.and_then(|c| c.floor)).collect();
        assert_eq!(floors, [Some(3), Some(3), Some(5), Some(5)]);
        assert!(columns(&t, Ts(60_000), 4, None).iter().flatten().all(|c| c.floor.is_none()));
    }

    #[test]
    fn a_spike_of_one_tick_stands_in_a_years_chart() {
        let (day, series) = (86_400_000, SeriesKey { gpu: None, proc: None, metric: Metric::UsedBytes });
        let mut t = Trace::new(series.clone(), 365 * day);
        let spans = (0..365).map(|at| Span {
            at: Ts(at * day),
            min: Some(10),
            max: Some(if at == 200 { 90 } else { 20 }),
            last: Some(15),
        });
        t.absorb(&History { series, spans: spans.collect(), gaps: Vec::new() });
        let c = columns(&t, Ts(365 * day), 80, None);
        assert_eq!(tops(&c).iter().flatten().filter(|top| **top == 90).count(), 1);
        assert_eq!(tops(&c).iter().flatten().count(), 80);
    }

    #[test]
    fn labels_of_a_narrow_range_still_differ() {
        let gib = 1024.0 * 1024.0 * 1024.0;
        assert_eq!(axis_label(40.0 * gib, 40.0 * gib), "40 GiB");
        assert_eq!(axis_label(40.0 * gib, 2.0 * gib), "40.0 GiB");
        assert_eq!(axis_label(40.0 * gib, gib / 32.0), "40960 MiB");
    }

    #[test]
    fn a_fitted_range_does_not_blow_up_noise_and_the_whole_one_reaches_capacity() {
        let t = trace(&[(0, Some(1_000_000_000)), (60, Some(1_000_000_100))]);
        let c = columns(&t, Ts(60_000), 10, None);
        let capacity = Some(Bytes(4_000_000_000));
        let (low, high) = range(&c, capacity, Scale::Fitted).unwrap();
        assert!(high - low >= 4e9 / 256.0);
        assert_eq!(range(&c, capacity, Scale::Whole), Some((0.0, 4e9)));
        assert_eq!(range(&[None], capacity, Scale::Whole), None);
    }
}
