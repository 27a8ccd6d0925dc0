//! Amounts as tools and locales print them.

use ebbtide_core::units::MIB;
use ebbtide_core::{Absent, Reading};

/// What a bare number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Kib,
    Mib,
    Gib,
    /// Requests, percent: as it stands.
    One,
}

impl Unit {
    const fn factor(self) -> f64 {
        match self {
            Self::Bytes | Self::One => 1.0,
            Self::Kib => 1024.0,
            Self::Mib => MIB as f64,
            Self::Gib => (1024 * MIB) as f64,
        }
    }

    /// The unit of that name. `MB` is read as MiB: that is what old drivers called it.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "b" | "byte" | "bytes" => Some(Self::Bytes),
            "k" | "kb" | "kib" => Some(Self::Kib),
            "m" | "mb" | "mib" => Some(Self::Mib),
            "g" | "gb" | "gib" => Some(Self::Gib),
            "%" => Some(Self::One),
            _ => None,
        }
    }
}

/// How a file writes fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comma {
    /// `12,5` is twelve and a half: files whose separator is a semicolon.
    Decimal,
    /// `1,234` is one thousand and more.
    Thousands,
}

/// The amount in a cell, in bytes or as it stands; `None` where the cell holds neither an amount nor a word for
/// "none". A unit in the cell outranks `unit`.
pub(super) fn amount(cell: &str, unit: Unit, comma: Comma) -> Option<Reading<u64>> {
    let cell = trim(cell);
    if let Some(why) = absence(cell) {
        return Some(Err(why));
    }
    let split = cell.find(|c: char| c.is_alphabetic() || c == '%').unwrap_or(cell.len());
    let (digits, suffix) = if is_scientific(cell) { (cell, "") } else { cell.split_at(split) };
    let unit = if suffix.is_empty() { unit } else { Unit::named(suffix.trim())? };
    let value = decimal(digits, comma)? * unit.factor();
    (value < (1_u64 << 60) as f64).then_some(Ok(value.round() as u64))
}

/// The number in `text`, zero or more, with any locale's grouping; `None` for anything else.
pub(super) fn decimal(text: &str, comma: Comma) -> Option<f64> {
    let plain: String = trim(text).chars().filter(|&c| !is_grouping(c)).collect();
    let normal = match (plain.matches(',').count(), plain.matches('.').count()) {
        (0, 0 | 1) => plain,
        (0, _) => plain.replace('.', ""),
        (1, 0) if comma == Comma::Decimal || !is_thousands(&plain) => plain.replace(',', "."),
        (_, 0) => plain.replace(',', ""),
        _ if plain.rfind(',') > plain.rfind('.') => plain.replace('.', "").replace(',', "."),
        _ => plain.replace(',', ""),
    };
    let starts_as_number = normal.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let value: f64 = starts_as_number.then(|| normal.parse().ok())??;
    value.is_finite().then_some(value)
}

/// Why a cell is empty, where it is: the words of nvidia-smi and of spreadsheets.
fn absence(cell: &str) -> Option<Absent> {
    let word = cell.trim_matches(['[', ']']).to_ascii_lowercase();
    match word.as_str() {
        "" => Some(Absent::NotYet),
        "n/a" | "not supported" | "not found" | "-" | "na" | "nan" | "null" | "none" => {
            Some(Absent::NotSupported)
        }
        "insufficient permissions" | "no permission" => Some(Absent::NoPermission),
        "gpu is lost" | "gpu requires reset" => Some(Absent::DeviceLost),
        "unknown error" | "err!" | "unknown" => Some(Absent::NotYet),
        _ => None,
    }
}

/// `text` without the white space, quotes and byte order marks around it; `trim` of the standard library keeps the
/// latter.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '"' | '\0'))
}

/// Blanks of all widths and the Swiss apostrophes.
fn is_grouping(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\'' | '\u{2019}' | '_')
}

/// `1,234`: one to three digits, a comma, three digits.
fn is_thousands(text: &str) -> bool {
    text.split_once(',').is_some_and(|(head, tail)| (1..=3).contains(&head.len()) && tail.len() == 3)
}

fn is_scientific(cell: &str) -> bool {
    cell.contains(['e', 'E']) && cell.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_locale_says_the_same_amount() {
        let cases = [
            ("1234 MiB", Comma::Thousands),
            (" 1 234 MiB ", Comma::Thousands),
            ("1\u{a0}234\u{202f}MiB", Comma::Thousands),
            ("1'234", Comma::Decimal),
            ("1.234,0", Comma::Decimal),
            ("1,234", Comma::Thousands),
            ("1,234.0", Comma::Thousands),
            ("1234,0 MiB", Comma::Decimal),
            ("1.234e3", Comma::Thousands),
            ("1293942784 B", Comma::Thousands),
        ];
        for (text, comma) in cases {
            assert_eq!(amount(text, Unit::Mib, comma), Some(Ok(1234 * MIB)), "{text}");
        }
        assert_eq!(amount("0,5 GiB", Unit::Mib, Comma::Decimal), Some(Ok(512 * MIB)));
        assert_eq!(amount("17 %", Unit::One, Comma::Thousands), Some(Ok(17)));
    }

    #[test]
    fn words_for_none_are_absent_and_nonsense_is_nothing() {
        assert_eq!(amount("[N/A]", Unit::Mib, Comma::Thousands), Some(Err(Absent::NotSupported)));
        assert_eq!(amount("[Not Supported]", Unit::Mib, Comma::Thousands), Some(Err(Absent::NotSupported)));
        assert_eq!(amount("", Unit::Mib, Comma::Thousands), Some(Err(Absent::NotYet)));
        for nonsense in ["-5", "inf", "12 apples", "1.2.x", "99999999999999999999 GiB"] {
            assert_eq!(amount(nonsense, Unit::Mib, Comma::Thousands), None, "{nonsense}");
        }
    }
}
