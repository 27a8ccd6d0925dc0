//! Arrivals that really were (`engine/data/README.md` says whose, and under which licence).

use std::time::Duration;

use super::Arrival;

/// One of the Azure LLM inference traces of 2023.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// Conversations: 19,366 in an hour.
    Chat,
    /// Completions of code: 8,819 in an hour, with short answers.
    Code,
}

impl Trace {
    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Chat => include_bytes!("../../data/azure-chat.trace"),
            Self::Code => include_bytes!("../../data/azure-code.trace"),
        }
    }

    /// Its rows. The trace does not say who asked; requests are dealt out to eight clients in turn.
    #[must_use]
    pub fn arrivals(self) -> Vec<Arrival> {
        let mut numbers = Numbers(self.bytes());
        let mut at = Duration::ZERO;
        let mut rows = Vec::new();
        while let (Some(gap), Some(prompt), Some(answer)) = (numbers.next(), numbers.next(), numbers.next()) {
            at += Duration::from_millis(gap);
            let client = rows.len() as u64 % CLIENTS;
            rows.push(Arrival { at, prompt: prompt as usize, answer: answer as usize, client });
        }
        rows
    }
}

/// Enough for turns to matter, and few enough that each has several requests waiting under load.
const CLIENTS: u64 = 8;

/// Unsigned LEB128: seven bits a byte, the lowest first, the eighth set in all but the last.
struct Numbers<'a>(&'a [u8]);

impl Iterator for Numbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_hold_what_their_source_note_says() {
        for (trace, requests, span, prompts, answers, median) in [
            (Trace::Chat, 19_366, 3_501_722, 22_361_870, 4_088_665, (1_020, 129)),
            (Trace::Code, 8_819, 3_435_949, 18_059_974, 245_896, (1_469, 13)),
        ] {
            let rows = trace.arrivals();
            assert_eq!((rows.len(), rows.last().unwrap().at), (requests, Duration::from_millis(span)));
            let mut lengths: [Vec<usize>; 2] =
                [rows.iter().map(|row| row.prompt).collect(), rows.iter().map(|row| row.answer).collect()];
            assert_eq!(lengths.each_ref().map(|tokens| tokens.iter().sum::<usize>()), [prompts, answers]);
            let middle = |tokens: &mut Vec<usize>| {
                tokens.sort_unstable();
                (tokens[(tokens.len() - 1) / 2] + tokens[tokens.len() / 2]) / 2
            };
            assert_eq!((middle(&mut lengths[0]), middle(&mut lengths[1])), median);
        }
    }
}
