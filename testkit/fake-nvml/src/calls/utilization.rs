//! How busy a device is, and who keeps it so.

use std::ffi::c_uint;

use ebbtide_testkit::Process;

use crate::abi::{Out, ProcessSample, ProcessUtilization, ProcessesUtilization, Utilization, version_of};
use crate::code::{Answer, Code};
use crate::entry::device_calls;
use crate::target::Target;

/// Size of the driver's ring of samples, which it names when asked how many there are, even when idle.
const RING: c_uint = 100;
/// Microseconds over which encoder and decoder are averaged.
const CODEC_PERIOD_US: c_uint = 167_000;

device_calls! {
    fn nvmlDeviceGetUtilizationRates(target, rates: Out<Utilization>) {
        target.unpartitioned()?;
        rates.set(Utilization { gpu: target.gpu.utilization, memory: target.gpu.memory_utilization })
    }
    fn nvmlDeviceGetEncoderUtilization(target, percent: Out<c_uint>, period_us: Out<c_uint>) {
        codec(target, &percent, &period_us)
    }
    fn nvmlDeviceGetDecoderUtilization(target, percent: Out<c_uint>, period_us: Out<c_uint>) {
        codec(target, &percent, &period_us)
    }
    fn nvmlDeviceGetJpgUtilization(target, percent: Out<c_uint>, period_us: Out<c_uint>) {
        codec(target, &percent, &period_us)
    }
    fn nvmlDeviceGetOfaUtilization(target, percent: Out<c_uint>, period_us: Out<c_uint>) {
        codec(target, &percent, &period_us)
    }
    fn nvmlDeviceGetProcessUtilization(target, list: Out<ProcessSample>, count: Out<c_uint>, since_us: u64) {
        samples(target, &list, &count, since_us)
    }
    fn nvmlDeviceGetProcessesUtilizationInfo(target, list: Out<ProcessesUtilization>) {
        infos(target, &list)
    }
}

fn codec(target: &Target<'_>, percent: &Out<c_uint>, period_us: &Out<c_uint>) -> Answer {
    target.unpartitioned()?;
    percent.set(0)?;
    period_us.set(CODEC_PERIOD_US)
}

/// Processes that computed since that stamp.
fn busy<'a>(target: &Target<'a>, since_us: u64) -> Vec<&'a Process> {
    let fresh = since_us < target.wall_us();
    target.gpu.listed(target.at_ms, target.place).filter(|p| fresh && p.utilization > 0).collect()
}

/// The older call: an unset array asks for the size, and no samples is NOT_FOUND.
fn samples(target: &Target<'_>, list: &Out<ProcessSample>, count: &Out<c_uint>, since_us: u64) -> Answer {
    target.unpartitioned()?;
    let room = count.get()?;
    if list.is_null() || room == 0 {
        count.set(RING)?;
        return Err(Code::INSUFFICIENT_SIZE);
    }
    let busy = busy(target, since_us);
    let count_now = (busy.len() as c_uint).min(room);
    count.set(count_now)?;
    if busy.is_empty() {
        return Err(Code::NOT_FOUND);
    }
    let at_us = target.wall_us();
    let record = |p: &Process| ProcessSample {
        pid: p.pid,
        at_us,
        sm: p.utilization,
        memory: p.utilization / 3,
        encoder: 0,
        decoder: 0,
    };
    list.fill(busy.into_iter().map(record), count_now as usize)
}

/// The newer call, which serves cards where the older fails.
fn infos(target: &Target<'_>, list: &Out<ProcessesUtilization>) -> Answer {
    target.unpartitioned()?;
    let mut asked = list.get()?;
    if asked.version != version_of::<ProcessesUtilization>(1) {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    let busy = busy(target, asked.since_us);
    let room = asked.count as usize;
    asked.count = busy.len() as c_uint;
    list.set(asked)?;
    let at_us = target.wall_us();
    let record = |p: &Process| ProcessUtilization {
        at_us,
        pid: p.pid,
        sm: p.utilization,
        memory: p.utilization / 3,
        encoder: 0,
        decoder: 0,
        jpeg: 0,
        ofa: 0,
    };
    match busy.len() {
        0 => Err(Code::NOT_FOUND),
        length if length > room => Err(Code::INSUFFICIENT_SIZE),
        _ => asked.list().fill(busy.into_iter().map(record), room),
    }
}
