//! What reaches the dashboard, and what it asks for in return.

use crossterm::event::KeyEvent;
use ebbtide_api::wire::{History, HistoryQuery, Status};

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resize,
    /// The daemon published a status.
    Status(Box<Status>),
    /// An answer to [`Command::Ask`].
    History {
        /// What was asked.
        query: HistoryQuery,
        /// The answer, or in words why there is none.
        answer: Result<History, String>,
    },
    /// The daemon cannot be reached, in words; it is tried again.
    Disconnected(String),
    /// Keys can no longer be read, in words.
    InputLost(String),
    /// Time has passed.
    Tick,
}

/// What has to be done after an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Draw: what is shown has changed.
    Draw,
    /// Ask the daemon for part of its history. A question that is not answered yet is overtaken.
    Ask(HistoryQuery),
    /// Leave.
    Quit,
    /// Leave: keys can no longer be read, so nobody could.
    Abandon(String),
}
