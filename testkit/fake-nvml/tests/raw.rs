//! What the wrapper hides: the calls as C makes them.

#![allow(clippy::unwrap_used, reason = "a world that cannot be set up fails its test")]
#![allow(unsafe_code, reason = "raw NVML calls on buffers of the test's own")]

use std::mem::MaybeUninit;

use ebbtide_core::Bytes;
use ebbtide_core::units::MIB;
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};
use nvidia_ml::SYMBOLS;
use nvml_wrapper_sys::bindings as nvml;

/// The library, opened, and its first device.
struct Raw {
    lib: nvml::NvmlLib,
    device: nvml::nvmlDevice_t,
    _driver: FakeDriver,
}

fn open(scenario: &Scenario) -> Raw {
    let driver = FakeDriver::new(scenario).unwrap();
    let mut device = std::ptr::null_mut();
    // SAFETY: the library is ours and its calls have the signatures of the bindings.
    let lib = unsafe {
        let lib = nvml::NvmlLib::new(driver.library_path()).unwrap();
        assert_eq!(lib.nvmlInit_v2(), 0);
        assert_eq!(lib.nvmlDeviceGetHandleByIndex_v2(0, &raw mut device), 0);
        lib
    };
    Raw { lib, device, _driver: driver }
}

fn crowd(count: u32) -> Scenario {
    let gpu = (0..count)
        .fold(Gpu::h100(0), |gpu, i| gpu.process(Process::compute(1000 + i, Curve::Constant(Bytes(MIB)))));
    Scenario::new().gpu(gpu)
}

#[test]
fn every_named_symbol_is_exported() {
    let raw = open(&crowd(0));
    let missing: Vec<_> = SYMBOLS
        .iter()
        // SAFETY: the symbol is only looked up.
        .filter(|name| unsafe { raw.lib.__library.get::<unsafe extern "C" fn()>(name.as_bytes()).is_err() })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(SYMBOLS.is_sorted());
}

#[test]
fn a_wrong_version_is_a_missing_function() {
    let raw = open(&crowd(1));
    let mut memory = nvml::nvmlMemory_v2_t { version: 2, total: 0, reserved: 0, free: 0, used: 0 };
    // SAFETY: the record is the bindings' own.
    assert_eq!(unsafe { raw.lib.nvmlDeviceGetMemoryInfo_v2(raw.device, &raw mut memory) }, 13);
    memory.version = 0x0200_0028;
    // SAFETY: as above.
    assert_eq!(unsafe { raw.lib.nvmlDeviceGetMemoryInfo_v2(raw.device, &raw mut memory) }, 0);
    assert_eq!((memory.used, memory.reserved), (MIB, 600 * MIB));
}

#[test]
fn the_first_version_counts_the_reserve_as_used() {
    let raw = open(&crowd(1));
    let mut memory = MaybeUninit::uninit();
    // SAFETY: the record is the bindings' own, and filled on success.
    let memory: nvml::nvmlMemory_t = unsafe {
        assert_eq!(raw.lib.nvmlDeviceGetMemoryInfo(raw.device, memory.as_mut_ptr()), 0);
        memory.assume_init()
    };
    assert_eq!(memory.used, 601 * MIB);
    assert_eq!(memory.used + memory.free, memory.total);
}

#[test]
fn lists_count_in_and_out() {
    let raw = open(&crowd(950));
    let mut count = 0;
    // SAFETY: a count of zero lets the list be null.
    let code = unsafe {
        raw.lib.nvmlDeviceGetComputeRunningProcesses_v3(raw.device, &raw mut count, std::ptr::null_mut())
    };
    assert_eq!((code, count), (7, 950));
    let blank = nvml::nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut list = vec![blank; 1000];
    count = 1000;
    // SAFETY: the list has as many records as the count says.
    let code = unsafe {
        raw.lib.nvmlDeviceGetComputeRunningProcesses_v3(raw.device, &raw mut count, list.as_mut_ptr())
    };
    assert_eq!((code, count), (0, 950));
    assert_eq!((list[949].pid, list[949].usedGpuMemory, list[949].gpuInstanceId), (1949, MIB, u32::MAX));
    assert_eq!(list[950].pid, 0, "nothing is written behind the list");
}

#[test]
fn an_empty_list_succeeds() {
    let raw = open(&crowd(0));
    let mut count = 0;
    // SAFETY: a count of zero lets the list be null.
    let code = unsafe {
        raw.lib.nvmlDeviceGetComputeRunningProcesses_v3(raw.device, &raw mut count, std::ptr::null_mut())
    };
    assert_eq!((code, count), (0, 0));
}

#[test]
fn drivers_of_the_535_branch_write_wide_records() {
    let raw = open(&crowd(2).driver("535.86.10"));
    let blank = nvml::nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut list = vec![blank; 4];
    let mut count = 2;
    // SAFETY: two records of 32 bytes fit in four of 24.
    let code = unsafe {
        raw.lib.nvmlDeviceGetComputeRunningProcesses_v3(raw.device, &raw mut count, list.as_mut_ptr())
    };
    assert_eq!((code, count), (0, 2));
    assert_eq!(list[0].pid, 1000);
    assert_ne!(list[1].pid, 1001, "the second record does not start where the caller thinks");
    let raw = open(&crowd(2).driver("535.98"));
    // SAFETY: the call fails before it writes.
    let code = unsafe {
        raw.lib.nvmlDeviceGetComputeRunningProcesses_v3(raw.device, &raw mut count, list.as_mut_ptr())
    };
    assert_eq!(code, 13);
}

#[test]
fn nothing_is_served_before_the_first_and_after_the_last_client() {
    let raw = open(&crowd(0));
    let mut count = 0;
    // SAFETY: plain calls on a library that is loaded.
    unsafe {
        assert_eq!(raw.lib.nvmlInit_v2(), 0);
        assert_eq!(raw.lib.nvmlShutdown(), 0);
        assert_eq!(raw.lib.nvmlDeviceGetCount_v2(&raw mut count), 0, "one client is left");
        assert_eq!(raw.lib.nvmlShutdown(), 0);
        assert_eq!(raw.lib.nvmlDeviceGetCount_v2(&raw mut count), 1);
        assert_eq!(raw.lib.nvmlShutdown(), 1);
    }
}

#[test]
fn idle_utilisation_is_not_found() {
    let raw = open(&crowd(1));
    let mut count = 0;
    // SAFETY: an unset list asks for the size.
    let code = unsafe {
        raw.lib.nvmlDeviceGetProcessUtilization(raw.device, std::ptr::null_mut(), &raw mut count, 0)
    };
    assert_eq!((code, count), (7, 100));
    let mut list = vec![MaybeUninit::<nvml::nvmlProcessUtilizationSample_t>::uninit(); 100];
    // SAFETY: the list has as many records as the count says.
    let code = unsafe {
        raw.lib.nvmlDeviceGetProcessUtilization(raw.device, list.as_mut_ptr().cast(), &raw mut count, 0)
    };
    assert_eq!((code, count), (6, 0));
}
