//! Event sets: what the driver reports to those who wait.

use std::collections::HashMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ebbtide_testkit::Event;

use crate::abi::{EventData, Handle, NO_INSTANCE, Out, SetHandle};
use crate::code::{Answer, Code};
use crate::entry::{Call, device_calls, library_calls, number, pause};
use crate::symbols::Symbol;
use crate::target::Target;

/// How often a waiter looks whether the world has changed: rare enough that waiting costs a bench nothing, often
/// enough that a test's live event arrives while somebody watches.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// Sets by number; made on the first use.
static SETS: Mutex<Option<Sets>> = Mutex::new(None);

#[derive(Default)]
struct Sets {
    made: usize,
    open: HashMap<SetHandle, Registered>,
}

/// What a set listens for.
#[derive(Default)]
struct Registered {
    devices: Vec<Interest>,
    /// The last event handed out; the next is the first behind it.
    last: Option<Event>,
}

/// A GPU, the events asked for, and since when: what happened before is lost.
struct Interest {
    gpu: u32,
    mask: u64,
    since_ms: i64,
}

library_calls! {
    fn nvmlEventSetCreate(_call, set: Out<SetHandle>) {
        let fresh = with_sets(|sets| {
            sets.made += 1;
            sets.open.insert(SetHandle(sets.made), Registered::default());
            SetHandle(sets.made)
        });
        set.set(fresh)
    }
}

device_calls! {
    fn nvmlDeviceGetSupportedEventTypes(target, mask: Out<c_ulonglong>) {
        mask.set(if target.mig.is_some() { 0 } else { target.gpu.supported_events })
    }
    fn nvmlDeviceRegisterEvents(target, mask: c_ulonglong, set: SetHandle) { register(target, mask, set) }
}

/// Works without an open library: clients free their sets after a driver has gone.
#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: SetHandle) -> c_uint {
    let outcome = Call::begin(const { Symbol::named("nvmlEventSetFree") })
        .and_then(|_| with_sets(|sets| sets.open.remove(&set)).map(drop).ok_or(Code::INVALID_ARGUMENT));
    number(outcome)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait(set: SetHandle, data: Out<EventData>, timeout_ms: c_uint) -> c_uint {
    number(wait(const { Symbol::named("nvmlEventSetWait") }, set, &data, timeout_ms))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: SetHandle, data: Out<EventData>, timeout_ms: c_uint) -> c_uint {
    number(wait(const { Symbol::named("nvmlEventSetWait_v2") }, set, &data, timeout_ms))
}

/// An event type that the GPU does not support fails the registration and leaves the set as it was.
fn register(target: &Target<'_>, mask: u64, set: SetHandle) -> Answer {
    if target.mig.is_some() || mask & !target.gpu.supported_events != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    with_sets(|sets| {
        let registered = sets.open.get_mut(&set).ok_or(Code::INVALID_ARGUMENT)?;
        registered.devices.push(Interest { gpu: target.index, mask, since_ms: target.at_ms });
        Ok(())
    })
}

/// Blocks until an event, the timeout, or the end of the driver.
fn wait(symbol: Symbol, set: SetHandle, data: &Out<EventData>, timeout_ms: c_uint) -> Answer {
    let end = Instant::now() + Duration::from_millis(timeout_ms.into());
    let mut call = Call::begin(symbol)?;
    loop {
        call = call.struck(None)?.checked()?;
        if let Some(event) = next(&call, set)? {
            return data.set(EventData {
                device: Handle::new(event.gpu, None, call.generation),
                kind: event.kind,
                data: event.data,
                gpu_instance: NO_INSTANCE,
                compute_instance: NO_INSTANCE,
            });
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Code::TIMEOUT);
        }
        pause(left.min(WAIT_STEP).min(until_next(&call)));
        call = Call::look(symbol)?;
    }
}

/// Takes the first event that has happened and is wanted.
fn next(call: &Call, set: SetHandle) -> Result<Option<Event>, Code> {
    with_sets(|sets| {
        let registered = sets.open.get_mut(&set).ok_or(Code::INVALID_ARGUMENT)?;
        let wanted = |event: &&Event| {
            let asked =
                |i: &Interest| i.gpu == event.gpu && i.mask_has(event.kind) && i.since_ms <= event.at_ms;
            event.at_ms <= call.at_ms
                && registered.last.as_ref().is_none_or(|last| *event > last)
                && registered.devices.iter().any(asked)
        };
        let found = call.scenario.events.iter().filter(wanted).min().cloned();
        if found.is_some() {
            registered.last.clone_from(&found);
        }
        Ok(found)
    })
}

impl Interest {
    /// Bits that no header names yet reach every listener, as a newer driver's do.
    fn mask_has(&self, kind: u64) -> bool {
        const NAMED: u64 = 0xffff;
        self.mask & kind != 0 || kind & !NAMED != 0
    }
}

/// Time until the next event that the scenario foresees.
fn until_next(call: &Call) -> Duration {
    let ahead =
        call.scenario.events.iter().map(|event| event.at_ms.saturating_sub(call.at_ms)).filter(|ms| *ms > 0);
    ahead.min().map_or(WAIT_STEP, |ms| Duration::from_millis(ms as u64))
}

fn with_sets<T>(act: impl FnOnce(&mut Sets) -> T) -> T {
    act(SETS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}
