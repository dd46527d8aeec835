//! The programs that take the stamps of chosen messages.
//!
//! **What.** One program for each [`LayerEvent`]. Those at events of frames find the header of a test message behind the IP header, compare its
//! stream, and put a stamp into a ring if its number is a chosen one and the interface is in one of the lab's
//! namespaces. Of a connection the number comes from the place of a segment's bytes ([`connection`]). Those at system calls remember when a thread of the test began to send, and where the one that receives wants its messages; when that call returns, what it
//! brought is read there.
//!
//! **Why the application's own memory.** No event of a UDP socket has the buffer that it gives to the application: Linux 6.18 copies it without one, and frees it
//! later and on another CPU.
//!
//! **A socket that can be read** has no frame in its event. It follows the frame's own event on the same CPU within the same soft interrupt, so each CPU
//! marks the chosen frame that the protocols got last, any next frame takes the mark away, and the socket must have the frame's port.
//!
//! **Price.** A frame that is not chosen: two or three small reads and some thirty instructions at each event. A system call of anybody: 20
//! instructions at its begin and at its end.

pub mod connection;

use ::bpf::{AssembleError, Assembler, Label, Op, Reg::*, When, Width, Width::*};
use record::layers::{SPREAD, highest_chosen};
use wire::message::{Flags, MAGIC};

use super::super::tracepoints::Counting;
use super::layout::{
    AT_CALLED, AT_IDS, AT_INTERFACE, AT_NAMESPACE, AT_PLANNED, AT_POINT, AT_PORT, AT_SEQUENCE, AT_TIME, Cell,
    LayerEvent, Layout, STAMP_BYTES,
};

/// The maps as the programs name them.
#[derive(Debug, Clone, Copy)]
pub struct MapFds {
    /// One [`Cell`].
    pub cell: i32,
    /// When each thread of the test began to send.
    pub calls: i32,
    /// Where each thread of the test wants the messages of its system call, or the number of the one that it took from a connection, plus one; 0: it is
    /// in none, or took none.
    pub takes: i32,
    /// Of each direction of an exchange, or each connection of a stream: where its bytes are ([`connection`]).
    pub places: i32,
    /// The ring.
    pub ring: i32,
}

/// Where the number of a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Its header, of the test with this token.
    InHeader(u8),
    /// The place of its first byte on a connection: all messages of a direction have one size.
    ByPosition(Exchange),
    /// The same, of calls that write to connections which carry nothing back.
    OfStream(Writes),
}

/// The messages of a connection: requests to a port, and responses from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// The receiver's port.
    pub port: u16,
    /// Bytes of a request, at least one.
    pub request: u32,
    /// Bytes of a response, at least one.
    pub response: u32,
}

/// The messages of a stream: what its application hands over at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writes {
    /// The receiver's port.
    pub port: u16,
    /// Bytes of each, at least one.
    pub size: u32,
    /// Connections. One is known without the sender's port, which may be translated on the way; several by it, which is then also above the lowest 32 bits
    /// of the numbers of their messages.
    pub connections: u32,
}

/// Which messages are chosen, and where they are looked for.
#[derive(Debug, Clone)]
pub struct Choice {
    /// 4 or 6: the version of IP.
    pub family: u8,
    /// The number of the protocol in the IP header.
    pub protocol: u8,
    /// Where the numbers of messages come from.
    pub numbering: Numbering,
    /// The receiver takes whole frames, from a packet socket.
    pub is_of_frames: bool,
    /// One of so many.
    pub every: u32,
    /// Numbers of the lab's namespaces.
    pub namespaces: Vec<u32>,
    /// Processes of the two ends.
    pub processes: Vec<u32>,
}

impl Choice {
    fn ip_bytes(&self) -> i16 {
        if self.family == 6 { 40 } else { 20 }
    }

    /// Bytes from the IP header's begin to the end of the message's header, or of that of TCP without options.
    fn bytes(&self) -> u32 {
        let behind = match self.numbering {
            Numbering::InHeader(_) => TRANSPORT as u32 + wire::message::LENGTH as u32,
            Numbering::ByPosition(_) | Numbering::OfStream(_) => TCP_HEADER,
        };
        self.ip_bytes() as u32 + behind
    }

    /// An echo has an identifier in place of ports.
    fn port_offset(&self) -> i16 {
        if matches!(self.protocol, UDP | TCP) { 2 } else { 4 }
    }

    /// The system calls that send and receive messages.
    fn calls(&self) -> [i32; 2] {
        match self.numbering {
            Numbering::InHeader(_) => [libc::SYS_sendmmsg as i32, libc::SYS_recvmmsg as i32],
            Numbering::ByPosition(_) | Numbering::OfStream(_) => {
                [libc::SYS_sendto as i32, libc::SYS_recvfrom as i32]
            }
        }
    }

    /// Whether there is something to do at such an event.
    pub fn asks(&self, event: LayerEvent) -> bool {
        match event {
            LayerEvent::Consume => !matches!(self.numbering, Numbering::InHeader(_)),
            LayerEvent::Sent => matches!(self.numbering, Numbering::OfStream(_)),
            LayerEvent::Ready => self.has_mark(),
            LayerEvent::SysExit => !matches!(self.numbering, Numbering::OfStream(_)),
            _ => true,
        }
    }

    /// Whether a socket that can be read tells of the frame that the protocols got last. One of a stream does not: its frame may wait for one that was lost, or for the
    /// one who has the socket. Nor does a packet socket, which has no port.
    fn has_mark(&self) -> bool {
        !self.is_of_frames && !matches!(self.numbering, Numbering::OfStream(_))
    }

    /// Where the message may lie in what a system call gave: at its begin, or behind the headers of a frame, in front of which may be the one of virtio.
    fn message_at(&self) -> Vec<i32> {
        let behind = ETHERNET + i32::from(self.ip_bytes() + TRANSPORT);
        match self.is_of_frames {
            true => vec![behind, wire::offload::HEADER as i32 + behind],
            false => vec![0],
        }
    }

    /// Directions or connections whose bytes have places of their own.
    pub fn places(&self) -> u32 {
        match self.numbering {
            Numbering::OfStream(writes) => writes.connections.max(1),
            _ => connection::DIRECTIONS,
        }
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of a UDP header, and of that of an echo.
const TRANSPORT: i16 = 8;
/// Bytes of an Ethernet header without a tag.
const ETHERNET: i32 = 14;
/// Bytes of a TCP header without options.
const TCP_HEADER: u32 = 20;

// Kernel functions by number (include/uapi/linux/bpf.h).
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const CURRENT_PID: i32 = 14;
const PROBE_READ_USER: i32 = 112;
const RING_OUTPUT: i32 = 130;
/// `BPF_RB_NO_WAKEUP`: the reader comes by itself.
const NO_WAKEUP: i32 = 1;

/// Where `struct pt_regs` has the second argument of a system call: the messages of these.
const SECOND: u32 = if cfg!(target_arch = "x86_64") { 104 } else { 8 };
/// Messages of one system call that are looked at.
pub const MOST_RECEIVED: i32 = 128;
/// Bytes of a `struct mmsghdr`, and where it has the address of its pieces.
const MESSAGE_HEADER: i32 = size_of::<libc::mmsghdr>() as i32;
const PIECES: i32 = std::mem::offset_of!(libc::msghdr, msg_iov) as i32;

// Places on the stack, as distances from the frame pointer.
const STAMP: i16 = -56;
const SCRATCH: i16 = -64;
const KEY: i16 = -72;
const VALUE: i16 = -80;
/// The header of the message: aligned, so that its words can be loaded; headers of UDP (or that of TCP, which reaches into it) and IP lie in front of it.
const MESSAGE: i16 = -104;
const SEGMENT: i16 = MESSAGE - TRANSPORT;

struct Builder<'a> {
    a: Assembler,
    layout: &'a Layout,
    choice: &'a Choice,
    maps: &'a MapFds,
    out: Label,
}

/// Assembles the program of an event. `R6` is the context, `R7` the cell, `R8` the buffer.
pub fn assemble(
    event: LayerEvent,
    layout: &Layout,
    choice: &Choice,
    maps: &MapFds,
) -> Result<Vec<u64>, AssembleError> {
    let mut a = Assembler::new();
    let out = a.label();
    let mut builder = Builder { a, layout, choice, maps, out };
    builder.begin(event);
    match event {
        LayerEvent::Queue => builder.queue(),
        LayerEvent::Start => builder.start(),
        LayerEvent::Backlog | LayerEvent::Gro => builder.arrive(),
        LayerEvent::Receive => builder.receive(),
        LayerEvent::Ready => builder.ready(),
        LayerEvent::Consume => builder.consume(),
        LayerEvent::Sent => builder.sent(),
        LayerEvent::SysEnter => builder.sys_enter(),
        LayerEvent::SysExit => builder.sys_exit(),
    }
    builder.a.place(out);
    builder.a.op(Op::Move, R0, 0);
    builder.a.exit();
    builder.a.finish()
}

impl Counting for Builder<'_> {
    fn assembler(&mut self) -> &mut Assembler {
        &mut self.a
    }
}

impl Builder<'_> {
    /// Finds the cell, counts the run, and prepares the stamp.
    fn begin(&mut self, event: LayerEvent) {
        self.a.op_reg(Op::Move, R6, R1);
        self.a.store_imm(B8, R10, KEY, 0);
        self.look_up(self.maps.cell, self.out);
        self.a.op_reg(Op::Move, R7, R0);
        let number = LayerEvent::ALL.iter().position(|&one| one == event).unwrap_or(0);
        self.bump(Cell::Runs0.offset() + number as i16 * 8);
        for word in (0..STAMP_BYTES as i16).step_by(8) {
            self.a.store_imm(B8, R10, STAMP + word, 0);
        }
        self.a.store_imm(B4, R10, STAMP + AT_POINT, event.point() as i32);
    }

    fn queue(&mut self) {
        self.find_sent();
        self.choose();
        self.note_place();
        if !self.is_stream() {
            self.note_thread();
            self.note_call();
        }
        self.show_chosen();
    }

    fn start(&mut self) {
        self.find_sent();
        self.choose();
        self.note_place();
        self.show_chosen();
    }

    fn arrive(&mut self) {
        self.find_received();
        self.choose();
        self.note_place();
        self.show_chosen();
    }

    fn receive(&mut self) {
        self.a.store_imm(B8, R7, Cell::Marked.offset(), 0);
        self.find_received();
        self.choose();
        self.note_place();
        if self.choice.has_mark() {
            self.mark();
        }
        self.show_chosen();
    }

    /// The mark's words are those of the stamp.
    fn mark(&mut self) {
        self.a.load(B2, R1, R10, SEGMENT + self.choice.port_offset());
        self.a.from_big_endian(R1, B2);
        self.a.store(B2, R10, STAMP + AT_PORT, R1);
        for word in (0..STAMP_BYTES as i16).step_by(8) {
            self.a.load(B8, R1, R10, STAMP + word);
            self.a.store(B8, R7, Cell::Mark0.offset() + word, R1);
        }
        self.a.store_imm(B8, R7, Cell::Marked.offset(), 1);
    }

    fn ready(&mut self) {
        self.a.load(B8, R1, R7, Cell::Marked.offset());
        self.a.jump_if(R1, When::Equal, 0, self.out);
        self.a.load(B8, R3, R6, 0);
        self.read(SCRATCH, 2, self.layout.at("sock", "__sk_common.skc_num"), self.out);
        self.a.load(B2, R1, R10, SCRATCH);
        self.a.load(B2, R2, R7, Cell::Mark0.offset() + AT_PORT);
        self.a.jump_if_reg(R1, When::NotEqual, R2, self.out);
        self.a.store_imm(B8, R7, Cell::Marked.offset(), 0);
        for word in (AT_INTERFACE..STAMP_BYTES as i16).step_by(8) {
            self.a.load(B8, R1, R7, Cell::Mark0.offset() + word);
            self.a.store(B8, R10, STAMP + word, R1);
        }
        self.a.load(B4, R1, R7, Cell::Mark0.offset() + AT_NAMESPACE);
        self.a.store(B4, R10, STAMP + AT_NAMESPACE, R1);
        self.note_time();
        self.show();
    }

    fn sys_enter(&mut self) {
        let sends = self.a.label();
        let [send, receive] = self.choice.calls();
        self.a.load(B8, R8, R6, 8);
        self.a.jump_if(R8, When::Equal, send, sends);
        if let Numbering::InHeader(_) = self.choice.numbering {
            self.a.jump_if(R8, When::NotEqual, receive, self.out);
            self.only_ours();
            self.a.load(B8, R3, R6, 0);
            self.read(VALUE, 8, SECOND, self.out);
            self.put(self.maps.takes);
        }
        self.a.jump(self.out);
        self.a.place(sends);
        self.only_ours();
        self.now();
        self.a.store(B8, R10, VALUE, R9);
        self.put(self.maps.calls);
    }

    /// `R8` becomes what the call returned, and `R6` where its messages are, or what it took.
    fn sys_exit(&mut self) {
        self.only_ours();
        self.a.load(B8, R8, R6, 8);
        self.look_up(self.maps.takes, self.out);
        self.a.load(B8, R6, R0, 0);
        self.a.jump_if(R6, When::Equal, 0, self.out);
        self.a.store_imm(B8, R0, 0, 0);
        self.note_time();
        match self.choice.numbering {
            Numbering::InHeader(stream) => self.received_messages(stream),
            Numbering::ByPosition(_) | Numbering::OfStream(_) => {
                self.a.op(Op::Subtract, R6, 1);
                self.a.store(B8, R10, STAMP + AT_SEQUENCE, R6);
                self.show();
            }
        }
    }

    /// Stamps the messages of a call, whose headers are at `R6` and whose number is in `R8`.
    fn received_messages(&mut self, stream: u8) {
        let (few, again) = (self.a.label(), self.a.label());
        // An error is a large number.
        self.a.jump_if(R8, When::Above, 0xffff, self.out);
        self.a.jump_if(R8, When::AtMost, MOST_RECEIVED, few);
        self.a.op(Op::Move, R8, MOST_RECEIVED);
        self.a.place(few);
        self.a.place(again);
        self.a.jump_if(R8, When::Equal, 0, self.out);
        self.received_message(stream);
        self.a.op(Op::Add, R6, MESSAGE_HEADER);
        self.a.op(Op::Subtract, R8, 1);
        self.a.jump(again);
    }

    /// Stamps the message that the header at `R6` leads to, if it is a chosen one.
    fn received_message(&mut self, stream: u8) {
        let next = self.a.label();
        self.a.op_reg(Op::Move, R3, R6);
        self.a.op(Op::Add, R3, PIECES);
        self.read_user(SCRATCH, 8, next);
        self.a.load(B8, R3, R10, SCRATCH);
        self.read_user(SCRATCH, 8, next);
        if self.choice.protocol != UDP {
            self.skip_headers(next);
        }
        for at in self.choice.message_at() {
            let other = self.a.label();
            self.a.load(B8, R3, R10, SCRATCH);
            self.a.op(Op::Add, R3, at);
            self.read_user(MESSAGE, wire::message::LENGTH as i32, other);
            self.judge(stream, other);
            self.show();
            self.a.jump(next);
            self.a.place(other);
        }
        self.a.place(next);
    }

    /// A socket for echoes gives their header, too, and one for all of ICMP over IPv4 gives the IP header.
    fn skip_headers(&mut self, next: Label) {
        let no_ip = self.a.label();
        self.a.load(B8, R3, R10, SCRATCH);
        self.read_user(MESSAGE, 1, next);
        self.a.load(B8, R3, R10, SCRATCH);
        self.a.op(Op::Add, R3, TRANSPORT.into());
        self.a.load(B1, R1, R10, MESSAGE);
        self.a.jump_if(R1, When::NotEqual, 0x45, no_ip);
        self.a.op(Op::Add, R3, 20);
        self.a.place(no_ip);
        self.a.store(B8, R10, SCRATCH, R3);
    }

    /// Copies `bytes` of the thread's memory at `R3` to the stack and jumps if they cannot be read.
    fn read_user(&mut self, to: i16, bytes: i32, unreadable: Label) {
        self.stack(R1, to);
        self.a.op(Op::Move, R2, bytes);
        self.a.call(PROBE_READ_USER);
        self.a.jump_if(R0, When::NotEqual, 0, unreadable);
    }

    /// Goes on if the thread is one of the test's; it is in the stamp, and its number in the key.
    fn only_ours(&mut self) {
        let ours = self.a.label();
        self.note_thread();
        self.a.op_reg(Op::Move, R1, R0);
        self.a.op(Op::ShiftRight, R1, 32);
        for &process in &self.choice.processes {
            self.a.jump_if_u32(R1, When::Equal, process, ours);
        }
        self.a.jump(self.out);
        self.a.place(ours);
    }

    /// Leaves process and thread in the stamp and in `R0`, and the thread in the key.
    fn note_thread(&mut self) {
        self.a.call(CURRENT_PID);
        self.a.store(B8, R10, STAMP + AT_IDS, R0);
        self.a.store(B4, R10, KEY, R0);
    }

    /// When the thread that runs began to send; 0 if it does not.
    fn note_call(&mut self) {
        let none = self.a.label();
        self.look_up(self.maps.calls, none);
        self.a.load(B8, R1, R0, 0);
        self.a.store(B8, R10, STAMP + AT_CALLED, R1);
        self.a.place(none);
    }

    fn note_time(&mut self) {
        self.now();
        self.a.store(B8, R10, STAMP + AT_TIME, R9);
    }

    /// Leaves the address of the network header in `R3`, of a frame whose description has it.
    fn find_sent(&mut self) {
        self.a.load(B8, R8, R6, 0);
        self.a.op_reg(Op::Move, R3, R8);
        self.read(SCRATCH, 8, self.layout.at("sk_buff", "head"), self.out);
        self.a.load(B8, R9, R10, SCRATCH);
        self.a.op_reg(Op::Move, R3, R8);
        self.read(SCRATCH, 2, self.layout.at("sk_buff", "network_header"), self.out);
        self.a.load(B2, R3, R10, SCRATCH);
        self.a.op_reg(Op::Add, R3, R9);
    }

    /// The same of a frame that a driver gave: its data begin there.
    fn find_received(&mut self) {
        self.a.load(B8, R8, R6, 0);
        self.a.op_reg(Op::Move, R3, R8);
        self.read(SCRATCH, 8, self.layout.at("sk_buff", "data"), self.out);
        self.a.load(B8, R3, R10, SCRATCH);
    }

    /// Goes on if a chosen message is at `R3`: its number, its planned time and the time are then in the stamp.
    fn choose(&mut self) {
        let (choice, ip) = (self.choice, SEGMENT - self.choice.ip_bytes());
        self.read(ip, choice.bytes(), 0, self.out);
        let (begin, protocol) = if choice.family == 6 { (0x60, 6) } else { (0x45, 9) };
        self.a.load(B1, R1, R10, ip);
        if choice.family == 6 {
            self.a.op(Op::And, R1, 0xf0);
        }
        self.a.jump_if(R1, When::NotEqual, begin, self.out);
        self.expect(B1, ip + protocol, choice.protocol.into(), self.out);
        match choice.numbering {
            Numbering::InHeader(stream) => self.judge(stream, self.out),
            Numbering::ByPosition(exchange) => self.judge_segment(exchange, ip),
            Numbering::OfStream(writes) => self.judge_writes(writes, ip),
        }
        self.note_time();
    }

    /// Goes on if the message on the stack is a chosen one: its number and its planned time are then in the stamp.
    fn judge(&mut self, stream: u8, no: Label) {
        self.expect(B2, MESSAGE, u16::from_ne_bytes(MAGIC.to_be_bytes()).into(), no);
        self.expect(B1, MESSAGE + 2, stream.into(), no);
        self.a.load(B1, R1, R10, MESSAGE + 3);
        self.a.op(Op::And, R1, Flags::PROBE.bits().into());
        self.a.jump_if(R1, When::NotEqual, 0, no);
        self.join(&[(B4, 4), (B2, 8)]);
        self.choose_number(no);
        self.join(&[(B2, 10), (B4, 12), (B2, 16)]);
        self.a.store(B8, R10, STAMP + AT_PLANNED, R2);
    }

    /// Goes on if the number in `R2`, which is then in the stamp, is a chosen one.
    fn choose_number(&mut self, no: Label) {
        self.a.store(B8, R10, STAMP + AT_SEQUENCE, R2);
        self.only_chosen(no);
    }

    /// Goes on if one of `every` numbers like that in `R2` is.
    fn only_chosen(&mut self, no: Label) {
        // Only the product's 32 low bits count; the immediate's sign is in those above.
        self.a.op(Op::Multiply, R2, SPREAD as i32);
        self.a.jump_if_u32(R2, When::Above, highest_chosen(self.choice.every.into()), no);
    }

    fn expect(&mut self, width: Width, at: i16, value: i32, no: Label) {
        self.a.load(width, R1, R10, at);
        self.a.jump_if(R1, When::NotEqual, value, no);
    }

    /// Joins big-endian pieces of the message to a number, to `R2`.
    fn join(&mut self, pieces: &[(Width, i16)]) {
        self.a.op(Op::Move, R2, 0);
        for &(width, at) in pieces {
            self.a.load(width, R1, R10, MESSAGE + at);
            self.a.from_big_endian(R1, width);
            self.a.op(Op::ShiftLeft, R2, width.bytes() as i32 * 8);
            self.a.op_reg(Op::Or, R2, R1);
        }
    }

    /// Goes on if the interface is in one of the lab's namespaces; both are then in the stamp.
    fn note_place(&mut self) {
        let ours = self.a.label();
        self.a.op_reg(Op::Move, R3, R8);
        self.read(SCRATCH, 8, self.layout.at("sk_buff", "dev"), self.out);
        self.a.load(B8, R9, R10, SCRATCH);
        self.a.op_reg(Op::Move, R3, R9);
        self.read(SCRATCH, 8, self.layout.at("net_device", "nd_net.net"), self.out);
        self.a.load(B8, R3, R10, SCRATCH);
        self.read(SCRATCH, 4, self.layout.at("net", "ns.inum"), self.out);
        self.a.load(B4, R1, R10, SCRATCH);
        for &namespace in &self.choice.namespaces {
            self.a.jump_if_u32(R1, When::Equal, namespace, ours);
        }
        self.a.jump(self.out);
        self.a.place(ours);
        self.a.store(B4, R10, STAMP + AT_NAMESPACE, R1);
        self.a.op_reg(Op::Move, R3, R9);
        self.read(SCRATCH, 4, self.layout.at("net_device", "ifindex"), self.out);
        self.a.load(B4, R1, R10, SCRATCH);
        self.a.store(B4, R10, STAMP + AT_INTERFACE, R1);
    }

    /// Leaves the place of the key's value in `R0`, or jumps if there is none.
    fn look_up(&mut self, map: i32, absent: Label) {
        self.a.load_map(R1, map);
        self.stack(R2, KEY);
        self.a.call(MAP_LOOKUP);
        self.a.jump_if(R0, When::Equal, 0, absent);
    }

    /// Puts the value under the key; what finds no room is counted.
    fn put(&mut self, map: i32) {
        let (absent, done) = (self.a.label(), self.a.label());
        self.look_up(map, absent);
        self.a.load(B8, R1, R10, VALUE);
        self.a.store(B8, R0, 0, R1);
        self.a.jump(done);
        self.a.place(absent);
        self.put_new(map, VALUE);
        self.a.place(done);
    }

    /// Puts what lies there under the key, which has nothing yet; what finds no room is counted.
    fn put_new(&mut self, map: i32, value: i16) {
        let done = self.a.label();
        self.a.load_map(R1, map);
        self.stack(R2, KEY);
        self.stack(R3, value);
        self.a.op(Op::Move, R4, 0);
        self.a.call(MAP_UPDATE);
        self.a.jump_if(R0, When::Equal, 0, done);
        self.bump(Cell::Lost.offset());
        self.a.place(done);
    }

    /// Puts the stamp into the ring, or counts that there was no room.
    fn show(&mut self) {
        let shown = self.a.label();
        self.a.load_map(R1, self.maps.ring);
        self.stack(R2, STAMP);
        self.a.op(Op::Move, R3, STAMP_BYTES as i32);
        self.a.op(Op::Move, R4, NO_WAKEUP);
        self.a.call(RING_OUTPUT);
        self.a.jump_if(R0, When::Equal, 0, shown);
        self.bump(Cell::Lost.offset());
        self.a.place(shown);
    }

    /// Adds one to a word of the cell.
    fn bump(&mut self, at: i16) {
        self.a.op(Op::Move, R2, 1);
        self.add(R7, at, R2);
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
