//! Recorded series: what people have at hand when they ask whether that was a leak.
//!
//! Five formats, told apart line by line, so that a log of several restarts or several tools reads as well:
//!
//! - `nvidia-smi --query-gpu=... --format=csv`, with or without header, units and timestamp;
//! - `nvidia-smi --query-compute-apps=... --format=csv`;
//! - the tables of a plain `nvidia-smi` or `nvidia-smi -l N`;
//! - any CSV whose header names its columns (see [`known_columns`]);
//! - what `ebbtide db export` writes, one value a line ([`ExportedValue`]).
//!
//! A file that begins as an answer of Prometheus is one, or several behind one another.
//!
//! A line with a time alone, as `date` prints it, is the time of the rows below it.
//! A line that is none of these is skipped and counted, never guessed at. What a file does not hold is absent.

mod columns;
mod delimited;
mod exported;
mod gathered;
mod instant;
mod limits;
mod lines;
mod number;
mod order;
mod playback;
mod prometheus;
mod rows;
mod table;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use ebbtide_core::text::clean;
use ebbtide_core::{Bytes, GpuUuid, Ts};

use columns::Column;
use delimited::Delimited;
pub use exported::{EXPORT_HEADER, ExportedFile, ExportedValue};
use gathered::Gathered;
use limits::{MAX_FILE_BYTES, MAX_ROWS, NAMED_SKIPS};
use lines::{Ending, Lines};
use order::Ordering;
use playback::Cast;
pub use playback::{Playback, STAND_IN_PID};
use rows::{Rows, Skip};
use table::Table;

/// The time between two readings of a file that has no timestamps, where nobody states another.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// What a user knows of a file that the file does not say.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Names of the columns, in order, for a file without a header; `-` is a column to ignore.
    pub columns: Option<Vec<String>>,
    /// Time between two readings, for a file without timestamps.
    pub interval: Option<Duration>,
    /// All memory of a GPU, for a file that does not record it.
    pub total: Option<Bytes>,
}

/// A recorded series, read and put in order.
#[derive(Debug)]
pub struct Recording {
    rows: Rows,
    cast: Cast,
    /// How reading went.
    pub report: Report,
    /// The median time between two readings of the same thing.
    pub interval: Duration,
}

impl Recording {
    /// The samples, oldest first, as the live probe would have made them: `Tick::mono_ms` counts from the first.
    #[must_use]
    pub fn samples(&self) -> Playback<'_> {
        let interval_ms = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        Playback::new(&self.rows, &self.cast, interval_ms)
    }
}

/// How reading went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Lines in the file.
    pub lines: u64,
    /// Lines that hold something and were not read.
    pub skipped: u64,
    /// The first of those.
    pub first_skipped: Vec<SkippedLine>,
    /// GPUs whose size is not recorded, and the card size that stands for it: a forecast for them is a guess.
    pub assumed_totals: Vec<(GpuUuid, Bytes)>,
    /// What a reader of the result should know, one sentence each.
    pub warnings: Vec<String>,
}

/// A line that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedLine {
    /// Its number, from 1.
    pub number: u64,
    /// Why.
    pub reason: &'static str,
    /// Its text, cleaned and cut.
    pub text: String,
}

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The system refused to open it.
    #[error("cannot open {path}: check the name and who may read it")]
    Open {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It broke off.
    #[error("cannot read on after line {line}")]
    Read {
        /// The last line that was read.
        line: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is larger than is read.
    #[error("more than 1 GiB after line {line}: split the file, or keep every tenth line of it")]
    TooLarge {
        /// The last line that was read.
        line: u64,
    },
    /// It holds more rows than are held.
    #[error("more than {MAX_ROWS} rows at line {line}: split the file, or keep every tenth line of it")]
    TooManyRows {
        /// Where the limit was reached.
        line: u64,
    },
    /// It begins as an answer of Prometheus and is none.
    #[error("not an answer of Prometheus' /api/v1/query_range, or longer than 256 MiB")]
    NoAnswer {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// It is an answer of Prometheus that says no.
    #[error("Prometheus refused the query ({message}): ask it again")]
    Refused {
        /// What Prometheus said, cleaned.
        message: String,
    },
    /// A named column is not known.
    #[error("no column is called {name:?}: --columns takes {} and - for one to ignore", known_columns())]
    UnknownColumn {
        /// The name, cleaned.
        name: String,
    },
    /// It holds no line with anything on it.
    #[error("the file is empty")]
    Empty,
    /// No line could be read.
    #[error(
        "none of {lines} lines could be read (line {number}, {reason}: {text:?}): if the file has no header, name its \
         columns, for example --columns time,gpu,used_mib,total_mib"
    )]
    NothingRead {
        /// Lines in the file.
        lines: u64,
        /// The first line that was not read.
        number: u64,
        /// Why.
        reason: &'static str,
        /// Its text, cleaned.
        text: String,
    },
    /// All lines were read and none holds a series.
    #[error("a header and no readings under it in {lines} lines: known columns are {}", known_columns())]
    NoReadings {
        /// Lines in the file.
        lines: u64,
    },
}

/// The names of columns that are read, for messages and help.
#[must_use]
pub fn known_columns() -> String {
    columns::known_names()
}

/// The instant that a text states, in any of the forms that recordings have: RFC 3339, date and time in UTC, a date, or
/// seconds or milliseconds since 1970.
#[must_use]
pub fn parse_instant(text: &str) -> Option<Ts> {
    let day = || instant::instant(&format!("{}T00:00:00Z", text.trim()), number::Comma::Thousands);
    instant::instant(text, number::Comma::Thousands).or_else(day).map(Ts)
}

/// Reads the file at `path`.
///
/// # Errors
/// When it cannot be opened or read, exceeds a limit, or no line of it can be read.
pub fn read_path(path: &Path, options: &Options) -> Result<Recording, RecordedError> {
    let file = File::open(path)
        .map_err(|source| RecordedError::Open { path: clean(&path.to_string_lossy()), source })?;
    if file.metadata().is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
        return Err(RecordedError::TooLarge { line: 0 });
    }
    read(BufReader::with_capacity(1 << 16, file), options)
}

/// Reads a recording from anything that yields bytes, such as standard input.
///
/// # Errors
/// As for [`read_path`].
pub fn read(reader: impl BufRead, options: &Options) -> Result<Recording, RecordedError> {
    let mut reading = Reading::new(options)?;
    reading.take_all(reader)?;
    reading.finish(options)
}

/// A file being read.
struct Reading {
    delimited: Delimited,
    table: Table,
    /// The header of an exported file was read.
    exported: bool,
    gathered: Gathered,
    rows: Rows,
    report: Report,
}

impl Reading {
    fn new(options: &Options) -> Result<Self, RecordedError> {
        let delimited = match &options.columns {
            Some(names) => Delimited::with_columns(columns_of(names)?),
            None => Delimited::default(),
        };
        Ok(Self {
            delimited,
            table: Table::default(),
            exported: false,
            gathered: Gathered::default(),
            rows: Rows::default(),
            report: Report::default(),
        })
    }

    fn take_all(&mut self, mut reader: impl BufRead) -> Result<(), RecordedError> {
        let broke = |source, line| RecordedError::Read { line, source };
        if prometheus::begins(reader.fill_buf().map_err(|source| broke(source, 0))?) {
            return prometheus::read(reader, (&mut self.gathered, &mut self.rows), &mut self.report);
        }
        let mut lines = Lines::new(reader).map_err(|source| broke(source, 0))?;
        let mut raw = Vec::new();
        while let Some(ending) =
            lines.next_into(&mut raw).map_err(|source| broke(source, self.report.lines))?
        {
            self.report.lines += 1;
            if lines.beyond_limit() {
                return Err(RecordedError::TooLarge { line: self.report.lines - 1 });
            }
            self.take(&String::from_utf8_lossy(&raw), ending);
            if self.rows.rows.len() + self.gathered.len() > MAX_ROWS {
                return Err(RecordedError::TooManyRows { line: self.report.lines });
            }
        }
        Ok(())
    }

    fn take(&mut self, raw: &str, ending: Ending) {
        let line = raw.trim_matches(|c: char| c.is_whitespace() && c != '\t' || c == '\u{feff}');
        if line.trim().is_empty() {
            return;
        }
        let taken = if ending == Ending::TooLong {
            Err(Skip::TooLong)
        } else if exported::is_header(line) {
            self.exported = true;
            Ok(())
        } else if self.exported || line.starts_with('{') {
            self.take_exported(line, ending)
        } else if let Some(at_ms) = instant::heading(line).or_else(|| self.delimited.heading(line)) {
            self.table.begin(at_ms);
            self.delimited.begin(at_ms);
            Ok(())
        } else if Table::owns(line) {
            self.table.take(line, &mut self.rows)
        } else {
            self.delimited.take(line, ending == Ending::Whole, &mut self.rows)
        };
        let Err(skip) = taken else { return };
        self.report.skipped += 1;
        if self.report.first_skipped.len() < NAMED_SKIPS {
            let (number, reason) = (self.report.lines, skip.reason());
            self.report.first_skipped.push(SkippedLine { number, reason, text: clean(line) });
        }
    }

    /// A line without its end may lack the last digits of its value.
    fn take_exported(&mut self, line: &str, ending: Ending) -> Result<(), Skip> {
        if ending == Ending::Unterminated && !line.ends_with('}') {
            return Err(Skip::CutShort);
        }
        let value = ExportedValue::of_line(line).ok_or(Skip::NotARow)?;
        self.gathered.exported(&value, &mut self.rows)
    }

    fn finish(mut self, options: &Options) -> Result<Recording, RecordedError> {
        std::mem::take(&mut self.gathered).finish(&mut self.rows);
        if self.rows.rows.is_empty() {
            return Err(self.nothing());
        }
        let stated = options.interval.unwrap_or(DEFAULT_INTERVAL);
        let ordering =
            order::order(&mut self.rows, u64::try_from(stated.as_millis()).unwrap_or(u64::MAX).max(1));
        let cast = Cast::of(&self.rows, options.total);
        let mut report = self.report;
        report.assumed_totals = cast.assumed_totals().map(|(uuid, size)| (uuid.clone(), size)).collect();
        report.warnings = warnings(&report, &ordering, &self.rows, options);
        let interval = ordering.interval_ms.map_or(stated, Duration::from_millis);
        Ok(Recording { rows: self.rows, cast, report, interval })
    }

    fn nothing(self) -> RecordedError {
        let lines = self.report.lines;
        match self.report.first_skipped.into_iter().next() {
            Some(SkippedLine { number, reason, text }) => {
                RecordedError::NothingRead { lines, number, reason, text }
            }
            None if lines == 0 => RecordedError::Empty,
            None => RecordedError::NoReadings { lines },
        }
    }
}

fn columns_of(names: &[String]) -> Result<Vec<Column>, RecordedError> {
    let column = |name: &String| match name.trim() {
        "-" | "_" | "" => Ok(Column::Other),
        name => columns::named(name).ok_or_else(|| RecordedError::UnknownColumn { name: clean(name) }),
    };
    names.iter().map(column).collect()
}

/// What a reader of the result should know.
fn warnings(report: &Report, ordering: &Ordering, rows: &Rows, options: &Options) -> Vec<String> {
    let mut warnings = Vec::new();
    if ordering.untimed > 0 && options.interval.is_none() {
        let count = ordering.untimed;
        warnings.push(format!(
            "{count} rows have no time: one second is assumed between readings; --interval states another"
        ));
    }
    if ordering.out_of_order > 0 {
        let count = ordering.out_of_order;
        warnings.push(format!("time runs backwards {count} times: the rows were sorted by time"));
    }
    if ordering.repeated > 0 {
        let count = ordering.repeated;
        warnings.push(format!("{count} rows repeat the time of another: the last of each was kept"));
    }
    if rows.bad_cells > 0 {
        let count = rows.bad_cells;
        warnings.push(format!("{count} cells hold neither an amount nor a known word: read as absent"));
    }
    for (gpu, size) in &report.assumed_totals {
        warnings.push(format!(
            "the size of GPU {gpu} is not recorded: {size} is assumed for forecasts; --total-mib states another"
        ));
    }
    warnings
}
