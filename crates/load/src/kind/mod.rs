//! The kinds of traffic: one file or folder each, and a row in [`KINDS`].
//!
//! A kind uses [`crate::traffic`] and never another kind. What others must know of it, who open no sockets, is a row of
//! [`record::kind`]; here is what its two ends are made by and which sizes they can carry.

mod check;
pub mod frames;
mod host;
pub mod ping;
pub mod tcp_rr;
pub mod tcp_stream;
pub mod udp_rr;
pub mod udp_stream;

pub use host::check_host;

use crate::protocol::setup::{EndRole, Setup};
use crate::traffic::end::Ready;
use check::{MAX_DATAGRAM, Sizes};
use record::kind::TrafficKind;
use record::spec::TestSpec;
use record::{Problem, Result};

/// Opens the sockets or ports of one end.
type Prepare = fn(&Setup) -> Ready;

/// What makes the traffic of a kind.
struct Row {
    kind: TrafficKind,
    sizes: Sizes,
    sender: Prepare,
    receiver: Prepare,
}

/// What a frame can carry: a whole datagram behind an Ethernet header.
const MAX_FRAME: u32 = MAX_DATAGRAM + 14 + 20 + 8;
/// What an echo request can carry.
const MAX_ECHO: u32 = MAX_DATAGRAM - wire::icmp::HEADER as u32;
/// The longest request and response over TCP.
const MAX_REQUEST: u32 = 1 << 20;
/// The longest `write` of a stream; 0 is one of the usual length.
const MAX_WRITE: u32 = 16 << 20;

const fn row(kind: TrafficKind, sizes: Sizes, sender: Prepare, receiver: Prepare) -> Row {
    Row { kind, sizes, sender, receiver }
}

/// The table, in the order of [`TrafficKind`].
const KINDS: &[Row] = &[
    row(TrafficKind::TcpStream, Sizes::Bytes(0, MAX_WRITE), tcp_stream::sender, tcp_stream::receiver),
    row(TrafficKind::UdpStream, Sizes::Message(MAX_DATAGRAM), udp_stream::sender, udp_stream::receiver),
    row(TrafficKind::TcpRr, Sizes::Bytes(1, MAX_REQUEST), tcp_rr::sender, tcp_rr::receiver),
    row(TrafficKind::UdpRr, Sizes::Message(MAX_DATAGRAM), udp_rr::sender, udp_rr::receiver),
    row(TrafficKind::Ping, Sizes::Message(MAX_ECHO), ping::sender, ping::receiver),
    row(TrafficKind::Frames, Sizes::Frame(frames::shortest, MAX_FRAME), frames::sender, frames::receiver),
];

const _: () = {
    assert!(KINDS.len() == TrafficKind::ALL.len(), "every kind has a row");
    let mut at = 0;
    while at < KINDS.len() {
        assert!(KINDS[at].kind as usize == at, "every row stands at its kind");
        at += 1;
    }
};

/// Refuses what cannot be done, with the sentence that says why.
///
/// # Errors
/// Input: a test that is not possible.
pub fn check_spec(spec: &TestSpec) -> Result<()> {
    check::check(spec, &KINDS[spec.kind as usize].sizes)
}

/// Opens the sockets of one end.
///
/// # Errors
/// Input: a test that is not possible. Host: what this host does not have or does not allow.
pub fn prepare(setup: &Setup) -> Ready {
    check_spec(&setup.spec)?;
    check_host(&setup.spec, setup.role)?;
    if setup.address.is_ipv4() != (setup.spec.family == 4) {
        return Err(Problem::input(format!("{} is not an IPv{} address", setup.address, setup.spec.family)));
    }
    let row = &KINDS[setup.spec.kind as usize];
    match setup.role {
        EndRole::Sender => (row.sender)(setup),
        EndRole::Receiver => (row.receiver)(setup),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_frame_when_nobody_says_is_the_shortest() {
        for family in [4, 6] {
            assert_eq!(TrafficKind::Frames.default_size(family) as usize, frames::shortest(family));
        }
    }
}
