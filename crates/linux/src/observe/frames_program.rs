//! The programs that show dying frames themselves: at `skb:kfree_skb` with their bytes, at the events of XDP with their number.
//!
//! **What.** The first is made of the pieces of [`super::drops_program`]: it finds the buffer's namespace, counts by the same key, and
//! then puts into a ring what is known of the frame and its bytes from its first header on that is still there. Those at the
//! events of XDP, where no buffer exists, only count.
//!
//! **Where a frame begins.** At `mac_header` where it is set and not behind `data`: a frame that was received, or is being given to a
//! device. Else at `network_header`, else at `data`: one that its own host made and that has no link layer yet. What is found there is
//! judged by [`super::dead_frame`].
//!
//! **Price.** One block read of the description and six to nine small ones, one copy of the frame to memory of the CPU's own and one into
//! the ring. Bytes in pages (TCP sends most of its data from there) are not in the buffer's linear part and are not copied: such a
//! frame is cut, and counts so. Where the ring has no room the frame is counted and not shown.

use ::bpf::{AssembleError, Op, Reg::*, When, Width::*};

use super::drops_program::{
    Builder, KEY, KEY_BYTES, KEY_KIND, Layout, MapFds, PROBE_READ_KERNEL, SCRATCH, Scope,
};

/// Entries of the map of own losses behind those that every program has: frames that found no room in the ring.
pub(super) const LOST_RING: i32 = 2;
/// How many entries that map has.
pub(super) const LOSSES: u32 = 3;

/// What a record begins with; the frame's bytes follow.
pub(super) const RECORD_BYTES: u32 = 96;
/// The most bytes of a frame in a record: with its record it must fit a per-CPU value (32 KiB).
pub const MOST_BYTES: u32 = 16 << 10;

// Where a record has what (bytes from its begin).
pub(super) const AT_KEY: usize = 8;
pub(super) const AT_SEGMENTS: usize = 40;
pub(super) const AT_START: usize = 44;
pub(super) const AT_DATA: usize = 48;
pub(super) const AT_TAIL: usize = 52;
pub(super) const AT_PAGES: usize = 56;
pub(super) const AT_MAC: usize = 60;
pub(super) const AT_NETWORK: usize = 62;
pub(super) const AT_PROTOCOL: usize = 64;
pub(super) const AT_TAG_PROTOCOL: usize = 66;
pub(super) const AT_TAG: usize = 68;
pub(super) const AT_COPIED: usize = 72;
pub(super) const AT_NAME: usize = 80;

/// What a key says was counted at an event of XDP: the number of the event in [`XDP_EVENTS`], from this on.
pub(super) const KIND_XDP: u32 = 0x1_0000;

const RING_OUTPUT: i32 = 130;
const KTIME_GET_NS: i32 = 5;
/// `BPF_RB_NO_WAKEUP`: the reader comes by itself.
const NO_WAKEUP: i32 = 1;
/// No header of that kind was set.
const UNSET: i32 = 0xffff;

/// An event of XDP at which frames die.
#[derive(Debug, Clone, Copy)]
pub(super) struct XdpEvent {
    /// Its name, which is also the place that is told.
    pub name: &'static str,
    /// Which argument is the device.
    device: i16,
    /// Which argument says how many frames; none: one.
    frames: Option<i16>,
    /// Which argument says why.
    code: i16,
    /// What is in front of the error; none: the code is the action of the program, not an error.
    pub word: Option<&'static str>,
}

/// Which events: their arguments in `include/trace/events/xdp.h` (5.17 to 6.18 alike).
pub(super) const XDP_EVENTS: [XdpEvent; 4] = [
    XdpEvent { name: "xdp_exception", device: 0, frames: None, code: 2, word: None },
    XdpEvent { name: "xdp_redirect_err", device: 0, frames: None, code: 3, word: Some("XDP_REDIRECT") },
    XdpEvent { name: "xdp_devmap_xmit", device: 1, frames: Some(3), code: 4, word: Some("XDP_TX") },
    XdpEvent { name: "xdp_bulk_tx", device: 0, frames: Some(2), code: 3, word: Some("XDP_TX") },
];

/// The maps as the programs name them.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameMaps {
    pub counts: MapFds,
    /// A per-CPU array of one record.
    pub record: i32,
    pub ring: i32,
}

/// Assembles the program of dying buffers, which copies at most `snap` bytes of each.
pub(super) fn assemble(
    layout: &Layout,
    scope: Scope<'_>,
    snap: u32,
    maps: FrameMaps,
) -> Result<Vec<u64>, AssembleError> {
    let mut builder = Builder::new(layout);
    builder.note_event(maps.counts.lost);
    builder.read_description();
    builder.find_namespace(scope, true);
    builder.note_cause();
    builder.take_record(maps.record);
    builder.count_key(maps.counts);
    builder.note_key();
    builder.note_headers();
    builder.note_begin();
    builder.note_name();
    builder.copy(snap.min(MOST_BYTES));
    builder.show(maps);
    builder.end();
    builder.a.finish()
}

/// Assembles the program of an event of XDP.
pub(super) fn assemble_xdp(
    layout: &Layout,
    scope: Scope<'_>,
    number: usize,
    maps: MapFds,
) -> Result<Vec<u64>, AssembleError> {
    let event = &XDP_EVENTS[number];
    let mut builder = Builder::new(layout);
    builder.a.op_reg(Op::Move, R7, R1);
    builder.count_frames_of(event);
    builder.find_device(event, scope);
    builder.a.store_imm(B4, R10, KEY_KIND, (KIND_XDP + number as u32) as i32);
    builder.a.load(B4, R1, R7, event.code * 8);
    builder.a.store(B4, R10, KEY, R1);
    builder.a.store_imm(B8, R10, KEY + 16, 0);
    builder.count_key(maps);
    builder.end();
    builder.a.finish()
}

impl Builder<'_> {
    /// Leaves the number of frames in `R9` and goes on where there are some.
    fn count_frames_of(&mut self, event: &XdpEvent) {
        match event.frames {
            None => self.a.op(Op::Move, R9, 1),
            Some(argument) => {
                self.a.load(B4, R9, R7, argument * 8);
                self.a.jump_if(R9, When::Equal, 0, self.out);
            }
        }
    }

    /// Puts the device's namespace and number into the key, and leaves the number of frames in `R8`.
    fn find_device(&mut self, event: &XdpEvent, scope: Scope<'_>) {
        let ours = self.a.label();
        self.a.load(B8, R3, R7, event.device * 8);
        self.a.op_reg(Op::Move, R6, R3);
        self.namespace_of(self.layout.at("net_device", "nd_net.net"), scope, ours);
        self.a.jump(self.out);
        self.a.place(ours);
        self.a.store(B4, R10, KEY + 4, R8);
        self.note_cookie();
        self.a.op_reg(Op::Move, R3, R6);
        self.read(KEY + 8, 4, self.layout.at("net_device", "ifindex"), self.out);
        self.a.op_reg(Op::Move, R8, R9);
    }

    /// Leaves the CPU's record in `R9`, with the number of frames in it and in `R8`. The kernel never runs this program inside itself on one
    /// CPU, so nobody else writes to it.
    fn take_record(&mut self, map: i32) {
        self.a.store_imm(B4, R10, SCRATCH, 0);
        self.look_up(map, SCRATCH, self.out);
        self.a.op_reg(Op::Move, R9, R0);
        self.segments();
        self.a.store(B4, R9, AT_SEGMENTS as i16, R8);
    }

    fn note_key(&mut self) {
        self.a.call(KTIME_GET_NS);
        self.a.store(B8, R9, 0, R0);
        for at in (0..KEY_BYTES as i16).step_by(8) {
            self.a.load(B8, R1, R10, KEY + at);
            self.a.store(B8, R9, AT_KEY as i16 + at, R1);
        }
    }

    /// Copies what the description says of the headers.
    fn note_headers(&mut self) {
        let fields = [
            ("tail", B4, AT_TAIL),
            ("data_len", B4, AT_PAGES),
            ("mac_header", B2, AT_MAC),
            ("network_header", B2, AT_NETWORK),
            ("protocol", B2, AT_PROTOCOL),
            ("vlan_proto", B2, AT_TAG_PROTOCOL),
            ("vlan_tci", B2, AT_TAG),
        ];
        for (name, width, at) in fields {
            self.a.load(width, R1, R10, self.field(name));
            self.a.store(width, R9, at as i16, R1);
        }
        // Where data begin, from `head` on like the others.
        self.a.load(B8, R1, R10, self.field("data"));
        self.a.load(B8, R2, R10, self.field("head"));
        self.a.op_reg(Op::Subtract, R1, R2);
        self.a.store(B4, R9, AT_DATA as i16, R1);
    }

    /// Leaves in `R8` where the frame begins, from `head` on.
    fn note_begin(&mut self) {
        let (no_link, no_network, found) = (self.a.label(), self.a.label(), self.a.label());
        self.a.load(B4, R1, R9, AT_DATA as i16);
        self.a.load(B2, R8, R9, AT_MAC as i16);
        self.a.jump_if(R8, When::Equal, UNSET, no_link);
        self.a.jump_if_reg(R8, When::AtMost, R1, found);
        self.a.place(no_link);
        self.a.load(B2, R8, R9, AT_NETWORK as i16);
        self.a.jump_if(R8, When::Equal, 0, no_network);
        self.a.jump_if_reg(R8, When::AtMost, R1, found);
        self.a.place(no_network);
        self.a.op_reg(Op::Move, R8, R1);
        self.a.place(found);
        self.a.store(B4, R9, AT_START as i16, R8);
    }

    /// The device's name, where it is the device that told the namespace: by the time that somebody asks, it may be gone.
    fn note_name(&mut self) {
        let (unnamed, named) = (self.a.label(), self.a.label());
        self.a.load(B4, R1, R10, KEY_KIND);
        self.a.jump_if(R1, When::NotEqual, 0, unnamed);
        self.a.load(B8, R3, R10, self.field("dev"));
        self.a.op(Op::Add, R3, self.layout.at("net_device", "name") as i32);
        self.a.op_reg(Op::Move, R1, R9);
        self.a.op(Op::Add, R1, AT_NAME as i32);
        self.a.op(Op::Move, R2, 16);
        self.a.call(PROBE_READ_KERNEL);
        self.a.jump_if(R0, When::Equal, 0, named);
        self.a.place(unnamed);
        self.a.store_imm(B8, R9, AT_NAME as i16, 0);
        self.a.store_imm(B8, R9, AT_NAME as i16 + 8, 0);
        self.a.place(named);
    }

    /// Copies the frame's bytes behind the record; leaves how many in `R8`.
    fn copy(&mut self, snap: u32) {
        let (whole, copied, nothing) = (self.a.label(), self.a.label(), self.a.label());
        self.a.load(B4, R2, R9, AT_TAIL as i16);
        self.a.jump_if_reg(R2, When::AtMost, R8, nothing);
        self.a.load(B8, R3, R10, self.field("head"));
        self.a.op_reg(Op::Add, R3, R8);
        self.a.op_reg(Op::Subtract, R2, R8);
        self.a.op_reg(Op::Move, R8, R2);
        self.a.jump_if(R8, When::AtMost, snap as i32, whole);
        self.a.op(Op::Move, R8, snap as i32);
        self.a.place(whole);
        self.a.op_reg(Op::Move, R2, R8);
        self.a.op_reg(Op::Move, R1, R9);
        self.a.op(Op::Add, R1, RECORD_BYTES as i32);
        self.a.call(PROBE_READ_KERNEL);
        self.a.jump_if(R0, When::Equal, 0, copied);
        self.a.place(nothing);
        self.a.op(Op::Move, R8, 0);
        self.a.place(copied);
        self.a.store(B4, R9, AT_COPIED as i16, R8);
    }

    /// Puts the record into the ring, or counts that there was no room.
    fn show(&mut self, maps: FrameMaps) {
        self.a.load_map(R1, maps.ring);
        self.a.op_reg(Op::Move, R2, R9);
        self.a.op_reg(Op::Move, R3, R8);
        self.a.op(Op::Add, R3, RECORD_BYTES as i32);
        self.a.op(Op::Move, R4, NO_WAKEUP);
        self.a.call(RING_OUTPUT);
        self.a.jump_if(R0, When::Equal, 0, self.out);
        self.count_own(maps.counts.lost, LOST_RING, self.out);
    }
}

/// Bytes of the value that the record's map has.
pub(super) fn record_room() -> u32 {
    RECORD_BYTES + MOST_BYTES
}

#[cfg(test)]
#[path = "frames_program_tests.rs"]
mod tests;
