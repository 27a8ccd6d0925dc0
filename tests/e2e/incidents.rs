//! A GPU process is killed: what was known of it is there afterwards, and says so honestly.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use ebbtide_core::{Bytes, units::MIB};
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};

use crate::runner::{World, stderr, stdout};

const HELD: Bytes = Bytes(9 * 1024 * MIB);

/// A process to list on a GPU.
fn tenant() -> Child {
    Command::new("sleep").arg0("vllm").arg("1000").stdin(Stdio::null()).spawn().unwrap()
}

fn with(tenant: Option<u32>) -> Scenario {
    let gpu = Gpu::h100(0);
    Scenario::new().gpu(match tenant {
        Some(pid) => gpu.process(Process::compute(pid, Curve::Constant(HELD))),
        None => gpu,
    })
}

fn json(world: &World, args: &[&str]) -> serde_json::Value {
    let output = world.ebbtide(args).args(["--json", "--db"]).arg(world.database()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn a_killed_process_leaves_its_last_minutes_and_one_that_was_asked_to_go_does_not() {
    let world = World::new();
    let (mut asked, mut killed) = (tenant(), tenant());
    let driver = FakeDriver::new(&with(Some(asked.id()))).unwrap();
    let mut daemon = world.daemon_on(driver.library_path(), &[]);
    let is_listed = |status: &ebbtide_api::wire::Status, pid: u32| {
        let lists = status.gpus.iter().filter_map(|gpu| gpu.gpu.processes.as_ref().ok());
        lists.flat_map(|list| &list.entries).any(|process| process.key.pid == pid)
    };
    daemon.wait("the first tenant", |s| is_listed(s, asked.id()));
    let pid = rustix::process::Pid::from_child(&asked);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    asked.wait().unwrap();
    driver.set(&with(Some(killed.id()))).unwrap();
    let listed = daemon.wait("the second tenant", |s| is_listed(s, killed.id()));
    let enough = listed.tick.seq + 10;
    daemon.wait("some ticks of it", |s| s.health.last_stored_seq >= Some(enough));

    // It stays a zombie until it is waited for below, and a zombie tells its own user how it ended: no matter how old
    // the kernel is.
    killed.kill().unwrap();
    driver.set(&with(None)).unwrap();
    let gone = daemon.wait("its absence", |s| !is_listed(s, killed.id()));
    daemon.wait("what follows to be stored", |s| s.health.last_stored_seq >= Some(gone.tick.seq + 2));
    killed.wait().unwrap();

    let listed = json(&world, &["incidents"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    assert_eq!(listed[0]["cause"], "signal");
    let incident = &listed[0]["incident"];
    assert_eq!(incident["proc"]["pid"], killed.id());
    assert_eq!(incident["status"], serde_json::json!({ "signalled": 9 }));
    assert_eq!(incident["gpus"][0]["held"], HELD.0);
    assert_eq!(incident["gpus"][0]["ledger"]["processes"], HELD.0, "the ledger has it in it");

    let shown = json(&world, &["incidents", "show", "1"]);
    let points = |metric: &str, pid: Option<u32>| {
        let all = shown["series"].as_array().unwrap();
        let is_it = |s: &&serde_json::Value| s["metric"] == metric && s["pid"] == serde_json::json!(pid);
        all.iter().find(is_it).unwrap()["points"].as_array().unwrap().clone()
    };
    // Lists are read less often than memory.
    let memory = points("process-bytes", Some(killed.id()));
    assert!(!memory.is_empty() && memory.iter().all(|point| point[1] == HELD.0), "{memory:?}");
    assert!(points("used-bytes", None).len() >= 10, "each tick is there");

    let text =
        stdout(&world.ebbtide(&["incidents", "show", "1", "--db"]).arg(world.database()).output().unwrap());
    assert!(text.contains("was ended by SIGKILL; nothing read says by whom"), "{text}");
    assert!(text.contains("its memory, MiB"), "{text}");
    assert!(world.log().contains("was ended by SIGKILL"), "{}", world.log());
    assert!(daemon.stop().success());
    let none = world.ebbtide(&["incidents", "show", "7", "--db"]).arg(world.database()).output().unwrap();
    assert_eq!(none.status.code(), Some(65));
}
