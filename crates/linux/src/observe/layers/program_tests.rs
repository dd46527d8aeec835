//! The programs against a plain description of the stamps that they should take, on random sequences of events, in an interpreter. What the kernel
//! makes of them is tested in `tests/system/layers.rs`.

use std::collections::BTreeMap;

use ::bpf::interpret::{self, ExecutionError, Host, Memory};
use proptest::prelude::*;
use record::layers::{StampPoint, is_chosen};
use wire::message::Message;

use super::super::gather::{RawPlace, Stamp};
use super::connection::Place;
use super::*;
use crate::observe::tracepoints::{PROBE_READ_KERNEL, TIME};

const CONTEXT: u64 = 0x1_0000;
const CELL: u64 = 0x2_0000;
/// A word for each thread, of each of two maps, and three for each direction or connection.
const CALLS: u64 = 0x3_0000;
const TAKES: u64 = 0x4_0000;
const PLACES: u64 = 0xb_0000;
const SKB: u64 = 0x5_0000;
const HEAD: u64 = 0x6_0000;
const DEVICES: u64 = 0x7_0000;
const NETS: u64 = 0x8_0000;
const SOCK: u64 = 0x9_0000;
const REGISTERS: u64 = 0xa_0000;
/// Headers of messages, their pieces, and what these lead to.
const HEADERS: u64 = 0x10_0000;
const PIECE_LIST: u64 = 0x20_0000;
const BUFFERS: u64 = 0x30_0000;
const BUFFER_BYTES: u64 = 128;
const MAPS: MapFds = MapFds { cell: 3, calls: 4, takes: 5, ring: 6, places: 7 };
const OURS: [u32; 2] = [4_026_532_001, 4_026_532_002];
const PROCESSES: [u32; 2] = [700, 0x8000_0001];
const STREAM: u8 = 0x5a;
/// The messages of the connection.
const EXCHANGE: Exchange = Exchange { port: 701, request: 3, response: 5 };
/// The messages of one connection and of several.
const WRITES: Writes = Writes { port: 701, size: 3, connections: 1 };
const MANY_WRITES: Writes = Writes { connections: 2, ..WRITES };
/// Where the IP header is behind the begin of the buffer.
const NETWORK: u16 = 78;

/// The kernel's functions and maps.
#[derive(Default)]
struct Kernel {
    now: u64,
    thread: u64,
    has_room: bool,
    known: BTreeMap<(i32, u32), ()>,
    ring: Vec<Vec<u8>>,
}

fn word_of(map: i32, key: u32) -> u64 {
    match map {
        map if map == MAPS.places => PLACES + u64::from(key) * u64::from(Place::BYTES),
        map if map == MAPS.calls => CALLS + u64::from(key) * 8,
        _ => TAKES + u64::from(key) * 8,
    }
}

impl Host for Kernel {
    fn call(&mut self, memory: &mut Memory, function: i32, r: [u64; 5]) -> Result<u64, ExecutionError> {
        let map = r[0] as i32;
        match function {
            TIME => Ok(self.now),
            CURRENT_PID => Ok(self.thread),
            PROBE_READ_KERNEL | PROBE_READ_USER => {
                let Ok(bytes) = memory.bytes(r[2], r[1] as usize).map(|bytes| bytes.to_vec()) else {
                    return Ok(u64::MAX);
                };
                memory.bytes(r[0], bytes.len())?.copy_from_slice(&bytes);
                Ok(0)
            }
            MAP_LOOKUP if map == MAPS.cell => Ok(CELL),
            MAP_LOOKUP => {
                let thread = memory.read(r[1], 4)? as u32;
                Ok(if self.known.contains_key(&(map, thread)) { word_of(map, thread) } else { 0 })
            }
            MAP_UPDATE if !self.has_room => Ok(u64::MAX),
            MAP_UPDATE => {
                let thread = memory.read(r[1], 4)? as u32;
                let bytes = if map == MAPS.places { Place::BYTES as usize } else { 8 };
                let value = memory.bytes(r[2], bytes)?.to_vec();
                memory.bytes(word_of(map, thread), bytes)?.copy_from_slice(&value);
                self.known.insert((map, thread), ());
                Ok(0)
            }
            RING_OUTPUT if !self.has_room => Ok(u64::MAX),
            RING_OUTPUT => {
                self.ring.push(memory.bytes(r[1], r[2] as usize)?.to_vec());
                Ok(0)
            }
            other => Err(ExecutionError::Function(other)),
        }
    }
}

/// A frame from its IP header on.
#[derive(Debug, Clone)]
struct Frame {
    bytes: Vec<u8>,
    port: u16,
}

/// A socket of a connection, as the kernel has it.
#[derive(Debug, Clone, Copy)]
struct Socket {
    own: u16,
    other: u16,
    /// The number of the first byte that came.
    first: u32,
    /// Bytes that came, greeting included, and those of them that the application has.
    came: u64,
    taken: u64,
}

#[derive(Debug, Clone)]
enum Happens {
    /// An event of a frame, at that device.
    Frame(LayerEvent, Frame, usize),
    Ready(u16),
    Send,
    /// A system call that receives, where its messages are to go, and then what it returned and wrote there.
    Take(Vec<Vec<u8>>, i64),
    /// A system call that takes bytes from a connection, in one or more pieces: the socket after each.
    Consume(Vec<Socket>),
    /// A system call that gives bytes to a connection: the ports of its socket, the bytes that it was ever given, and what the call returned.
    Sent([u16; 2], u64, i64),
    /// One that has nothing to do with messages.
    OtherCall(u64),
}

/// Something happens in a thread, and there is room for what the programs write or not.
#[derive(Debug, Clone)]
struct Event {
    what: Happens,
    process: u32,
    thread: u32,
    has_room: bool,
}

struct Machine {
    memory: Memory,
    kernel: Kernel,
    layout: Layout,
    programs: Vec<Vec<u64>>,
    /// The system calls that send and receive.
    calls: [i32; 2],
}

impl Machine {
    fn new(choice: &Choice) -> Machine {
        let (mut memory, layout) = (Memory::default(), Layout::spread());
        for at in [CONTEXT, CALLS, TAKES, SKB, SOCK, REGISTERS] {
            memory.insert(at, vec![0; 1024]);
        }
        memory.insert(PLACES, vec![0; 1024 * Place::BYTES as usize]);
        memory.insert(CELL, vec![0; Cell::COUNT * 8]);
        memory.insert(PIECE_LIST, vec![0; 200 * 16]);
        let mut machine =
            Machine { memory, kernel: Kernel::default(), programs: vec![], layout, calls: choice.calls() };
        // Two devices in the lab's namespaces, and one in another with the same number.
        for (device, namespace) in [OURS[0], OURS[1], 4_026_531_840].into_iter().enumerate() {
            let (own, net) = (DEVICES + device as u64 * 0x1000, NETS + device as u64 * 0x1000);
            machine.memory.insert(own, vec![0; 1024]);
            machine.memory.insert(net, vec![0; 1024]);
            machine.member(own, "net_device", "nd_net.net", &net.to_le_bytes());
            machine.member(own, "net_device", "ifindex", &(device as u32 % 2 + 5).to_le_bytes());
            machine.member(net, "net", "ns.inum", &namespace.to_le_bytes());
        }
        let assembled =
            |event: &LayerEvent| assemble(*event, &machine.layout, choice, &MAPS).expect("it is whole");
        machine.programs = LayerEvent::ALL.iter().map(assembled).collect();
        machine
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.memory.bytes(at, bytes.len()).unwrap().copy_from_slice(bytes);
    }

    fn member(&mut self, base: u64, structure: &'static str, path: &'static str, bytes: &[u8]) {
        self.put(base + u64::from(self.layout.at(structure, path)), bytes);
    }

    fn run(&mut self, event: LayerEvent, arguments: [u64; 2]) {
        arguments
            .iter()
            .enumerate()
            .for_each(|(at, value)| self.put(CONTEXT + at as u64 * 8, &value.to_le_bytes()));
        let number = LayerEvent::ALL.iter().position(|&one| one == event).unwrap();
        interpret::run(&self.programs[number], &mut self.memory, &mut self.kernel, CONTEXT, 100_000)
            .expect("programs end, and stay in their memory");
    }

    fn happens(&mut self, now: u64, event: &Event) {
        self.kernel.now = now;
        self.kernel.has_room = event.has_room;
        self.kernel.thread = u64::from(event.process) << 32 | u64::from(event.thread);
        match &event.what {
            Happens::Frame(at, frame, device) => {
                let mut head = vec![0xee; NETWORK.into()];
                head.extend(&frame.bytes);
                self.memory.insert(HEAD, head);
                self.member(SKB, "sk_buff", "head", &HEAD.to_le_bytes());
                self.member(SKB, "sk_buff", "network_header", &NETWORK.to_le_bytes());
                self.member(SKB, "sk_buff", "data", &(HEAD + u64::from(NETWORK)).to_le_bytes());
                self.member(SKB, "sk_buff", "dev", &(DEVICES + *device as u64 * 0x1000).to_le_bytes());
                self.run(*at, [SKB, 0]);
            }
            Happens::Ready(port) => {
                self.member(SOCK, "sock", "__sk_common.skc_num", &port.to_le_bytes());
                self.run(LayerEvent::Ready, [SOCK, 0]);
            }
            Happens::Send => self.run(LayerEvent::SysEnter, [REGISTERS, self.calls[0] as u64]),
            Happens::Consume(pieces) => {
                self.run(LayerEvent::SysEnter, [REGISTERS, self.calls[1] as u64]);
                for socket in pieces {
                    self.member(SOCK, "sock", "__sk_common.skc_num", &socket.own.to_le_bytes());
                    self.member(SOCK, "sock", "__sk_common.skc_dport", &socket.other.to_be_bytes());
                    let number = |bytes: u64| socket.first.wrapping_add(bytes as u32).to_le_bytes();
                    self.member(SOCK, "tcp_sock", "rcv_nxt", &number(socket.came));
                    self.member(SOCK, "tcp_sock", "copied_seq", &number(socket.taken));
                    self.member(SOCK, "tcp_sock", "bytes_received", &socket.came.to_le_bytes());
                    self.run(LayerEvent::Consume, [SOCK, 0]);
                }
                self.run(LayerEvent::SysExit, [REGISTERS, 3]);
            }
            Happens::Sent([own, other], written, returned) => {
                self.member(SOCK, "sock", "__sk_common.skc_num", &own.to_le_bytes());
                self.member(SOCK, "sock", "__sk_common.skc_dport", &other.to_be_bytes());
                let next = first(*other).wrapping_add(*written as u32);
                self.member(SOCK, "tcp_sock", "write_seq", &next.to_le_bytes());
                self.run(LayerEvent::Sent, [SOCK, *returned as u64]);
            }
            Happens::OtherCall(number) => {
                self.run(LayerEvent::SysEnter, [REGISTERS, *number]);
                self.run(LayerEvent::SysExit, [REGISTERS, 3]);
            }
            Happens::Take(messages, returned) => self.takes(messages, *returned),
        }
    }

    fn takes(&mut self, messages: &[Vec<u8>], returned: i64) {
        self.memory.insert(HEADERS, vec![0; 200 * MESSAGE_HEADER as usize]);
        self.put(REGISTERS + u64::from(SECOND), &HEADERS.to_le_bytes());
        self.run(LayerEvent::SysEnter, [REGISTERS, self.calls[1] as u64]);
        for (number, message) in messages.iter().enumerate() {
            let number = number as u64;
            let (piece, buffer) = (PIECE_LIST + number * 16, BUFFERS + number * BUFFER_BYTES);
            self.put(HEADERS + number * MESSAGE_HEADER as u64 + PIECES as u64, &piece.to_le_bytes());
            self.put(piece, &buffer.to_le_bytes());
            self.memory.insert(buffer, message.clone());
        }
        self.run(LayerEvent::SysExit, [REGISTERS, returned as u64]);
    }

    fn cell(&mut self, at: Cell) -> u64 {
        self.memory.read(CELL + at.offset() as u64, 8).unwrap()
    }
}

/// The same in plain words, with the reader of messages that the application has.
struct Plain<'a> {
    choice: &'a Choice,
    stamps: Vec<Stamp>,
    lost: u64,
    runs: u64,
    calls: BTreeMap<u32, u64>,
    takers: Vec<u32>,
    /// Of requests, of responses or of a connection: the sequence number that is expected next, the place of its byte among the messages, and that of the first
    /// byte that was not taken.
    expected: BTreeMap<u32, (u32, [i64; 2])>,
    mark: Option<(Message, u16, u32)>,
}

impl Plain<'_> {
    fn message(&self, bytes: &[u8]) -> Option<Message> {
        let message = Message::read(bytes).filter(|message| message.stream == STREAM)?;
        (!message.flags.has(Flags::PROBE) && self.is_chosen(message.sequence)).then_some(message)
    }

    fn is_chosen(&self, number: u64) -> bool {
        is_chosen(number, self.choice.every.into())
    }

    /// The place of a byte among the messages, by the nearest number.
    fn place(&self, key: u32, sequence: u32) -> Option<i64> {
        let (expected, [place, _]) = self.expected.get(&key)?;
        Some(place + i64::from(sequence.wrapping_sub(*expected).cast_signed()))
    }

    /// The number of the message that begins with that byte of a direction, if one does.
    fn number(&self, key: u32, sequence: u32, size: u32) -> Option<u64> {
        let place = u64::try_from(self.place(key, sequence)?).ok()?;
        (place > 0 && place.is_multiple_of(size.into())).then_some(place / u64::from(size))
    }

    /// The chosen messages of a stream that begin among these bytes, by a look at every byte.
    fn begun(&self, key: u32, bytes: std::ops::Range<i64>) -> Vec<Message> {
        if bytes.start < 0 {
            return vec![];
        }
        let size = i64::from(WRITES.size);
        let begun = bytes.filter(|at| *at > 0 && at % size == 0).map(|at| (at / size) as u64);
        let chosen = begun.take(connection::MOST_BEGUN as usize).filter(|number| self.is_chosen(*number));
        let message = |number| Message {
            stream: STREAM,
            flags: Flags::DATA,
            sequence: u64::from(key) << 32 | number,
            planned_ns: 0,
        };
        chosen.map(message).collect()
    }

    /// What a connection is called whose sender has that port.
    fn key(&self, port: u16) -> u32 {
        if self.choice.numbering == Numbering::OfStream(MANY_WRITES) { port.into() } else { 0 }
    }

    /// A segment with data that begins with a message, or has the begin of some of a stream.
    fn in_segment(&self, frame: &[u8], header: usize) -> Option<Vec<Message>> {
        let short = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().unwrap()));
        let segment = frame.get(header..).filter(|segment| segment.len() >= 20)?;
        let (source, port) = (short(header)?, short(header + 2)?);
        let (is_response, size) = match EXCHANGE.port {
            ours if ours == port => (0, EXCHANGE.request),
            ours if ours == source => (1, EXCHANGE.response),
            _ => return None,
        };
        let behind_ip =
            if header == 40 { i32::from(short(4)?) } else { i32::from(short(2)?) - header as i32 };
        let sequence = u32::from_be_bytes(segment[4..8].try_into().unwrap());
        let data = i64::from(behind_ip - i32::from(segment[12] >> 4) * 4);
        if let Numbering::OfStream(_) = self.choice.numbering {
            let at = self.place(self.key(source), sequence).filter(|_| is_response == 0)?;
            return Some(self.begun(self.key(source), at..at + data));
        }
        let number = self.number(is_response, sequence, size).filter(|number| self.is_chosen(*number))?;
        let message = Message { stream: STREAM, flags: Flags::DATA, sequence: number, planned_ns: 0 };
        (data > 0).then(|| vec![message])
    }

    fn in_frame(&self, frame: &[u8]) -> Option<Vec<Message>> {
        let (header, protocol) = if self.choice.family == 6 { (40, 6) } else { (20, 9) };
        let first = *frame.first()?;
        let fits = if self.choice.family == 6 { first >> 4 == 6 } else { first == 0x45 };
        if !fits || *frame.get(protocol)? != self.choice.protocol {
            return None;
        }
        match self.choice.numbering {
            Numbering::InHeader(_) => self.message(frame.get(header + 8..)?).map(|message| vec![message]),
            _ => self.in_segment(frame, header),
        }
    }

    /// What a socket gives: of echoes with their header, over IPv4 perhaps with that of IP; of frames all, perhaps behind a header of virtio.
    fn in_buffer(&self, buffer: &[u8]) -> Option<Message> {
        if self.choice.is_of_frames {
            let headers = 14 + if self.choice.family == 6 { 48 } else { 28 };
            return [headers, headers + 10].iter().find_map(|at| self.message(buffer.get(*at..)?));
        }
        let skip = match (self.choice.protocol, buffer.first()?) {
            (17, _) => 0,
            (_, 0x45) => 28,
            _ => 8,
        };
        self.message(buffer.get(skip..)?)
    }

    fn stamp(&mut self, event: &Event, at_ns: u64, place: RawPlace, message: Message) {
        if !event.has_room {
            self.lost += 1;
            return;
        }
        // A stream's call is told when it returns.
        let is_stream = matches!(self.choice.numbering, Numbering::OfStream(_));
        let has_call = place.point == StampPoint::Queued && !is_stream;
        let called = self.calls.get(&event.thread).copied().filter(|_| has_call);
        let Message { sequence, planned_ns, .. } = message;
        self.stamps.push(Stamp { at_ns, place, sequence, planned_ns, called_ns: called.unwrap_or(0) });
    }

    fn is_ours(&self, event: &Event) -> bool {
        self.choice.processes.contains(&event.process)
    }

    fn happens(&mut self, now: u64, event: &Event) {
        match &event.what {
            Happens::Frame(at, frame, device) => {
                self.runs += 1;
                if *at == LayerEvent::Receive {
                    self.mark = None;
                }
                let (Some(messages), Some(&namespace)) = (self.in_frame(&frame.bytes), OURS.get(*device))
                else {
                    return;
                };
                let interface = *device as u32 + 5;
                let place = RawPlace { point: at.point(), namespace, interface, process: 0 };
                for message in messages {
                    self.stamp(event, now, place, message);
                    let has_sockets =
                        !matches!(self.choice.numbering, Numbering::OfStream(_)) && !self.choice.is_of_frames;
                    if *at == LayerEvent::Receive && has_sockets {
                        self.mark = Some((message, frame.port, namespace));
                    }
                }
            }
            Happens::Ready(port) => {
                self.runs += 1;
                if let Some((message, _, namespace)) = self.mark.take_if(|mark| mark.1 == *port) {
                    let place =
                        RawPlace { point: StampPoint::Delivered, namespace, interface: 0, process: 0 };
                    self.stamp(event, now, place, message);
                }
            }
            Happens::Send => {
                self.runs += 1;
                self.remember(event, now);
            }
            Happens::OtherCall(_) => self.runs += 2,
            Happens::Consume(pieces) => self.consumes(now, event, pieces),
            Happens::Sent(ports, written, returned) => self.sent(event, *ports, *written, *returned),
            Happens::Take(messages, returned) => self.takes(now, event, messages, *returned),
        }
    }

    /// What a map has is changed in place; something new needs room.
    fn remember(&mut self, event: &Event, now: u64) {
        if !self.is_ours(event) {
            return;
        }
        if event.has_room || self.calls.contains_key(&event.thread) {
            self.calls.insert(event.thread, now);
        } else {
            self.lost += 1;
        }
    }

    fn takes(&mut self, now: u64, event: &Event, messages: &[Vec<u8>], returned: i64) {
        self.runs += 2;
        if !self.is_ours(event) || self.choice.protocol == TCP {
            return;
        }
        if !self.takers.contains(&event.thread) {
            if !event.has_room {
                self.lost += 1;
                return;
            }
            self.takers.push(event.thread);
        }
        let count = usize::try_from(returned).unwrap_or(0).min(MOST_RECEIVED as usize);
        for buffer in messages.iter().take(count) {
            if let Some(message) = self.in_buffer(buffer) {
                let place = RawPlace {
                    point: StampPoint::Returned,
                    namespace: 0,
                    interface: 0,
                    process: event.process,
                };
                self.stamp(event, now, place, message);
            }
        }
    }
}

impl Plain<'_> {
    /// The call returns with the last message that became whole.
    fn consumes(&mut self, now: u64, event: &Event, pieces: &[Socket]) {
        self.runs += 2 + pieces.len() as u64;
        if !self.is_ours(event) {
            return;
        }
        let mut whole = None;
        for socket in pieces {
            let is_stream = matches!(self.choice.numbering, Numbering::OfStream(_));
            let (key, size) = match EXCHANGE.port {
                port if port == socket.own && is_stream => (self.key(socket.other), WRITES.size),
                port if port == socket.own => (0, EXCHANGE.request),
                port if port == socket.other && !is_stream => (1, EXCHANGE.response),
                _ => continue,
            };
            let taken = socket.taken as i64 - 18;
            let before = self.expected.get(&key).map_or(taken, |(_, [_, before])| *before);
            if event.has_room || self.expected.contains_key(&key) {
                let next = socket.first.wrapping_add(socket.came as u32);
                self.expected.insert(key, (next, [socket.came as i64 - 18, taken]));
            } else {
                self.lost += 1;
            }
            if is_stream {
                let place = RawPlace {
                    point: StampPoint::Returned,
                    namespace: 0,
                    interface: 0,
                    process: event.process,
                };
                self.begun(key, before..taken)
                    .into_iter()
                    .for_each(|message| self.stamp(event, now, place, message));
                continue;
            }
            // The program has it at hand even where the map had no room.
            let messages = socket.taken.checked_sub(18).filter(|bytes| bytes.is_multiple_of(size.into()));
            let number = messages.and_then(|bytes| (bytes / u64::from(size)).checked_sub(1));
            let is_wanted = |number: &u64| *number > 0 && self.is_chosen(*number);
            let Some(number) = number.filter(is_wanted) else { continue };
            if event.has_room || self.takers.contains(&event.thread) {
                self.takers.push(event.thread);
                whole = Some(number);
            } else {
                self.lost += 1;
            }
        }
        self.returns(now, event, whole);
    }

    /// A call has given bytes to a connection.
    fn sent(&mut self, event: &Event, [own, other]: [u16; 2], written: u64, returned: i64) {
        self.runs += 1;
        let called = self.calls.get(&event.thread).copied().filter(|_| self.is_ours(event));
        let Numbering::OfStream(writes) = self.choice.numbering else { return };
        let Some(called) = called.filter(|_| other == writes.port && returned > 0) else { return };
        let Some(end) = self.place(self.key(own), first(other).wrapping_add(written as u32)) else { return };
        let place =
            RawPlace { point: StampPoint::Called, namespace: 0, interface: 0, process: event.process };
        self.begun(self.key(own), end - returned..end)
            .into_iter()
            .for_each(|message| self.stamp(event, called, place, message));
    }

    fn returns(&mut self, now: u64, event: &Event, whole: Option<u64>) {
        if let Some(sequence) = whole {
            let place =
                RawPlace { point: StampPoint::Returned, namespace: 0, interface: 0, process: event.process };
            let message = Message { stream: STREAM, flags: Flags::DATA, sequence, planned_ns: 0 };
            self.stamp(event, now, place, message);
        }
    }
}

prop_compose! {
    /// A message, mostly one of the test's.
    fn payload()(kind in 0..8u8, flags in 0u8..8, sequence in 0u64..40, far in any::<bool>(), planned_ns: u64, cut in 0usize..60) -> Vec<u8> {
        let mut bytes = vec![0xcc; 40];
        let sequence = if far { sequence | 0x1234_0000_0000 } else { sequence };
        let stream = if kind == 0 { 1 } else { STREAM };
        Message { stream, flags: Flags::from_bits(flags), sequence, planned_ns }.write(&mut bytes);
        if kind == 1 {
            bytes[1] ^= 1;
        }
        bytes.truncate(if kind == 2 { cut } else { 40 });
        bytes
    }
}

prop_compose! {
    /// Port or identifier is one of a few.
    fn frame(choice: Choice)(payload in payload(), kind in 0u8..10, port in 700u16..703) -> Frame {
        let mut bytes = vec![0; choice.ip_bytes() as usize + 8];
        let (begin, protocol) = if choice.family == 6 { (0x60, 6) } else { (0x45, 9) };
        bytes[0] = if kind == 0 { 0x46 } else { begin | u8::from(kind == 1 && choice.family == 6) };
        bytes[protocol] = if kind == 2 { 6 } else { choice.protocol };
        let at = choice.ip_bytes() as usize + if choice.protocol == 17 { 2 } else { 4 };
        bytes[at..at + 2].copy_from_slice(&port.to_be_bytes());
        bytes.extend(payload);
        Frame { bytes, port }
    }
}

/// The number of the first byte that goes to a port: at one port the numbers begin anew soon.
fn first(port: u16) -> u32 {
    if port == EXCHANGE.port { 0xffff_ffd8 } else { 1000 }
}

prop_compose! {
    /// A segment of the connection, mostly with data.
    fn segment(choice: Choice)(ports in [700u16..703, 700u16..703], kind in 0u8..12, place in 0u32..60, words in 5u8..9, data in 0usize..3) -> Frame {
        let header = choice.ip_bytes() as usize;
        let mut bytes = vec![0; header + usize::from(words) * 4 + data];
        let (begin, protocol, length) = if choice.family == 6 { (0x60, 6, 4) } else { (0x45, 9, 2) };
        bytes[0] = if kind == 0 { 0x46 } else { begin };
        bytes[protocol] = if kind == 1 { 17 } else { TCP };
        let behind_ip = bytes.len() - if choice.family == 6 { header } else { 0 };
        bytes[length..length + 2].copy_from_slice(&(behind_ip as u16).to_be_bytes());
        let segment = &mut bytes[header..];
        segment[..2].copy_from_slice(&ports[0].to_be_bytes());
        segment[2..4].copy_from_slice(&ports[1].to_be_bytes());
        segment[4..8].copy_from_slice(&first(ports[1]).wrapping_add(place).to_be_bytes());
        segment[12] = words << 4 | 3;
        // What is cut off cannot be read.
        bytes.truncate(if kind == 2 { header + 19 } else { header + 100 });
        Frame { bytes, port: ports[1] }
    }
}

prop_compose! {
    fn socket()(own in 700u16..703, other in 700u16..703, taken in prop_oneof![9 => 0u64..60, 1 => 0u64..5000], more in 0u64..20) -> Socket {
        Socket { own, other, first: first(own), came: taken + more, taken }
    }
}

/// What happens at a connection, and what has nothing to do with it.
fn of_connection(choice: &Choice) -> impl Strategy<Value = Happens> + use<> {
    use LayerEvent::*;
    let at = prop::sample::select(vec![Queue, Start, Backlog, Gro, Receive, Receive]);
    prop_oneof![
        8 => (at, segment(choice.clone()), 0usize..3).prop_map(|(at, frame, device)| Happens::Frame(at, frame, device)),
        3 => (700u16..703).prop_map(Happens::Ready),
        2 => Just(Happens::Send),
        5 => prop::collection::vec(socket(), 1..4).prop_map(Happens::Consume),
        3 => ([700u16..703, 700u16..703], 0u64..70, -3i64..30).prop_map(|(ports, written, returned)| Happens::Sent(ports, written, returned)),
        1 => Just(Happens::Take(vec![whole(4); 3], 3)),
        1 => (0u64..5).prop_map(Happens::OtherCall),
    ]
}

/// What a socket gives of such a message.
fn buffer(choice: &Choice) -> impl Strategy<Value = Vec<u8>> + use<> {
    let echo = choice.protocol != 17;
    let headers = 14 + choice.ip_bytes() as usize + 8;
    let frames = choice.is_of_frames;
    (payload(), any::<bool>()).prop_map(move |(payload, with_ip)| {
        let mut bytes = vec![0; if echo { 8 } else { 0 } + if echo && with_ip { 20 } else { 0 }];
        if frames {
            bytes = vec![0; headers + if with_ip { 10 } else { 0 }];
        }
        if echo && with_ip {
            bytes[0] = 0x45;
        }
        bytes.extend(payload);
        bytes
    })
}

fn of_datagrams(choice: &Choice) -> impl Strategy<Value = Happens> + use<> {
    use LayerEvent::*;
    let at = prop::sample::select(vec![Queue, Start, Backlog, Gro, Receive, Receive]);
    let returned = prop_oneof![8 => 0i64..6, 1 => 120i64..160, 1 => -110i64..0];
    prop_oneof![
        6 => (at, frame(choice.clone()), 0usize..3).prop_map(|(at, frame, device)| Happens::Frame(at, frame, device)),
        3 => (700u16..703).prop_map(Happens::Ready),
        2 => Just(Happens::Send),
        3 => (prop::collection::vec(buffer(choice), 5), returned).prop_map(|(buffers, returned)| Happens::Take(buffers, returned)),
        1 => Just(Happens::Take(vec![whole(4); 160], 150)),
        1 => (0u64..5).prop_map(Happens::OtherCall),
    ]
}

fn events(choice: Choice) -> impl Strategy<Value = (Choice, Vec<Event>)> {
    let what = match choice.numbering {
        Numbering::InHeader(_) => of_datagrams(&choice).boxed(),
        _ => of_connection(&choice).boxed(),
    };
    let process = prop::sample::select(vec![700, 0x8000_0001, 701]);
    let event = (what, process, 1u32..4, prop::bool::weighted(0.9))
        .prop_map(|(what, process, thread, has_room)| Event { what, process, thread, has_room });
    (Just(choice), prop::collection::vec(event, 0..40))
}

/// A message that every choice with such a number has.
fn whole(sequence: u64) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    Message { stream: STREAM, flags: Flags::DATA, sequence, planned_ns: 9 }.write(&mut bytes);
    bytes
}

fn choice() -> impl Strategy<Value = Choice> {
    let header = Numbering::InHeader(STREAM);
    let of_tcp =
        [Numbering::ByPosition(EXCHANGE), Numbering::OfStream(WRITES), Numbering::OfStream(MANY_WRITES)];
    let of_tcp = [4, 6].into_iter().flat_map(|family| of_tcp.map(|numbering| (family, TCP, numbering)));
    let others = [(4, 17, header), (6, 17, header), (4, 1, header), (6, 58, header)];
    let all: Vec<_> = others.into_iter().chain(of_tcp).collect();
    (prop::sample::select(all), 1u32..5, any::<bool>()).prop_map(
        |((family, protocol, numbering), every, is_of_frames)| Choice {
            family,
            protocol,
            numbering,
            is_of_frames: is_of_frames && protocol == UDP,
            every,
            namespaces: OURS.to_vec(),
            processes: PROCESSES.to_vec(),
        },
    )
}

proptest! {
    /// Any frames, segments, sockets and system calls, of anybody: the stamps are those of the plain description, and what found no room is counted.
    #[test]
    fn stamps_are_those_of_the_plain_description((choice, events) in choice().prop_flat_map(events)) {
        let mut machine = Machine::new(&choice);
        let mut plain = Plain { choice: &choice, stamps: vec![], lost: 0, runs: 0, calls: BTreeMap::new(), takers: vec![], expected: BTreeMap::new(), mark: None };
        for (number, event) in events.iter().enumerate() {
            let now = 1_000_000 + number as u64 * 1000;
            machine.happens(now, event);
            plain.happens(now, event);
            let stamps: Vec<Stamp> = machine.kernel.ring.iter().map(|bytes| Stamp::decode(bytes).unwrap()).collect();
            prop_assert_eq!(&stamps, &plain.stamps, "after event {}: {:?}", number, event);
        }
        prop_assert_eq!(machine.cell(Cell::Lost), plain.lost);
        let runs: u64 = (0..LayerEvent::ALL.len() as u64).map(|number| machine.memory.read(CELL + number * 8, 8).unwrap()).sum();
        prop_assert_eq!(runs, plain.runs);
    }
}
