//! Connections that know which test they belong to.
//!
//! Each connection begins with one test message of 18 bytes from the sender (its sequence number says which of the
//! parallel connections it is) that the receiver sends back. So a stranger's connection is not taken for the test's,
//! both ends number the connections alike, and the path is warm. These bytes are not counted.

use super::end::{POLL, settings_of};
use super::samples::Registry;
use crate::protocol::setup::Setup;
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::tcp::{self, Options};
use record::spec::TestSpec;
use record::traffic::Settings;
use record::{Problem, Result};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Scope;
use std::time::Duration;
use wire::message::{self, Flags, Message};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first bytes may take each way.
const HELLO_NS: u64 = 2_000_000_000;
/// Strangers whose connections are looked at before a receiver listens no more.
const STRANGERS: u32 = 64;

fn options(spec: &TestSpec) -> Options {
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

fn set_timeouts(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket::set_timeout(stream, Direction::Send, Some(timeout))?;
    socket::set_timeout(stream, Direction::Receive, Some(timeout))
}

/// What took effect on a connection or a listener.
fn settings(
    socket: impl AsFd,
    local: io::Result<SocketAddr>,
    remote: io::Result<SocketAddr>,
    refused: Vec<String>,
) -> Settings {
    let congestion = tcp::congestion(&socket).ok();
    Settings { congestion, refused, ..settings_of(socket, local, remote) }
}

/// Connects all connections of a test, says hello on each.
pub fn connect(setup: &Setup) -> Result<(Vec<TcpStream>, Settings)> {
    let remote = SocketAddr::new(setup.address, setup.port);
    let mut streams = Vec::new();
    let mut told = Settings::default();
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
        if index == 0 {
            told = settings(&stream, stream.local_addr(), stream.peer_addr(), refused);
        }
        streams.push(stream);
    }
    Ok((streams, told))
}

/// Waits for the receiver's hello on every connection; true when all came.
pub fn are_answered(streams: &[TcpStream], token: u8) -> bool {
    let until = clock::monotonic_ns() + HELLO_NS;
    (0..).zip(streams).all(|(index, mut stream)| {
        let mut bytes = [0; message::LENGTH];
        let goes_on = || clock::monotonic_ns() < until;
        read_whole(&mut stream, &mut bytes, goes_on).is_ok()
            && bytes == hello(token, index, Flags::PROBE.with(Flags::RESPONSE))
    })
}

/// Fills `bytes`; a time-out of the socket only ends it when `goes_on` says no.
pub fn read_whole(
    stream: &mut impl Read,
    mut bytes: &mut [u8],
    goes_on: impl Fn() -> bool,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.read(bytes) {
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

/// The listening end.
pub struct Listener {
    listener: TcpListener,
    /// What took effect.
    pub settings: Settings,
    token: u8,
    streams: u32,
}

impl Listener {
    /// Listens at the setup's address, or at any when this host does not have that one.
    pub fn open(setup: &Setup) -> Result<Listener> {
        let any: IpAddr =
            if setup.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let open = |address| tcp::listen(SocketAddr::new(address, 0), &options(&setup.spec), 128);
        let (opened, note) = match open(setup.address) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                let note =
                    format!("address {} is not one of this host's: listening at any address", setup.address);
                (open(any), Some(note))
            }
            other => (other, None),
        };
        let (listener, mut refused) = opened
            .map_err(|error| Problem::host(format!("cannot listen for TCP at {}: {error}", setup.address)))?;
        refused.extend(note);
        let nobody = Err(io::ErrorKind::NotConnected.into());
        let settings = settings(&listener, listener.local_addr(), nobody, refused);
        Ok(Listener { listener, settings, token: setup.token, streams: setup.spec.streams })
    }

    /// The port.
    pub fn ports(&self) -> Vec<u16> {
        self.listener.local_addr().map(|address| address.port()).into_iter().collect()
    }

    /// Accepts connections until all of the test are there or the test is stopped, and runs `work` for each on a
    /// thread of its own; returns what they returned, and how many strangers came.
    pub fn serve<'scope, 'env, T: Send + 'scope>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        open: &'env Registry,
        stop: &'env AtomicBool,
        work: impl Fn(TcpStream, u32) -> T + Clone + Send + 'scope,
    ) -> (Vec<T>, u64) {
        let mut workers = Vec::new();
        let strange = |workers: usize| workers as u32 >= self.streams + STRANGERS;
        while !open.is_full() && !stop.load(Relaxed) && !strange(workers.len()) {
            let ready = socket::wait_readable([self.listener.as_fd()], Some(POLL));
            if !ready.is_ok_and(|ready| ready[0]) {
                continue;
            }
            let Ok((stream, _)) = self.listener.accept() else { continue };
            let work = work.clone();
            workers.push(scope.spawn(move || {
                let index = self.welcome(&stream, open, stop)?;
                Some(work(stream, index))
            }));
        }
        let results: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        let strangers = results.iter().filter(|result| result.is_none()).count() as u64;
        (results.into_iter().flatten().collect(), strangers)
    }

    /// Reads the hello, answers it, registers the connection; none for a stranger.
    fn welcome(&self, mut stream: &TcpStream, open: &Registry, stop: &AtomicBool) -> Option<u32> {
        set_timeouts(stream, POLL).ok()?;
        let until = clock::monotonic_ns() + HELLO_NS;
        let goes_on = || !stop.load(Relaxed) && clock::monotonic_ns() < until;
        let mut bytes = [0; message::LENGTH];
        read_whole(&mut stream, &mut bytes, goes_on).ok()?;
        let index = u32::try_from(Message::read(&bytes)?.sequence).ok()?;
        if bytes != hello(self.token, index, Flags::PROBE.with(Flags::REQUEST)) {
            return None;
        }
        open.add(index, stream)?;
        let answer = hello(self.token, index, Flags::PROBE.with(Flags::RESPONSE));
        write_whole(&mut stream, &answer, goes_on).ok()?;
        Some(index)
    }
}
