//! `ebbtide import`: what others have recorded, as ticks of a database.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use ebbtide_core::{
    Absent, Bytes, Frame, GpuCard, GpuKind, GpuUuid, ProcInfo, ProcKey, ProcessCard, SeriesKey, Tick,
    TickRecord, Ts,
};
use ebbtide_daemon::record::Recorder;
use ebbtide_probe::recorded::{self, ExportedFile, ExportedValue, Options, Recording};
use ebbtide_store::{Overview, StoreConfig, Writer};

use super::db::{ImportArgs, refused, runtime};
use super::status::clock;
use crate::progress::Progress;
use crate::{exit, output};

/// A century in milliseconds: what is imported was asked for, whatever its age.
const CENTURY_MS: i64 = 100 * 365 * 24 * 3600 * 1000;

/// What an import keeps: all of it. A daemon that takes the database over keeps what its configuration says.
const KEPT: StoreConfig =
    StoreConfig { raw_ms: CENTURY_MS, minute_ms: CENTURY_MS, quarter_ms: CENTURY_MS, max_bytes: u64::MAX };

/// Values of one exported tick: sixteen metrics of twice as many processes as the driver lists on 64 GPUs. More than
/// that becomes several ticks.
const MAX_TICK_VALUES: usize = 1 << 21;

/// Ticks stored in one commit: a file can be imported again, so it need not be safe tick by tick.
const BATCH_TICKS: usize = 60;

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<u8> {
    let mut reader = open(&args.file)?;
    let begins_exported = ExportedFile::begins(reader.fill_buf()?);
    let runtime = runtime()?;
    let done = if begins_exported {
        let mut ticks = ExportedTicks::new(ExportedFile::new(reader)?);
        let done = runtime.block_on(store(&args.into, &mut ticks))?;
        note_skipped(ticks.file.skipped())?;
        done
    } else {
        let options = Options { total: args.total_mib.map(Bytes::from_mib), ..Options::default() };
        let recording = recorded::read(reader, &options).map_err(|error| no_data(&args.file, error))?;
        note_reading(&recording)?;
        runtime.block_on(store(&args.into, &mut records(&recording)))?
    };
    let Some((ticks, from, to)) = done else {
        return Err(no_data(&args.file, anyhow::anyhow!("no line of it holds a value")));
    };
    let (from, to) = (clock(from), clock(to));
    output::text(&format!("{}: {ticks} ticks from {from} to {to}\n", args.into.display()))?;
    Ok(0)
}

fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|error| no_data(file, error))?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, opened)))
}

fn no_data(file: &Path, why: impl Into<anyhow::Error>) -> anyhow::Error {
    exit::Coded { code: exit::DATA, message: format!("{}: {:#}", file.display(), why.into()) }.into()
}

fn note_skipped(skipped: u64) -> std::io::Result<()> {
    if skipped == 0 {
        Ok(())
    } else {
        writeln!(std::io::stderr(), "{skipped} lines hold no value and were skipped")
    }
}

fn note_reading(recording: &Recording) -> std::io::Result<()> {
    note_skipped(recording.report.skipped)?;
    for line in &recording.report.first_skipped {
        writeln!(std::io::stderr(), "  {} ({})", line.text, line.reason)?;
    }
    recording.report.warnings.iter().try_for_each(|warning| writeln!(std::io::stderr(), "{warning}"))
}

/// The ticks of a recording, as the daemon would have stored them.
fn records(recording: &Recording) -> impl Iterator<Item = std::io::Result<TickRecord>> {
    let mut recorder = Recorder::default();
    recording.samples().map(move |sample| Ok(recorder.record(&Frame::of(sample))))
}

/// Stores ticks behind those of a database; returns how many, the first instant and the last.
async fn store(
    path: &Path,
    records: &mut dyn Iterator<Item = std::io::Result<TickRecord>>,
) -> anyhow::Result<Option<(u64, Ts, Ts)>> {
    let Some(first) = records.next().transpose()? else { return Ok(None) };
    let begin = first.tick.at;
    let last = newest(path).await?;
    if let Some(last) = last.filter(|last| begin <= last.at) {
        let message = format!(
            "{} holds ticks up to {} and the file begins at {}: import it into another database",
            path.display(),
            clock(last.at),
            clock(begin)
        );
        return Err(exit::Coded { code: exit::DATA, message }.into());
    }
    let mut writer = Writer::with(path, KEPT);
    let mut seq = writer.next_seq().await.map_err(refused)?;
    let mut before = last.unwrap_or(Tick { seq: 0, at: begin, mono_ms: 0 });
    let mut progress = Progress::new("imported");
    let mut batch = Vec::with_capacity(BATCH_TICKS);
    for record in std::iter::once(Ok(first)).chain(records) {
        let mut record = record?;
        if last.is_some() {
            // Names in the database come from where they were seen; a recording may have none.
            record.gpus.clear();
        }
        record.tick =
            Tick { seq, at: record.tick.at, mono_ms: before.mono_ms + since(before.at, record.tick.at) };
        progress.tick(record.tick.at);
        (before, seq) = (record.tick, seq + 1);
        batch.push(record);
        if batch.len() >= BATCH_TICKS {
            writer.append_all(&batch).await.map_err(refused)?;
            batch.clear();
        }
    }
    writer.append_all(&batch).await.map_err(refused)?;
    writer.close().await;
    progress.finish();
    Ok(Some((progress.ticks(), begin, before.at)))
}

/// Time that passed between two ticks; where the clock was set back nobody knows how much, and it is none.
fn since(before: Ts, now: Ts) -> u64 {
    u64::try_from(now.0.saturating_sub(before.0)).unwrap_or(0)
}

async fn newest(path: &Path) -> anyhow::Result<Option<Tick>> {
    if !path.exists() {
        return Ok(None);
    }
    Ok(Overview::of(path).await.map_err(refused)?.last)
}

/// The ticks of an exported file: values of one instant, as long as no series comes twice.
struct ExportedTicks<'a> {
    file: ExportedFile<'a>,
    ahead: Option<ExportedValue>,
    gpus: BTreeSet<GpuUuid>,
    processes: BTreeSet<ProcKey>,
}

impl<'a> ExportedTicks<'a> {
    fn new(file: ExportedFile<'a>) -> Self {
        Self { file, ahead: None, gpus: BTreeSet::new(), processes: BTreeSet::new() }
    }

    fn fetch(&mut self) -> std::io::Result<Option<ExportedValue>> {
        match self.ahead.take() {
            Some(value) => Ok(Some(value)),
            None => self.file.next().transpose(),
        }
    }

    fn tick(&mut self) -> std::io::Result<Option<TickRecord>> {
        let Some(first) = self.fetch()? else { return Ok(None) };
        let tick = Tick { seq: 0, at: first.at, mono_ms: 0 };
        let mut series: BTreeSet<SeriesKey> = BTreeSet::new();
        let mut record = TickRecord { tick, points: Vec::new(), gpus: Vec::new(), processes: Vec::new() };
        self.ahead = Some(first);
        while let Some(value) = self.fetch()? {
            let is_next = value.at != tick.at || record.points.len() >= MAX_TICK_VALUES;
            if is_next || !series.insert(value.point.series.clone()) {
                self.ahead = Some(value);
                break;
            }
            self.introduce(&value, &mut record);
            record.points.push(value.point);
        }
        Ok(Some(record))
    }

    /// Introduces the GPU and the process of a value where they come for the first time. A GPU that the file does not
    /// name is called by its identity, and counted.
    fn introduce(&mut self, value: &ExportedValue, record: &mut TickRecord) {
        let SeriesKey { gpu, proc, .. } = &value.point.series;
        if let Some(uuid) = gpu.as_ref().filter(|uuid| !self.gpus.contains(*uuid)) {
            record.gpus.push(value.gpu.clone().unwrap_or_else(|| GpuCard {
                uuid: uuid.clone(),
                index: u32::try_from(self.gpus.len()).unwrap_or(u32::MAX),
                name: Arc::from(uuid.as_str()),
                kind: GpuKind::Discrete,
            }));
            self.gpus.insert(uuid.clone());
        }
        if let (Some(key), Some(name)) = (*proc, &value.process)
            && self.processes.insert(key)
        {
            let info = ProcInfo { name: Ok(name.clone()), ..ProcInfo::absent(Absent::NotYet) };
            record.processes.push(ProcessCard { key, info: info.into(), engine: None });
        }
    }
}

impl Iterator for ExportedTicks<'_> {
    type Item = std::io::Result<TickRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        self.tick().transpose()
    }
}
