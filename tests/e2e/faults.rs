//! What goes wrong at 3 a.m.: the daemon says it and goes on.

use ebbtide_api::wire::Level;
use ebbtide_core::GpuState;
use ebbtide_testkit::{FakeDriver, Fault, Gpu, Outage, Scenario};

use crate::runner::{World, stderr, stdout};

fn eight() -> Scenario {
    (0..8).fold(Scenario::new(), |scenario, index| scenario.gpu(Gpu::h100(index)))
}

#[test]
fn a_missing_driver_is_said_and_waited_for() {
    let world = World::new();
    let mut daemon = world.daemon_on(std::path::Path::new("/nowhere/libnvidia-ml.so.1"), &[]);
    let status = daemon.wait("a note", |s| !s.health.probe.notes.is_empty());
    assert_eq!(status.level, Level::Unknown);
    assert!(status.gpus.is_empty());
    let output = world.run(&["status"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("note: "), "{}", stdout(&output));
    assert!(daemon.stop().success());
    let said = world.log().lines().filter(|line| line.contains("libnvidia-ml")).count();
    assert!((1..=2).contains(&said), "said once, not each tick:\n{}", world.log());
}

#[test]
fn a_driver_that_goes_and_comes_back_is_taken_up_again() {
    let world = World::new();
    let driver = FakeDriver::new(&eight()).unwrap();
    let mut daemon = world.daemon_on(driver.library_path(), &[]);
    daemon.wait("all GPUs", |s| s.gpus.len() == 8 && s.gpus.iter().all(|g| g.gpu.memory.is_ok()));
    driver.set(&eight().outage(Outage::absent())).unwrap();
    let status = daemon.wait("the outage", |s| s.gpus.iter().all(|g| g.gpu.memory.is_err()));
    assert_eq!(status.gpus.len(), 8, "known GPUs stay on the list");
    driver.set(&eight().outage(Outage::between(0, 1))).unwrap();
    let status = daemon.wait("the return", |s| s.gpus.iter().all(|g| g.gpu.memory.is_ok()));
    assert!(status.health.probe.reopened >= 1);
    assert!(daemon.stop().success());
}

#[test]
fn one_lost_gpu_of_eight_stops_nothing() {
    let world = World::new();
    let driver = FakeDriver::new(&eight()).unwrap();
    let mut daemon = world.daemon_on(driver.library_path(), &[]);
    daemon.wait("all GPUs", |s| s.gpus.len() == 8 && s.gpus.iter().all(|g| g.gpu.memory.is_ok()));
    driver.set(&eight().fault(Fault::code(15, "*").gpu(3))).unwrap();
    let status = daemon.wait("the loss", |s| s.gpus[3].gpu.state == GpuState::Lost);
    assert!(status.gpus.iter().enumerate().all(|(i, g)| (i == 3) == g.gpu.memory.is_err()));
    assert_eq!(status.level, Level::Critical);
    let output = world.run(&["status"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("LOST"), "{}", stdout(&output));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let unheard = world.ebbtide(&["status"]).stdout(writer).status().unwrap();
    assert_eq!(unheard.code(), Some(2), "who does not listen to the end is not told that all is fine");
    let seq = status.tick.seq;
    daemon.wait("samples going on", |s| s.tick.seq > seq + 3);
    assert!(daemon.stop().success());
}

#[test]
fn a_hung_call_makes_readings_stale_and_ends_in_time() {
    let world = World::new();
    let driver = FakeDriver::new(&eight()).unwrap();
    let mut daemon = world.daemon_on(driver.library_path(), &[]);
    daemon.wait("all GPUs", |s| s.gpus.len() == 8 && s.gpus.iter().all(|g| g.gpu.memory.is_ok()));
    driver.set(&eight().fault(Fault::hang("*"))).unwrap();
    let status = daemon.wait("stale readings", |s| s.gpus.iter().all(|g| g.gpu.state == GpuState::Stale));
    assert!(status.gpus.iter().all(|g| g.gpu.memory.is_err()), "a stale figure is no reading");
    let output = world.run(&["status"]);
    assert!(stdout(&output).contains("stale"), "{}", stdout(&output));
    assert!(daemon.stop().success(), "{}", world.log());
}

#[test]
fn a_database_that_cannot_be_written_stops_nothing_else() {
    let world = World::new();
    let blocked = world.write("file", "a file where a directory should be");
    let path = blocked.join("ebbtide.db").display().to_string();
    let mut daemon = world.daemon_on_host(&[("store.path", &path)]);
    let status = daemon.wait("samples without a store", |s| s.tick.seq > 3 && s.health.store_error.is_some());
    assert_eq!(status.health.stored_ticks, 0);
    assert!(stdout(&world.run(&["status"])).contains("nothing is being stored"));
    assert!(daemon.stop().success());
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused() {
    let world = World::new();
    let mut first = world.daemon_on_host(&[]);
    first.wait("a first sample", |s| !s.gpus.is_empty());
    let database = format!("store.path={}", world.path("other.db").display());
    let output = world.run(&["daemon", "--set", "probe.source=host", "--set", &database]);
    assert_eq!(output.status.code(), Some(70));
    assert!(stderr(&output).contains("ebbtide.sock"), "{}", stderr(&output));
    first.wait("the first still answering", |s| s.tick.seq > 0);
}

#[test]
fn a_first_start_makes_the_directory_of_the_database() {
    let world = World::new();
    let path = world.path("var/lib/ebbtide.db");
    let mut daemon = world.daemon_on_host(&[("store.path", &path.display().to_string())]);
    daemon.wait("a stored tick", |s| s.health.stored_ticks > 0);
    assert!(daemon.stop().success(), "{}", world.log());
}

#[test]
fn a_hook_that_cannot_run_is_said_at_start_and_not_only_when_it_is_needed() {
    let world = World::new();
    let mut daemon = world.daemon_on_host(&[("sinks", "[{ exec.argv = [\"/nowhere/page\"] }]")]);
    daemon.wait("a first sample", |s| !s.gpus.is_empty());
    assert!(daemon.stop().success());
    let log = world.log();
    assert!(log.contains("/nowhere/page") && log.contains("No such file"), "{log}");
}
