//! The ticks that are stored: each a function of its number, so that each run stores the same.

use crate::random::Random;
use ebbtide_core::{GpuUuid, Metric, Point, ProcKey, SeriesKey, Tick, TickRecord, Ts};

/// Series in a tick: what a server with eight GPUs and forty processes has.
pub(crate) const SERIES: u64 = 400;

/// Wall time of tick 0.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// What sort of values a series has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Totals and limits.
    Constant,
    /// Memory that steps by multiples of 2 MiB about every two minutes; one in sixteen leaks.
    Steps,
    /// A cache that fills in pages of 2 MiB and is emptied.
    Sawtooth,
    /// Utilisation, temperatures, milliwatts, clocks, rates: another value each second.
    Noise,
}

/// The kind of a series: 80 constant, 160 stepping, 40 sawtooth, 120 noisy.
pub(crate) const fn kind(series: u64) -> Kind {
    match series {
        0..80 => Kind::Constant,
        80..240 => Kind::Steps,
        240..280 => Kind::Sawtooth,
        _ => Kind::Noise,
    }
}

/// The name of a series.
pub(crate) fn key(series: u64) -> SeriesKey {
    let gpu = Some(GpuUuid::new(&format!("GPU-{:08x}-1111-2222-3333-444444444444", series % 8)));
    let proc = Some(ProcKey { pid: 1000 + (series / 8) as u32, start_ticks: Some(series) });
    SeriesKey { gpu, proc, metric: Metric::ALL[(series % 15) as usize] }
}

/// Ticks of one series set, one after the other.
#[derive(Debug)]
pub(crate) struct Load {
    seq: u64,
    /// A tick, its wall time, and how far the ones behind it are apart.
    beat: (u64, Ts, i64),
    keys: Vec<SeriesKey>,
    values: Vec<i64>,
    random: Random,
}

impl Load {
    pub(crate) fn new(interval_ms: i64) -> Self {
        let values = (0..SERIES).map(start).collect();
        let beat = (0, Ts(BEGIN_MS), interval_ms);
        Self { seq: 0, beat, keys: (0..SERIES).map(key).collect(), values, random: Random::new(0x5EED) }
    }

    /// Goes on at another interval.
    pub(crate) const fn set_interval(&mut self, interval_ms: i64) {
        self.beat = (self.seq, self.at(self.seq), interval_ms);
    }

    /// The wall time of a tick of the present interval.
    pub(crate) const fn at(&self, seq: u64) -> Ts {
        let (from, at, interval_ms) = self.beat;
        Ts(at.0 + (seq.cast_signed() - from.cast_signed()) * interval_ms)
    }

    pub(crate) fn next(&mut self) -> TickRecord {
        self.seq += 1;
        for series in 0..SERIES {
            let value = &mut self.values[series as usize];
            *value = step(series, self.seq, *value, &mut self.random);
        }
        // A timer is late by up to two milliseconds, the steady clock by as much as the wall clock.
        let late = self.random.below(3);
        let at = self.at(self.seq).plus_ms(late);
        let mono_ms = (at.0 - BEGIN_MS).cast_unsigned();
        let points = self.keys.iter().zip(&self.values);
        let points = points.map(|(series, value)| Point { series: series.clone(), value: Some(*value) });
        TickRecord {
            tick: Tick { seq: self.seq, at, mono_ms },
            points: points.collect(),
            gpus: Vec::new(),
            processes: Vec::new(),
        }
    }
}

fn start(series: u64) -> i64 {
    (match kind(series) {
        Kind::Constant => (80 << 30) + (series << 20),
        Kind::Steps => (2 << 30) + (series << 24),
        Kind::Sawtooth => 10 << 30,
        Kind::Noise => [50, 65, 300_000, 1_400, 20_000_000][series as usize % 5],
    })
    .cast_signed()
}

fn step(series: u64, seq: u64, value: i64, random: &mut Random) -> i64 {
    let page = 2_i64 << 20;
    match kind(series) {
        Kind::Constant => value,
        Kind::Steps if series.is_multiple_of(16) && seq.is_multiple_of(60) => value + page,
        Kind::Steps if random.one_in(120) => value + page * (random.below(17) - 8),
        Kind::Steps => value,
        Kind::Sawtooth if value > 70 << 30 || random.one_in(2000) => 10 << 30,
        Kind::Sawtooth if random.one_in(3) => value + page * random.below(12),
        Kind::Sawtooth => value,
        Kind::Noise => noise(series, value, random),
    }
}

/// Percent, degrees, milliwatts, megahertz, bytes a second.
fn noise(series: u64, value: i64, random: &mut Random) -> i64 {
    match series % 5 {
        0 => (value + random.below(21) - 10).clamp(0, 100),
        1 => (value + random.below(3) - 1).clamp(30, 90),
        2 => (value + random.below(4001) - 2000).clamp(60_000, 700_000),
        3 => 1_400 + 15 * random.below(8),
        _ => 15_000_000 + random.below(40_000) * 256,
    }
}
