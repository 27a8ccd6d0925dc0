//! Values in words. Unknown is `–`, never zero.

use ebbtide_core::{Absent, Forecast, Owner, RateBand, Reading, Ts, text};
use jiff::tz::TimeZone;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands where a value is not known.
pub(super) const UNKNOWN: &str = "–";

/// What a number is written with.
const FIGURE: [char; 12] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '.', '-'];

/// A value, or that it is not known.
pub(super) fn value<T: std::fmt::Display>(reading: Reading<T>) -> String {
    reading.map_or_else(|_| UNKNOWN.to_owned(), |v| v.to_string())
}

/// That a value is not known, and why.
pub(super) fn unknown(why: Absent) -> String {
    format!("{UNKNOWN} ({why})")
}

/// `raw` in at most `width` columns, cleaned; what was cut shows as `…`.
pub(super) fn fit(raw: &str, width: usize) -> String {
    let clean = text::clean(raw);
    if clean.width() <= width {
        return clean;
    }
    let mut out = String::new();
    let mut used = 1;
    for c in clean.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// `raw` in lines of at most `width` columns, broken between words where that is possible.
pub(super) fn wrap(raw: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in raw.split_whitespace().map(|w| fit(w, width)).filter(|w| !w.is_empty()) {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A duration in its two largest units: `45 s`, `12 min`, `2 h 05 min`, `3 d 4 h`.
pub(super) fn duration(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 if minutes % 60 == 0 => format!("{hours} h"),
        3600..86_400 => format!("{hours} h {:02} min", minutes % 60),
        _ if hours % 24 == 0 || days >= 10 => format!("{days} d"),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A duration in one unit, for a narrow column: `45s`, `12m`, `2h`, `3d`.
pub(super) fn short_duration(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The time from `since` to `now`.
pub(super) fn elapsed(since: Ts, now: Ts) -> i64 {
    now.0.saturating_sub(since.0)
}

/// When memory runs out, seen from `now`: the range, and what is most likely.
pub(super) fn forecast(forecast: &Forecast, now: Ts) -> String {
    let expected = duration(elapsed(now, forecast.expected));
    format!("{}, most likely {expected}, at {}", runs_full(forecast, now), forecast.capacity)
}

/// When memory runs out, seen from `now`, as a range only.
pub(super) fn runs_full(forecast: &Forecast, now: Ts) -> String {
    let to = |at: Ts| duration(elapsed(now, at));
    match forecast.latest {
        Some(latest) => format!("full in {} to {}", to(forecast.earliest), to(latest)),
        None => format!("full in {} or later, perhaps never", to(forecast.earliest)),
    }
}

/// A rate and its band.
pub(super) fn band(band: &RateBand) -> String {
    let [rate, low, high] = [band.rate, band.low, band.high].map(|r| r.to_string());
    // The unit is said once where all three have the same.
    let low = low.strip_suffix(rate.trim_start_matches(FIGURE)).unwrap_or(&low);
    format!("{rate} ({low} to {high})")
}

/// A number with as many decimals as it deserves.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == v.trunc() => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

/// Whom a process belongs to: the narrowest owner that a person would recognise.
pub(super) fn owner(owner: &Owner) -> Option<String> {
    if let Some(pod) = &owner.pod {
        let name = pod.name.as_ref().unwrap_or(&pod.uid);
        return Some(match &pod.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => format!("pod {name}"),
        });
    }
    // Twelve digits are how container tools print an id.
    let container = owner.container.as_ref().map(|id| id.chars().take(12).collect());
    container.or_else(|| owner.unit.clone())
}

/// The time of day, with the date where there is room for it; `–` for an instant beyond the calendar.
pub(super) fn clock(at: Ts, zone: &TimeZone, format: &str) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(
        |_| UNKNOWN.to_owned(),
        |t| t.to_zoned_datetime(zone.clone()).strftime(format).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::{ByteRate, Bytes, Pod};
    use proptest::prelude::*;

    #[test]
    fn durations_read_as_people_say_them() {
        let shown = [0, 59_000, 61_000, 3_600_000, 7_500_000, 90_000_000, 20 * 86_400_000, -5].map(duration);
        assert_eq!(shown, ["0 s", "59 s", "1 min", "1 h", "2 h 05 min", "1 d 1 h", "20 d", "0 s"]);
    }

    #[test]
    fn a_forecast_without_an_end_says_so() {
        let at = |minutes: i64| Ts(minutes * 60_000);
        let mut f = Forecast {
            capacity: Bytes::from_mib(80 * 1024),
            earliest: at(90),
            expected: at(120),
            latest: Some(at(200)),
        };
        assert_eq!(forecast(&f, Ts(0)), "full in 1 h 30 min to 3 h 20 min, most likely 2 h, at 80.0 GiB");
        f.latest = None;
        assert_eq!(runs_full(&f, Ts(0)), "full in 1 h 30 min or later, perhaps never");
    }

    #[test]
    fn the_owner_is_the_one_a_person_recognises() {
        let mut o = Owner { unit: Some("vllm.service".into()), ..Owner::default() };
        assert_eq!(owner(&o).as_deref(), Some("vllm.service"));
        o.container = Some("0123456789abcdef".into());
        assert_eq!(owner(&o).as_deref(), Some("0123456789ab"));
        o.pod =
            Some(Pod { uid: "u-1".into(), namespace: Some("serve".into()), name: Some("llama-0".into()) });
        assert_eq!(owner(&o).as_deref(), Some("serve/llama-0"));
        assert_eq!(owner(&Owner::default()), None);
    }

    #[test]
    fn rates_carry_their_band() {
        let rate = ByteRate::from_mib_per_min;
        let b = RateBand { rate: rate(4.1), low: rate(-3.75), high: rate(6.0) };
        assert_eq!(band(&b), "4.1 MiB/min (-3.8 to 6.0 MiB/min)");
        let b = RateBand { rate: rate(2048.0), low: rate(1.0), high: rate(4096.0) };
        assert_eq!(band(&b), "2.0 GiB/min (1.0 MiB/min to 4.0 GiB/min)");
    }

    proptest! {
        #[test]
        fn fitted_and_wrapped_text_keeps_to_its_width_and_has_no_controls(raw in ".*", width in 0_usize..40) {
            let lines = wrap(&raw, width.max(1));
            for line in std::iter::once(fit(&raw, width)).chain(lines.into_iter().filter(|_| width > 0)) {
                prop_assert!(line.width() <= width, "{line:?}");
                prop_assert!(!line.chars().any(char::is_control));
            }
        }
    }
}
