//! What a frame's sender left to the hardware: a checksum to be completed, a super-frame to be cut into segments.
//!
//! The kernel describes both in `struct virtio_net_hdr` (`include/uapi/linux/virtio_net.h`), which packet sockets
//! (`PACKET_VNET_HDR`) and tap interfaces (`IFF_VNET_HDR`) put before the frame. [`Offload`] is the same in words.
//! [`complete`] and [`segment`] do the work that was left, for those who cannot hand the description on.

mod cut;
mod join;

pub use cut::Cut;
pub use join::{Join, MOST as MOST_JOINED};

use crate::checksum::Sum;
use crate::frame::{ICMPV6, TCP, UDP};
use crate::layers::{Fragment, Layers, SCTP};
use crate::{Malformed, at_least, be16, crc32c};

/// Bytes of `struct virtio_net_hdr` (without `num_buffers`).
pub const HEADER: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_ECN: u8 = 0x80;

/// Where a checksum has to be written: the sum over everything from `start` on, stored at `start + offset`, where the
/// pseudo header's sum already stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// First byte that is summed, counted from the first byte of the frame.
    pub start: u16,
    /// Place of the checksum field, counted from `start`.
    pub offset: u16,
}

/// What a super-frame is cut into, with the kernel's numbers (`VIRTIO_NET_HDR_GSO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// TCP over IPv4.
    Tcp4 = 1,
    /// TCP over IPv6.
    Tcp6 = 4,
    /// UDP datagrams of one size (`UDP_SEGMENT`), IPv4 or IPv6.
    Udp = 5,
    /// One UDP datagram to be cut into IP fragments (the old UFO).
    UdpFragments = 3,
}

const KINDS: [SegmentKind; 4] =
    [SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp, SegmentKind::UdpFragments];

/// How a super-frame is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// What the pieces are.
    pub kind: SegmentKind,
    /// Payload bytes of each piece but the last.
    pub size: u16,
    /// Bytes of all headers, Ethernet included; a hint, may be 0.
    pub header: u16,
    /// The congestion-window-reduced flag belongs to the first segment only.
    pub ecn: bool,
}

/// What is left to do before the frame may go on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// A checksum to complete.
    pub partial: Option<Partial>,
    /// A super-frame to cut.
    pub segments: Option<Segments>,
    /// The receiver's hardware (or the kernel) has verified the checksum.
    pub verified: bool,
}

impl Offload {
    /// Nothing left to do, nothing known.
    pub const NONE: Offload = Offload { partial: None, segments: None, verified: false };

    /// True when the bytes may go on a wire as they are.
    pub fn is_complete(&self) -> bool {
        self.partial.is_none() && self.segments.is_none()
    }

    /// Reads the kernel's header (native byte order, as packet sockets and tap give it); none for a super-frame of a
    /// kind that is not known here.
    pub fn read(header: &[u8; HEADER]) -> Option<Offload> {
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let kind = match header[1] & !GSO_ECN {
            0 => None,
            number => Some(KINDS.into_iter().find(|kind| *kind as u8 == number)?),
        };
        let segments =
            kind.map(|kind| Segments { kind, size: word(4), header: word(2), ecn: header[1] & GSO_ECN != 0 });
        let partial = (header[0] & NEEDS_CSUM != 0).then(|| Partial { start: word(6), offset: word(8) });
        Some(Offload { partial, segments, verified: header[0] & DATA_VALID != 0 })
    }

    /// Writes the kernel's header.
    pub fn write(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        if let Some(partial) = self.partial {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&partial.start.to_ne_bytes());
            header[8..10].copy_from_slice(&partial.offset.to_ne_bytes());
        } else if self.verified {
            header[0] = DATA_VALID;
        }
        if let Some(segments) = self.segments {
            header[1] = segments.kind as u8 | if segments.ecn { GSO_ECN } else { 0 };
            header[2..4].copy_from_slice(&segments.header.to_ne_bytes());
            header[4..6].copy_from_slice(&segments.size.to_ne_bytes());
        }
        header
    }
}

/// What a frame is on a wire: one frame, or the pieces of a super-frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// How many frames.
    pub count: u64,
    /// Bytes that each of them has a part of; the bytes before these all of them have.
    payload: usize,
}

impl Pieces {
    /// Of a frame, as its sender described it. A description that does not fit its headers (a tunnel, a frame that was cut short) is
    /// taken at its word; one frame when it says no length of the headers.
    pub fn of(frame: &[u8], offload: &Offload) -> Pieces {
        let whole = Pieces { count: 1, payload: 0 };
        let Some(segments) = offload.segments else { return whole };
        if let Ok(cut) = Cut::new(frame, offload) {
            return Pieces { count: cut.count() as u64, payload: cut.payload_bytes() };
        }
        let payload = frame.len().saturating_sub(segments.header.into());
        match (segments.header, segments.size) {
            (0, _) | (_, 0) => whole,
            (_, size) => Pieces { count: payload.div_ceil(size.into()).max(1) as u64, payload },
        }
    }

    /// Bytes of all pieces when the super-frame has this length now: tags that it got since, each piece has.
    pub fn bytes(&self, length: usize) -> u64 {
        length as u64 + (self.count - 1) * length.saturating_sub(self.payload) as u64
    }
}

/// Writes the checksum that the sender left to the hardware, as Linux does it (`skb_checksum_help`): over everything from
/// `start` to the end of the frame, the pseudo header's sum already in the field. SCTP's is a CRC32c. The frame must be
/// whole.
///
/// # Errors
/// [`Malformed`]: the place is not inside the frame; nothing was written.
pub fn complete(frame: &mut [u8], partial: Partial) -> Result<(), Malformed> {
    let start = usize::from(partial.start);
    let field = start + usize::from(partial.offset);
    at_least("unfinished checksum", frame, field + 2)?;
    if partial.offset == SCTP_CHECKSUM && frame.len() >= field + 4 && is_sctp(frame, start) {
        let crc = crc32c::sctp(&frame[start..]);
        frame[field..field + 4].copy_from_slice(&crc);
        return Ok(());
    }
    let sum = Sum::new().add_bytes(&frame[start..]).finish();
    // Only UDP gives zero a meaning of its own; in TCP both zeros are right, and Linux writes this one for all.
    frame[field..field + 2].copy_from_slice(&cut::never_zero(sum).to_be_bytes());
    Ok(())
}

/// Where SCTP's checksum stands in its header (RFC 9260 section 3.1).
const SCTP_CHECKSUM: u16 = 8;

fn is_sctp(frame: &[u8], start: usize) -> bool {
    Layers::of(frame).is_some_and(|layers| layers.protocol == SCTP && layers.transport == start)
}

/// Where the checksum of a protocol stands, counted from its header, for those that the hardware completes.
fn checksum_offset(protocol: u8) -> Option<u16> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMPV6 => Some(2),
        _ => None,
    }
}

/// Where the transport checksum of a frame would have to be completed, found from its headers: TCP, UDP and ICMPv6 over
/// IPv4 or IPv6, behind VLAN tags, options and extension headers. None for fragments and everything else.
pub fn partial_of(frame: &[u8]) -> Option<Partial> {
    partial_in(frame).map(|(_, partial)| partial)
}

fn partial_in(frame: &[u8]) -> Option<(Layers, Partial)> {
    let layers = Layers::of(frame)?;
    let offset = checksum_offset(layers.protocol)?;
    let inside = layers.transport + usize::from(offset) + 2 <= frame.len().min(layers.end);
    let partial = Partial { start: u16::try_from(layers.transport).ok()?, offset };
    (layers.fragment == Fragment::Whole && inside).then_some((layers, partial))
}

/// The place of a checksum of which only the pseudo header's sum is there: what a frame looks like whose sender left the
/// rest to the hardware, where nobody tells (AF_XDP on a veth). One right checksum in 65536 looks the same; completing
/// it writes the same bytes again.
pub fn pseudo_only(frame: &[u8]) -> Option<Partial> {
    let (layers, partial) = partial_in(frame)?;
    let pseudo = || !layers.pseudo(frame, layers.protocol, layers.end - layers.transport).finish();
    let field = layers.transport + usize::from(partial.offset);
    (!layers.is_cut(frame) && be16(frame, field) == pseudo()).then_some(partial)
}

/// Cuts a super-frame and hands every piece to `out`, in order; how many there were. `room` is where the pieces are
/// written; it grows to the longest once and then stays.
///
/// # Errors
/// [`Malformed`]: not such a super-frame; `out` was not called.
pub fn segment(
    frame: &[u8],
    offload: &Offload,
    room: &mut Vec<u8>,
    mut out: impl FnMut(&[u8]),
) -> Result<usize, Malformed> {
    let cut = Cut::new(frame, offload)?;
    if room.len() < cut.longest() {
        room.resize(cut.longest(), 0);
    }
    for piece in 0..cut.count() {
        let length = cut.write(piece, room);
        out(&room[..length]);
    }
    Ok(cut.count())
}

#[cfg(test)]
mod tests;
