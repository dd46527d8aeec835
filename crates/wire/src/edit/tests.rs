use super::*;
use crate::checksum::checksum;
use crate::field::{Row, TABLE};
use crate::frame::{MPLS, MPLS_MULTICAST, PBB};
use crate::headers::tests::any_frame;
use crate::headers::{SERVICE_VLAN, VLAN};
use crate::layers::Fragment;
use crate::offload::{Offload, SegmentKind, Segments, complete};
use crate::repair::{Check, Protocol, check, repair};
use crate::{be16, crc32c};
use proptest::collection::vec;
use proptest::prelude::*;

mod cases;
mod twin;

/// Every edit that there is.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Set(Field, u128),
    PushVlan(u16),
    PopVlan,
    PushMpls(u16),
    PopMpls(u16),
    PushPbb,
    PopPbb,
    SetNwTtl(u8),
    DecNwTtl,
    SetMplsTtl(u8),
    DecMplsTtl,
    CopyTtlOut,
    CopyTtlIn,
}

impl Edit {
    fn apply(self, frame: &mut FrameBuf) -> Result<(), Refused> {
        match self {
            Edit::Set(field, value) => frame.set(field, value),
            Edit::PushVlan(ethertype) => frame.push_vlan(ethertype),
            Edit::PopVlan => frame.pop_vlan(),
            Edit::PushMpls(ethertype) => frame.push_mpls(ethertype),
            Edit::PopMpls(ethertype) => frame.pop_mpls(ethertype),
            Edit::PushPbb => frame.push_pbb(PBB),
            Edit::PopPbb => frame.pop_pbb(),
            Edit::SetNwTtl(ttl) => frame.set_nw_ttl(ttl),
            Edit::DecNwTtl => frame.dec_nw_ttl(),
            Edit::SetMplsTtl(ttl) => frame.set_mpls_ttl(ttl),
            Edit::DecMplsTtl => frame.dec_mpls_ttl(),
            Edit::CopyTtlOut => frame.copy_ttl_out(),
            Edit::CopyTtlIn => frame.copy_ttl_in(),
        }
    }
}

/// A field and a value that it can have.
fn any_set() -> impl Strategy<Value = (Field, u128)> {
    (prop::sample::select(TABLE), any::<u128>(), any::<bool>()).prop_map(
        |(Row { field, bits, .. }, value, edge)| {
            let value = if edge { [0, u128::MAX][value as usize % 2] } else { value };
            let value = if bits == 128 { value } else { value & ((1 << bits) - 1) };
            (field, if field == Field::VlanVid { value | 0x1000 } else { value })
        },
    )
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let vlan = prop::sample::select(vec![VLAN, SERVICE_VLAN]);
    let mpls = prop::sample::select(vec![MPLS, MPLS_MULTICAST]);
    prop_oneof![
        12 => any_set().prop_map(|(field, value)| Edit::Set(field, value)),
        2 => vlan.prop_map(Edit::PushVlan),
        2 => Just(Edit::PopVlan),
        2 => mpls.prop_map(Edit::PushMpls),
        2 => prop::sample::select(vec![0x0800, 0x86dd, 0x8847, 0x8100]).prop_map(Edit::PopMpls),
        1 => Just(Edit::PushPbb),
        1 => Just(Edit::PopPbb),
        1 => any::<u8>().prop_map(Edit::SetNwTtl),
        1 => Just(Edit::DecNwTtl),
        1 => any::<u8>().prop_map(Edit::SetMplsTtl),
        1 => Just(Edit::DecMplsTtl),
        1 => Just(Edit::CopyTtlOut),
        1 => Just(Edit::CopyTtlIn),
    ]
}

fn loaded(frame: &[u8]) -> FrameBuf {
    let mut buffer = FrameBuf::new();
    buffer.load(frame, Offload::NONE);
    buffer
}

/// True for a frame that was longer by so many bytes in between: it is the same, and filled up when it came to be shorter
/// than 60.
fn is_filled(frame: &[u8], grown: usize, now: &[u8]) -> bool {
    let length = if frame.len() + grown >= 60 { frame.len().max(60) } else { frame.len() };
    now.len() == length && now.starts_with(frame) && now[frame.len()..].iter().all(|byte| *byte == 0)
}

fn set_alone(frame: &[u8], field: Field, value: u128) -> Vec<u8> {
    let mut buffer = loaded(frame);
    buffer.set(field, value).unwrap();
    buffer.bytes().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_field_that_was_set_reads_back(frame in any_frame::whole(), (field, value) in any_set()) {
        let mut buffer = loaded(&frame);
        let is_here = buffer.headers().spot(field).is_some();
        match buffer.set(field, value) {
            Ok(()) => {
                let expected = if matches!(field, Field::EthType | Field::IpProto) { None } else { Some(value) };
                // Another ethertype or protocol is another header, in which the field may not be found again.
                let found = buffer.get(field);
                prop_assert!(expected.is_none() || found == expected, "{found:?}");
            }
            Err(refused) => {
                prop_assert!(!is_here || refused == Refused::Checksum, "{refused:?}");
                prop_assert_eq!(buffer.bytes(), &frame[..]);
            }
        }
    }

    /// The clever path against the slow twin, edit after edit.
    #[test]
    fn edits_are_those_of_the_slow_twin(frame in any_frame::whole(), edits in vec(any_edit(), 1..12)) {
        let mut buffer = loaded(&frame);
        let mut pushed = vec![];
        for edit in edits {
            let before = buffer.bytes().to_vec();
            let Some(edit) = twin::tame(edit, &before, &mut pushed) else { continue };
            let expected = twin::apply(edit, &before);
            let result = edit.apply(&mut buffer);
            prop_assert_eq!(buffer.headers(), &Headers::parse(buffer.bytes()));
            match (expected, result) {
                (Ok(expected), Ok(())) => {
                    let difference = expected.difference(buffer.bytes());
                    prop_assert!(difference.is_none(), "{edit:?} of {before:02x?}: {difference:?}");
                }
                (expected, result) => {
                    prop_assert_eq!(result, expected.map(|_| ()), "{:?} of {:02x?}", edit, before);
                    prop_assert_eq!(buffer.bytes(), &before[..]);
                }
            }
        }
    }

    #[test]
    fn a_right_frame_stays_right(frame in any_frame::whole(), sets in vec(any_set(), 1..6)) {
        let mut buffer = loaded(&frame);
        prop_assert!(!check(&frame).wants_repair());
        for (field, value) in sets {
            // These change what the bytes mean.
            if !matches!(field, Field::EthType | Field::IpProto) {
                let _ = buffer.set(field, value);
            }
        }
        prop_assert_eq!(check(buffer.bytes()), check(&frame));
    }

    #[test]
    fn a_wrong_frame_stays_wrong(frame in any_frame::whole(), sets in vec(any_set(), 1..6), at: prop::sample::Index, bit in 0u32..8) {
        // A bit of the payload, where no field is.
        let Some(layers) = Layers::of(&frame) else { return Ok(()) };
        let payload = layers.transport + 34..layers.end.min(frame.len());
        if payload.is_empty() || !matches!(check(&frame).transport, Some((_, Check::Right))) { return Ok(()) }
        let mut damaged = frame.clone();
        damaged[payload.start + at.index(payload.len())] ^= 1 << bit;
        let mut buffer = loaded(&damaged);
        for (field, value) in sets {
            if !matches!(field, Field::EthType | Field::IpProto) {
                let _ = buffer.set(field, value);
            }
        }
        let verdict = check(buffer.bytes()).transport.map(|(_, check)| check);
        prop_assert!(matches!(verdict, Some(Check::Wrong | Check::Missing | Check::Unfinished)), "{verdict:?}");
    }

    #[test]
    fn what_was_pushed_can_be_popped(frame in any_frame::whole()) {
        let below = be16(&frame, 12);
        for ethertype in [VLAN, SERVICE_VLAN] {
            let mut buffer = loaded(&frame);
            buffer.push_vlan(ethertype).unwrap();
            buffer.pop_vlan().unwrap();
            prop_assert!(is_filled(&frame, 4, buffer.bytes()));
        }
        for ethertype in [MPLS, MPLS_MULTICAST] {
            let mut buffer = loaded(&frame);
            buffer.push_mpls(ethertype).unwrap();
            buffer.pop_mpls(below).unwrap();
            prop_assert!(is_filled(&frame, 4, buffer.bytes()));
        }
        let mut buffer = loaded(&frame);
        buffer.push_pbb(PBB).unwrap();
        buffer.pop_pbb().unwrap();
        prop_assert!(is_filled(&frame, 18, buffer.bytes()));
        // All of them at once, in the order of an action set, many times more than there is room for.
        let mut buffer = loaded(&frame);
        for _ in 0..9 {
            buffer.push_mpls(MPLS).unwrap();
            buffer.push_pbb(PBB).unwrap();
            buffer.push_vlan(VLAN).unwrap();
        }
        prop_assert_eq!(buffer.bytes().len(), frame.len() + 9 * 26);
        for level in (0..9).rev() {
            buffer.pop_vlan().unwrap();
            buffer.pop_pbb().unwrap();
            buffer.pop_mpls(if level == 0 { below } else { VLAN }).unwrap();
        }
        prop_assert!(is_filled(&frame, 9 * 26, buffer.bytes()));
        prop_assert_eq!(buffer.headers(), &Headers::parse(buffer.bytes()));
    }

    /// RFC 1624 needs no other byte than those that changed: the first fragment of an edited datagram is the edited first
    /// fragment.
    #[test]
    fn first_fragments_are_edited_like_the_whole(frame in any_frame::whole(), (field, value) in any_set()) {
        let Some(cut) = first_fragment(&frame) else { return Ok(()) };
        let headers = Headers::parse(&cut);
        if headers.transport().is_none() { return Ok(()) }
        prop_assert_eq!(headers.ip().unwrap().fragment, Fragment::First);
        let (mut whole, mut part) = (loaded(&frame), loaded(&cut));
        let is_sctp = matches!(headers.transport(), Some((Protocol::Sctp, _)));
        if is_sctp && matches!(field, Field::SctpSrc | Field::SctpDst) {
            prop_assert_eq!(part.set(field, value), Err(Refused::Checksum));
            prop_assert_eq!(part.bytes(), &cut[..]);
        } else if headers.spot(field).is_some() && field != Field::EthType {
            prop_assert_eq!(part.set(field, value), whole.set(field, value));
            prop_assert_eq!(first_fragment(whole.bytes()), Some(part.bytes().to_vec()));
        }
    }

    /// To edit and then let the hardware finish is to finish and then edit.
    #[test]
    fn unfinished_checksums_follow_the_addresses_only(frame in any_frame::whole(), edits in vec(any_edit(), 1..6)) {
        let Some((protocol, Check::Right)) = check(&frame).transport else { return Ok(()) };
        if protocol == Protocol::Icmp { return Ok(()) }
        let layers = Layers::of(&frame).unwrap();
        let (start, offset) = (layers.transport as u16, protocol.shape().1 as u16);
        let partial = Partial { start, offset };
        let field = layers.transport + protocol.shape().1;
        // `complete` sums to the end of the frame, so there must be no padding.
        let frame = &frame[..layers.end];
        let mut unfinished = frame.to_vec();
        if protocol == Protocol::Sctp {
            unfinished[field..field + 4].fill(0);
        } else {
            let pseudo = !layers.pseudo(frame, layers.protocol, layers.end - layers.transport).finish();
            unfinished[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        }
        let segments = Some(Segments { kind: SegmentKind::Tcp4, size: 1000, header: start + 20, ecn: false });
        let mut hardware = FrameBuf::new();
        hardware.load(&unfinished, Offload { partial: Some(partial), segments, verified: false });
        let mut software = loaded(frame);
        let mut pushed = vec![];
        for edit in edits {
            if let Edit::Set(Field::EthType | Field::IpProto, _) = edit { continue }
            let Some(edit) = twin::tame(edit, software.bytes(), &mut pushed) else { continue };
            prop_assert_eq!(edit.apply(&mut hardware), edit.apply(&mut software));
        }
        let mut finished = hardware.bytes().to_vec();
        let partial = hardware.offload().partial.unwrap();
        prop_assert_eq!(hardware.offload().segments.unwrap().header, partial.start + 20);
        let grown = finished.len() as i64 - frame.len() as i64;
        prop_assert_eq!(i64::from(partial.start), i64::from(start) + grown);
        if protocol == Protocol::Sctp && partial.start != start {
            // `complete` finds SCTP by its headers, which a push may have hidden.
            let crc = crc32c::sctp(&finished[partial.start as usize..]);
            finished[partial.start as usize + 8..][..4].copy_from_slice(&crc);
        } else if protocol == Protocol::Sctp {
            let crc = crc32c::sctp(&finished[start as usize..]);
            finished[field..field + 4].copy_from_slice(&crc);
        } else {
            complete(&mut finished, partial).unwrap();
        }
        // Linux writes ones for a sum of zero whatever the protocol; both zeros are right.
        let at = usize::from(partial.start + partial.offset);
        if protocol != Protocol::Sctp && be16(&finished, at) == 0xffff && be16(software.bytes(), at) == 0 {
            finished[at..at + 2].fill(0);
        }
        // Only the finished one may be filled up.
        let (same, filling) = software.bytes().split_at(finished.len());
        prop_assert_eq!(&finished[..], same);
        prop_assert!(filling.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn no_bytes_panic_and_a_refusal_changes_nothing(mut frame in any_frame::whole(), edits in vec(any_edit(), 1..8),
                                                    damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        for (at, byte) in damage {
            let at = at.index(frame.len().min(90));
            frame[at] = byte;
        }
        let mut buffer = loaded(&frame);
        for edit in edits {
            let before = buffer.bytes().to_vec();
            if edit.apply(&mut buffer).is_err() {
                prop_assert_eq!(buffer.bytes(), &before[..]);
            }
            prop_assert_eq!(buffer.headers(), &Headers::parse(buffer.bytes()));
        }
    }
}

proptest! {
    /// At every length: what is no longer there is not changed.
    #[test]
    fn truncated_at_every_length(frame in any_frame::whole(), edits in vec(any_edit(), 4)) {
        for length in 0..frame.len() {
            for edit in &edits {
                let cut = &frame[..length];
                let mut buffer = loaded(cut);
                let headers = *buffer.headers();
                let result = edit.apply(&mut buffer);
                if let Edit::Set(field, _) = edit {
                    prop_assert!(result.is_err() || headers.spot(*field).is_some());
                    prop_assert_eq!(buffer.bytes().len(), length);
                }
                if result.is_err() {
                    prop_assert_eq!(buffer.bytes(), cut);
                }
                if length < 14 {
                    prop_assert!(result.is_err());
                }
            }
        }
    }
}

/// The first fragment of a whole IPv4 datagram: 24 bytes, which hold every field of a transport over IPv4.
fn first_fragment(frame: &[u8]) -> Option<Vec<u8>> {
    let headers = Headers::parse(frame);
    let layers = headers.ip().filter(|ip| !ip.is_v6 && ip.fragment == Fragment::Whole)?;
    if layers.end < layers.transport + 32 || layers.is_cut(frame) {
        return None;
    }
    let mut cut = frame[..layers.transport + 24].to_vec();
    let n = layers.network;
    let total = (cut.len() - n) as u16;
    cut[n + 2..n + 4].copy_from_slice(&total.to_be_bytes());
    cut[n + 6..n + 8].copy_from_slice(&[0x20, 0]);
    cut[n + 10..n + 12].fill(0);
    let sum = checksum(&cut[n..layers.transport]);
    cut[n + 10..n + 12].copy_from_slice(&sum.to_be_bytes());
    Some(cut)
}
