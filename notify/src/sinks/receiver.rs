//! A real HTTP receiver on the loopback interface, for the tests of webhook and dispatcher.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What it got.
pub(super) struct Request {
    pub(super) head: String,
    pub(super) body: String,
}

/// A listener that gives the prepared answers one after another, and the last one for ever.
pub(super) struct Receiver {
    address: SocketAddr,
    requests: mpsc::Receiver<Request>,
    silent: Option<TcpListener>,
}

impl Receiver {
    pub(super) fn answering(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::channel();
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        if !answers.is_empty() {
            thread::spawn(move || serve(&listener, &answers, &sender));
        }
        Self { address, requests, silent: None }
    }

    /// It takes connections and never says a word.
    pub(super) fn silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (_, requests) = mpsc::channel();
        Self { address: listener.local_addr().unwrap(), requests, silent: Some(listener) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(super) fn next_request(&self) -> Request {
        self.requests.recv_timeout(Duration::from_secs(20)).expect("a request within the deadline")
    }

    pub(super) fn close(self) {
        drop(self.silent);
    }
}

fn serve(listener: &TcpListener, answers: &[String], requests: &mpsc::Sender<Request>) {
    let mut answers = answers.iter();
    let mut answer = answers.next().expect("an answer");
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        let Some(request) = read_request(&stream) else { continue };
        let body = "said the receiver";
        let text = if answer.starts_with("204") {
            format!("HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n")
        } else {
            let length = body.len();
            format!("HTTP/1.1 {answer}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        };
        let _gone: std::io::Result<()> = (&stream).write_all(text.as_bytes());
        answer = answers.next().unwrap_or(answer);
        if requests.send(request).is_err() {
            return;
        }
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .to_lowercase()
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next().and_then(|length| length.parse().ok()))?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { head, body: String::from_utf8(body).ok()? })
}
