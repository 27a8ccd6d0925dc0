//! What `ebbtide db export` writes: one line a value, as CSV under a header or as JSON.
//!
//! ```text
//! time,gpu,pid,start_ticks,metric,value
//! 2026-11-30T03:00:00.125Z,GPU-1,,,used-bytes,1073741824
//! 2026-11-30T03:00:00.125Z,GPU-1,4711,88123,process-bytes,
//! ```
//!
//! An empty cell is NULL, and a value that is NULL was asked for and absent. Units are in the names of the metrics.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};

use ebbtide_core::text::clean;
use ebbtide_core::{GpuUuid, Metric, Point, ProcKey, SeriesKey, Ts};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::delimited::split;
use super::lines::{Ending, Lines};

/// The first line of an exported CSV.
pub const EXPORT_HEADER: &str = "time,gpu,pid,start_ticks,metric,value";

/// One line of an exported file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedValue {
    /// The wall time of the tick.
    pub at: Ts,
    /// Series and value.
    pub point: Point,
}

/// The values of an exported file, in its order; no more than a line of it is in memory.
pub struct ExportedFile<'a> {
    lines: Lines<'a>,
    raw: Vec<u8>,
    skipped: u64,
}

impl<'a> ExportedFile<'a> {
    /// Whether a file that begins so is an exported one.
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(EXPORT_HEADER.as_bytes()) || bytes.starts_with(b"{\"time\":")
    }

    /// Begins to read one.
    ///
    /// # Errors
    /// Those of `reader`.
    pub fn new(reader: impl BufRead + 'a) -> io::Result<Self> {
        Ok(Self { lines: Lines::new(reader)?, raw: Vec::new(), skipped: 0 })
    }

    /// Lines so far that hold something else.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The value of a line; a line without its end may lack the last digits of it.
    fn value(&self, ending: Ending) -> Option<ExportedValue> {
        let line = std::str::from_utf8(&self.raw).ok()?.trim_end_matches('\r');
        let whole = ending == Ending::Whole || line.ends_with('}');
        ExportedValue::of_line(line).filter(|_| whole)
    }
}

impl Iterator for ExportedFile<'_> {
    type Item = io::Result<ExportedValue>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let ending = match self.lines.next_into(&mut self.raw) {
                Ok(ending) => ending?,
                Err(error) => return Some(Err(error)),
            };
            if let Some(value) = self.value(ending) {
                return Some(Ok(value));
            }
            self.skipped +=
                u64::from(!self.raw.is_empty() && self.raw.trim_ascii() != EXPORT_HEADER.as_bytes());
        }
    }
}

/// A line as JSON has it.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    time: Cow<'a, str>,
    gpu: Option<Cow<'a, str>>,
    pid: Option<u32>,
    start_ticks: Option<u64>,
    metric: Metric,
    value: Option<i64>,
}

impl ExportedValue {
    /// Reads a line, in whichever of the two forms it is; `None` where it is in neither.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            return serde_json::from_str::<Line<'_>>(line).ok()?.value();
        }
        let fields = split(line, ',').ok()?;
        let [time, gpu, pid, start_ticks, metric, value] = fields.as_slice() else { return None };
        let line = Line {
            time: Cow::Borrowed(*time),
            gpu: (!gpu.is_empty()).then(|| unquoted(gpu)),
            pid: cell(pid)?,
            start_ticks: cell(start_ticks)?,
            metric: Metric::from_name(metric)?,
            value: cell(value)?,
        };
        line.value()
    }

    /// Writes it as a line of CSV.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let line = Line::of(self);
        let gpu = line.gpu.as_deref().map_or(Cow::Borrowed(""), quoted);
        write!(out, "{},{gpu},", line.time)?;
        write_cell(out, line.pid)?;
        write_cell(out, line.start_ticks)?;
        write!(out, "{},", line.metric.name())?;
        match line.value {
            Some(value) => writeln!(out, "{value}"),
            None => writeln!(out),
        }
    }

    /// Writes it as a line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &Line::of(self))?;
        writeln!(out)
    }
}

impl<'a> Line<'a> {
    fn of(value: &'a ExportedValue) -> Self {
        let SeriesKey { gpu, proc, metric } = &value.point.series;
        Self {
            time: Cow::Owned(written(value.at)),
            gpu: gpu.as_ref().map(|gpu| Cow::Borrowed(gpu.as_str())),
            pid: proc.map(|proc| proc.pid),
            start_ticks: proc.and_then(|proc| proc.start_ticks),
            metric: *metric,
            value: value.point.value,
        }
    }

    fn value(self) -> Option<ExportedValue> {
        if self.pid.is_none() && self.start_ticks.is_some() {
            return None;
        }
        let series = SeriesKey {
            gpu: self.gpu.map(|gpu| GpuUuid::new(&clean(&gpu))),
            proc: self.pid.map(|pid| ProcKey { pid, start_ticks: self.start_ticks }),
            metric: self.metric,
        };
        Some(ExportedValue { at: read(&self.time)?, point: Point { series, value: self.value } })
    }
}

/// An instant in RFC 3339; one beyond the calendar as its milliseconds.
fn written(at: Ts) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

fn read(time: &str) -> Option<Ts> {
    match time.parse::<i64>() {
        Ok(ms) => Some(Ts(ms)),
        Err(_) => Some(Ts(time.parse::<Timestamp>().ok()?.as_millisecond())),
    }
}

/// A number, `Some(None)` where the cell is empty, `None` where it is something else.
fn cell<T: std::str::FromStr>(field: &str) -> Option<Option<T>> {
    if field.is_empty() { Some(None) } else { field.parse().ok().map(Some) }
}

fn write_cell(out: &mut impl Write, number: Option<impl std::fmt::Display>) -> io::Result<()> {
    match number {
        Some(number) => write!(out, "{number},"),
        None => write!(out, ","),
    }
}

fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

fn unquoted(field: &str) -> Cow<'_, str> {
    match field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(text) => Cow::Owned(text.replace("\"\"", "\"")),
        None => Cow::Borrowed(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exported() -> impl Strategy<Value = ExportedValue> {
        let proc =
            (any::<u32>(), any::<Option<u64>>()).prop_map(|(pid, start_ticks)| ProcKey { pid, start_ticks });
        let at = prop_oneof![9 => 0..4_102_444_800_000_i64, 1 => any::<i64>()];
        let metric = prop::sample::select(Metric::ALL.to_vec());
        (
            at,
            prop::option::of("[A-Za-z0-9,\"/:-]{1,40}"),
            prop::option::of(proc),
            metric,
            any::<Option<i64>>(),
        )
            .prop_map(|(at, gpu, proc, metric, value)| {
                let gpu = gpu.map(|gpu| GpuUuid::new(&gpu));
                ExportedValue { at: Ts(at), point: Point { series: SeriesKey { gpu, proc, metric }, value } }
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_in_both_forms(value in exported()) {
            let (mut csv, mut json) = (Vec::new(), Vec::new());
            value.write_csv(&mut csv).unwrap();
            value.write_json(&mut json).unwrap();
            for line in [csv, json] {
                let line = String::from_utf8(line).unwrap();
                prop_assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
                prop_assert_eq!(ExportedValue::of_line(line.trim_end_matches('\n')), Some(value.clone()), "{}", line);
            }
        }

        #[test]
        fn strangers_lines_are_read_or_not_and_never_a_panic(line in "\\PC{0,120}", cells in prop::collection::vec("[-0-9a-zA-Z:.,\"]{0,8}", 0..8)) {
            drop(ExportedValue::of_line(&line));
            drop(ExportedValue::of_line(&cells.join(",")));
            drop(ExportedValue::of_line(&format!("{{{line}")));
        }
    }

    #[test]
    fn a_line_that_says_too_little_is_none() {
        for line in [
            "time,gpu,pid,start_ticks,metric,value",
            "2026-11-30T03:00:00Z,GPU-1,,,used-bytes",
            "2026-11-30T03:00:00Z,GPU-1,,7,used-bytes,5",
            "2026-11-30T03:00:00Z,GPU-1,,,used-bites,5",
            "soon,GPU-1,,,used-bytes,5",
            "{\"time\":\"2026-11-30T03:00:00Z\"}",
        ] {
            assert_eq!(ExportedValue::of_line(line), None, "{line}");
        }
    }
}
