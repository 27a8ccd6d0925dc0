//! The embedded engine as a process that is watched: what its memory is for, what it loses on purpose, and what it
//! leaves behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Instant;

use ebbtide_api::wire::Status;
use ebbtide_core::{Bytes, EngineLedger};
use rustix::process::{Pid, Signal};

use crate::runner::{DEADLINE, World, stdout};

/// What is lost, soon after the start, and no more.
const LOST: Bytes = Bytes(8 << 20);

/// An engine with one request on its way, which it answers so slowly that its cache holds still.
struct Playing {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Playing {
    fn start(world: &World, more: &[&str]) -> Self {
        let load = format!("script:{}", world.write("load", "0 200 300\n9000 1 1\n").display());
        let mut child = world
            .ebbtide(&["engine", "--attached", "--listen", "127.0.0.1:0", "--load", &load, "--pace", "1"])
            .args(["--inject", "scratch:4G", "--inject-most-mib", "8"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("listening on ") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the engine has ended");
        }
        let address = line.trim().rsplit("//").next().unwrap().to_owned();
        Self { child, output, address }
    }

    /// What the engine says it has lost: the truth.
    fn truth(&self) -> u64 {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let name = "ebbtide_engine_injected_leak_bytes_total{leak=\"scratch\"} ";
        page.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    }

    /// Whether `status` has this engine, with a cache in use, and all that was to be lost in its remainder.
    fn is_told(&self, status: &Status) -> bool {
        self.ledger(status).is_some_and(|ledger| {
            ledger.used.is_ok_and(|used| used.bytes > Bytes::ZERO)
                && ledger.remainder.is_ok_and(|rest| rest.bytes.0 == LOST.0 as i64)
        })
    }

    fn ledger<'s>(&self, status: &'s Status) -> Option<&'s EngineLedger> {
        let engines = status.gpus.iter().flat_map(|gpu| &gpu.ledger.engines);
        engines.into_iter().find(|ledger| ledger.key.pid == self.child.id())
    }

    /// Ends it; what it says last.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

#[test]
fn weights_cache_and_what_was_lost_are_told_apart_to_the_byte() {
    let world = World::new();
    let engine = Playing::start(&world, &[]);
    let target = format!("[{{ address = \"{}\", pid = {} }}]", engine.address, engine.child.id());
    let mut daemon =
        world.daemon_on_host(&[("probe.engines", target.as_str()), ("probe.engine_interval_ms", "100")]);
    let status = daemon.wait("what was lost in the remainder", |s| engine.is_told(s));
    let ledger = engine.ledger(&status).unwrap();
    assert_eq!(ledger.balances(), Some(true));
    assert_eq!(engine.truth(), LOST.0);
    // 771,200 weights in tiles of 8 bits and a sixteenth, and the vectors of the norms.
    let weights = ledger.weights.unwrap();
    assert!((0.75..1.0).contains(&weights.bytes.mib()) && !weights.is_estimate(), "{weights}");
    // A prompt of 200 tokens at 1 KiB, in blocks of 16.
    assert!((0.2..0.5).contains(&ledger.used.unwrap().bytes.mib()), "{}", ledger.used.unwrap());

    let said = stdout(&world.run(&["explain", &engine.child.id().to_string()]));
    let split = format!("= weights {weights} + KV pool {} + remainder {LOST}", ledger.pool.unwrap());
    assert!(said.contains(&split), "{said}");
    assert!(daemon.stop().success());
    let end = engine.end();
    assert!(end.contains(&format!("lost on purpose: {LOST}")), "{end}");
    assert!(end.contains(&format!("beside pool and weights the kernel counts {LOST}")), "{end}");
}

#[test]
fn a_status_file_says_as_much_and_only_the_process_that_is_meant_counts() {
    let world = World::new();
    let (engine, other) = (Playing::start(&world, &["--status-dir", "."]), Playing::start(&world, &[]));
    let (pid, dir) = (engine.child.id().to_string(), world.path(".").display().to_string());
    let mut daemon = world.daemon_on_host(&[("probe.engine_dir", &dir), ("probe.host_pid", &pid)]);
    let status = daemon.wait("what was lost in the remainder", |s| engine.is_told(s));
    let ledger = engine.ledger(&status).unwrap();
    assert_eq!((ledger.balances(), &ledger.missing[..]), (Some(true), &[][..]));
    assert_eq!(status.gpus[0].gpu.memory.unwrap().used, ledger.vram.unwrap(), "the other one does not count");
    assert!(daemon.stop().success());
    other.end();
    engine.end();
    let left = fs::read_dir(world.path(".")).unwrap().flatten().map(|entry| entry.path());
    assert_eq!(left.filter(|path| path.extension().is_some_and(|e| e == "json")).count(), 0, "status files");
}

#[test]
fn a_demo_that_is_stopped_leaves_nothing_behind() {
    let world = World::new();
    fs::create_dir(world.path("tmp")).unwrap();
    let mut demo = world
        .ebbtide(&["demo", "--headless"])
        .env("TMPDIR", world.path("tmp"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(demo.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("used") {
        assert!(output.read_line(&mut said).unwrap() > 0, "the demo has ended: {said}");
    }
    let engine = engine_of(demo.id());
    rustix::process::kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    output.read_to_string(&mut said).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1));
    assert!(said.contains("Stopped before the end"), "{said}");
    let deadline = Instant::now() + DEADLINE;
    while fs::exists(format!("/proc/{engine}")).unwrap() {
        assert!(Instant::now() < deadline, "the engine goes on");
    }
    assert_eq!(fs::read_dir(world.path("tmp")).unwrap().count(), 0, "a directory is left");
}

/// The command and what it prints, as `document` shows them.
fn sample(document: &str) -> (Vec<String>, String) {
    let (_, shown) = document.split_once("```console\n$ ebbtide engine ").unwrap();
    let (command, printed) = shown.split_once('\n').unwrap();
    // A shell's quotes: what is between two of them is one argument.
    let arguments = command.split('"').enumerate().flat_map(|(part, text)| match part % 2 {
        0 => text.split_whitespace().map(str::to_owned).collect(),
        _ => vec![text.to_owned()],
    });
    (arguments.collect(), printed.split_once("```").unwrap().0.to_owned())
}

#[test]
fn the_sample_in_the_documents_is_what_the_model_says_with_any_kernels() {
    let world = World::new();
    let (readme, page) = (include_str!("../../README.md"), include_str!("../../docs/engine.md"));
    let (arguments, shown) = sample(readme);
    assert_eq!(sample(page), (arguments.clone(), shown.clone()));
    let arguments: Vec<&str> =
        std::iter::once("engine").chain(arguments.iter().map(String::as_str)).collect();
    let mut tiers = 0;
    for tier in ["scalar", "avx2", "avx512"] {
        let output = world.ebbtide(&arguments).env("EBBTIDE_KERNELS", tier).output().unwrap();
        if output.status.success() {
            tiers += 1;
            assert_eq!(stdout(&output), shown, "{tier}");
        }
    }
    assert!(tiers > 0, "plain Rust is everywhere");
}

/// The only child of process `pid`.
fn engine_of(pid: u32) -> u32 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    children
        .flat_map(|c| c.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>())
        .next()
        .unwrap()
}
