//! The end that receives frames from a port.

use super::flow::{Flow, burst, rewritten, uri};
use super::template::headers;
use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::end::{End, POLL, Ready, prepared};
use crate::traffic::ports::with_setting;
use crate::traffic::schedule::Ending;
use crate::traffic::udp::probe_answer;
use linux::observe::next_hop;
use linux::port::{self, Batch, Direction, PortError, PortOptions, Wait};
use linux::sys::{clock, udp};
use record::traffic::{EndReport, Settings};
use record::unit::many;
use record::{PortKind, Problem, Result, Through};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;
use wire::message::{self, Flags};
use wire::repair::is_intact;

/// A ring hands over its last frames only when its block is retired: nothing for so long means that nothing is left.
const QUIET: Duration = Duration::from_millis(100);

/// The end that receives.
struct Receiver {
    setup: Setup,
    /// Holds the port, answers probes and throws everything else away.
    socket: UdpSocket,
    port: Box<dyn port::Receiver>,
    flow: Flow,
}

/// Holds a UDP port, and opens the port on the interface that has the address.
///
/// # Errors
/// Input: a port that does not exist, or an address of no interface that frames come in by. Host: an address that this host does not have, or no right to open the port.
pub fn receiver(setup: &Setup) -> Ready {
    let (spec, address) = (&setup.spec, setup.address);
    let socket = udp::bind(SocketAddr::new(address, 0), None, None).and_then(|socket| {
        udp::throw_away(&socket)?;
        Ok(socket)
    });
    let socket = socket.map_err(|error| {
        Problem::host(format!("cannot hold a UDP port at {address}: {error}"))
            .help("name an address that the receiving host itself has")
    })?;
    let mut prepared = prepared(&socket, socket.local_addr(), None, vec![]);
    let flow = Flow { address, port: prepared.ports.first().copied().unwrap_or(0) };
    let name = only(uri(spec.receiver_port(), &interface(address)?), flow.port);
    let opened = port::open(&name, &PortOptions { direction: Direction::Receive, ..PortOptions::default() })?;
    let port = opened
        .receiver
        .ok_or_else(|| Problem::input(format!("{name} cannot receive")).help("name a port that can"))?;
    prepared.settings = Settings {
        port_settings: opened.settings,
        method: format!("{name}, up to {} frames a call", burst(spec.batch)),
        port: name,
        // The socket receives nothing.
        send_buffer: 0,
        receive_buffer: 0,
        ..prepared.settings
    };
    Ok((prepared, Box::new(Receiver { setup: setup.clone(), socket, port, flow })))
}

/// The interface whose address it is. Frames of other hosts for an address on `lo`, a router's own for one, come in by any of the others.
fn interface(address: IpAddr) -> Result<String> {
    let interface = next_hop::interface_with(address)?;
    if interface == "lo" && !address.is_loopback() {
        let what = format!("{address} is an address of lo, and frames for it come in by another interface");
        return Err(Problem::input(what).help("name an address of the interface that they come in by"));
    }
    Ok(interface)
}

impl Receiver {
    fn arrivals(&self) -> Arrivals {
        let spec = &self.setup.spec;
        let payload = (spec.size as usize).saturating_sub(headers(spec.family));
        Arrivals::of(&self.setup, Flags::DATA, payload).counting(u64::from(spec.size))
    }
}

/// An XDP program takes the frames of the test and nothing else: the node must answer ARP while it is attached.
fn only(uri: String, port: u16) -> String {
    let is_xdp = PortKind::of(&uri).is_some_and(|kind| kind.through == Through::Driver);
    if is_xdp { with_setting(&uri, &format!("only=udp:{port}")) } else { uri }
}

/// Judges the frames of a batch, and tells whether some were the test's; frames of other flows are none of our business. Those of the test
/// that came to another address or port than they were sent to are counted in `moved`.
#[inline]
fn take_in(
    batch: &Batch<'_>,
    flow: Flow,
    token: u8,
    socket: &UdpSocket,
    arrivals: &mut Arrivals,
    moved: &mut u64,
) -> bool {
    let now = clock::monotonic_ns();
    let mut ours = false;
    for index in 0..batch.len() {
        let bytes = batch.bytes(index);
        let (from, payload) = match flow.payload(bytes) {
            Some((from, payload)) => (Some(from), payload),
            None => match rewritten(bytes, token) {
                Some(payload) => (None, payload),
                None => continue,
            },
        };
        *moved += u64::from(from.is_none());
        if !ours {
            arrivals.received.read_at(now);
            ours = true;
        }
        if arrivals.datagram_if(now, payload, || is_intact(bytes)).is_none()
            && payload.len() == message::LENGTH
            && let Some(from) = from
            && let Some(answer) = probe_answer(payload, token)
        {
            // By the socket, so that it comes from the address and port that were asked.
            let _ = socket.send_to(&answer, from);
        }
    }
    ours
}

impl End for Receiver {
    fn run(&mut self, stop: &Ending) -> EndReport {
        let (token, flow, limit) = (self.setup.token, self.flow, burst(self.setup.spec.batch));
        let (mut arrivals, mut ended, mut moved) = (self.arrivals(), None, 0);
        // Frames of others are no reason to wait for more of the test's.
        let mut last_ns = clock::monotonic_ns();
        arrivals.read_until_stopped(stop, |arrivals| {
            let is_late = arrivals.received.is_late;
            match self.port.receive(limit, Wait::For(if is_late { QUIET } else { POLL })) {
                Ok(batch) if batch.is_empty() && is_late => return false,
                Ok(batch) => {
                    if batch.is_empty() {
                        arrivals.received.rest();
                    }
                    let now = clock::monotonic_ns();
                    if take_in(&batch, flow, token, &self.socket, arrivals, &mut moved) || !is_late {
                        last_ns = now;
                    }
                    return now - last_ns < QUIET.as_nanos() as u64;
                }
                Err(PortError::Io(error)) => arrivals.received.failed(&error),
                Err(PortError::Down) => {}
                Err(error) => ended = Some(error.to_string()),
            }
            ended.is_none()
        });
        let mut report = arrivals.into_report();
        report.port_drops = self.port.counters().drops;
        report.socket_drops = Some(report.port_drops.iter().map(|drop| drop.count).sum());
        report.port_drops.retain(|drop| drop.count > 0);
        report.notes.extend((moved > 0).then(|| {
            let frames = many(moved, "frame");
            format!("{frames} came with another address, port or tag than they were sent with")
        }));
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
