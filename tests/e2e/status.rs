//! What the daemon reads is what it says, to the byte.

use std::process::{Child, Command, Stdio};

use ebbtide_core::{Bytes, SeriesPart};
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};

use crate::runner::{World, stderr, stdout};

/// A process that lives as long as the test, so that a listed PID exists.
struct Tenant(Child);

impl Tenant {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // It only sleeps; either way it is gone afterwards.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn status_says_every_byte_and_its_owner() {
    let (world, tenant) = (World::new(), Tenant::new());
    let held = Bytes(7 * (1 << 30) + 12_345 * 4096);
    let scenario = Scenario::new()
        .gpu(Gpu::h100(0).process(Process::compute(tenant.pid(), Curve::Constant(held))))
        .gpu(Gpu::h100(1));
    let driver = FakeDriver::new(&scenario).unwrap();
    let mut daemon = world.daemon_on(driver.library_path(), &[]);
    daemon.wait("a list of processes", |s| {
        s.gpus.iter().any(|g| g.gpu.processes.as_ref().is_ok_and(|l| !l.entries.is_empty()))
    });

    let output = world.run(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let status: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let gpu = &status["gpus"][0];
    assert_eq!(gpu["memory"]["used"], held.0);
    assert_eq!(gpu["processes"]["entries"][0]["key"]["pid"], tenant.pid());
    assert_eq!(gpu["processes"]["entries"][0]["memory"], held.0);
    assert_eq!(gpu["processes"]["entries"][0]["info"]["name"], "sleep");
    assert_eq!(gpu["ledger"]["unattributed"], 0);
    let term = |name: &str| gpu["ledger"][name].as_i64().unwrap();
    assert_eq!(
        term("total"),
        term("free") + term("driver_reserved") + term("processes") + term("unattributed")
    );
    assert_eq!(status["gpus"][1]["memory"]["used"], 0);

    let text = world.run(&["status"]);
    assert!(stdout(&text).contains("sleep"), "{}", stdout(&text));
    assert!(daemon.stop().success());
}

#[test]
fn without_a_daemon_the_answer_is_unknown_not_fine() {
    let world = World::new();
    let output = world.run(&["status"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("ebbtide daemon"), "{}", stderr(&output));
}

#[test]
fn host_memory_says_so_wherever_it_is_shown() {
    let world = World::new();
    let mut daemon = world.daemon_on_host(&[("probe.host_total_mib", "1024")]);
    let status = daemon.wait("a first sample", |s| !s.gpus.is_empty());
    assert_eq!(status.gpus[0].gpu.memory.unwrap().total, Bytes::from_mib(1024));
    assert!(stdout(&world.run(&["status"])).contains("host memory, no GPU"));
    assert!(daemon.stop().success());
}

#[test]
fn a_process_has_a_judgement_of_its_own() {
    let (world, tenant) = (World::new(), Tenant::new());
    let process = Process::compute(tenant.pid(), Curve::Constant(Bytes::from_mib(4096)));
    let driver = FakeDriver::new(&Scenario::new().gpu(Gpu::h100(0).process(process))).unwrap();
    let mut daemon = world.daemon_on(driver.library_path(), &[]);
    let status = daemon.wait("a judgement of the process", |s| {
        s.gpus.iter().flat_map(|g| &g.judgements).any(|j| matches!(j.series.part, SeriesPart::Process(_)))
    });
    let parts: Vec<_> = status.gpus[0].judgements.iter().map(|j| j.series.part).collect();
    assert_eq!(parts.first(), Some(&SeriesPart::Device));
}
