//! Frames become a super-frame: the inverse of [`Cut`](super::Cut), for UDP.
//!
//! **What.** [`Join`] takes whole UDP frames of one length that differ in nothing but their payload (and, in IPv4, in an
//! identification that counts up by one), as long as cutting the super-frame gives exactly the same frames again.
//!
//! **Why.** The kernel's work for a frame that is sent (system call, buffer, qdisc, interrupt) is then done once for many;
//! the cutting at the end is the cheap part, and many interfaces do it in hardware.
//!
//! **Price.** Checksums are written by whoever cuts, so a frame whose checksum is not right may not be joined: each is
//! summed once here. Tags, options, extension headers and padding are not joined.

use super::{Offload, Partial, SegmentKind, Segments};
use crate::be16;
use crate::checksum::{checksum, write_ipv4};
use crate::frame::UDP;
use crate::layers::{Fragment, Layers};

/// The first byte of the IP header of an untagged frame.
const NETWORK: usize = 14;
/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// The most pieces: what every kernel takes that knows UDP super-frames (`UDP_MAX_SEGMENTS` was 64 before Linux 6.5).
pub const MOST: usize = 64;

/// Frames that are being joined.
#[derive(Debug, Clone, Copy)]
pub struct Join {
    layers: Layers,
    length: usize,
    count: usize,
}

impl Join {
    /// Begins with a frame; none when it cannot be joined with any. The caller keeps its bytes at the beginning of the
    /// super-frame.
    pub fn begin(frame: &[u8]) -> Option<Join> {
        let layers = Layers::of(frame)?;
        let header = if layers.is_v6 { 40 } else { 20 };
        let plain = layers.network == NETWORK
            && layers.transport == NETWORK + header
            && layers.protocol == UDP
            && layers.fragment == Fragment::Whole
            && layers.end == frame.len();
        if !plain || frame.len() <= layers.transport + UDP_HEADER {
            return None;
        }
        let join = Join { layers, length: frame.len(), count: 1 };
        join.is_right(frame).then_some(join)
    }

    /// True when cutting would write the same checksums and lengths.
    fn is_right(&self, frame: &[u8]) -> bool {
        let udp = &frame[self.layers.transport..];
        let sum = be16(udp, 6);
        // 0 says that there is none, which a cutter could not know of one piece; in IPv4 both zeros are right for the
        // header's sum, and a cutter writes 0.
        let header_ok = self.layers.is_v6
            || (checksum(&frame[NETWORK..self.layers.transport]) == 0 && be16(frame, NETWORK + 10) != 0xffff);
        let pseudo = self.layers.pseudo(frame, UDP, udp.len());
        usize::from(be16(udp, 4)) == udp.len() && sum != 0 && header_ok && pseudo.add_bytes(udp).finish() == 0
    }

    /// Payload bytes of each frame.
    fn size(&self) -> usize {
        self.length - self.layers.transport - UDP_HEADER
    }

    /// Bytes of all headers.
    pub fn header(&self) -> usize {
        self.layers.transport + UDP_HEADER
    }

    /// How many frames so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes one more frame; its payload, to be kept behind what is there. None when it does not belong to the others,
    /// or there are `most` already. `first` is the frame that it began with.
    pub fn add<'a>(&mut self, first: &[u8], frame: &'a [u8], most: usize) -> Option<&'a [u8]> {
        let all = self.header() - NETWORK + (self.count + 1) * self.size();
        if self.count >= most.min(MOST) || frame.len() != self.length || all > usize::from(u16::MAX) {
            return None;
        }
        let same = |from: usize, to: usize| frame[from..to] == first[from..to];
        // All headers but the checksums and, in IPv4, the identification.
        let fits = if self.layers.is_v6 {
            same(0, self.layers.transport + 6)
        } else {
            let id = be16(first, NETWORK + 4).wrapping_add(self.count as u16);
            same(0, NETWORK + 4)
                && be16(frame, NETWORK + 4) == id
                && same(NETWORK + 6, NETWORK + 10)
                && same(NETWORK + 12, self.layers.transport + 6)
        };
        if !fits || !self.is_right(frame) {
            return None;
        }
        self.count += 1;
        Some(&frame[self.header()..])
    }

    /// Writes lengths and the pseudo header's sum into the super-frame; what to tell of it. A single frame stays as it
    /// is.
    ///
    /// # Panics
    /// When these are not the bytes of the frame it began with and the payloads that followed.
    pub fn finish(self, frame: &mut [u8]) -> Offload {
        assert_eq!(frame.len(), self.header() + self.count * self.size(), "not the bytes that were joined");
        if self.count == 1 {
            return Offload::NONE;
        }
        let length = frame.len() - self.layers.transport;
        frame[self.layers.transport + 4..self.layers.transport + 6]
            .copy_from_slice(&(length as u16).to_be_bytes());
        let pseudo = !self.layers.pseudo(frame, UDP, length).finish();
        frame[self.layers.transport + 6..self.layers.transport + 8].copy_from_slice(&pseudo.to_be_bytes());
        if self.layers.is_v6 {
            frame[NETWORK + 4..NETWORK + 6].copy_from_slice(&(length as u16).to_be_bytes());
        } else {
            let total = (frame.len() - NETWORK) as u16;
            frame[NETWORK + 2..NETWORK + 4].copy_from_slice(&total.to_be_bytes());
            write_ipv4(&mut frame[NETWORK..self.layers.transport]);
        }
        Offload {
            partial: Some(Partial { start: self.layers.transport as u16, offset: 6 }),
            segments: Some(Segments {
                kind: SegmentKind::Udp,
                size: self.size() as u16,
                header: self.header() as u16,
                ecn: false,
            }),
            verified: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cut;
    use super::*;
    use crate::build::{Ends, build_udp};
    use proptest::prelude::*;

    fn frame(v6: bool, id: u16, payload: &[u8]) -> Vec<u8> {
        let (a, b) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        let ends = Ends {
            macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
            addresses: (a.parse().unwrap(), b.parse().unwrap()),
            ports: (1000, 2000),
        };
        let mut frame = build_udp(&ends, payload).unwrap();
        if !v6 {
            frame[18..20].copy_from_slice(&id.to_be_bytes());
            frame[24..26].fill(0);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    }

    /// Joins as many as belong together; the super-frame, what to tell of it, how many.
    fn join(frames: &[Vec<u8>], most: usize) -> Option<(Vec<u8>, Offload, usize)> {
        let mut join = Join::begin(&frames[0])?;
        let mut all = frames[0].clone();
        for next in &frames[1..] {
            let Some(payload) = join.add(&frames[0], next, most) else { break };
            all.extend(payload);
        }
        let count = join.count();
        let offload = join.finish(&mut all);
        Some((all, offload, count))
    }

    proptest! {
        /// Cutting what was joined gives the same frames again, whatever the frames.
        #[test]
        fn cut_is_the_inverse(
            v6: bool, id: u16, size in 1usize..60, most in 1usize..70,
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 60), 2..70),
            strange in prop::option::of((0usize..70, 0usize..70, any::<u8>())),
        ) {
            let mut frames: Vec<Vec<u8>> = payloads
                .iter()
                .enumerate()
                .map(|(i, payload)| frame(v6, id.wrapping_add(i as u16), &payload[..size]))
                .collect();
            // One byte somewhere may be another: then the frame does not belong to the others, or begins a new run.
            if let Some((which, at, value)) = strange {
                let which = which % frames.len();
                let at = at % frames[which].len();
                frames[which][at] = value;
            }
            let Some((joined, offload, count)) = join(&frames, most) else { return Ok(()) };
            prop_assert!(count <= most.clamp(1, MOST));
            if count == 1 {
                prop_assert_eq!((&joined, offload), (&frames[0], Offload::NONE));
                return Ok(());
            }
            let cut = Cut::new(&joined, &offload).unwrap();
            prop_assert_eq!(cut.count(), count);
            let mut room = vec![0; cut.longest()];
            for (piece, frame) in frames[..count].iter().enumerate() {
                let length = cut.write(piece, &mut room);
                prop_assert_eq!(&room[..length], &frame[..], "piece {}", piece);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_joined(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(mut join) = Join::begin(&bytes) {
                let _ = join.add(&bytes, &bytes, 64);
            }
        }
    }

    #[test]
    fn what_does_not_belong_together_is_not_joined() {
        let frames: Vec<_> = (0..3).map(|i| frame(false, i, &[i as u8; 18])).collect();
        assert_eq!(join(&frames, 64).unwrap().2, 3);
        let mut others = frames.clone();
        others[1] = frame(false, 5, &[1; 18]);
        assert_eq!(join(&others, 64).unwrap().2, 1, "the identification does not follow");
        others[1] = frame(false, 1, &[1; 17]);
        assert_eq!(join(&others, 64).unwrap().2, 1, "another length");
        others[1] = frames[1].clone();
        others[1][41] ^= 1;
        assert_eq!(join(&others, 64).unwrap().2, 1, "a wrong checksum must stay wrong");
        others[0][40..42].fill(0);
        assert!(join(&others, 64).is_none(), "no checksum");
        let long: Vec<_> = (0..64).map(|i| frame(false, i, &[7; 1472])).collect();
        let (all, _, count) = join(&long, 64).unwrap();
        assert_eq!((count, all.len() <= 65_535 + 14), (44, true), "an IP packet has at most 65535 bytes");
    }
}
