//! The instructions that compare a frame's addresses and ports with the ends of a flow; the counters and the witness share them.

use super::flow::{Flow, FlowEnd, FlowEnds};
use ::bpf::{Assembler, Label, Reg, Reg::R1, When, Width::*};
use std::net::IpAddr;

/// Where headers lie: a register that points near them, and the distance.
#[derive(Clone, Copy)]
pub(super) struct Headers {
    /// The source address, with the destination's behind it.
    pub addresses: (Reg, i16),
    /// The transport header, or that of an echo.
    pub transport: (Reg, i16),
}

/// Where to go on.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    pub forward: Label,
    pub back: Label,
    /// It is not the flow's.
    pub no: Label,
}

/// Jumps to one of the ways, by the headers of a frame of the flow's protocol over that IP version. Uses `R1` only.
pub(super) fn compare(a: &mut Assembler, flow: &Flow, version: u8, at: Headers, to: Ways) {
    let FlowEnds { source, destination } = flow.ends.unwrap_or_default();
    let (request, reply) = flow.protocol.echo_types(version).unzip();
    let reverse = a.label();
    let length = if version == 4 { 4 } else { 16 };
    one_way(a, at, length, [source, destination], request, reverse);
    a.jump(to.forward);
    a.place(reverse);
    one_way(a, at, length, [destination, source], reply, to.no);
    a.jump(to.back);
}

/// Jumps unless the frame goes from the one end to the other, and is an echo of that type where there is one; an address has
/// `length` bytes.
fn one_way(a: &mut Assembler, at: Headers, length: i16, ends: [FlowEnd; 2], echo: Option<u8>, no: Label) {
    let (pointer, first) = at.addresses;
    for (end, (address_distance, port_distance)) in ends.into_iter().zip([(0, 0), (length, 2)]) {
        let words = end.address.map_or(vec![], words);
        for (word, distance) in words.into_iter().zip((first + address_distance..).step_by(4)) {
            a.load(B4, R1, pointer, distance);
            a.jump_if_u32(R1, When::NotEqual, word, no);
        }
        if let Some(port) = end.port {
            a.load(B2, R1, at.transport.0, at.transport.1 + port_distance);
            a.from_big_endian(R1, B2);
            a.jump_if(R1, When::NotEqual, i32::from(port), no);
        }
    }
    if let Some(kind) = echo {
        a.load(B1, R1, at.transport.0, at.transport.1);
        a.jump_if(R1, When::NotEqual, i32::from(kind), no);
    }
}

/// An address as loaded from a frame without reordering, four bytes each.
fn words(address: IpAddr) -> Vec<u32> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}
