//! An engine's page over HTTP beside a GPU process: what the daemon makes of it, and what people are told.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use ebbtide_api::wire::Status;
use ebbtide_core::{Bytes, Diagnosis, EngineLedger};
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};

use crate::runner::{Daemon, World, stderr, stdout};

const PAGE: &str = include_str!("../fixtures/engines/vllm-0.33.0.prom");
/// The pool of the page: 27 740 blocks of 16 tokens of 128 KiB.
const POOL: Bytes = Bytes(27_740 * 16 * 131_072);

/// A vLLM that serves its metrics, and a process that plays the holder of the memory.
struct Engine {
    page: Arc<Mutex<String>>,
    address: SocketAddr,
    holder: Child,
}

impl Engine {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let page = Arc::new(Mutex::new(String::new()));
        let served = Arc::clone(&page);
        std::thread::spawn(move || serve(&listener, &served));
        let holder = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let engine = Self { page, address, holder };
        engine.says(0.1, 4);
        engine
    }

    /// Sets the share of the pool in use, and the requests that run.
    fn says(&self, fill: f64, running: u32) {
        let page = PAGE.lines().map(|line| match line.rsplit_once(' ') {
            Some((name, _)) if name.starts_with("vllm:kv_cache_usage_perc{") => format!("{name} {fill}\n"),
            Some((name, _)) if name.starts_with("vllm:num_requests_running{") => {
                format!("{name} {running}\n")
            }
            _ => format!("{line}\n"),
        });
        *self.page.lock().unwrap() = page.collect();
    }

    fn driver(&self) -> FakeDriver {
        let process = Process::compute(self.holder.id(), Curve::Constant(Bytes(73 << 30)));
        FakeDriver::new(&Scenario::new().gpu(Gpu::h100(0).process(process))).unwrap()
    }

    fn daemon<'w>(&self, world: &'w World, driver: &FakeDriver) -> Daemon<'w> {
        let target = format!("[{{ address = \"{}\", pid = {} }}]", self.address, self.holder.id());
        let keys = [("probe.engines", target.as_str()), ("probe.engine_interval_ms", "200")];
        world.daemon_on(driver.library_path(), &keys)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It only sleeps; either way it is gone afterwards.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn serve(listener: &TcpListener, page: &Mutex<String>) {
    for mut stream in listener.incoming().flatten() {
        let mut request = String::new();
        let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut request);
        let page = page.lock().unwrap().clone();
        // A client that has gone is no concern of a server's.
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    }
}

fn ledger(status: &Status) -> Option<&EngineLedger> {
    status.gpus.first()?.ledger.engines.first()
}

/// GiB of the pool in use, once the planner has made bytes of the blocks.
fn used_gib(status: &Status) -> Option<f64> {
    Some(ledger(status)?.used.ok()?.bytes.mib() / 1024.0)
}

#[test]
fn a_pool_that_fills_is_seen_where_the_driver_sees_nothing() {
    let (world, engine) = (World::new(), Engine::start());
    let driver = engine.driver();
    let mut daemon = engine.daemon(&world, &driver);
    let before = daemon.wait("the pool in bytes", |s| used_gib(s).is_some_and(|used| used < 6.0));
    engine.says(0.8, 120);
    let after = daemon.wait("the pool in use", |s| used_gib(s).is_some_and(|used| used > 40.0));
    let (first, last) = (ledger(&before).unwrap(), ledger(&after).unwrap());
    assert_eq!((first.vram, first.pool.unwrap().bytes), (last.vram, POOL));
    assert!(last.pool.unwrap().is_estimate(), "bytes are the planner's");
    assert!(last.spare.unwrap().bytes < first.spare.unwrap().bytes, "idle became used");
    assert_eq!(last.balances(), Some(true));
    let leaks = [Diagnosis::Leak, Diagnosis::KvPoolLeak, Diagnosis::Growth];
    assert!(after.gpus[0].judgements.iter().all(|j| !leaks.contains(&j.diagnosis)), "{after:#?}");

    let pid = engine.holder.id().to_string();
    let said = stdout(&world.run(&["explain", &pid]));
    let pool = "vLLM reserved a pool of ~54.2 GiB (gpu_memory_utilization 0.92); ~43.3 GiB of it is in use.";
    assert!(said.contains(pool), "{said}");
    assert!(said.contains("known only in the process"), "{said}");
    let all: serde_json::Value = serde_json::from_str(&stdout(&world.run(&["explain", "--json"]))).unwrap();
    assert_eq!(all[0]["answers"].as_array().unwrap().len(), 10, "{all:#}");
    assert_eq!(all[0]["answers"][0]["topic"], "reserved");
    let nobody = world.run(&["explain", "4194305"]);
    assert_eq!(nobody.status.code(), Some(65));
    assert!(stderr(&nobody).contains("4194305"), "{}", stderr(&nobody));
    assert!(daemon.stop().success());
}

#[test]
fn what_runs_now_can_be_planned_for() {
    let (world, engine) = (World::new(), Engine::start());
    let driver = engine.driver();
    let mut daemon = engine.daemon(&world, &driver);
    daemon.wait("the pool in bytes", |s| used_gib(s).is_some());
    let output = world.run(&["plan", "--live", "--context", "32k", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let live: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let live = &live[0];
    assert_eq!((&live["kv_bytes_per_token"], &live["requests"]), (&131_072.into(), &4.into()), "{live:#}");
    assert_eq!((&live["engine_name"], &live["pool_bytes"]), (&"vLLM".into(), &POOL.0.into()));
    assert!(live["max_requests"].as_u64().unwrap() >= 10, "{live:#}");
    let text = stdout(&world.run(&["plan", "--live"]));
    assert!(text.contains("vLLM at 127.0.0.1:") && text.contains("a pool of 54.2 GiB on each GPU"), "{text}");
    assert!(daemon.stop().success());
}

#[test]
fn nobody_running_is_said_and_so_is_nobody_to_ask() {
    let world = World::new();
    for args in [&["explain"][..], &["plan", "--live"]] {
        assert_eq!(world.run(args).status.code(), Some(3), "{args:?}");
    }
    let mut daemon = world.daemon_on_host(&[]);
    daemon.wait("a first sample", |s| !s.gpus.is_empty());
    let output = world.run(&["plan", "--live"]);
    assert_eq!(output.status.code(), Some(65));
    assert!(stderr(&output).contains("probe.engines"), "{}", stderr(&output));
    assert!(stdout(&world.run(&["explain"])).contains("Who holds memory"), "explained all the same");
    assert!(daemon.stop().success());
}
