//! The program that counts a flow where its frames enter or leave an interface.
//!
//! **What.** Assembled for one flow and one place (an interface, in or out), run by the kernel at tcx for every frame there.
//! A frame is the flow's when it carries the header of a test message of that stream ([`wire::message`]), whatever its
//! addresses and ports; flows without messages are known by protocol and ports, somebody else's also by addresses
//! ([`super::flow::FlowEnds`]). It looks behind VLAN tags, IPv6 extension
//! headers, and one VXLAN or Geneve header. What it finds it adds to [`Leg`]'s entry of its place, and it lets the frame go on.
//!
//! **Why two ways to the same test.** Nearly every frame of a test is Ethernet and IPv4 without options, with its headers in one
//! piece: it is compared where it lies, and no function of the kernel is called. Everything else goes step by step, a copy for
//! each header, and ends at the same comparison.
//!
//! **Fragments.** The first one is counted as the datagram. Later ones carry no ports: each first fragment leaves its source and
//! identification in a small map, and later ones found there are counted as fragments only. One that overtakes its first is
//! not counted.
//!
//! **Price.** About 50 instructions for a frame of the flow, half of them for a stranger's; each run prints the nanoseconds as
//! measured ([`super::FlowCounters::cost`]), and `docs/counters.md` has the cost for a whole path. Frames that bypass the hooks (AF_XDP, XDP redirect, `PACKET_QDISC_BYPASS`) are not seen.

use super::ends_program::{self, Headers, Ways};
use super::flow::{Flow, FlowProtocol};
use ::bpf::{AssembleError, Assembler, Label, Op, Reg, Reg::*, When, Width::*};
use wire::message::{Flags, MAGIC};

/// Which way a frame of the flow goes: the entry of a place's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leg {
    /// From the sender to the receiver.
    Forward,
    /// From the receiver to the sender.
    Back,
}

impl Leg {
    /// Both, in the order of their entries.
    pub const ALL: [Leg; 2] = [Leg::Forward, Leg::Back];
}

/// A value: frames (segments of a super-frame counted each), buffers, bytes, later fragments, and when the first one came
/// (`CLOCK_MONOTONIC`, nanoseconds); 64 bits each.
pub(super) const VALUE_BYTES: u32 = 40;
/// A key of the map of fragments: the last 32 bits of the source, the identification, the place; 32 bits each.
pub(super) const FRAGMENT_KEY_BYTES: u32 = 12;
const FRAMES: i16 = 0;
const BUFFERS: i16 = 8;
const BYTES: i16 = 16;
const FRAGMENTS: i16 = 24;
const FIRST: i16 = 32;

/// Where a frame begins at an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With its Ethernet header.
    Ethernet,
    /// With its IP header (tun, tunnels of layer 3).
    Ip,
}

/// What a program is assembled for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The descriptor of the map of counts.
    pub counts: i32,
    /// The descriptor of the map of fragments.
    pub fragments: i32,
    /// The number of the place: its entries begin at twice this.
    pub number: u32,
    /// How its frames begin.
    pub start: Start,
}

// Fields of struct __sk_buff (include/uapi/linux/bpf.h).
pub(super) const SKB_LENGTH: i16 = 0;
pub(super) const SKB_DATA: i16 = 76;
pub(super) const SKB_DATA_END: i16 = 80;
pub(super) const SKB_SEGMENTS: i16 = 164;
pub(super) const SKB_SEGMENT_SIZE: i16 = 176;

// Kernel functions by number.
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const KTIME: i32 = 5;
pub(super) const LOAD_BYTES: i32 = 26;

/// `TCX_NEXT`: the next program, or the stack, decides.
pub(super) const NEXT: i32 = -1;

// Places on the stack, as distances from the frame pointer; the verifier wants numbers aligned.
const NETWORK: i16 = -56; // 40 bytes of IP header
const TRANSPORT: i16 = -16; // 14 bytes behind it
const KEY: i16 = -60;
const FRAGMENT_KEY: i16 = -72;
const FRAGMENT_LEG: i16 = -80;

/// Ethernet, IPv4 without options, the beginning of what follows.
const FAST_BYTES: i32 = 48;
const FAST_TRANSPORT: i16 = 34;
const FAST_ADDRESSES: i16 = 26;
const TRANSPORT_BYTES: i32 = 14;
const SHORT_TRANSPORT_BYTES: i32 = 8;
/// Both ICMP and UDP have eight bytes of header.
const MESSAGE: i16 = 8;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
/// Destination ports of VXLAN (IANA's and Linux's own) and Geneve.
pub(super) const VXLAN_PORTS: [u16; 2] = [4789, 8472];
pub(super) const GENEVE_PORT: u16 = 6081;
const TUNNEL_PORTS: [u16; 3] = [VXLAN_PORTS[0], VXLAN_PORTS[1], GENEVE_PORT];
/// IPv6 extension headers of the common form, and how many are looked behind.
const OPTIONS: [u8; 3] = [0, 43, 60];
const FRAGMENT: u8 = 44;
pub(super) const MOST_EXTENSIONS: usize = 3;
/// How many VLAN tags are looked behind.
pub(super) const MOST_TAGS: usize = 2;

/// A number of 16 bits as a register has it that was loaded from a frame without reordering.
fn as_loaded(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// Where a transport header lies: in the frame itself, or copied to the stack.
#[derive(Clone, Copy)]
struct Header(Reg, i16);

const COPIED: Header = Header(R10, TRANSPORT);

struct Builder<'a> {
    a: Assembler,
    flow: &'a Flow,
    place: Place,
    out: Label,
    /// The transport header is on the stack, its offset in `R7`, nothing known of tunnels.
    transport: Label,
    /// The same header, of the flow's protocol, which is not the flow's.
    foreign: Label,
    /// A later fragment of the flow's protocol; its key is on the stack.
    later: Label,
    matched: Label,
}

/// Assembles the program for a place. `R6` is the buffer, `R7` the offset of the header in hand, `R8` whether the datagram
/// is a first fragment (its key is on the stack then), `R9` the leg.
pub(super) fn assemble(flow: &Flow, place: Place) -> Result<Vec<u64>, AssembleError> {
    let mut a = Assembler::new();
    let (out, transport, later, matched) = (a.label(), a.label(), a.label(), a.label());
    let mut builder = Builder { a, flow, place, out, transport, foreign: out, later, matched };
    builder.begin();
    let tunnel = builder.a.label();
    let is_udp = flow.protocol == FlowProtocol::Udp;
    builder.foreign = if is_udp { tunnel } else { out };
    let after = if is_udp && flow.ends.is_none() { None } else { Some(tunnel) };
    builder.packet(place.start, after);
    if flow.ends.is_none() {
        builder.a.place(transport);
        builder.compare(COPIED, tunnel);
    }
    builder.tunnel(tunnel);
    builder.later_fragment();
    builder.count();
    builder.a.finish()
}

impl Builder<'_> {
    /// The fast way; falls through when the frame has to be taken step by step.
    fn begin(&mut self) {
        let slow = self.a.label();
        self.a.op_reg(Op::Move, R6, R1);
        self.a.op(Op::Move, R7, 0);
        self.a.op(Op::Move, R8, 0);
        self.a.op(Op::Move, R9, 0);
        if let (Start::Ethernet, Some(number)) = (self.place.start, self.flow.number(4)) {
            self.a.load(B4, R2, R6, SKB_DATA);
            self.a.load(B4, R3, R6, SKB_DATA_END);
            self.a.op_reg(Op::Move, R1, R2);
            self.a.op(Op::Add, R1, FAST_BYTES);
            self.a.jump_if_reg(R1, When::Above, R3, slow);
            let frame = Header(R2, 0);
            self.jump_unless(B2, frame, 12, as_loaded(ETH_P_IP), slow);
            self.jump_unless(B1, frame, 14, 0x45, slow);
            self.jump_unless(B1, frame, 23, i32::from(number), slow);
            self.a.load(B2, R1, R2, 20);
            self.a.op(Op::And, R1, as_loaded(0x3fff));
            self.a.jump_if(R1, When::NotEqual, 0, slow);
            self.a.op(Op::Move, R7, i32::from(FAST_TRANSPORT));
            let tunnel = self.a.label();
            if self.flow.ends.is_some() {
                let foreign = if self.flow.protocol == FlowProtocol::Udp { tunnel } else { self.out };
                self.compare_ends(4, Header(R2, FAST_ADDRESSES), Header(R2, FAST_TRANSPORT), foreign);
            } else {
                self.compare(Header(R2, FAST_TRANSPORT), tunnel);
            }
            if self.flow.protocol == FlowProtocol::Udp {
                self.a.place(tunnel);
                self.a.load(B2, R1, R2, FAST_TRANSPORT + 2);
                self.a.op(Op::Move, R7, 0);
                self.jump_if_any(R1, TUNNEL_PORTS.map(as_loaded), slow);
                self.a.jump(self.out);
            }
        }
        self.a.place(slow);
    }

    /// Copies `bytes` at `R7` of the frame to the stack, or jumps if they are not there.
    fn load(&mut self, to: i16, bytes: i32, absent: Label) {
        self.a.op_reg(Op::Move, R1, R6);
        self.a.op_reg(Op::Move, R2, R7);
        self.stack(R3, to);
        self.a.op(Op::Move, R4, bytes);
        self.a.call(LOAD_BYTES);
        self.a.jump_if(R0, When::NotEqual, 0, absent);
    }

    fn stack(&mut self, register: Reg, offset: i16) {
        self.a.op_reg(Op::Move, register, R10);
        self.a.op(Op::Add, register, i32::from(offset));
    }

    fn jump_unless(&mut self, width: bpf::Width, header: Header, at: i16, value: i32, to: Label) {
        self.a.load(width, R1, header.0, header.1 + at);
        self.a.jump_if(R1, When::NotEqual, value, to);
    }

    fn jump_if_any(&mut self, register: Reg, of: impl IntoIterator<Item = i32>, to: Label) {
        of.into_iter().for_each(|value| self.a.jump_if(register, When::Equal, value, to));
    }

    /// From the first byte of a frame (at `R7`) to its transport header, on the stack; always jumps. UDP that is not the
    /// flow's own protocol goes to `tunnel`, where tunnels are still looked behind.
    fn packet(&mut self, start: Start, tunnel: Option<Label>) {
        let (v4, v6) = (self.a.label(), self.a.label());
        if start == Start::Ethernet {
            self.ethertype(v4, v6);
        } else {
            self.load(NETWORK, 1, self.out);
            self.a.load(B1, R1, R10, NETWORK);
            self.a.op(Op::ShiftRight, R1, 4);
            self.a.jump_if(R1, When::Equal, 4, v4);
            self.a.jump_if(R1, When::Equal, 6, v6);
            self.a.jump(self.out);
        }
        self.a.place(v4);
        self.v4(tunnel);
        self.a.place(v6);
        self.v6(tunnel);
    }

    /// Steps over the Ethernet header and VLAN tags.
    fn ethertype(&mut self, v4: Label, v6: Label) {
        self.a.op(Op::Add, R7, 12);
        for tags in 0..=MOST_TAGS {
            self.load(NETWORK, 2, self.out);
            self.a.op(Op::Add, R7, 2);
            self.a.load(B2, R1, R10, NETWORK);
            self.a.jump_if(R1, When::Equal, as_loaded(ETH_P_IP), v4);
            self.a.jump_if(R1, When::Equal, as_loaded(ETH_P_IPV6), v6);
            if tags < MOST_TAGS {
                let tagged = self.a.label();
                self.jump_if_any(R1, wire::layers::VLAN_TAGS.map(as_loaded), tagged);
                self.a.jump(self.out);
                self.a.place(tagged);
                self.a.op(Op::Add, R7, 2);
            }
        }
        self.a.jump(self.out);
    }

    fn v4(&mut self, tunnel: Option<Label>) {
        let first = self.a.label();
        self.load(NETWORK, 20, self.out);
        self.a.load(B1, R1, R10, NETWORK);
        self.a.op_reg(Op::Move, R2, R1);
        self.a.op(Op::ShiftRight, R2, 4);
        self.a.jump_if(R2, When::NotEqual, 4, self.out);
        self.a.op(Op::And, R1, 0xf);
        self.a.jump_if(R1, When::Below, 5, self.out);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.a.op_reg(Op::Add, R7, R1);
        self.a.load(B2, R8, R10, NETWORK + 6);
        self.a.from_big_endian(R8, B2);
        self.a.op(Op::And, R8, 0x3fff);
        self.a.jump_if(R8, When::Equal, 0, first);
        self.a.load(B4, R1, R10, NETWORK + 12);
        self.a.load(B2, R2, R10, NETWORK + 4);
        self.fragment_key();
        self.a.load(B1, R2, R10, NETWORK + 9);
        self.a.op_reg(Op::Move, R1, R8);
        self.a.op(Op::And, R1, 0x1fff);
        self.later_of_flow(4);
        self.a.place(first);
        self.a.load(B1, R2, R10, NETWORK + 9);
        self.by_protocol(4, tunnel);
    }

    /// Puts the key of a datagram's fragments on the stack, of source (`R1`) and identification (`R2`).
    fn fragment_key(&mut self) {
        self.a.store(B4, R10, FRAGMENT_KEY, R1);
        self.a.store(B4, R10, FRAGMENT_KEY + 4, R2);
        self.a.store_imm(B4, R10, FRAGMENT_KEY + 8, self.place.number as i32);
    }

    /// Jumps if the fragment's offset (`R1`) is not 0: to `later` if its protocol (`R2`) is the flow's, else out.
    fn later_of_flow(&mut self, version: u8) {
        let first = self.a.label();
        self.a.jump_if(R1, When::Equal, 0, first);
        if let Some(number) = self.flow.number(version) {
            self.a.jump_if(R2, When::Equal, i32::from(number), self.later);
        }
        self.a.jump(self.out);
        self.a.place(first);
    }

    /// Goes on with the transport header at `R7` of the protocol in `R2`; always jumps.
    fn by_protocol(&mut self, version: u8, tunnel: Option<Label>) {
        if let Some(number) = self.flow.number(version) {
            let (foreign, short) = (self.a.label(), self.a.label());
            let found = if self.flow.ends.is_some() { self.a.label() } else { self.transport };
            self.a.jump_if(R2, When::NotEqual, i32::from(number), foreign);
            self.load(TRANSPORT, TRANSPORT_BYTES, short);
            self.a.jump(found);
            // A short datagram without a message; ports and echo identifiers are there.
            self.a.place(short);
            self.a.store_imm(B8, R10, TRANSPORT + MESSAGE, 0);
            self.load(TRANSPORT, SHORT_TRANSPORT_BYTES, self.out);
            self.a.jump(found);
            if self.flow.ends.is_some() {
                self.a.place(found);
                let addresses = Header(R10, NETWORK + if version == 4 { 12 } else { 8 });
                self.compare_ends(version, addresses, COPIED, self.foreign);
            }
            self.a.place(foreign);
        }
        if let Some(tunnel) = tunnel {
            self.a.jump_if(R2, When::NotEqual, i32::from(UDP), self.out);
            self.load(TRANSPORT, TRANSPORT_BYTES, self.out);
            self.a.jump(tunnel);
        } else {
            self.a.jump(self.out);
        }
    }

    fn v6(&mut self, tunnel: Option<Label>) {
        self.load(NETWORK, 40, self.out);
        self.a.load(B1, R1, R10, NETWORK);
        self.a.op(Op::ShiftRight, R1, 4);
        self.a.jump_if(R1, When::NotEqual, 6, self.out);
        self.a.op(Op::Add, R7, 40);
        self.a.op(Op::Move, R8, 0);
        // The protocol in hand stays in the header's own field: calls lose registers.
        for _ in 0..MOST_EXTENSIONS {
            self.extension();
        }
        self.a.load(B1, R2, R10, NETWORK + 6);
        self.by_protocol(6, tunnel);
    }

    /// Steps over one extension header, if there is one.
    fn extension(&mut self) {
        let (options, fragment, none) = (self.a.label(), self.a.label(), self.a.label());
        let next = self.a.label();
        self.a.load(B1, R2, R10, NETWORK + 6);
        self.jump_if_any(R2, OPTIONS.map(i32::from), options);
        self.a.jump_if(R2, When::Equal, i32::from(FRAGMENT), fragment);
        self.a.jump(none);

        self.a.place(options);
        self.load(TRANSPORT, 2, self.out);
        self.a.load(B1, R1, R10, TRANSPORT + 1);
        self.a.op(Op::Add, R1, 1);
        self.a.op(Op::ShiftLeft, R1, 3);
        self.a.op_reg(Op::Add, R7, R1);
        self.a.jump(next);

        self.a.place(fragment);
        self.load(TRANSPORT, 8, self.out);
        self.a.op(Op::Add, R7, 8);
        self.a.load(B4, R1, R10, NETWORK + 20);
        self.a.load(B4, R2, R10, TRANSPORT + 4);
        self.fragment_key();
        self.a.load(B2, R1, R10, TRANSPORT + 2);
        self.a.from_big_endian(R1, B2);
        self.a.op_reg(Op::Move, R8, R1);
        self.a.op(Op::And, R1, 0xfff8);
        self.a.load(B1, R2, R10, TRANSPORT);
        self.later_of_flow(6);

        self.a.place(next);
        self.a.load(B1, R1, R10, TRANSPORT);
        self.a.store(B1, R10, NETWORK + 6, R1);
        self.a.place(none);
    }

    /// Is that transport header the flow's? Goes to `matched` with the leg in `R9`, or to `tunnel` or out.
    fn compare(&mut self, header: Header, tunnel: Label) {
        let no = if self.flow.protocol == FlowProtocol::Udp { tunnel } else { self.out };
        match (self.flow.stream, self.flow.protocol) {
            (Some(stream), protocol) => self.compare_message(header, stream, protocol, no),
            (None, FlowProtocol::Icmp | FlowProtocol::Icmp6) => {
                self.echo_leg(header);
                self.compare_port(header, 4, self.matched);
                self.a.jump(self.out);
            }
            (None, _) => {
                let back = self.a.label();
                self.compare_port(header, 2, self.matched);
                self.compare_port(header, 0, back);
                self.a.jump(no);
                self.a.place(back);
                self.a.op(Op::Move, R9, Leg::Back as i32);
                self.a.jump(self.matched);
            }
        }
    }

    /// The same by the ends of somebody else's flow.
    fn compare_ends(&mut self, version: u8, addresses: Header, transport: Header, no: Label) {
        let (forward, back) = (self.matched, self.a.label());
        let at = Headers { addresses: (addresses.0, addresses.1), transport: (transport.0, transport.1) };
        ends_program::compare(&mut self.a, self.flow, version, at, Ways { forward, back, no });
        self.a.place(back);
        self.a.op(Op::Move, R9, Leg::Back as i32);
        self.a.jump(self.matched);
    }

    fn compare_port(&mut self, header: Header, at: i16, to: Label) {
        self.a.load(B2, R1, header.0, header.1 + at);
        self.jump_if_any(R1, self.flow.ports.iter().copied().map(as_loaded), to);
    }

    /// Leaves the leg of an echo message in `R9`; other messages are not the flow's.
    fn echo_leg(&mut self, header: Header) {
        let version = if self.flow.protocol == FlowProtocol::Icmp6 { 6 } else { 4 };
        let Some((request, reply)) = self.flow.protocol.echo_types(version) else { return };
        let known = self.a.label();
        self.a.load(B1, R1, header.0, header.1);
        self.a.jump_if(R1, When::Equal, i32::from(request), known);
        self.a.jump_if(R1, When::NotEqual, i32::from(reply), self.out);
        self.a.op(Op::Move, R9, Leg::Back as i32);
        self.a.place(known);
    }

    /// A test message of that stream which is no probe.
    fn compare_message(&mut self, header: Header, stream: u8, protocol: FlowProtocol, no: Label) {
        self.jump_unless(B2, header, MESSAGE, as_loaded(MAGIC), no);
        self.jump_unless(B1, header, MESSAGE + 2, i32::from(stream), no);
        self.a.load(B1, R1, header.0, header.1 + MESSAGE + 3);
        self.a.jump_if(R1, When::AnyBit, i32::from(Flags::PROBE.bits()), self.out);
        if protocol == FlowProtocol::Udp {
            let forward = self.a.label();
            self.a.op(Op::And, R1, i32::from(Flags::RESPONSE.bits()));
            self.a.jump_if(R1, When::Equal, 0, forward);
            self.a.op(Op::Move, R9, Leg::Back as i32);
            self.a.place(forward);
        } else {
            self.echo_leg(header);
        }
        self.a.jump(self.matched);
    }

    /// UDP at `R7` that is not the flow's may carry a whole frame: that one is looked at, too, once.
    fn tunnel(&mut self, tunnel: Label) {
        let (vxlan, geneve, again) = (self.a.label(), self.a.label(), self.a.label());
        self.a.place(tunnel);
        self.a.load(B2, R1, R10, TRANSPORT + 2);
        self.jump_if_any(R1, VXLAN_PORTS.map(as_loaded), vxlan);
        self.a.jump_if(R1, When::Equal, as_loaded(GENEVE_PORT), geneve);
        self.a.jump(self.out);
        self.a.place(geneve);
        self.jump_unless(B2, COPIED, MESSAGE + 2, as_loaded(0x6558), self.out);
        self.a.load(B1, R1, R10, TRANSPORT + MESSAGE);
        self.a.op(Op::And, R1, 0x3f);
        self.a.op(Op::ShiftLeft, R1, 2);
        self.a.op_reg(Op::Add, R7, R1);
        self.a.place(vxlan);
        self.a.op(Op::Add, R7, 16);
        let (transport, out) = (std::mem::replace(&mut self.transport, again), self.out);
        let foreign = std::mem::replace(&mut self.foreign, out);
        self.packet(Start::Ethernet, None);
        if self.flow.ends.is_none() {
            self.a.place(again);
            self.compare(COPIED, out);
        }
        (self.transport, self.foreign) = (transport, foreign);
    }

    /// A later fragment: counted when its first one was of the flow.
    fn later_fragment(&mut self) {
        self.a.place(self.later);
        self.a.load_map(R1, self.place.fragments);
        self.stack(R2, FRAGMENT_KEY);
        self.a.call(MAP_LOOKUP);
        self.a.jump_if(R0, When::Equal, 0, self.out);
        self.a.load(B4, R9, R0, 0);
        self.entry();
        self.a.op(Op::Move, R2, 1);
        self.bump(FRAGMENTS, R2);
        self.a.jump(self.out);
    }

    /// Leaves the place's entry for the leg (`R9`) in `R0`.
    fn entry(&mut self) {
        self.a.op(Op::Add, R9, (self.place.number * 2) as i32);
        self.a.store(B4, R10, KEY, R9);
        self.a.load_map(R1, self.place.counts);
        self.stack(R2, KEY);
        self.a.call(MAP_LOOKUP);
        self.a.jump_if(R0, When::Equal, 0, self.out);
    }

    fn bump(&mut self, offset: i16, by: Reg) {
        self.a.load(B8, R1, R0, offset);
        self.a.op_reg(Op::Add, R1, by);
        self.a.store(B8, R0, offset, R1);
    }

    fn count(&mut self) {
        let (whole, known) = (self.a.label(), self.a.label());
        self.a.place(self.matched);
        self.a.jump_if(R8, When::Equal, 0, whole);
        self.remember_fragments();
        self.a.place(whole);
        self.segments();
        self.entry();
        self.bump(FRAMES, R8);
        self.a.load(B4, R2, R6, SKB_LENGTH);
        self.bump(BYTES, R2);
        self.a.op(Op::Move, R2, 1);
        self.bump(BUFFERS, R2);
        self.a.jump_if(R1, When::NotEqual, 1, known);
        self.a.op_reg(Op::Move, R7, R0);
        self.a.call(KTIME);
        self.a.store(B8, R7, FIRST, R0);
        self.a.place(known);
        self.a.place(self.out);
        self.a.op(Op::Move, R0, NEXT);
        self.a.exit();
    }

    /// What follows this first fragment is the flow's, and of this leg.
    fn remember_fragments(&mut self) {
        self.a.store(B4, R10, FRAGMENT_LEG, R9);
        self.a.load_map(R1, self.place.fragments);
        self.stack(R2, FRAGMENT_KEY);
        self.stack(R3, FRAGMENT_LEG);
        self.a.op(Op::Move, R4, 0);
        self.a.call(MAP_UPDATE);
    }

    /// Leaves the number of frames in `R8`: the segments of a super-frame, or one. Who makes super-frames himself (a packet
    /// socket with a virtio header) leaves their number to be computed of what is behind the transport header.
    fn segments(&mut self) {
        let (one, known) = (self.a.label(), self.a.label());
        self.a.load(B4, R1, R6, SKB_SEGMENT_SIZE);
        self.a.jump_if(R1, When::Equal, 0, one);
        self.a.load(B4, R8, R6, SKB_SEGMENTS);
        self.a.jump_if(R8, When::NotEqual, 0, known);
        self.a.op(Op::Move, R8, 8);
        if self.flow.protocol == FlowProtocol::Tcp {
            self.load(TRANSPORT, TRANSPORT_BYTES, one);
            self.a.load(B1, R8, R10, TRANSPORT + 12);
            self.a.op(Op::ShiftRight, R8, 4);
            self.a.op(Op::ShiftLeft, R8, 2);
        }
        self.a.op_reg(Op::Add, R7, R8);
        self.a.load(B4, R8, R6, SKB_LENGTH);
        self.a.op_reg(Op::Subtract, R8, R7);
        self.a.load(B4, R1, R6, SKB_SEGMENT_SIZE);
        self.a.op_reg(Op::Add, R8, R1);
        self.a.op(Op::Subtract, R8, 1);
        self.a.op_reg(Op::Divide, R8, R1);
        self.a.jump_if(R8, When::NotEqual, 0, known);
        self.a.place(one);
        self.a.op(Op::Move, R8, 1);
        self.a.place(known);
    }
}

#[cfg(test)]
#[path = "flow_program_tests.rs"]
mod tests;
