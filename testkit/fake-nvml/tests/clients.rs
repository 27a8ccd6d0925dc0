//! The library as nvml-wrapper loads it: by path, through the dynamic loader.

#![allow(clippy::unwrap_used, reason = "a world that cannot be set up fails its test")]

use std::time::Duration;

use ebbtide_core::units::{GIB, MIB};
use ebbtide_core::{ByteRate, Bytes};
use ebbtide_testkit::scenario::wall_ms;
use ebbtide_testkit::{
    Curve, Ecc, Event, FakeDriver, Fault, Gpu, Live, Outage, Process, ProcessKind, Scenario,
};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;

fn open(driver: &FakeDriver) -> Nvml {
    Nvml::builder().lib_path(driver.library_path().as_os_str()).init().unwrap()
}

fn constant(mib: u64) -> Curve {
    Curve::Constant(Bytes::from_mib(mib))
}

/// Two GPUs; the first with a process in each list and memory that nobody owns.
fn busy() -> Scenario {
    Scenario::new()
        .gpu(
            Gpu::h100(0)
                .process(Process::compute(11, constant(1000)))
                .process(Process::graphics(12, constant(20)))
                .process(Process::compute(13, constant(300)).kind(ProcessKind::Mps))
                .unattributed(constant(7)),
        )
        .gpu(Gpu::h100(1))
}

#[test]
fn a_card_adds_up() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.95.05");
    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.name().unwrap(), "NVIDIA H100 80GB HBM3");
    assert_eq!(gpu.pci_info().unwrap().bus_id, "00000000:01:00.0");
    let memory = gpu.memory_info().unwrap();
    assert_eq!((memory.total, memory.used, memory.reserved), (80 * GIB, 1327 * MIB, 600 * MIB));
    assert_eq!(memory.free + memory.used + memory.reserved, memory.total);
    let again = nvml.device_by_uuid(gpu.uuid().unwrap()).unwrap();
    assert_eq!(again.index().unwrap(), 0);
    assert_eq!(gpu.temperature(nvml_wrapper::enum_wrappers::device::TemperatureSensor::Gpu).unwrap(), 54);
}

#[test]
fn each_list_shows_its_processes() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    let pids = |list: Vec<nvml_wrapper::struct_wrappers::device::ProcessInfo>| {
        list.into_iter().map(|p| (p.pid, p.used_gpu_memory)).collect::<Vec<_>>()
    };
    let bytes = |mib: u64| UsedGpuMemory::Used(mib * MIB);
    assert_eq!(pids(gpu.running_compute_processes().unwrap()), [(11, bytes(1000))]);
    assert_eq!(pids(gpu.running_graphics_processes().unwrap()), [(12, bytes(20))]);
    assert_eq!(pids(gpu.mps_running_compute_processes().unwrap()), [(13, bytes(300))]);
    assert!(pids(nvml.device_by_index(1).unwrap().running_compute_processes().unwrap()).is_empty());
}

#[test]
fn memory_grows_with_the_wall_clock() {
    let start = wall_ms();
    let leak = Curve::linear(Bytes(GIB), ByteRate(1e6));
    let scenario = Scenario { epoch_ms: start - 60_000, ..Scenario::new() }
        .gpu(Gpu::h100(0).process(Process::compute(7, leak)));
    let driver = FakeDriver::new(&scenario).unwrap();
    let nvml = open(&driver);
    let grown = nvml.device_by_index(0).unwrap().memory_info().unwrap().used - GIB;
    let elapsed = (wall_ms() - scenario.epoch_ms) as u64;
    assert!((60_000_000..=elapsed * 1000).contains(&grown), "{grown} bytes after {elapsed} ms");
}

#[test]
fn all_ones_means_unknown() {
    let gpu = Gpu { memory_not_available: true, ..Gpu::h100(0) };
    let scenario = Scenario::new().gpu(gpu.process(Process::compute(7, Curve::NotAvailable)));
    let driver = FakeDriver::new(&scenario).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    let listed = gpu.running_compute_processes().unwrap();
    assert!(matches!(listed[0].used_gpu_memory, UsedGpuMemory::Unavailable));
    assert_eq!(gpu.memory_info().unwrap().used, u64::MAX);
}

#[test]
fn unified_memory_is_known_by_process_only() {
    let scenario = Scenario::new().gpu(Gpu::gb10(0).process(Process::compute(7, constant(512))));
    let driver = FakeDriver::new(&scenario).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    assert!(matches!(gpu.memory_info(), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.bar1_memory_info(), Err(NvmlError::NotSupported)));
    assert_eq!(gpu.running_compute_processes().unwrap().len(), 1);
}

#[test]
fn instances_have_memory_of_their_own() {
    let gpu = Gpu::h100(0)
        .mig("1g.10gb", Bytes::from_mib(9856))
        .mig("2g.20gb", Bytes::from_mib(19_712))
        .process(Process::compute(7, constant(100)).in_mig(0))
        .process(Process::compute(8, constant(200)).in_mig(1));
    let driver = FakeDriver::new(&Scenario::new().gpu(gpu)).unwrap();
    let nvml = open(&driver);
    let parent = nvml.device_by_index(0).unwrap();
    assert!(matches!(parent.utilization_rates(), Err(NvmlError::NotSupported)));
    assert_eq!(parent.running_compute_processes().unwrap().len(), 2);
    let second = parent.mig_device_by_index(1).unwrap();
    assert_eq!(second.name().unwrap(), "NVIDIA H100 80GB HBM3 MIG 2g.20gb");
    assert!(second.uuid().unwrap().starts_with("MIG-"));
    let memory = second.memory_info().unwrap();
    assert_eq!((memory.total, memory.used), (19_712 * MIB, 200 * MIB));
    let listed = second.running_compute_processes().unwrap();
    assert_eq!((listed[0].pid, listed[0].gpu_instance_id), (8, Some(2)));
    assert!(matches!(parent.mig_device_by_index(2), Err(NvmlError::NotFound)));
}

#[test]
fn a_partitioned_parent_may_be_denied() {
    let gpu = Gpu { mig_parent_denied: true, ..Gpu::h100(0).mig("1g.10gb", Bytes(GIB)) };
    let driver = FakeDriver::new(&Scenario::new().gpu(gpu)).unwrap();
    let nvml = open(&driver);
    let parent = nvml.device_by_index(0).unwrap();
    assert!(matches!(parent.running_compute_processes(), Err(NvmlError::NoPermission)));
    assert!(parent.mig_device_by_index(0).unwrap().running_compute_processes().unwrap().is_empty());
}

#[test]
fn one_lost_gpu_leaves_the_other() {
    let driver = FakeDriver::new(&busy().fault(Fault::code(15, "*").gpu(1))).unwrap();
    let nvml = open(&driver);
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_by_index(0).unwrap().memory_info().unwrap().used, 1327 * MIB);
}

#[test]
fn a_gpu_lost_later_fails_by_its_old_handle() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(1).unwrap();
    gpu.memory_info().unwrap();
    driver.set_live(&Live::default().fault(Fault::code(15, "*").gpu(1))).unwrap();
    assert!(matches!(gpu.memory_info(), Err(NvmlError::GpuLost)));
    driver.set_live(&Live::default()).unwrap();
    gpu.memory_info().unwrap();
}

#[test]
fn handles_of_a_reloaded_driver_are_stale() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    gpu.memory_info().unwrap();
    let gone = Outage { until_ms: None, ..Outage::between(0, 0) };
    driver.set(&busy().outage(gone)).unwrap();
    assert!(matches!(gpu.memory_info(), Err(NvmlError::Uninitialized)));
    assert!(matches!(
        Nvml::builder().lib_path(driver.library_path().as_os_str()).init(),
        Err(NvmlError::DriverNotLoaded)
    ));
    driver.set(&busy().outage(Outage::between(0, 0))).unwrap();
    assert!(matches!(gpu.memory_info(), Err(NvmlError::Uninitialized)), "the library was not opened again");
    let fresh = open(&driver);
    assert!(matches!(gpu.memory_info(), Err(NvmlError::Uninitialized)), "the handle is of the old driver");
    assert_eq!(fresh.device_by_index(0).unwrap().memory_info().unwrap().used, 1327 * MIB);
}

#[test]
fn without_a_driver_nothing_opens() {
    let driver = FakeDriver::new(&Scenario::new().outage(Outage::absent())).unwrap();
    let opened = Nvml::builder().lib_path(driver.library_path().as_os_str()).init();
    assert!(matches!(opened, Err(NvmlError::DriverNotLoaded)));
}

#[test]
fn a_mismatched_driver_refuses_new_clients() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    driver.set(&busy().fault(Fault::code(18, "nvmlInit*"))).unwrap();
    let second = Nvml::builder().lib_path(driver.library_path().as_os_str()).init();
    assert!(matches!(second, Err(NvmlError::LibRmVersionMismatch)));
    assert_eq!(nvml.device_count().unwrap(), 2, "who was in stays in");
}

#[test]
fn a_test_allocates_through_the_live_file() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(1).unwrap();
    for mib in [10, 500, 20] {
        driver.set_live(&Live::default().process(1, 4242, Bytes::from_mib(mib))).unwrap();
        assert_eq!(gpu.memory_info().unwrap().used, mib * MIB);
    }
    driver.set_live(&Live::default()).unwrap();
    assert_eq!(gpu.memory_info().unwrap().used, 0);
}

#[test]
fn a_hanging_call_holds_up_its_caller_only() {
    let hang = Fault::hang("nvmlDeviceGetMemoryInfo*").gpu(0);
    let driver = FakeDriver::new(&busy().fault(hang)).unwrap();
    let nvml = open(&driver);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let used = nvml.device_by_index(0).unwrap().memory_info().unwrap().used;
            sender.send(used).unwrap();
        });
        for _ in 0..100 {
            nvml.device_by_index(1).unwrap().memory_info().unwrap();
        }
        assert!(receiver.try_recv().is_err(), "the other call still hangs");
        driver.set(&busy()).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), 1327 * MIB);
    });
}

#[test]
fn a_delayed_call_answers_rightly() {
    let driver = FakeDriver::new(&busy().fault(Fault::delay_ms(50, "nvmlDeviceGetMemoryInfo_v2"))).unwrap();
    let nvml = open(&driver);
    let before = std::time::Instant::now();
    assert_eq!(nvml.device_by_index(0).unwrap().memory_info().unwrap().used, 1327 * MIB);
    assert!(before.elapsed() >= Duration::from_millis(50));
}

#[test]
fn any_code_on_any_call() {
    for (code, call) in [(999, "nvmlDeviceGetName"), (4, "nvmlDeviceGetName"), (13, "nvmlDeviceGetN*")] {
        let driver = FakeDriver::new(&busy().fault(Fault::code(code, call).gpu(0))).unwrap();
        let nvml = open(&driver);
        let error = nvml.device_by_index(0).unwrap().name().unwrap_err();
        let expected = match code {
            999 => matches!(error, NvmlError::Unknown),
            4 => matches!(error, NvmlError::NoPermission),
            _ => matches!(error, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound),
        };
        assert!(expected, "{code}: {error:?}");
        nvml.device_by_index(1).unwrap().name().unwrap();
    }
}

#[test]
fn waiting_for_events_blocks_until_one_comes() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(1).unwrap();
    let set = nvml.create_event_set().unwrap();
    let set = gpu.register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap();
    assert!(matches!(set.wait(30), Err(NvmlError::Timeout)));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let event = set.wait(10_000).unwrap();
            sender.send((event.device.index().unwrap(), event.event_data)).unwrap();
            assert!(matches!(set.wait(0), Err(NvmlError::Timeout)), "an event comes once");
        });
        let at_ms = driver_time(&driver);
        driver.set_live(&Live::default().event(Event::xid(at_ms, 1, 79))).unwrap();
        let (index, data) = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(index, 1);
        assert!(format!("{data:?}").contains("79"), "{data:?}");
    });
}

#[test]
fn an_event_that_no_header_names_arrives_empty() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let set = nvml.create_event_set().unwrap();
    let set = nvml.device_by_index(0).unwrap().register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap();
    let event = Event { kind: 0x1_0000, ..Event::xid(driver_time(&driver), 0, 5) };
    driver.set_live(&Live::default().event(event)).unwrap();
    let event = set.wait(10_000).unwrap();
    assert!(event.event_type.is_empty() && event.event_data.is_none());
}

#[test]
fn unsupported_events_cannot_be_registered() {
    let scenario = Scenario::new().gpu(Gpu { supported_events: 0, ..Gpu::h100(0) });
    let driver = FakeDriver::new(&scenario).unwrap();
    let nvml = open(&driver);
    let set = nvml.create_event_set().unwrap();
    let registered = nvml.device_by_index(0).unwrap().register_events(EventTypes::CRITICAL_XID_ERROR, set);
    assert!(registered.is_err());
}

#[test]
fn calls_are_counted_by_symbol() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    let before = driver.calls().unwrap();
    for _ in 0..5 {
        gpu.memory_info().unwrap();
    }
    let after = driver.calls().unwrap();
    assert_eq!(after["nvmlInit_v2"], 1);
    assert_eq!(after["nvmlDeviceGetMemoryInfo_v2"], 5);
    assert_eq!(after.values().sum::<u64>() - before.values().sum::<u64>(), 5);
}

#[test]
fn a_broken_scenario_keeps_the_world_of_before() {
    let driver = FakeDriver::new(&busy()).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    gpu.memory_info().unwrap();
    ebbtide_testkit::driver::replace(&driver.live_path(), "processes = 3").unwrap();
    assert_eq!(gpu.memory_info().unwrap().used, 1327 * MIB);
}

/// The scenario's time now; [`busy`] begins when it is made, so that its clock is a little ahead of ours.
fn driver_time(driver: &FakeDriver) -> i64 {
    let text =
        std::fs::read_to_string(driver.lib_dir().join(ebbtide_testkit::driver::SCENARIO_FILE)).unwrap();
    Scenario::from_toml(&text).unwrap().now_ms()
}

#[test]
fn processes_come_and_go() {
    let now = wall_ms();
    let process = |pid| Process::compute(pid, constant(10));
    let gpu = Gpu::h100(0)
        .process(process(1).span(0, Some(1000)))
        .process(process(2).span(1000, None))
        .process(process(3).span(3_600_000, None));
    let driver = FakeDriver::new(&Scenario { epoch_ms: now - 60_000, ..Scenario::new() }.gpu(gpu)).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    let listed: Vec<_> = gpu.running_compute_processes().unwrap().iter().map(|p| p.pid).collect();
    assert_eq!(listed, [2]);
    assert_eq!(gpu.memory_info().unwrap().used, 10 * MIB);
    let ended = gpu.accounting_stats_for(1).unwrap();
    assert!(!ended.is_running);
}

#[test]
fn some_drivers_count_their_reserve_as_used() {
    let driver = FakeDriver::new(&Scenario { v2_used_includes_reserved: true, ..busy() }).unwrap();
    let nvml = open(&driver);
    let memory = nvml.device_by_index(0).unwrap().memory_info().unwrap();
    assert_eq!(memory.used, (1327 + 600) * MIB);
    assert_eq!(memory.free + memory.used, memory.total);
}

#[test]
fn health_is_read_by_field() {
    let ecc = Ecc { remapped_uncorrectable: 2, remapping_pending: true, ..Ecc::default() };
    let driver = FakeDriver::new(&Scenario::new().gpu(Gpu { ecc: Some(ecc), ..Gpu::h100(0) })).unwrap();
    let nvml = open(&driver);
    let gpu = nvml.device_by_index(0).unwrap();
    let values = gpu.field_values_for(&[FieldId(143), FieldId(144), FieldId(9999)]).unwrap();
    let read = |i: usize| values[i].as_ref().unwrap().value.as_ref().unwrap().clone();
    assert!(matches!((read(0), read(1)), (SampleValue::U32(2), SampleValue::U32(1))));
    let unknown = values[2].as_ref().unwrap().value.as_ref().unwrap_err();
    assert!(matches!(unknown, NvmlError::NotSupported), "a field that is not known fails alone");
}

#[test]
fn without_a_scenario_there_are_two_gpus() {
    let library = ebbtide_testkit::driver::built_library().unwrap();
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
}
