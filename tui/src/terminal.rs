//! The terminal: taken, drawn to, and given back on every way out.

use std::io::{self, BufWriter, Stdout, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::backend::CrosstermBackend;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// Room for the bytes of a whole screen: one write a frame, so that no terminal shows half of one.
const FRAME_BYTES: usize = 64 * 1024;

/// Switches to a screen of its own; what was there before stays as it is.
pub(crate) fn enter(out: &mut impl Write) -> io::Result<()> {
    execute!(out, EnterAlternateScreen, Hide)
}

/// Switches back.
pub(crate) fn leave(out: &mut impl Write) -> io::Result<()> {
    execute!(out, LeaveAlternateScreen, Show)
}

/// The terminal while the dashboard has it. Dropping it gives it back.
pub(crate) struct Taken {
    panicked: Arc<AtomicBool>,
    previous: Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>,
}

impl Taken {
    /// Takes the terminal: raw mode, a screen of its own, and a panic hook that gives it back before anything is
    /// printed.
    pub(crate) fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        if let Err(error) = enter(&mut io::stdout()) {
            restore();
            return Err(error);
        }
        let panicked = Arc::new(AtomicBool::new(false));
        let previous: Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = Arc::from(panic::take_hook());
        let (flag, next) = (Arc::clone(&panicked), Arc::clone(&previous));
        panic::set_hook(Box::new(move |info| {
            flag.store(true, Ordering::Relaxed);
            restore();
            next(info);
        }));
        Ok(Self { panicked, previous })
    }

    /// A screen to draw to. Full screen, because an inline one begins by asking the terminal where its cursor is.
    pub(crate) fn screen(&self) -> io::Result<Terminal<CrosstermBackend<BufWriter<Stdout>>>> {
        let out = BufWriter::with_capacity(FRAME_BYTES, io::stdout());
        Terminal::with_options(CrosstermBackend::new(out), TerminalOptions { viewport: Viewport::Fullscreen })
    }

    /// Whether any thread has panicked, and with it the terminal been given back.
    pub(crate) fn panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // A hook cannot be changed by a panicking thread; the process is then on its way out with ours.
        if !std::thread::panicking() {
            let previous = Arc::clone(&self.previous);
            panic::set_hook(Box::new(move |info| previous(info)));
        }
        restore();
    }
}

/// Gives the terminal back as far as it still takes it: there is nobody left to tell of an error.
fn restore() {
    let _left = leave(&mut io::stdout());
    let _cooked = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{self, Look};
    use crate::event::Event;
    use crate::model::Model;
    use crate::update::update;
    use crate::{text_of, world};
    use jiff::tz::TimeZone;
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;
    use std::num::NonZero;
    use std::time::Duration;

    const AREA: Rect = Rect::new(0, 0, 100, 30);

    /// All that the terminal is sent in a run of three screens, and the last of them.
    fn session() -> (Vec<u8>, Buffer) {
        let mut sent = Vec::new();
        enter(&mut sent).unwrap();
        let look = Look { ascii: false, colour: true, zone: TimeZone::UTC };
        let options = TerminalOptions { viewport: Viewport::Fixed(AREA) };
        let mut screen = Terminal::with_options(CrosstermBackend::new(&mut sent), options).unwrap();
        let mut model = Model::default();
        let mut last = Buffer::empty(AREA);
        for second in 0..3 {
            let status = Box::new(world::leaking(second * 40));
            let _commands = update(&mut model, Duration::ZERO, Event::Status(status));
            let frame = screen.draw(|f| draw::screen(f.buffer_mut(), AREA, &model, &look)).unwrap();
            last = frame.buffer.clone();
        }
        drop(screen);
        (sent, last)
    }

    /// The final byte and the parameters of each control sequence, and the text of each operating system command.
    fn sequences(bytes: &[u8]) -> Vec<(char, String)> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut found = Vec::new();
        for part in text.split('\u{1b}').skip(1) {
            let mut rest = part.chars();
            match rest.next() {
                Some('[') => {
                    let parameters: String = rest.by_ref().take_while(|c| !('@'..='~').contains(c)).collect();
                    let end = part.chars().nth(1 + parameters.chars().count()).unwrap();
                    found.push((end, parameters));
                }
                Some(kind) => found.push((kind, rest.collect())),
                None => {}
            }
        }
        found
    }

    #[test]
    fn the_terminal_is_never_asked_anything() {
        let (sent, _) = session();
        let found = sequences(&sent);
        assert!(found.len() > 100);
        for (end, parameters) in &found {
            // Positions (n), attributes (c), window reports (t), keyboard (u) and mode queries (p), device control
            // strings (P) and operating system commands (]) are how a terminal is asked.
            let harmless = matches!(end, 'H' | 'm' | 'J' | 'K' | 'h' | 'l');
            assert!(harmless, "asks or sets something else: ESC [ {parameters} {end}");
        }
    }

    #[test]
    fn a_terminal_shows_what_was_drawn_and_gets_its_own_screen_back() {
        let (mut sent, last) = session();
        let mut parser =
            vt100::Parser::new(NonZero::new(AREA.height).unwrap(), NonZero::new(AREA.width).unwrap(), 0);
        parser.process(b"$ ebbtide top");
        parser.process(&sent);
        assert!(parser.screen().alternate_screen());
        let shown: Vec<String> =
            parser.screen().rows(0, AREA.width).map(|r| r.trim_end().to_owned()).collect();
        assert_eq!(shown.join("\n"), text_of(&last).trim_end_matches('\n'));
        sent.clear();
        leave(&mut sent).unwrap();
        parser.process(&sent);
        assert!(!parser.screen().alternate_screen() && !parser.screen().hide_cursor());
        assert_eq!(parser.screen().contents(), "$ ebbtide top");
    }
}
