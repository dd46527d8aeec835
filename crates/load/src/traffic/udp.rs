//! UDP sockets of a test: opened, probed, read until the end.

use super::arrivals::Arrivals;
use super::end::{End, POLL, any_like, open_at, prepared};
use super::schedule::Ending;
use crate::protocol::message::Prepared;
use crate::protocol::setup::Setup;
use linux::sys::clock;
use linux::sys::socket::{self, Direction};
use linux::sys::udp::{self, ReceiveBatch, SendBatch, Wait};
use record::traffic::EndReport;
use record::{Problem, Result};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use wire::message::{self, Flags, Message};

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

/// The end that reads datagrams; `each` sees every batch with its length and the time it was read at.
struct Reader<F> {
    socket: UdpSocket,
    setup: Setup,
    flags: Flags,
    batch: ReceiveBatch,
    each: F,
}

/// An end that reads the test's datagrams of these flags from a socket of [`bind`] and hands each batch to `each`: what was
/// counted so far, the batch, its length and the time it was read at.
pub fn reader<F>(socket: UdpSocket, setup: &Setup, flags: Flags, batch: ReceiveBatch, each: F) -> Box<dyn End>
where
    F: FnMut(&mut Arrivals, &UdpSocket, &ReceiveBatch, usize, u64) + Send + 'static,
{
    Box::new(Reader { socket, setup: setup.clone(), flags, batch, each })
}

impl<F: FnMut(&mut Arrivals, &UdpSocket, &ReceiveBatch, usize, u64) + Send> End for Reader<F> {
    fn run(&mut self, stop: &Ending) -> EndReport {
        let Reader { socket, setup, flags, batch, each } = self;
        let mut arrivals = Arrivals::of(setup, *flags, setup.spec.size as usize);
        arrivals.read_until_stopped(stop, |arrivals| {
            let is_late = arrivals.received.is_late;
            match batch.receive(&*socket, if is_late { Wait::No } else { Wait::ForOne }) {
                Ok(many) => {
                    let now = clock::monotonic_ns();
                    arrivals.received.read_at(now);
                    each(arrivals, socket, batch, many, now);
                }
                Err(_) if is_late => return false,
                Err(error) => arrivals.received.failed(&error),
            }
            true
        });
        EndReport { socket_drops: socket::drops(&*socket).ok(), ..arrivals.into_report() }
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
