//! An incident's shape as the recording that somebody could have made of it. Pure: the same incident gives the same
//! bytes on every machine.

use std::fmt::Write;

use super::incident::{Incident, Phase, PhaseKind, Series};
use crate::checksum::fnv1a64;

/// Where the clock of every recording starts: an arbitrary instant in epoch seconds.
const START_S: f64 = 1_700_000_000.0;
/// Shapes longer than this are played at five seconds.
const LONG_S: f64 = 6.0 * 3600.0;
/// Sizes that cards are sold in, in GiB.
const CARD_SIZES_GIB: [f64; 11] = [8.0, 10.0, 12.0, 16.0, 24.0, 32.0, 40.0, 48.0, 80.0, 96.0, 141.0];

/// A recording by columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Played {
    /// Seconds from the start, one for each row.
    pub(super) times: Vec<f64>,
    /// Name and one value in MiB for each row.
    pub(super) columns: Vec<(&'static str, Vec<f64>)>,
    /// Row and event.
    pub(super) events: Vec<(usize, String)>,
}

/// Plays an incident.
pub(super) fn play(incident: &Incident) -> Played {
    let length = duration(&incident.shape.phases);
    let step = if length > LONG_S { 5.0 } else { 1.0 };
    let times: Vec<f64> = (0..=(length / step).floor() as u64).map(|row| row as f64 * step).collect();
    let mut noise = fastrand::Rng::with_seed(fnv1a64(incident.id.as_bytes()));
    let all = std::iter::once(&incident.shape).chain(&incident.shape.companion);
    let mut columns: Vec<(&'static str, Vec<f64>)> =
        all.map(|series| (column(&series.metric), values(series, &times, &mut noise))).collect();
    if let Some(total) = total(incident) {
        columns.push(("total_mib", vec![total; times.len()]));
    }
    if let Some(limit) = incident.stated.iter().find_map(|stated| stated.host_limit_mib) {
        columns.push(("host_limit_mib", vec![limit; times.len()]));
    }
    let events = events(incident, &times);
    Played { times, columns, events }
}

impl Played {
    /// The recording as a generic CSV.
    pub(super) fn to_csv(&self) -> String {
        let mut csv = String::from("time");
        for (name, _) in &self.columns {
            csv.push(',');
            csv.push_str(name);
        }
        csv.push_str(",event\n");
        for (row, time) in self.times.iter().enumerate() {
            csv.push_str(&format!("{:.0}", START_S + time));
            for (_, values) in &self.columns {
                // Writing to a string cannot fail.
                let _ = write!(csv, ",{:.1}", values[row]);
            }
            let mut here = self.events.iter().filter(|(at, _)| *at == row).map(|(_, event)| event.as_str());
            let _ = writeln!(csv, ",{}", here.next().unwrap_or_default());
        }
        csv
    }

    /// The largest rise of any measured column above an earlier value, in MiB.
    pub(super) fn largest_rise(&self) -> f64 {
        let measured =
            self.columns.iter().filter(|(name, _)| !matches!(*name, "total_mib" | "host_limit_mib"));
        let rise = |values: &Vec<f64>| {
            let mut lowest = f64::INFINITY;
            values.iter().fold(0.0_f64, |rise, &value| {
                lowest = lowest.min(value);
                rise.max(value - lowest)
            })
        };
        measured.map(|(_, values)| rise(values)).fold(0.0, f64::max)
    }
}

/// The value of a phase at `t` seconds from its start, without noise.
fn value(phase: &Phase, t: f64) -> f64 {
    let (a, b, share) = (phase.from_mib, phase.to_mib, (t / phase.duration_s).clamp(0.0, 1.0));
    match phase.kind {
        PhaseKind::Exp if a > 0.0 => a * (b / a).powf(share),
        PhaseKind::Flat | PhaseKind::Linear | PhaseKind::Exp => a + (b - a) * share,
        PhaseKind::Drop => b,
        PhaseKind::Saturating => a + (b - a) * (1.0 - (-5.0 * share).exp()) / (1.0 - (-5.0_f64).exp()),
        PhaseKind::Step => {
            let jumps = jumps(phase);
            a + (b - a) * (t / phase.period_s).floor().min(jumps) / jumps
        }
        PhaseKind::Sawtooth => a + (b - a) * (t % phase.period_s) / phase.period_s,
    }
}

/// How many jumps a stair has.
fn jumps(phase: &Phase) -> f64 {
    (phase.duration_s / phase.period_s).floor().max(1.0)
}

/// A series at all times; beyond its last phase it keeps its last value.
fn values(series: &Series, times: &[f64], noise: &mut fastrand::Rng) -> Vec<f64> {
    let mut values = Vec::with_capacity(times.len());
    let (mut at, mut start) = (0, 0.0);
    for &time in times {
        while at + 1 < series.phases.len() && time >= start + series.phases[at].duration_s {
            start += series.phases[at].duration_s;
            at += 1;
        }
        let phase = &series.phases[at];
        let jitter = (noise.f64() * 2.0 - 1.0) * phase.noise_mib;
        values.push((value(phase, time - start) + jitter).max(0.0));
    }
    values
}

/// Rows at which the stated events stand. Two events of one row would be one too many for a cell, so the later one
/// moves to the next row.
fn events(incident: &Incident, times: &[f64]) -> Vec<(usize, String)> {
    let mut placed: Vec<(usize, String)> = Vec::new();
    for stated in &incident.stated {
        let (Some(event), Some(phase)) = (&stated.event, incident.shape.phases.get(stated.phase)) else {
            continue;
        };
        let start = duration(&incident.shape.phases[..stated.phase]);
        let instants: Vec<f64> = if stated.each_period {
            (1..=jumps(phase) as u64).map(|jump| start + jump as f64 * phase.period_s).collect()
        } else {
            vec![start]
        };
        for instant in instants {
            let Some(mut row) = times.iter().position(|&time| time >= instant) else { continue };
            while placed.iter().any(|(taken, _)| *taken == row) {
                row += 1;
            }
            placed.push((row, event.clone()));
        }
    }
    placed
}

/// The device's size in MiB, where the incident has a series of the device.
fn total(incident: &Incident) -> Option<f64> {
    let all = std::iter::once(&incident.shape).chain(&incident.shape.companion);
    let largest = all
        .filter(|series| column(&series.metric) == "used_mib")
        .flat_map(|series| &series.phases)
        .map(|phase| phase.from_mib.max(phase.to_mib))
        .reduce(f64::max)?;
    let sold = || CARD_SIZES_GIB.into_iter().map(|gib| gib * 1024.0).find(|&size| size > largest);
    let beyond = || (((largest / 1024.0).floor() as u64 + 1).next_power_of_two() * 1024) as f64;
    Some(incident.facts.total_mib.or_else(sold).unwrap_or_else(beyond))
}

fn duration(phases: &[Phase]) -> f64 {
    phases.iter().map(|phase| phase.duration_s).sum()
}

/// The column of `ebbtide check` that a metric stands in.
fn column(metric: &str) -> &'static str {
    match metric {
        "host_rss_mib" => "host_rss_mib",
        "host_available_mib" => "host_available_mib",
        "kv_used_mib" => "kv_used_mib",
        _ => "used_mib",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(kind: &str, duration_s: f64, from_mib: f64, to_mib: f64, period_s: f64) -> Phase {
        let kind = serde_json::from_str(&format!("{kind:?}")).unwrap();
        Phase { kind, duration_s, from_mib, to_mib, noise_mib: 0.0, period_s }
    }

    fn incident(json: &str, stated: &[&str]) -> Incident {
        let mut incident: Incident = serde_json::from_str(json).unwrap();
        incident.stated = stated.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        incident
    }

    #[test]
    fn phases_begin_and_end_where_they_say() {
        for kind in ["linear", "flat", "saturating", "exp"] {
            let phase = phase(kind, 100.0, 10.0, 50.0, 0.0);
            assert!((value(&phase, 0.0) - 10.0).abs() < 1e-9, "{kind}");
            assert!((value(&phase, 100.0) - 50.0).abs() < 1e-9, "{kind}");
        }
        assert!((value(&phase("exp", 100.0, 10.0, 40.0, 0.0), 50.0) - 20.0).abs() < 1e-9);
        assert!(value(&phase("saturating", 100.0, 0.0, 100.0, 0.0), 20.0) > 60.0);
        assert!((value(&phase("drop", 100.0, 10.0, 5.0, 0.0), 0.0) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn stairs_jump_equally_and_teeth_fall_back() {
        let stairs = phase("step", 120.0, 500.0, 840.0, 30.0);
        let read: Vec<f64> = [0.0, 29.0, 30.0, 60.0, 119.0, 120.0].map(|t| value(&stairs, t)).into();
        assert_eq!(read, [500.0, 500.0, 585.0, 670.0, 755.0, 840.0]);
        let teeth = phase("sawtooth", 100.0, 10.0, 20.0, 10.0);
        assert_eq!([0.0, 5.0, 10.0].map(|t| value(&teeth, t)), [10.0, 15.0, 10.0]);
    }

    const SLEEP: &str = r#"{"id":"x","verdict":"not_released","alert":true,"facts":{"shape_basis":"levels"},
        "shape":{"metric":"nvml_device_used_mib","phases":[
            {"kind":"flat","duration_s":10,"from_mib":9000,"to_mib":9000,"noise_mib":5},
            {"kind":"drop","duration_s":10,"from_mib":9000,"to_mib":8000}],
        "companion":[{"metric":"kv_used_mib","phases":[
            {"kind":"linear","duration_s":5,"from_mib":0,"to_mib":5}]}]}}"#;

    #[test]
    fn a_recording_has_its_columns_its_size_and_its_event_at_the_boundary() {
        let played = play(&incident(SLEEP, &[r#"{"id":"x","event":"sleep","phase":1}"#]));
        let names: Vec<&str> = played.columns.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["used_mib", "kv_used_mib", "total_mib"]);
        assert_eq!(played.events, [(10, "sleep".to_owned())]);
        assert_eq!((played.columns[1].1[20], played.columns[2].1[0]), (5.0, 10240.0));
        let csv = played.to_csv();
        assert!(csv.starts_with("time,used_mib,kv_used_mib,total_mib,event\n1700000000,"));
        assert_eq!(csv.lines().nth(11), Some("1700000010,8000.0,5.0,10240.0,sleep"));
        assert_eq!(csv.lines().count(), 22);
    }

    #[test]
    fn noise_stays_within_its_width_and_is_the_same_again() {
        let incident = incident(SLEEP, &[]);
        let played = play(&incident);
        assert!(played.columns[0].1[..10].iter().all(|value| (value - 9000.0).abs() <= 5.0));
        assert!(played.columns[0].1[..10].iter().any(|value| (value - 9000.0).abs() > 0.5));
        assert_eq!(play(&incident), played);
        assert!(played.largest_rise() < 10.5);
    }

    #[test]
    fn long_shapes_are_played_at_five_seconds_and_events_of_a_stair_at_each_jump() {
        let long = incident(
            r#"{"id":"y","verdict":"not_released","alert":true,"facts":{"shape_basis":"rate","total_mib":400000},
                "shape":{"metric":"process_used_mib","phases":[
                {"kind":"step","duration_s":28800,"from_mib":0,"to_mib":400,"period_s":7200}]}}"#,
            &[r#"{"id":"y","event":"engine-exit","each_period":true}"#],
        );
        let played = play(&long);
        assert_eq!((played.times.len(), played.times[1]), (5761, 5.0));
        let rows: Vec<usize> = played.events.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [1440, 2880, 4320, 5760]);
        assert!((played.largest_rise() - 400.0).abs() < 1e-9);
    }
}
