//! Checksums that follow a change (RFC 1624), instead of being summed again.

use super::Refused;
use crate::checksum::Sum;
use crate::headers::Headers;
use crate::layers::{Fragment, Layers};
use crate::offload::Partial;
use crate::refuse_if;
use crate::repair::Protocol;
use crate::{be16, crc32c};

/// Lets the checksum of the IPv4 header there follow a change of its bytes.
pub(super) fn mend_header(frame: &mut [u8], network: usize, change: Sum) {
    let new = change.add_word(!be16(frame, network + 10)).finish();
    frame[network + 10..network + 12].copy_from_slice(&new.to_be_bytes());
}

/// The transport checksum of a frame, and what its field holds.
pub(super) struct Transport {
    protocol: Protocol,
    start: usize,
    field: usize,
    /// The field holds the sum of the pseudo header; the hardware does the rest.
    is_unfinished: bool,
}

impl Transport {
    pub(super) fn of(headers: &Headers, partial: Option<Partial>) -> Option<Transport> {
        let (protocol, start) = headers.transport()?;
        let offset = protocol.shape().1;
        let is_here = |p: Partial| usize::from(p.start) == start && usize::from(p.offset) == offset;
        Some(Transport {
            protocol,
            start,
            field: start + offset,
            is_unfinished: partial.is_some_and(is_here),
        })
    }

    /// What SCTP's CRC should be before its bytes change; none for who needs no such thing.
    ///
    /// # Errors
    /// [`Refused::Checksum`]: it covers bytes that are not here.
    pub(super) fn crc_before(&self, frame: &[u8], ip: &Layers) -> Result<Option<[u8; 4]>, Refused> {
        if self.protocol != Protocol::Sctp || self.is_unfinished {
            return Ok(None);
        }
        refuse_if(ip.fragment != Fragment::Whole || ip.is_cut(frame), Refused::Checksum)?;
        Ok(Some(crc32c::sctp(&frame[self.start..ip.end])))
    }

    /// Follows a change of the pseudo header.
    pub(super) fn follow_pseudo(&self, frame: &mut [u8], ip: &Layers, change: Sum) {
        match self.protocol {
            // These two have none (RFC 792, RFC 9260 section 6.8).
            Protocol::Icmp | Protocol::Sctp => {}
            _ if self.is_unfinished => {
                let new = !change.add_word(be16(frame, self.field)).finish();
                frame[self.field..self.field + 2].copy_from_slice(&new.to_be_bytes());
            }
            _ => self.follow(frame, ip, change),
        }
    }

    /// Follows a change of the transport's own bytes; `crc` is what [`Transport::crc_before`] said.
    pub(super) fn follow_bytes(&self, frame: &mut [u8], ip: &Layers, change: Sum, crc: Option<[u8; 4]>) {
        if self.is_unfinished {
            return;
        }
        let Some(old) = crc else { return self.follow(frame, ip, change) };
        let new = crc32c::sctp(&frame[self.start..ip.end]);
        for (byte, flips) in frame[self.field..self.field + 4].iter_mut().zip(old.iter().zip(new)) {
            *byte ^= flips.0 ^ flips.1;
        }
    }

    fn follow(&self, frame: &mut [u8], ip: &Layers, change: Sum) {
        let old = be16(frame, self.field);
        if self.protocol == Protocol::Udp && old == 0 {
            return;
        }
        let mut new = change.add_word(!old).finish();
        if new == 0 && self.protocol == Protocol::Udp {
            new = 0xffff;
        }
        frame[self.field..self.field + 2].copy_from_slice(&new.to_be_bytes());
        // An ICMP message of zeros alone sums to +0, which no change can tell from -0 (RFC 1624 section 3); who sums it
        // again expects the complement of +0. Every other checksum has something that is not zero in it.
        let end = ip.end.min(frame.len());
        if new == 0 && self.protocol == Protocol::Icmp && frame[self.start..end].iter().all(|byte| *byte == 0)
        {
            frame[self.field..self.field + 2].fill(0xff);
        }
    }
}
