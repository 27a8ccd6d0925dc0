//! One GET over plain TCP, with a deadline for all of it and a cap on what comes back.
//!
//! Engines are read on loopback or on a pod's own address, without TLS, redirects or compression; a client that can do
//! more would be most of the probe's code.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The largest page: vLLM's is some 75 KB a rank.
pub const BODY_CAP: u64 = 8 << 20;
/// Status line and header lines, all together.
const HEAD_CAP: u64 = 16 << 10;
/// A chunk's size in hexadecimal, with extensions.
const CHUNK_LINE_CAP: u64 = 256;
/// The text format before JSON; never `OpenMetrics`, whose counters are named differently.
const ACCEPT: &str = "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1";

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Nobody answers the connection.
    #[error("no connection; is the engine running, and is this its port?")]
    Connect(#[source] io::Error),
    /// The deadline passed, however many bytes had come.
    #[error("no whole answer in time; the engine is overloaded or hangs")]
    Timeout,
    /// An answer that is no page.
    #[error("the answer has status {0}")]
    Status(u16),
    /// A page beyond [`BODY_CAP`].
    #[error("the answer is larger than {BODY_CAP} bytes")]
    TooLarge,
    /// The connection ended before the answer did.
    #[error("the answer breaks off")]
    Truncated,
    /// What came is no HTTP.
    #[error("the answer is no HTTP")]
    NoHttp,
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The page.
    pub bytes: Vec<u8>,
    /// Whether its length was told, so that it is known to be whole.
    pub is_framed: bool,
}

/// Gets `path` from `address` before `until`.
///
/// # Errors
/// See [`FetchError`].
pub fn get(address: SocketAddr, path: &str, until: Instant) -> Result<Body, FetchError> {
    let stream = TcpStream::connect_timeout(&address, remaining(until).ok_or(FetchError::Timeout)?);
    let stream = stream.map_err(|error| match error.kind() {
        ErrorKind::TimedOut => FetchError::Timeout,
        _ => FetchError::Connect(error),
    })?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: ebbtide\r\nAccept: {ACCEPT}\r\nConnection: close\r\n\r\n"
    );
    let mut stream = Timed { stream, until };
    stream.write_all(request.as_bytes()).map_err(broken)?;
    answer(&mut BufReader::new(stream))
}

fn remaining(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// A stream on which every read and write ends at one instant, so that an answer that drips does not last.
#[derive(Debug)]
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        remaining(self.until).map(Some).ok_or_else(|| ErrorKind::TimedOut.into())
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn broken(error: io::Error) -> FetchError {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => FetchError::Timeout,
        ErrorKind::UnexpectedEof => FetchError::Truncated,
        _ => FetchError::Broken(error),
    }
}

/// How the end of a body is told (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunks,
    UntilClose,
}

fn answer(from: &mut impl BufRead) -> Result<Body, FetchError> {
    let framing = head(from)?;
    let bytes = match framing {
        Framing::Length(length) => sized(from, length)?,
        Framing::Chunks => chunked(from)?,
        Framing::UntilClose => {
            let mut bytes = Vec::new();
            from.take(BODY_CAP + 1).read_to_end(&mut bytes).map_err(broken)?;
            bytes
        }
    };
    if bytes.len() as u64 > BODY_CAP {
        return Err(FetchError::TooLarge);
    }
    Ok(Body { bytes, is_framed: framing != Framing::UntilClose })
}

/// Reads status and headers; an answer other than 200 ends here.
fn head(from: &mut impl BufRead) -> Result<Framing, FetchError> {
    let mut head = from.take(HEAD_CAP);
    let status = line(&mut head)?;
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
    match code.ok_or(FetchError::NoHttp)? {
        200 => {}
        other => return Err(FetchError::Status(other)),
    }
    let mut framing = Framing::UntilClose;
    loop {
        let header = line(&mut head)?;
        if header.is_empty() {
            return Ok(framing);
        }
        let (name, value) = header.split_once(':').ok_or(FetchError::NoHttp)?;
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        if name == "transfer-encoding" && value.eq_ignore_ascii_case("chunked") {
            framing = Framing::Chunks;
        } else if name == "content-length" && framing == Framing::UntilClose {
            framing = Framing::Length(value.parse().map_err(|_| FetchError::NoHttp)?);
        }
    }
}

/// One line without its end; a line that reaches the cap of `from` or the end of the stream is none.
fn line(from: &mut impl BufRead) -> Result<String, FetchError> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line).map_err(broken)?;
    let Some(text) = line.strip_suffix(b"\n") else {
        return Err(if line.is_empty() { FetchError::Truncated } else { FetchError::NoHttp });
    };
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn sized(from: &mut impl BufRead, length: u64) -> Result<Vec<u8>, FetchError> {
    if length > BODY_CAP {
        return Err(FetchError::TooLarge);
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes).map_err(broken)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(FetchError::Truncated) }
}

fn chunked(from: &mut impl BufRead) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::new();
    loop {
        let size = line(&mut from.take(CHUNK_LINE_CAP))?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(|_| FetchError::NoHttp)?;
        if size == 0 {
            return Ok(bytes);
        }
        if size > BODY_CAP - bytes.len() as u64 {
            return Err(FetchError::TooLarge);
        }
        bytes.append(&mut sized(from, size)?);
        if !line(&mut from.take(2))?.is_empty() {
            return Err(FetchError::NoHttp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(answer: &str) -> Result<Body, FetchError> {
        super::answer(&mut answer.as_bytes())
    }

    fn framed(answer: &str) -> String {
        let body = read(answer).unwrap();
        assert!(body.is_framed);
        String::from_utf8(body.bytes).unwrap()
    }

    #[test]
    fn a_body_is_read_however_its_end_is_told() {
        assert_eq!(framed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc"), "ab");
        let chunks = "HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: chunked\r\nContent-Length: 9\r\n\r\n2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n";
        assert_eq!(framed(chunks), "abcde");
        let open = read("HTTP/1.0 200 OK\nServer: old\n\nabc").unwrap();
        assert_eq!((open.bytes.as_slice(), open.is_framed), (b"abc".as_slice(), false));
    }

    #[test]
    fn an_answer_that_is_none_says_why() {
        let long_header = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(20_000));
        let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", "y".repeat(BODY_CAP as usize + 1));
        for (answer, wanted) in [
            ("", "Truncated"),
            ("SSH-2.0-OpenSSH_9.6\r\n", "NoHttp"),
            ("HTTP/1.1 404 Not Found\r\n\r\n", "Status(404)"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "Truncated"),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab", "NoHttp"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n", "TooLarge"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "TooLarge"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "Truncated"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd", "NoHttp"),
            (&long_header, "NoHttp"),
            (&large, "TooLarge"),
        ] {
            let error = format!("{:?}", read(answer).unwrap_err());
            assert_eq!(error, wanted, "{}", &answer[..answer.len().min(60)]);
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            head in "HTTP/1.1 200 OK\r\n(content-length: [0-9]{1,3}|transfer-encoding: chunked|x: y)\r\n\r\n",
        ) {
            let whole = [head.as_bytes(), &bytes].concat();
            for cut in 0..whole.len() {
                if let Ok(body) = super::answer(&mut &whole[..cut]) {
                    prop_assert!(body.bytes.len() <= cut);
                }
            }
        }
    }
}
