//! Process lists, in one call each with a buffer that is kept: asking for the length first would double the time
//! for which the driver's lock is held.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};

use super::super::fault::Fault;
use super::super::list::{ListKind, Record};
use super::{Driver, Handle};

/// Which layout of process records the driver is trusted to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// `_v3`, 24 bytes.
    V3,
    /// `_v2`, 24 bytes: for drivers whose `_v3` wrote 32.
    V2,
}

impl Layout {
    /// Drivers 535.43 to 535.86 wrote 32 bytes a record from `_v3`, and 535.98 took it away for a while
    /// (github.com/XuehaiPan/nvitop, issues 79, 89 and 94).
    pub(super) fn of(driver_version: &str) -> Self {
        let mut numbers = driver_version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        match (numbers.next(), numbers.next()) {
            (Some(535), Some(43..98)) => Self::V2,
            _ => Self::V3,
        }
    }
}

/// Room for the first list; the buffer grows to what the driver asks for and stays.
const FIRST_ROOM: usize = 64;

/// The most records asked for. The driver caps a list at 950 PIDs (`NV2080_CTRL_GPU_GET_PIDS`).
const MAX_ROOM: usize = 8_192;

/// A list that has outgrown its buffer this often within one read is given up until the next.
const LIST_TRIES: usize = 4;

impl Driver {
    /// One list, in one call where the kept buffer is large enough. [`Fault::NotFound`] is an empty list.
    ///
    /// # Errors
    /// [`Fault::WrongVersion`] where the records are those of no known layout.
    pub(in super::super) fn processes(
        &mut self,
        handle: Handle,
        kind: ListKind,
    ) -> Result<impl Iterator<Item = Record> + '_, Fault> {
        let mut answer = self.list_once(handle, kind);
        let absent = kind == ListKind::Compute && answer == Err(Fault::WrongVersion);
        let garbled = answer.is_ok_and(|count| !self.is_plausible(count));
        if self.layout == Layout::V3 && (absent || garbled) {
            self.layout = Layout::V2;
            answer = self.list_once(handle, kind);
        }
        let count = answer?;
        if !self.is_plausible(count) {
            return Err(Fault::WrongVersion);
        }
        Ok(self.records[..count].iter().map(record))
    }

    fn is_plausible(&self, count: usize) -> bool {
        self.records[..count].iter().all(|r| record(r).is_plausible())
    }

    fn list_once(&mut self, handle: Handle, kind: ListKind) -> Result<usize, Fault> {
        let mut records = std::mem::take(&mut self.records);
        let mut room = slots_asked(records.len()).max(FIRST_ROOM);
        let layout = self.layout;
        let mut outcome = Err(Fault::InsufficientSize);
        for _ in 0..LIST_TRIES {
            records.resize(slots_kept(room), EMPTY);
            let (answer, count) = self.fetch(handle, (kind, layout), room, &mut records);
            outcome = answer.map(|()| count.min(room));
            if outcome != Err(Fault::InsufficientSize) || room == MAX_ROOM {
                break;
            }
            room = (count + FIRST_ROOM).max(room * 2).min(MAX_ROOM);
        }
        self.records = records;
        if outcome == Err(Fault::NotFound) { Ok(0) } else { outcome }
    }

    fn fetch(
        &mut self,
        handle: Handle,
        (kind, layout): (ListKind, Layout),
        room: usize,
        records: &mut [nvmlProcessInfo_t],
    ) -> (Result<(), Fault>, usize) {
        let mut count = u32::try_from(room).unwrap_or(0);
        let answer = self.on(handle, |d| {
            let call = list_call(d, kind, layout)?;
            // SAFETY: a live handle (checked by `on`); `records` has `slots_kept(room)` slots of 24 bytes, which is
            // room for `count` records even of the 32 bytes that some drivers write.
            nvml_try(unsafe { call(d.handle(), &raw mut count, records.as_mut_ptr()) })
        });
        (answer, count as usize)
    }
}

const EMPTY: nvmlProcessInfo_t =
    nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };

/// Slots of 24 bytes that hold `room` records of 32.
const fn slots_kept(room: usize) -> usize {
    (room * 32).div_ceil(size_of::<nvmlProcessInfo_t>())
}

/// The records of 32 bytes that fit into `kept` slots.
const fn slots_asked(kept: usize) -> usize {
    kept * size_of::<nvmlProcessInfo_t>() / 32
}

const fn record(raw: &nvmlProcessInfo_t) -> Record {
    Record { pid: raw.pid, bytes: raw.usedGpuMemory }
}

type ListCall = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

fn list_call(device: &Device<'_>, kind: ListKind, layout: Layout) -> Result<ListCall, NvmlError> {
    let lib = device.nvml().lib();
    let symbol = match (kind, layout) {
        (ListKind::Compute, Layout::V3) => &lib.nvmlDeviceGetComputeRunningProcesses_v3,
        (ListKind::Compute, Layout::V2) => &lib.nvmlDeviceGetComputeRunningProcesses_v2,
        (ListKind::Graphics, Layout::V3) => &lib.nvmlDeviceGetGraphicsRunningProcesses_v3,
        (ListKind::Graphics, Layout::V2) => &lib.nvmlDeviceGetGraphicsRunningProcesses_v2,
        (ListKind::Mps, Layout::V3) => &lib.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        (ListKind::Mps, Layout::V2) => &lib.nvmlDeviceGetMPSComputeRunningProcesses_v2,
    };
    nvml_sym(symbol.as_ref()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_that_wrote_longer_records_are_guarded() {
        let guarded = |version| Layout::of(version) == Layout::V2;
        assert!(guarded("535.43.02") && guarded("535.54.03") && guarded("535.97"));
        assert!(!guarded("535.42") && !guarded("535.98") && !guarded("535.104.05") && !guarded("580.82.07"));
        assert!(!guarded("") && !guarded("garbage"));
    }

    #[test]
    fn the_buffer_always_has_room_for_the_longer_records() {
        for room in 1..2_000 {
            assert!(slots_kept(room) * size_of::<nvmlProcessInfo_t>() >= room * 32);
            assert!(slots_asked(slots_kept(room)) >= room);
        }
    }
}
