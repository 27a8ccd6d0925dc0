//! Who holds memory: three lists in three layouts.

use std::ffi::c_uint;

use ebbtide_testkit::ProcessKind::{self, Compute, Graphics, Mps};

use crate::abi::{
    NO_INSTANCE, NOT_AVAILABLE, Out, ProcessDetail, ProcessDetailList, ProcessV1, ProcessV2, hand_out,
    version_of,
};
use crate::code::{Answer, Code};
use crate::entry::device_calls;
use crate::target::Target;

device_calls! {
    fn nvmlDeviceGetComputeRunningProcesses(target, count: Out<c_uint>, list: Out<ProcessV1>) {
        first(target, Compute, &count, &list)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(target, count: Out<c_uint>, list: Out<ProcessV2>) {
        second(target, Compute, &count, &list)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(target, count: Out<c_uint>, list: Out<ProcessV2>) {
        third(target, Compute, &count, &list)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses(target, count: Out<c_uint>, list: Out<ProcessV1>) {
        first(target, Graphics, &count, &list)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(target, count: Out<c_uint>, list: Out<ProcessV2>) {
        second(target, Graphics, &count, &list)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(target, count: Out<c_uint>, list: Out<ProcessV2>) {
        third(target, Graphics, &count, &list)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses(target, count: Out<c_uint>, list: Out<ProcessV1>) {
        first(target, Mps, &count, &list)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(target, count: Out<c_uint>, list: Out<ProcessV2>) {
        second(target, Mps, &count, &list)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(target, count: Out<c_uint>, list: Out<ProcessV2>) {
        third(target, Mps, &count, &list)
    }
    fn nvmlDeviceGetRunningProcessDetailList(target, list: Out<ProcessDetailList>) {
        detail(target, &list)
    }
}

/// The unversioned list: 16 bytes a process, no MIG ids.
fn first(target: &Target<'_>, kind: ProcessKind, count: &Out<c_uint>, list: &Out<ProcessV1>) -> Answer {
    let records: Vec<_> =
        details(target, kind)?.iter().map(|p| ProcessV1 { pid: p.pid, used: p.used }).collect();
    hand_out(count, list, &records)
}

/// The v2 list: 24 bytes a process.
fn second(target: &Target<'_>, kind: ProcessKind, count: &Out<c_uint>, list: &Out<ProcessV2>) -> Answer {
    let records: Vec<_> = details(target, kind)?.iter().map(narrow).collect();
    hand_out(count, list, &records)
}

/// The v3 list: the v2 record, but for the drivers that wrote a wider one into their callers' arrays, and those
/// that lacked the symbol.
fn third(target: &Target<'_>, kind: ProcessKind, count: &Out<c_uint>, list: &Out<ProcessV2>) -> Answer {
    if target.scenario.wide_records() {
        return hand_out(count, &list.cast::<ProcessDetail>(), &details(target, kind)?);
    }
    if !target.scenario.has_v3_lists() {
        return Err(Code::FUNCTION_NOT_FOUND);
    }
    second(target, kind, count, list)
}

/// The list of confidential computing, whose mode chooses the kind: 0 compute, 1 graphics, 2 MPS.
fn detail(target: &Target<'_>, list: &Out<ProcessDetailList>) -> Answer {
    let mut asked = list.get()?;
    if asked.version != version_of::<ProcessDetailList>(1) {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    let kind = *[Compute, Graphics, Mps].get(asked.mode as usize).ok_or(Code::INVALID_ARGUMENT)?;
    let records = details(target, kind)?;
    let room = asked.count as usize;
    asked.count = records.len() as c_uint;
    list.set(asked)?;
    if room < records.len() {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    if records.is_empty() { Ok(()) } else { asked.list().fill(records.into_iter(), room) }
}

/// The processes of a list in the widest record, from which the others are cut. Without a right to it, a
/// partitioned parent tells nothing.
pub(super) fn details(target: &Target<'_>, kind: ProcessKind) -> Result<Vec<ProcessDetail>, Code> {
    let gpu = target.gpu;
    if gpu.mig_parent_denied && target.mig.is_none() && !gpu.mig.is_empty() {
        return Err(Code::NO_PERMISSION);
    }
    let record = |process: &ebbtide_testkit::Process| {
        let instance = process.mig.and_then(|place| gpu.mig.get(place));
        ProcessDetail {
            pid: process.pid,
            used: process.memory_at(target.at_ms).map_or(NOT_AVAILABLE, |bytes| bytes.0),
            gpu_instance: instance.map_or(NO_INSTANCE, |i| i.gpu_instance),
            compute_instance: instance.map_or(NO_INSTANCE, |i| i.compute_instance),
            protected: 0,
        }
    };
    Ok(target.listed(kind).map(record).collect())
}

fn narrow(p: &ProcessDetail) -> ProcessV2 {
    ProcessV2 { pid: p.pid, used: p.used, gpu_instance: p.gpu_instance, compute_instance: p.compute_instance }
}
