//! A stream of server-sent events, as far as ours go: lines of `data:`, comments, an empty line at the end of each.
//! (WHATWG HTML, "Server-sent events", 9.2.6.)

use std::collections::VecDeque;

/// Takes bytes as they come and gives the data of each event.
#[derive(Debug)]
pub(super) struct EventParser {
    /// The most bytes of one event.
    limit: usize,
    /// The line that is not yet at its end.
    line: Vec<u8>,
    /// The data of the event that is not yet at its end.
    data: Vec<u8>,
    ready: VecDeque<Vec<u8>>,
}

/// An event is longer than the limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream has more than {limit} bytes")]
pub(super) struct TooLong {
    limit: usize,
}

impl EventParser {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: Vec::new(), ready: VecDeque::new() }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            if self.line.len() + self.data.len() + piece.len() > self.limit {
                return Err(TooLong { limit: self.limit });
            }
            self.line.extend_from_slice(piece);
            if pieces.peek().is_some() {
                self.end_line();
            }
        }
        Ok(())
    }

    /// The data of the oldest event that has not been taken.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            if !self.data.is_empty() {
                self.ready.push_back(std::mem::take(&mut self.data));
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(parser: &mut EventParser) -> Vec<String> {
        std::iter::from_fn(|| parser.next()).map(|data| String::from_utf8(data).unwrap()).collect()
    }

    #[test]
    fn comments_and_other_fields_are_skipped_and_lines_are_joined() {
        let mut parser = EventParser::new(100);
        parser.push(b":\n\nid: 7\r\ndata: a\r\ndata:b\r\n\r\n: x\ndata: c\n\ndata: half").unwrap();
        assert_eq!(parsed(&mut parser), ["a\nb", "c"]);
    }

    #[test]
    fn an_event_without_end_is_refused_at_the_limit() {
        let mut parser = EventParser::new(10);
        assert_eq!(parser.push(b"data: 12345"), Err(TooLong { limit: 10 }));
        let mut parser = EventParser::new(10);
        let flood = (0..20).map(|_| parser.push(b"data:x\n")).find(Result::is_err);
        assert_eq!(flood, Some(Err(TooLong { limit: 10 })));
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_changes_nothing(
            events in prop::collection::vec("[a-z{}\":]{1,20}", 0..8),
            cuts in prop::collection::vec(1..9_usize, 1..20),
        ) {
            let text: String = events.iter().map(|event| format!("data: {event}\n\n:\n\n")).collect();
            let mut parser = EventParser::new(1_000);
            let mut rest = text.as_bytes();
            let mut cuts = cuts.iter().cycle();
            while let Some(cut) = cuts.next().filter(|_| !rest.is_empty()) {
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                parser.push(piece).unwrap();
                rest = tail;
            }
            prop_assert_eq!(parsed(&mut parser), events);
        }
    }
}
