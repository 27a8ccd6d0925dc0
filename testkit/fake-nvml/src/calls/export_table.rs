//! The table of internal calls that nvidia-smi asks for. NVIDIA does not document it. What is here was found by
//! watching which places nvidia-smi 535.261.03 calls, and agrees with what NVIDIA's own mock of NVML
//! (k8s-test-infra, pkg/gpu/mocknvml) says of 580.65.06: the table's id, place 81 for handles, places 213 to 215 for
//! the process lists, and records that carry the process's name. Every other place answers NOT_SUPPORTED, which
//! nvidia-smi prints as N/A.

use std::ffi::{c_char, c_uint};

use ebbtide_testkit::ProcessKind;

use crate::abi::{Handle, Out, ProcessDetail, hand_out};
use crate::code::{Answer, Code};
use crate::entry::{device, library, library_calls, number};
use crate::symbols::Symbol;
use crate::target::Target;

use super::processes::details;
use super::system::{by_index, process_name};

/// The id of the table that nvidia-smi wants.
const ID: [u8; 16] =
    [0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4];
/// Room for a name in a record.
const NAME: usize = 4096;

/// One internal call; the meaning of its arguments depends on its place.
type Slot = extern "C" fn(usize, usize, usize) -> c_uint;

/// Its size in bytes, then calls at places 1 to 255.
#[repr(C)]
struct Table {
    size: usize,
    slots: [Slot; 255],
}

/// A record of the process lists.
#[repr(C)]
#[derive(Clone, Copy)]
struct NamedProcess {
    detail: ProcessDetail,
    name: [c_char; NAME],
}

/// Seventeen places for each number, fifteen times.
macro_rules! slots {
    ($($row:literal)*) => { [$(
        slot::<{ $row * 17 + 1 }>, slot::<{ $row * 17 + 2 }>, slot::<{ $row * 17 + 3 }>, slot::<{ $row * 17 + 4 }>,
        slot::<{ $row * 17 + 5 }>, slot::<{ $row * 17 + 6 }>, slot::<{ $row * 17 + 7 }>, slot::<{ $row * 17 + 8 }>,
        slot::<{ $row * 17 + 9 }>, slot::<{ $row * 17 + 10 }>, slot::<{ $row * 17 + 11 }>, slot::<{ $row * 17 + 12 }>,
        slot::<{ $row * 17 + 13 }>, slot::<{ $row * 17 + 14 }>, slot::<{ $row * 17 + 15 }>, slot::<{ $row * 17 + 16 }>,
        slot::<{ $row * 17 + 17 }>,
    )*] };
}

static TABLE: Table = Table { size: size_of::<Table>(), slots: slots!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14) };

library_calls! {
    fn nvmlInternalGetExportTable(_call, table: Out<&'static Table>, id: Out<[u8; 16]>) {
        if id.get()? != ID {
            return Err(Code::INVALID_ARGUMENT);
        }
        table.set(&TABLE)
    }
}

/// Answers as, and counts as, the public call of the same meaning.
extern "C" fn slot<const PLACE: usize>(first: usize, second: usize, third: usize) -> c_uint {
    const HANDLE: Symbol = Symbol::named("nvmlDeviceGetHandleByIndex_v2");
    const COMPUTE: Symbol = Symbol::named("nvmlDeviceGetComputeRunningProcesses_v3");
    const GRAPHICS: Symbol = Symbol::named("nvmlDeviceGetGraphicsRunningProcesses_v3");
    const MPS: Symbol = Symbol::named("nvmlDeviceGetMPSComputeRunningProcesses_v3");
    let list = |symbol, kind| {
        device(symbol, Handle(first), |target| {
            named(target, kind, &Out::to(second as *mut c_uint), &Out::to(third as *mut NamedProcess))
        })
    };
    match PLACE {
        81 => library(HANDLE, |call| by_index(call, first as c_uint, &Out::to(second as *mut Handle))),
        213 => list(COMPUTE, ProcessKind::Compute),
        214 => list(MPS, ProcessKind::Mps),
        215 => list(GRAPHICS, ProcessKind::Graphics),
        _ => number(Err(Code::NOT_SUPPORTED)),
    }
}

fn named(target: &Target<'_>, kind: ProcessKind, count: &Out<c_uint>, list: &Out<NamedProcess>) -> Answer {
    let record = |detail: ProcessDetail| {
        let mut name = [0; NAME];
        // A process that is gone has no name, as in the original. One byte less, so that a zero ends it.
        let known = process_name(detail.pid).unwrap_or_default();
        for (place, byte) in name[..NAME - 1].iter_mut().zip(known.bytes()) {
            *place = byte as c_char;
        }
        NamedProcess { detail, name }
    };
    let records: Vec<_> = details(target, kind)?.into_iter().map(record).collect();
    hand_out(count, list, &records)
}
