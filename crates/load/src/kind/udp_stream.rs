//! Datagrams over UDP, one direction.
//!
//! The sender fills a batch and hands it over in one system call, at its planned times or as fast as the kernel takes
//! it; without a plan the planned time of a batch is the time it was filled. The receiver reads in batches, takes the
//! time once per batch and judges every datagram. It echoes probes, which are never counted.

use crate::protocol::setup::Setup;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::datagram::{Burst, Form, Through};
use crate::traffic::end::{End, receive_errors_note, settings_of};
use crate::traffic::intervals::Intervals;
use crate::traffic::paced::send;
use crate::traffic::udp::{answer_probe, bind, connect, probe, read_until_stopped};
use linux::sys::socket;
use linux::sys::udp::{self, ReceiveBatch};
use record::Result;
use record::spec::TestSpec;
use record::traffic::{EndReport, Settings};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use wire::message::{self, Flags};

/// With merged datagrams a buffer has 64 KiB; more than so many do not stay in the cache.
const MERGED_BUFFERS: usize = 16;

/// How many buffers, and how many datagrams in each, one system call sends.
fn shape(spec: &TestSpec) -> (usize, usize) {
    let merged = spec.gso.max(1);
    ((spec.batch.max(1).div_ceil(merged)) as usize, merged as usize)
}

/// The end that sends.
pub struct Sender {
    socket: UdpSocket,
    spec: TestSpec,
    burst: Burst,
    stream: u8,
    settings: Settings,
}

impl Sender {
    /// Opens and connects the socket and makes the buffers.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let spec = &setup.spec;
        let socket = connect(spec, SocketAddr::new(setup.address, setup.port))?;
        let mut settings = settings_of(&socket, socket.local_addr(), socket.peer_addr());
        let (mut buffers, mut merged) = shape(spec);
        if spec.gso > 1
            && let Err(error) = udp::set_segment(&socket, spec.size as u16)
        {
            settings.refused.push(format!("UDP_SEGMENT: {error}"));
            (buffers, merged) = (spec.batch.max(1) as usize, 1);
        }
        settings.method = match (buffers, merged) {
            (1, 1) => "sendmmsg ×1".to_owned(),
            (_, 1) => format!("sendmmsg ×{buffers}"),
            (1, _) => format!("sendmsg + UDP_SEGMENT {merged}"),
            _ => format!("sendmmsg ×{buffers} + UDP_SEGMENT {merged}"),
        };
        let form =
            Form { stream: setup.token, flags: Flags::DATA, size: spec.size as usize, merged, buffers };
        let burst = Burst::new(&socket, form);
        Ok(Box::new(Sender { socket, spec: spec.clone(), burst, stream: setup.token, settings }))
    }
}

impl End for Sender {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.socket.local_addr().map(|address| address.port()).into_iter().collect()
    }

    fn warm_up(&mut self) -> bool {
        let plain = self.spec.gso <= 1 || udp::set_segment(&self.socket, 0).is_ok();
        let reachable = plain && probe(&self.socket, self.stream);
        if self.spec.gso > 1 && self.burst.capacity() > 1 {
            let _ = udp::set_segment(&self.socket, self.spec.size as u16);
        }
        reachable
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let mut out = Through { carrier: &self.socket, burst: &mut self.burst };
        let mut report = send(&mut out, &self.spec, stop);
        report.socket_drops = socket::drops(&self.socket).ok();
        report
    }
}

/// The end that receives.
pub struct Receiver {
    socket: UdpSocket,
    setup: Setup,
    batch: ReceiveBatch,
    settings: Settings,
}

impl Receiver {
    /// Opens the socket and makes the buffers.
    pub fn prepare(setup: &Setup) -> Result<Box<dyn End>> {
        let spec = &setup.spec;
        let (socket, note) = bind(spec, setup.address)?;
        let mut settings = settings_of(&socket, socket.local_addr(), Err(io::ErrorKind::NotConnected.into()));
        settings.refused.extend(note);
        let mut buffers = spec.batch.max(1) as usize;
        // One byte more than a datagram has shows one that is too long.
        let mut capacity = spec.size as usize + 1;
        settings.method = format!("recvmmsg ×{buffers}");
        if spec.gro {
            match udp::set_merge(&socket) {
                Ok(()) => {
                    (buffers, capacity) = (buffers.min(MERGED_BUFFERS), 65_535);
                    settings.method = format!("recvmmsg ×{buffers} + UDP_GRO");
                }
                Err(error) => settings.refused.push(format!("UDP_GRO: {error}")),
            }
        }
        let batch = ReceiveBatch::new(buffers, capacity);
        Ok(Box::new(Receiver { socket, setup: setup.clone(), batch, settings }))
    }
}

impl End for Receiver {
    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.socket.local_addr().map(|address| address.port()).into_iter().collect()
    }

    fn run(&mut self, stop: &AtomicBool) -> EndReport {
        let Setup { spec, token, clock: offset, .. } = &self.setup;
        let intervals = Intervals::for_duration(spec.duration_ms);
        let mut arrivals =
            Arrivals::new(*token, Flags::DATA, spec.size as usize, offset.offset_ns(), intervals);
        let (mut left, socket) = (0, &self.socket);
        let errors = read_until_stopped(socket, &mut self.batch, stop, |batch, many, now, is_late| {
            arrivals.read_at(now);
            let before = arrivals.received();
            for index in 0..many {
                if batch.bytes(index).is_empty() {
                    arrivals.foreign(1);
                }
                for datagram in batch.datagrams(index) {
                    let known = arrivals.datagram(now, datagram);
                    if known.is_none() && datagram.len() == message::LENGTH {
                        answer_probe(socket, batch, index, *token);
                    }
                }
            }
            left += if is_late { arrivals.received() - before } else { 0 };
        });
        let mut report = EndReport { thread_cpu_ns: arrivals.cpu_ns(), ..EndReport::default() };
        arrivals.report(&mut report);
        report.left_in_socket = left;
        report.socket_drops = socket::drops(socket).ok();
        report.notes.extend(offset.note());
        report.notes.extend(receive_errors_note(&errors));
        report
    }
}
