//! Amounts, times and names as the answers write them.

use ebbtide_core::{Finding, Forecast, ProcSample, Reading, SeriesPart, Ts};

/// A value, or that it is not known and why.
pub(super) fn value<T: std::fmt::Display, E: std::fmt::Display>(reading: Result<T, E>) -> String {
    reading.map_or_else(|why| format!("unknown ({why})"), |value| value.to_string())
}

/// `vllm (process 4711)`.
pub(super) fn process(process: &ProcSample) -> String {
    match &process.info.name {
        Ok(name) if !name.is_empty() => format!("{name} (process {})", process.key.pid),
        _ => format!("process {}", process.key.pid),
    }
}

/// Whom a finding is about.
pub(super) fn subject(finding: &Finding) -> String {
    let name = &finding.subject.process;
    match finding.key.series.part {
        SeriesPart::Device => "the GPU".to_owned(),
        SeriesPart::Unattributed => "the unattributed memory".to_owned(),
        SeriesPart::Process(key) | SeriesPart::Host(key) if name.is_empty() => format!("process {}", key.pid),
        SeriesPart::Process(key) | SeriesPart::Host(key) => format!("{name} (process {})", key.pid),
    }
}

/// The time between two instants in its largest unit; nothing where the clock went back.
pub(super) fn between(from: Ts, to: Ts) -> String {
    let seconds = to.0.saturating_sub(from.0).max(0) / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// `out of memory in 3 h, at the earliest in 2 h`.
pub(super) fn forecast(forecast: &Forecast, now: Ts) -> String {
    let (expected, earliest) = (between(now, forecast.expected), between(now, forecast.earliest));
    if expected == earliest {
        format!("out of memory in about {expected}")
    } else {
        format!("out of memory in about {expected}, at the earliest in {earliest}")
    }
}

/// A share in whole percent; unknown where the whole is.
pub(super) fn percent(
    part: Reading<ebbtide_core::Bytes>,
    whole: Reading<ebbtide_core::Bytes>,
) -> Option<u64> {
    let (part, whole) = (part.ok()?, whole.ok()?);
    (whole.0 > 0).then(|| (part.0 as f64 / whole.0 as f64 * 100.0).round() as u64)
}
