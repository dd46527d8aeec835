//! The counters over HTTP/1.1: `GET /metrics`, one request for each connection, read with httparse.
//!
//! **What.** [`start`] answers connections, each in a thread, at most [`MOST`] at a time; as many more are told that it is busy. **Why no server library.** `docs/decisions/0017-export.md`.
//!
//! **Price.** A client has [`PATIENCE`] for its request and the answer together; one that says nothing, garbage or too much, or never reads, costs a
//! thread for that long and then is gone.

use super::{ExportCounts, ExportSource};
use linux::sys::process;
use record::{Problem, Result};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use study::export::prometheus;

/// Connections at the same time that are given the counters; as many more are told to come again.
const MOST: usize = 32;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest head of a request.
const MOST_HEAD: usize = 8 << 10;
/// What is written at a time.
const CHUNK: usize = 64 << 10;
/// A pause after a failure to accept.
const PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens.
pub struct ScrapeListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// Where to listen: `PORT` or `ADDRESS:PORT`.
pub fn address(text: &str) -> Result<SocketAddr> {
    let port = text.parse().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let wrong = || {
        Problem::input("this is no address with a port")
            .at("--prometheus")
            .help("write PORT, 127.0.0.1:9464 or [::1]:9464")
    };
    port.or_else(|_| text.parse()).map_err(|_| wrong())
}

/// Listens.
pub fn listen(address: SocketAddr) -> Result<ScrapeListener> {
    let bound = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) = bound.map_err(|error| {
        Problem::host(format!("cannot listen at {address}: {error}"))
            .help("choose another port, or end what uses it")
    })?;
    Ok(ScrapeListener { listener, address })
}

impl ScrapeListener {
    /// Where Prometheus finds the counters.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// What whoever listens beyond this host has to know.
    pub fn warning(&self) -> Option<Problem> {
        let is_open = !self.address.ip().is_loopback();
        is_open.then(|| {
            Problem::input("everybody who reaches this address can read the counters, addresses of connections included; nothing is encrypted")
                .at(self.address.to_string())
        })
    }
}

/// Answers from now on, in threads of its own, until the process ends.
pub fn start(listener: ScrapeListener, source: &Arc<ExportSource>, counts: &Arc<ExportCounts>) {
    let (source, counts) = (Arc::clone(source), Arc::clone(counts));
    std::thread::spawn(move || {
        let open = Arc::new(());
        while !process::interrupted() {
            match listener.listener.accept() {
                Ok((stream, _)) => admit(stream, &open, &source, &counts),
                // Too many open files, a connection that is gone again: the next may do better.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    });
}

fn admit(stream: TcpStream, open: &Arc<()>, source: &Arc<ExportSource>, counts: &Arc<ExportCounts>) {
    let place = Arc::clone(open);
    let (source, refusals, counts) = (Arc::clone(source), Arc::clone(counts), Arc::clone(counts));
    // One is the listener's.
    let connections = Arc::strong_count(open) - 1;
    let work = move || {
        let reply = |asked: &Asked| match connections > MOST {
            true => busy(),
            false => reply(asked, || source.read().map(prometheus::text)),
        };
        let is_scrape = answer(stream, reply, Instant::now() + PATIENCE).unwrap_or(false);
        one_more(if is_scrape { &counts.scrapes } else { &counts.refused });
        drop(place);
    };
    // The connection is closed without a word when there are far too many, or no thread can be made.
    if connections > 2 * MOST || std::thread::Builder::new().spawn(work).is_err() {
        one_more(&refusals.refused);
    }
}

fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Reads a request and answers it; true when it was a scrape.
fn answer(mut stream: TcpStream, reply: impl FnOnce(&Asked) -> Reply, deadline: Instant) -> io::Result<bool> {
    let asked = read_head(&mut stream, deadline)?;
    let reply = reply(&asked);
    write(&mut stream, &reply.bytes(asked == Asked::Head), deadline)?;
    Ok(reply.status == "200 OK" && reply.kind == prometheus::CONTENT_TYPE)
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    /// `GET` of a path.
    Get(String),
    /// `HEAD` of the counters.
    Head,
    /// Another method.
    Other,
    /// What is no request.
    Garbage,
    /// A head that has no end.
    TooLong,
}

/// What a request asks for; none when its head is not whole.
fn asked(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < MOST_HEAD => None,
        Ok(httparse::Status::Partial) => Some(Asked::TooLong),
        Err(_) => Some(Asked::Garbage),
        Ok(httparse::Status::Complete(_)) => Some(match (request.method, request.path) {
            (Some("GET"), Some(path)) => Asked::Get(path.split('?').next().unwrap_or_default().to_owned()),
            (Some("HEAD"), _) => Asked::Head,
            _ => Asked::Other,
        }),
    }
}

/// The rest of the time; an error when it is over.
fn rest(deadline: Instant) -> io::Result<Duration> {
    let rest = deadline.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Asked> {
    let (mut head, mut chunk) = (vec![], [0; 1024]);
    loop {
        stream.set_read_timeout(Some(rest(deadline)?))?;
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&chunk[..length]);
        if let Some(asked) = asked(&head) {
            return Ok(asked);
        }
    }
}

fn write(stream: &mut TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        stream.set_write_timeout(Some(rest(deadline)?))?;
        let length = stream.write(&left[..left.len().min(CHUNK)])?;
        left = &left[length..];
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// An answer.
struct Reply {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Reply {
    fn new(status: &'static str, body: impl Into<String>) -> Reply {
        Reply { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }

    fn bytes(&self, is_head: bool) -> Vec<u8> {
        let (status, kind, length) = (self.status, self.kind, self.body.len());
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        if is_head { head.into_bytes() } else { (head + &self.body).into_bytes() }
    }
}

fn reply(asked: &Asked, read: impl FnOnce() -> Result<String>) -> Reply {
    match asked {
        Asked::Get(path) if path == "/metrics" => counters(read()),
        Asked::Head => counters(read()),
        Asked::Get(path) if path == "/" => Reply::new("200 OK", "pathlab: the counters are at /metrics\n"),
        Asked::Get(_) => Reply::new("404 Not Found", "only /metrics is here\n"),
        Asked::Other => Reply::new("405 Method Not Allowed", "only GET and HEAD are answered\n"),
        Asked::Garbage => Reply::new("400 Bad Request", "this is no request of HTTP\n"),
        Asked::TooLong => Reply::new("431 Request Header Fields Too Large", "the request is too long\n"),
    }
}

fn busy() -> Reply {
    Reply::new(
        "503 Service Unavailable",
        format!("{MOST} connections are answered at a time, and so many are open; ask again\n"),
    )
}

fn counters(read: Result<String>) -> Reply {
    match read {
        Ok(body) => Reply { status: "200 OK", kind: prometheus::CONTENT_TYPE, body },
        Err(problem) => Reply::new("500 Internal Server Error", format!("{problem}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(request: &str) -> Option<&'static str> {
        Some(reply(&asked(request.as_bytes())?, || Ok("x 1\n".into())).status)
    }

    #[test]
    fn requests_are_answered_and_what_is_none_is_refused() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Some("200 OK")),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Some("200 OK")),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Some("200 OK")),
            ("GET / HTTP/1.1\r\n\r\n", Some("200 OK")),
            ("GET /other HTTP/1.1\r\n\r\n", Some("404 Not Found")),
            ("POST /metrics HTTP/1.1\r\n\r\n", Some("405 Method Not Allowed")),
            ("\u{1}\u{2}\u{3}\r\n\r\n", Some("400 Bad Request")),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n", None),
        ] {
            assert_eq!(status(request), expected, "{request:?}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "b".repeat(MOST_HEAD));
        assert_eq!(status(&long), Some("431 Request Header Fields Too Large"));
        let broken = reply(&Asked::Get("/metrics".into()), || Err(Problem::host("no counters")));
        assert!(broken.status.starts_with("500") && broken.body.contains("no counters"));
        let head = String::from_utf8(reply(&Asked::Head, || Ok("x 1\n".into())).bytes(true)).unwrap();
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn an_address_is_a_port_of_this_host_or_whole() {
        assert_eq!(address("9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for wrong in ["", "70000", "localhost:80", "1.2.3.4", "1.2.3.4:x"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        let open = ScrapeListener {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            address: address("0.0.0.0:1").unwrap(),
        };
        assert!(open.warning().unwrap().to_string().contains("everybody"));
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = asked(&noise);
        }
    }
}
