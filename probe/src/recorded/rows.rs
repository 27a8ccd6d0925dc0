//! What the readers of all formats make of a file: rows, kept small because a file may hold millions.

use std::collections::HashMap;

use ebbtide_core::text::clean;
use ebbtide_core::{Absent, EngineRole, EventKind, ProcKey, Reading};

use super::limits::{MAX_GPUS, MAX_PIDS};

/// What a cell measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Used,
    Total,
    Free,
    Reserved,
    Utilization,
    KvUsed,
    KvPool,
    Running,
    Waiting,
    HostRss,
    HostAvailable,
    HostLimit,
    Served,
    Tokens,
    Arena,
    ArenaUsed,
    /// An [`ebbtide_core::EngineRole`], by its place in [`ROLES`].
    Role,
}

/// The parts an engine can have in serving a request, in words.
pub(super) const ROLES: [(&str, EngineRole); 3] =
    [("prefill", EngineRole::Prefill), ("decode", EngineRole::Decode), ("both", EngineRole::Both)];

impl Quantity {
    const COUNT: usize = 17;

    /// Those of an engine.
    pub(super) const OF_ENGINE: [Self; 9] = [
        Self::KvUsed,
        Self::KvPool,
        Self::Running,
        Self::Waiting,
        Self::Served,
        Self::Tokens,
        Self::Arena,
        Self::ArenaUsed,
        Self::Role,
    ];

    /// Those of a process beside its engine's.
    const OF_HOST: [Self; 2] = [Self::HostRss, Self::HostLimit];
}

/// The readings of one row, one word each: amounts lie below [`Values::LARGEST`], reasons of absence at the top of
/// the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Values([u64; Quantity::COUNT]);

impl Values {
    /// No memory is larger than 2^60 bytes; what claims to be is not an amount.
    pub(super) const LARGEST: u64 = 1 << 60;

    const REASONS: [Absent; 5] =
        [Absent::NotSupported, Absent::NoPermission, Absent::DeviceLost, Absent::Timeout, Absent::NotYet];

    /// Nothing is recorded: the file has no column for it.
    pub(super) const fn unrecorded() -> Self {
        Self([u64::MAX; Quantity::COUNT])
    }

    pub(super) fn set(&mut self, quantity: Quantity, reading: Reading<u64>) {
        self.0[quantity as usize] = match reading {
            Ok(amount) => amount.min(Self::LARGEST),
            Err(why) => {
                let place = Self::REASONS.iter().position(|&reason| reason == why).unwrap_or(0);
                u64::MAX - place as u64
            }
        };
    }

    pub(super) fn get(&self, quantity: Quantity) -> Reading<u64> {
        let word = self.0[quantity as usize];
        if word <= Self::LARGEST {
            return Ok(word);
        }
        let place = usize::try_from(u64::MAX - word).unwrap_or(0);
        Err(Self::REASONS.get(place).copied().unwrap_or(Absent::NotYet))
    }

    pub(super) fn any(&self, of: &[Quantity]) -> bool {
        of.iter().any(|&quantity| self.get(quantity).is_ok())
    }

    /// Whether any is a process's: in a row without a PID such belong to the GPU's stand-in process.
    pub(super) fn any_of_process(&self) -> bool {
        self.any(&Quantity::OF_ENGINE) || self.any(&Quantity::OF_HOST)
    }
}

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Subject {
    /// The GPU as a whole.
    Device,
    /// A process, by its place in [`Rows::processes`].
    Process(u32),
    /// A process list was printed, be it empty: what it does not name is gone.
    List,
    /// Something happened, by its place in [`Rows::events`].
    Event(u32),
}

/// One row of the file; a line that has both values and an event makes two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Milliseconds since 1970 UTC; `None` until a row without a timestamp is given one.
    pub(super) at_ms: Option<i64>,
    /// By its place in [`Rows::gpus`].
    pub(super) gpu: u16,
    pub(super) subject: Subject,
    pub(super) values: Values,
}

/// A GPU as the file names it.
#[derive(Debug, Clone, Default)]
pub(super) struct GpuCard {
    pub(super) uuid: String,
    pub(super) index: u32,
    pub(super) name: String,
}

/// How one row names its GPU; the first that is there identifies it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GpuCells<'a> {
    pub(super) uuid: Option<&'a str>,
    pub(super) index: Option<&'a str>,
    pub(super) bus: Option<&'a str>,
    pub(super) name: Option<&'a str>,
}

/// A process as the file names it.
#[derive(Debug, Clone)]
pub(super) struct ProcessCard {
    pub(super) key: ProcKey,
    pub(super) name: Option<String>,
}

/// An event as the file states it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedEvent {
    /// `None` where the row names no GPU: it concerns all.
    pub(super) gpu: Option<u16>,
    pub(super) pid: Option<u32>,
    pub(super) kind: EventKind,
}

/// Why a line, or a series, was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skip {
    NotARow,
    BadTime,
    BadPid,
    TooLong,
    TooManyFields,
    CutShort,
    TooManyGpus,
    TooManyPids,
    UnknownMetric,
    NoRange,
}

impl Skip {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::NotARow => "not a row of a known format",
            Self::BadTime => "its time cannot be read",
            Self::BadPid => "its process id is not a number",
            Self::TooLong => "longer than 1 MiB",
            Self::TooManyFields => "more than 256 fields",
            Self::CutShort => "cut short at the end of the file",
            Self::TooManyGpus => "a 65th GPU: only 64 are read",
            Self::TooManyPids => "a 4097th process: only 4096 are read",
            Self::UnknownMetric => "a metric that is not read here",
            Self::NoRange => "no values over time: ask for a range, not for an instant",
        }
    }
}

/// All rows of a file, with the names that they refer to by place.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) gpus: Vec<GpuCard>,
    pub(super) processes: Vec<ProcessCard>,
    pub(super) events: Vec<RecordedEvent>,
    /// Cells that hold neither a value nor a known word for "none".
    pub(super) bad_cells: u64,
    /// Whether each GPU has process lists of its own; else a list is of all GPUs at once.
    pub(super) lists_apart: bool,
    gpu_places: HashMap<String, u16>,
    process_places: HashMap<ProcKey, u32>,
}

impl Rows {
    /// The place of the GPU that a row names; a row that names none means GPU `0`.
    pub(super) fn gpu(&mut self, cells: GpuCells<'_>) -> Result<u16, Skip> {
        let key = cells.uuid.or(cells.index).or(cells.bus).unwrap_or("0");
        if let Some(&place) = self.gpu_places.get(key) {
            return Ok(place);
        }
        if self.gpus.len() >= MAX_GPUS {
            return Err(Skip::TooManyGpus);
        }
        let place = self.gpus.len() as u16;
        let index = cells.index.unwrap_or(key).parse().unwrap_or(u32::from(place));
        self.gpus.push(GpuCard { uuid: clean(key), index, name: clean(cells.name.unwrap_or_default()) });
        self.gpu_places.insert(key.to_owned(), place);
        Ok(place)
    }

    /// The place of a process of which just the PID is known.
    pub(super) fn process(&mut self, pid: u32, name: Option<&str>) -> Result<u32, Skip> {
        self.process_of(ProcKey { pid, start_ticks: None }, name)
    }

    /// The place of a process; its first name is kept.
    pub(super) fn process_of(&mut self, key: ProcKey, name: Option<&str>) -> Result<u32, Skip> {
        let name = name.map(clean).filter(|name| !name.is_empty());
        if let Some(&place) = self.process_places.get(&key) {
            let card = &mut self.processes[place as usize];
            card.name = card.name.take().or(name);
            return Ok(place);
        }
        if self.processes.len() >= MAX_PIDS {
            return Err(Skip::TooManyPids);
        }
        let place = self.processes.len() as u32;
        self.processes.push(ProcessCard { key, name });
        self.process_places.insert(key, place);
        Ok(place)
    }

    /// Adds an event at the given time.
    pub(super) fn event(&mut self, at_ms: Option<i64>, event: RecordedEvent) {
        let row = Row {
            at_ms,
            gpu: event.gpu.unwrap_or_default(),
            subject: Subject::Event(self.events.len() as u32),
            values: Values::unrecorded(),
        };
        self.events.push(event);
        self.rows.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_amounts_and_reasons_apart() {
        let mut values = Values::unrecorded();
        assert_eq!(values.get(Quantity::Used), Err(Absent::NotSupported));
        for reading in [Ok(0), Ok(Values::LARGEST), Err(Absent::NotYet), Err(Absent::DeviceLost)] {
            values.set(Quantity::Used, reading);
            assert_eq!(values.get(Quantity::Used), reading);
        }
    }

    #[test]
    fn a_gpu_beyond_the_cap_is_refused_and_known_ones_still_found() {
        let mut rows = Rows::default();
        for index in 0..MAX_GPUS {
            let text = index.to_string();
            rows.gpu(GpuCells { index: Some(&text), ..GpuCells::default() }).unwrap();
        }
        assert_eq!(rows.gpu(GpuCells { index: Some("64"), ..GpuCells::default() }), Err(Skip::TooManyGpus));
        assert_eq!(rows.gpu(GpuCells { index: Some("63"), ..GpuCells::default() }), Ok(63));
    }
}
