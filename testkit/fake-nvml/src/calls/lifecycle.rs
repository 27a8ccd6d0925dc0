//! Opening and closing NVML.

use std::ffi::{c_char, c_uint};

use crate::code::{Answer, Code};
use crate::entry::{Call, number};
use crate::library;
use crate::symbols::Symbol;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> c_uint {
    number(open(const { Symbol::named("nvmlInit") }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    number(open(const { Symbol::named("nvmlInit_v2") }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    number(open(const { Symbol::named("nvmlInitWithFlags") }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    let outcome = Call::begin(const { Symbol::named("nvmlShutdown") })
        .and_then(|call| call.struck(None))
        .and_then(|call| library::close(call.generation));
    number(outcome)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    Code(code).text().as_ptr()
}

/// Opens the library unless the driver is away.
fn open(symbol: Symbol) -> Answer {
    let call = Call::begin(symbol)?.struck(None)?;
    match call.scenario.outage_at(call.at_ms) {
        Some(outage) => Err(Code(outage.init_code)),
        None => {
            library::open(call.generation);
            Ok(())
        }
    }
}
