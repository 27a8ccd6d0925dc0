//! Rows as the samples that a live probe would have made of them.

use std::collections::HashSet;
use std::sync::Arc;

use ebbtide_core::units::GIB;
use ebbtide_core::{
    Absent, Bytes, DeviceMemory, EngineReport, EngineRole, EngineSample, GpuKind, GpuSample, GpuState,
    GpuUuid, HostSample, Liveness, MemorySource, Percent, ProbeHealth, ProcInfo, ProcKey, ProcKinds,
    ProcSample, ProcessList, Reading, Sample, Tick, Ts, WorldEvent,
};

use super::rows::{Quantity, ROLES, Row, Rows, Subject, Values};

/// The process that carries engine and host readings which a file states without a PID. No process is numbered 0.
pub const STAND_IN_PID: u32 = 0;

/// Rows of one instant may spread over half the interval, but not beyond this: GPUs are read one after the other.
const MAX_SPREAD_MS: u64 = 2000;

/// Sizes that cards are sold in, in GiB.
const CARD_SIZES_GIB: [u64; 22] =
    [2, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 120, 141, 180, 192, 256, 288];

/// A recording's samples, oldest first, as if they were read live.
#[derive(Debug)]
pub struct Playback<'a> {
    rows: &'a Rows,
    cast: &'a Cast,
    at: usize,
    seq: u64,
    first_ms: i64,
    spread_ms: u64,
    known: Vec<bool>,
    lists: Vec<Reading<ProcessList>>,
}

/// What does not change over a recording.
#[derive(Debug)]
pub(super) struct Cast {
    gpus: Vec<Gpu>,
    processes: Vec<Arc<ProcInfo>>,
    stand_in: Arc<ProcInfo>,
    /// Places of GPUs in index order.
    order: Vec<usize>,
}

#[derive(Debug)]
struct Gpu {
    uuid: GpuUuid,
    index: u32,
    name: Arc<str>,
    total: Bytes,
    total_is_assumed: bool,
    /// Why memory is absent where a row is.
    unread: Absent,
}

impl Cast {
    /// Looks through all rows once. `total` stands for the size of GPUs whose size is not recorded.
    pub(super) fn of(rows: &Rows, total: Option<Bytes>) -> Self {
        let mut largest = vec![(None, None); rows.gpus.len()];
        for row in rows.rows.iter().filter(|row| row.subject == Subject::Device) {
            let (used, size) = &mut largest[usize::from(row.gpu)];
            *used = (*used).max(row.values.get(Quantity::Used).ok());
            *size = (*size).max(total_of(&row.values));
        }
        let gpu = |(card, (used, size)): (&super::rows::GpuCard, &(Option<u64>, Option<u64>))| Gpu {
            uuid: GpuUuid::new(&card.uuid),
            index: card.index,
            name: card.name.as_str().into(),
            total: size.map(Bytes).or(total).unwrap_or_else(|| card_size(used.unwrap_or_default())),
            total_is_assumed: size.is_none() && total.is_none() && used.is_some(),
            unread: if used.is_some() { Absent::NotYet } else { Absent::NotSupported },
        };
        let gpus: Vec<Gpu> = rows.gpus.iter().zip(&largest).map(gpu).collect();
        let mut order: Vec<usize> = (0..gpus.len()).collect();
        order.sort_by_key(|&place| gpus[place].index);
        let info = |name: Option<&String>| {
            let name = name.cloned().ok_or(Absent::NotSupported);
            Arc::new(ProcInfo { name, ..ProcInfo::absent(Absent::NotSupported) })
        };
        let processes = rows.processes.iter().map(|card| info(card.name.as_ref())).collect();
        Self { gpus, processes, stand_in: info(None), order }
    }

    /// GPUs whose size is not recorded, and the size that stands for it.
    pub(super) fn assumed_totals(&self) -> impl Iterator<Item = (&GpuUuid, Bytes)> {
        self.gpus.iter().filter(|gpu| gpu.total_is_assumed).map(|gpu| (&gpu.uuid, gpu.total))
    }
}

impl<'a> Playback<'a> {
    pub(super) fn new(rows: &'a Rows, cast: &'a Cast, interval_ms: u64) -> Self {
        Self {
            rows,
            cast,
            at: 0,
            seq: 0,
            first_ms: rows.rows.first().and_then(|row| row.at_ms).unwrap_or_default(),
            spread_ms: (interval_ms / 2).min(MAX_SPREAD_MS),
            known: vec![false; rows.gpus.len()],
            lists: vec![Err(Absent::NotSupported); rows.gpus.len()],
        }
    }

    /// The rows of the next instant: up to the first that comes too late, or reads again what was read.
    fn instant(&mut self) -> &'a [Row] {
        let rest = &self.rows.rows[self.at..];
        let Some(first) = rest.first().and_then(|row| row.at_ms) else { return &[] };
        let mut read = HashSet::new();
        let belongs = |row: &&Row| {
            let at_ms = row.at_ms.unwrap_or(first);
            let is_new = read.insert((row.gpu, row.subject));
            at_ms == first || (is_new && at_ms.abs_diff(first) <= self.spread_ms)
        };
        let length = rest.iter().take_while(belongs).count();
        self.at += length;
        &rest[..length]
    }

    fn tick(&mut self, rows: &[Row]) -> Option<Tick> {
        let at_ms = rows.first()?.at_ms?;
        self.seq += 1;
        Some(Tick { seq: self.seq, at: Ts(at_ms), mono_ms: at_ms.abs_diff(self.first_ms) })
    }

    /// Replaces the process lists that this instant printed. Where a list is of all GPUs at once, one printed list
    /// makes all fresh.
    fn list(&mut self, rows: &[Row], tick: Tick) {
        let listed = |row: &Row| matches!(row.subject, Subject::List | Subject::Process(_));
        let stands_in = |row: &Row| row.subject == Subject::Device && row.values.any_of_process();
        let fresh = rows.iter().any(listed);
        for (place, list) in self.lists.iter_mut().enumerate() {
            let own = || rows.iter().filter(|row| usize::from(row.gpu) == place);
            let fresh = if self.rows.lists_apart { own().any(listed) } else { fresh };
            if !fresh && !own().any(stands_in) {
                continue;
            }
            let mut entries: Vec<ProcSample> = Vec::new();
            for row in own() {
                match row.subject {
                    Subject::Process(process) => {
                        self.cast.add(&mut entries, self.rows.process_key(process), row);
                    }
                    Subject::Device if stands_in(row) => self.cast.add(&mut entries, stand_in_key(), row),
                    _ => {}
                }
            }
            entries.sort_by_key(|entry| entry.key);
            *list = Ok(ProcessList { listed: tick, entries });
        }
    }

    fn gpu(&self, place: usize, rows: &[Row]) -> GpuSample {
        let card = &self.cast.gpus[place];
        let device = rows
            .iter()
            .rev()
            .find(|row| row.subject == Subject::Device && usize::from(row.gpu) == place)
            .map(|row| row.values);
        GpuSample {
            uuid: card.uuid.clone(),
            index: card.index,
            name: Arc::clone(&card.name),
            kind: GpuKind::Discrete,
            state: GpuState::Present,
            memory: device.map_or(Err(card.unread), |values| memory(&values, card.total)),
            utilization: device.map_or(Err(Absent::NotSupported), |values| {
                values.get(Quantity::Utilization).map(|share| Percent(share.min(100) as u8))
            }),
            processes: self.lists[place].clone(),
            holders: Vec::new(),
        }
    }

    fn event(&self, row: &Row) -> Option<WorldEvent> {
        let Subject::Event(place) = row.subject else { return None };
        let event = self.rows.events.get(place as usize)?;
        Some(WorldEvent {
            gpu: event.gpu.map(|gpu| self.cast.gpus[usize::from(gpu)].uuid.clone()),
            proc: event.pid.map(|pid| ProcKey { pid, start_ticks: None }),
            kind: event.kind.clone(),
        })
    }
}

impl Iterator for Playback<'_> {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        let rows = self.instant();
        let tick = self.tick(rows)?;
        for row in rows.iter().filter(|row| !matches!(row.subject, Subject::Event(_))) {
            self.known[usize::from(row.gpu)] = true;
        }
        self.list(rows, tick);
        let known = self.cast.order.iter().filter(|&&place| self.known[place]);
        let available = rows.iter().find_map(|row| row.values.get(Quantity::HostAvailable).ok());
        Some(Sample {
            tick,
            gpus: known.map(|&place| self.gpu(place, rows)).collect(),
            host: HostSample {
                total: Err(Absent::NotSupported),
                available: available.map(Bytes).ok_or(Absent::NotSupported),
            },
            events: rows.iter().filter_map(|row| self.event(row)).collect(),
            endings: Vec::new(),
            probe: ProbeHealth { source: "recorded file".to_owned(), ..ProbeHealth::default() },
        })
    }
}

impl Cast {
    /// Adds what a row says of a process. Lists that name it twice agree on the larger amount, as live ones do.
    fn add(&self, entries: &mut Vec<ProcSample>, (key, place): (ProcKey, Option<usize>), row: &Row) {
        let memory = place.map_or(Err(Absent::NotSupported), |_| row.values.get(Quantity::Used).map(Bytes));
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
            entry.memory = entry.memory.ok().max(memory.ok()).ok_or(Absent::NotYet);
            return;
        }
        entries.push(ProcSample {
            key,
            memory,
            kinds: ProcKinds { compute: true, ..ProcKinds::default() },
            liveness: Liveness::Alive,
            info: Arc::clone(place.and_then(|place| self.processes.get(place)).unwrap_or(&self.stand_in)),
            rss: row.values.get(Quantity::HostRss).map(Bytes),
            host_limit: row.values.get(Quantity::HostLimit).map(Bytes),
            engine: engine(&row.values),
        });
    }
}

impl Rows {
    fn process_key(&self, place: u32) -> (ProcKey, Option<usize>) {
        let place = place as usize;
        let key = self.processes.get(place).map_or(stand_in_key().0, |card| card.key);
        (key, Some(place))
    }
}

const fn stand_in_key() -> (ProcKey, Option<usize>) {
    (ProcKey { pid: STAND_IN_PID, start_ticks: None }, None)
}

/// The engine's counters, where the row has any.
fn engine(values: &Values) -> Option<EngineSample> {
    let count = |quantity| values.get(quantity).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    values.any(&Quantity::OF_ENGINE).then(|| EngineSample {
        kv_used: values.get(Quantity::KvUsed).map(Bytes),
        kv_pool: values.get(Quantity::KvPool).map(Bytes),
        running: count(Quantity::Running),
        waiting: count(Quantity::Waiting),
        served: values.get(Quantity::Served),
        tokens: values.get(Quantity::Tokens),
        arena: values.get(Quantity::Arena).map(Bytes),
        arena_used: values.get(Quantity::ArenaUsed).map(Bytes),
        report: role(values).map(|role| {
            let unknown = EngineReport::absent("", "", Absent::NotSupported);
            Arc::new(EngineReport { role, ..unknown })
        }),
        ..EngineSample::absent(Absent::NotSupported)
    })
}

/// The part that the row says the engine has.
fn role(values: &Values) -> Option<EngineRole> {
    let place = usize::try_from(values.get(Quantity::Role).ok()?).ok()?;
    ROLES.get(place).map(|(_, role)| *role)
}

/// A device's memory. Where used is not recorded it is what total, free and reserved leave; where free is not, it is
/// what used and reserved leave.
fn memory(values: &Values, card_total: Bytes) -> Reading<DeviceMemory> {
    let total = total_of(values).map_or(card_total, Bytes);
    let reserved = values.get(Quantity::Reserved).map(Bytes);
    let rest = total.saturating_sub(reserved.unwrap_or_default());
    let free = values.get(Quantity::Free).map(Bytes);
    let used = values.get(Quantity::Used).map(Bytes);
    let used = used.or_else(|why| free.map(|free| rest.saturating_sub(free)).map_err(|_| why))?;
    let free = free.unwrap_or_else(|_| rest.saturating_sub(used));
    Ok(DeviceMemory { total, used, free, reserved, source: MemorySource::Recorded })
}

/// All memory of a device: as stated, or as used and free (and reserved) add up to.
fn total_of(values: &Values) -> Option<u64> {
    let stated = values.get(Quantity::Total).ok();
    let (used, free) = (values.get(Quantity::Used).ok(), values.get(Quantity::Free).ok());
    let reserved = values.get(Quantity::Reserved).unwrap_or_default();
    stated.or_else(|| Some(used? + free? + reserved))
}

/// The next size that cards are sold in above `used`.
fn card_size(used: u64) -> Bytes {
    let sold = CARD_SIZES_GIB.into_iter().map(|gib| gib * GIB).find(|&size| size > used);
    Bytes(sold.unwrap_or_else(|| used.saturating_mul(2)))
}

#[cfg(test)]
mod tests {
    use ebbtide_core::units::MIB;

    use super::*;

    #[test]
    fn memory_is_completed_from_what_is_there_and_absent_where_nothing_is() {
        let mut values = Values::unrecorded();
        assert_eq!(memory(&values, Bytes::from_mib(100)), Err(Absent::NotSupported));
        values.set(Quantity::Free, Ok(30 * MIB));
        values.set(Quantity::Reserved, Ok(10 * MIB));
        let read = memory(&values, Bytes::from_mib(100)).unwrap();
        assert_eq!(
            (read.total, read.used, read.free),
            (Bytes::from_mib(100), Bytes::from_mib(60), Bytes::from_mib(30))
        );
        values.set(Quantity::Used, Ok(50 * MIB));
        let read = memory(&values, Bytes::from_mib(100)).unwrap();
        assert_eq!((read.total, read.used), (Bytes::from_mib(90), Bytes::from_mib(50)));
    }

    #[test]
    fn a_size_that_is_not_recorded_is_one_that_is_sold() {
        assert_eq!(card_size(0), Bytes(2 * GIB));
        assert_eq!(card_size(24 * GIB - 1), Bytes(24 * GIB));
        assert_eq!(card_size(24 * GIB), Bytes(32 * GIB));
        assert_eq!(card_size(1000 * GIB), Bytes(2000 * GIB));
    }
}
