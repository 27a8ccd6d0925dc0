//! What the whole daemon costs: `cargo bench --bench cost [-- SECONDS]`.
//!
//! The real binary, with storage and detection on, reads the fake driver at 1 Hz: 8 GPUs, 40 live processes, five a
//! GPU, each with memory that moves. CPU time is the scheduler's account of all its threads, so a busy machine does
//! not show in it; what a real driver takes is not in it, for which the number of NVML calls stands. Where `nvtop` is
//! installed it reads the same driver in the same minute.
//!
//! Two more rows say what reading engines costs: looking for them among the 40 processes, none of which is one, which
//! is the dearest case; and a vLLM page of 73 KB from loopback every 5 s for the first process.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on fails, and prints a table"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ebbtide_core::{ByteRate, Bytes};
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};

const GPUS: u32 = 8;
const PROCESSES_A_GPU: u32 = 5;
/// Start-up is not running cost.
const WARM_UP: Duration = Duration::from_secs(10);
const DEFAULT_SECONDS: u64 = 60;

/// What was measured of one program.
struct Cost {
    cpu_ms_per_s: f64,
    rss_mib: f64,
    calls_per_s: f64,
}

fn main() {
    let seconds = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(DEFAULT_SECONDS);
    let span = Duration::from_secs(seconds);
    let mut tenants: Vec<Child> = (0..GPUS * PROCESSES_A_GPU).map(|_| tenant()).collect();
    let pids: Vec<u32> = tenants.iter().map(Child::id).collect();

    println!("{GPUS} GPUs, {} processes, 1 Hz, {seconds} s after {} s\n", pids.len(), WARM_UP.as_secs());
    println!("| program | CPU, ms a second | RSS, MiB | NVML calls a second |");
    println!("|---|---|---|---|");
    print_row("budget of the daemon", &Cost { cpu_ms_per_s: 2.0, rss_mib: 12.0, calls_per_s: 192.0 });
    print_row("ebbtide daemon", &measure(&pids, span, |driver, dir| ebbtide(driver, dir, &[])));
    let looking = [("probe.discover_engines", "true")];
    print_row(
        "the same, looking for engines",
        &measure(&pids, span, |driver, dir| ebbtide(driver, dir, &looking)),
    );
    let target = format!("[{{ address = \"{}\", pid = {} }}]", serve(), pids[0]);
    let reading = [("probe.engines", target.as_str())];
    print_row(
        "the same, reading one engine",
        &measure(&pids, span, |driver, dir| ebbtide(driver, dir, &reading)),
    );
    if which("nvtop") && which("script") {
        print_row("nvtop", &measure(&pids, span, nvtop));
    } else {
        println!("| nvtop | not installed | | |");
    }
    for tenant in &mut tenants {
        tenant.kill().unwrap();
        tenant.wait().unwrap();
    }
}

fn print_row(name: &str, cost: &Cost) {
    println!("| {name} | {:.2} | {:.1} | {:.1} |", cost.cpu_ms_per_s, cost.rss_mib, cost.calls_per_s);
}

fn tenant() -> Child {
    Command::new("sleep").arg("100000").stdin(Stdio::null()).spawn().unwrap()
}

/// Five processes a GPU: level, growing, and three that ebb and flow.
fn world(pids: &[u32]) -> Scenario {
    let gib = |n: u64| Bytes(n << 30);
    let curve = |i: u64| match i % 5 {
        0 => Curve::Constant(gib(16)),
        1 => Curve::linear(gib(4), ByteRate::from_mib_per_min(2.0)),
        n => Curve::Sawtooth { low: gib(2), high: gib(2 + n), period_ms: 20_000 + 1_000 * i },
    };
    let process = |(i, pid): (usize, &u32)| Process::compute(*pid, curve(i as u64));
    let gpu = |(index, pids): (usize, &[u32])| {
        pids.iter().enumerate().map(process).fold(Gpu::h100(index as u32), Gpu::process)
    };
    pids.chunks(PROCESSES_A_GPU as usize).enumerate().map(gpu).fold(Scenario::new(), Scenario::gpu)
}

/// Serves a vLLM page on loopback as long as the bench runs.
fn serve() -> SocketAddr {
    let page = include_str!("../tests/fixtures/engines/vllm-0.33.0.prom");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = String::new();
            let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut request);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
        }
    });
    address
}

fn measure(pids: &[u32], span: Duration, start: impl Fn(&FakeDriver, &Path) -> Child) -> Cost {
    let driver = FakeDriver::new(&world(pids)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(&driver, dir.path());
    wait(WARM_UP);
    let pid = observed(child.id());
    let (cpu, calls, begun) = (cpu_ns(pid), calls(&driver), Instant::now());
    wait(span);
    let elapsed = begun.elapsed().as_secs_f64();
    let cost = Cost {
        cpu_ms_per_s: (cpu_ns(pid) - cpu) as f64 / 1e6 / elapsed,
        rss_mib: rss_mib(pid),
        calls_per_s: (self::calls(&driver) - calls) as f64 / elapsed,
    };
    child.kill().unwrap();
    child.wait().unwrap();
    cost
}

fn ebbtide(driver: &FakeDriver, dir: &Path, keys: &[(&str, &str)]) -> Child {
    let keys = keys.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]);
    let set = |key: &str, value: &Path| format!("{key}={}", value.display());
    Command::new(env!("CARGO_BIN_EXE_ebbtide"))
        .arg("daemon")
        .args(["--set", &set("probe.library", driver.library_path())])
        .args(["--set", &set("store.path", &dir.join("ebbtide.db"))])
        .args(["--set", &set("api.socket", &dir.join("ebbtide.sock"))])
        .args(["--set", "log.level=error"])
        .args(keys)
        .env("HOME", dir)
        .spawn()
        .unwrap()
}

/// In a terminal, as people run it, at its default of a second.
fn nvtop(driver: &FakeDriver, dir: &Path) -> Child {
    Command::new("script")
        .args(["-qfc", "stty cols 160 rows 45; exec nvtop -d 10", "/dev/null"])
        .env("LD_LIBRARY_PATH", driver.lib_dir())
        .env("TERM", "xterm-256color")
        .env("HOME", dir)
        .stdout(Stdio::null())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The process itself, or the program that `script` runs in its terminal.
fn observed(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().map_or(pid, |child| observed(child.parse().unwrap()))
}

/// Time on a processor of all threads that live: ours start at the beginning and stay.
fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: fs::DirEntry| {
        let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap();
        schedstat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    tasks.map(|task| of(task.unwrap())).sum()
}

fn rss_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

fn calls(driver: &FakeDriver) -> u64 {
    driver.calls().unwrap().values().sum()
}

fn wait(span: Duration) {
    let until = Instant::now() + span;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

fn which(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
