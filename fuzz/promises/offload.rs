//! What the kernel leaves undone: partial checksums and super-frames.

use wire::layers::{Fragment, Layers, SCTP};
use wire::offload::{self, Cut, HEADER, Offload, Partial, SegmentKind, Segments};
use wire::repair::{self, Check};

/// Any bytes as a `virtio_net_hdr` and a frame: the header reads back; a checksum is completed as the slow sum says and
/// nowhere else; a super-frame is refused or becomes whole frames that join to what was cut.
pub fn offload(bytes: &[u8]) {
    let Some((header, frame)) = bytes.split_first_chunk::<HEADER>() else { return };
    for place in [offload::partial_of(frame), offload::pseudo_only(frame)].into_iter().flatten() {
        completed(frame, place);
    }
    let Some(described) = Offload::read(header) else { return };
    let again = Offload::read(&described.write()).expect("what was written is read");
    assert_eq!((again.partial, again.segments), (described.partial, described.segments));
    assert_eq!(again.verified, described.verified && described.partial.is_none());
    if let Some(partial) = described.partial {
        completed(frame, partial);
    }
    let mut pieces = vec![];
    let cut = offload::segment(frame, &described, &mut vec![], |piece| pieces.push(piece.to_vec()));
    match cut {
        Ok(count) => {
            assert_eq!(count, pieces.len());
            let cut = Cut::new(frame, &described).expect("it was cut before");
            assert_eq!(count, cut.count());
            pieces.iter().enumerate().for_each(|(i, piece)| assert_eq!(piece.len(), cut.length(i)));
            joined(frame, &described, &described.segments.expect("it was cut"), &pieces);
        }
        Err(malformed) => assert!(pieces.is_empty() && !malformed.to_string().is_empty()),
    }
}

/// Completing writes the sum of everything behind `start`, and nothing else.
fn completed(frame: &[u8], partial: Partial) {
    let start = usize::from(partial.start);
    let field = start + usize::from(partial.offset);
    let mut done = frame.to_vec();
    if offload::complete(&mut done, partial).is_err() {
        assert!(field + 2 > frame.len() && done == frame, "refused without a reason");
        return;
    }
    let sctp = Layers::of(frame).is_some_and(|l| l.protocol == SCTP && l.transport == start);
    let expected = if sctp && partial.offset == 8 && field + 4 <= frame.len() {
        slow_crc(&frame[start..]).to_vec()
    } else {
        let sum = !slow_sum(&frame[start..], 0);
        (if sum == 0 { 0xffff } else { sum }).to_be_bytes().to_vec()
    };
    let mut twin = frame.to_vec();
    twin[field..field + expected.len()].copy_from_slice(&expected);
    assert_eq!(done, twin, "{partial:?}");
}

/// One's complement sum, a word at a time.
fn slow_sum(bytes: &[u8], begin: u16) -> u16 {
    bytes.chunks(2).fold(begin, |sum, pair| {
        let word = u16::from(pair[0]) << 8 | u16::from(*pair.get(1).unwrap_or(&0));
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}

/// CRC32c of an SCTP packet whose checksum counts as zero, a bit at a time.
fn slow_crc(packet: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for (i, byte) in packet.iter().enumerate() {
        crc ^= u32::from(if (8..12).contains(&i) { 0 } else { *byte });
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    (!crc).to_le_bytes()
}

/// Every piece is a whole frame with right checksums, no longer than asked for; together they are what was cut.
fn joined(frame: &[u8], described: &Offload, segments: &Segments, pieces: &[Vec<u8>]) {
    let whole = Layers::of(frame).expect("it was cut");
    let fragments = segments.kind == SegmentKind::UdpFragments;
    let head = whole.transport
        + match segments.kind {
            SegmentKind::Tcp4 | SegmentKind::Tcp6 => {
                (usize::from(frame[whole.transport + 12] >> 4) * 4).max(20)
            }
            SegmentKind::Udp => 8,
            SegmentKind::UdpFragments => 0,
        };
    let mut stream: Vec<u8> = vec![];
    for (number, piece) in pieces.iter().enumerate() {
        let layers = Layers::of(piece).expect("a piece is a frame");
        assert_eq!((layers.end, layers.network, layers.is_v6), (piece.len(), whole.network, whole.is_v6));
        let checks = repair::check(piece);
        assert_eq!(checks.ipv4.unwrap_or(Check::Right), Check::Right, "piece {number}");
        assert_eq!(layers.fragment == Fragment::Whole, !fragments || pieces.len() == 1);
        if let (false, Some((_, check))) = (fragments, checks.transport) {
            let fine = matches!(check, Check::Right | Check::Unfinished | Check::Unused);
            assert!(fine, "piece {number}: {check:?}");
        }
        let from = if fragments { layers.transport } else { head };
        let payload = &piece[from..];
        assert!(payload.len() <= usize::from(segments.size));
        assert!(!payload.is_empty() || pieces.len() == 1);
        stream.extend(payload);
    }
    let mut expected = frame[head..whole.end].to_vec();
    if fragments && described.partial.is_some() && expected.len() >= 8 {
        // The datagram's checksum was completed in the first piece.
        let pseudo = !whole.pseudo(frame, whole.protocol, whole.end - whole.transport).finish();
        let sum = !slow_sum(&expected[8..], slow_sum(&expected[..6], pseudo));
        expected[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
    }
    assert!(stream == expected, "the pieces do not join: {described:?}");
}
