//! Any frame under any edits: nothing panics, a refusal changes nothing, the headers are those of the bytes, and a field
//! that was set reads back.

use wire::edit::{FrameBuf, Refused};
use wire::field::{Field, Row, TABLE};
use wire::headers::Headers;
use wire::offload::{Offload, Partial};

/// One byte says how many edits follow, of three bytes each; two bytes are a place of an unfinished checksum; the rest is
/// the frame.
pub fn edit(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let Some((edits, rest)) = rest.split_at_checked(3 * usize::from(count % 16)) else { return };
    let Some((&[start, offset], frame)) = rest.split_first_chunk() else { return };
    let partial = (start != 0).then_some(Partial { start: start.into(), offset: offset.into() });
    let mut buffer = FrameBuf::new();
    buffer.load(frame, Offload { partial, ..Offload::NONE });
    for edit in edits.as_chunks().0 {
        let before = buffer.bytes().to_vec();
        if one(&mut buffer, *edit).is_err() {
            assert_eq!(buffer.bytes(), before);
        }
        assert_eq!(buffer.headers(), &Headers::parse(buffer.bytes()));
        for &Row { field, bits, .. } in TABLE {
            assert!(buffer.get(field).is_none_or(|value| value >> (bits - 1) <= 1));
        }
    }
}

fn one(frame: &mut FrameBuf, [kind, a, b]: [u8; 3]) -> Result<(), Refused> {
    let word = u16::from_be_bytes([a, b]);
    match kind {
        0 => frame.push_vlan(word),
        1 => frame.pop_vlan(),
        2 => frame.push_mpls(word),
        3 => frame.pop_mpls(word),
        4 => frame.push_pbb(word),
        5 => frame.pop_pbb(),
        6 => frame.set_nw_ttl(a),
        7 => frame.dec_nw_ttl(),
        8 => frame.set_mpls_ttl(a),
        9 => frame.dec_mpls_ttl(),
        10 => frame.copy_ttl_out(),
        11 => frame.copy_ttl_in(),
        _ => set(frame, kind, word),
    }
}

fn set(frame: &mut FrameBuf, kind: u8, word: u16) -> Result<(), Refused> {
    let Row { field, bits, .. } = TABLE[usize::from(kind) % TABLE.len()];
    // The same two bytes over and over, as many as the field has.
    let value = (u128::MAX / 0xffff * u128::from(word)) >> (128 - bits);
    frame.set(field, value)?;
    if !matches!(field, Field::EthType | Field::IpProto | Field::Icmpv6Type) {
        assert_eq!(frame.get(field), Some(value));
    }
    Ok(())
}
