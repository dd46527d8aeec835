//! The walk over the headers.
//!
//! What [`crate::emit`] does in machine code: Ethernet with up to two tags, IPv4, IPv6 without extension headers, ARP, MPLS, and only what
//! the pipeline asks. All other frames exit. At tcx the outer tag is not in the frame: the kernel took it out before.
//!
//! **Registers.** R8 the header in hand, R9 the end of the frame's memory, R5 the offset of the network header, R4 the end of what is there, R3 the
//! summary. Every header is asked for twice: whether the frame has it, and, for the verifier, whether it lies in memory.

use super::Hook;
use super::emit::{ARRIVED, Emit, LENGTH, NETWORK, PAYLOAD, PIECES, TRANSPORT, TTL, of_key};
use crate::key::{
    ARP, ARP_OP, ETH, ETH_DST, ETH_SRC, FRAGMENT, ICMP4, ICMP6, IP, IPV6_DST, IPV6_REST, IPV6_SRC, MPLS,
    NETWORK as NETWORK_WORD, PORTS, PROTO, SCTP, SUMMARY, TAGGED, TCP, UDP,
};
use crate::needs::Depth;
use bpf::{Label, Op, Reg, Reg::*, When, Width::*};

/// Next headers that are extensions, or have a bit of their own in ipv6_exthdr.
const EXTENSIONS: u64 = 1 | 1 << 43 | 1 << 44 | 1 << 50 | 1 << 51 | 1 << 59 | 1 << 60;

// Fields of struct __sk_buff and struct xdp_md.
const SKB_LENGTH: i16 = 0;
const SKB_VLAN_PRESENT: i16 = 20;
const SKB_VLAN_TCI: i16 = 24;
const SKB_SEGMENT_SIZE: i16 = 176;
const SKB_PULL_DATA: i32 = 39;
/// All headers that are parsed stand in so many bytes.
const HEADERS: i32 = 128;

/// Where the walk may go.
#[derive(Clone, Copy)]
struct Ways {
    /// All was found.
    done: Label,
    /// User space does it.
    slow: Label,
}

/// Offsets of the frame's addresses in the kernel's context.
fn data(hook: Hook) -> (i16, i16) {
    match hook {
        Hook::Xdp => (0, 4),
        Hook::Tcx => (76, 80),
    }
}

impl Emit<'_> {
    pub fn parse(&mut self) {
        self.piece("parse");
        let ways = Ways { done: self.a.label(), slow: self.exit };
        let hook = self.source.around.hook;
        if hook == Hook::Tcx {
            self.pull();
        }
        let (begin, end) = data(hook);
        self.a.load(B4, R8, R6, begin);
        self.a.load(B4, R9, R6, end);
        match hook {
            Hook::Tcx => self.a.load(B4, R4, R6, SKB_LENGTH),
            Hook::Xdp => {
                self.a.op_reg(Op::Move, R4, R9);
                self.a.op_reg(Op::Subtract, R4, R8);
            }
        }
        self.put(LENGTH, R4);
        self.no_tags();
        self.in_memory(14, ways.slow);
        self.addresses();
        self.tags(ways);
        if self.depth() >= Depth::Network {
            self.network(ways);
        }
        self.a.place(ways.done);
        self.put(of_key(SUMMARY), R3);
        self.pieces();
    }

    fn depth(&self) -> Depth {
        // Super-frames are counted by what is behind their headers.
        let least = if self.source.around.hook == Hook::Tcx { Depth::Transport } else { Depth::Link };
        self.source.needs.depth.max(least)
    }

    /// Lets the headers be in one piece.
    fn pull(&mut self) {
        let (begin, end) = data(Hook::Tcx);
        let (there, whole) = (self.a.label(), self.a.label());
        self.a.load(B4, R1, R6, begin);
        self.a.load(B4, R2, R6, end);
        self.a.op_reg(Op::Subtract, R2, R1);
        self.a.load(B4, R3, R6, SKB_LENGTH);
        self.a.jump_if(R3, When::AtMost, HEADERS, whole);
        self.a.op(Op::Move, R3, HEADERS);
        self.a.place(whole);
        self.a.jump_if_reg(R2, When::AtLeast, R3, there);
        self.a.op_reg(Op::Move, R1, R6);
        self.a.op_reg(Op::Move, R2, R3);
        self.a.call(SKB_PULL_DATA);
        self.a.jump_if(R0, When::NotEqual, 0, self.exit);
        self.a.place(there);
    }

    /// Jumps unless so many bytes at R8 lie in memory. Changes R1.
    fn in_memory(&mut self, bytes: i32, otherwise: Label) {
        self.a.op_reg(Op::Move, R1, R8);
        self.a.op(Op::Add, R1, bytes);
        self.a.jump_if_reg(R1, When::Above, R9, otherwise);
    }

    /// Jumps unless so many bytes of the network header are there, and in memory. Changes R1.
    fn is_here(&mut self, bytes: i32, ways: Ways) {
        self.a.op_reg(Op::Move, R1, R5);
        self.a.op(Op::Add, R1, bytes);
        self.a.jump_if_reg(R1, When::Above, R4, ways.done);
        self.in_memory(bytes, ways.slow);
    }

    fn load_be(&mut self, width: bpf::Width, dst: Reg, offset: i16) {
        self.a.load(width, dst, R8, offset);
        self.a.from_big_endian(dst, width);
    }

    /// Copies big-endian bytes at R8 to a word of the key that is asked. Changes R1.
    fn copy(&mut self, width: bpf::Width, offset: i16, word: u8) {
        if self.source.needs.asks(word) {
            self.load_be(width, R1, offset);
            self.put(of_key(word), R1);
        }
    }

    /// An Ethernet address, of which two bytes more lie in memory.
    fn copy_address(&mut self, offset: i16, word: u8) {
        if self.source.needs.asks(word) {
            self.load_be(B8, R1, offset);
            self.a.op(Op::ShiftRight, R1, 16);
            self.put(of_key(word), R1);
        }
    }

    fn addresses(&mut self) {
        self.copy_address(0, ETH_DST);
        self.copy_address(6, ETH_SRC);
    }

    /// Up to two tags; behind it R2 is the ethertype.
    fn tags(&mut self, ways: Ways) {
        let (typed, first, second) = (self.a.label(), self.a.label(), self.a.label());
        self.load_be(B2, R2, 12);
        self.constant(R3, ETH);
        self.a.op(Op::Add, R8, 14);
        self.a.op(Op::Move, R5, 14);
        if self.source.around.hook == Hook::Tcx {
            self.tag_beside(second, typed);
        }
        self.if_tag(first);
        self.a.jump(typed);
        self.a.place(first);
        self.in_memory(4, ways.slow);
        self.load_be(B2, R1, 0);
        self.tag_in_summary();
        self.note_tag(1);
        self.a.op(Op::Move, R5, 18);
        self.step_over_tag();
        self.if_tag(second);
        self.a.jump(typed);
        self.a.place(second);
        self.in_memory(4, ways.slow);
        self.note_tag(2);
        self.a.op(Op::Add, R5, 4);
        self.step_over_tag();
        self.if_tag(ways.slow);
        self.a.place(typed);
        self.a.jump_if(R2, When::Below, 0x600, ways.slow);
        self.a.op_reg(Op::Move, R1, R2);
        self.a.op(Op::ShiftLeft, R1, 32);
        self.a.op_reg(Op::Or, R3, R1);
        self.put(NETWORK, R5);
    }

    /// The tag that the kernel keeps beside the frame.
    fn tag_beside(&mut self, second: Label, typed: Label) {
        let none = self.a.label();
        self.a.load(B4, R1, R6, SKB_VLAN_PRESENT);
        self.a.jump_if(R1, When::Equal, 0, none);
        self.a.load(B4, R1, R6, SKB_VLAN_TCI);
        self.tag_in_summary();
        self.note_tag_beside();
        self.get(R1, LENGTH);
        self.a.op(Op::Add, R1, 4);
        self.put(LENGTH, R1);
        self.if_tag(second);
        self.a.jump(typed);
        self.a.place(none);
    }

    fn if_tag(&mut self, to: Label) {
        self.a.jump_if(R2, When::Equal, 0x8100, to);
        self.a.jump_if(R2, When::Equal, 0x88a8, to);
    }

    /// The tag in R1; the drop-eligible bit has no place.
    fn tag_in_summary(&mut self) {
        self.a.op(Op::And, R1, 0xffff);
        self.a.op(Op::ShiftLeft, R1, 16);
        self.a.op(Op::Or, R1, TAGGED as i32);
        self.a.op_reg(Op::Or, R3, R1);
    }

    fn step_over_tag(&mut self) {
        self.load_be(B2, R2, 2);
        self.a.op(Op::Add, R8, 4);
    }

    fn network(&mut self, ways: Ways) {
        let (v4, v6, arp, mpls) = (self.a.label(), self.a.label(), self.a.label(), self.a.label());
        let kinds =
            [(0x800, v4), (0x86dd, v6), (0x806, arp), (0x8847, mpls), (0x8848, mpls), (0x88e7, ways.slow)];
        kinds.iter().for_each(|(kind, to)| self.a.jump_if(R2, When::Equal, *kind, *to));
        self.a.jump(ways.done);
        self.a.place(v4);
        self.v4(ways);
        self.a.place(v6);
        self.v6(ways);
        self.a.place(arp);
        self.arp(ways);
        self.a.place(mpls);
        self.mpls(ways);
    }

    /// IPv4, with options.
    fn v4(&mut self, ways: Ways) {
        let whole = self.a.label();
        self.is_here(20, ways);
        self.a.load(B1, R0, R8, 0);
        self.a.op_reg(Op::Move, R1, R0);
        self.a.op(Op::ShiftRight, R1, 4);
        self.a.jump_if(R1, When::NotEqual, 4, ways.done);
        self.a.op(Op::And, R0, 15);
        self.a.jump_if(R0, When::Below, 5, ways.done);
        self.a.op(Op::ShiftLeft, R0, 2);
        self.a.op_reg(Op::Move, R1, R5);
        self.a.op_reg(Op::Add, R1, R0);
        self.a.jump_if_reg(R1, When::Above, R4, ways.done);
        self.load_be(B2, R2, 2);
        self.a.jump_if(R2, When::Equal, 0, whole);
        self.a.jump_if_reg(R2, When::Below, R0, ways.done);
        self.ends_at(whole);
        self.a.place(whole);
        self.put(TRANSPORT, R1);
        self.copy(B8, 12, NETWORK_WORD);
        self.a.load(B1, R1, R8, 8);
        self.put(TTL, R1);
        self.a.load(B1, R1, R8, 1);
        self.a.load(B1, R2, R8, 9);
        self.summary_of_ip();
        self.fragment(ways);
        self.a.op_reg(Op::Add, R8, R0);
        self.transport(1, ICMP4, ways);
    }

    /// The datagram ends R2 bytes behind R5, if the frame does not end before.
    fn ends_at(&mut self, whole: Label) {
        self.a.op_reg(Op::Add, R2, R5);
        self.a.jump_if_reg(R2, When::AtLeast, R4, whole);
        self.a.op_reg(Op::Move, R4, R2);
    }

    fn fragment(&mut self, ways: Ways) {
        let all = self.a.label();
        self.load_be(B2, R5, 6);
        self.a.op(Op::And, R5, 0x3fff);
        self.a.jump_if(R5, When::Equal, 0, all);
        self.set_bits(FRAGMENT);
        self.a.op(Op::And, R5, 0x1fff);
        self.a.jump_if(R5, When::NotEqual, 0, ways.done);
        self.a.place(all);
    }

    /// Changes R1.
    fn set_bits(&mut self, bits: u64) {
        self.constant(R1, bits);
        self.a.op_reg(Op::Or, R3, R1);
    }

    /// Adds the protocol in R2 and the traffic class in R1 to the summary.
    fn summary_of_ip(&mut self) {
        self.a.op_reg(Op::Or, R3, R1);
        self.a.op_reg(Op::Move, R1, R2);
        self.a.op(Op::ShiftLeft, R1, 8);
        self.a.op_reg(Op::Or, R3, R1);
        self.set_bits(IP | PROTO);
    }

    /// IPv6 without extension headers.
    fn v6(&mut self, ways: Ways) {
        let (plain, whole) = (self.a.label(), self.a.label());
        self.is_here(40, ways);
        self.a.load(B1, R0, R8, 0);
        self.a.op(Op::ShiftRight, R0, 4);
        self.a.jump_if(R0, When::NotEqual, 6, ways.done);
        self.a.load(B1, R0, R8, 6);
        self.a.jump_if(R0, When::Above, 60, plain);
        self.constant(R1, EXTENSIONS);
        self.a.op_reg(Op::ShiftRight, R1, R0);
        self.a.op(Op::And, R1, 1);
        self.a.jump_if(R1, When::NotEqual, 0, ways.slow);
        self.a.place(plain);
        self.a.op(Op::Add, R5, 40);
        self.put(TRANSPORT, R5);
        self.load_be(B2, R2, 4);
        self.a.jump_if(R2, When::Equal, 0, whole);
        self.ends_at(whole);
        self.a.place(whole);
        self.load_be(B2, R1, 0);
        self.a.op(Op::ShiftRight, R1, 4);
        self.a.op(Op::And, R1, 0xff);
        self.a.op_reg(Op::Move, R2, R0);
        self.summary_of_ip();
        self.a.load(B1, R1, R8, 7);
        self.put(TTL, R1);
        for (word, at) in [(IPV6_SRC, 8), (IPV6_SRC + 1, 16), (IPV6_DST, 24), (IPV6_DST + 1, 32)] {
            self.copy(B8, at, word);
        }
        if self.source.needs.asks(IPV6_REST) {
            self.load_be(B4, R1, 0);
            self.a.op(Op::And, R1, 0xfffff);
            self.put(of_key(IPV6_REST), R1);
        }
        self.a.op(Op::Add, R8, 40);
        self.transport(58, ICMP6, ways);
    }

    /// The transport at R8 of the protocol in R2; `icmp` is the number of the family's own ICMP.
    fn transport(&mut self, icmp: i32, icmp_bit: u64, ways: Ways) {
        if self.depth() < Depth::Transport {
            self.a.jump(ways.done);
            return;
        }
        for (protocol, length, bit) in [(6, 20, TCP), (17, 8, UDP), (132, 12, SCTP)] {
            let other = self.a.label();
            self.a.jump_if(R2, When::NotEqual, protocol, other);
            self.is_transport_here(length, bit, ways);
            if self.source.needs.asks(PORTS) {
                self.load_be(B4, R1, 0);
                self.a.store(B4, R7, of_key(PORTS), R1);
            }
            self.a.jump(ways.done);
            self.a.place(other);
        }
        self.a.jump_if(R2, When::NotEqual, icmp, ways.done);
        self.is_transport_here(4, icmp_bit, ways);
        self.a.load(B1, R1, R8, 0);
        if self.depth() >= Depth::Neighbour && icmp == 58 {
            self.a.jump_if(R1, When::Equal, 135, ways.slow);
            self.a.jump_if(R1, When::Equal, 136, ways.slow);
        }
        if self.source.needs.asks(PORTS) {
            self.a.op(Op::ShiftLeft, R1, 16);
            self.a.load(B1, R2, R8, 1);
            self.a.op_reg(Op::Or, R1, R2);
            self.a.store(B4, R7, of_key(PORTS), R1);
        }
        self.a.jump(ways.done);
    }

    fn is_transport_here(&mut self, length: i32, bit: u64, ways: Ways) {
        self.get(R1, TRANSPORT);
        self.a.op(Op::Add, R1, length);
        self.a.jump_if_reg(R1, When::Above, R4, ways.done);
        self.in_memory(length, ways.slow);
        self.set_bits(bit);
    }

    fn arp(&mut self, ways: Ways) {
        self.is_here(8, ways);
        self.set_bits(ARP_OP);
        if self.source.needs.asks(PORTS) {
            self.load_be(B2, R1, 6);
            self.a.op(Op::ShiftLeft, R1, 16);
            self.a.store(B4, R7, of_key(PORTS), R1);
        }
        self.is_here(28, ways);
        // IPv4; addresses of 6 and 4 bytes.
        self.load_be(B4, R1, 2);
        self.a.jump_if(R1, When::NotEqual, 0x0800_0604, ways.done);
        self.set_bits(ARP);
        if self.source.needs.asks(NETWORK_WORD) {
            self.load_be(B4, R1, 14);
            self.a.op(Op::ShiftLeft, R1, 32);
            self.load_be(B4, R2, 24);
            self.a.op_reg(Op::Or, R1, R2);
            self.put(of_key(NETWORK_WORD), R1);
        }
        self.copy_address(8, IPV6_SRC + 1);
        self.copy_address(18, IPV6_DST + 1);
        self.a.jump(ways.done);
    }

    fn mpls(&mut self, ways: Ways) {
        self.is_here(4, ways);
        self.set_bits(MPLS);
        self.copy(B4, 0, NETWORK_WORD);
    }

    /// `R8 = the header whose offset stands there`, if so many bytes of it lie in memory; R9 the end of the memory. Changes R1.
    pub fn header(&mut self, offset: i16, bytes: i32, otherwise: Label) {
        let (begin, end) = data(self.source.around.hook);
        self.a.load(B4, R8, R6, begin);
        self.a.load(B4, R9, R6, end);
        self.get(R1, offset);
        self.a.jump_if(R1, When::Above, HEADERS, otherwise);
        self.a.op_reg(Op::Add, R8, R1);
        self.in_memory(bytes, otherwise);
    }

    /// What the frame is on a wire.
    fn pieces(&mut self) {
        let one = self.a.label();
        self.get(R4, LENGTH);
        self.put(ARRIVED, R4);
        self.put_constant(PIECES, 1);
        self.put_constant(PAYLOAD, 0);
        if self.source.around.hook == Hook::Tcx {
            self.a.load(B4, R5, R6, SKB_SEGMENT_SIZE);
            self.a.jump_if(R5, When::Equal, 0, one);
            self.segments();
        }
        self.a.place(one);
    }

    /// A super-frame of segments of R5 bytes of payload. TCP only has a length of its header.
    fn segments(&mut self) {
        let (udp, headers) = (self.a.label(), self.a.label());
        let tcp = self.a.label();
        self.a.load(B4, R2, R6, SKB_LENGTH);
        self.get(R4, TRANSPORT);
        self.constant(R1, TCP);
        self.a.jump_if_reg(R3, When::AnyBit, R1, tcp);
        self.constant(R1, UDP);
        self.a.jump_if_reg(R3, When::AnyBit, R1, udp);
        self.a.jump(self.exit);
        self.a.place(tcp);
        self.header(TRANSPORT, 20, self.exit);
        self.get(R4, TRANSPORT);
        self.a.load(B1, R1, R8, 12);
        self.a.op(Op::ShiftRight, R1, 4);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.a.op_reg(Op::Add, R4, R1);
        self.a.jump(headers);
        self.a.place(udp);
        self.a.op(Op::Add, R4, 8);
        self.a.place(headers);
        self.a.jump_if_reg(R4, When::AtLeast, R2, self.exit);
        self.a.op_reg(Op::Subtract, R2, R4);
        self.put(PAYLOAD, R2);
        self.a.op_reg(Op::Add, R2, R5);
        self.a.op(Op::Subtract, R2, 1);
        self.a.op_reg(Op::Divide, R2, R5);
        self.put(PIECES, R2);
    }
}
