//! The program against a plain description of what it should recognise, on random frames, in an interpreter. The kernel's own
//! verdict is tested in `tests/observe/`.

use ::bpf::interpret::{self, ExecutionError, Host, Memory};
use proptest::prelude::*;
use wire::message::Message;

use super::super::flow::{FlowEnd, FlowEnds};
use super::*;
use std::net::IpAddr;

const CONTEXT: u64 = 0x1_0000;
const VALUE: u64 = 0x2_0000;
const DATA: u64 = 0x4_0000;
const FOUND_FRAGMENT: u64 = 0x3_0000;
const PLACE: Place = Place { counts: 3, fragments: 4, number: 5, start: Start::Ethernet };
const STREAM: u8 = 0x5a;

/// The functions of the kernel that the program calls, and its maps.
struct Kernel {
    frame: Vec<u8>,
    /// How many bytes of it lie in one piece, where the program may read them itself.
    linear: usize,
    /// The entry that was looked up.
    entry: Option<u32>,
    remembered: Vec<(Vec<u8>, u32)>,
}

fn kernel_with(frame: Vec<u8>) -> Kernel {
    Kernel { frame, linear: usize::MAX, entry: None, remembered: vec![] }
}

impl Host for Kernel {
    fn call(&mut self, memory: &mut Memory, function: i32, r: [u64; 5]) -> Result<u64, ExecutionError> {
        match function {
            LOAD_BYTES => {
                let (at, length) = (r[1] as usize, r[3] as usize);
                let found = self.frame.get(at..at.saturating_add(length)).map(<[u8]>::to_vec);
                let bytes = found.clone().unwrap_or_else(|| vec![0; length]);
                memory.bytes(r[2], length)?.copy_from_slice(&bytes);
                Ok(if found.is_some() { 0 } else { u64::MAX })
            }
            MAP_LOOKUP if r[0] == PLACE.fragments as u64 => {
                let key = memory.bytes(r[1], FRAGMENT_KEY_BYTES as usize)?.to_vec();
                let Some((_, leg)) = self.remembered.iter().find(|(known, _)| *known == key) else {
                    return Ok(0);
                };
                memory.bytes(FOUND_FRAGMENT, 4)?.copy_from_slice(&leg.to_ne_bytes());
                Ok(FOUND_FRAGMENT)
            }
            MAP_LOOKUP => {
                self.entry = Some(memory.read(r[1], 4)? as u32);
                Ok(VALUE)
            }
            MAP_UPDATE => {
                let key = memory.bytes(r[1], FRAGMENT_KEY_BYTES as usize)?.to_vec();
                let leg = memory.read(r[2], 4)? as u32;
                self.remembered.push((key, leg));
                Ok(0)
            }
            KTIME => Ok(77),
            other => Err(ExecutionError::Function(other)),
        }
    }
}

/// What a run of the program counted: the entry, and its value.
type Counted = Option<(u32, Vec<u64>)>;

fn run(code: &[u64], kernel: &mut Kernel, segments: u32, segment_size: u32) -> Counted {
    let mut memory = Memory::default();
    let mut context = vec![0; 192];
    let linear = &kernel.frame[..kernel.linear.min(kernel.frame.len())];
    let mut put = |at: i16, value: u32| {
        context[at as usize..at as usize + 4].copy_from_slice(&value.to_ne_bytes());
    };
    put(SKB_LENGTH, kernel.frame.len() as u32);
    put(SKB_DATA, DATA as u32);
    put(SKB_DATA_END, DATA as u32 + linear.len() as u32);
    put(SKB_SEGMENTS, segments);
    put(SKB_SEGMENT_SIZE, segment_size);
    memory.insert(CONTEXT, context);
    memory.insert(DATA, linear.to_vec());
    memory.insert(VALUE, vec![0; VALUE_BYTES as usize]);
    memory.insert(FOUND_FRAGMENT, vec![0; 4]);
    kernel.entry = None;
    let result = interpret::run(code, &mut memory, kernel, CONTEXT, 10_000);
    assert_eq!(result.expect("it ends, and stays in its memory") as u32 as i32, NEXT, "every frame goes on");
    let words = (0..5).map(|word| memory.read(VALUE + word * 8, 8).unwrap()).collect();
    kernel.entry.map(|entry| (entry, words))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// What the plain description says of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// It is the flow's.
    Ours(Leg),
    /// A later fragment of the flow's protocol, of this source and identification.
    Later,
    Not,
}

/// The plain description: from the first byte to the transport header, then what is there.
fn describe(flow: &Flow, frame: &[u8], start: Start, tunnels: bool) -> Said {
    enter(flow, frame, start, tunnels).unwrap_or(Said::Not)
}

fn enter(flow: &Flow, frame: &[u8], start: Start, tunnels: bool) -> Option<Said> {
    let mut at = 0;
    if start == Start::Ethernet {
        at = 14;
        let mut ethertype = be16(frame, 12)?;
        for _ in 0..MOST_TAGS {
            if wire::layers::VLAN_TAGS.contains(&ethertype) {
                ethertype = be16(frame, at + 2)?;
                at += 4;
            }
        }
        let version = frame.get(at)? >> 4;
        if !matches!((ethertype, version), (0x0800, 4) | (0x86dd, 6)) {
            return None;
        }
    }
    match frame.get(at)? >> 4 {
        4 => {
            let header = frame.get(at..at + 20)?;
            let (length, place) = (usize::from(header[0] & 15) * 4, be16(header, 6)?);
            if length < 20 {
                return None;
            }
            if place & 0x1fff != 0 {
                return (may_be(flow, 4) == Some(header[9])).then_some(Said::Later);
            }
            let addresses = (address(&header[12..16]), address(&header[16..20]));
            transport(flow, frame, at + length, addresses, header[9], tunnels)
        }
        6 => {
            let header = frame.get(at..at + 40)?;
            let (mut protocol, addresses) = (header[6], (address(&header[8..24]), address(&header[24..40])));
            at += 40;
            for _ in 0..MOST_EXTENSIONS {
                match protocol {
                    0 | 43 | 60 => {
                        protocol = *frame.get(at)?;
                        at += (usize::from(*frame.get(at + 1)?) + 1) * 8;
                    }
                    44 => {
                        let header = frame.get(at..at + 8)?;
                        if be16(header, 2)? & 0xfff8 != 0 {
                            return (may_be(flow, 6) == Some(header[0])).then_some(Said::Later);
                        }
                        (protocol, at) = (header[0], at + 8);
                    }
                    _ => {}
                }
            }
            transport(flow, frame, at, addresses, protocol, tunnels)
        }
        _ => None,
    }
}

/// Source and destination.
type Addresses = (IpAddr, IpAddr);

fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(bytes) => bytes.into(),
        Err(_) => <[u8; 16]>::try_from(bytes).unwrap().into(),
    }
}

/// The protocol of the flow's frames over that version; none when it has addresses of the other one.
fn may_be(flow: &Flow, version: u8) -> Option<u8> {
    let ends = flow.ends.map_or([None, None], |ends| [ends.source.address, ends.destination.address]);
    let other = ends.into_iter().flatten().any(|address| address.is_ipv4() != (version == 4));
    if other { None } else { flow.protocol.number(version) }
}

fn transport(
    flow: &Flow,
    frame: &[u8],
    at: usize,
    addresses: Addresses,
    protocol: u8,
    tunnels: bool,
) -> Option<Said> {
    let version = if addresses.0.is_ipv4() { 4 } else { 6 };
    if may_be(flow, version) == Some(protocol) {
        let leg = leg(flow, frame.get(at..)?, addresses, version);
        if leg.is_some() || protocol != UDP {
            return leg.map(Said::Ours);
        }
    }
    let whole = protocol == UDP && tunnels && (frame.len() >= at + 14);
    let short = protocol == UDP && tunnels && may_be(flow, version) == Some(UDP) && frame.len() >= at + 8;
    if !whole && !short {
        return None;
    }
    let inside = match be16(frame, at + 2)? {
        port if VXLAN_PORTS.contains(&port) => at + 16,
        GENEVE_PORT if be16(frame, at + 10) == Some(0x6558) => {
            at + 16 + usize::from(frame[at + 8] & 0x3f) * 4
        }
        _ => return None,
    };
    enter(flow, frame.get(inside..)?, Start::Ethernet, false)
}

fn leg(flow: &Flow, transport: &[u8], (from, to): Addresses, version: u8) -> Option<Leg> {
    let head = transport.get(..8)?;
    let echo = match flow.protocol.echo_types(version) {
        Some((request, _)) if head[0] == request => Some(Leg::Forward),
        Some((_, reply)) if head[0] == reply => Some(Leg::Back),
        Some(_) => return None,
        None => None,
    };
    if let Some(FlowEnds { source, destination }) = flow.ends {
        let is = |end: FlowEnd, address: IpAddr, at: usize| {
            end.address.is_none_or(|wanted| wanted == address)
                && end.port.is_none_or(|port| be16(head, at) == Some(port))
        };
        return match echo {
            Some(Leg::Forward) | None if is(source, from, 0) && is(destination, to, 2) => Some(Leg::Forward),
            Some(Leg::Back) | None if is(destination, from, 0) && is(source, to, 2) => Some(Leg::Back),
            _ => None,
        };
    }
    if let Some(stream) = flow.stream {
        // Six bytes behind the header are read at once.
        let message = transport.get(8..14)?;
        let flags = Flags::from_bits(message[3]);
        if be16(message, 0)? != MAGIC || message[2] != stream || flags.has(Flags::PROBE) {
            return None;
        }
        return echo.or(Some(if flags.has(Flags::RESPONSE) { Leg::Back } else { Leg::Forward }));
    }
    let is_port = |at| be16(head, at).is_some_and(|port| flow.ports.contains(&port));
    match echo {
        Some(leg) => is_port(4).then_some(leg),
        None if is_port(2) => Some(Leg::Forward),
        None => is_port(0).then_some(Leg::Back),
    }
}

/// Few of each version, so that frames have those of a flow.
fn some_address(version: u8) -> impl Strategy<Value = IpAddr> {
    let last = prop::sample::select(vec![1u8, 2]);
    last.prop_map(move |last| match version {
        4 => IpAddr::from([10, 0, 0, last]),
        _ => IpAddr::from([0xfd, 0, 0, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    })
}

fn ends() -> impl Strategy<Value = FlowEnds> {
    prop::sample::select(vec![4u8, 6]).prop_flat_map(|version| {
        let port = || prop::option::of(prop::sample::select(vec![5201u16, 9, 4789]));
        let end = || (prop::option::of(some_address(version)), port());
        (end(), end()).prop_filter_map("nothing is asked", |((from, sport), (to, dport))| {
            let source = FlowEnd { address: from, port: sport };
            let destination = FlowEnd { address: to, port: dport };
            let any = FlowEnd::default();
            (source != any || destination != any).then_some(FlowEnds { source, destination })
        })
    })
}

fn flows() -> impl Strategy<Value = Flow> {
    let protocol = prop::sample::select(vec![
        FlowProtocol::Udp,
        FlowProtocol::Tcp,
        FlowProtocol::Icmp,
        FlowProtocol::Icmp6,
    ]);
    let stream = prop::option::of(Just(STREAM));
    (protocol, stream, prop::option::of(ends())).prop_map(|(protocol, stream, ends)| Flow {
        protocol,
        ports: vec![5201, 9],
        stream: stream.filter(|_| protocol != FlowProtocol::Tcp),
        ends,
    })
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let message = (prop::sample::select(vec![STREAM, 1]), prop::sample::select(vec![0u8, 1, 2, 4, 5]));
    let ours = (message, 0..30usize).prop_map(|((stream, flags), more)| {
        let mut bytes = vec![0; wire::message::LENGTH + more];
        Message { stream, flags: Flags::from_bits(flags), sequence: 7, planned_ns: 1 }.write(&mut bytes);
        bytes
    });
    prop_oneof![3 => ours, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

/// A transport header and what is behind it.
fn segment() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let port = || prop::sample::select(vec![5201u16, 9, 80, 4789, 6081]);
    let udp = (port(), port(), payload()).prop_map(|(from, to, payload)| {
        (17, [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0; 4], &payload].concat())
    });
    let tcp = (port(), port()).prop_map(|(from, to)| {
        (6, [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0; 8], &[0x50, 0, 0, 0, 0, 0, 0, 0]].concat())
    });
    let types = prop::sample::select(vec![0u8, 8, 128, 129, 3]);
    let echo = (types, port(), payload(), prop::sample::select(vec![1u8, 58])).prop_map(
        |(kind, id, payload, number)| {
            (number, [&[kind, 0, 0, 0], &id.to_be_bytes()[..], &[0; 2], &payload].concat())
        },
    );
    prop_oneof![3 => udp, 1 => tcp, 1 => echo]
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let v4 = (segment(), 5..8u8, prop::sample::select(vec![0u16, 0, 0, 0x4000, 0x2000, 0x2001, 5]));
    let addresses = |version| (some_address(version), some_address(version));
    let v4 = (v4, addresses(4)).prop_map(|(((protocol, segment), words, place), (from, to))| {
        let mut header = vec![0; usize::from(words) * 4];
        header[12..16].copy_from_slice(&octets(from));
        header[16..20].copy_from_slice(&octets(to));
        (header[0], header[9]) = (0x40 | words, protocol);
        header[6..8].copy_from_slice(&place.to_be_bytes());
        header.extend(segment);
        header
    });
    let extension = prop::sample::select(vec![0u8, 43, 60, 44]);
    let place = prop::sample::select(vec![0u16, 1, 8, 9]);
    let v6 = (segment(), prop::collection::vec((extension, place), 0..4), addresses(6)).prop_map(
        |((protocol, segment), extensions, (from, to))| {
            let mut header = vec![0; 40];
            header[8..24].copy_from_slice(&octets(from));
            header[24..40].copy_from_slice(&octets(to));
            header[0] = 0x60;
            let mut names: Vec<u8> = extensions.iter().map(|(kind, _)| *kind).collect();
            names.push(protocol);
            header[6] = names[0];
            for ((kind, place), next) in extensions.iter().zip(&names[1..]) {
                let units = if *kind == 44 { 0 } else { 1u8 };
                let mut bytes = vec![0; 8 + usize::from(units) * 8];
                (bytes[0], bytes[1]) = (*next, units);
                if *kind == 44 {
                    bytes[2..4].copy_from_slice(&place.to_be_bytes());
                }
                header.extend(bytes);
            }
            header.extend(segment);
            header
        },
    );
    prop_oneof![3 => v4, 1 => v6]
}

fn framed(packet: Vec<u8>, tags: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
    frame.extend(if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] });
    frame.extend(packet);
    frame
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let plain = (packet(), 0..4usize).prop_map(|(packet, tags)| framed(packet, tags));
    let tunnelled = (packet(), 0..3usize, 0..3u8).prop_map(|(inner, tags, options)| {
        let geneve = options > 0;
        let mut udp = vec![1, 2];
        udp.extend(if geneve { 6081u16 } else { 4789 }.to_be_bytes());
        udp.extend([0; 4]);
        udp.extend([if geneve { options } else { 8 }, 0, 0x65, 0x58, 0, 0, 1, 0]);
        udp.extend(vec![0; if geneve { usize::from(options) * 4 } else { 0 }]);
        udp.extend(framed(inner, tags));
        let mut ip = vec![0; 20];
        (ip[0], ip[9]) = (0x45, 17);
        ip.extend(udp);
        framed(ip, 0)
    });
    let whole = prop_oneof![3 => plain, 1 => tunnelled];
    let damage = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    let cut = prop::option::weighted(0.2, any::<prop::sample::Index>());
    (whole, damage, cut).prop_map(|(mut frame, damage, cut)| {
        if let Some((index, value)) = damage {
            let at = index.index(frame.len());
            frame[at] = value;
        }
        if let Some(index) = cut {
            frame.truncate(index.index(frame.len()));
        }
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn it_recognises_what_the_description_does(
        flow in flows(),
        frame in frames(),
        without_link in prop::bool::weighted(0.1),
        linear in prop_oneof![2 => Just(usize::MAX), 1 => 0..100usize],
    ) {
        let (start, frame) = match without_link && frame.len() > 14 {
            true => (Start::Ip, frame[14..].to_vec()),
            false => (Start::Ethernet, frame),
        };
        let said = describe(&flow, &frame, start, true);
        let code = assemble(&flow, Place { start, ..PLACE }).unwrap();
        let length = frame.len() as u64;
        let mut kernel = Kernel { linear, ..kernel_with(frame) };
        let counted = run(&code, &mut kernel, 0, 0);
        match said {
            Said::Ours(leg) => prop_assert_eq!(counted, Some((10 + leg as u32, vec![1, 1, length, 0, 77]))),
            Said::Later | Said::Not => prop_assert_eq!(counted, None),
        }
    }

    #[test]
    fn any_bytes_are_let_go_on(flow in flows(), frame in prop::collection::vec(any::<u8>(), 0..200)) {
        let code = assemble(&flow, PLACE).unwrap();
        run(&code, &mut kernel_with(frame), 0, 0);
    }
}

fn udp_frame(place: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0, 9, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[6..8].copy_from_slice(&place.to_be_bytes());
    ip.extend([1, 2, 3, 4, 0, 0, 0, 0]);
    ip.extend(payload);
    framed(ip, 0)
}

fn message_of(stream: u8) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    Message { stream, flags: Flags::DATA, sequence: 1, planned_ns: 1 }.write(&mut bytes);
    bytes
}

fn udp_flow() -> Flow {
    Flow { protocol: FlowProtocol::Udp, ports: vec![], stream: Some(STREAM), ends: None }
}

#[test]
fn later_fragments_are_those_of_a_first_one() {
    let code = assemble(&udp_flow(), PLACE).unwrap();
    let mut kernel = kernel_with(udp_frame(185, &[0; 30]));
    assert_eq!(run(&code, &mut kernel, 0, 0), None, "its first fragment was not here");
    kernel.frame = udp_frame(0x2000, &message_of(STREAM));
    assert_eq!(run(&code, &mut kernel, 0, 0).unwrap().1[..2], [1, 1]);
    kernel.frame = udp_frame(185, &[0; 30]);
    assert_eq!(run(&code, &mut kernel, 0, 0), Some((10, vec![0, 0, 0, 1, 0])));
    kernel.frame[14 + 5] = 8; // another identification
    assert_eq!(run(&code, &mut kernel, 0, 0), None);
}

#[test]
fn segments_are_counted_each_and_computed_where_nobody_counted_them() {
    let code = assemble(&udp_flow(), PLACE).unwrap();
    let mut kernel = kernel_with(udp_frame(0, &message_of(STREAM)));
    assert_eq!(run(&code, &mut kernel, 7, 64).unwrap().1[..2], [7, 1]);
    assert_eq!(run(&code, &mut kernel, 7, 0).unwrap().1[..2], [1, 1], "it is none without a size");
    kernel.frame.resize(14 + 28 + 200, 0);
    assert_eq!(run(&code, &mut kernel, 0, 64).unwrap().1[..2], [4, 1], "200 bytes in pieces of 64");
}

#[test]
fn tcp_segments_are_computed_wherever_the_headers_lie() {
    let flow = Flow { protocol: FlowProtocol::Tcp, ports: vec![5201], stream: None, ends: None };
    let mut ip = vec![0x45, 0, 0, 0, 0, 9, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip.extend([0, 9, 0x14, 0x51, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    ip.extend([0; 1000]);
    for linear in [usize::MAX, 0] {
        let mut kernel = Kernel { linear, ..kernel_with(framed(ip.clone(), 0)) };
        let counted = run(&assemble(&flow, PLACE).unwrap(), &mut kernel, 0, 300).unwrap();
        assert_eq!(counted.1[..2], [4, 1], "1000 bytes in pieces of 300");
    }
}
