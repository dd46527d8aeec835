//! UDP sockets of a test: opened, probed, read until the end.

use super::datagram::Errors;
use super::end::{DRAIN_NS, POLL};
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{self, ReceiveBatch, SendBatch, Wait};
use record::spec::TestSpec;
use record::{Problem, Result};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::message::{self, Flags, Message};

/// When probes are sent, in milliseconds after the first.
const PROBES_MS: [u64; 5] = [0, 50, 150, 350, 750];

/// Opens the sender's socket, connected to `remote`.
pub fn connect(spec: &TestSpec, remote: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let opened = udp::bind(SocketAddr::new(any, 0), spec.send_buffer, spec.receive_buffer)
        .and_then(|socket| socket.connect(remote).map(|()| socket))
        // A device that takes nothing for a quarter of a second refuses the datagram; the sender goes on.
        .and_then(|socket| {
            socket::set_timeout(&socket, Direction::Send, Some(Duration::from_millis(250))).map(|()| socket)
        });
    opened.map_err(|error| {
        Problem::host(format!("cannot open a UDP socket to {remote}: {error}"))
            .help("check the address and the routes of the sending node")
    })
}

/// Opens the receiver's socket at `address`, or at any address when this host does not have that one (a translated
/// address); says so in the second value.
pub fn bind(spec: &TestSpec, address: IpAddr) -> Result<(UdpSocket, Option<String>)> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let open = |address| udp::bind(SocketAddr::new(address, 0), spec.send_buffer, spec.receive_buffer);
    let (socket, note) = match open(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => (
            open(any),
            Some(format!("address {address} is not one of this host's: receiving at any address")),
        ),
        other => (other, None),
    };
    let ready = socket
        .and_then(|socket| socket::set_timeout(&socket, Direction::Receive, Some(POLL)).map(|()| socket))
        .map_err(|error| Problem::host(format!("cannot open a UDP socket at {address}: {error}")))?;
    Ok((ready, note))
}

/// Sends probes until one is answered, then waits a moment for the other answers so that none arrives in the test.
pub fn probe(socket: &UdpSocket, stream: u8) -> bool {
    let flags = Flags::PROBE.with(Flags::REQUEST);
    let (mut bytes, mut reply) = ([0; message::LENGTH], [0; 2048]);
    let begun = clock::monotonic_ns();
    let (mut sent, mut answered) = (0u64, 0u64);
    for (sequence, pair) in PROBES_MS.iter().enumerate() {
        let next = PROBES_MS.get(sequence + 1).copied().unwrap_or(pair + 250);
        Message { stream, flags, sequence: sequence as u64, planned_ns: 0 }.write(&mut bytes);
        sent += u64::from(socket.send(&bytes).is_ok());
        let until = if answered > 0 { clock::monotonic_ns() } else { begun + next * 1_000_000 };
        while answered < sent && is_answered(socket, until, &mut reply) {
            answered += 1;
        }
        if answered > 0 {
            let until = clock::monotonic_ns() + 20_000_000;
            while answered < sent && is_answered(socket, until, &mut reply) {
                answered += 1;
            }
            break;
        }
        clock::sleep_until(begun + next * 1_000_000);
    }
    answered > 0
}

fn is_answered(socket: &UdpSocket, until_ns: u64, reply: &mut [u8]) -> bool {
    loop {
        let left = until_ns.saturating_sub(clock::monotonic_ns());
        if left == 0 {
            return false;
        }
        let _ = socket::set_timeout(socket, Direction::Receive, Some(Duration::from_nanos(left)));
        match socket.recv(reply) {
            Ok(length) if Message::read(&reply[..length]).is_some_and(|m| m.flags.has(Flags::PROBE)) => {
                return true;
            }
            Ok(_) => {}
            // A host that answers "port unreachable" at once must not be asked again at once.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => clock::sleep_until(clock::monotonic_ns() + 1_000_000),
        }
    }
}

/// Reads until stopped, then what is left in the socket; `each` sees every batch with the time it was read at. Returns
/// how many messages of the batch were left when the stop came, and the errors met while reading.
pub fn read_until_stopped(
    socket: &UdpSocket,
    batch: &mut ReceiveBatch,
    stop: &AtomicBool,
    mut each: impl FnMut(&ReceiveBatch, usize, u64, bool),
) -> Errors {
    let mut errors = Errors::default();
    while !stop.load(Relaxed) {
        match batch.receive(socket, Wait::ForOne) {
            Ok(many) => each(batch, many, clock::monotonic_ns(), false),
            Err(error) => note_error(&error, &mut errors),
        }
    }
    let until = clock::monotonic_ns() + DRAIN_NS;
    while let Ok(many) = batch.receive(socket, Wait::No) {
        let now = clock::monotonic_ns();
        each(batch, many, now, true);
        if now > until {
            break;
        }
    }
    errors
}

/// Counts an error of a receive call, except a time-out and a signal; waits a little so that an error that stays does
/// not take the CPU.
pub fn note_error(error: &io::Error, errors: &mut Errors) {
    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
        errors.add(error, 1);
        clock::sleep_until(clock::monotonic_ns() + 1_000_000);
    }
}

/// Answers a probe in message `index`, if it is one.
pub fn answer_probe(socket: &UdpSocket, batch: &ReceiveBatch, index: usize, stream: u8) {
    let Some(mut message) = Message::read(batch.bytes(index)) else { return };
    let asks = Flags::PROBE.with(Flags::REQUEST);
    if message.stream != stream || message.flags != asks {
        return;
    }
    message.flags = Flags::PROBE.with(Flags::RESPONSE);
    let mut reply = SendBatch::new(1, message::LENGTH);
    message.write(reply.buffer(0));
    reply.answer(0, batch, index);
    let _ = reply.send(socket, 0..1);
}
