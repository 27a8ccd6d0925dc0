//! The threads that talk with the daemon, so that drawing never waits for it.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ebbtide_api::wire::HistoryQuery;
use ebbtide_api::{Client, ClientError, StatusStream};

use crate::event::Event;

/// The pause before the first attempt to reconnect; doubles with each that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause: a daemon that is started again is seen within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the dashboard hears from the daemon and asks of it. Dropping it tells its threads to end; one that waits for
/// the daemon ends when the daemon answers, so nobody joins them.
pub(crate) struct Feed {
    question: Arc<Question>,
    _running: SyncSender<()>,
}

impl Feed {
    /// Starts listening; what is heard goes to `events`. A full channel makes the listener wait, and the daemon
    /// then leaves statuses out, so nothing queues up anywhere.
    pub(crate) fn start(client: Box<dyn Client>, events: SyncSender<Event>) -> io::Result<Self> {
        let client = Arc::new(Mutex::new(client));
        let question = Arc::new(Question::default());
        let (running, stopped) = sync_channel(1);
        {
            let (client, events) = (Arc::clone(&client), events.clone());
            thread::Builder::new()
                .name("top-watch".to_owned())
                .spawn(move || watch(&client, &events, &stopped))?;
        }
        let asked = Arc::clone(&question);
        thread::Builder::new()
            .name("top-history".to_owned())
            .spawn(move || answer(&client, &events, &asked))?;
        Ok(Self { question, _running: running })
    }

    /// Asks for part of the history; the answer comes as an event. A question not yet asked is overtaken.
    pub(crate) fn ask(&self, query: HistoryQuery) {
        self.question.put(Asked::Query(query));
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.question.put(Asked::Close);
    }
}

/// Listens until the dashboard is gone; reconnects with a growing pause.
fn watch(client: &Mutex<Box<dyn Client>>, events: &SyncSender<Event>, stopped: &Receiver<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        // The lock ends with this line: held for as long as statuses come, it would leave no question answered.
        let opened = lock(client).watch();
        let ended = opened.and_then(|statuses| hand_on(statuses, events, &mut pause));
        let why = match ended {
            Ok(End::Dashboard) => return,
            Ok(End::Daemon) => "the daemon has ended the connection".to_owned(),
            Err(error) => in_words(&error),
        };
        let gone = events.send(Event::Disconnected(why)).is_err();
        if gone || stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Who ended a connection without an error.
enum End {
    Dashboard,
    Daemon,
}

/// Hands on what the daemon publishes. A daemon that is heard is tried again at once when it is lost.
fn hand_on(
    statuses: StatusStream,
    events: &SyncSender<Event>,
    pause: &mut Duration,
) -> Result<End, ClientError> {
    for status in statuses {
        *pause = FIRST_PAUSE;
        if events.send(Event::Status(Box::new(status?))).is_err() {
            return Ok(End::Dashboard);
        }
    }
    Ok(End::Daemon)
}

/// Asks the daemon for what the dashboard wants of its history.
fn answer(client: &Mutex<Box<dyn Client>>, events: &SyncSender<Event>, question: &Question) {
    while let Some(query) = question.take() {
        let answer = lock(client).history(&query).map_err(|error| in_words(&error));
        if events.send(Event::History { query, answer }).is_err() {
            return;
        }
    }
}

/// An error and all that caused it, in one sentence.
fn in_words(error: &ClientError) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for one question: only the newest is worth an answer.
#[derive(Default)]
struct Question {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
enum Asked {
    #[default]
    Nothing,
    Query(HistoryQuery),
    Close,
}

impl Question {
    fn put(&self, asked: Asked) {
        *lock(&self.asked) = asked;
        self.changed.notify_one();
    }

    /// Waits for a question; `None` when there will be no more.
    fn take(&self) -> Option<HistoryQuery> {
        let mut asked = lock(&self.asked);
        loop {
            match std::mem::take(&mut *asked) {
                Asked::Query(query) => return Some(query),
                Asked::Close => return None,
                Asked::Nothing => asked = self.changed.wait(asked).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
