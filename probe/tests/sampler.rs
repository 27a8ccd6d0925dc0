//! The sampler as the daemon uses it: real clock, real threads, a driver that may be absent or hang.

#![allow(clippy::unwrap_used, reason = "clippy exempts functions marked #[test], not their helpers")]

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use ebbtide_core::{Absent, Bytes, GpuKind, GpuState, Ledger, Liveness, Sample, SignedBytes, units::GIB};
use ebbtide_probe::{HostGpuConfig, Probe, ProbeConfig, ProbeError, SourceConfig};
use ebbtide_testkit::{Curve, FakeDriver, Fault, Gpu, Live, Process, Scenario};

/// Longer than anything is waited for on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn started(config: ProbeConfig) -> (Probe, Receiver<Sample>) {
    let (sink, samples) = mpsc::sync_channel(16);
    let probe = ebbtide_probe::start(config, move |sample| sink.send(sample).is_ok()).unwrap();
    (probe, samples)
}

fn nvml(driver: &FakeDriver) -> ProbeConfig {
    let library = Some(driver.library_path().to_owned());
    ProbeConfig {
        interval: Duration::from_millis(100),
        source: SourceConfig::Nvml { library },
        ..ProbeConfig::default()
    }
}

fn until(samples: &Receiver<Sample>, wanted: impl Fn(&Sample) -> bool) -> Sample {
    std::iter::from_fn(|| samples.recv_timeout(PATIENCE).ok()).find(wanted).unwrap()
}

#[test]
fn a_sample_accounts_for_every_byte_and_names_every_owner() {
    let ours = Process::compute(std::process::id(), Curve::Constant(Bytes::from_mib(4_096)));
    let gpu = Gpu::h100(0).process(ours).unattributed(Curve::Constant(Bytes::from_mib(300)));
    let driver = FakeDriver::new(&Scenario::new().gpu(gpu)).unwrap();
    let (probe, samples) =
        started(ProbeConfig { start_seq: 77, interval: Duration::from_millis(500), ..nvml(&driver) });
    let sample = until(&samples, |sample| !sample.gpus.is_empty());
    let ledger = Ledger::of(&sample.gpus[0], sample.gpus[0].processes.as_ref().unwrap().listed);
    assert_eq!(ledger.balances(), Some(true));
    assert_eq!(ledger.unattributed, Ok(SignedBytes(300 << 20)));
    let process = &sample.gpus[0].processes.as_ref().unwrap().entries[0];
    assert_eq!((process.key.pid, process.liveness), (std::process::id(), Liveness::Alive));
    assert!(process.key.start_ticks.is_some() && process.rss.is_ok() && process.info.name.is_ok());
    assert!(sample.host.total.is_ok() && sample.tick.seq >= 77);
    let next = samples.recv_timeout(PATIENCE).unwrap();
    assert_eq!(next.tick.seq, sample.tick.seq + 1);
    assert!(next.tick.mono_ms > sample.tick.mono_ms && next.tick.at > sample.tick.at);
    assert!(probe.stop(PATIENCE));
    assert!(driver.calls().unwrap()["nvmlShutdown"] == 1, "the driver is shut down in order");
}

#[test]
fn without_a_driver_samples_go_on_and_say_why_they_are_empty() {
    let source = SourceConfig::Nvml { library: Some("/nonexistent/libnvidia-ml.so.1".into()) };
    let (probe, samples) =
        started(ProbeConfig { interval: Duration::from_millis(100), source, ..ProbeConfig::default() });
    for _ in 0..3 {
        let sample = samples.recv_timeout(PATIENCE).unwrap();
        assert!(sample.gpus.is_empty() && sample.host.available.is_ok());
    }
    let sample = samples.recv_timeout(PATIENCE).unwrap();
    assert!(sample.probe.notes.iter().any(|note| note.contains("install the NVIDIA driver")));
    assert!(probe.stop(PATIENCE));
}

#[test]
fn a_hung_driver_neither_stops_the_samples_nor_the_stopping() {
    let driver = FakeDriver::new(&Scenario::new().gpu(Gpu::h100(0))).unwrap();
    let (probe, samples) = started(nvml(&driver));
    until(&samples, |sample| sample.gpus.iter().any(|gpu| gpu.memory.is_ok()));
    driver.set_live(&Live::default().fault(Fault::hang("*"))).unwrap();
    let sample = until(&samples, |sample| sample.gpus[0].state == GpuState::Stale);
    assert_eq!(sample.gpus[0].memory, Err(Absent::Timeout));
    assert_eq!(sample.gpus[0].processes, Err(Absent::Timeout));
    until(&samples, |later| later.tick.seq > sample.tick.seq + 3);
    assert!(probe.stop(PATIENCE));
    driver.set_live(&Live::default()).unwrap();
}

#[test]
fn stopping_does_not_wait_for_the_next_sample() {
    let config = ProbeConfig {
        interval: Duration::from_secs(86_400),
        source: SourceConfig::Host(HostGpuConfig { total: Some(Bytes(GIB)), ..HostGpuConfig::default() }),
        ..ProbeConfig::default()
    };
    let (probe, samples) = started(config);
    let sample = samples.recv_timeout(PATIENCE).unwrap();
    assert_eq!(sample.gpus[0].kind, GpuKind::HostMemory);
    assert_eq!(sample.probe.source, "host memory, no GPU");
    assert!(probe.is_running() && probe.stop(PATIENCE));
}

#[test]
fn a_sink_that_is_gone_ends_the_sampler() {
    let driver = FakeDriver::new(&Scenario::new().gpu(Gpu::h100(0))).unwrap();
    let (probe, samples) = started(nvml(&driver));
    drop(samples);
    assert!(probe.stop(PATIENCE));
}

#[test]
fn an_interval_that_would_slow_the_gpu_is_refused() {
    let config = ProbeConfig { interval: Duration::from_millis(5), ..ProbeConfig::default() };
    let error = ebbtide_probe::start(config, |_| true).unwrap_err();
    assert!(matches!(error, ProbeError::Interval { .. }));
    assert_eq!(error.to_string(), "a sampling interval of 5ms is too short: use 100ms or more");
}
