//! The driver's own memory of processes.

use std::ffi::c_uint;

use crate::abi::{AccountingStats, NOT_AVAILABLE, Out, hand_out};
use crate::code::Code;
use crate::entry::device_calls;

/// Processes that the driver's ring remembers.
const RING: c_uint = 4000;

device_calls! {
    fn nvmlDeviceGetAccountingMode(target, mode: Out<c_uint>) {
        target.unpartitioned()?;
        mode.set(1)
    }
    fn nvmlDeviceGetAccountingBufferSize(_target, size: Out<c_uint>) { size.set(RING) }
    fn nvmlDeviceGetAccountingPids(target, count: Out<c_uint>, pids: Out<c_uint>) {
        target.unpartitioned()?;
        let started = target.gpu.processes.iter().filter(|p| p.start_ms <= target.at_ms);
        hand_out(&count, &pids, &started.map(|p| p.pid).collect::<Vec<_>>())
    }
    fn nvmlDeviceGetAccountingStats(target, pid: c_uint, stats: Out<AccountingStats>) {
        target.unpartitioned()?;
        let known = target.gpu.processes.iter().find(|p| p.pid == pid && p.start_ms <= target.at_ms);
        let process = known.ok_or(Code::NOT_FOUND)?;
        let running = process.alive_at(target.at_ms);
        let last_ms = process.exit_ms.map_or(target.at_ms, |exit| exit.min(target.at_ms));
        stats.set(AccountingStats {
            gpu_utilization: process.utilization,
            memory_utilization: process.utilization / 3,
            // The last value stands for the maximum, which it is for whatever only grows.
            max_memory: process.memory_at(last_ms).map_or(NOT_AVAILABLE, |bytes| bytes.0),
            time_ms: if running { 0 } else { last_ms.saturating_sub(process.start_ms).max(0) as u64 },
            start_us: (target.scenario.epoch_ms.saturating_add(process.start_ms).max(0) as u64).saturating_mul(1000),
            running: running.into(),
            reserved: [0; 5],
        })
    }
}
