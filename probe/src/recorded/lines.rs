//! Lines of a stranger's file: bounded in length and number, in UTF-8 or in the UTF-16 of a redirected PowerShell.

use std::io::{self, BufRead, Cursor, Read};

use super::limits::{MAX_FILE_BYTES, MAX_LINE_BYTES};

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With a line break.
    Whole,
    /// With the end of the file.
    Unterminated,
    /// Beyond the longest line: the rest was passed over.
    TooLong,
}

/// Reads line after line.
pub(super) struct Lines<'a> {
    reader: Box<dyn BufRead + 'a>,
    bytes: u64,
}

impl<'a> Lines<'a> {
    /// Looks at the first bytes for a byte order mark.
    pub(super) fn new(mut reader: impl BufRead + 'a) -> io::Result<Self> {
        match reader.fill_buf()? {
            [0xff, 0xfe, ..] => Self::utf16(reader, u16::from_le_bytes),
            [0xfe, 0xff, ..] => Self::utf16(reader, u16::from_be_bytes),
            _ => Ok(Self { reader: Box::new(reader), bytes: 0 }),
        }
    }

    fn utf16(reader: impl BufRead, unit: fn([u8; 2]) -> u16) -> io::Result<Self> {
        let mut raw = Vec::new();
        reader.take(MAX_FILE_BYTES + 1).read_to_end(&mut raw)?;
        let units = raw.chunks_exact(2).skip(1).map(|pair| unit([pair[0], pair[1]]));
        let text: String = char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')).collect();
        Ok(Self { reader: Box::new(Cursor::new(text)), bytes: 0 })
    }

    /// The next line in `line`, without its break; `None` at the end of the file.
    pub(super) fn next_into(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Ending>> {
        line.clear();
        let mut length = 0;
        loop {
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() {
                return Ok((length > 0).then(|| ending(length, Ending::Unterminated)));
            }
            let (taken, found) = match chunk.iter().position(|&byte| byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (chunk.len(), false),
            };
            let kept = chunk.len().min(taken - usize::from(found));
            let room = MAX_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&chunk[..kept.min(room)]);
            length += taken;
            self.bytes += taken as u64;
            self.reader.consume(taken);
            if found || self.beyond_limit() {
                return Ok(Some(ending(length, Ending::Whole)));
            }
        }
    }

    /// Whether more has been read than the largest file holds.
    pub(super) const fn beyond_limit(&self) -> bool {
        self.bytes > MAX_FILE_BYTES
    }
}

const fn ending(length: usize, otherwise: Ending) -> Ending {
    if length > MAX_LINE_BYTES { Ending::TooLong } else { otherwise }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<(String, Ending)> {
        let mut lines = Lines::new(Cursor::new(bytes)).unwrap();
        let (mut line, mut out) = (Vec::new(), Vec::new());
        while let Some(end) = lines.next_into(&mut line).unwrap() {
            out.push((String::from_utf8_lossy(&line).into_owned(), end));
        }
        out
    }

    #[test]
    fn a_file_without_a_last_break_says_so() {
        let expected = [("a".to_owned(), Ending::Whole), ("b".to_owned(), Ending::Unterminated)];
        assert_eq!(all(b"a\nb"), expected);
        assert_eq!(all(b""), []);
    }

    #[test]
    fn a_long_line_is_passed_over_and_the_next_is_read() {
        let mut bytes = vec![b'x'; MAX_LINE_BYTES + 10];
        bytes.extend_from_slice(b"\nnext\n");
        let lines = all(&bytes);
        assert_eq!(lines[0].1, Ending::TooLong);
        assert_eq!(lines[1], ("next".to_owned(), Ending::Whole));
    }

    #[test]
    fn utf16_of_both_orders_is_read() {
        let text = "used\n12\n";
        for (mark, order) in
            [([0xff, 0xfe], u16::to_le_bytes as fn(u16) -> [u8; 2]), ([0xfe, 0xff], u16::to_be_bytes)]
        {
            let mut bytes = mark.to_vec();
            bytes.extend(text.encode_utf16().flat_map(order));
            assert_eq!(all(&bytes)[1].0, "12");
        }
    }
}
