//! The program that runs at every `skb:kfree_skb` event and counts the test's own drops.
//!
//! **What.** Assembled for the running kernel ([`Layout`]), the lab's namespaces and the test's flow. It reads the
//! buffer's description once, finds its namespace, finds the IP header through `network_header` (the only one that is
//! set at every drop point), behind VLAN tags if there are any, compares protocol, ports and message, and adds to a per-CPU count by reason and place.
//!
//! **Which namespace.** That of `skb->dev`; where a socket has taken the buffer, `dev` shares its memory with other
//! data (`dev_scratch`), so a `dev` that leads to no namespace falls back to the receiving socket (the event's fourth
//! argument since Linux 6.11) and then to `skb->sk`; the interface is then the one of arrival (`skb_iif`). A namespace
//! that was found and does not count ends the search: the sender's socket goes along into the namespaces of others.
//! Beside its number stands its cookie: the number of a namespace that is gone is given to the next one, a cookie never.
//!
//! **Price.** One block read of the description and five to seven small reads for each drop in the lab, three for each
//! drop elsewhere; nothing at all for frames that are not dropped.

use std::collections::BTreeMap;

use super::btf::Btf;
use super::ends_program::{self, Headers, Ways};
use super::flow::Flow;
use super::flow_program::MOST_TAGS;
use ::bpf::{AssembleError, Assembler, Label, Op, Reg, Reg::*, When, Width, Width::*};
use wire::message::MAGIC;

/// Where the running kernel keeps what the program reads; every number from BTF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Offsets of [`MEMBERS`], by structure and path.
    pub(super) offsets: BTreeMap<(&'static str, &'static str), u32>,
    /// Drop reasons by number, without the prefix `SKB_DROP_REASON_`.
    pub(super) reasons: Vec<(u32, String)>,
    /// Arguments of the event: buffer, location, reason, and since 6.11 the receiving socket.
    pub(super) arguments: usize,
}

/// What the program reads: structure, path, bytes.
const MEMBERS: [(&str, &str, u32); 24] = [
    ("sk_buff", "dev", 8),
    ("sk_buff", "sk", 8),
    ("sk_buff", "head", 8),
    ("sk_buff", "data", 8),
    ("sk_buff", "len", 4),
    ("sk_buff", "data_len", 4),
    ("sk_buff", "vlan_proto", 2),
    ("sk_buff", "vlan_tci", 2),
    ("sk_buff", "tail", 4),
    ("sk_buff", "end", 4),
    ("sk_buff", "protocol", 2),
    ("sk_buff", "network_header", 2),
    ("sk_buff", "transport_header", 2),
    ("sk_buff", "mac_header", 2),
    ("sk_buff", "skb_iif", 4),
    ("net_device", "nd_net.net", 8),
    ("net_device", "ifindex", 4),
    ("net_device", "name", 16),
    ("net", "ns.inum", 4),
    ("sock", "__sk_common.skc_net.net", 8),
    ("sock", "__sk_common.skc_family", 2),
    ("skb_shared_info", "gso_segs", 2),
    ("skb_shared_info", "gso_size", 2),
    ("skb_shared_info", "gso_type", 4),
];

/// Which namespace it is, for ever (Linux 5.12).
const COOKIE: (&str, &str) = ("net", "net_cookie");

impl Layout {
    /// Finds everything in the kernel's BTF.
    ///
    /// # Errors
    /// The name of the first thing that this kernel does not have, or has in another size.
    pub fn find(btf: &Btf<'_>) -> Result<Layout, String> {
        let member = |&(outer, path, size): &(&'static str, &'static str, u32)| {
            Ok(((outer, path), btf.offset(outer, path, size)?))
        };
        let reasons = reasons(btf)?;
        let arguments = btf.arguments("btf_trace_kfree_skb").ok_or("this kernel has no kfree_skb event")?;
        if arguments < 4 {
            return Err("the kfree_skb event of this kernel has no reason (Linux 5.17 has)".into());
        }
        let mut offsets = MEMBERS.iter().map(member).collect::<Result<BTreeMap<_, _>, String>>()?;
        offsets.extend(btf.offset(COOKIE.0, COOKIE.1, 8).ok().map(|offset| (COOKIE, offset)));
        Ok(Layout { offsets, reasons, arguments: arguments - 1 })
    }

    pub(super) fn at(&self, structure: &'static str, path: &'static str) -> u32 {
        self.offsets[&(structure, path)]
    }

    /// Where the needed part of `struct sk_buff` begins.
    fn first(&self) -> u32 {
        self.skb().min().unwrap_or(0) & !7
    }

    /// Bytes from the first to the last needed field of `struct sk_buff`.
    fn span(&self) -> u32 {
        (self.skb().max().unwrap_or(0) + 8 - self.first()).next_multiple_of(8)
    }

    fn skb(&self) -> impl Iterator<Item = u32> {
        self.offsets.iter().filter(|((structure, _), _)| *structure == "sk_buff").map(|(_, offset)| *offset)
    }

    /// True if the needed part of `struct sk_buff` fits the program's stack.
    pub(super) fn fits(&self) -> bool {
        self.span() <= BLOCK_ROOM
    }

    /// The name of a drop reason; reasons of other subsystems (mac80211, OVS) have their number.
    pub fn reason(&self, number: u32) -> String {
        let known = self.reasons.iter().find(|(value, _)| *value == number);
        known.map_or_else(|| format!("reason {number:#x}"), |(_, name)| name.clone())
    }
}

/// Drop reasons by the numbers that this kernel has for them. The numbers are no stable interface: only the names are ever told.
fn reasons(btf: &Btf) -> Result<Vec<(u32, String)>, String> {
    let found =
        btf.values("skb_drop_reason").ok_or("this kernel does not tell drop reasons (Linux 5.17 does)")?;
    let plain = |name: &str| name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name).to_owned();
    Ok(found.into_iter().map(|(name, value)| (value, plain(name))).collect())
}

/// The names of drop reasons in a kernel's BTF.
///
/// # Errors
/// Why there are none.
pub fn reason_names(btf: &Btf<'_>) -> Result<Vec<String>, String> {
    let is_one = |name: &String| {
        !["SKB_NOT_DROPPED_YET", "SKB_CONSUMED", "MAX", "SUBSYS_MASK"].contains(&name.as_str())
    };
    Ok(reasons(btf)?.into_iter().map(|(_, name)| name).filter(is_one).collect())
}

/// What a key says was counted.
pub(super) const KIND_MATCHED: u32 = 0;
/// See [`KIND_MATCHED`]: a frame of the lab whose header could not be read.
pub(super) const KIND_UNPARSED: u32 = 1;
/// See [`KIND_MATCHED`]: a frame on its way back, where the ends of the flow tell.
pub(super) const KIND_BACK: u32 = 2;

/// A frame's namespace was told by a socket, whose family is in the lower bits; see [`super::frames_program`].
pub(super) const KIND_BY_SOCKET: u32 = 0x8000;

/// Entries of the map of the program's own losses: events without room for their place, and all events that it saw.
pub(super) const LOST_NO_ROOM: i32 = 0;
/// See [`LOST_NO_ROOM`].
pub(super) const LOST_EVENTS: i32 = 1;

/// A key: reason, namespace, interface, kind (32 bits each), location, cookie of the namespace (64 bits each).
pub(super) const KEY_BYTES: u32 = 32;
/// A value: frames, buffers (64 bits each).
pub(super) const VALUE_BYTES: u32 = 16;

// Places on the stack, as distances from the frame pointer.
pub(super) const KEY: i16 = -32;
const KEY_REASON: i16 = KEY;
const KEY_NET: i16 = KEY + 4;
const KEY_INDEX: i16 = KEY + 8;
pub(super) const KEY_KIND: i16 = KEY + 12;
const KEY_LOCATION: i16 = KEY + 16;
const KEY_COOKIE: i16 = KEY + 24;
const VALUE: i16 = -48;
pub(super) const SCRATCH: i16 = -56;
/// `SKB_GSO_TCPV4` and `SKB_GSO_TCPV6` (`include/linux/skbuff.h`).
const GSO_OF_TCP: i32 = 1 | 1 << 4;
const HEADER: i16 = -104; // 40 bytes of IP header, then 8 of what follows
const AFTER_IP: i16 = HEADER + 40;
const BLOCK: i16 = -424; // up to 320 bytes of sk_buff
const BLOCK_ROOM: u32 = 320;

// Kernel functions by number (include/uapi/linux/bpf.h).
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
pub(super) const PROBE_READ_KERNEL: i32 = 113;
const NOEXIST: i32 = 1;

const ETH_P_IP: i32 = 0x0800;
const ETH_P_IPV6: i32 = 0x86dd;
/// A VLAN tag, and the outer one of two (IEEE 802.1Q, 802.1ad).
const ETH_P_TAGS: [i32; 2] = [0x8100, 0x88a8];
const TAG_BYTES: i32 = 4;
const TYPE_BYTES: i32 = 2;
const ETHERNET_BYTES: i32 = 14;
/// Both ICMP and UDP have eight bytes of header; a message follows.
const TRANSPORT_BYTES: i32 = 8;
/// IPv6 extension headers of the common form: hop-by-hop, routing, destination options.
const OPTIONS: [i32; 3] = [0, 43, 60];
/// The IPv6 fragment header.
const FRAGMENT: i32 = 44;

/// The two maps as the program names them.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapFds {
    pub counts: i32,
    pub lost: i32,
}

/// Whose drops count.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// Those of these namespaces, by number.
    These(&'a [u32]),
    /// Those of every namespace of the host.
    Any,
}

/// Numbers of namespaces: those of the initial ones (`include/uapi/linux/nsfs.h`, Linux 6.18), then those that are given one
/// (`PROC_DYNAMIC_FIRST` and the 28 bits behind). What is read through a stale pointer has another number.
const NAMESPACE_NUMBERS: std::ops::Range<u32> = 0xefff_fff0..0xffff_fff0;

/// A program that is being assembled from pieces that all programs at this event share.
pub(super) struct Builder<'a> {
    pub(super) a: Assembler,
    pub(super) layout: &'a Layout,
    pub(super) out: Label,
    unparsed: Label,
    matched: Label,
}

/// Assembles the program. `R6` is the buffer, `R7` the context, `R8` the namespace and later the IP header's offset,
/// `R9` the end of the linear part.
pub(super) fn assemble(
    layout: &Layout,
    scope: Scope<'_>,
    flow: &Flow,
    maps: MapFds,
) -> Result<Vec<u64>, AssembleError> {
    let mut builder = Builder::new(layout);
    builder.note_event(maps.lost);
    builder.read_description();
    builder.find_namespace(scope, false);
    builder.find_ip_header();
    builder.compare_v4(flow);
    builder.compare_v6(flow);
    builder.count(maps);
    builder.a.finish()
}

impl<'a> Builder<'a> {
    pub(super) fn new(layout: &'a Layout) -> Builder<'a> {
        let mut a = Assembler::new();
        let (out, unparsed, matched) = (a.label(), a.label(), a.label());
        Builder { a, layout, out, unparsed, matched }
    }
}

impl Builder<'_> {
    /// Where the copied description has that field of `struct sk_buff`.
    pub(super) fn field(&self, name: &'static str) -> i16 {
        BLOCK + (self.layout.at("sk_buff", name) - self.layout.first()) as i16
    }

    /// Copies `bytes` at `R3` (+ `offset`) to the stack and jumps if they cannot be read.
    pub(super) fn read(&mut self, to: i16, bytes: u32, offset: u32, unreadable: Label) {
        if offset != 0 {
            self.a.op(Op::Add, R3, offset as i32);
        }
        self.stack(R1, to);
        self.a.op(Op::Move, R2, bytes as i32);
        self.a.call(PROBE_READ_KERNEL);
        self.a.jump_if(R0, When::NotEqual, 0, unreadable);
    }

    /// Reads two big-endian bytes of the stack.
    fn load_big_endian(&mut self, register: Reg, at: i16) {
        self.a.load(B2, register, R10, at);
        self.a.from_big_endian(register, B2);
    }

    fn jump_if_any(&mut self, register: Reg, of: impl IntoIterator<Item = i32>, to: Label) {
        of.into_iter().for_each(|value| self.a.jump_if(register, When::Equal, value, to));
    }

    /// Counts that the program ran, whatever the frame: what the event counted beyond that was not shown to it.
    pub(super) fn note_event(&mut self, map: i32) {
        let noted = self.a.label();
        self.a.op_reg(Op::Move, R7, R1);
        self.count_own(map, LOST_EVENTS, noted);
        self.a.place(noted);
    }

    /// Adds one to a count of the program's own, or jumps if it is not there.
    pub(super) fn count_own(&mut self, map: i32, which: i32, absent: Label) {
        self.a.store_imm(B4, R10, SCRATCH, which);
        self.look_up(map, SCRATCH, absent);
        self.a.op(Op::Move, R2, 1);
        self.bump(R0, 0, R2);
    }

    /// Leaves the place of a key's value in `R0`, or jumps if there is none.
    pub(super) fn look_up(&mut self, map: i32, key: i16, absent: Label) {
        self.a.load_map(R1, map);
        self.stack(R2, key);
        self.a.call(MAP_LOOKUP);
        self.a.jump_if(R0, When::Equal, 0, absent);
    }

    pub(super) fn read_description(&mut self) {
        self.a.load(B8, R6, R7, 0);
        self.a.op_reg(Op::Move, R3, R6);
        self.read(BLOCK, self.layout.span(), self.layout.first(), self.out);
    }

    /// Follows `R3` + offset to a namespace and jumps to `ours` with its number in `R8` and where it is in place of its cookie, or to `out` when it does not count;
    /// falls through where there is none.
    pub(super) fn namespace_of(&mut self, offset: u32, scope: Scope<'_>, ours: Label) {
        let other = self.a.label();
        self.a.jump_if(R3, When::Equal, 0, other);
        self.read(KEY_COOKIE, 8, offset, other);
        self.a.load(B8, R3, R10, KEY_COOKIE);
        self.read(SCRATCH, 4, self.layout.at("net", "ns.inum"), other);
        self.a.load(B4, R8, R10, SCRATCH);
        let found = match scope {
            Scope::These(namespaces) => {
                for &namespace in namespaces {
                    self.a.jump_if_u32(R8, When::Equal, namespace, ours);
                }
                self.out
            }
            Scope::Any => ours,
        };
        self.a.jump_if_u32(R8, When::Below, NAMESPACE_NUMBERS.start, other);
        self.a.jump_if_u32(R8, When::Below, NAMESPACE_NUMBERS.end, found);
        self.a.place(other);
    }

    /// Puts the cookie of the namespace that was found into the key; 0 where the kernel has none, or does not tell it.
    pub(super) fn note_cookie(&mut self) {
        let noted = self.a.label();
        match self.layout.offsets.get(&COOKIE) {
            Some(&offset) => {
                self.a.load(B8, R3, R10, KEY_COOKIE);
                self.read(KEY_COOKIE, 8, offset, noted);
            }
            None => self.a.store_imm(B8, R10, KEY_COOKIE, 0),
        }
        self.a.place(noted);
    }

    /// Puts the family of the buffer's socket beside the mark that a socket told the namespace.
    fn note_family(&mut self) {
        let unknown = self.a.label();
        self.a.store_imm(B4, R10, KEY_KIND, KIND_BY_SOCKET as i32);
        self.a.load(B8, R3, R10, self.field("sk"));
        self.a.jump_if(R3, When::Equal, 0, unknown);
        self.read(SCRATCH, 2, self.layout.at("sock", "__sk_common.skc_family"), unknown);
        self.a.load(B2, R1, R10, SCRATCH);
        self.a.op(Op::Or, R1, KIND_BY_SOCKET as i32);
        self.a.store(B4, R10, KEY_KIND, R1);
        self.a.place(unknown);
    }

    /// Leaves namespace and interface in the key, and in its kind whether a socket told them, where that is wanted; jumps to
    /// `out` for a buffer of nobody's.
    pub(super) fn find_namespace(&mut self, scope: Scope<'_>, with_family: bool) {
        let (by_device, by_socket, parse) = (self.a.label(), self.a.label(), self.a.label());
        self.a.load(B8, R3, R10, self.field("dev"));
        self.namespace_of(self.layout.at("net_device", "nd_net.net"), scope, by_device);
        let of_socket = self.layout.at("sock", "__sk_common.skc_net.net");
        if self.layout.arguments > 3 {
            self.a.load(B8, R3, R7, 24);
            self.namespace_of(of_socket, scope, by_socket);
        }
        self.a.load(B8, R3, R10, self.field("sk"));
        self.namespace_of(of_socket, scope, by_socket);
        self.a.jump(self.out);

        self.a.place(by_socket);
        self.a.load(B4, R1, R10, self.field("skb_iif"));
        self.a.store(B4, R10, KEY_INDEX, R1);
        self.a.store_imm(B4, R10, KEY_KIND, KIND_MATCHED as i32);
        if with_family {
            self.note_family();
        }
        self.a.jump(parse);

        self.a.place(by_device);
        self.a.load(B8, R3, R10, self.field("dev"));
        self.read(KEY_INDEX, 4, self.layout.at("net_device", "ifindex"), self.out);
        self.a.store_imm(B4, R10, KEY_KIND, KIND_MATCHED as i32);

        self.a.place(parse);
        self.a.store(B4, R10, KEY_NET, R8);
        self.note_cookie();
    }

    /// Leaves the offset of the IP header in `R8` and the end of the linear part in `R9`, both from `head`.
    fn find_ip_header(&mut self) {
        let (usable, stale, readable, found) =
            (self.a.label(), self.a.label(), self.a.label(), self.a.label());
        let of_ip = [0, ETH_P_IP, ETH_P_IPV6];
        // Zero means that the frame was not classified yet; the version then decides.
        self.load_big_endian(R1, self.field("protocol"));
        self.jump_if_any(R1, of_ip.into_iter().chain(ETH_P_TAGS), readable);
        self.a.jump(self.out);
        self.a.place(readable);
        self.a.load(B4, R9, R10, self.field("tail"));
        self.a.load(B2, R8, R10, self.field("network_header"));
        self.a.load(B2, R1, R10, self.field("mac_header"));
        // A frame that the driver delivered but IP has not seen (a full backlog) has only its Ethernet header set.
        self.a.jump_if(R1, When::Equal, 0xffff, usable);
        self.a.jump_if_reg(R8, When::AtMost, R1, stale);
        self.a.jump(usable);
        self.a.place(stale);
        self.a.op_reg(Op::Move, R8, R1);
        self.a.op(Op::Add, R8, ETHERNET_BYTES);
        self.a.place(usable);
        self.load_big_endian(R1, self.field("protocol"));
        self.jump_if_any(R1, of_ip, found);
        self.pass_tags(found);
        self.a.place(found);
    }

    /// Of a frame whose tag is in its bytes (a raw socket's, one of two, one that IP has not seen) the network header may be the
    /// IP header's or a tag's: the type before it says which.
    fn pass_tags(&mut self, found: Label) {
        for _ in 0..=MOST_TAGS {
            self.a.op(Op::Add, R8, -TYPE_BYTES);
            self.read_linear(SCRATCH, TYPE_BYTES as u32);
            self.a.op(Op::Add, R8, TYPE_BYTES);
            self.load_big_endian(R1, SCRATCH);
            self.jump_if_any(R1, [ETH_P_IP, ETH_P_IPV6], found);
            let tag = self.a.label();
            self.jump_if_any(R1, ETH_P_TAGS, tag);
            self.a.jump(self.out);
            self.a.place(tag);
            self.a.op(Op::Add, R8, TAG_BYTES);
        }
        self.a.jump(self.out);
    }

    /// Copies `bytes` at `head + R8` to the stack if the linear part has them.
    fn read_linear(&mut self, to: i16, bytes: u32) {
        self.a.op_reg(Op::Move, R1, R8);
        self.a.op(Op::Add, R1, bytes as i32);
        self.a.jump_if_reg(R1, When::Above, R9, self.unparsed);
        self.a.load(B8, R3, R10, self.field("head"));
        self.a.op_reg(Op::Add, R3, R8);
        self.read(to, bytes, 0, self.unparsed);
    }

    fn compare_v4(&mut self, flow: &Flow) {
        let v6 = self.a.label();
        self.read_linear(HEADER, 20);
        self.a.load(B1, R1, R10, HEADER);
        self.a.op_reg(Op::Move, R2, R1);
        self.a.op(Op::ShiftRight, R2, 4);
        self.a.jump_if(R2, When::Equal, 6, v6);
        self.a.jump_if(R2, When::NotEqual, 4, self.unparsed);
        self.a.op(Op::And, R1, 0xf);
        self.a.jump_if(R1, When::Below, 5, self.unparsed);
        match flow.number(4) {
            Some(number) => {
                self.a.load(B1, R2, R10, HEADER + 9);
                self.a.jump_if(R2, When::NotEqual, i32::from(number), self.out);
                self.only_first_fragment(HEADER + 6, 0x1fff);
                self.a.op(Op::ShiftLeft, R1, 2);
                self.a.op_reg(Op::Add, R8, R1);
                self.compare_flow(flow, 4);
            }
            None => self.a.jump(self.out),
        }
        self.a.place(v6);
    }

    /// A later fragment has no ports: it is the protocol's, but nobody can tell whose.
    fn only_first_fragment(&mut self, at: i16, offset_bits: i32) {
        self.load_big_endian(R2, at);
        self.a.op(Op::And, R2, offset_bits);
        self.a.jump_if(R2, When::NotEqual, 0, self.unparsed);
    }

    /// One extension header is looked behind; a second one makes the frame unparsed.
    fn compare_v6(&mut self, flow: &Flow) {
        self.read_linear(HEADER, 40);
        let Some(number) = flow.number(6) else { return self.a.jump(self.out) };
        let (plain, skip, fragment) = (self.a.label(), self.a.label(), self.a.label());
        self.a.op(Op::Add, R8, 40);
        self.a.load(B1, R1, R10, HEADER + 6);
        self.a.jump_if(R1, When::Equal, i32::from(number), plain);
        self.a.jump_if(R1, When::Equal, FRAGMENT, fragment);
        self.jump_if_any(R1, OPTIONS, skip);
        self.a.jump(self.out);

        self.a.place(fragment);
        self.read_linear(AFTER_IP, 8);
        self.behind_extension(number);
        self.only_first_fragment(AFTER_IP + 2, 0xfff8);
        self.a.op(Op::Add, R8, 8);
        self.a.jump(plain);

        self.a.place(skip);
        self.read_linear(AFTER_IP, 8);
        self.behind_extension(number);
        self.a.load(B1, R2, R10, AFTER_IP + 1);
        self.a.op(Op::Add, R2, 1);
        self.a.op(Op::ShiftLeft, R2, 3);
        self.a.op_reg(Op::Add, R8, R2);
        self.a.place(plain);
        self.compare_flow(flow, 6);
    }

    /// Goes on if the extension header at `AFTER_IP` is followed by the flow's protocol.
    fn behind_extension(&mut self, number: u8) {
        let goes_on = self.a.label();
        self.a.load(B1, R1, R10, AFTER_IP);
        self.a.jump_if(R1, When::Equal, i32::from(number), goes_on);
        self.jump_if_any(R1, OPTIONS.into_iter().chain([FRAGMENT]), self.unparsed);
        self.a.jump(self.out);
        self.a.place(goes_on);
    }

    /// Compares what follows the IP header (at `R8`) with the flow; always jumps.
    fn compare_flow(&mut self, flow: &Flow, version: u8) {
        if flow.ends.is_some() {
            return self.compare_ends(flow, version);
        }
        let echo = flow.protocol.echo_types(version);
        self.read_linear(AFTER_IP, if echo.is_some() { 8 } else { 4 });
        if let Some((request, reply)) = echo {
            let is_echo = self.a.label();
            self.a.load(B1, R1, R10, AFTER_IP);
            self.a.jump_if(R1, When::Equal, i32::from(request), is_echo);
            self.a.jump_if(R1, When::NotEqual, i32::from(reply), self.out);
            self.a.place(is_echo);
        }
        if let Some(stream) = flow.stream {
            self.compare_message(stream);
        }
        let places = if echo.is_some() { &[AFTER_IP + 4][..] } else { &[AFTER_IP, AFTER_IP + 2] };
        places.iter().for_each(|&at| self.compare_port(flow, at, self.matched));
        self.a.jump(self.out);
    }

    /// What carries messages is known by them: a stranger's port may happen to be the receiver's, and a rule of a firewall may have given
    /// the frame another one. Falls through where the message cannot be read (the payload of a super-frame is often not in the linear part).
    fn compare_message(&mut self, stream: u8) {
        let unreadable = self.a.label();
        self.a.op_reg(Op::Move, R1, R8);
        self.a.op(Op::Add, R1, TRANSPORT_BYTES + 4);
        self.a.jump_if_reg(R1, When::Above, R9, unreadable);
        self.a.load(B8, R3, R10, self.field("head"));
        self.a.op_reg(Op::Add, R3, R8);
        self.read(SCRATCH, 4, TRANSPORT_BYTES as u32, unreadable);
        self.load_big_endian(R1, SCRATCH);
        self.a.jump_if(R1, When::NotEqual, i32::from(MAGIC), self.out);
        self.a.load(B1, R1, R10, SCRATCH + 2);
        self.a.jump_if(R1, When::NotEqual, i32::from(stream), self.out);
        self.a.jump(self.matched);
        self.a.place(unreadable);
    }

    /// The same by the ends of somebody else's flow, which tell the leg.
    fn compare_ends(&mut self, flow: &Flow, version: u8) {
        let bytes = if flow.protocol.echo_types(version).is_some() { 8 } else { 4 };
        self.read_linear(AFTER_IP, bytes);
        let addresses = (R10, HEADER + if version == 4 { 12 } else { 8 });
        let back = self.a.label();
        let ways = Ways { forward: self.matched, back, no: self.out };
        let at = Headers { addresses, transport: (R10, AFTER_IP) };
        ends_program::compare(&mut self.a, flow, version, at, ways);
        self.a.place(back);
        self.a.store_imm(B4, R10, KEY_KIND, KIND_BACK as i32);
        self.a.jump(self.matched);
    }

    fn compare_port(&mut self, flow: &Flow, at: i16, to: Label) {
        self.load_big_endian(R1, at);
        self.jump_if_any(R1, flow.ports.iter().copied().map(i32::from), to);
    }

    fn count(&mut self, maps: MapFds) {
        self.a.place(self.unparsed);
        self.a.store_imm(B4, R10, KEY_KIND, KIND_UNPARSED as i32);
        self.a.place(self.matched);
        self.note_cause();
        self.segments();
        self.count_key(maps);
        self.end();
    }

    /// Completes the key by the reason and the place.
    pub(super) fn note_cause(&mut self) {
        self.a.load(B8, R1, R7, 16);
        self.a.store(B4, R10, KEY_REASON, R1);
        self.a.load(B8, R1, R7, 8);
        self.a.store(B8, R10, KEY_LOCATION, R1);
    }

    /// Adds `R8` frames and one buffer to the key's count, or one to the counts without room.
    pub(super) fn count_key(&mut self, maps: MapFds) {
        let (counted, no_room) = (self.a.label(), self.a.label());
        self.add_to(maps.counts, counted);
        self.insert(maps.counts);
        // Another CPU may have made the entry in between; then it is there now.
        self.add_to(maps.counts, counted);
        self.count_own(maps.lost, LOST_NO_ROOM, no_room);
        self.a.place(no_room);
        self.a.place(counted);
    }

    /// Ends the program.
    pub(super) fn end(&mut self) {
        self.a.place(self.out);
        self.a.op(Op::Move, R0, 0);
        self.a.exit();
    }

    /// Leaves the number of frames in `R8`: the segments of a super-frame, or one. Who makes super-frames himself (a packet
    /// socket with a virtio header) leaves their number to be computed of what is behind the transport header.
    pub(super) fn segments(&mut self) {
        let (one, known, datagrams) = (self.a.label(), self.a.label(), self.a.label());
        self.read_shared("gso_segs", 2, one);
        self.a.load(B2, R8, R10, SCRATCH);
        self.a.jump_if(R8, When::NotEqual, 0, known);
        self.read_shared("gso_size", 2, one);
        self.a.load(B2, R1, R10, SCRATCH);
        self.a.jump_if(R1, When::Equal, 0, one);
        self.read_shared("gso_type", 4, one);
        self.a.load(B4, R1, R10, SCRATCH);
        self.a.op(Op::And, R1, GSO_OF_TCP);
        self.a.op(Op::Move, R8, 8);
        self.a.jump_if(R1, When::Equal, 0, datagrams);
        self.a.load(B8, R3, R10, self.field("head"));
        self.a.load(B2, R1, R10, self.field("transport_header"));
        self.a.op_reg(Op::Add, R3, R1);
        self.read(SCRATCH, 1, 12, one);
        self.a.load(B1, R8, R10, SCRATCH);
        self.a.op(Op::ShiftRight, R8, 4);
        self.a.op(Op::ShiftLeft, R8, 2);
        self.a.place(datagrams);
        // The headers lie between where the buffer begins now and the end of the transport header.
        self.a.load(B2, R1, R10, self.field("transport_header"));
        self.a.op_reg(Op::Add, R8, R1);
        self.a.load(B8, R1, R10, self.field("head"));
        self.a.op_reg(Op::Add, R8, R1);
        self.a.load(B8, R1, R10, self.field("data"));
        self.a.op_reg(Op::Subtract, R8, R1);
        self.a.load(B4, R1, R10, self.field("len"));
        self.a.jump_if_reg(R8, When::AtLeast, R1, one);
        self.a.op_reg(Op::Subtract, R1, R8);
        self.a.op_reg(Op::Move, R8, R1);
        self.read_shared("gso_size", 2, one);
        self.a.load(B2, R1, R10, SCRATCH);
        self.a.op_reg(Op::Add, R8, R1);
        self.a.op(Op::Subtract, R8, 1);
        self.a.op_reg(Op::Divide, R8, R1);
        self.a.jump_if(R8, When::NotEqual, 0, known);
        self.a.place(one);
        self.a.op(Op::Move, R8, 1);
        self.a.place(known);
    }

    /// Copies a field of what all clones of the buffer share.
    fn read_shared(&mut self, field: &'static str, bytes: u32, unreadable: Label) {
        self.a.load(B8, R3, R10, self.field("head"));
        self.a.load(B4, R1, R10, self.field("end"));
        self.a.op_reg(Op::Add, R3, R1);
        self.read(SCRATCH, bytes, self.layout.at("skb_shared_info", field), unreadable);
    }

    pub(super) fn stack(&mut self, register: Reg, offset: i16) {
        self.a.op_reg(Op::Move, register, R10);
        self.a.op(Op::Add, register, i32::from(offset));
    }

    /// Adds to the entry and jumps to `done`, or falls through if there is none.
    pub(super) fn add_to(&mut self, map: i32, done: Label) {
        let absent = self.a.label();
        self.look_up(map, KEY, absent);
        self.bump(R0, 0, R8);
        self.a.op(Op::Move, R8, 1);
        self.bump(R0, 8, R8);
        self.a.jump(done);
        self.a.place(absent);
    }

    pub(super) fn bump(&mut self, base: Reg, offset: i16, by: Reg) {
        self.a.load(Width::B8, R1, base, offset);
        self.a.op_reg(Op::Add, R1, by);
        self.a.store(Width::B8, base, offset, R1);
    }

    /// Makes the entry with nothing counted on any CPU; the addition follows.
    pub(super) fn insert(&mut self, map: i32) {
        self.a.store_imm(B8, R10, VALUE, 0);
        self.a.store_imm(B8, R10, VALUE + 8, 0);
        self.a.load_map(R1, map);
        self.stack(R2, KEY);
        self.stack(R3, VALUE);
        self.a.op(Op::Move, R4, NOEXIST);
        self.a.call(MAP_UPDATE);
    }
}

#[cfg(test)]
#[path = "drops_program_tests.rs"]
mod tests;
