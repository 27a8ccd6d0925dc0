//! Engines that are asked over HTTP beside a fake GPU: whose figures they are, and that no answer disturbs a tick.

#![allow(clippy::unwrap_used, reason = "clippy exempts functions marked #[test], not their helpers")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebbtide_core::{Absent, Bytes, EngineSample, Sample};
use ebbtide_probe::{EngineTarget, Probe, ProbeConfig, SourceConfig};
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};

/// Longer than anything is waited for on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a server answers.
#[derive(Debug, Clone)]
enum Answer {
    /// `/metrics` with this page, anything else with 404.
    Page(String),
    /// These bytes, and then the end of the connection.
    Raw(Vec<u8>),
    /// Nothing, and the connection stays.
    Silence,
    /// A header, and then a byte now and then without an end.
    Drip,
}

/// A server on loopback, in this process.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Mutex::new(answer));
        let current = Arc::clone(&answer);
        std::thread::spawn(move || serve(&listener, &current));
        Self { address, answer }
    }

    fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn target(&self) -> EngineTarget {
        EngineTarget { address: self.address.to_string(), ..EngineTarget::default() }
    }
}

fn serve(listener: &TcpListener, answer: &Mutex<Answer>) {
    for stream in listener.incoming().flatten() {
        let answer = answer.lock().unwrap().clone();
        std::thread::spawn(move || respond(stream, answer));
    }
}

/// A client that has gone is no concern of a server's.
fn respond(mut stream: TcpStream, answer: Answer) {
    let mut request = String::new();
    let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut request);
    match answer {
        Answer::Page(page) if request.starts_with("GET /metrics ") => {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
        }
        Answer::Page(_) => drop(stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")),
        Answer::Raw(bytes) => drop(stream.write_all(&bytes)),
        Answer::Silence => drop(std::io::copy(&mut stream, &mut std::io::sink())),
        Answer::Drip => {
            let (_never, tick) = mpsc::channel::<()>();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(b"#").is_ok() {
                let _ = tick.recv_timeout(Duration::from_millis(20));
            }
        }
    }
}

fn vllm(fill: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/engines/vllm-0.14.1.prom");
    std::fs::read_to_string(path).unwrap().replace("} 0.3391", &format!("}} {fill}"))
}

/// A card with 60 GiB of process `pid` on it, which never change.
fn driver(pid: u32) -> FakeDriver {
    let process = Process::compute(pid, Curve::Constant(Bytes::from_mib(60 << 10)));
    FakeDriver::new(&Scenario::new().gpu(Gpu::h100(0).process(process))).unwrap()
}

fn config(driver: &FakeDriver, engines: Vec<EngineTarget>) -> ProbeConfig {
    ProbeConfig {
        interval: Duration::from_millis(100),
        source: SourceConfig::Nvml { library: Some(driver.library_path().to_owned()) },
        engines,
        engine_interval: Duration::from_millis(200),
        ..ProbeConfig::default()
    }
}

fn started(config: ProbeConfig) -> (Probe, Receiver<Sample>) {
    let (sink, samples) = mpsc::sync_channel(16);
    (ebbtide_probe::start(config, move |sample| sink.send(sample).is_ok()).unwrap(), samples)
}

fn until(samples: &Receiver<Sample>, wanted: impl Fn(&Sample) -> bool) -> Sample {
    let started = Instant::now();
    let mut last = None;
    while started.elapsed() < PATIENCE {
        let sample = samples.recv_timeout(PATIENCE).unwrap();
        if wanted(&sample) {
            return sample;
        }
        last = Some(sample);
    }
    panic!("not seen in {PATIENCE:?}; last was {last:#?}");
}

fn engine(sample: &Sample) -> Option<&EngineSample> {
    sample.gpus.first()?.processes.as_ref().ok()?.entries.first()?.engine.as_ref()
}

fn fill(sample: &Sample) -> Option<f64> {
    engine(sample)?.report.as_ref()?.kv.fill.ok()
}

#[test]
fn the_cache_fills_while_the_memory_stays() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.1")));
    let target = EngineTarget { kv_bytes_per_token: Some(65_536), ..server.target() };
    let (_probe, samples) = started(config(&driver, vec![target]));
    let before = until(&samples, |sample| fill(sample) == Some(0.1));
    server.set(Answer::Page(vllm("0.9")));
    let after = until(&samples, |sample| fill(sample) == Some(0.9));
    let (before, after) = (engine(&before).unwrap(), engine(&after).unwrap());
    assert_eq!(before.kv_pool, Ok(Bytes(54_568 * 16 * 65_536)));
    assert_eq!(before.kv_pool, after.kv_pool);
    assert_eq!(before.kv_used, Ok(Bytes(5_457 * 16 * 65_536)));
    assert_eq!(after.kv_used, Ok(Bytes(49_110 * 16 * 65_536)));
    assert_eq!((after.running, after.waiting), (Ok(42), Ok(1)));
}

#[test]
fn figures_of_an_engine_that_hangs_grow_old_and_the_ticks_go_on() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.5")));
    let (probe, samples) = started(config(&driver, vec![server.target()]));
    let fresh = until(&samples, |sample| fill(sample).is_some());
    server.set(Answer::Silence);
    let old = until(&samples, |sample| engine(sample).is_some_and(|e| e.running == Err(Absent::Timeout)));
    let report = engine(&old).unwrap().report.as_ref().unwrap();
    assert_eq!((report.engine.as_str(), report.kv.fill), ("vLLM", Err(Absent::Timeout)));
    let said =
        until(&samples, |sample| sample.probe.notes.iter().any(|note| note.contains("no whole answer")));
    // Two seconds pass before a silent engine is given up, and samples are 100 ms apart.
    assert!(said.tick.seq > fresh.tick.seq + 10, "no tick waited for it");
    server.set(Answer::Page(vllm("0.6")));
    until(&samples, |sample| fill(sample) == Some(0.6));
    assert!(probe.stop(PATIENCE));
}

fn whole(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Each hostile answer marks its target bad, with a reason, and the good one beside it is read on.
#[test]
fn a_hostile_answer_spoils_its_own_target_only() {
    let page = vllm("0.5");
    let open = format!("HTTP/1.1 200 OK\r\n\r\n{}", page.trim_end());
    let long_label = format!("vllm:kv_cache_usage_perc{{x=\"{}\"}} 1\n", "y".repeat(1 << 20));
    let gauge = "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 4\n";
    let hostile = [
        (Answer::Raw(whole(page.as_bytes())[..20_000].to_vec()), "breaks off"),
        (Answer::Raw(open.into_bytes()), "breaks off"),
        (Answer::Raw(whole(vllm("1e400").as_bytes())), "out of range"),
        (Answer::Raw(whole(format!("{gauge}{gauge}").as_bytes())), "twice"),
        (Answer::Raw(whole(long_label.as_bytes())), "label value"),
        (Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n".to_vec()), "larger than"),
        (Answer::Raw([b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'#'; 9 << 20]].concat()), "larger than"),
        (Answer::Raw(whole(b"\x1b[31m<html>")), "makes no sense"),
        (Answer::Raw(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()), "no HTTP"),
        (Answer::Page("up 1\n".to_owned()), "no table describes"),
        (Answer::Drip, "no whole answer in time"),
    ];
    let driver = driver(std::process::id());
    let good = Server::start(Answer::Page(page));
    let servers: Vec<_> = hostile.iter().map(|(answer, _)| Server::start(answer.clone())).collect();
    let mut targets = vec![good.target()];
    targets.extend(servers.iter().map(Server::target));
    let (_probe, samples) = started(config(&driver, targets));
    for (server, (_, reason)) in servers.iter().zip(&hostile) {
        let address = server.address.to_string();
        let is_said = |note: &String| note.contains(&address) && note.contains(reason);
        let sample = until(&samples, |sample| sample.probe.notes.iter().any(is_said));
        assert!(sample.probe.notes.iter().all(|note| !note.contains('\x1b')));
    }
    until(&samples, |sample| fill(sample) == Some(0.5));
}

/// vLLM's server listens in the parent, and the memory is its child's.
#[test]
fn figures_belong_to_the_child_that_holds_the_memory() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let driver = driver(child.id());
    let server = Server::start(Answer::Page(vllm("0.5")));
    let (_probe, samples) = started(config(&driver, vec![server.target()]));
    let sample = until(&samples, |sample| fill(sample).is_some());
    assert_eq!(sample.gpus[0].processes.as_ref().unwrap().entries[0].key.pid, child.id());
    drop(child.stdin.take());
    child.wait().unwrap();
    until(&samples, |sample| engine(sample).is_none());
}

#[test]
fn a_target_s_pid_says_whose_its_figures_are() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.5")));
    // Larger than the kernel's largest PID, 4,194,304.
    let stranger = EngineTarget { pid: Some(1 << 30), ..server.target() };
    let (probe, samples) = started(config(&driver, vec![stranger]));
    let nobody = |note: &String| note.contains("no GPU process is known to be its own");
    let sample = until(&samples, |sample| sample.probe.notes.iter().any(nobody));
    assert!(engine(&sample).is_none());
    assert!(probe.stop(PATIENCE));
    let ours = EngineTarget { pid: Some(std::process::id()), ..server.target() };
    let (_probe, samples) = started(config(&driver, vec![ours]));
    until(&samples, |sample| fill(sample) == Some(0.5));
}

#[test]
fn an_engine_is_found_by_the_socket_of_its_process() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.25")));
    let (_probe, samples) = started(ProbeConfig { discover_engines: true, ..config(&driver, Vec::new()) });
    let sample = until(&samples, |sample| fill(sample).is_some());
    let report = engine(&sample).unwrap().report.clone().unwrap();
    // Tests of this file share a process, and each has an engine.
    assert!(report.address.starts_with("127.0.0.1:") && report.engine == "vLLM");
    drop(server);
}

/// Set for a copy of this test binary that is to serve a page: the address to listen on.
const SERVE_AT: &str = "EBBTIDE_TEST_SERVE_AT";

/// Not a test of its own: what [`Namespace::serve`] runs in another namespace.
#[test]
fn serves_a_page_when_asked_to() {
    let Ok(address) = std::env::var(SERVE_AT) else { return };
    let listener = TcpListener::bind(address).unwrap();
    let page = Mutex::new(Answer::Page(vllm("0.75")));
    std::thread::spawn(move || serve(&listener, &page));
    // Lives until whoever started it closes the pipe.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// A network namespace with one end of a pair of interfaces, as a pod has.
#[derive(Debug)]
struct Namespace {
    name: String,
    /// The address inside.
    address: String,
}

impl Namespace {
    /// `None` where this machine or this user cannot make one.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let (name, outside, inside) = (format!("ebbtide-{id}"), format!("eba{id}"), format!("ebb{id}"));
        ip(&["netns", "add", &name])?;
        // A network for benchmarks (RFC 2544), another one for each process that runs this.
        let network = format!("198.18.{}.{}", id % 256, id / 256 % 64 * 4);
        let (prefix, last) = network.rsplit_once('.')?;
        let host = |offset: u32| Some(format!("{prefix}.{}", last.parse::<u32>().ok()? + offset));
        let (outer, address) = (format!("{}/30", host(1)?), host(2)?);
        let namespace = Self { name: name.clone(), address: address.clone() };
        ip(&["link", "add", &outside, "type", "veth", "peer", "name", &inside, "netns", &name])?;
        ip(&["addr", "add", &outer, "dev", &outside])?;
        ip(&["link", "set", &outside, "up"])?;
        ip(&["-n", &name, "addr", "add", &format!("{address}/30"), "dev", &inside])?;
        ip(&["-n", &name, "link", "set", &inside, "up"])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Some(namespace)
    }

    fn serve(&self, address: &str) -> Child {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(me).args(["--exact", "serves_a_page_when_asked_to"]);
        command.env(SERVE_AT, address).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Option<()> {
    let output = Command::new("ip").args(arguments).output().ok()?;
    output.status.success().then_some(())
}

/// A pod's engine is read at the pod's own address; what listens on its loopback only is not, and the same port of
/// ours is never taken for it.
#[test]
fn an_engine_in_another_network_namespace_is_reached_at_its_own_address() {
    let Some(namespace) = Namespace::new() else {
        println!("skipped: network namespaces need root and iproute2");
        return;
    };
    // The decoy has the port of the pod's loopback engine, in our own namespace.
    let decoy = TcpListener::bind("127.0.0.1:0").unwrap();
    decoy.set_nonblocking(true).unwrap();
    let port = decoy.local_addr().unwrap().port();
    for (bound, reached) in [
        (format!("127.0.0.1:{port}"), None),
        ("0.0.0.0:8000".to_owned(), Some(format!("{}:8000", namespace.address))),
    ] {
        let mut server = namespace.serve(&bound);
        let driver = driver(server.id());
        let (_probe, samples) =
            started(ProbeConfig { discover_engines: true, ..config(&driver, Vec::new()) });
        match reached {
            Some(address) => {
                let sample = until(&samples, |sample| fill(sample) == Some(0.75));
                assert_eq!(engine(&sample).unwrap().report.as_ref().unwrap().address, address);
            }
            None => {
                let seen =
                    until(&samples, |sample| sample.gpus.first().is_some_and(|gpu| gpu.processes.is_ok()));
                let later = until(&samples, |sample| sample.tick.seq > seen.tick.seq + 20);
                assert!(engine(&later).is_none());
                assert!(decoy.accept().is_err(), "our own port was asked instead");
            }
        }
        drop(server.stdin.take());
        server.wait().unwrap();
    }
}
