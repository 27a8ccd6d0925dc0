//! `ebbtide top`: the terminal dashboard.
//!
//! State ([`model`]) changes in one place ([`update`]), keys are data ([`keymap`]), and views ([`draw`]) only read.
//! The terminal is never asked anything: no cursor position, no colours, no keyboard protocol, so that the
//! dashboard starts at once over slow links and in terminals that answer nothing.

use std::io;
use std::time::Duration;

use ebbtide_api::Client;
use ebbtide_api::wire::Status;
use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

pub mod draw;
pub mod event;
mod feed;
mod input;
pub mod keymap;
pub mod model;
pub mod replay;
pub mod row;
mod session;
mod terminal;
pub mod trace;
pub mod update;
#[cfg(test)]
mod world;

pub use replay::Replay;

/// How the dashboard looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct TopOptions {
    /// Only ASCII characters, for fonts and terminals that have no others.
    pub ascii: bool,
    /// No colours. What they say is said in words or glyphs as well.
    pub plain: bool,
    /// What the chart covers at first, in milliseconds; the next longer of [`trace::SPANS_MS`] is taken, and 15 minutes
    /// where none is given.
    pub span_ms: Option<i64>,
}

impl TopOptions {
    /// The options of a user with this environment: `NO_COLOR`, where it is set and not empty, takes colours away
    /// (<https://no-color.org>).
    #[must_use]
    pub fn from_environment(ascii: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { ascii, plain, span_ms: None }
    }

    fn look(self, zone: TimeZone) -> draw::Look {
        draw::Look { ascii: self.ascii, colour: !self.plain, zone }
    }
}

/// Why the dashboard cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// There is no terminal.
    #[error("the dashboard needs a terminal for input and output: use `ebbtide status` in scripts and pipes")]
    NoTerminal,
    /// The terminal does not do what it is told.
    #[error("the terminal cannot be drawn to")]
    Terminal(#[source] io::Error),
    /// A thread or a signal handler could not be set up.
    #[error("the dashboard cannot start")]
    Start(#[source] io::Error),
    /// Keys can no longer be read.
    #[error("keys can no longer be read: {0}")]
    Input(String),
    /// Another part of the program has panicked; its message stands above.
    #[error("a part of the program has failed, see the message above: please report it")]
    Panicked,
}

/// Shows the dashboard until somebody leaves it; times of day are those of the system's zone.
///
/// Takes over the terminal, and SIGINT, SIGTERM and SIGHUP while it runs; all are given back on return, on error
/// and on panic. The client is used on threads of its own, so a slow daemon never holds up a key.
///
/// # Errors
/// When there is no terminal, when it fails, or when another thread has panicked.
pub fn run(client: Box<dyn Client>, options: TopOptions) -> Result<(), TuiError> {
    let model = options.span_ms.map_or_else(model::Model::default, model::Model::covering);
    session::run(client, model, &options.look(TimeZone::system()))
}

/// One screen of `width` by `height` as text without colours. The last of `statuses` is shown; those before it
/// give the chart its past. Times of day are in `zone`.
#[must_use]
pub fn screen_text(statuses: &[Status], (width, height): (u16, u16), zone: TimeZone) -> String {
    let mut model = model::Model::default();
    for status in statuses {
        // Nobody can answer questions about the stored past here: the trace is what the statuses make of it.
        let _commands =
            update::update(&mut model, Duration::ZERO, event::Event::Status(Box::new(status.clone())));
    }
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    draw::screen(&mut buf, area, &model, &TopOptions { plain: true, ..TopOptions::default() }.look(zone));
    text_of(&buf)
}

/// The characters of a screen, line by line, without spaces at the ends of lines.
#[must_use]
pub fn text_of(buf: &Buffer) -> String {
    let width = usize::from(buf.area.width.max(1));
    let mut text = String::new();
    for row in buf.content.chunks(width) {
        let mut line = String::new();
        let mut covered = 0;
        for cell in row {
            // The cell after a wide character belongs to it.
            if covered > 0 {
                covered -= 1;
                continue;
            }
            line.push_str(cell.symbol());
            covered = cell.symbol().width().saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
