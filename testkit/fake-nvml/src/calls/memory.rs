//! Memory of a device.

use ebbtide_core::Bytes;

use crate::abi::{Memory, MemoryV2, NOT_AVAILABLE, Out, ProtectedSizes, version_of};
use crate::code::{Answer, Code};
use crate::entry::device_calls;
use crate::target::Target;

/// BAR1 window of a data-centre card whose every byte is mapped: the next power of two above 80 GiB.
const BAR1: Bytes = Bytes(128 << 30);
/// What a driver that has just started maps there.
const BAR1_USED: Bytes = Bytes(2 << 20);

device_calls! {
    fn nvmlDeviceGetMemoryInfo(target, memory: Out<Memory>) {
        let Account { total, reserved, used, free } = account(target)?;
        memory.set(Memory { total, free, used: used.saturating_add(reserved) })
    }
    fn nvmlDeviceGetMemoryInfo_v2(target, memory: Out<MemoryV2>) {
        version_two(target, &memory)
    }
    fn nvmlDeviceGetBAR1MemoryInfo(target, memory: Out<Memory>) {
        if target.gpu.unified {
            return Err(Code::NOT_SUPPORTED);
        }
        memory.set(Memory { total: BAR1.0, free: BAR1.saturating_sub(BAR1_USED).0, used: BAR1_USED.0 })
    }
    fn nvmlDeviceGetConfComputeMemSizeInfo(target, sizes: Out<ProtectedSizes>) {
        let total = account(target)?.total;
        sizes.set(ProtectedSizes { protected_kib: 0, unprotected_kib: total / 1024 })
    }
    fn nvmlDeviceGetConfComputeProtectedMemoryUsage(target, memory: Out<Memory>) {
        account(target)?;
        memory.set(Memory { total: 0, free: 0, used: 0 })
    }
}

/// What the device calls are made of, in bytes.
struct Account {
    total: u64,
    reserved: u64,
    /// Without the reserve.
    used: u64,
    free: u64,
}

/// Adds up the device. A card cannot be fuller than full, whatever the scenario's curves say.
fn account(target: &Target<'_>) -> Result<Account, Code> {
    let gpu = target.gpu;
    if gpu.unified {
        return Err(Code::NOT_SUPPORTED);
    }
    if gpu.memory_not_available {
        return Ok(Account {
            total: NOT_AVAILABLE,
            reserved: NOT_AVAILABLE,
            used: NOT_AVAILABLE,
            free: NOT_AVAILABLE,
        });
    }
    let (total, reserved) =
        target.mig.map_or((gpu.total, gpu.reserved), |instance| (instance.total, Bytes::ZERO));
    let room = total.saturating_sub(reserved);
    let used = gpu.used_at(target.at_ms, target.place).min(room);
    Ok(Account { total: total.0, reserved: reserved.0, used: used.0, free: room.saturating_sub(used).0 })
}

/// The v2 record. A wrong version is answered with FUNCTION_NOT_FOUND, as drivers do that have the symbol
/// (nvidia-settings issue 78).
fn version_two(target: &Target<'_>, memory: &Out<MemoryV2>) -> Answer {
    let version = memory.cast::<u32>().get()?;
    if version != version_of::<MemoryV2>(2) || !target.scenario.has_memory_v2() {
        return Err(Code::FUNCTION_NOT_FOUND);
    }
    let Account { total, reserved, used, free } = account(target)?;
    let extra = if target.scenario.v2_used_includes_reserved { reserved } else { 0 };
    memory.set(MemoryV2 { version, total, reserved, free, used: used.saturating_add(extra) })
}
