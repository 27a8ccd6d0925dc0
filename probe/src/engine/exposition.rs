//! The Prometheus text format, and as much of OpenMetrics as engines send, read in place.
//!
//! The reader walks over a whole body and yields each series as slices of it; nothing is copied. Comments are passed
//! over: `# TYPE` names a counter with or without `_total` depending on the dialect, and `# HELP` may be missing
//! altogether, so neither is relied upon. A body with one line that makes no sense is refused from there on, as
//! Prometheus does: what comes after a torn line cannot be told from what belongs to it.

use std::borrow::Cow;

/// The longest label value; the longest real one known is a chat template's name, a few hundred bytes.
pub const MAX_LABEL_BYTES: usize = 16 << 10;
/// Labels of one series: vLLM 0.33 dumps its cache configuration as 37 of them.
pub const MAX_LABELS: usize = 256;
/// Series of one page: an engine exports a few thousand, and a page of 8 MiB holds no more of any useful length.
pub const MAX_SERIES: usize = 250_000;

/// A body that is being read; yields its series in order, and after a fault nothing more.
#[derive(Debug, Clone)]
pub struct Exposition<'a> {
    rest: &'a [u8],
    line: usize,
    series: usize,
}

/// One series with its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series<'a> {
    /// The name of the metric.
    pub name: &'a str,
    /// Its value; NaN and infinities are what was sent.
    pub value: f64,
    labels: &'a str,
}

/// Where a body stopped making sense, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the metrics: {kind}")]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// No metric name where one must stand.
    #[error("no metric name")]
    Name,
    /// The block of labels is malformed or does not end.
    #[error("labels that do not end or are malformed")]
    Labels,
    /// A label value is longer than [`MAX_LABEL_BYTES`].
    #[error("a label value of more than {MAX_LABEL_BYTES} bytes")]
    LabelLength,
    /// More labels than [`MAX_LABELS`].
    #[error("more than {MAX_LABELS} labels")]
    LabelCount,
    /// The value or the timestamp is no number.
    #[error("a value that is no number")]
    Number,
    /// The value is finite and too large for a double (`1e400`).
    #[error("a value out of range")]
    Range,
    /// Something follows the value that is neither a timestamp nor an exemplar.
    #[error("text after the value")]
    Trailing,
    /// The line is not UTF-8.
    #[error("bytes that are not UTF-8")]
    Encoding,
    /// More series than [`MAX_SERIES`].
    #[error("more than {MAX_SERIES} series")]
    SeriesCount,
}

impl<'a> Exposition<'a> {
    /// Reads `body`, which the caller has capped.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { rest: body, line: 0, series: 0 }
    }

    fn next_line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.line += 1;
        let end = self.rest.iter().position(|&b| b == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        self.rest = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn fault(&mut self, kind: FaultKind) -> Fault {
        self.rest = &[];
        Fault { line: self.line, kind }
    }
}

impl<'a> Iterator for Exposition<'a> {
    type Item = Result<Series<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = skip_blanks(self.next_line()?);
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            self.series += 1;
            let read = if self.series > MAX_SERIES { Err(FaultKind::SeriesCount) } else { series(line) };
            return Some(read.map_err(|kind| self.fault(kind)));
        }
    }
}

/// Whether `body` ends in the middle of a line, so that its last value may have lost digits.
#[must_use]
pub fn ends_open(body: &[u8]) -> bool {
    body.last().is_some_and(|&b| b != b'\n')
}

/// `name{labels} value [timestamp] [# exemplar]`; `line` starts with no blank and is not empty.
fn series(line: &[u8]) -> Result<Series<'_>, FaultKind> {
    let (name, rest) = line.split_at(word_len(line, is_name_byte));
    let rest = skip_blanks(rest);
    let (labels, rest) = match rest.strip_prefix(b"{") {
        Some(block) => block.split_at(labels_len(block)?),
        None => (&rest[..0], rest),
    };
    let rest = skip_blanks(rest.strip_prefix(b"}").unwrap_or(rest));
    let (value, rest) = rest.split_at(word_len(rest, |b| !is_blank(b)));
    check_tail(skip_blanks(rest))?;
    let labels = text(labels)?;
    let name = if name.is_empty() { quoted_name(labels)? } else { text(name)? };
    if name.as_bytes()[0].is_ascii_digit() {
        return Err(FaultKind::Name);
    }
    Ok(Series { name, value: number(value)?, labels })
}

/// The name within the braces (`{"my.metric",a="b"}`), as Prometheus 3 writes names that are no identifiers.
fn quoted_name(labels: &str) -> Result<&str, FaultKind> {
    let inner = labels.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let plain = |name: &&str| !name.is_empty() && !name.contains('\\');
    inner.map(|(name, _)| name).filter(plain).ok_or(FaultKind::Name)
}

/// The length of a block of labels up to its closing brace.
fn labels_len(block: &[u8]) -> Result<usize, FaultKind> {
    let mut rest = block;
    for _ in 0..=MAX_LABELS {
        rest = skip_blanks(rest);
        if rest.first() == Some(&b'}') {
            return Ok(block.len() - rest.len());
        }
        rest = skip_blanks(after_label(rest)?);
        match rest.split_first() {
            Some((b',', after)) => rest = after,
            Some((b'}', _)) => return Ok(block.len() - rest.len()),
            _ => return Err(FaultKind::Labels),
        }
    }
    Err(FaultKind::LabelCount)
}

/// What follows one `name="value"`, one `"name"="value"`, or one bare `"name"`.
fn after_label(label: &[u8]) -> Result<&[u8], FaultKind> {
    let after_name = match label.strip_prefix(b"\"") {
        Some(quoted) => &quoted[quoted_len(quoted)? + 1..],
        None => &label[word_len(label, is_name_byte)..],
    };
    let named = after_name.len() < label.len();
    let rest = skip_blanks(after_name);
    match rest.strip_prefix(b"=") {
        Some(value) if named => {
            let quoted = skip_blanks(value).strip_prefix(b"\"").ok_or(FaultKind::Labels)?;
            Ok(&quoted[quoted_len(quoted)? + 1..])
        }
        None if label.first() == Some(&b'"') => Ok(rest),
        _ => Err(FaultKind::Labels),
    }
}

/// The length of a quoted text up to its closing quote, escapes as they stand.
fn quoted_len(quoted: &[u8]) -> Result<usize, FaultKind> {
    let mut at = 0;
    loop {
        let step = quoted[at..].iter().position(|&b| b == b'"' || b == b'\\').ok_or(FaultKind::Labels)?;
        at += step;
        if at > MAX_LABEL_BYTES {
            return Err(FaultKind::LabelLength);
        }
        if quoted[at] == b'"' {
            return Ok(at);
        }
        at = (at + 2).min(quoted.len());
    }
}

/// After the value: nothing, a timestamp, an exemplar (`# {...} 1`), or both.
fn check_tail(tail: &[u8]) -> Result<(), FaultKind> {
    if tail.is_empty() || tail[0] == b'#' {
        return Ok(());
    }
    let (timestamp, rest) = tail.split_at(word_len(tail, |b| !is_blank(b)));
    let rest = skip_blanks(rest);
    if !rest.is_empty() && rest[0] != b'#' {
        return Err(FaultKind::Trailing);
    }
    number(timestamp).map(drop)
}

fn number(word: &[u8]) -> Result<f64, FaultKind> {
    let value: f64 = text(word)?.parse().map_err(|_| FaultKind::Number)?;
    if value.is_infinite() && word.iter().any(u8::is_ascii_digit) {
        return Err(FaultKind::Range);
    }
    Ok(value)
}

fn text(bytes: &[u8]) -> Result<&str, FaultKind> {
    std::str::from_utf8(bytes).map_err(|_| FaultKind::Encoding)
}

fn word_len(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&b| !belongs(b)).unwrap_or(bytes.len())
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    &bytes[word_len(bytes, is_blank)..]
}

const fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

impl<'a> Series<'a> {
    /// Its labels in the order sent.
    #[must_use]
    pub const fn labels(&self) -> Labels<'a> {
        Labels { rest: self.labels }
    }

    /// The value of label `name`; `None` where it has none.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.labels().find(|(label, _)| *label == name).map(|(_, value)| value)
    }
}

/// Names and values of labels.
#[derive(Debug, Clone)]
pub struct Labels<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a str, Cow<'a, str>);

    /// The block was checked when its line was read, so that what does not fit here is a quoted metric name.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let label = self.rest.trim_start_matches([' ', '\t', ',']);
            let after = after_label(label.as_bytes()).ok()?;
            let (label, rest) = label.split_at(label.len() - after.len());
            self.rest = rest;
            let name_len = match label.strip_prefix('"') {
                Some(quoted) => quoted_len(quoted.as_bytes()).ok()? + 2,
                None => word_len(label.as_bytes(), is_name_byte),
            };
            let (name, value) = label.split_at(name_len);
            let value = value.trim_start_matches([' ', '\t', '=']).strip_prefix('"');
            if let Some(value) = value {
                let value = &value[..quoted_len(value.as_bytes()).ok()?];
                return Some((name.trim_matches('"'), unescaped(value)));
            }
        }
    }
}

/// `\n`, `\"` and `\\` as what they mean; another escape stays as it is.
fn unescaped(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some(escaped @ ('"' | '\\')) => out.push(escaped),
            other => {
                out.push('\\');
                out.extend(other);
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Result<Series<'_>, FaultKind> {
        Exposition::new(line.as_bytes()).next().unwrap().map_err(|fault| fault.kind)
    }

    fn value(line: &str) -> Result<f64, FaultKind> {
        one(line).map(|series| series.value)
    }

    #[test]
    fn names_labels_and_values_are_found_however_they_are_spaced() {
        let text = "# HELP a b\n\n  up 1\na:b{x=\"1\"} 2.5\nc { x = \"1\" , y=\"{,}\" , } 7.3501e+10 1700000000000\r\nd{} -1\n";
        let all: Vec<_> = Exposition::new(text.as_bytes()).map(Result::unwrap).collect();
        let names: Vec<_> = all.iter().map(|s| (s.name, s.value)).collect();
        assert_eq!(names, [("up", 1.0), ("a:b", 2.5), ("c", 7.3501e10), ("d", -1.0)]);
        assert_eq!(all[2].label("y").as_deref(), Some("{,}"));
        assert_eq!(all[2].label("z"), None);
        assert_eq!(all[0].labels().count() + all[3].labels().count(), 0);
    }

    #[test]
    fn values_that_are_no_finite_numbers_are_told_apart() {
        assert!(value("a NaN").unwrap().is_nan());
        assert_eq!(value("a +Inf"), Ok(f64::INFINITY));
        assert_eq!(value("a -Inf"), Ok(f64::NEG_INFINITY));
        assert_eq!(value("a 1e400"), Err(FaultKind::Range));
        assert_eq!(value("a -1e400 5"), Err(FaultKind::Range));
        for bad in ["a", "a ", "a x", "a 1,5", "a 0x10", "a{} ", "a 1 x"] {
            assert_eq!(value(bad), Err(FaultKind::Number), "{bad}");
        }
        assert_eq!(value("a 1 2 3"), Err(FaultKind::Trailing));
    }

    #[test]
    fn quotes_braces_and_escapes_stay_within_their_label() {
        let series = one(r#"a{x="q\"},\\n\n\t",y="é"} 1"#).unwrap();
        let labels: Vec<_> = series.labels().collect();
        assert_eq!(labels, [("x", "q\"},\\n\n\\t".into()), ("y", "é".into())]);
    }

    #[test]
    fn open_metrics_dialect_is_understood() {
        let text = "# TYPE a counter\na_total{x=\"1\"} 3 1700000000.123 # {trace_id=\"t\"} 1 1.5\nb 1 # {} 2\n{\"my.name\",\"x.y\"=\"v\"} 4\n# EOF\n";
        let all: Vec<_> = Exposition::new(text.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(
            all.iter().map(|s| (s.name, s.value)).collect::<Vec<_>>(),
            [("a_total", 3.0), ("b", 1.0), ("my.name", 4.0)]
        );
        assert_eq!(all[2].label("x.y").as_deref(), Some("v"));
    }

    #[test]
    fn a_torn_or_hostile_line_ends_the_reading_with_its_number() {
        for (bad, kind) in [
            ("a{x=\"1", FaultKind::Labels),
            ("a{x=\"1\"", FaultKind::Labels),
            ("a{x} 1", FaultKind::Labels),
            ("a{=\"1\"} 1", FaultKind::Labels),
            ("{} 1", FaultKind::Name),
            ("1a 1", FaultKind::Name),
            ("<html>", FaultKind::Name),
        ] {
            assert_eq!(one(bad).map(|s| s.name), Err(kind), "{bad}");
        }
        let long = format!("ok 1\na{{x=\"{}\"}} 1\nb 2\n", "y".repeat(1 << 20));
        let read: Vec<_> = Exposition::new(long.as_bytes()).collect();
        assert_eq!(read[1], Err(Fault { line: 2, kind: FaultKind::LabelLength }));
        assert_eq!(read.len(), 2, "nothing is read after a fault");
        let many = format!("a{{{}}} 1", "x=\"1\",".repeat(MAX_LABELS + 1));
        assert_eq!(value(&many), Err(FaultKind::LabelCount));
        let series = "a 1\n".repeat(MAX_SERIES + 1);
        let last = Exposition::new(series.as_bytes()).last().unwrap();
        assert_eq!(last, Err(Fault { line: MAX_SERIES + 1, kind: FaultKind::SeriesCount }));
        assert_eq!(
            Exposition::new(b"a{x=\"\xff\"} 1").next().unwrap().unwrap_err().kind,
            FaultKind::Encoding
        );
        assert!(ends_open(b"a 1") && !ends_open(b"a 1\n") && !ends_open(b""));
    }

    fn escaped(value: &str) -> String {
        value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(
            series in proptest::collection::vec(
                ("[a-zA-Z_:][a-zA-Z0-9_:]{0,20}",
                 proptest::collection::vec(("[a-zA-Z_][a-zA-Z0-9_]{0,9}", "(?s).{0,20}"), 0..4),
                 proptest::num::f64::NORMAL | proptest::num::f64::ZERO),
                0..8),
        ) {
            let line = |(name, labels, value): &(String, Vec<(String, String)>, f64)| {
                let labels: Vec<_> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escaped(v))).collect();
                format!("{name}{{{}}} {value:e}\n", labels.join(","))
            };
            let text: String = series.iter().map(line).collect();
            let read: Vec<_> = Exposition::new(text.as_bytes())
                .map(|s| {
                    let s = s.unwrap();
                    let labels = s.labels().map(|(k, v)| (k.to_owned(), v.into_owned())).collect();
                    (s.name.to_owned(), labels, s.value)
                })
                .collect();
            prop_assert_eq!(read, series);
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            Exposition::new(&body).flatten().for_each(|series| assert!(series.labels().count() <= MAX_LABELS));
        }

        /// Bytes that look like the format reach deeper than arbitrary ones.
        #[test]
        fn near_misses_are_read_or_refused(body in "([a-c]|[{}\",=\\\\# \n\t]|1|e|\\.|NaN|é){0,60}") {
            for cut in 0..body.len() {
                Exposition::new(&body.as_bytes()[..cut]).flatten().for_each(|s| assert!(s.labels().count() <= MAX_LABELS));
            }
        }
    }
}
