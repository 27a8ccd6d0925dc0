//! One run of the dashboard: events in, screens out.

use std::io::{self, IsTerminal};
use std::iter;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ebbtide_api::Client;
use ratatui::Terminal;
use ratatui::backend::Backend;

use crate::TuiError;
use crate::draw::{self, Look};
use crate::event::{Command, Event};
use crate::feed::Feed;
use crate::input::{Keyboard, Signals};
use crate::model::Model;
use crate::terminal::Taken;
use crate::update::update;

/// Events that may wait for the next screen: a burst of keys held down while a slow terminal draws.
const EVENT_QUEUE: usize = 64;

/// How soon a signal is noticed and silence shown when nothing else happens.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// Shows the dashboard until somebody leaves it.
///
/// Takes over the terminal of standard output, and SIGINT, SIGTERM and SIGHUP while it runs; all are given back on
/// return, on error and on panic.
///
/// # Errors
/// When standard output is no terminal, when the terminal fails, or when another thread has panicked.
pub(crate) fn run(client: Box<dyn Client>, look: &Look) -> Result<(), TuiError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TuiError::NoTerminal);
    }
    let (sender, inbox) = sync_channel(EVENT_QUEUE);
    let signals = Signals::listen().map_err(TuiError::Start)?;
    let taken = Taken::take().map_err(TuiError::Terminal)?;
    let mut screen = taken.screen().map_err(TuiError::Terminal)?;
    let mut session = Session::start(client, sender.clone(), inbox, look).map_err(TuiError::Start)?;
    let _keyboard = Keyboard::start(sender).map_err(TuiError::Start)?;
    let outcome = session.drive(&mut screen, || signals.raised() || taken.panicked());
    if taken.panicked() { Err(TuiError::Panicked) } else { outcome }
}

/// The state, and the ends of what goes in and out of it.
struct Session<'a> {
    model: Model,
    look: &'a Look,
    inbox: Receiver<Event>,
    feed: Feed,
}

/// Whether the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Wait,
    Draw,
    Leave,
}

impl<'a> Session<'a> {
    fn start(
        client: Box<dyn Client>,
        sender: SyncSender<Event>,
        inbox: Receiver<Event>,
        look: &'a Look,
    ) -> io::Result<Self> {
        Ok(Self { model: Model::default(), look, inbox, feed: Feed::start(client, sender)? })
    }

    /// Draws whenever something has changed, until a command or `ended` says to leave.
    fn drive<B: Backend<Error: Into<io::Error>>>(
        &mut self,
        screen: &mut Terminal<B>,
        ended: impl Fn() -> bool,
    ) -> Result<(), TuiError> {
        let start = Instant::now();
        self.draw(screen)?;
        while !ended() {
            let first = match self.inbox.recv_timeout(HEARTBEAT) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => Event::Tick,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match self.take_in(first, start.elapsed())? {
                Next::Wait => {}
                Next::Draw if ended() => {}
                Next::Draw => self.draw(screen)?,
                Next::Leave => return Ok(()),
            }
        }
        Ok(())
    }

    /// Applies `first` and all that waits behind it: they share one screen.
    fn take_in(&mut self, first: Event, now: Duration) -> Result<Next, TuiError> {
        let mut next = Next::Wait;
        for event in iter::once(first).chain(self.inbox.try_iter().take(EVENT_QUEUE)) {
            for command in update(&mut self.model, now, event) {
                match command {
                    Command::Draw => next = Next::Draw,
                    Command::Ask(query) => self.feed.ask(query),
                    Command::Quit => return Ok(Next::Leave),
                    Command::Abandon(why) => return Err(TuiError::Input(why)),
                }
            }
        }
        Ok(next)
    }

    fn draw<B: Backend<Error: Into<io::Error>>>(&self, screen: &mut Terminal<B>) -> Result<(), TuiError> {
        screen
            .draw(|frame| {
                let area = frame.area();
                draw::screen(frame.buffer_mut(), area, &self.model, self.look);
            })
            .map_err(|error| TuiError::Terminal(error.into()))?;
        Ok(())
    }
}
