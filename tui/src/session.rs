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
pub(crate) fn run(client: Box<dyn Client>, model: Model, look: &Look) -> Result<(), TuiError> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TuiError::NoTerminal);
    }
    let (sender, inbox) = sync_channel(EVENT_QUEUE);
    let signals = Signals::listen().map_err(TuiError::Start)?;
    let taken = Taken::take().map_err(TuiError::Terminal)?;
    let mut screen = taken.screen().map_err(TuiError::Terminal)?;
    let mut session =
        Session::start(client, sender.clone(), inbox, (model, look)).map_err(TuiError::Start)?;
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
        view: (Model, &'a Look),
    ) -> io::Result<Self> {
        let (model, look) = view;
        Ok(Self { model, look, inbox, feed: Feed::start(client, sender)? })
    }

    /// Draws whenever something has changed, until a command or `ended` says to leave.
    fn drive<B: Backend<Error = io::Error>>(
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

    fn draw<B: Backend<Error = io::Error>>(&self, screen: &mut Terminal<B>) -> Result<(), TuiError> {
        screen
            .draw(|frame| {
                let area = frame.area();
                draw::screen(frame.buffer_mut(), area, &self.model, self.look);
            })
            .map_err(TuiError::Terminal)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Link;
    use crate::trace::Past;
    use crate::{Replay, world};
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use ebbtide_api::wire::{History, HistoryQuery, Status};
    use ebbtide_api::{ClientError, StatusStream};
    use jiff::tz::TimeZone;
    use ratatui::backend::CrosstermBackend;
    use ratatui::layout::Rect;
    use ratatui::{TerminalOptions, Viewport};
    use std::num::NonZero;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Longer than any machine needs; reaching it is a failure.
    const DEADLINE: Duration = Duration::from_secs(30);

    fn look() -> Look {
        Look { ascii: false, colour: true, zone: TimeZone::UTC }
    }

    fn screen(sent: &mut Vec<u8>) -> Terminal<CrosstermBackend<&mut Vec<u8>>> {
        let viewport = Viewport::Fixed(Rect::new(0, 0, 80, 24));
        Terminal::with_options(CrosstermBackend::new(sent), TerminalOptions { viewport }).unwrap()
    }

    /// Takes events in until `done`.
    fn until(session: &mut Session<'_>, done: impl Fn(&Model) -> bool) {
        let start = Instant::now();
        while !done(&session.model) {
            assert!(start.elapsed() < DEADLINE, "{:?} {:?}", session.model.link, session.model.trace);
            let event = session.inbox.recv_timeout(DEADLINE).unwrap();
            assert_ne!(session.take_in(event, start.elapsed()).unwrap(), Next::Leave);
        }
    }

    fn start<'a>(client: impl Client + 'static, look: &'a Look) -> (Session<'a>, SyncSender<Event>) {
        let (sender, inbox) = sync_channel(EVENT_QUEUE);
        (Session::start(Box::new(client), sender.clone(), inbox, (Model::default(), look)).unwrap(), sender)
    }

    #[test]
    fn a_recording_is_played_charted_and_left_with_a_key() {
        let look = look();
        let statuses: Vec<Status> = (0..30).map(|s| world::leaking(s * 2)).collect();
        let (mut session, sender) = start(Replay::new(statuses, Duration::ZERO), &look);
        until(&mut session, |m| {
            m.status.as_ref().is_some_and(|s| s.tick.seq == 59)
                && m.trace.as_ref().is_some_and(|t| t.past == Past::Known)
        });
        assert_eq!(session.model.trace.as_ref().unwrap().spots().len(), 30);
        until(
            &mut session,
            |m| matches!(&m.link, Link::Broken(why) if why.contains("the recording has ended")),
        );
        sender.send(Event::Key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE))).unwrap();
        let mut sent = Vec::new();
        let mut screen = screen(&mut sent);
        session.drive(&mut screen, || false).unwrap();
        drop(screen);
        let mut parser = vt100::Parser::new(NonZero::new(24).unwrap(), NonZero::new(80).unwrap(), 0);
        parser.process(&sent);
        assert!(parser.screen().contents().contains("GPU 0: memory"));
    }

    #[test]
    fn a_signal_ends_the_session_and_lost_input_is_an_error() {
        let look = look();
        let (mut session, sender) = start(Replay::new(Vec::new(), Duration::ZERO), &look);
        let mut sent = Vec::new();
        let mut screen = screen(&mut sent);
        session.drive(&mut screen, || true).unwrap();
        sender.send(Event::InputLost("gone".to_owned())).unwrap();
        assert!(matches!(session.drive(&mut screen, || false), Err(TuiError::Input(why)) if why == "gone"));
    }

    /// A daemon that is away at the first attempt, breaks off at the second, ends each later connection after one
    /// status, and has no history.
    struct Flaky {
        attempts: AtomicUsize,
    }

    impl Client for Flaky {
        fn status(&self) -> Result<Status, ClientError> {
            Ok(world::calm(0))
        }

        fn history(&self, _: &HistoryQuery) -> Result<History, ClientError> {
            Err(ClientError::Refused { status: 503, message: "no store is open".to_owned() })
        }

        fn watch(&self) -> Result<StatusStream, ClientError> {
            let broken =
                || ClientError::Broken { address: "socket".to_owned(), source: "reset by peer".into() };
            match self.attempts.fetch_add(1, Ordering::Relaxed) {
                0 => Err(ClientError::Timeout { address: "socket".to_owned(), seconds: 5 }),
                1 => Ok(Box::new([Ok(world::calm(1)), Err(broken())].into_iter())),
                n => Ok(Box::new(std::iter::once(Ok(world::calm(n as u64))))),
            }
        }
    }

    #[test]
    fn a_daemon_that_goes_away_is_found_again_and_each_loss_says_why() {
        let look = look();
        let (mut session, _sender) = start(Flaky { attempts: AtomicUsize::new(0) }, &look);
        let because =
            |text: &'static str| move |m: &Model| matches!(&m.link, Link::Broken(why) if why.contains(text));
        until(&mut session, because("did not answer within 5 s"));
        until(&mut session, because("broke: reset by peer"));
        until(&mut session, |m| m.link == Link::Live);
        until(&mut session, |m| {
            m.trace.as_ref().is_some_and(
                |t| matches!(&t.past, Past::Unavailable(why) if why.contains("no store is open")),
            )
        });
    }

    /// A daemon that answers questions and whose stream goes on until the other end of `held` is dropped.
    struct Lasting {
        held: Mutex<Receiver<()>>,
    }

    impl Client for Lasting {
        fn status(&self) -> Result<Status, ClientError> {
            Ok(world::calm(0))
        }

        fn history(&self, query: &HistoryQuery) -> Result<History, ClientError> {
            Ok(History { series: query.series.clone(), spans: Vec::new(), gaps: Vec::new() })
        }

        fn watch(&self) -> Result<StatusStream, ClientError> {
            let held = std::mem::replace(&mut *self.held.lock().unwrap(), sync_channel(0).1);
            let wait = move || {
                // Only ever the hang-up.
                let _ = held.recv();
                None
            };
            Ok(Box::new(std::iter::once(Ok(world::calm(1))).chain(std::iter::from_fn(wait))))
        }
    }

    #[test]
    fn the_past_arrives_while_the_present_goes_on() {
        let look = look();
        let (hold, held) = sync_channel(0);
        let (mut session, _sender) = start(Lasting { held: Mutex::new(held) }, &look);
        until(&mut session, |m| m.trace.as_ref().is_some_and(|t| t.past == Past::Known));
        assert_eq!(session.model.link, Link::Live);
        drop(hold);
    }
}
