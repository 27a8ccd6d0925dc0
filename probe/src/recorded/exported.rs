//! What `ebbtide db export` writes: one line a value, as CSV under a header or as JSON.
//!
//! ```text
//! time,gpu,pid,start_ticks,metric,value,gpu_index,gpu_name,gpu_kind,process
//! 2026-11-30T03:00:00.125Z,GPU-1,,,used-bytes,1073741824,0,NVIDIA H200,discrete,
//! 2026-11-30T03:00:00.125Z,GPU-1,4711,88123,process-bytes,,0,NVIDIA H200,discrete,python3
//! ```
//!
//! The last four are empty where nobody knows them; a file may end its lines before them.
//! An empty cell is NULL, and a value that is NULL was asked for and absent. Units are in the names of the metrics.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};

use ebbtide_core::text::clean;
use ebbtide_core::{GpuCard, GpuKind, GpuUuid, Metric, Point, ProcKey, SeriesKey, Ts};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::delimited::split;
use super::lines::{Ending, Lines};

/// The first line of an exported CSV.
pub const EXPORT_HEADER: &str = "time,gpu,pid,start_ticks,metric,value,gpu_index,gpu_name,gpu_kind,process";

/// How the first line of every exported CSV begins, with columns for names or without.
const HEADER_BEGINS: &str = "time,gpu,pid,start_ticks,metric,value";

/// One line of an exported file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedValue {
    /// The wall time of the tick.
    pub at: Ts,
    /// Series and value.
    pub point: Point,
    /// What is known of the GPU.
    pub gpu: Option<GpuCard>,
    /// The name of the process, where it is known.
    pub process: Option<String>,
}

/// Whether a line is the first of an exported CSV.
pub(super) fn is_header(line: &str) -> bool {
    line.strip_prefix(HEADER_BEGINS).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
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
        bytes.starts_with(HEADER_BEGINS.as_bytes()) || bytes.starts_with(b"{\"time\":")
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
            let is_value = !self.raw.is_empty() && !self.raw.starts_with(HEADER_BEGINS.as_bytes());
            self.skipped += u64::from(is_value);
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_index: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_name: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_kind: Option<GpuKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<Cow<'a, str>>,
}

impl ExportedValue {
    /// Reads a line, in whichever of the two forms it is; `None` where it is in neither.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            return serde_json::from_str::<Line<'_>>(line).ok()?.value();
        }
        let fields = split(line, ',').ok()?;
        let ([time, gpu, pid, start_ticks, metric, value], [gpu_index, gpu_name, gpu_kind, process]) =
            match fields.as_slice() {
                [head @ .., a, b, c, d] if head.len() == 6 => (head.try_into().ok()?, [*a, *b, *c, *d]),
                head => (head.try_into().ok()?, [""; 4]),
            };
        let text = |field: &'_ str| (!field.is_empty()).then(|| unquoted(field).into_owned().into());
        let line = Line {
            time: Cow::Borrowed(time),
            gpu: text(gpu),
            gpu_index: cell(gpu_index)?,
            gpu_name: text(gpu_name),
            gpu_kind: kind(gpu_kind)?,
            process: text(process),
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
        write_cell(out, line.value)?;
        write_cell(out, line.gpu_index)?;
        write_cell(out, line.gpu_name.as_deref().map(quoted))?;
        write_cell(out, line.gpu_kind.as_ref().map(kind_cell).as_deref().map(quoted))?;
        writeln!(out, "{}", line.process.as_deref().map_or(Cow::Borrowed(""), quoted))
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
            gpu_index: value.gpu.as_ref().map(|card| card.index),
            gpu_name: value.gpu.as_ref().map(|card| Cow::Borrowed(&*card.name)),
            gpu_kind: value.gpu.as_ref().map(|card| card.kind.clone()),
            process: value.process.as_deref().map(Cow::Borrowed),
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
        let gpu = match (&series.gpu, self.gpu_index, self.gpu_name, self.gpu_kind) {
            (Some(uuid), Some(index), name, Some(kind)) => {
                let name = clean(&name.unwrap_or_default()).into();
                Some(GpuCard { uuid: uuid.clone(), index, name, kind })
            }
            _ => None,
        };
        let process = self.process.filter(|_| series.proc.is_some()).map(|name| clean(&name));
        let point = Point { series, value: self.value };
        Some(ExportedValue { at: read(&self.time)?, point, gpu, process })
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

/// A kind as a cell: its word, or JSON where a word does not say all of it.
fn kind_cell(kind: &GpuKind) -> String {
    let text = serde_json::to_string(kind).unwrap_or_default();
    text.trim_matches('"').to_owned()
}

fn kind(field: &str) -> Option<Option<GpuKind>> {
    if field.is_empty() {
        return Some(None);
    }
    let text = unquoted(field);
    let read = if text.starts_with('{') {
        serde_json::from_str(&text)
    } else {
        serde_json::from_value(serde_json::Value::from(&*text))
    };
    read.ok().map(Some)
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
    use ebbtide_core::MigId;
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
            (
                prop::option::of((any::<u32>(), prop_oneof![name(), Just(String::new())], kinds())),
                prop::option::of(name()),
            ),
        )
            .prop_map(|(at, gpu, proc, metric, value, (card, process))| {
                let gpu = gpu.map(|gpu| GpuUuid::new(&gpu));
                let card = gpu.clone().zip(card).map(|(uuid, (index, name, kind))| GpuCard {
                    uuid,
                    index,
                    name: name.into(),
                    kind,
                });
                let process = process.filter(|_| proc.is_some());
                let point = Point { series: SeriesKey { gpu, proc, metric }, value };
                ExportedValue { at: Ts(at), point, gpu: card, process }
            })
    }

    /// A name as it stands in a database: cleaned.
    fn name() -> impl Strategy<Value = String> {
        "[!-~][ -~]{0,30}".prop_map(|raw| clean(&raw))
    }

    fn kinds() -> impl Strategy<Value = GpuKind> {
        let mig = MigId { parent: GpuUuid::new("GPU-1"), gpu_instance: 2, compute_instance: 0 };
        prop::sample::select(vec![
            GpuKind::Discrete,
            GpuKind::Unified,
            GpuKind::HostMemory,
            GpuKind::Mig(mig),
        ])
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
            "2026-11-30T03:00:00Z,GPU-1,,,used-bytes,5,0,H200,discreet,",
            "2026-11-30T03:00:00Z,GPU-1,,,used-bytes,5,0,H200",
            "{\"time\":\"2026-11-30T03:00:00Z\"}",
        ] {
            assert_eq!(ExportedValue::of_line(line), None, "{line}");
        }
    }
}
