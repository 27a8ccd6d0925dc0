use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use ebbtide_core::{GpuUuid, Metric, ProcKey, SeriesKey, Ts};

use super::*;

/// A server that answers everything with the same bytes and then does nothing more.
struct Oracle {
    dir: tempfile::TempDir,
}

impl Oracle {
    fn saying(answer: Vec<u8>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut head = [0; 4096];
                let _asked = stream.read(&mut head);
                let _said = stream.write_all(&answer);
            }
        });
        Self { dir }
    }

    fn with_body(body: &str) -> Self {
        let length = body.len();
        Self::saying(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes())
    }

    fn client(&self) -> SocketClient {
        SocketClient {
            answer_timeout: Duration::from_secs(20),
            ..SocketClient::new(self.dir.path().join("s"))
        }
    }
}

#[test]
fn nobody_there_and_somebody_elses_socket_have_an_answer_each() {
    let dir = tempfile::tempdir().unwrap();
    let none = SocketClient::new(dir.path().join("none"));
    let error = none.status().unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { .. }), "{error:?}");
    assert!(error.to_string().contains("start it with `ebbtide daemon`"), "{error}");
    drop(UnixListener::bind(dir.path().join("dead")).unwrap());
    let dead = SocketClient::new(dir.path().join("dead")).watch().err().unwrap();
    assert!(matches!(dead, ClientError::NotRunning { .. }), "{dead:?}");
    // Root may use every socket, so what the system would say to others is put in its mouth.
    let denied = none.unreachable(io::ErrorKind::PermissionDenied.into());
    assert!(matches!(denied, ClientError::NoPermission { .. }));
    assert!(denied.to_string().contains("join the group that owns it"), "{denied}");
}

#[test]
fn what_is_no_http_and_what_is_no_json_are_told_apart() {
    let noise = Oracle::saying(b"SSH-2.0-OpenSSH_9.6\r\n\r\n\r\n".to_vec());
    assert!(matches!(noise.client().status(), Err(ClientError::Broken { .. })));
    let cut = Oracle::saying(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{".to_vec());
    assert!(matches!(cut.client().status(), Err(ClientError::Broken { .. })));
    assert!(matches!(Oracle::with_body("<html>").client().status(), Err(ClientError::Garbled(_))));
    assert!(matches!(Oracle::with_body("{}").client().status(), Err(ClientError::Garbled(_))));
}

#[test]
fn an_answer_larger_than_the_limit_is_not_taken_in() {
    let length = MAX_ANSWER_BYTES + 1;
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + length, b' ');
    let error = Oracle::saying(answer).client().status().unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error:?}");
}

#[test]
fn a_refusal_is_cleaned_and_one_without_reason_says_so() {
    let body = r#"{"error":"no \u001b[31mhistory"}"#;
    let length = body.len();
    let answer = format!("HTTP/1.1 503 Nope\r\nContent-Length: {length}\r\n\r\n{body}");
    let error = Oracle::saying(answer.into_bytes()).client().status().unwrap_err();
    assert_eq!(error.to_string(), "the daemon refused: no [31mhistory");
    let bare = Oracle::saying(b"HTTP/1.1 500 Nope\r\nContent-Length: 0\r\n\r\n".to_vec());
    let error = bare.client().status().unwrap_err();
    assert!(error.to_string().contains("HTTP status 500"), "{error}");
}

#[test]
fn a_daemon_that_is_silent_is_waited_for_no_longer_than_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(dir.path().join("s")).unwrap();
    let client = SocketClient {
        answer_timeout: Duration::from_millis(100),
        ..SocketClient::new(dir.path().join("s"))
    };
    assert!(matches!(client.status(), Err(ClientError::Timeout { .. })));
    let open = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:\n\n".to_vec();
    let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let path = dir.path().join("stream");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(
            stream.read(&mut [0; 4096]).unwrap() > 0,
            "an answer before the question is an error of its own"
        );
        stream.write_all(&open).unwrap();
        // Keeps the connection open until the test has seen what it wants.
        let _ended = (&there).read(&mut [0]);
    });
    let client = SocketClient { silence_timeout: Duration::from_millis(100), ..SocketClient::new(path) };
    let mut stream = client.watch().unwrap();
    assert!(matches!(stream.next(), Some(Err(ClientError::Timeout { .. }))));
    assert!(stream.next().is_none(), "after an error a stream is over");
    here.write_all(b"x").unwrap();
    server.join().unwrap();
}

#[test]
fn a_daemon_of_another_meaning_is_not_understood() {
    let mut status = crate::wire::Status {
        schema: SCHEMA + 1,
        version: "9".into(),
        host: "h".into(),
        tick: ebbtide_core::Tick::default(),
        level: crate::wire::Level::Unknown,
        gpus: Vec::new(),
        machine: ebbtide_core::HostSample {
            total: Err(ebbtide_core::Absent::NotYet),
            available: Err(ebbtide_core::Absent::NotYet),
        },
        findings: Vec::new(),
        alerts: Vec::new(),
        health: crate::wire::Health::default(),
    };
    let error = understood(status.clone()).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("schema 2"), "{source}");
    status.schema = SCHEMA;
    assert_eq!(understood(status.clone()).unwrap(), status);
}

#[test]
fn a_query_names_each_part_of_a_series() {
    let series = SeriesKey {
        gpu: Some(GpuUuid::new("GPU a&b")),
        proc: Some(ProcKey { pid: 7, start_ticks: Some(9) }),
        metric: Metric::ProcessBytes,
    };
    let query = HistoryQuery { series, from: Ts(1), to: Ts(2), points: 3 };
    assert_eq!(
        history_target(&query),
        "/v1/history?metric=process-bytes&from_ms=1&to_ms=2&points=3&gpu=GPU%20a%26b&pid=7&start_ticks=9"
    );
}
