//! Keys and signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, KeyEventKind};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::event::Event;

/// How long the reader of keys may take to notice that the dashboard is gone.
const POLL: Duration = Duration::from_millis(200);

/// How long leaving waits for that reader, so that it takes no key that was meant for the shell.
const PATIENCE: Duration = Duration::from_millis(500);

/// The reader of keys. Dropping it ends it.
pub(crate) struct Keyboard {
    gone: Arc<AtomicBool>,
    reading: Receiver<()>,
}

impl Keyboard {
    /// Starts reading; what is read goes to `events`.
    pub(crate) fn start(events: SyncSender<Event>) -> io::Result<Self> {
        let gone = Arc::new(AtomicBool::new(false));
        let (alive, reading) = sync_channel(1);
        let stop = Arc::clone(&gone);
        thread::Builder::new().name("top-keys".to_owned()).spawn(move || {
            read(&events, &stop);
            drop(alive);
        })?;
        Ok(Self { gone, reading })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        // Ends with the reader. A terminal that has hung up can keep the reader for ever: then it is left behind.
        let _ended = self.reading.recv_timeout(PATIENCE);
    }
}

fn read(events: &SyncSender<Event>, gone: &AtomicBool) {
    while !gone.load(Ordering::Relaxed) {
        let event = match event::poll(POLL)
            .and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) })
        {
            Ok(Some(event::Event::Key(key))) if key.kind != KeyEventKind::Release => Event::Key(key),
            Ok(Some(event::Event::Resize(..))) => Event::Resize,
            Ok(_) => continue,
            Err(error) => Event::InputLost(error.to_string()),
        };
        let lost = matches!(event, Event::InputLost(_));
        if events.send(event).is_err() || lost {
            return;
        }
    }
}

/// A flag that the signals to end raise while this lives.
pub(crate) struct Signals {
    raised: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Signals {
    /// Listens to SIGTERM, SIGINT (from outside: Ctrl-C is a key while the dashboard runs) and SIGHUP.
    pub(crate) fn listen() -> io::Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        let mut registered = Vec::new();
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            registered.push(signal_hook::flag::register(signal, Arc::clone(&raised))?);
        }
        Ok(Self { raised, registered })
    }

    /// Whether one has come.
    pub(crate) fn raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for &id in &self.registered {
            signal_hook::low_level::unregister(id);
        }
    }
}
