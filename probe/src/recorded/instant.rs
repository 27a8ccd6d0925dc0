//! Instants as tools print them. A time without a zone is read as UTC: the zone of the machine that wrote the file
//! is not in it, and only differences matter to a diagnosis.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::number::{Comma, decimal, trim};

/// The instant in a cell, in milliseconds since 1970 UTC.
///
/// A number is seconds, or milliseconds above 1e11 (the year 5138 in seconds), microseconds above 1e14 and
/// nanoseconds above 1e17. Text is RFC 3339, or date and time with `-` or `/` as nvidia-smi writes them.
pub(super) fn instant(cell: &str, comma: Comma) -> Option<i64> {
    let cell = trim(cell);
    if let Some(number) = decimal(cell, comma) {
        return epoch(number);
    }
    if !cell.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Ok(timestamp) = cell.parse::<Timestamp>() {
        return Some(timestamp.as_millisecond());
    }
    civil(&cell.replace('/', "-"))
}

/// The instant of a line like `Wed Jan 31 12:34:56 2024`, which stands above each table of nvidia-smi, or of the
/// line that `date` prints in an English locale, whose zone is passed over.
pub(super) fn heading(line: &str) -> Option<i64> {
    let (mut year, mut month, mut day, mut time) = (None, None, None, None);
    let mut afternoon = None;
    for word in line.split_whitespace() {
        if let Some(place) = MONTHS.iter().position(|&name| name.eq_ignore_ascii_case(word)) {
            month = Some(place + 1);
        } else if word.contains(':') {
            time = Some(word);
        } else if word == "AM" || word == "PM" {
            afternoon = Some(word == "PM");
        } else if word.starts_with(['+', '-']) {
            // A zone by its offset.
        } else if let Ok(number) = word.parse::<u16>() {
            *(if number > 31 { &mut year } else { &mut day }) = Some(number);
        } else if word.len() > 5 || !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
    }
    let (hour, rest) = time?.split_once(':')?;
    let hour: u8 = hour.parse().ok()?;
    let hour = afternoon.map_or(hour, |afternoon| hour % 12 + if afternoon { 12 } else { 0 });
    civil(&format!("{:04}-{:02}-{:02} {hour:02}:{rest}", year?, month?, day?))
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn epoch(number: f64) -> Option<i64> {
    let per_ms = match number {
        n if n > 1e17 => 1e-6,
        n if n > 1e14 => 1e-3,
        n if n > 1e11 => 1.0,
        _ => 1e3,
    };
    let ms = (number * per_ms).round();
    // The year 9999, where calendars of most libraries end.
    (ms < 253_402_300_800_000.0).then_some(ms as i64)
}

fn civil(text: &str) -> Option<i64> {
    let datetime: DateTime = text.parse().ok()?;
    let ms = TimeZone::UTC.to_timestamp(datetime).ok()?.as_millisecond();
    (ms >= 0).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_name_the_same_instant() {
        let forms = [
            "1706704496.789",
            "1706704496789",
            "1706704496789000",
            "1706704496789000000",
            "2024-01-31T12:34:56.789Z",
            "2024-01-31T13:34:56.789+01:00",
            "2024/01/31 12:34:56.789",
            "\"2024-01-31 12:34:56.789\"",
        ];
        for form in forms {
            assert_eq!(instant(form, Comma::Thousands), Some(1_706_704_496_789), "{form}");
        }
        assert_eq!(instant("1706704496,789", Comma::Decimal), Some(1_706_704_496_789));
        for line in [
            "Wed Jan 31 12:34:56 2024",
            "Wed Jan 31 12:34:56 UTC 2024",
            "Wed 31 Jan 2024 12:34:56 PM CET",
            "Wed Jan 31 12:34:56 +03 2024",
        ] {
            assert_eq!(heading(line), Some(1_706_704_496_000), "{line}");
        }
        assert_eq!(heading("Thu Feb  1 12:00:00 AM UTC 2024"), Some(1_706_745_600_000));
    }

    #[test]
    fn other_text_is_no_instant() {
        for text in [
            "",
            "GPU-1",
            "2024/13/31 12:34:56",
            "12:34:56",
            "Wed Foo 31 12:34:56 2024",
            "failed Jan 31 12:34:56 2024",
        ] {
            assert_eq!(instant(text, Comma::Thousands), None, "{text}");
            assert_eq!(heading(text), None, "{text}");
        }
    }
}
