//! Server and client against each other, over a socket in a directory of the test's own.

#![allow(clippy::unwrap_used, reason = "the lint knows tests by their attribute only, and helpers have none")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ebbtide_api::client::SocketClient;
use ebbtide_api::server::{
    Api, HistoryError, HistoryFuture, HistorySource, Interest, MAX_HISTORIES, MAX_STREAMS, Socket,
};
use ebbtide_api::wire::{
    GpuStatus, Health, Histories, HistoriesQuery, History, HistoryQuery, Level, SCHEMA, SeriesEntry,
    SeriesHistory, SeriesQuery, Span, Status,
};
use ebbtide_api::{Client, ClientError};
use ebbtide_core::{
    Absent, Bytes, DeviceMemory, GpuKind, GpuSample, GpuState, GpuUuid, HostSample, Ledger, MemorySource,
    Metric, Owner, Percent, Pod, ProcKey, SeriesKey, Tick, Ts,
};
use tokio::sync::{oneshot, watch};

/// One GPU that answers in part, one that is lost; `padding` bytes of name make it as large as a test wants.
fn status(seq: u64, padding: usize) -> Status {
    let tick = Tick { seq, at: Ts(1_000 * seq as i64), mono_ms: 1_000 * seq };
    let memory = DeviceMemory {
        total: Bytes::from_mib(80_000),
        used: Bytes::from_mib(seq),
        free: Bytes::from_mib(80_000 - seq),
        reserved: Err(Absent::NotYet),
        source: MemorySource::NvmlV1,
    };
    let present = GpuSample {
        uuid: GpuUuid::new("GPU-a"),
        index: 0,
        name: "NVIDIA H200".into(),
        kind: GpuKind::Discrete,
        state: GpuState::Present,
        memory: Ok(memory),
        utilization: Ok(Percent(0)),
        processes: Err(Absent::NotYet),
        holders: Vec::new(),
    };
    let lost = GpuSample {
        uuid: GpuUuid::new("GPU-b"),
        index: 1,
        name: "x".repeat(padding).into(),
        state: GpuState::Lost,
        memory: Err(Absent::NotYet),
        utilization: Err(Absent::NotYet),
        ..present.clone()
    };
    let gpus =
        [present, lost].map(|gpu| GpuStatus { ledger: Ledger::of(&gpu, tick), gpu, judgements: Vec::new() });
    Status {
        schema: SCHEMA,
        version: "0.1.0".into(),
        host: "node".into(),
        tick,
        level: Level::Warning,
        gpus: gpus.into(),
        machine: HostSample { total: Ok(Bytes(1 << 40)), available: Err(Absent::NotYet) },
        findings: Vec::new(),
        alerts: Vec::new(),
        health: Health { store_error: Some("disk is full".into()), ..Health::default() },
    }
}

/// Answers with the query itself, as far as an answer can hold it; knows nothing of the host's series.
struct Echo;

impl HistorySource for Echo {
    fn history(&self, query: HistoryQuery) -> HistoryFuture<'_, History> {
        Box::pin(async move {
            if query.series.gpu.is_none() {
                return Err(HistoryError::Unavailable("none is kept".into()));
            }
            let span =
                Span { at: query.from, min: None, max: Some(query.to.0), last: Some(query.points.into()) };
            Ok(History { series: query.series, spans: vec![span], gaps: Vec::new() })
        })
    }

    fn series(&self, wanted: SeriesQuery) -> HistoryFuture<'_, Vec<SeriesEntry>> {
        Box::pin(async move { Ok(vec![entry(wanted)]) })
    }

    fn histories(&self, query: HistoriesQuery) -> HistoryFuture<'_, Histories> {
        Box::pin(async move {
            if query.wanted == SeriesQuery::default() {
                return Err(HistoryError::TooMany(MAX_HISTORIES + 1));
            }
            let span =
                Span { at: query.from, min: None, max: Some(query.to.0), last: Some(query.points.into()) };
            let history = SeriesHistory { entry: entry(query.wanted), spans: vec![span] };
            Ok(Histories { histories: vec![history], gaps: Vec::new() })
        })
    }
}

/// The series that a query describes, as far as a series can hold it.
fn entry(wanted: SeriesQuery) -> SeriesEntry {
    let proc = wanted.pid.map(|pid| ProcKey { pid, start_ticks: None });
    let pod = wanted.pod.map(|uid| Pod { uid, name: None, namespace: None });
    SeriesEntry {
        series: SeriesKey { gpu: wanted.gpu, proc, metric: wanted.metric.unwrap_or(Metric::UsedBytes) },
        name: wanted.name,
        owner: Owner { unit: wanted.unit, container: wanted.container, pod },
        engine: wanted.engine,
        open: wanted.open,
    }
}

/// What a server is told.
struct Published {
    status: watch::Sender<Arc<Status>>,
    ticks: watch::Sender<Tick>,
}

impl Published {
    /// Tells a tick with its status.
    fn send(&self, status: Status) {
        let tick = status.tick;
        self.status.send_replace(Arc::new(status));
        self.ticks.send_replace(tick);
    }
}

/// A server that runs, on a thread of its own.
struct Served {
    _dir: tempfile::TempDir,
    path: PathBuf,
    published: Published,
    interest: Interest,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Served {
    fn with(first: Status) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ebbtide.sock");
        let (ticks, told) = watch::channel(first.tick);
        let (status, newest) = watch::channel(Arc::new(first));
        let published = Published { status, ticks };
        let interest = Interest::default();
        let api = Api::new(newest, told, interest.clone(), Arc::new(Echo));
        let (stop, stopped) = oneshot::channel();
        let socket = Socket::bind(&path).unwrap();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let shutdown = async { stopped.await.unwrap_or(()) };
            runtime.block_on(socket.serve(api, shutdown)).unwrap();
        });
        Self { _dir: dir, path, published, interest, stop, thread }
    }

    fn client(&self) -> SocketClient {
        SocketClient::new(&self.path)
    }

    /// The answer to a request as it stands on the wire.
    fn raw(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // A server that refuses what is too large closes before it has read all: the answer is there, and then the
        // connection is reset.
        let refused = |error: &std::io::Error| {
            matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        };
        let sent = stream.write_all(request.as_bytes());
        assert!(sent.as_ref().err().is_none_or(refused), "{sent:?}");
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        assert!(read.as_ref().err().is_none_or(refused), "{read:?}");
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, target: &str) -> String {
        self.raw(&format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    fn json<T: serde::de::DeserializeOwned>(&self, target: &str) -> T {
        let answer = self.get(target);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
        assert!(!self.path.exists(), "the socket's file goes with the server");
    }
}

#[test]
fn a_status_arrives_as_it_was_with_what_is_absent_absent() {
    let served = Served::with(status(7, 1));
    let client = served.client();
    assert_eq!(client.status().unwrap(), status(7, 1));
    served.published.send(status(8, 1));
    assert_eq!(client.status().unwrap(), status(8, 1), "the newest is told, not the first that was written");
    assert!(served.get("/v1/status").contains("\"memory\":null"), "unknown is null on the wire");
    served.end();
}

#[test]
fn a_stream_tells_each_status_as_it_comes_and_ends_with_the_daemon() {
    let served = Served::with(status(1, 1));
    let mut stream = served.client().watch().unwrap();
    for seq in 1..20 {
        assert_eq!(stream.next().unwrap().unwrap(), status(seq, 1));
        served.published.send(status(seq + 1, 1));
    }
    assert_eq!(stream.next().unwrap().unwrap().tick.seq, 20);
    let waiting = thread::spawn(move || stream.next().is_none());
    served.end();
    assert!(waiting.join().unwrap(), "a stream ends without an error");
}

/// Ticks come, and a status is made where somebody asks or watches, and not otherwise.
#[test]
fn a_status_is_made_for_those_who_want_it_only() {
    let served = Served::with(status(1, 1));
    for seq in 2..50 {
        served.published.ticks.send_replace(status(seq, 1).tick);
        assert!(!served.interest.is_watched());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = served.client();
    let asking = thread::spawn(move || client.status().unwrap());
    runtime.block_on(served.interest.asked());
    served.published.send(status(50, 1));
    assert_eq!(asking.join().unwrap(), status(50, 1), "the newest, and not the first that was made");

    served.published.ticks.send_replace(status(51, 1).tick);
    let client = served.client();
    let watching = thread::spawn(move || client.watch().unwrap());
    runtime.block_on(served.interest.asked());
    assert!(served.interest.is_watched());
    served.published.send(status(51, 1));
    let mut stream = watching.join().unwrap();
    assert_eq!(stream.next().unwrap().unwrap(), status(51, 1));
    drop(stream);
    let deadline = Instant::now() + Duration::from_secs(30);
    while served.interest.is_watched() {
        assert!(Instant::now() < deadline, "who has gone watches on");
        // The server notices with the next event that nobody takes.
        served.published.send(status(52, 1));
        thread::park_timeout(Duration::from_millis(5));
    }
    served.end();
}

#[test]
fn a_stream_ends_when_nothing_is_published_any_more() {
    let mut served = Served::with(status(1, 1));
    let mut stream = served.client().watch().unwrap();
    assert!(stream.next().unwrap().is_ok());
    served.published.status = watch::channel(Arc::new(status(1, 1))).0;
    assert!(stream.next().is_none());
    served.end();
}

#[test]
fn a_slow_reader_misses_statuses_but_gets_the_newest_and_delays_nobody() {
    const LARGE: usize = 4 << 20;
    let served = Served::with(status(1, LARGE));
    let mut slow = served.client().watch().unwrap();
    assert_eq!(slow.next().unwrap().unwrap().tick.seq, 1);
    let mut quick = served.client().watch().unwrap();
    for seq in 2..=30 {
        served.published.send(status(seq, LARGE));
        while quick.next().unwrap().unwrap().tick.seq < seq {}
    }
    let mut seen = Vec::new();
    while seen.last() != Some(&30) {
        seen.push(slow.next().unwrap().unwrap().tick.seq);
    }
    assert!(seen.is_sorted() && seen.len() < 10, "the server kept only what was under way: {seen:?}");
    served.end();
}

#[test]
fn a_client_that_reads_nothing_and_one_that_asks_nothing_do_not_hold_up_the_end() {
    let served = Served::with(status(1, 8 << 20));
    let mut deaf = UnixStream::connect(&served.path).unwrap();
    deaf.write_all(b"GET /v1/frames HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    deaf.read_exact(&mut [0; 16]).unwrap();
    let mut mute = UnixStream::connect(&served.path).unwrap();
    mute.write_all(b"GET /v1/sta").unwrap();
    assert!(served.client().status().is_ok(), "others are answered");
    served.end();
}

#[test]
fn history_is_asked_for_in_full_and_its_lack_is_told() {
    let served = Served::with(status(1, 1));
    let series = SeriesKey { gpu: Some(GpuUuid::new("GPU a+b")), proc: None, metric: Metric::UsedBytes };
    let query = HistoryQuery { series: series.clone(), from: Ts(-5), to: Ts(70), points: 12 };
    let expected = Span { at: Ts(-5), min: None, max: Some(70), last: Some(12) };
    assert_eq!(
        served.client().history(&query).unwrap(),
        History { series, spans: vec![expected], gaps: Vec::new() }
    );
    let mut hosts = query;
    hosts.series.gpu = None;
    let error = served.client().history(&hosts).unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: 503, .. }), "{error:?}");
    assert!(error.to_string().contains("none is kept"), "{error}");
    served.end();
}

#[test]
fn series_and_their_histories_are_asked_for_by_whom_they_belong_to() {
    let served = Served::with(status(1, 1));
    let wanted = "gpu=GPU%20a&pid=7&metric=process-bytes&name=python&unit=vllm.service&container=0f\
        &pod=abc&engine=vLLM&open=true";
    let expected = entry(SeriesQuery {
        gpu: Some(GpuUuid::new("GPU a")),
        pid: Some(7),
        metric: Some(Metric::ProcessBytes),
        name: Some("python".into()),
        unit: Some("vllm.service".into()),
        container: Some("0f".into()),
        pod: Some("abc".into()),
        engine: Some("vLLM".into()),
        open: true,
    });
    let listed: Vec<SeriesEntry> = served.json(&format!("/v1/series?{wanted}"));
    assert_eq!(listed, std::slice::from_ref(&expected));
    assert_eq!(served.json::<Vec<SeriesEntry>>("/v1/series"), [entry(SeriesQuery::default())]);
    let told: Histories = served.json(&format!("/v1/histories?{wanted}&from_ms=5&to_ms=70&points=999999999"));
    let span = Span { at: Ts(5), min: None, max: Some(70), last: Some(2_000) };
    let history = SeriesHistory { entry: expected, spans: vec![span] };
    assert_eq!(told, Histories { histories: vec![history], gaps: Vec::new() });
    served.end();
}

#[test]
fn refusals_are_json_and_say_what_to_do() {
    let served = Served::with(status(1, 1));
    for (target, code, reason) in [
        ("/nowhere", 404, "/v1/status"),
        ("/v1/history", 400, "missing field `metric`"),
        ("/v1/history?metric=memory", 400, "used-bytes"),
        ("/v1/history?metric=used-bytes&gpus=1", 400, "unknown field `gpus`"),
        ("/v1/history?metric=used-bytes&from_ms=9&to_ms=9", 400, "from_ms must be smaller"),
        ("/v1/history?metric=used-bytes&from_ms=99999999999999999999", 400, "from_ms"),
        ("/v1/history?metric=used-bytes&start_ticks=4", 400, "give that too"),
        ("/v1/series?units=vllm.service", 400, "unknown field `units`"),
        ("/v1/series?metric=memory", 400, "used-bytes"),
        ("/v1/histories?unit=vllm.service&from_ms=9&to_ms=9", 400, "from_ms must be smaller"),
        ("/v1/histories", 400, "ask for fewer"),
    ] {
        let answer = served.get(target);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{target}: {answer}");
        assert!(answer.contains("{\"error\":\"") && answer.contains(reason), "{target}: {answer}");
    }
    let posted =
        served.raw("POST /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405 ") && posted.contains("use GET"), "{posted}");
    served.end();
}

#[test]
fn requests_that_are_too_large_or_no_http_are_refused_and_the_server_lives_on() {
    let served = Served::with(status(1, 1));
    let long = served.get(&format!("/v1/status?{}", "x".repeat(60_000)));
    assert!(long.starts_with("HTTP/1.1 4"), "{long}");
    let noise = served.raw("\0\u{1}\u{2}\r\n\r\n");
    assert!(noise.starts_with("HTTP/1.1 400 "), "{noise}");
    assert!(served.client().status().is_ok());
    served.end();
}

#[test]
fn only_so_many_are_streamed_to_and_a_place_that_is_left_is_given_again() {
    let served = Served::with(status(1, 1));
    let mut streams: Vec<_> = (0..MAX_STREAMS).map(|_| served.client().watch().unwrap()).collect();
    assert!(matches!(served.client().watch(), Err(ClientError::Refused { status: 503, .. })));
    assert!(served.client().status().is_ok(), "a status is still to be had");
    streams.pop();
    // The server sees that a client has gone when it next writes to it, or sooner.
    let again = (0..10_000).find_map(|seq| {
        served.published.send(status(2 + seq % 1_000, 1));
        served.client().watch().ok()
    });
    assert!(again.is_some());
    served.end();
}

#[test]
fn health_and_findings_have_endpoints_of_their_own() {
    let served = Served::with(Status { tick: Tick::default(), ..status(1, 1) });
    let early = served.get("/healthz");
    assert!(early.starts_with("HTTP/1.1 503 ") && early.contains("no sample has been taken yet"), "{early}");
    served.published.send(status(2, 1));
    let healthy =
        (0..10_000).map(|_| served.get("/healthz")).find(|answer| answer.starts_with("HTTP/1.1 200 "));
    assert!(healthy.is_some_and(|answer| answer.contains("\"age_ms\":")));
    assert!(served.get("/v1/findings").ends_with("\r\n\r\n[]"));
    served.end();
}
