//! Whether NVML is initialised in this process, and in which generation of the driver.

use std::sync::{Mutex, PoisonError};

use crate::code::{Answer, Code};

/// Reference-counted, as in the original: each `nvmlInit` needs its `nvmlShutdown`.
static LIBRARY: Mutex<Library> = Mutex::new(Library { clients: 0, generation: 0 });

struct Library {
    clients: u32,
    generation: u32,
}

/// Opens NVML in this generation. References to a driver that has gone do not carry over.
pub(crate) fn open(generation: u32) {
    with(|library| {
        let alive = library.generation == generation;
        library.clients = if alive { library.clients.saturating_add(1) } else { 1 };
        library.generation = generation;
    });
}

/// Closes it once.
pub(crate) fn close(generation: u32) -> Answer {
    with(|library| {
        if library.clients == 0 || library.generation != generation {
            library.clients = 0;
            return Err(Code::UNINITIALIZED);
        }
        library.clients -= 1;
        Ok(())
    })
}

/// The generation in which it is open, if it is.
pub(crate) fn opened() -> Option<u32> {
    with(|library| (library.clients > 0).then_some(library.generation))
}

fn with<T>(act: impl FnOnce(&mut Library) -> T) -> T {
    act(&mut LIBRARY.lock().unwrap_or_else(PoisonError::into_inner))
}
