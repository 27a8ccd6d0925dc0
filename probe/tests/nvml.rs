//! NVML as a source, against a driver that fails in every way that is known.
//!
//! The source's time is the tick it is given, so a minute passes in a call; only the driver's faults run on the
//! wall clock, and a test waits for them by state, with a deadline.

#![allow(clippy::unwrap_used, reason = "clippy exempts functions marked #[test], not their helpers")]

use std::time::{Duration, Instant};

use ebbtide_core::{
    Absent, Bytes, EventKind, GpuKind, GpuState, MemorySource, ProcKinds, Tick, Ts, units::GIB,
};
use ebbtide_probe::nvml::{NvmlConfig, NvmlSource};
use ebbtide_probe::source::{GpuSource, RawGpu, RawProcess, Sweep};
use ebbtide_testkit::{
    Curve, Ecc, Event, FakeDriver, Fault, Gpu, Live, Outage, Process, ProcessKind, Scenario,
};
use proptest::prelude::*;

/// Longer than any state is waited for on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Driver time that no test uses up, however busy the machine is.
const AMPLE: Duration = Duration::from_secs(600);

/// The source goes before the driver: it shuts down a library that is still there.
struct Bench {
    source: NvmlSource,
    driver: FakeDriver,
    now: Tick,
}

impl Bench {
    fn new(scenario: &Scenario) -> Self {
        Self::with(scenario, &NvmlConfig { budget: AMPLE, deadline: PATIENCE, ..NvmlConfig::default() })
    }

    fn with(scenario: &Scenario, config: &NvmlConfig) -> Self {
        let driver = FakeDriver::new(scenario).unwrap();
        let library = Some(driver.library_path().to_owned());
        let source = NvmlSource::start(NvmlConfig { library, ..config.clone() }).unwrap();
        Self { driver, source, now: Tick { seq: 0, at: Ts(0), mono_ms: 1_000_000 } }
    }

    /// One sweep, `ms` after the one before.
    fn after(&mut self, ms: u64) -> Sweep {
        self.now.seq += 1;
        self.now.mono_ms += ms;
        self.source.sweep(self.now)
    }

    fn next(&mut self) -> Sweep {
        self.after(1_000)
    }

    /// Sweeps until one is as wanted; all events until then.
    fn until(&mut self, wanted: impl Fn(&Sweep) -> bool) -> (Sweep, Vec<EventKind>) {
        let started = Instant::now();
        let mut events = Vec::new();
        while started.elapsed() < PATIENCE {
            let sweep = self.next();
            events.extend(sweep.events.iter().map(|event| event.kind.clone()));
            if wanted(&sweep) {
                return (sweep, events);
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        panic!("not seen within {PATIENCE:?}; events were {events:?}");
    }
}

fn mib(n: u64) -> Bytes {
    Bytes::from_mib(n)
}

fn holding(pid: u32, n: u64) -> Process {
    Process::compute(pid, Curve::Constant(mib(n)))
}

fn listed(gpu: &RawGpu) -> &[RawProcess] {
    &gpu.processes.as_ref().unwrap().entries
}

fn noted(sweep: &Sweep, what: &str) -> bool {
    sweep.health.notes.iter().any(|note| note.contains(what))
}

fn eight() -> Scenario {
    (0..8).fold(Scenario::new(), |s, i| s.gpu(Gpu::h100(i).process(holding(100 + i, 1_024))))
}

fn all_present(sweep: &Sweep) -> bool {
    !sweep.gpus.is_empty() && sweep.gpus.iter().all(|g| g.state == GpuState::Present && g.memory.is_ok())
}

#[test]
fn every_byte_of_a_healthy_gpu_is_read() {
    let gpu = Gpu::h100(0).process(holding(7, 4_096)).unattributed(Curve::Constant(mib(100)));
    let sweep = Bench::new(&Scenario::new().gpu(gpu)).next();
    let gpu = &sweep.gpus[0];
    let memory = gpu.memory.unwrap();
    assert_eq!(memory.source, MemorySource::NvmlV2);
    assert_eq!((memory.total, memory.used, memory.reserved), (Bytes(80 * GIB), mib(4_196), Ok(mib(600))));
    assert_eq!(memory.used + memory.free + mib(600), memory.total);
    assert_eq!(listed(gpu)[0].memory, Ok(mib(4_096)));
    assert_eq!(gpu.kind, GpuKind::Discrete);
    assert!(sweep.health.notes.is_empty() && sweep.health.nvml_calls > 0);
}

#[test]
fn used_is_the_same_whichever_way_version_2_counts_reserved() {
    let scenario = Scenario::new().gpu(Gpu::h100(0).process(holding(7, 4_096)));
    let within = Scenario { v2_used_includes_reserved: true, ..scenario.clone() };
    let memory = |s: &Scenario| Bench::new(s).next().gpus[0].memory.unwrap();
    assert_eq!(memory(&scenario), memory(&within));
}

#[test]
fn version_1_is_used_where_version_2_is_missing() {
    let old = Scenario::new().driver("470.223.02").gpu(Gpu::h100(0).process(holding(7, 4_096)));
    let gpu = &Bench::new(&old).next().gpus[0];
    let memory = gpu.memory.unwrap();
    assert_eq!((memory.source, memory.used), (MemorySource::NvmlV1, mib(4_696)));
    assert_eq!(memory.reserved, Err(Absent::NotSupported));
    assert_eq!(listed(gpu).len(), 1);
}

#[test]
fn lists_keep_their_distance_and_calls_stay_few() {
    let mut bench = Bench::new(&eight());
    for second in 0..120 {
        bench.driver.set_live(&Live::default().process(0, 100, mib(1_024 + second * 200))).unwrap();
        bench.next();
    }
    let calls = bench.driver.calls().unwrap();
    let lists = calls["nvmlDeviceGetComputeRunningProcesses_v3"];
    assert!((8 * 22..=8 * 25).contains(&lists), "{lists} lists of 8 GPUs in 120 s");
    let total: u64 = calls.values().sum();
    assert!(total < 40 * 120, "{total} calls in 120 s: {calls:?}");
}

#[test]
fn a_process_in_several_lists_counts_once() {
    let both = holding(7, 300).kind(ProcessKind::ComputeAndGraphics);
    let gpu = Gpu::h100(0).process(both).process(holding(9, 50).kind(ProcessKind::Mps));
    let sweep = Bench::new(&Scenario::new().gpu(gpu)).next();
    let kinds: Vec<_> = listed(&sweep.gpus[0]).iter().map(|p| (p.pid, p.memory, p.kinds)).collect();
    let none = ProcKinds::default();
    assert_eq!(
        kinds,
        [
            (7, Ok(mib(300)), ProcKinds { compute: true, graphics: true, ..none }),
            (9, Ok(mib(50)), ProcKinds { mps: true, ..none }),
        ]
    );
}

#[test]
fn nine_hundred_and_fifty_processes_are_read_whole() {
    let gpu = (1..=950).fold(Gpu::h100(0), |gpu, pid| gpu.process(holding(pid, 1)));
    let sweep = Bench::new(&Scenario::new().gpu(gpu)).next();
    let pids: Vec<u32> = listed(&sweep.gpus[0]).iter().map(|p| p.pid).collect();
    assert_eq!(pids, (1..=950).collect::<Vec<_>>());
}

#[test]
fn the_longer_records_of_driver_535_are_read_right() {
    for version in ["535.54.03", "535.98", "535.104.05"] {
        let gpu = (1..=60).fold(Gpu::h100(0), |gpu, pid| gpu.process(holding(pid, u64::from(pid))));
        let sweep = Bench::new(&Scenario::new().driver(version).gpu(gpu)).next();
        let read: Vec<_> = listed(&sweep.gpus[0]).iter().map(|p| (p.pid, p.memory)).collect();
        let truth: Vec<_> = (1..=60).map(|pid| (pid, Ok(mib(u64::from(pid))))).collect();
        assert_eq!(read, truth, "driver {version}");
    }
}

#[test]
fn all_ones_are_absent_and_never_a_number() {
    let process = Process::compute(7, Curve::NotAvailable);
    let gpu = Gpu { memory_not_available: true, ..Gpu::h100(0).process(process) };
    let gpu = &Bench::new(&Scenario::new().gpu(gpu)).next().gpus[0];
    assert_eq!(gpu.memory, Err(Absent::NotSupported));
    assert_eq!(listed(gpu)[0].memory, Err(Absent::NotSupported));
}

#[test]
fn unified_memory_is_the_sum_of_its_processes() {
    let scenario = Scenario::new().gpu(Gpu::gb10(0).process(holding(7, 900)).process(holding(8, 100)));
    let config = NvmlConfig { deadline: PATIENCE, host_total: Ok(Bytes(128 * GIB)), ..NvmlConfig::default() };
    let mut bench = Bench::with(&scenario, &config);
    for _ in 0..7 {
        let gpu = &bench.next().gpus[0];
        let memory = gpu.memory.unwrap();
        assert_eq!(gpu.kind, GpuKind::Unified);
        assert_eq!((memory.total, memory.used), (Bytes(128 * GIB), mib(1_000)));
        assert_eq!(memory.source, MemorySource::ProcessSum);
    }
}

#[test]
fn mig_instances_are_gpus_of_their_own() {
    let gpu = Gpu::h100(0)
        .mig("1g.10gb", Bytes(10 * GIB))
        .mig("2g.20gb", Bytes(20 * GIB))
        .process(holding(7, 100).in_mig(0))
        .process(holding(8, 200).in_mig(1));
    let mut bench = Bench::new(&Scenario::new().gpu(gpu.clone()).gpu(Gpu::h100(1)));
    let sweep = bench.next();
    let seen: Vec<_> = sweep.gpus.iter().map(|g| (g.index, matches!(g.kind, GpuKind::Mig(_)))).collect();
    assert_eq!(seen, [(0, false), (0, true), (0, true), (1, false)]);
    assert_eq!(sweep.gpus[0].memory.unwrap().total, Bytes(80 * GIB));
    assert_eq!(sweep.gpus[0].processes.as_ref().unwrap_err(), &Absent::NotSupported);
    assert_eq!(sweep.gpus[1].memory.unwrap().total, Bytes(10 * GIB));
    assert_eq!(listed(&sweep.gpus[2])[0].pid, 8);
    let GpuKind::Mig(id) = &sweep.gpus[2].kind else { panic!("not an instance") };
    assert_eq!((id.parent.as_str(), id.gpu_instance), (sweep.gpus[0].uuid.as_str(), 2));

    let mut fewer = gpu;
    fewer.mig.truncate(1);
    fewer.processes.truncate(1);
    bench.driver.set(&Scenario::new().gpu(fewer).gpu(Gpu::h100(1))).unwrap();
    let (sweep, _) = bench.until(|sweep| sweep.gpus.len() == 3);
    assert!(all_present(&sweep));
}

#[test]
fn without_a_driver_the_source_stays_up_and_says_what_to_do() {
    let mut nowhere = NvmlSource::start(NvmlConfig {
        library: Some("/nonexistent/libnvidia-ml.so.1".into()),
        deadline: PATIENCE,
        ..NvmlConfig::default()
    })
    .unwrap();
    let sweep = nowhere.sweep(Tick::default());
    assert!(sweep.gpus.is_empty() && noted(&sweep, "install the NVIDIA driver"));

    let mut bench = Bench::new(&Scenario { outages: vec![Outage::absent()], ..eight() });
    assert!(noted(&bench.next(), "modprobe nvidia"));
    bench.driver.set(&eight()).unwrap();
    let (sweep, events) = bench.until(all_present);
    assert_eq!((sweep.gpus.len(), sweep.health.reopened), (8, 0));
    assert!(sweep.health.notes.is_empty());
    assert_eq!(events, [], "a driver that was never there was not reloaded");
}

#[test]
fn a_driver_that_goes_and_comes_back_is_opened_anew() {
    for stale_code in [1, 999] {
        let scenario = Scenario { stale_code, ..eight() };
        let mut bench = Bench::new(&scenario);
        assert!(all_present(&bench.next()));
        let away = Outage { from_ms: scenario.now_ms(), until_ms: None, init_code: 9 };
        bench.driver.set_live(&Live::default().outage(away.clone())).unwrap();
        let sweep = bench.next();
        assert_eq!(sweep.gpus.len(), 8);
        assert!(sweep.gpus.iter().all(|g| g.state == GpuState::Lost && g.memory == Err(Absent::DeviceLost)));
        let (_, lost) = bench.until(|sweep| noted(sweep, "modprobe"));
        assert!(!lost.contains(&EventKind::GpuLost), "the driver is gone, not the GPUs");

        let back = Outage { until_ms: Some(scenario.now_ms()), ..away };
        bench.driver.set_live(&Live::default().outage(back)).unwrap();
        let (sweep, events) = bench.until(all_present);
        assert_eq!(events, [EventKind::DriverReload]);
        assert!(sweep.health.reopened >= 1 && sweep.health.notes.is_empty());
    }
}

#[test]
fn one_lost_gpu_of_eight_leaves_the_others_alone() {
    for code in [15, 16, 999] {
        let scenario = eight();
        let mut bench = Bench::new(&scenario);
        bench.next();
        bench.driver.set_live(&Live::default().fault(Fault::code(code, "*").gpu(3))).unwrap();
        let sweep = bench.next();
        let kinds: Vec<_> = sweep.events.iter().map(|e| (e.gpu.clone(), e.kind.clone())).collect();
        assert_eq!(kinds, [(Some(sweep.gpus[3].uuid.clone()), EventKind::GpuLost)]);
        assert_eq!((sweep.gpus[3].state, sweep.gpus[3].memory), (GpuState::Lost, Err(Absent::DeviceLost)));
        for _ in 0..90 {
            let sweep = bench.next();
            let present = sweep.gpus.iter().filter(|g| g.memory.is_ok()).count();
            assert_eq!((present, sweep.gpus.len(), sweep.events.len()), (7, 8, 0));
            assert!(noted(&sweep, "GPU 3"));
        }
        bench.driver.set_live(&Live::default()).unwrap();
        let (sweep, events) = bench.until(all_present);
        assert_eq!(events, [EventKind::GpuBack]);
        assert_eq!(sweep.health.reopened, 0);
    }
}

#[test]
fn the_only_gpu_lost_and_back() {
    let mut bench = Bench::new(&Scenario::new().gpu(Gpu::h100(0)));
    bench.next();
    bench.driver.set_live(&Live::default().fault(Fault::code(15, "*").gpu(0))).unwrap();
    let sweep = bench.next();
    assert_eq!(sweep.events.iter().map(|e| e.kind.clone()).collect::<Vec<_>>(), [EventKind::GpuLost]);
    assert!((0..90).all(|_| bench.next().events.is_empty()));
    bench.driver.set_live(&Live::default()).unwrap();
    let (_, events) = bench.until(all_present);
    assert_eq!(events, [EventKind::DriverReload, EventKind::GpuBack]);
}

#[test]
fn a_call_that_hangs_makes_figures_stale_until_it_returns() {
    let config = NvmlConfig { deadline: Duration::from_secs(1), ..NvmlConfig::default() };
    let mut bench = Bench::with(&eight(), &config);
    bench.until(all_present);
    let hang = Fault::hang("nvmlDeviceGetMemoryInfo*").gpu(2);
    bench.driver.set_live(&Live::default().fault(hang)).unwrap();
    let (sweep, _) = bench.until(|sweep| sweep.gpus.iter().all(|g| g.state == GpuState::Stale));
    assert!(sweep.gpus.iter().all(|g| g.memory == Err(Absent::Timeout) && g.processes.is_err()));
    assert!(noted(&sweep, "has not answered"));
    let asked = Instant::now();
    (0..60).for_each(|_| drop(bench.next()));
    assert!(asked.elapsed() < PATIENCE, "an outstanding answer is not waited for again");
    bench.driver.set_live(&Live::default()).unwrap();
    // The hang has used up the budget of GPU 2, so it rests while the others are read at once.
    let (sweep, _) = bench.until(|sweep| sweep.gpus.iter().filter(|g| g.memory.is_ok()).count() >= 7);
    assert!(sweep.gpus.iter().all(|g| g.state == GpuState::Present));
    let (_, events) = bench.until(all_present);
    assert_eq!(events, []);
}

#[test]
fn a_hung_driver_does_not_keep_the_source_from_ending() {
    let config = NvmlConfig { deadline: Duration::from_millis(50), ..NvmlConfig::default() };
    let scenario = eight().fault(Fault::hang("nvmlDeviceGetUtilizationRates"));
    let mut bench = Bench::with(&scenario, &config);
    let sweep = bench.next();
    assert!(sweep.gpus.is_empty() && noted(&sweep, "is being opened"));
    let Bench { source, driver, .. } = bench;
    drop(source);
    driver.set(&eight()).unwrap();
    let started = Instant::now();
    // Nobody has counted anything before the first call.
    while !driver.calls().is_ok_and(|calls| calls.contains_key("nvmlShutdown")) {
        assert!(started.elapsed() < PATIENCE, "once the call has returned, the driver is shut down in order");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn dear_calls_thin_lists_first_and_then_memory() {
    let config =
        NvmlConfig { deadline: PATIENCE, budget: Duration::from_millis(300), ..NvmlConfig::default() };
    let dear = Fault::delay_ms(30, "nvmlDeviceGetMemoryInfo_v2");
    let mut bench =
        Bench::with(&Scenario::new().gpu(Gpu::h100(0).process(holding(7, 5))).fault(dear), &config);
    let mut lists = 0;
    let mut first_without = None;
    for second in 0..60_u64 {
        let sweep = bench.next();
        let gpu = &sweep.gpus[0];
        lists += u32::from(gpu.processes.as_ref().is_ok_and(|l| l.listed == bench.now));
        if gpu.memory == Err(Absent::NotYet) {
            first_without.get_or_insert(second);
        }
    }
    let sweep = bench.next();
    assert!(lists < 6, "{lists} lists in a minute");
    assert!(first_without.is_some_and(|second| second > 5), "{first_without:?}");
    assert!(sweep.health.throttled_ticks > 20);
    assert_eq!(sweep.gpus[0].state, GpuState::Present);
}

#[test]
fn xids_and_failing_memory_are_told() {
    let sick = Ecc { remapping_pending: true, recovery_action: 1, ..Ecc::default() };
    let scenario = Scenario::new().gpu(Gpu::h100(0)).gpu(Gpu { ecc: Some(sick), ..Gpu::h100(1) });
    let mut bench = Bench::new(&scenario);
    let sweep = bench.next();
    assert!(
        noted(&sweep, "GPU 1: a faulty memory row")
            && noted(&sweep, "GPU 1: the driver asks for a GPU reset")
    );
    bench.driver.set_live(&Live::default().event(Event::xid(scenario.now_ms() + 1, 1, 94))).unwrap();
    let (sweep, events) = bench.until(|sweep| !sweep.events.is_empty());
    assert_eq!(events, [EventKind::Xid(94)]);
    assert_eq!(sweep.events[0].gpu, Some(sweep.gpus[1].uuid.clone()));
}

#[test]
fn a_reading_without_permission_says_so_and_no_more() {
    let denied = Fault::code(4, "nvmlDeviceGetComputeRunningProcesses*");
    let gpu = &Bench::new(&Scenario::new().gpu(Gpu::h100(0)).fault(denied)).next().gpus[0];
    assert_eq!(gpu.processes.as_ref().unwrap_err(), &Absent::NoPermission);
    assert!(gpu.memory.is_ok());
}

#[test]
fn a_gpu_that_may_not_be_opened_is_named_and_the_others_are_read() {
    let hidden = Fault::code(4, "nvmlDeviceGetHandleByIndex*").gpu(1);
    let sweep = Bench::new(&eight().fault(hidden)).next();
    assert_eq!(sweep.gpus.len(), 7);
    assert!(noted(&sweep, "GPU 1 cannot be opened"));
}

#[test]
fn a_gpu_that_is_missing_after_a_reload_is_lost_and_the_others_keep_their_names() {
    let scenario = eight();
    let mut bench = Bench::new(&scenario);
    let before = bench.next();
    let mut seven = scenario.clone();
    seven.gpus.remove(2);
    seven.outages.push(Outage { from_ms: scenario.now_ms(), until_ms: None, init_code: 9 });
    bench.driver.set(&seven).unwrap();
    bench.until(|sweep| sweep.gpus.iter().all(|g| g.state == GpuState::Lost));
    seven.outages[0].until_ms = Some(scenario.now_ms());
    bench.driver.set(&seven).unwrap();
    let (sweep, events) = bench.until(|sweep| sweep.gpus.iter().any(|g| g.memory.is_ok()));
    assert_eq!(events, [EventKind::GpuLost, EventKind::DriverReload]);
    assert_eq!(sweep.gpus.len(), 8);
    for gpu in &sweep.gpus {
        let same = before.gpus.iter().find(|g| g.uuid == gpu.uuid).unwrap();
        if gpu.uuid == before.gpus[2].uuid {
            assert_eq!(gpu.state, GpuState::Lost);
        } else {
            assert_eq!((gpu.state, gpu.memory), (GpuState::Present, same.memory));
        }
    }
}

#[test]
fn instances_of_a_lost_gpu_are_lost_with_it_and_not_forgotten() {
    let gpu = Gpu::h100(0).mig("1g.10gb", Bytes(10 * GIB)).process(holding(7, 100).in_mig(0));
    let mut bench = Bench::new(&Scenario::new().gpu(gpu).gpu(Gpu::h100(1)));
    bench.next();
    bench.driver.set_live(&Live::default().fault(Fault::code(15, "*").gpu(0))).unwrap();
    let mut events = Vec::new();
    for _ in 0..90 {
        let sweep = bench.next();
        events.extend(sweep.events.iter().map(|event| event.kind.clone()));
        let states: Vec<_> = sweep.gpus.iter().map(|g| g.state).collect();
        assert_eq!(states, [GpuState::Lost, GpuState::Lost, GpuState::Present]);
    }
    assert_eq!(events, [EventKind::GpuLost], "one card, one loss");
    bench.driver.set_live(&Live::default()).unwrap();
    let (_, events) = bench.until(all_present);
    assert_eq!(events, [EventKind::GpuBack]);
}

#[test]
fn what_was_not_offered_is_asked_for_again_after_a_while() {
    let refused = Fault::code(3, "nvmlDeviceGetMemoryInfo*");
    let scenario = Scenario::new().gpu(Gpu::h100(0).process(holding(7, 100)));
    let mut bench = Bench::new(&scenario.clone().fault(refused));
    assert_eq!(bench.next().gpus[0].kind, GpuKind::Unified);
    bench.driver.set(&scenario).unwrap();
    let (sweep, _) = bench.until(|sweep| sweep.gpus[0].kind == GpuKind::Discrete);
    assert_eq!(sweep.gpus[0].memory.unwrap().source, MemorySource::NvmlV2);
}

#[test]
fn an_upgraded_driver_under_an_old_module_is_named() {
    let outage = Outage { init_code: 18, ..Outage::absent() };
    let mut bench = Bench::new(&Scenario { outages: vec![outage], ..eight() });
    assert!(noted(&bench.next(), "reload the module or reboot"));
}

/// What the driver may do in one second: a call that fails on one GPU or on all, or an outage.
#[derive(Debug, Clone)]
enum Trouble {
    Nothing,
    Fails { code: u32, call: &'static str, gpu: Option<u32> },
    Away,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let code = prop::sample::select(vec![1_u32, 2, 3, 4, 6, 7, 10, 13, 15, 16, 17, 25, 27, 999, 12_345]);
    let call = prop::sample::select(vec![
        "*",
        "nvmlDeviceGetMemoryInfo*",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses*",
        "nvmlDeviceGetHandleBy*",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetCount*",
        "nvmlDeviceGetMigMode",
        "nvmlInit*",
        "nvmlEventSet*",
    ]);
    let fails = (code, call, prop::option::of(0_u32..3)).prop_map(|(code, call, gpu)| Trouble::Fails {
        code,
        call,
        gpu,
    });
    prop_oneof![2 => Just(Trouble::Nothing), 5 => fails, 1 => Just(Trouble::Away)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the driver does: no number is ever wrong, no GPU is forgotten, and all is well again afterwards.
    #[test]
    fn no_trouble_makes_a_wrong_number_or_lasts(troubles in prop::collection::vec(trouble(), 1..30)) {
        let gpu = |i| Gpu::h100(i).process(holding(100 + i, 1_000 + u64::from(i)));
        let scenario = (0..3).fold(Scenario::new(), |s, i| s.gpu(gpu(i)));
        let mut bench = Bench::new(&scenario);
        bench.next();
        for trouble in &troubles {
            let live = match trouble {
                Trouble::Nothing => Live::default(),
                Trouble::Fails { code, call, gpu } => {
                    Live::default().fault(Fault { gpu: *gpu, ..Fault::code(*code, call) })
                }
                Trouble::Away => {
                    Live::default().outage(Outage { from_ms: 0, until_ms: None, init_code: 9 })
                }
            };
            bench.driver.set_live(&live).unwrap();
            let sweep = bench.next();
            prop_assert_eq!(sweep.gpus.len(), 3, "{:?}", sweep.health);
            for gpu in &sweep.gpus {
                let truth = mib(1_000 + u64::from(gpu.index));
                if let Ok(memory) = gpu.memory {
                    let hidden = if memory.source == MemorySource::NvmlV1 { mib(600) } else { Bytes::ZERO };
                    prop_assert_eq!(memory.used, truth + hidden, "{:?}", gpu);
                }
                if let Ok(list) = &gpu.processes {
                    prop_assert!(list.entries.iter().all(|p| p.memory == Ok(truth)), "{:?}", gpu);
                }
                let lost = gpu.state == GpuState::Lost;
                prop_assert_eq!(lost, gpu.memory == Err(Absent::DeviceLost), "{:?}", gpu);
            }
        }
        bench.driver.set_live(&Live::default()).unwrap();
        let well = |sweep: &Sweep| {
            all_present(sweep)
                && sweep.health.notes.is_empty()
                && sweep.gpus.iter().all(|g| listed(g).len() == 1 && g.utilization.is_ok())
        };
        let sweep = bench.until(|sweep| sweep.gpus.iter().all(|g| g.processes.is_ok()) && well(sweep)).0;
        prop_assert_eq!(sweep.gpus.len(), 3);
    }
}
