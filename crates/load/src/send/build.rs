//! A frame from its template, built from scratch: the meaning of a template, and the slow twin of [`super::program`].
//!
//! Layer by layer: the fields with their values, then lengths, then checksums from the innermost to the outermost, each
//! computed over all the bytes that it covers.

use super::template::fields::{Default as Unsaid, HeaderField};
use super::template::{Layer, LayerKind, SHORTEST, Template};
use wire::checksum::Sum;

/// What is written into a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// The planned time, `CLOCK_MONOTONIC` in nanoseconds.
    pub planned_ns: u64,
    /// The same instant in UTC, nanoseconds since 1970.
    pub utc_ns: u64,
}

impl Moment {
    /// The value of a field of frame `n` that nobody said, if it is another in every frame.
    #[inline]
    pub(super) fn of(self, field: Unsaid, n: u64) -> Option<u128> {
        Some(match field {
            Unsaid::Sequence(first) => u128::from(n) + u128::from(first),
            Unsaid::PlannedNs => u128::from(self.planned_ns),
            Unsaid::Seconds => u128::from(self.utc_ns / 1_000_000_000),
            Unsaid::Microseconds => u128::from(self.utc_ns / 1000 % 1_000_000),
            _ => return None,
        })
    }
}

/// Where a layer begins in the frame.
pub(super) fn starts(template: &Template) -> Vec<usize> {
    let lengths = template.layers.iter().map(Layer::length);
    lengths
        .scan(0, |at, length| {
            *at += length;
            Some(*at - length)
        })
        .collect()
}

/// The frame `n` of a template.
pub fn build(template: &Template, n: u64, moment: Moment) -> Vec<u8> {
    let size = template.size.as_ref().map(|size| size.at(n, template.seed));
    build_sized(template, size, n, moment)
}

/// The frame `n`, but of that size.
pub(super) fn build_sized(template: &Template, size: Option<usize>, n: u64, moment: Moment) -> Vec<u8> {
    let end = size.unwrap_or(template.shortest());
    let mut frame = vec![0; if size.is_some() { end } else { end.max(SHORTEST) }];
    let starts = starts(template);
    for (index, layer) in template.layers.iter().enumerate() {
        write_layer(template, index, starts[index], &mut frame[..end], n, moment);
        let options = starts[index] + layer.kind.facts().bytes;
        frame[options..options + layer.options.len()].copy_from_slice(&layer.options);
        if let Some(bytes) = &layer.bytes {
            bytes.fill(&mut frame[starts[index]..end], template.seed_of(index, 0));
        }
    }
    for index in (0..template.layers.len()).rev() {
        write_checksum(template, index, &starts, &mut frame[..end]);
    }
    frame
}

fn write_layer(template: &Template, index: usize, start: usize, frame: &mut [u8], n: u64, moment: Moment) {
    let layer = &template.layers[index];
    for (number, field) in layer.kind.facts().fields.iter().enumerate() {
        let value = match layer.get(field.name) {
            Some(value) => value.at(n, template.flows, template.seed_of(index, number)),
            None if covered(layer, field) => continue,
            None => unsaid(template, index, start, field, frame.len(), n, moment),
        };
        put(frame, start * 8 + field.bit, field.bits, value);
    }
}

/// True when another field that is set lies over this one (`tos` over `dscp` and `ecn`), or when this is the whole of
/// which parts are set.
pub(super) fn covered(layer: &Layer, field: &HeaderField) -> bool {
    let lies_over =
        |other: &HeaderField| field.bit < other.bit + other.bits && other.bit < field.bit + field.bits;
    layer.fields.iter().any(|(other, _)| other.name != field.name && lies_over(other)) && field.name == "tos"
        || layer.get("tos").is_some() && matches!(field.name, "dscp" | "ecn")
}

/// The value of a field of which the template says nothing; a checksum is 0 until it is computed.
fn unsaid(
    template: &Template,
    index: usize,
    start: usize,
    field: &HeaderField,
    end: usize,
    n: u64,
    moment: Moment,
) -> u128 {
    let layer = &template.layers[index];
    match field.default {
        Unsaid::Number(number) | Unsaid::Address(number) => number,
        Unsaid::Next => next_number(template, index, field),
        Unsaid::Length(less) => (end - start).saturating_sub(usize::from(less)) as u128,
        Unsaid::HeaderWords => ((layer.kind.facts().bytes + layer.options.len()) / 4) as u128,
        Unsaid::Bottom => {
            u128::from(template.layers.get(index + 1).is_none_or(|next| next.kind != LayerKind::Mpls))
        }
        Unsaid::Checksum => 0,
        field => moment.of(field, n).unwrap_or(0),
    }
}

fn next_number(template: &Template, index: usize, field: &HeaderField) -> u128 {
    let next = template.layers.get(index + 1).map_or(LayerKind::Payload, |next| next.kind);
    if field.bits == 16 { next.facts().ethertype.into() } else { next.facts().protocol.into() }
}

/// Writes the lowest `bits` bits of `value` from bit `at` on, the highest first; other bits stay.
pub(super) fn put(frame: &mut [u8], at: usize, bits: usize, value: u128) {
    for i in 0..bits {
        let bit = at + bits - 1 - i;
        let mask = 0x80u8 >> (bit % 8);
        if value >> i & 1 == 1 { frame[bit / 8] |= mask } else { frame[bit / 8] &= !mask }
    }
}

/// Where the checksum of a layer stands, where its sum begins and ends, and what of the layer below belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coverage {
    pub field: usize,
    pub from: usize,
    /// None: to the end of the data.
    pub to: Option<usize>,
    /// Where the addresses of the pseudo header stand, how many bytes they have, and the protocol number.
    pub pseudo: Option<(usize, usize, u8)>,
    /// A checksum of 0 is sent as all ones.
    pub zero_is_none: bool,
}

/// What the checksum of a layer covers; none when it has none or the template sets it.
pub(super) fn coverage(template: &Template, index: usize, starts: &[usize]) -> Option<Coverage> {
    let layer = &template.layers[index];
    let field = layer.kind.field("checksum")?;
    if layer.get("checksum").is_some() {
        return None;
    }
    let start = starts[index];
    let to = (layer.kind == LayerKind::Ipv4).then(|| start + layer.kind.facts().bytes + layer.options.len());
    let below = index.checked_sub(1).map(|below| (template.layers[below].kind, starts[below]));
    let protocol = layer.kind.facts().protocol;
    let pseudo = match (layer.kind, below) {
        (LayerKind::Udp | LayerKind::Tcp, Some((LayerKind::Ipv4, ip))) => Some((ip + 12, 8, protocol)),
        (LayerKind::Udp | LayerKind::Tcp | LayerKind::Icmpv6, Some((LayerKind::Ipv6, ip))) => {
            Some((ip + 8, 32, protocol))
        }
        _ => None,
    };
    let zero_is_none = layer.kind == LayerKind::Udp;
    Some(Coverage { field: start + field.bit / 8, from: start, to, pseudo, zero_is_none })
}

fn write_checksum(template: &Template, index: usize, starts: &[usize], frame: &mut [u8]) {
    let Some(coverage) = coverage(template, index, starts) else { return };
    let covered = &frame[coverage.from..coverage.to.unwrap_or(frame.len())];
    let sum = coverage.pseudo.map_or(Sum::new(), |(at, bytes, protocol)| {
        let length = (covered.len() as u32).to_be_bytes();
        Sum::new().add_bytes(&frame[at..at + bytes]).add_word(protocol.into()).add_bytes(&length)
    });
    let checksum = match sum.add_bytes(covered).finish() {
        // RFC 768: zero would mean that there is no checksum.
        0 if coverage.zero_is_none => 0xffff,
        sum => sum,
    };
    frame[coverage.field..coverage.field + 2].copy_from_slice(&checksum.to_be_bytes());
}
