//! The driver as a whole, and the way to its devices.

use std::ffi::{c_int, c_uint};

use crate::abi::{Given, Handle, Out, Text};
use crate::code::{Answer, Code};
use crate::entry::{Call, library_calls};

library_calls! {
    fn nvmlSystemGetDriverVersion(call, text: Text, room: c_uint) {
        text.set(room, &call.scenario.driver_version)
    }
    fn nvmlSystemGetNVMLVersion(call, text: Text, room: c_uint) {
        text.set(room, &format!("{}.{}", call.scenario.cuda_version / 1000, call.scenario.driver_version))
    }
    fn nvmlSystemGetCudaDriverVersion(call, version: Out<c_int>) {
        version.set(call.scenario.cuda_version)
    }
    fn nvmlSystemGetCudaDriverVersion_v2(call, version: Out<c_int>) {
        version.set(call.scenario.cuda_version)
    }
    fn nvmlSystemGetProcessName(_call, pid: c_uint, text: Text, room: c_uint) {
        text.set(room, &process_name(pid).ok_or(Code::NOT_FOUND)?)
    }
    fn nvmlDeviceGetCount(call, count: Out<c_uint>) { count.set(call.scenario.gpus.len() as c_uint) }
    fn nvmlDeviceGetCount_v2(call, count: Out<c_uint>) { count.set(call.scenario.gpus.len() as c_uint) }
    fn nvmlDeviceGetHandleByIndex(call, index: c_uint, device: Out<Handle>) { by_index(call, index, &device) }
    fn nvmlDeviceGetHandleByIndex_v2(call, index: c_uint, device: Out<Handle>) { by_index(call, index, &device) }
    fn nvmlDeviceGetHandleByUUID(call, uuid: Given, device: Out<Handle>) { by_uuid(call, uuid.text()?, &device) }
    fn nvmlDeviceGetHandleByPciBusId(call, bus: Given, device: Out<Handle>) { by_bus(call, bus.text()?, &device) }
    fn nvmlDeviceGetHandleByPciBusId_v2(call, bus: Given, device: Out<Handle>) { by_bus(call, bus.text()?, &device) }
}

pub(super) fn by_index(call: &Call, index: c_uint, device: &Out<Handle>) -> Answer {
    if index as usize >= call.scenario.gpus.len() {
        return Err(Code::INVALID_ARGUMENT);
    }
    hand(call, index, None, device)
}

/// Finds a GPU, or a MIG instance, by its UUID.
fn by_uuid(call: &Call, uuid: &str, device: &Out<Handle>) -> Answer {
    for (index, gpu) in (0..).zip(&call.scenario.gpus) {
        if gpu.uuid == uuid {
            return hand(call, index, None, device);
        }
        if let Some(place) = gpu.mig.iter().position(|instance| instance.uuid == uuid) {
            return hand(call, index, Some(place), device);
        }
    }
    Err(Code::NOT_FOUND)
}

/// Finds a GPU by its address, whose domain may be written with four or eight digits.
fn by_bus(call: &Call, address: &str, device: &Out<Handle>) -> Answer {
    let wanted = address.to_ascii_lowercase();
    let matches = |bus: u32| {
        let tail = format!("{bus:02x}:00.0");
        [format!("00000000:{tail}"), format!("0000:{tail}"), tail].contains(&wanted)
    };
    let found = (0..).zip(&call.scenario.gpus).find(|(_, gpu)| matches(gpu.pci_bus));
    found.map_or(Err(Code::NOT_FOUND), |(index, _)| hand(call, index, None, device))
}

/// Hands out a handle, unless a fault of that GPU strikes: a lost GPU is counted but gives no handle.
fn hand(call: &Call, index: c_uint, place: Option<usize>, device: &Out<Handle>) -> Answer {
    let symbol = call.symbol.name();
    let fault =
        call.scenario.faults.iter().find(|f| f.gpu.is_some() && f.strikes(symbol, Some(index), call.at_ms));
    match fault.and_then(|fault| fault.code) {
        Some(code) => Err(Code(code)),
        None => device.set(Handle::new(index, place, call.generation)),
    }
}

/// The program of a process, as it was started.
pub(super) fn process_name(pid: c_uint) -> Option<String> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let program = command.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(program).into_owned())
}
