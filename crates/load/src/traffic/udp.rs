//! UDP sockets of a test: opened, probed, read until the end.

use super::arrivals::Arrivals;
use super::end::{DRAIN_NS, POLL, any_like, open_at, prepared};
use crate::protocol::message::Prepared;
use crate::protocol::setup::Setup;
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{self, ReceiveBatch, SendBatch, Wait};
use record::{Problem, Result};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::message::{self, Flags, Message};

/// When probes are sent, in milliseconds after the first.
const PROBES_MS: [u64; 5] = [0, 50, 150, 350, 750];

/// Opens the sender's socket, connected to the receiver.
pub fn connect(setup: &Setup) -> Result<(UdpSocket, Prepared)> {
    let (spec, remote) = (&setup.spec, SocketAddr::new(setup.address, setup.port));
    let local = SocketAddr::new(any_like(setup.address), 0);
    let opened = udp::bind(local, spec.send_buffer, spec.receive_buffer).and_then(|socket| {
        socket.connect(remote)?;
        // A device that takes nothing for a quarter of a second refuses the datagram; the sender goes on.
        socket::set_timeout(&socket, Direction::Send, Some(Duration::from_millis(250)))?;
        Ok(socket)
    });
    let socket = opened.map_err(|error| {
        Problem::host(format!("cannot open a UDP socket to {remote}: {error}"))
            .help("check the address and the routes of the sending node")
    })?;
    let prepared = prepared(&socket, socket.local_addr(), socket.peer_addr().ok(), vec![]);
    Ok((socket, prepared))
}

/// Opens the receiver's socket.
pub fn bind(setup: &Setup) -> Result<(UdpSocket, Prepared)> {
    let (spec, address) = (&setup.spec, setup.address);
    let opened = open_at(address, "receiving", |at| {
        let socket = udp::bind(at, spec.send_buffer, spec.receive_buffer)?;
        socket::set_timeout(&socket, Direction::Receive, Some(POLL))?;
        Ok(socket)
    });
    let (socket, note) =
        opened.map_err(|error| Problem::host(format!("cannot open a UDP socket at {address}: {error}")))?;
    let prepared = prepared(&socket, socket.local_addr(), None, note.into_iter().collect());
    Ok((socket, prepared))
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

/// Reads until stopped, then what is left in the socket; `each` sees every batch with the time it was read at, and `messages`
/// counts what came late and the errors met while reading.
pub fn read_until_stopped(
    socket: &UdpSocket,
    batch: &mut ReceiveBatch,
    messages: &mut Arrivals,
    stop: &AtomicBool,
    mut each: impl FnMut(&mut Arrivals, &ReceiveBatch, usize, u64),
) {
    let mut until = u64::MAX;
    loop {
        if !messages.received.is_late && stop.load(Relaxed) {
            messages.received.is_late = true;
            until = clock::monotonic_ns() + DRAIN_NS;
        }
        let is_late = messages.received.is_late;
        match batch.receive(socket, if is_late { Wait::No } else { Wait::ForOne }) {
            Ok(many) => {
                let now = clock::monotonic_ns();
                messages.received.read_at(now);
                each(messages, batch, many, now);
                if now > until {
                    return;
                }
            }
            Err(_) if is_late => return,
            Err(error) => messages.received.failed(&error),
        }
    }
}

/// The answer to a message that is a probe of this test.
pub fn probe_answer(bytes: &[u8], stream: u8) -> Option<[u8; message::LENGTH]> {
    let asks = Flags::PROBE.with(Flags::REQUEST);
    let mut message =
        Message::read(bytes).filter(|message| message.stream == stream && message.flags == asks)?;
    message.flags = Flags::PROBE.with(Flags::RESPONSE);
    let mut answer = [0; message::LENGTH];
    message.write(&mut answer);
    Some(answer)
}

/// Answers a probe in message `index`, if it is one.
pub fn answer_probe(socket: &UdpSocket, batch: &ReceiveBatch, index: usize, stream: u8) {
    let Some(answer) = probe_answer(batch.bytes(index), stream) else { return };
    let mut reply = SendBatch::new(1, message::LENGTH);
    reply.buffer(0).copy_from_slice(&answer);
    reply.answer(0, batch, index);
    let _ = reply.send(socket, 0..1);
}
