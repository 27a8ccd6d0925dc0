//! A load that somebody wrote down.

use std::time::Duration;

use super::Arrival;

/// A line that is no arrival.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It says something else.
    #[error(
        "line {line} of the load script is no arrival; write seconds, prompt tokens, answer tokens and optionally a client: `1.5 200 50 3`"
    )]
    Line {
        /// Which, from 1.
        line: usize,
    },
    /// It is earlier than the line before.
    #[error("line {line} of the load script is earlier than the line before; put the lines in order")]
    Order {
        /// Which, from 1.
        line: usize,
    },
    /// There are none.
    #[error("the load script has no arrivals")]
    Empty,
}

/// The arrivals in `text`.
pub(super) fn read(text: &str) -> Result<Vec<Arrival>, ScriptError> {
    let mut rows: Vec<Arrival> = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        if content.trim().is_empty() {
            continue;
        }
        let row = arrival(content).ok_or(ScriptError::Line { line })?;
        if rows.last().is_some_and(|last| last.at > row.at) {
            return Err(ScriptError::Order { line });
        }
        rows.push(row);
    }
    if rows.is_empty() { Err(ScriptError::Empty) } else { Ok(rows) }
}

fn arrival(text: &str) -> Option<Arrival> {
    let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let at = Duration::try_from_secs_f64(words.next()?.parse().ok()?).ok()?;
    let (prompt, answer) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let client = words.next().map_or(Some(0), |word| word.parse().ok())?;
    words.next().is_none().then_some(Arrival { at, prompt, answer, client })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_arrival_is_named() {
        for (text, line) in
            [("0 1", 1), ("0 1 1\n\n-1 1 1", 3), ("0 1 1 1 1", 1), ("x 1 1", 1), ("inf 1 1", 1)]
        {
            assert_eq!(read(text), Err(ScriptError::Line { line }), "{text}");
        }
        assert_eq!(read("2 1 1\n1 1 1"), Err(ScriptError::Order { line: 2 }));
        assert_eq!(read("# nothing\n"), Err(ScriptError::Empty));
    }
}
