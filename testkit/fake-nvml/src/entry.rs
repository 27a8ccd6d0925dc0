//! The way into every call: count it, look at the world, let faults strike, check that NVML is open.

use std::ffi::c_uint;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebbtide_testkit::Scenario;

use crate::abi::Handle;
use crate::code::{Answer, Code};
use crate::symbols::Symbol;
use crate::target::Target;
use crate::{counting, library, world};

/// How often a hanging call looks whether its fault is over.
const HANG_STEP: Duration = Duration::from_millis(5);

/// One call under way: the world at its moment.
pub(crate) struct Call {
    pub(crate) symbol: Symbol,
    pub(crate) scenario: Arc<Scenario>,
    /// Milliseconds of the scenario.
    pub(crate) at_ms: i64,
    /// Generation of the driver.
    pub(crate) generation: u32,
}

impl Call {
    /// Begins a call.
    pub(crate) fn begin(symbol: Symbol) -> Result<Self, Code> {
        let call = Self::look(symbol)?;
        counting::count(symbol);
        Ok(call)
    }

    /// The world again, for calls that wait.
    pub(crate) fn look(symbol: Symbol) -> Result<Self, Code> {
        let moment = world::now();
        let scenario = moment.scenario.clone().ok_or(Code::UNKNOWN)?;
        let at_ms = moment.of(&scenario);
        Ok(Self { symbol, at_ms, generation: scenario.generation(at_ms), scenario })
    }

    /// Fails unless the library is open in this generation of a driver that is there.
    pub(crate) fn checked(self) -> Result<Self, Code> {
        match library::opened() {
            None => Err(Code::UNINITIALIZED),
            Some(opened) if opened == self.generation && self.scenario.outage_at(self.at_ms).is_none() => {
                Ok(self)
            }
            Some(_) => Err(Code(self.scenario.stale_code)),
        }
    }

    /// Lets faults strike. Returns the world after them, which is a later one when the call had to wait.
    pub(crate) fn struck(mut self, gpu: Option<u32>) -> Result<Self, Code> {
        if self.scenario.faults.is_empty() {
            return Ok(self);
        }
        self = self.after_hang(gpu)?;
        let faults = Arc::clone(&self.scenario);
        let mut strikes = faults.faults.iter().filter(|f| f.strikes(self.symbol.name(), gpu, self.at_ms));
        let wait_ms: u64 = strikes.clone().map(|fault| fault.delay_ms).sum();
        if wait_ms > 0 {
            pause(Duration::from_millis(wait_ms));
        }
        match strikes.find_map(|fault| fault.code) {
            Some(code) => Err(Code(code)),
            None if wait_ms > 0 => Self::look(self.symbol),
            None => Ok(self),
        }
    }

    /// Waits while a fault hangs this call. No lock is held meanwhile, so that only the caller waits.
    fn after_hang(mut self, gpu: Option<u32>) -> Result<Self, Code> {
        let hangs = |call: &Self| {
            let strikes =
                |f: &&ebbtide_testkit::Fault| f.hang && f.strikes(call.symbol.name(), gpu, call.at_ms);
            call.scenario.faults.iter().any(|fault| strikes(&fault))
        };
        while hangs(&self) {
            pause(HANG_STEP);
            self = Self::look(self.symbol)?;
        }
        Ok(self)
    }
}

/// Serves a call on the library.
pub(crate) fn library(symbol: Symbol, answer: impl FnOnce(&Call) -> Answer) -> c_uint {
    let outcome = Call::begin(symbol)
        .and_then(|call| call.struck(None))
        .and_then(Call::checked)
        .and_then(|call| answer(&call));
    number(outcome)
}

/// Serves a call on a device.
pub(crate) fn device(symbol: Symbol, handle: Handle, answer: impl FnOnce(&Target<'_>) -> Answer) -> c_uint {
    let outcome = Call::begin(symbol)
        .and_then(|call| call.struck(Some(handle.gpu())))
        .and_then(Call::checked)
        .and_then(|call| Target::of(&call, handle).and_then(|target| answer(&target)));
    number(outcome)
}

/// The return code of an outcome.
pub(crate) fn number(outcome: Answer) -> c_uint {
    outcome.map_or_else(|code| code.0, |()| 0)
}

/// Keeps the calling thread for that long. Not by std's parking: it leaves a destructor with the thread, which
/// would run after a client has unloaded this library.
pub(crate) fn pause(span: Duration) {
    let end = Instant::now() + span;
    while let Some(rest) = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
        // The cast is exact: pauses are bounded by a timeout in milliseconds of 32 bits.
        let rest = libc::timespec { tv_sec: rest.as_secs() as i64, tv_nsec: rest.subsec_nanos().into() };
        // SAFETY: reads our own record; a null second argument asks for no remainder. A signal only shortens one
        // round of the loop.
        unsafe { libc::nanosleep(&raw const rest, std::ptr::null_mut()) };
    }
}

/// Exports calls on the library. The block answers, with the [`Call`] under the name given first.
macro_rules! library_calls {
    ($(fn $name:ident($call:ident $(, $arg:ident: $type:ty)*) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> std::ffi::c_uint {
            const SYMBOL: crate::symbols::Symbol = crate::symbols::Symbol::named(stringify!($name));
            crate::entry::library(SYMBOL, |$call: &crate::entry::Call| -> crate::code::Answer { $body })
        }
    )* };
}

/// Exports calls on a device. The block answers, with the [`Target`] under the name given first.
macro_rules! device_calls {
    ($(fn $name:ident($target:ident $(, $arg:ident: $type:ty)*) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: crate::abi::Handle $(, $arg: $type)*) -> std::ffi::c_uint {
            const SYMBOL: crate::symbols::Symbol = crate::symbols::Symbol::named(stringify!($name));
            crate::entry::device(SYMBOL, handle, |$target: &crate::target::Target<'_>| -> crate::code::Answer { $body })
        }
    )* };
}

pub(crate) use {device_calls, library_calls};
