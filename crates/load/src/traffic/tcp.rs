//! Connections that know which test they belong to.
//!
//! Each connection begins with one test message of 18 bytes from the sender (its sequence number says which of the
//! parallel connections it is) that the receiver sends back. So a stranger's connection is not taken for the test's,
//! both ends number the connections alike, and the path is warm. These bytes are not counted.

use super::datagram::{Outgoing, SenderCounts};
use super::end::{End, POLL, Ready, open_at, prepared};
use super::samples::{Registry, with_samples};
use super::schedule::{Ending, Running};
use super::threads::joined;
use crate::protocol::message::Prepared;
use crate::protocol::setup::Setup;
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::tcp::{self, Options};
use record::problem::system_words;
use record::spec::TestSpec;
use record::traffic::{EndReport, Settings};
use record::{Problem, Result};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::thread::Scope;
use std::time::Duration;
use wire::message::{self, Flags, Message};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first bytes may take each way.
const HELLO_NS: u64 = 2_000_000_000;
/// Strangers whose connections are looked at before a receiver listens no more.
const STRANGERS: u32 = 64;

/// What a connection of the test is opened with.
pub fn options(spec: &TestSpec) -> Options {
    Options {
        send_buffer: spec.send_buffer,
        receive_buffer: spec.receive_buffer,
        congestion: spec.congestion.clone(),
        no_delay: spec.kind.is_round_trip(),
    }
}

fn hello(token: u8, index: u32, flags: Flags) -> [u8; message::LENGTH] {
    let mut bytes = [0; message::LENGTH];
    Message { stream: token, flags, sequence: u64::from(index), planned_ns: 0 }.write(&mut bytes);
    bytes
}

/// Makes reads and writes give up after `timeout`.
pub fn set_timeouts(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket::set_timeout(stream, Direction::Send, Some(timeout))?;
    socket::set_timeout(stream, Direction::Receive, Some(timeout))
}

/// The connecting end: the connections of a sender in the order of their numbers, and what it does with them.
struct Connector<W> {
    streams: Vec<TcpStream>,
    /// The same, for whoever looks at them meanwhile.
    registry: Registry,
    token: u8,
    spec: TestSpec,
    work: W,
}

/// Connects all connections of a test, says hello on each. `work` is given the connections, and reports what it sent.
pub fn connect<W>(setup: &Setup, method: String, work: W) -> Ready
where
    W: FnMut(&[TcpStream], Running<'_>) -> EndReport + Send + 'static,
{
    let remote = SocketAddr::new(setup.address, setup.port);
    let (mut streams, registry) = (Vec::new(), Registry::new(setup.spec.streams));
    let (mut ports, mut settings) = (Vec::new(), Settings::default());
    for index in 0..setup.spec.streams {
        let asks = hello(setup.token, index, Flags::PROBE.with(Flags::REQUEST));
        let connected =
            tcp::connect(remote, &options(&setup.spec), CONNECT_TIMEOUT).and_then(|(stream, refused)| {
                set_timeouts(&stream, Duration::from_millis(100))?;
                (&stream).write_all(&asks)?;
                Ok((stream, refused))
            });
        let (stream, refused) = connected.map_err(|error| {
            Problem::measured(format!("cannot connect to {remote}: {error}"))
                .help("check that the path carries TCP both ways and that nothing filters it")
        })?;
        let own = prepared(&stream, stream.local_addr(), stream.peer_addr().ok(), refused);
        if index == 0 {
            settings = Settings { congestion: tcp::congestion(&stream).ok(), ..own.settings };
        }
        ports.extend(own.ports);
        registry.add(index, &stream);
        streams.push(stream);
    }
    settings.method = method;
    let prepared = Prepared { ports, icmp_id: None, settings };
    Ok((
        prepared,
        Box::new(Connector { streams, registry, token: setup.token, spec: setup.spec.clone(), work }),
    ))
}

impl<W: FnMut(&[TcpStream], Running<'_>) -> EndReport + Send> End for Connector<W> {
    /// Waits for the receiver's hello on every connection; true when all came.
    fn warm_up(&mut self) -> bool {
        let until = clock::monotonic_ns() + HELLO_NS;
        (0..).zip(&self.streams).all(|(index, mut stream)| {
            let mut bytes = [0; message::LENGTH];
            let goes_on = || clock::monotonic_ns() < until;
            read_whole(&mut stream, &mut bytes, goes_on).is_ok()
                && bytes == hello(self.token, index, Flags::PROBE.with(Flags::RESPONSE))
        })
    }

    fn run(&mut self, stop: &Ending) -> EndReport {
        let Connector { streams, registry, spec, work, .. } = self;
        let test = Running { spec, start_ns: clock::monotonic_ns(), stop };
        let (report, tcp) = with_samples(registry, &AtomicU64::new(test.start_ns), || work(streams, test));
        for stream in streams {
            let _ = stream.shutdown(Shutdown::Write);
        }
        EndReport { tcp, ..report }
    }
}

/// Messages as they leave by a connection: those of a burst in one `write`.
pub struct Writes<'a, F> {
    /// The connection.
    pub stream: &'a TcpStream,
    /// The longest burst.
    pub bytes: &'a [u8],
    /// Bytes of one message.
    pub size: usize,
    /// False when a `write` that waits is to be given up.
    pub goes_on: F,
    /// No more can be written.
    pub failed: bool,
}

impl<F: Fn() -> bool> Outgoing for Writes<'_, F> {
    fn capacity(&self) -> u64 {
        (self.bytes.len() / self.size) as u64
    }

    fn send(&mut self, numbers: Range<u64>, _planned: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
        let many = numbers.end - numbers.start;
        let bytes = &self.bytes[..many as usize * self.size];
        let written = write_whole(&mut self.stream, bytes, &self.goes_on);
        sent.report.ended_ns = clock::monotonic_ns();
        let (calls, part) =
            written.as_ref().map_or_else(|(_, part)| (1, *part), |calls| (*calls, bytes.len()));
        let whole = (part / self.size) as u64;
        sent.report.attempted = numbers.end;
        sent.report.send_calls += calls;
        sent.report.sent_bytes += part as u64;
        sent.report.sent += whole;
        if let Err((error, _)) = written {
            self.failed = true;
            if error.kind() == io::ErrorKind::WouldBlock {
                sent.report.attempted -= many - whole; // cut off by the end of the test, not refused
            } else {
                sent.errors.add(&error, many - whole);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.failed
    }
}

/// Reads until the peer closes its side (true) or `each` says that it is enough (false): it is told of every read the time after
/// it and how many of at most `room` bytes came, 0 after a time-out.
pub fn read_all(
    mut stream: &TcpStream,
    room: usize,
    mut each: impl FnMut(u64, usize) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut buffer = vec![0; room];
    loop {
        let many = match stream.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(many) => many,
            Err(error) => may_go_on(error, &|| true).map(|()| 0)?,
        };
        if !each(clock::monotonic_ns(), many)? {
            return Ok(false);
        }
    }
}

/// Fills `bytes`; a time-out of the socket only ends it when `goes_on` says no.
pub fn read_whole(from: &mut impl Read, mut bytes: &mut [u8], goes_on: impl Fn() -> bool) -> io::Result<()> {
    while !bytes.is_empty() {
        match from.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(many) => bytes = &mut bytes[many..],
            Err(error) => may_go_on(error, &goes_on)?,
        }
    }
    Ok(())
}

/// Writes all of `bytes`; a time-out of the socket only ends it when `goes_on` says no. Returns the system calls made
/// and, next to an error, the bytes that went out before it.
pub fn write_whole(
    stream: &mut impl Write,
    bytes: &[u8],
    goes_on: impl Fn() -> bool,
) -> std::result::Result<u64, (io::Error, usize)> {
    let (mut at, mut calls) = (0, 0);
    while at < bytes.len() {
        calls += 1;
        match stream.write(&bytes[at..]) {
            Ok(many) => at += many,
            Err(error) => may_go_on(error, &goes_on).map_err(|error| (error, at))?,
        }
    }
    Ok(calls)
}

fn may_go_on(error: io::Error, goes_on: &impl Fn() -> bool) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock if goes_on() => Ok(()),
        _ => Err(error),
    }
}

/// Serves one connection: of this test, with the time of the first message of all, until stopped.
pub type Serve<T> = fn(TcpStream, &TestSpec, &AtomicU64, &Ending) -> T;

/// The listening end.
struct Listener<T> {
    listener: TcpListener,
    registry: Registry,
    setup: Setup,
    serve: Serve<T>,
    report: fn(Vec<T>, u64, &TestSpec) -> EndReport,
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Listens at the setup's address.
pub fn bind(setup: &Setup, method: String) -> Result<(TcpListener, Prepared)> {
    let open = |address| listen_at_spare_port(address, &options(&setup.spec));
    let ((listener, mut refused), note) = open_at(setup.address, "listening", open)
        .map_err(|error| Problem::host(format!("cannot listen for TCP at {}: {error}", setup.address)))?;
    refused.extend(note);
    let mut prepared = prepared(&listener, listener.local_addr(), None, refused);
    (prepared.settings.congestion, prepared.settings.method) = (tcp::congestion(&listener).ok(), method);
    Ok((listener, prepared))
}

/// How many ports are tried that may be in use.
const TRIES: usize = 16;

/// Listens at a port that no connection of a stranger gets by chance: the test's frames are known by it.
fn listen_at_spare_port(address: SocketAddr, options: &Options) -> io::Result<(TcpListener, Vec<String>)> {
    for port in (0..TRIES).map_while(|_| tcp::spare_port()) {
        match tcp::listen(SocketAddr::new(address.ip(), port), options, BACKLOG) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other,
        }
    }
    tcp::listen(address, options, BACKLOG)
}

/// Listens at the setup's address. Each connection is served by `serve`; `report` makes one report of what all of them
/// returned, and the time of the first message.
pub fn listen<T: Send + 'static>(
    setup: &Setup,
    method: String,
    serve: Serve<T>,
    report: fn(Vec<T>, u64, &TestSpec) -> EndReport,
) -> Ready {
    let (listener, prepared) = bind(setup, method)?;
    let registry = Registry::new(setup.spec.streams);
    Ok((prepared, Box::new(Listener { listener, registry, setup: setup.clone(), serve, report })))
}

impl<T: Send> End for Listener<T> {
    fn run(&mut self, stop: &Ending) -> EndReport {
        let first = AtomicU64::new(0);
        let ((served, strangers, refused), samples) = with_samples(&self.registry, &first, || {
            std::thread::scope(|scope| self.serve(scope, &first, stop))
        });
        let mut report = (self.report)(served, first.load(Acquire), &self.setup.spec);
        report.foreign = strangers;
        report.tcp = samples;
        report.notes.extend(
            refused.map(|error| format!("not every connection could be accepted: {}", system_words(&error))),
        );
        report
    }
}

impl<T: Send> Listener<T> {
    /// Accepts connections until all of the test are there or the test is stopped, and serves each on a thread of its
    /// own; returns what they returned, how many strangers came, and why one could not be accepted.
    fn serve<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        first: &'env AtomicU64,
        stop: &'env Ending,
    ) -> (Vec<T>, u64, Option<io::Error>) {
        let (mut workers, mut refused) = (Vec::new(), None);
        let strange = |workers: usize| workers as u32 >= self.setup.spec.streams + STRANGERS;
        while !self.registry.is_full() && !stop.is_stopped() && !strange(workers.len()) {
            let ready = socket::wait_readable([self.listener.as_fd()], Some(POLL));
            if !ready.is_ok_and(|ready| ready[0]) {
                continue;
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if socket::is_passing(&error) => continue,
                Err(error) => {
                    // It waits still, and would be tried again at once.
                    std::thread::sleep(POLL);
                    refused = Some(error);
                    continue;
                }
            };
            workers.push(scope.spawn(move || {
                self.welcome(&stream, stop)?;
                Some((self.serve)(stream, &self.setup.spec, first, stop))
            }));
        }
        let results: Vec<_> = workers.into_iter().map(joined).collect();
        let strangers = results.iter().filter(|result| result.is_none()).count() as u64;
        (results.into_iter().flatten().collect(), strangers, refused)
    }

    /// Reads the hello, answers it, registers the connection; none for a stranger.
    fn welcome(&self, mut stream: &TcpStream, stop: &Ending) -> Option<()> {
        set_timeouts(stream, POLL).ok()?;
        let until = clock::monotonic_ns() + HELLO_NS;
        let goes_on = || !stop.is_stopped() && clock::monotonic_ns() < until;
        let mut bytes = [0; message::LENGTH];
        read_whole(&mut stream, &mut bytes, goes_on).ok()?;
        let index = u32::try_from(Message::read(&bytes)?.sequence).ok()?;
        if bytes != hello(self.setup.token, index, Flags::PROBE.with(Flags::REQUEST)) {
            return None;
        }
        self.registry.add(index, stream)?;
        let answer = hello(self.setup.token, index, Flags::PROBE.with(Flags::RESPONSE));
        write_whole(&mut stream, &answer, goes_on).ok().map(drop)
    }
}
