//! A server that answers as an engine does, or worse, beside a fake GPU.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of this")]
#![allow(clippy::unwrap_used, reason = "clippy exempts functions marked #[test], not their helpers")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebbtide_core::{Bytes, EngineSample, Sample};
use ebbtide_probe::{EngineTarget, Probe, ProbeConfig, SourceConfig};
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};

/// Longer than anything is waited for on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How a server answers.
#[derive(Debug, Clone)]
pub enum Answer {
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
pub struct Server {
    pub address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
}

impl Server {
    pub fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Mutex::new(answer));
        let current = Arc::clone(&answer);
        std::thread::spawn(move || serve(&listener, &current));
        Self { address, answer }
    }

    pub fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    pub fn target(&self) -> EngineTarget {
        EngineTarget { address: self.address.to_string(), ..EngineTarget::default() }
    }
}

pub fn serve(listener: &TcpListener, answer: &Mutex<Answer>) {
    for stream in listener.incoming().flatten() {
        let answer = answer.lock().unwrap().clone();
        std::thread::spawn(move || respond(stream, answer));
    }
}

/// A client that has gone is no concern of a server's.
pub fn respond(mut stream: TcpStream, answer: Answer) {
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

pub fn vllm(fill: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/engines/vllm-0.14.1.prom");
    std::fs::read_to_string(path).unwrap().replace("} 0.3391", &format!("}} {fill}"))
}

/// A card with 60 GiB of process `pid` on it, which never change.
pub fn driver(pid: u32) -> FakeDriver {
    let process = Process::compute(pid, Curve::Constant(Bytes::from_mib(60 << 10)));
    FakeDriver::new(&Scenario::new().gpu(Gpu::h100(0).process(process))).unwrap()
}

pub fn config(driver: &FakeDriver, engines: Vec<EngineTarget>) -> ProbeConfig {
    ProbeConfig {
        interval: Duration::from_millis(100),
        source: SourceConfig::Nvml { library: Some(driver.library_path().to_owned()) },
        engines,
        engine_interval: Duration::from_millis(200),
        ..ProbeConfig::default()
    }
}

pub fn started(config: ProbeConfig) -> (Probe, Receiver<Sample>) {
    let (sink, samples) = mpsc::sync_channel(16);
    (ebbtide_probe::start(config, move |sample| sink.send(sample).is_ok()).unwrap(), samples)
}

pub fn until(samples: &Receiver<Sample>, wanted: impl Fn(&Sample) -> bool) -> Sample {
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

pub fn engine(sample: &Sample) -> Option<&EngineSample> {
    sample.gpus.first()?.processes.as_ref().ok()?.entries.first()?.engine.as_ref()
}

pub fn fill(sample: &Sample) -> Option<f64> {
    engine(sample)?.report.as_ref()?.kv.fill.ok()
}
