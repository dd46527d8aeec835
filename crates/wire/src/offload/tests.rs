use super::*;
use crate::frame::{Ethernet, Ipv4, Ipv6, Tcp, Udp};
use crate::layers::tests::build;
use proptest::prelude::*;

/// The transport checksum the slow way: one word at a time over a pseudo header and a packet that are written out.
fn slow_sum(frame: &[u8]) -> u16 {
    let ip = &frame[14..];
    let (mut bytes, transport) = if ip[0] >> 4 == 4 {
        let header = usize::from(ip[0] & 15) * 4;
        (ip[12..20].to_vec(), &ip[header..usize::from(be16(ip, 2))])
    } else {
        let mut at = 40;
        let mut next = ip[6];
        while [0, 60].contains(&next) {
            (next, at) = (ip[at], at + 8 + 8 * usize::from(ip[at + 1]));
        }
        (ip[8..40].to_vec(), &ip[at..40 + usize::from(be16(ip, 4))])
    };
    let protocol = Layers::of(frame).unwrap().protocol;
    bytes.extend((transport.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes.extend(transport);
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn tcp(sequence: u32, flags: u8, options: usize, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x13, 0x88, 0x13, 0x89];
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 9, (5 + options as u8) << 4, flags, 1, 0, 0, 0, 0, 0]);
    segment.extend(std::iter::repeat_n(1, 4 * options));
    segment.extend(payload);
    segment
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x13, 0x88, 0x13, 0x89];
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// Puts the pseudo header's sum into the field, as a sender does that leaves the rest to the hardware.
fn unfinished(frame: &mut [u8]) -> Partial {
    let partial = partial_of(frame).unwrap();
    let layers = Layers::of(frame).unwrap();
    let pseudo = !layers.pseudo(frame, layers.protocol, layers.end - layers.transport).finish();
    let field = usize::from(partial.start + partial.offset);
    frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    partial
}

fn pieces(frame: &[u8], offload: &Offload) -> Vec<Vec<u8>> {
    let mut found = vec![];
    let count = segment(frame, offload, &mut vec![], |piece| found.push(piece.to_vec())).unwrap();
    assert_eq!(count, found.len());
    found
}

fn describe(kind: SegmentKind, size: u16, partial: Option<Partial>) -> Offload {
    Offload { partial, segments: Some(Segments { kind, size, header: 0, ecn: false }), verified: false }
}

/// Checks an IP header on its own and gives what is behind it (and behind its extensions).
fn inside(piece: &[u8], v6: bool) -> &[u8] {
    let payload = Ethernet::parse(piece).unwrap().payload();
    if !v6 {
        let ip = Ipv4::parse(payload).unwrap();
        assert!(ip.is_intact());
        assert_eq!(usize::from(be16(payload, 2)), payload.len());
        return ip.payload();
    }
    assert_eq!(Ipv6::parse(payload).unwrap().payload().len(), payload.len() - 40);
    &piece[Layers::of(piece).unwrap().transport..]
}

#[test]
fn the_fields_of_tcp_pieces_are_those_of_a_sender() {
    let payload: Vec<u8> = (0..250u8).collect();
    let mut frame = build(0, false, 0, TCP, &tcp(u32::MAX - 50, 0x99, 3, &payload));
    let partial = unfinished(&mut frame);
    let pieces = pieces(&frame, &describe(SegmentKind::Tcp4, 100, Some(partial)));
    let flags: Vec<u8> = pieces.iter().map(|piece| piece[34 + 13]).collect();
    assert_eq!(flags, [0x90, 0x10, 0x19], "CWR on the first, FIN and PSH on the last");
    let ids: Vec<u16> = pieces.iter().map(|piece| be16(piece, 18)).collect();
    assert_eq!(ids, [0x12fe, 0x12ff, 0x1300]);
    let sequences: Vec<u32> =
        pieces.iter().map(|p| u32::from_be_bytes([p[38], p[39], p[40], p[41]])).collect();
    assert_eq!(sequences, [u32::MAX - 50, 49, 149]);
}

#[test]
fn what_is_no_super_frame_is_refused() {
    let frame = build(0, false, 0, TCP, &tcp(1, 0x10, 0, &[7; 100]));
    let refused = |frame: &[u8], offload: &Offload| {
        segment(frame, offload, &mut vec![], |_| panic!("nothing may come out")).unwrap_err().to_string()
    };
    for (offload, why) in [
        (describe(SegmentKind::Tcp4, 0, None), "segment size 0"),
        (describe(SegmentKind::Tcp6, 10, None), "protocol 6"),
        (describe(SegmentKind::Udp, 10, None), "protocol 6"),
        (describe(SegmentKind::Tcp4, 10, Some(Partial { start: 70, offset: 16 })), "checksum start 70"),
        (Offload::NONE, "no segment size"),
    ] {
        assert!(refused(&frame, &offload).contains(why), "{offload:?}");
    }
    assert!(refused(&frame[..100], &describe(SegmentKind::Tcp4, 10, None)).contains("cut short"));
    assert!(refused(&frame[..20], &describe(SegmentKind::Tcp4, 10, None)).contains("no IP header"));
}

#[test]
fn super_frames_behind_labels_and_in_pbb_are_cut_like_those_without() {
    for v6 in [false, true] {
        let mut plain = build(0, v6, 0, 6, &tcp(7, 0x18, 3, &[5; 300]));
        let partial = unfinished(&mut plain);
        let kind = if v6 { SegmentKind::Tcp6 } else { SegmentKind::Tcp4 };
        let expected = pieces(&plain, &describe(kind, 100, Some(partial)));
        assert_eq!(expected.len(), 3);
        let labels = [&[0x88, 0x47, 0, 1, 0, 9, 0, 1, 0x11, 8][..], &[0x81, 0, 0, 5, 0x88, 0x48, 0, 1, 1, 7]];
        let pbb = [&[0x88, 0xe7, 0, 0, 0, 9][..], &plain[..12], &plain[12..14]].concat();
        for outside in [labels[0], labels[1], &pbb] {
            let wrapped = |frame: &[u8]| [&frame[..12], outside, &frame[14..]].concat();
            let moved = Partial { start: partial.start + outside.len() as u16 - 2, ..partial };
            let cut = pieces(&wrapped(&plain), &describe(kind, 100, Some(moved)));
            assert_eq!(cut, expected.iter().map(|piece| wrapped(piece)).collect::<Vec<_>>(), "{outside:x?}");
            assert!(Layers::begin_with_ip(&plain) && !Layers::begin_with_ip(&wrapped(&plain)));
        }
    }
}

#[test]
fn sctp_gets_its_crc_and_udp_never_a_zero() {
    let mut packet = vec![0x13, 0x88, 0x13, 0x89, 0, 0, 0, 1, 0xee, 0xee, 0xee, 0xee];
    packet.extend(b"an SCTP chunk");
    let mut frame = build(1, false, 0, SCTP, &packet);
    complete(&mut frame, Partial { start: 38, offset: 8 }).unwrap();
    assert_eq!(frame[46..50], crc32c::sctp(&packet));

    // A datagram whose sum is exactly zero: the payload makes up for everything else.
    let mut frame = build(0, false, 0, UDP, &udp(&[0, 0]));
    let partial = unfinished(&mut frame);
    let rest = Sum::new().add_bytes(&frame[34..]).finish();
    frame[42..44].copy_from_slice(&rest.to_be_bytes());
    complete(&mut frame, partial).unwrap();
    assert_eq!(be16(&frame, 40), 0xffff);
    assert_eq!(slow_sum(&frame), 0);
}

fn shape() -> impl Strategy<Value = (usize, bool, usize)> {
    (0usize..3, any::<bool>(), 0usize..4)
}

proptest! {
    #[test]
    fn completed_is_right((_, v6, extra) in shape(), kind in 0usize..3, payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let transport = match kind {
            0 => tcp(7, 0x18, 2, &payload),
            1 => udp(&payload),
            _ => [&[128, 0, 0, 0], &payload[..]].concat(),
        };
        let v6 = v6 || kind == 2;
        let mut frame = build(0, v6, extra, [TCP, UDP, ICMPV6][kind], &transport);
        let partial = unfinished(&mut frame);
        prop_assert_eq!(pseudo_only(&frame), Some(partial));
        complete(&mut frame, partial).unwrap();
        prop_assert_eq!(slow_sum(&frame), 0);
        // Only a sum of the pseudo header that happens to be right may still look unfinished.
        let before = frame.clone();
        if let Some(partial) = pseudo_only(&frame) {
            complete(&mut frame, partial).unwrap();
        }
        prop_assert_eq!(frame, before);
    }

    #[test]
    fn the_place_is_found_behind_tags((tags, v6, extra) in shape()) {
        let frame = build(tags, v6, extra, UDP, &udp(b"x"));
        let start = (frame.len() - 9) as u16;
        prop_assert_eq!(partial_of(&frame), Some(Partial { start, offset: 6 }));
    }

    #[test]
    fn tcp_pieces_join_to_the_stream((_, v6, extra) in shape(), sequence: u32, flags: u8, options in 0usize..11,
                                     size in 1u16..400, payload in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut frame = build(0, v6, extra, TCP, &tcp(sequence, flags, options, &payload));
        let partial = unfinished(&mut frame);
        let kind = if v6 { SegmentKind::Tcp6 } else { SegmentKind::Tcp4 };
        let pieces = pieces(&frame, &describe(kind, size, Some(partial)));
        prop_assert_eq!(pieces.len(), payload.len().div_ceil(usize::from(size)).max(1));
        let (mut stream, mut next): (Vec<u8>, u32) = (vec![], sequence);
        for piece in &pieces {
            let bytes = inside(piece, v6);
            prop_assert_eq!(slow_sum(piece), 0);
            let segment = Tcp::parse(bytes).unwrap();
            prop_assert_eq!(u32::from_be_bytes(bytes[4..8].try_into().unwrap()), next);
            prop_assert!(segment.payload().len() <= usize::from(size));
            next = next.wrapping_add(segment.payload().len() as u32);
            stream.extend(segment.payload());
        }
        prop_assert_eq!(stream, payload);
        let flags_or = pieces.iter().fold(0, |all, piece| all | Tcp::parse(inside(piece, v6)).unwrap().flags());
        prop_assert_eq!(flags_or, flags, "no flag is lost");
    }

    #[test]
    fn udp_pieces_are_datagrams_of_one_size((_, v6, extra) in shape(), with_sum: bool, size in 1u16..400,
                                            payload in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut frame = build(0, v6, extra, UDP, &udp(&payload));
        let partial = with_sum.then(|| unfinished(&mut frame));
        let pieces = pieces(&frame, &describe(SegmentKind::Udp, size, partial));
        let mut joined: Vec<u8> = vec![];
        for (i, piece) in pieces.iter().enumerate() {
            let datagram = Udp::parse(inside(piece, v6)).unwrap();
            prop_assert_eq!(inside(piece, v6).len(), 8 + datagram.payload().len());
            if with_sum || v6 {
                prop_assert!(datagram.checksum() != 0 && slow_sum(piece) == 0);
            } else {
                prop_assert_eq!(datagram.checksum(), 0);
            }
            prop_assert!(i + 1 == pieces.len() || datagram.payload().len() == usize::from(size));
            joined.extend(datagram.payload());
        }
        prop_assert_eq!(joined, payload);
    }

    #[test]
    fn udp_fragments_join_to_the_datagram((_, v6, extra) in shape(), size in 8u16..400,
                                          payload in prop::collection::vec(any::<u8>(), 0..3000)) {
        let mut frame = build(0, v6, extra, UDP, &udp(&payload));
        let partial = unfinished(&mut frame);
        let pieces = pieces(&frame, &describe(SegmentKind::UdpFragments, size, Some(partial)));
        complete(&mut frame, partial).unwrap();
        let whole = frame[usize::from(partial.start)..].to_vec();
        let mut joined = vec![0; whole.len()];
        let mut identifications = vec![];
        for (i, piece) in pieces.iter().enumerate() {
            let bytes = inside(piece, v6);
            let (offset, more) = if v6 && pieces.len() > 1 {
                let header = &piece[piece.len() - bytes.len() - 8..];
                identifications.push(header[4..8].to_vec());
                (usize::from(be16(header, 2) & !7), header[3] & 1 == 1)
            } else if v6 {
                (0, false)
            } else {
                identifications.push(piece[18..20].to_vec());
                (usize::from(be16(piece, 20) & 0x1fff) * 8, be16(piece, 20) & 0x2000 != 0)
            };
            prop_assert_eq!(more, i + 1 < pieces.len());
            joined[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        prop_assert_eq!(joined, whole);
        identifications.dedup();
        prop_assert!(identifications.len() <= 1);
    }

    #[test]
    fn no_bytes_panic(mut frame in prop::collection::vec(any::<u8>(), 0..150), header: [u8; HEADER],
                      (tags, v6, extra) in shape(), protocol in prop::sample::select(vec![TCP, UDP, SCTP, ICMPV6]),
                      at in 0usize..100, byte: u8) {
        let mut other = build(tags, v6, extra, protocol, &frame);
        if let Some(place) = other.get_mut(at) { *place = byte; }
        for frame in [&mut frame, &mut other] {
            let (_, _) = (partial_of(frame), pseudo_only(frame));
            let mut offload = Offload::read(&header).unwrap_or_default();
            let _ = segment(frame, &offload, &mut vec![], |_| {});
            offload.partial = None;
            for kind in [SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp, SegmentKind::UdpFragments] {
                let _ = segment(frame, &describe(kind, 1 + u16::from(byte), None), &mut vec![], |_| {});
            }
            if let Some(partial) = offload.partial.or(partial_of(frame)) { let _ = complete(frame, partial); }
            let _ = complete(frame, Partial { start: u16::from(byte), offset: u16::from(header[0]) });
        }
    }

    #[test]
    fn the_kernels_header_reads_back(kind in 0usize..5, size: u16, length: u16, ecn: bool, partial in prop::option::of(any::<(u16, u16)>())) {
        let kinds = [SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp, SegmentKind::UdpFragments];
        let segments = kinds.get(kind).map(|kind| Segments { kind: *kind, size, header: length, ecn });
        let partial = partial.map(|(start, offset)| Partial { start, offset });
        let offload = Offload { partial, segments, verified: false };
        prop_assert_eq!(Offload::read(&offload.write()), Some(offload));
    }
}
