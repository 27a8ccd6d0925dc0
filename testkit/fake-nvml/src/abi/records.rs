//! Records as NVML lays them out on a 64-bit machine.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

use super::{Handle, Out};

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessV1 {
    pub(crate) pid: c_uint,
    pub(crate) used: c_ulonglong,
}

/// `nvmlProcessInfo_t` since v2.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessV2 {
    pub(crate) pid: c_uint,
    pub(crate) used: c_ulonglong,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

/// `nvmlProcessDetail_v1_t`, and what `_v3` lists of drivers 535.43 up to 535.97 wrote.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessDetail {
    pub(crate) pid: c_uint,
    pub(crate) used: c_ulonglong,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
    pub(crate) protected: c_ulonglong,
}

/// `nvmlProcessDetailList_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessDetailList {
    pub(crate) version: c_uint,
    pub(crate) mode: c_uint,
    pub(crate) count: c_uint,
    pub(crate) list: *mut ProcessDetail,
}

impl ProcessDetailList {
    /// The caller's array.
    pub(crate) fn list(&self) -> Out<ProcessDetail> {
        Out::to(self.list)
    }
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessSample {
    pub(crate) pid: c_uint,
    pub(crate) at_us: c_ulonglong,
    pub(crate) sm: c_uint,
    pub(crate) memory: c_uint,
    pub(crate) encoder: c_uint,
    pub(crate) decoder: c_uint,
}

/// `nvmlProcessUtilizationInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessUtilization {
    pub(crate) at_us: c_ulonglong,
    pub(crate) pid: c_uint,
    pub(crate) sm: c_uint,
    pub(crate) memory: c_uint,
    pub(crate) encoder: c_uint,
    pub(crate) decoder: c_uint,
    pub(crate) jpeg: c_uint,
    pub(crate) ofa: c_uint,
}

/// `nvmlProcessesUtilizationInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProcessesUtilization {
    pub(crate) version: c_uint,
    pub(crate) count: c_uint,
    pub(crate) since_us: c_ulonglong,
    pub(crate) list: *mut ProcessUtilization,
}

impl ProcessesUtilization {
    /// The caller's array.
    pub(crate) fn list(&self) -> Out<ProcessUtilization> {
        Out::to(self.list)
    }
}

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// `nvmlPciInfo_t` of v3; v1 and v2 end before `bus_id` as far as anybody reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Pci {
    pub(crate) legacy: PciLegacy,
    pub(crate) bus_id: [c_char; 32],
}

/// The part of `nvmlPciInfo_t` that all versions share.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PciLegacy {
    pub(crate) bus_id: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) device_id: c_uint,
    pub(crate) subsystem_id: c_uint,
}

/// `nvmlPciInfoExt_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PciExt {
    pub(crate) version: c_uint,
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) device_id: c_uint,
    pub(crate) subsystem_id: c_uint,
    pub(crate) base_class: c_uint,
    pub(crate) sub_class: c_uint,
    pub(crate) bus_id: [c_char; 32],
}

/// `nvmlTemperature_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Temperature {
    pub(crate) version: c_uint,
    pub(crate) sensor: c_uint,
    pub(crate) celsius: c_int,
}

/// `nvmlFieldValue_t`; the value is a union, which we fill from its low end.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FieldValue {
    pub(crate) field: c_uint,
    pub(crate) scope: c_uint,
    pub(crate) at_us: i64,
    pub(crate) latency_us: i64,
    pub(crate) kind: c_uint,
    pub(crate) code: c_uint,
    pub(crate) value: c_ulonglong,
}

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventData {
    pub(crate) device: Handle,
    pub(crate) kind: c_ulonglong,
    pub(crate) data: c_ulonglong,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

/// `nvmlRowRemapperHistogramValues_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RemapperHistogram {
    pub(crate) max: c_uint,
    pub(crate) high: c_uint,
    pub(crate) partial: c_uint,
    pub(crate) low: c_uint,
    pub(crate) none: c_uint,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) multiprocessors: c_uint,
    pub(crate) engines: [c_uint; 5],
    pub(crate) gpu_slices: c_uint,
    pub(crate) compute_slices: c_uint,
    pub(crate) memory_mib: c_ulonglong,
}

/// `nvmlAccountingStats_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccountingStats {
    pub(crate) gpu_utilization: c_uint,
    pub(crate) memory_utilization: c_uint,
    pub(crate) max_memory: c_ulonglong,
    pub(crate) time_ms: c_ulonglong,
    pub(crate) start_us: c_ulonglong,
    pub(crate) running: c_uint,
    pub(crate) reserved: [c_uint; 5],
}

/// `nvmlConfComputeMemSizeInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProtectedSizes {
    pub(crate) protected_kib: c_ulonglong,
    pub(crate) unprotected_kib: c_ulonglong,
}

/// `nvmlEventSet_t`: the number of a set, dressed as a pointer.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SetHandle(pub(crate) usize);

#[cfg(test)]
mod layout {
    use super::*;
    use crate::abi::version_of;
    use nvml_wrapper_sys::bindings as nvml;

    macro_rules! same_size {
        ($($ours:ty = $theirs:ty),* $(,)?) => {
            $(const _: () = assert!(size_of::<$ours>() == size_of::<$theirs>());)*
        };
    }

    same_size! {
        Handle = nvml::nvmlDevice_t,
        SetHandle = nvml::nvmlEventSet_t,
        Memory = nvml::nvmlMemory_t,
        MemoryV2 = nvml::nvmlMemory_v2_t,
        Memory = nvml::nvmlBAR1Memory_t,
        ProcessV1 = nvml::nvmlProcessInfo_v1_t,
        ProcessV2 = nvml::nvmlProcessInfo_t,
        ProcessDetail = nvml::nvmlProcessDetail_v1_t,
        ProcessDetailList = nvml::nvmlProcessDetailList_t,
        ProcessSample = nvml::nvmlProcessUtilizationSample_t,
        ProcessUtilization = nvml::nvmlProcessUtilizationInfo_v1_t,
        ProcessesUtilization = nvml::nvmlProcessesUtilizationInfo_t,
        Utilization = nvml::nvmlUtilization_t,
        Pci = nvml::nvmlPciInfo_t,
        PciExt = nvml::nvmlPciInfoExt_t,
        Temperature = nvml::nvmlTemperature_t,
        FieldValue = nvml::nvmlFieldValue_t,
        EventData = nvml::nvmlEventData_t,
        RemapperHistogram = nvml::nvmlRowRemapperHistogramValues_t,
        Attributes = nvml::nvmlDeviceAttributes_t,
        AccountingStats = nvml::nvmlAccountingStats_t,
        ProtectedSizes = nvml::nvmlConfComputeMemSizeInfo_t,
    }

    const _: () = assert!(version_of::<MemoryV2>(2) == 0x0200_0028);
    const _: () = assert!(version_of::<ProcessDetailList>(1) == 0x0100_0018);
    const _: () = assert!(version_of::<ProcessesUtilization>(1) == 0x0100_0018);
    const _: () = assert!(version_of::<Temperature>(1) == 0x0100_000c);
}
