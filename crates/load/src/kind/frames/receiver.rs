//! The end that receives frames from a port.

use super::{Flow, uri};
use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::datagram::Errors;
use crate::traffic::end::{DRAIN_NS, End, POLL, receive_errors_note, settings_of};
use crate::traffic::intervals::Intervals;
use crate::traffic::udp::note_error;
use linux::observe::next_hop;
use linux::port::{self, Batch, Direction, MAX_BATCH, PortError, Wait, Wish};
use linux::sys::{clock, udp};
use record::traffic::{EndReport, Settings};
use record::{Problem, Result};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::message::{self, Flags, Message};

/// A ring hands over its last frames only when its block is retired: nothing for so long means that nothing is left.
const QUIET: Duration = Duration::from_millis(100);

/// The end that receives.
pub struct Receiver {
    setup: Setup,
    /// Holds the port, answers probes and throws everything else away.
    socket: UdpSocket,
    port: Box<dyn port::Receiver>,
    flow: Flow,
    settings: Settings,
}

impl Receiver {
    /// Holds a UDP port, and opens the port on the interface that has the address.
    ///
    /// # Errors
    /// Input: a port that does not exist. Host: an address that this host does not have, or no right to open the port.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let (spec, address) = (&setup.spec, setup.address);
        let socket = udp::bind(SocketAddr::new(address, 0), None, None).and_then(|socket| {
            udp::throw_away(&socket)?;
            Ok(socket)
        });
        let socket = socket.map_err(|error| {
            Problem::host(format!("cannot hold a UDP port at {address}: {error}"))
                .help("name an address that the receiving host itself has")
        })?;
        let local = socket.local_addr();
        let flow = Flow { address, port: local.as_ref().map_or(0, SocketAddr::port) };
        let name = only(uri(spec.receiver_port(), &next_hop::interface_with(address)?), flow.port);
        let opened = port::open(&name, &Wish { direction: Direction::Receive, ..Wish::default() })?;
        let port = opened
            .receiver
            .ok_or_else(|| Problem::input(format!("{name} cannot receive")).help("name a port that can"))?;
        let mut settings = settings_of(&socket, local, Err(io::ErrorKind::NotConnected.into()));
        settings.port_settings = port.settings().to_vec();
        settings.method = format!("{name}, up to {} frames a call", limit(spec.batch));
        settings.port = name;
        (settings.send_buffer, settings.receive_buffer) = (0, 0); // the socket receives nothing
        Ok(Box::new(Receiver { setup: setup.clone(), socket, port, flow, settings }))
    }

    fn arrivals(&self) -> Arrivals {
        let Setup { spec, token, clock: offset, .. } = &self.setup;
        let intervals = Intervals::for_duration(spec.duration_ms);
        let payload = (spec.size as usize + message::LENGTH).saturating_sub(bare(spec.family));
        Arrivals::new(*token, Flags::DATA, payload, offset.offset_ns(), intervals)
            .counting(u64::from(spec.size))
    }
}

/// An XDP program takes the frames of the test and nothing else: the node must answer ARP while it is attached.
fn only(uri: String, port: u16) -> String {
    if !uri.starts_with("xdp:") {
        return uri;
    }
    let join = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{join}only=udp:{port}")
}

/// Bytes of a frame whose payload is a message and nothing else.
fn bare(family: u8) -> usize {
    14 + if family == 6 { 40 } else { 20 } + 8 + message::LENGTH
}

fn limit(batch: u32) -> usize {
    (batch.max(1) as usize).min(MAX_BATCH)
}

/// Judges the frames of a batch; frames of other flows are none of our business.
#[inline]
fn take_in(batch: &Batch<'_>, flow: Flow, token: u8, socket: &UdpSocket, arrivals: &mut Arrivals) {
    let now = clock::monotonic_ns();
    let mut ours = false;
    for index in 0..batch.len() {
        let Some((from, payload)) = flow.payload(batch.bytes(index)) else { continue };
        if !ours {
            arrivals.read_at(now);
            ours = true;
        }
        if arrivals.datagram(now, payload).is_none() && payload.len() == message::LENGTH {
            answer_probe(socket, from, payload, token);
        }
    }
}

/// Answers a probe by the socket, so that the response comes from the address and port that were asked.
fn answer_probe(socket: &UdpSocket, from: SocketAddr, payload: &[u8], token: u8) {
    let Some(mut message) = Message::read(payload) else { return };
    if message.stream == token && message.flags == Flags::PROBE.with(Flags::REQUEST) {
        message.flags = Flags::PROBE.with(Flags::RESPONSE);
        let mut reply = [0; message::LENGTH];
        message.write(&mut reply);
        let _ = socket.send_to(&reply, from);
    }
}

impl End for Receiver {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.flow.port]
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let (token, flow, limit) = (self.setup.token, self.flow, limit(self.setup.spec.batch));
        let (mut arrivals, mut errors) = (self.arrivals(), Errors::default());
        let mut ended = None;
        let (mut left, mut drain_until) = (0, None);
        loop {
            if drain_until.is_none() && stop.load(Relaxed) {
                drain_until = Some(clock::monotonic_ns() + DRAIN_NS);
            }
            let before = arrivals.received();
            match self.port.receive(limit, Wait::For(if drain_until.is_some() { QUIET } else { POLL })) {
                Ok(batch) if batch.is_empty() && drain_until.is_some() => break,
                Ok(batch) => take_in(&batch, flow, token, &self.socket, &mut arrivals),
                Err(PortError::Io(error)) => note_error(&error, &mut errors),
                Err(PortError::Down) => {}
                Err(error) => {
                    ended = Some(error.to_string());
                    break;
                }
            }
            let Some(until) = drain_until else { continue };
            left += arrivals.received() - before;
            if clock::monotonic_ns() > until {
                break;
            }
        }
        let mut report = EndReport { thread_cpu_ns: arrivals.cpu_ns(), ..EndReport::default() };
        arrivals.report(&mut report);
        report.left_in_socket = left;
        report.port_drops = self.port.counters().drops;
        report.socket_drops = Some(report.port_drops.iter().map(|drop| drop.count).sum());
        report.port_drops.retain(|drop| drop.count > 0);
        report.notes.extend(self.setup.clock.note());
        report.notes.extend(receive_errors_note(&errors));
        report.notes.extend(ended.map(|why| format!("the port could not go on: {why}")));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::only;

    #[test]
    fn an_xdp_receiver_takes_the_stream_only() {
        assert_eq!(only("xdp:eth0".into(), 9), "xdp:eth0?only=udp:9");
        assert_eq!(only("xdp:eth0?mode=generic".into(), 9), "xdp:eth0?mode=generic&only=udp:9");
        assert_eq!(only("ring:eth0?frames=8".into(), 9), "ring:eth0?frames=8");
    }
}
