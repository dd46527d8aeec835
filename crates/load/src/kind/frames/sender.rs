//! The end that sends frames through a port.

use super::flow::{burst, uri};
use super::template::program;
use crate::protocol::setup::Setup;
use crate::send::build::Moment;
use crate::send::engine::Source;
use crate::send::program::CompiledTemplate;
use crate::traffic::ask::probe;
use crate::traffic::datagram::{Outgoing, SenderCounts};
use crate::traffic::end::{End, Ready};
use crate::traffic::ports::{bypasses_qdisc, drops_since};
use crate::traffic::schedule::Ending;
use crate::traffic::{paced, udp};
use linux::observe::next_hop;
use linux::port::{self, Direction, Frames, Hand, PortError, PortOptions, Transmitter};
use linux::sys::clock;
use record::traffic::{EndReport, Settings};
use record::unit::many;
use record::{NamedCount, Problem, Result};
use std::net::UdpSocket;
use std::ops::Range;
use std::time::Duration;
use wire::build::Ends;
use wire::message::Flags;

/// How long a full port is waited for before the rest of a burst is left for later.
const PATIENCE_NS: u64 = 250_000_000;

/// How long to wait at a time for a full port.
const A_LITTLE: Duration = Duration::from_millis(1);

/// How long the last frames may take to leave the port.
const FLUSH: Duration = Duration::from_secs(2);

/// The end that sends.
struct Sender {
    setup: Setup,
    /// Sends the probes, and holds the source port.
    socket: UdpSocket,
    transmitter: Box<dyn Transmitter>,
    program: Option<CompiledTemplate>,
}

/// Opens the port and the socket of the probes.
///
/// # Errors
/// Input: a port that does not exist. Host: no route, or no right to open the port.
pub fn sender(setup: &Setup) -> Ready {
    let spec = &setup.spec;
    let (socket, mut prepared) = udp::connect(setup)?;
    let interface = next_hop::interface_to(setup.address)?;
    let name = uri(spec.sender_port(), &interface);
    let wish = PortOptions { direction: Direction::Transmit, ..PortOptions::default() };
    let opened = port::open(&name, &wish)?;
    let transmitter = opened
        .transmitter
        .ok_or_else(|| Problem::input(format!("{name} cannot send")).help("name a port that can"))?;
    let size = spec.size as usize;
    if size > transmitter.longest() {
        let most = transmitter.longest();
        return Err(Problem::input(format!("frames of {size} bytes do not fit {name}"))
            .help(format!("it takes {most} bytes at most")));
    }
    let port_settings = opened.settings;
    prepared.settings = Settings {
        bypasses_qdisc: bypasses_qdisc(&name, &port_settings),
        port_settings,
        method: format!("{name}, {} frames a call", burst(spec.batch)),
        port: name,
        // Those of the socket for the probes say nothing.
        send_buffer: 0,
        receive_buffer: 0,
        ..prepared.settings
    };
    Ok((prepared, Box::new(Sender { setup: setup.clone(), socket, transmitter, program: None })))
}

impl Sender {
    /// The frames of the test, once the next node's hardware address is known.
    fn resolve(&self) -> Result<CompiledTemplate> {
        let address = self.setup.address;
        let hop = next_hop::next_hop(address)?;
        let local = self
            .socket
            .local_addr()
            .map_err(|error| Problem::host(format!("cannot tell the address of this end: {error}")))?;
        let ends = Ends {
            macs: (hop.source, hop.destination),
            addresses: (local.ip(), address),
            ports: (local.port(), self.setup.port),
        };
        program(&ends, self.setup.spec.size as usize, self.setup.token)
            .ok_or_else(|| Problem::input(format!("no frame has {} bytes", self.setup.spec.size)))
    }
}

impl End for Sender {
    fn warm_up(&mut self) -> bool {
        let answered = probe(&self.socket, self.setup.token, Flags::RESPONSE);
        self.program = self.resolve().ok();
        answered
    }

    fn run(&mut self, stop: &Ending) -> EndReport {
        let program = match self.program.take().map_or_else(|| self.resolve(), Ok) {
            Ok(program) => program,
            Err(problem) => {
                return EndReport {
                    notes: vec![format!("nothing was sent: {problem}")],
                    ..EndReport::default()
                };
            }
        };
        let spec = &self.setup.spec;
        let mut out = Out::new(&mut *self.transmitter, program, burst(spec.batch));
        let before = out.port.counters();
        let mut report = paced::send(&mut out, spec, stop);
        let ended = out.finish();
        let after = self.transmitter.counters();
        report.sent = after.accepted.saturating_sub(before.accepted);
        report.made = after.duplicated().saturating_sub(before.duplicated());
        if report.made > 0 {
            report
                .notes
                .push(format!("{} more were sent: copies that fault: made", many(report.made, "frame")));
        }
        report.sent_bytes = report.sent.saturating_mul(u64::from(spec.size));
        report.port_drops = drops_since(&before.drops, after.drops);
        report.port_drops.retain(|drop| drop.count > 0);
        for drop in &report.port_drops {
            match report.send_errors.iter_mut().find(|error| error.name == drop.name) {
                Some(error) => error.count += drop.count,
                None => report.send_errors.push(NamedCount { name: drop.name.clone(), count: drop.count }),
            }
        }
        report.notes.extend(ended);
        report
    }
}

/// A port, and the frames that are sent through it.
struct Out<'a> {
    port: &'a mut dyn Transmitter,
    frames: Frames,
    program: CompiledTemplate,
    burst: usize,
    /// Why the port cannot go on.
    ended: Option<PortError>,
}

impl<'a> Out<'a> {
    fn new(port: &'a mut dyn Transmitter, program: CompiledTemplate, burst: usize) -> Self {
        let mut frames = Frames::new(burst, program.longest());
        program.prepare(&mut frames);
        Out { port, frames, program, burst, ended: None }
    }

    /// Waits until the last frames have left; what a person must know about the end.
    fn finish(&mut self) -> Option<String> {
        if let Some(error) = &self.ended {
            return Some(format!("the port could not go on: {error}"));
        }
        let waiting = self.port.flush(FLUSH).unwrap_or(0);
        (waiting > 0).then(|| {
            format!("{waiting} frames were still in the port {} s after the last one", FLUSH.as_secs())
        })
    }
}

impl Outgoing for Out<'_> {
    fn capacity(&self) -> u64 {
        self.burst as u64
    }

    #[inline]
    fn send(&mut self, numbers: Range<u64>, planned: impl Fn(u64) -> u64, sent: &mut SenderCounts) {
        self.frames.clear();
        for number in numbers {
            let moment = Moment { planned_ns: planned(number), utc_ns: 0 };
            self.program.add(&mut self.frames, number, moment);
        }
        let many = self.frames.len();
        let mut batch = self.frames.batch();
        let all = batch.all();
        let (mut at, mut give_up) = (0, 0);
        while at < many {
            sent.report.send_calls += 1;
            let now = clock::monotonic_ns();
            match self.port.transmit(&mut batch, &all[at..], Hand::Over) {
                Ok(outcome) if outcome.dealt > 0 => {
                    at += outcome.dealt;
                    give_up = 0;
                    sent.report.attempted += outcome.dealt as u64;
                    let accepted = (outcome.dealt - outcome.refused) as u64;
                    sent.report.sent += accepted;
                    sent.report.sent_bytes += accepted * self.program.longest() as u64;
                    continue;
                }
                // Full, or the link is down, which is said once.
                Ok(_) | Err(PortError::Down) => {}
                Err(error) => {
                    self.ended = Some(error);
                    return;
                }
            }
            give_up = if give_up == 0 { now + PATIENCE_NS } else { give_up };
            if now >= give_up {
                sent.blocked += 1;
                return;
            }
            let _ = self.port.flush(A_LITTLE);
        }
    }
}
