//! Lines of separated values: the CSV of nvidia-smi with and without header and units, and the generic form.

use ebbtide_core::text::clean;
use ebbtide_core::{EventKind, Reading};

use super::columns::{self, Column};
use super::instant::instant;
use super::limits::MAX_FIELDS;
use super::number::{Comma, amount, trim};
use super::rows::{GpuCells, Quantity, ROLES, RecordedEvent, Row, Rows, Skip, Subject, Values};

/// Reads lines of separated values, whose columns are known from a header, from the user or from their order.
#[derive(Debug, Default)]
pub(super) struct Delimited {
    columns: Option<Vec<Column>>,
    separator: Option<char>,
    /// Whether columns have names; else they were inferred.
    named: bool,
    /// A time that was printed by itself, for the next row without one.
    at_ms: Option<i64>,
}

impl Delimited {
    /// A reader for a file without a header whose columns the user has named.
    pub(super) fn with_columns(columns: Vec<Column>) -> Self {
        Self { columns: Some(columns), named: true, ..Self::default() }
    }

    /// A time was printed: it is that of the row below it.
    pub(super) fn begin(&mut self, at_ms: i64) {
        self.at_ms = Some(at_ms);
    }

    /// The time that a line states which holds nothing else. Where columns have names a bare number is a value.
    pub(super) fn heading(&self, line: &str) -> Option<i64> {
        const YEAR_2001_MS: i64 = 1_000_000_000_000;
        let alone = !line.contains([',', ';', '\t']);
        let at_ms = instant(line, Comma::Thousands).filter(|_| alone && !self.named)?;
        (at_ms >= YEAR_2001_MS).then_some(at_ms)
    }

    /// Takes one line; `whole` is whether it ended with a line break.
    pub(super) fn take(&mut self, line: &str, whole: bool, rows: &mut Rows) -> Result<(), Skip> {
        let guess = separator_of(line);
        let fields = split(line, guess)?;
        if let Some(columns) = columns::of_header(&fields) {
            self.columns = Some(columns);
            self.separator = Some(guess);
            self.named = true;
            return Ok(());
        }
        let separator = *self.separator.get_or_insert(guess);
        let fields = if separator == guess { fields } else { split(line, separator)? };
        let comma = if separator == ';' { Comma::Decimal } else { Comma::Thousands };
        if self.columns.is_none() {
            self.columns = columns::inferred(&fields, comma);
        }
        let Some(columns) = &self.columns else {
            self.separator = None;
            return Err(Skip::NotARow);
        };
        if !whole && fields.len() < columns.len() {
            return Err(Skip::CutShort);
        }
        let mut cells = Cells::of(columns, &fields, comma)?;
        cells.at_ms = cells.at_ms.or(self.at_ms.take());
        record(&cells, rows)
    }
}

/// The cells of one line by what they hold.
#[derive(Debug)]
struct Cells<'a> {
    at_ms: Option<i64>,
    gpu: GpuCells<'a>,
    pid: Option<u32>,
    process_name: Option<&'a str>,
    event: Option<EventKind>,
    values: Values,
    /// Cells with a value or a reason for none.
    good: usize,
    bad: u64,
}

impl<'a> Cells<'a> {
    fn of(columns: &[Column], fields: &[&'a str], comma: Comma) -> Result<Self, Skip> {
        let mut cells = Self {
            at_ms: None,
            gpu: GpuCells::default(),
            pid: None,
            process_name: None,
            event: None,
            values: Values::unrecorded(),
            good: 0,
            bad: 0,
        };
        let surplus = fields.len().saturating_sub(columns.len());
        let mut at = 0;
        for &column in columns {
            let field = fields.get(at).copied().unwrap_or_default();
            // Commands hold separators that nvidia-smi does not quote; the first word names the process well enough.
            at += if column == Column::ProcessName { 1 + surplus } else { 1 };
            cells.put(column, trim(field), comma)?;
        }
        Ok(cells)
    }

    fn put(&mut self, column: Column, field: &'a str, comma: Comma) -> Result<(), Skip> {
        let some = (!field.is_empty() && !field.starts_with('[')).then_some(field);
        match column {
            Column::Time => self.at_ms = Some(instant(field, comma).ok_or(Skip::BadTime)?),
            Column::GpuIndex => self.gpu.index = some,
            Column::GpuUuid => self.gpu.uuid = some,
            Column::GpuBus => self.gpu.bus = some,
            Column::GpuName => self.gpu.name = some,
            Column::Pid => self.pid = some.map(|pid| pid.parse().map_err(|_| Skip::BadPid)).transpose()?,
            Column::ProcessName => self.process_name = some,
            Column::Event => self.put_event(some),
            Column::Role => self.put_role(some),
            Column::Value(quantity, unit) => self.put_value(quantity, field, amount(field, unit, comma)),
            Column::Other => {}
        }
        Ok(())
    }

    fn put_event(&mut self, field: Option<&str>) {
        self.event = field.and_then(event);
        self.bad += u64::from(field.is_some() && self.event.is_none());
    }

    fn put_role(&mut self, field: Option<&str>) {
        let Some(field) = field else { return };
        let place = ROLES.iter().position(|(name, _)| name.eq_ignore_ascii_case(field));
        let reading = place.map(|place| Ok(place as u64));
        self.put_value(Quantity::Role, field, reading);
    }

    fn put_value(&mut self, quantity: Quantity, field: &str, reading: Option<Reading<u64>>) {
        self.bad += u64::from(reading.is_none());
        self.good += usize::from(reading.is_some() && !field.is_empty());
        self.values.set(quantity, reading.unwrap_or(Err(ebbtide_core::Absent::NotYet)));
    }
}

/// Adds what a line holds: a row of values, an event, or both.
fn record(cells: &Cells<'_>, rows: &mut Rows) -> Result<(), Skip> {
    if cells.good == 0 && cells.event.is_none() {
        return Err(Skip::NotARow);
    }
    let names_gpu = cells.gpu.uuid.or(cells.gpu.index).or(cells.gpu.bus).is_some();
    let process = cells.pid.map(|pid| rows.process(pid, cells.process_name)).transpose()?;
    if cells.good > 0 {
        let gpu = rows.gpu(cells.gpu)?;
        let subject = process.map_or(Subject::Device, Subject::Process);
        rows.rows.push(Row { at_ms: cells.at_ms, gpu, subject, values: cells.values });
    }
    if let Some(kind) = &cells.event {
        let gpu = if names_gpu { Some(rows.gpu(cells.gpu)?) } else { None };
        rows.event(cells.at_ms, RecordedEvent { gpu, pid: cells.pid, kind: kind.clone() });
    }
    rows.bad_cells += cells.bad;
    Ok(())
}

/// The event that a cell states: a name, or `name=value`.
fn event(cell: &str) -> Option<EventKind> {
    let (name, value) = match cell.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (cell, None),
    };
    let text = || value.map(clean).filter(|text| !text.is_empty());
    // tidy: table
    Some(match name.to_ascii_lowercase().as_str() {
        "process-start" => EventKind::ProcessStart,
        "process-exit" => EventKind::ProcessExit,
        "engine-exit" => EventKind::EngineExit,
        "model-load" => EventKind::ModelLoad(text()),
        "model-unload" => EventKind::ModelUnload(text()),
        "sleep" => EventKind::Sleep,
        "wake" => EventKind::Wake,
        "container-removed" => EventKind::ContainerRemoved,
        "driver-reload" => EventKind::DriverReload,
        "gpu-lost" => EventKind::GpuLost,
        "gpu-back" => EventKind::GpuBack,
        "xid" => EventKind::Xid(value?.parse().ok()?),
        _ => return None,
    })
}

/// The separator of a line: a semicolon where there is one, since commas are then decimal; else a tab, else a comma.
fn separator_of(line: &str) -> char {
    [';', '\t'].into_iter().find(|&candidate| line.contains(candidate)).unwrap_or(',')
}

/// The fields of a line. A separator between quotes belongs to its field; a quote that never closes is a character
/// like any other, so that one stray quote costs one field and not the file.
pub(super) fn split(line: &str, separator: char) -> Result<Vec<&str>, Skip> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        if fields.len() == MAX_FIELDS {
            return Err(Skip::TooManyFields);
        }
        let end = quoted_end(rest).map_or(0, |quoted| quoted);
        match rest[end..].find(separator) {
            Some(at) => {
                fields.push(&rest[..end + at]);
                rest = &rest[end + at + separator.len_utf8()..];
            }
            None => {
                fields.push(rest);
                return Ok(fields);
            }
        }
    }
}

/// Where the quoted text ends that a field begins with; doubled quotes stand for one and stay doubled.
fn quoted_end(field: &str) -> Option<usize> {
    let start = field.len() - field.trim_start_matches(' ').len();
    let body = field[start..].strip_prefix('"')?;
    let mut from = 0;
    loop {
        let close = from + body[from..].find('"')?;
        if !body[close + 1..].starts_with('"') {
            return Some(start + 1 + close + 1);
        }
        from = close + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_separators_and_a_stray_quote_costs_one_field() {
        assert_eq!(split("a, \"b,c\" ,d", ',').unwrap(), ["a", " \"b,c\" ", "d"]);
        assert_eq!(split("a,\"b,c", ',').unwrap(), ["a", "\"b", "c"]);
        assert_eq!(split("\"x\"\",\"\"y\",z", ',').unwrap(), ["\"x\"\",\"\"y\"", "z"]);
        assert_eq!(split(&",".repeat(MAX_FIELDS), ','), Err(Skip::TooManyFields));
    }

    #[test]
    fn events_are_names_or_names_with_values() {
        assert_eq!(event("xid=79"), Some(EventKind::Xid(79)));
        assert_eq!(event("model-load=llama"), Some(EventKind::ModelLoad(Some("llama".to_owned()))));
        assert_eq!(event("Sleep"), Some(EventKind::Sleep));
        assert_eq!(event("xid"), None);
        assert_eq!(event("nap"), None);
    }

    #[test]
    fn a_command_with_commas_keeps_the_columns_behind_it() {
        let mut rows = Rows::default();
        let mut reader = Delimited::default();
        reader.take("pid, process_name, used_gpu_memory [MiB]", true, &mut rows).unwrap();
        reader.take("7, python a,b, 12 MiB", true, &mut rows).unwrap();
        assert_eq!(rows.rows[0].values.get(Quantity::Used), Ok(12 << 20));
        assert_eq!(rows.processes[0].name.as_deref(), Some("python a"));
    }
}
