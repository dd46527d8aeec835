//! A super-frame becomes frames.
//!
//! **What.** [`Cut`] knows how many pieces a super-frame has and writes any of them: TCP segments, UDP datagrams of one
//! size, or IP fragments of one UDP datagram. Every piece is complete, checksums included.
//!
//! **Why.** A port that cannot hand a super-frame on must cut it just as the kernel would (`tcp_gso_segment`,
//! `__udp_gso_segment`, `inet_gso_segment` of Linux), or the far end sees a damaged stream. The conformance test sends
//! the same super-frames through the kernel and compares.
//!
//! **Price.** Each payload byte is copied once and summed once. Super-frames inside tunnels of IP and jumbograms with an
//! option for their length are refused.

use super::{Offload, SegmentKind, Segments};
use crate::checksum::write_ipv4;
use crate::frame::{TCP, UDP};
use crate::layers::{Fragment, Layers};
use crate::refuse_if;
use crate::{Malformed, be16};

const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
/// The IPv6 fragment header, which each piece of a cut datagram gets.
const FRAGMENT_HEADER: usize = 8;
/// IP protocol number of that header.
const FRAGMENT: u8 = 44;

/// A super-frame about to be cut.
#[derive(Debug, Clone, Copy)]
pub struct Cut<'a> {
    frame: &'a [u8],
    layers: Layers,
    kind: SegmentKind,
    /// Bytes of the super-frame that every piece repeats.
    head: usize,
    /// Payload bytes of each piece but the last.
    size: usize,
    /// The checksum that the first of several fragments carries, over the whole datagram.
    datagram_sum: Option<u16>,
}

impl<'a> Cut<'a> {
    /// Checks that the frame is such a super-frame.
    ///
    /// # Errors
    /// [`Malformed`]: the headers are not what the description says, or bytes are missing.
    pub fn new(frame: &'a [u8], offload: &Offload) -> Result<Self, Malformed> {
        let field = |field, value| Malformed::Field { header: "super-frame", field, value };
        let segments = offload.segments.ok_or(field("no segment size", 0))?;
        let layers = Layers::inside(frame).ok_or(field("no IP header", 0))?;
        let (protocol, v6) = match segments.kind {
            SegmentKind::Tcp4 => (TCP, Some(false)),
            SegmentKind::Tcp6 => (TCP, Some(true)),
            SegmentKind::Udp | SegmentKind::UdpFragments => (UDP, None),
        };
        if layers.protocol != protocol || v6.is_some_and(|v6| v6 != layers.is_v6) {
            return Err(field("protocol", u32::from(layers.protocol)));
        }
        if layers.fragment != Fragment::Whole {
            return Err(field("a fragment", 1));
        }
        if let Some(partial) = offload.partial
            && usize::from(partial.start) != layers.transport
        {
            return Err(field("checksum start", u32::from(partial.start)));
        }
        if layers.is_cut(frame) {
            return Err(Malformed::Truncated { header: "super-frame", need: layers.end, have: frame.len() });
        }
        let head = head(frame, &layers, &segments)?;
        let size = match segments.kind {
            SegmentKind::UdpFragments => usize::from(segments.size) & !7,
            _ => usize::from(segments.size),
        };
        if size == 0 || head + size - layers.network > usize::from(u16::MAX) {
            return Err(field("segment size", u32::from(segments.size)));
        }
        let mut cut = Cut { frame, layers, kind: segments.kind, head, size, datagram_sum: None };
        if cut.kind == SegmentKind::UdpFragments && offload.partial.is_some() {
            cut.datagram_sum = Some(cut.transport_sum(frame, layers.end));
        }
        Ok(cut)
    }

    /// How many pieces.
    pub fn count(&self) -> usize {
        (self.layers.end - self.head).div_ceil(self.size).max(1)
    }

    /// Bytes that are dealt out to the pieces.
    pub(super) fn payload_bytes(&self) -> usize {
        self.layers.end - self.head
    }

    /// Bytes of a piece.
    ///
    /// # Panics
    /// When there is no such piece.
    pub fn length(&self, piece: usize) -> usize {
        let (from, to) = self.payload(piece);
        self.head + self.inserted() + to - from
    }

    /// Bytes of the longest piece.
    pub fn longest(&self) -> usize {
        self.length(0)
    }

    /// Writes a piece to the beginning of `to`; its length.
    ///
    /// # Panics
    /// When there is no such piece, or `to` is shorter than [`Cut::length`].
    pub fn write(&self, piece: usize, to: &mut [u8]) -> usize {
        let (from, end) = self.payload(piece);
        let (head, inserted, length) = (self.head, self.inserted(), self.length(piece));
        let to = &mut to[..length];
        to[..head].copy_from_slice(&self.frame[..head]);
        to[head + inserted..].copy_from_slice(&self.frame[from..end]);
        match self.kind {
            SegmentKind::Tcp4 | SegmentKind::Tcp6 => self.write_tcp(piece, to),
            SegmentKind::Udp => self.write_udp(to),
            SegmentKind::UdpFragments => self.write_fragment(piece, to),
        }
        self.write_ip(piece, to);
        length
    }

    /// Where a piece's payload begins and ends in the super-frame.
    fn payload(&self, piece: usize) -> (usize, usize) {
        assert!(piece < self.count(), "piece {piece} of {}", self.count());
        let from = self.head + piece * self.size;
        (from, (from + self.size).min(self.layers.end))
    }

    fn is_last(&self, piece: usize) -> bool {
        piece + 1 == self.count()
    }

    /// Bytes that each piece has and the super-frame has not.
    fn inserted(&self) -> usize {
        let fragments_v6 = self.kind == SegmentKind::UdpFragments && self.layers.is_v6 && self.count() > 1;
        if fragments_v6 { FRAGMENT_HEADER } else { 0 }
    }

    fn write_tcp(&self, piece: usize, to: &mut [u8]) {
        let t = self.layers.transport;
        let sequence = u32::from_be_bytes([to[t + 4], to[t + 5], to[t + 6], to[t + 7]]);
        // RFC 9293: the sequence number counts the payload; it wraps.
        let sequence = sequence.wrapping_add((piece * self.size) as u32);
        to[t + 4..t + 8].copy_from_slice(&sequence.to_be_bytes());
        if !self.is_last(piece) {
            to[t + 13] &= !FIN_AND_PSH;
        }
        if piece > 0 {
            // RFC 3168 section 6.1.2: the answer to one congestion signal is told once.
            to[t + 13] &= !CWR;
        }
        to[t + 16..t + 18].fill(0);
        let sum = self.transport_sum(to, to.len());
        to[t + 16..t + 18].copy_from_slice(&sum.to_be_bytes());
    }

    fn write_udp(&self, to: &mut [u8]) {
        let t = self.layers.transport;
        let length = (to.len() - t) as u16;
        to[t + 4..t + 6].copy_from_slice(&length.to_be_bytes());
        if be16(to, t + 6) == 0 && !self.layers.is_v6 {
            return; // RFC 768: the sender did not want a checksum
        }
        to[t + 6..t + 8].fill(0);
        let sum = never_zero(self.transport_sum(to, to.len()));
        to[t + 6..t + 8].copy_from_slice(&sum.to_be_bytes());
    }

    fn write_fragment(&self, piece: usize, to: &mut [u8]) {
        let t = self.layers.transport;
        let at = t + self.inserted();
        if let (0, Some(sum)) = (piece, self.datagram_sum) {
            to[at + 6..at + 8].copy_from_slice(&never_zero(sum).to_be_bytes());
        }
        if self.inserted() > 0 {
            let offset = (piece * self.size) as u16 | u16::from(!self.is_last(piece));
            to[t..t + 2].copy_from_slice(&[UDP, 0]);
            to[t + 2..t + 4].copy_from_slice(&offset.to_be_bytes());
            to[t + 4..t + 8].copy_from_slice(&self.identification().to_be_bytes());
        }
    }

    /// What tells the fragments of one IPv6 datagram from those of another: taken from its own bytes, because nothing
    /// here can count or draw lots.
    fn identification(&self) -> u32 {
        let (from, to) = (self.layers.network, self.frame.len().min(self.layers.transport + 64));
        let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = self.frame[from..to].iter().fold(0x811c_9dc5, mix);
        hash ^ u32::from(self.datagram_sum.unwrap_or(0))
    }

    fn write_ip(&self, piece: usize, to: &mut [u8]) {
        let (n, t) = (self.layers.network, self.layers.transport);
        if self.layers.is_v6 {
            let length = (to.len() - n - 40) as u16;
            to[n + 4..n + 6].copy_from_slice(&length.to_be_bytes());
            if self.inserted() > 0 {
                to[self.layers.protocol_at] = FRAGMENT;
            }
            return;
        }
        let length = (to.len() - n) as u16;
        to[n + 2..n + 4].copy_from_slice(&length.to_be_bytes());
        if self.kind == SegmentKind::UdpFragments && self.count() > 1 {
            let more = if self.is_last(piece) { 0 } else { 0x2000 };
            let place = (piece * self.size / 8) as u16 | more;
            to[n + 6..n + 8].copy_from_slice(&place.to_be_bytes());
        } else if self.kind != SegmentKind::UdpFragments {
            let id = be16(to, n + 4).wrapping_add(piece as u16);
            to[n + 4..n + 6].copy_from_slice(&id.to_be_bytes());
        }
        write_ipv4(&mut to[n..t]);
    }

    /// The transport's checksum; its field must be 0, or (whole datagram) is not counted.
    fn transport_sum(&self, bytes: &[u8], end: usize) -> u16 {
        let t = self.layers.transport;
        let pseudo = self.layers.pseudo(bytes, self.layers.protocol, end - t);
        if self.kind == SegmentKind::UdpFragments {
            return pseudo.add_bytes(&bytes[t..t + 6]).add_bytes(&bytes[t + 8..end]).finish();
        }
        pseudo.add_bytes(&bytes[t..end]).finish()
    }
}

/// RFC 768: a UDP checksum of zero is sent as all ones, because zero means that there is none.
pub(super) fn never_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

/// Bytes before the payload that is cut.
fn head(frame: &[u8], layers: &Layers, segments: &Segments) -> Result<usize, Malformed> {
    let t = layers.transport;
    let transport = match segments.kind {
        SegmentKind::Tcp4 | SegmentKind::Tcp6 => match frame.get(t + 12) {
            Some(offset) => (usize::from(offset >> 4) * 4).max(20),
            None => 20,
        },
        SegmentKind::Udp | SegmentKind::UdpFragments => 8,
    };
    let need = t + transport;
    refuse_if(need > layers.end, Malformed::Truncated { header: "super-frame", need, have: layers.end })?;
    if layers.is_v6 && be16(frame, layers.network + 4) == 0 {
        return Err(Malformed::Field { header: "super-frame", field: "IPv6 payload length", value: 0 });
    }
    Ok(if segments.kind == SegmentKind::UdpFragments { t } else { need })
}
