//! Datagrams over UDP, one direction.
//!
//! The sender fills a batch and hands it over in one system call, at its planned times or as fast as the kernel takes
//! it; without a plan the planned time of a batch is the time it was filled. The receiver reads in batches, takes the
//! time once per batch and judges every datagram. It echoes probes, which are never counted.

use crate::protocol::setup::Setup;
use crate::traffic::ask::probe;
use crate::traffic::datagram::{Burst, Form};
use crate::traffic::end::{End, Ready};
use crate::traffic::paced::send;
use crate::traffic::schedule::Ending;
use crate::traffic::udp::{answer_probe, bind, connect, reader};
use linux::sys::socket;
use linux::sys::udp::{self, ReceiveBatch};
use record::spec::TestSpec;
use record::traffic::EndReport;
use std::net::UdpSocket;
use wire::message::{self, Flags};

/// With merged datagrams a buffer has 64 KiB; more than so many do not stay in the cache.
const MERGED_BUFFERS: usize = 16;

/// How many buffers, and how many datagrams in each, one system call sends.
fn shape(spec: &TestSpec) -> (usize, usize) {
    let merged = spec.gso.max(1);
    ((spec.batch.max(1).div_ceil(merged)) as usize, merged as usize)
}

/// The end that sends.
struct Sender {
    socket: UdpSocket,
    spec: TestSpec,
    form: Form,
}

/// Opens and connects the sender's socket and makes the buffers.
pub fn sender(setup: &Setup) -> Ready {
    let spec = &setup.spec;
    let (socket, mut prepared) = connect(setup)?;
    let settings = &mut prepared.settings;
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
    let form = Form { stream: setup.token, flags: Flags::DATA, size: spec.size as usize, merged, buffers };
    Ok((prepared, Box::new(Sender { socket, spec: spec.clone(), form })))
}

impl End for Sender {
    fn warm_up(&mut self) -> bool {
        let plain = self.spec.gso <= 1 || udp::set_segment(&self.socket, 0).is_ok();
        let reachable = plain && probe(&self.socket, self.form.stream, Flags::RESPONSE);
        if self.form.merged > 1 {
            let _ = udp::set_segment(&self.socket, self.spec.size as u16);
        }
        reachable
    }

    fn run(&mut self, stop: &Ending) -> EndReport {
        let mut report = send(&mut Burst::new(&self.socket, self.form), &self.spec, stop);
        report.socket_drops = socket::drops(&self.socket).ok();
        report
    }
}

/// Opens the receiver's socket and makes the buffers.
pub fn receiver(setup: &Setup) -> Ready {
    let spec = &setup.spec;
    let (socket, mut prepared) = bind(setup)?;
    let settings = &mut prepared.settings;
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
    let (batch, token) = (ReceiveBatch::new(buffers, capacity), setup.token);
    let end = reader(socket, setup, Flags::DATA, batch, move |arrivals, socket, batch, many, now| {
        for index in 0..many {
            if batch.bytes(index).is_empty() {
                arrivals.foreign(1);
            }
            for datagram in batch.datagrams(index) {
                let known = arrivals.datagram(now, datagram);
                if known.is_none() && datagram.len() == message::LENGTH {
                    answer_probe(socket, batch, index, token);
                }
            }
        }
    });
    Ok((prepared, end))
}
