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
