//! The engine asked over HTTP by a client that knows nothing of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ebbtide_core::Bytes;

use std::num::NonZeroU16;

use super::*;
use crate::forward::{Options as Computing, Transformer};
use crate::inject::{Injector, Leak};
use crate::kernels::Kernels;
use crate::kv::{Backing, Format, Pool, PoolOptions};
use crate::load::{Load, Texts, Trace};
use crate::model::{self, Geometry, RopeStyle, synthetic};
use crate::scheduler::Options;

const GEOMETRY: Geometry = Geometry {
    hidden: 32,
    layers: 2,
    heads: 2,
    kv_heads: 1,
    head_dim: 32,
    ffn: 64,
    vocab: 256,
    context: 4096,
    rope_base: 10_000.0,
    rope_style: RopeStyle::Interleaved,
    rms_eps: 1e-5,
    tied: true,
};

fn service(blocks: u32) -> Service {
    let computing = Computing { kernels: Kernels::fastest(), threads: NonZeroU16::MIN };
    let model = synthetic(GEOMETRY, 3).unwrap();
    let options = PoolOptions::with_capacity(blocks);
    Service {
        forward: Box::new(Transformer::load(&model, computing).unwrap()),
        pool: Pool::on_host(GEOMETRY.kv(), Format::Int8, Backing::File, options).unwrap(),
        options: Options { is_audited: true, ..Options::of_context(GEOMETRY.context) },
        weights: Bytes(1000),
    }
}

fn identity() -> Identity {
    Identity {
        model: "tiny \"model\"".to_owned(),
        kv_format: "int8",
        strategy: "paged".to_owned(),
        vocab: GEOMETRY.vocab,
        context: GEOMETRY.context,
        text: Arc::new(model::Bytes),
    }
}

/// An engine at work, ended when dropped.
struct Engine {
    face: Face,
    figures: Arc<Mutex<Figures>>,
    is_over: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Engine {
    fn start() -> Self {
        let (orders, received) = sync_channel(ORDERS_MAX);
        let (send, figures) = sync_channel(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let work = move || {
            let mut worker = Worker::new(service(600), received);
            send.send(worker.figures()).unwrap();
            while !over.load(Ordering::Relaxed) {
                worker.turn().unwrap();
            }
        };
        let worker = std::thread::spawn(work);
        let figures = figures.recv().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let face = Face::start(address, identity(), orders, Arc::clone(&figures)).unwrap();
        Self { face, figures, is_over, worker: Some(worker) }
    }

    /// Waits until its figures are as wanted.
    fn wait(&self, what: &str, is_so: impl Fn(&Figures) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so(&self.figures.lock().unwrap()) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.figures.lock().unwrap());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.face.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut answer = String::new();
        self.send(method, path, body).read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.worker.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// The text of every choice in an answer or its events.
fn said(answer: &str) -> String {
    let documents = answer.lines().filter_map(|line| {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        serde_json::from_str::<serde_json::Value>(line).ok()
    });
    documents.filter_map(|document| Some(document["choices"][0]["text"].as_str()?.to_owned())).collect()
}

#[test]
fn a_stream_says_what_a_whole_answer_says_and_both_end() {
    let engine = Engine::start();
    let ask = r#"{"prompt": "A KV cache comes and goes", "max_tokens": 20, "user": "me"}"#;
    let whole = engine.ask("POST", "/v1/completions", ask);
    assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
    assert!(
        whole.contains(r#""finish_reason":"length""#) && whole.contains(r#""completion_tokens":20"#),
        "{whole}"
    );
    let stream = engine.ask("POST", "/v1/completions", &ask.replace('}', r#", "stream": true}"#));
    assert!(stream.contains("text/event-stream") && stream.contains("data: [DONE]"), "{stream}");
    assert_eq!(said(&stream), said(&whole));
    assert!(!said(&whole).is_empty());
    let drawn = |seed: u32| {
        let more = format!(r#", "temperature": 1.5, "seed": {seed}}}"#);
        said(&engine.ask("POST", "/v1/completions", &ask.replace('}', &more)))
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn what_cannot_be_served_is_refused_with_a_reason() {
    let engine = Engine::start();
    for (body, status, why) in [
        (r#"{"prompt": ""}"#, 422, "at least one token"),
        (r#"{"prompt": [1, 256]}"#, 400, "does not know"),
        ("{}", 400, "prompt"),
        (r#"{"prompt": "x", "max_tokens": -1}"#, 400, "max_tokens"),
    ] {
        let answer = engine.ask("POST", "/v1/completions", body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(why),
            "{body}: {answer}"
        );
    }
    let long = format!(r#"{{"prompt": "{}"}}"#, "x".repeat(GEOMETRY.context));
    assert!(engine.ask("POST", "/v1/completions", &long).contains("shorten it"));
    let address = "0.0.0.0:0".parse().unwrap();
    let (orders, _received) = sync_channel(1);
    let open = Face::start(address, identity(), orders, Arc::clone(&engine.figures)).unwrap_err();
    assert!(matches!(open, FaceError::NotLoopback(_)));
}

#[test]
fn whoever_goes_away_is_not_computed_for_any_longer() {
    let engine = Engine::start();
    let ask = r#"{"prompt": "x", "max_tokens": 4000, "stream": true}"#;
    let mut stream = engine.send("POST", "/v1/completions", ask);
    let mut beginning = [0; 64];
    stream.read_exact(&mut beginning).unwrap();
    engine.wait("running", |figures| figures.running == 1);
    drop(stream);
    engine.wait("given up", |figures| figures.counters.cancelled == 1 && figures.usage.used == 0);
}

#[test]
fn the_page_adds_up_and_says_what_was_done() {
    let engine = Engine::start();
    engine.ask(
        "POST",
        "/v1/completions",
        r#"{"prompt": "0123456789abcdef0123456789abcdef", "max_tokens": 3}"#,
    );
    engine.wait("idle", |figures| figures.running == 0 && figures.counters.served == 1);
    let page = engine.ask("GET", "/metrics", "");
    let value = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("ebbtide_engine_{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not on {page}")).parse().unwrap()
    };
    let states = ["used", "cached", "idle", "absent"].map(|s| value(&format!("kv_blocks{{state=\"{s}\"}}")));
    assert_eq!(states.iter().sum::<f64>(), value("kv_capacity_blocks"));
    assert_eq!(states[..3].iter().sum::<f64>(), value("kv_held_blocks"));
    assert_eq!((states[0], states[1]), (0.0, 2.0));
    assert_eq!((value("prompt_tokens_total"), value("generation_tokens_total")), (32.0, 3.0));
    assert_eq!(value("requests_total{end=\"served\"}"), 1.0);
    assert_eq!(value("step_seconds_count"), value("audits_total"));
    assert!(page.contains(r#"model="tiny \"model\"""#), "{page}");
}

/// The page that the probe's tables are held against, so that neither can change without the other.
#[test]
fn the_page_is_the_one_that_the_probe_knows() {
    let mut figures = Figures::of(&service(4096).pool, Bytes(98_000_000));
    figures.usage.used = 811;
    (figures.usage.cached, figures.usage.idle, figures.usage.free) = (320, 5, 4096 - 811 - 320);
    figures.usage.held = Bytes(1136 * figures.block.0);
    (figures.running, figures.waiting) = (7, 2);
    figures.counters.served = 5310;
    figures.leak = Some((Leak::PrefixUnbounded, Bytes(8192)));
    [2, 2, 9, 70].map(Duration::from_millis).into_iter().for_each(|time| figures.steps.count(time));
    let identity = Identity { model: "SmolLM2-135M".to_owned(), ..identity() };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/engines/ebbtide-0.1.prom");
    let page = figures.page(&identity);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), page, "BLESS=1 writes it");
}

#[test]
fn a_load_is_served_measured_and_leaves_nothing_but_its_leak() {
    let (orders, received) = sync_channel(1);
    let mut service = service(600);
    (service.options.context, service.options.running_max) = (128, 2);
    let mut worker = Worker::new(service, received);
    drop(orders);
    let texts = || Texts::new(GEOMETRY.vocab, 64, 5);
    let capacity = worker.measure(Trace::Code, texts(), Duration::from_secs(1)).unwrap();
    assert!(capacity.requests > 0.0 && capacity.tokens > capacity.requests, "{capacity:?}");
    assert_eq!(worker.pool().usage().held, Bytes::ZERO, "as before");
    let script = "0 40 4\n0 40 4 1\n0 100 9 2\n";
    let injector = Injector::new("per-request:4096".parse().unwrap(), Duration::ZERO).unwrap();
    worker.begin(Some((Load::script(script, 1.0, 128).unwrap(), texts())), Some(injector));
    let served = |worker: &Worker| worker.figures().lock().unwrap().counters.served;
    let before = served(&worker);
    while served(&worker) < before + 3 {
        worker.turn().unwrap();
    }
    worker.end_load();
    while !worker.is_idle() {
        worker.turn().unwrap();
    }
    worker.unload().unwrap();
    let figures = worker.figures().lock().unwrap().clone();
    assert_eq!((figures.usage.held, worker.pool().memory_held().unwrap()), (Bytes::ZERO, Bytes::ZERO));
    let requests = figures.counters.served - before;
    let (_, leaked) = figures.leak.unwrap();
    assert_eq!(leaked, Bytes(requests * 4096));
}
