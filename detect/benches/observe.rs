//! What one observation costs, in nanoseconds, by what the memory does and what is known of its load. A leak is the
//! dearest: it passes the cheap tests, so that the dear ones run on each block. Eight hours at 1 Hz a row.

use std::time::Instant;

use ebbtide_core::{Absent, Bytes, GpuUuid, SeriesPart, SeriesRef, Tick, Ts, units::MIB};
use ebbtide_detect::{DetectConfig, Detector, Load, Observation};

const SAMPLES: u32 = 8 * 3600;

fn history(row: &Row) -> Vec<Observation<'static>> {
    let mut rng = fastrand::Rng::with_seed(7);
    (0..SAMPLES)
        .map(|i| {
            let seconds = f64::from(i);
            let kv = if row.has_counters { 4000.0 * (seconds / 200.0).fract() } else { 0.0 };
            let noise = f64::from(rng.u8(..)) / 64.0;
            let used = 20_000.0 + kv + noise + row.mib_per_min * seconds / 60.0;
            let absent = Load::absent(Absent::NotSupported);
            let bytes = |mib: f64| Bytes((mib * MIB as f64) as u64);
            Observation {
                tick: Tick { seq: u64::from(i), at: Ts(i64::from(i) * 1000), mono_ms: u64::from(i) * 1000 },
                value: Ok(bytes(used)),
                capacity: Ok(Bytes::from_mib(81_559)),
                load: if row.has_counters {
                    Load { kv_used: Ok(bytes(kv)), running: Ok(8), ..absent }
                } else {
                    absent
                },
                owners: Err(Absent::NotSupported),
                peers: Err(Absent::NotSupported),
                events: &[],
            }
        })
        .collect()
}

struct Row {
    name: &'static str,
    has_counters: bool,
    mib_per_min: f64,
}

#[expect(clippy::print_stdout, reason = "a bench prints its table")]
fn main() {
    let rows = [
        Row { name: "steady, no counters", has_counters: false, mib_per_min: 0.0 },
        Row { name: "steady, counters", has_counters: true, mib_per_min: 0.0 },
        Row { name: "leak 1 MiB/min, no counters", has_counters: false, mib_per_min: 1.0 },
        Row { name: "leak 64 MiB/min, no counters", has_counters: false, mib_per_min: 64.0 },
        Row { name: "leak 64 MiB/min, counters", has_counters: true, mib_per_min: 64.0 },
    ];
    println!("{:<30} {:>10} {:>9}", "what", "ns/sample", "events");
    for row in rows {
        let history = history(&row);
        let series = SeriesRef { gpu: GpuUuid::new("GPU-0"), part: SeriesPart::Device };
        let mut detector = Detector::new(series, &DetectConfig::default());
        let start = Instant::now();
        let events: usize = history.iter().map(|observation| detector.observe(observation).len()).sum();
        let ns = start.elapsed().as_nanos() / u128::from(SAMPLES);
        println!("{:<30} {ns:>10} {events:>9}", row.name);
    }
}
