//! `ebbtide db export`: values, one a line. No more than a window of ticks is in memory.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::time::Duration;

use ebbtide_core::{GpuCard, GpuUuid, Point, ProcKey, ProcessCard, SeriesKey, TickRecord, Ts};
use ebbtide_probe::recorded::{EXPORT_HEADER, ExportedValue};
use ebbtide_store::Reader;

use super::args::{ExportArgs, Format};
use super::{path, refused, runtime};
use crate::output;
use crate::progress::Progress;

/// How long one step may take: a window is read at once, be it from a slow disk.
const DEADLINE: Duration = Duration::from_secs(60);

/// How much is written at once: few system calls, and a pipe is fed before its reader waits.
const BUFFER_BYTES: usize = 1 << 16;

/// Who turned up so far.
#[derive(Default)]
struct Names {
    gpus: BTreeMap<GpuUuid, GpuCard>,
    processes: BTreeMap<ProcKey, String>,
}

impl Names {
    /// Command lines can hold secrets and stay where they are.
    fn learn(&mut self, gpus: Vec<GpuCard>, processes: &[ProcessCard]) {
        // A GPU whose name nobody knew is called by its identity, which a line has anyhow.
        let named = gpus.into_iter().filter(|card| *card.name != *card.uuid.as_str());
        self.gpus.extend(named.map(|card| (card.uuid.clone(), card)));
        let named = processes.iter().filter_map(|card| Some((card.key, card.info.name.clone().ok()?)));
        self.processes.extend(named);
    }
}

pub(super) fn run(mut args: ExportArgs) -> anyhow::Result<u8> {
    let file = std::mem::take(&mut args.file);
    let reader = Reader::new(&path(file)?, DEADLINE);
    match runtime()?.block_on(export(&reader, &args)) {
        Err(error) if error.downcast_ref().is_some_and(output::is_enough) => Ok(0),
        done => done.map(|()| 0),
    }
}

async fn export(reader: &Reader, args: &ExportArgs) -> anyhow::Result<()> {
    let (from, to) = (args.from.unwrap_or(Ts(i64::MIN)), args.to.unwrap_or(Ts(i64::MAX)));
    let mut replay = reader.replay(from, to).await.map_err(refused)?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
    let mut progress = Progress::new("exported");
    if args.format == Format::Csv {
        writeln!(out, "{EXPORT_HEADER}")?;
    }
    let mut names = Names::default();
    while let Some(record) = replay.next().await.map_err(refused)? {
        let at = record.tick.at;
        write(&mut out, record, &mut names, args)?;
        progress.tick(at);
    }
    out.flush()?;
    progress.finish();
    if replay.unreadable() > 0 {
        let lost = replay.unreadable();
        writeln!(std::io::stderr(), "{lost} ticks are damaged and left out: `ebbtide db verify` says more")?;
    }
    Ok(())
}

/// The lines of a tick, in the order of their names, which unlike the file's own is the same in every copy.
fn write(
    out: &mut impl Write,
    record: TickRecord,
    names: &mut Names,
    args: &ExportArgs,
) -> std::io::Result<()> {
    names.learn(record.gpus, &record.processes);
    let mut points: Vec<Point> = record.points;
    points.retain(|point| is_wanted(&point.series, args));
    points.sort_by(|one, other| one.series.cmp(&other.series));
    points.into_iter().try_for_each(|point| {
        let gpu = point.series.gpu.as_ref().and_then(|uuid| names.gpus.get(uuid)).cloned();
        let process = point.series.proc.and_then(|key| names.processes.get(&key)).cloned();
        let value = ExportedValue { at: record.tick.at, point, gpu, process };
        match args.format {
            Format::Csv => value.write_csv(out),
            Format::Jsonl => value.write_json(out),
        }
    })
}

fn is_wanted(series: &SeriesKey, args: &ExportArgs) -> bool {
    let is_gpu = |uuid: &String| series.gpu.as_ref().is_some_and(|gpu| gpu.as_str() == uuid);
    (args.series.is_empty() || args.series.contains(&series.metric))
        && args.gpu.as_ref().is_none_or(is_gpu)
        && args.pid.is_none_or(|pid| series.proc.is_some_and(|proc| proc.pid == pid))
}
