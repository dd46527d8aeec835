//! What a transmitter does with a frame whose sender left work to the hardware, when it cannot hand that description on.
//!
//! **What.** [`Finisher::finish`] looks at a frame's [`Meta::offload`](super::Meta) and either finds nothing to do, or
//! completes the checksum in place, or gives the pieces to cut the super-frame into ([`Cut`]), or says by which name
//! the frame must be refused. It counts what it did, for [`TransmitCounters`].
//!
//! **Why one place.** Every kind that has no header beside the frame (a ring without vnet header, AF_XDP, a plain
//! socket) must do the same, and nothing may be silently broken.
//!
//! **Price.** A completed checksum is written into the loaned frame, and the description is changed with it; so a frame
//! that goes to another port as well goes there complete.

use super::batch::{Home, Slot};
use super::sending::Outcome;
use super::{PortResult, TransmitCounters};
use record::drop;
use wire::offload::{Cut, complete};

/// What is to be sent for a frame.
#[derive(Debug)]
pub(in crate::port) enum Finished<'a> {
    /// The bytes as they lie there.
    Whole(&'a [u8]),
    /// These pieces instead.
    Pieces(Cut<'a>),
    /// Nothing: why not.
    Refused(&'static str),
}

/// Why a frame cannot be finished: a super-frame that cannot be cut, a checksum that cannot be completed.
pub(in crate::port) const REFUSALS: [&str; 2] = [drop::SUPER_FRAME, drop::UNFINISHED];

/// What is to be sent for this frame. A completed checksum is counted; pieces are not, because a port that has no room for
/// them will ask again.
pub(in crate::port) fn finish<'a>(slot: &'a mut Slot, counters: &mut TransmitCounters) -> Finished<'a> {
    debug_assert!(slot.home != Home::Taken);
    let offload = slot.meta.offload;
    let is_cut = slot.meta.wire_length > slot.length;
    if offload.segments.is_some() {
        return match Cut::new(slot.bytes(), &offload) {
            Ok(cut) if !is_cut => Finished::Pieces(cut),
            _ => Finished::Refused(drop::SUPER_FRAME),
        };
    }
    if let Some(partial) = offload.partial {
        if complete(slot.bytes_mut(), partial).is_err() || is_cut {
            return Finished::Refused(drop::UNFINISHED);
        }
        counters.completed_checksums += 1;
        slot.meta.offload.partial = None;
    }
    Finished::Whole(slot.bytes())
}

/// Sends a frame without a description of what is left to do: as it is, finished, or in pieces, each written to `room` and given
/// to `send`.
///
/// # Errors
/// What `send` says.
pub(in crate::port) fn send_finished(
    slot: &mut Slot,
    room: &mut [u8],
    counters: &mut TransmitCounters,
    mut send: impl FnMut(&[u8]) -> PortResult<Outcome>,
) -> PortResult<Outcome> {
    let cut = match finish(slot, counters) {
        Finished::Whole(bytes) => return send(bytes),
        Finished::Refused(why) => return Ok(Outcome::Refused(why)),
        Finished::Pieces(cut) if cut.longest() > room.len() => return Ok(Outcome::Refused(drop::OVERSIZE)),
        Finished::Pieces(cut) => cut,
    };
    let (mut last, mut pieces) = (Ok(Outcome::Sent), 0);
    while matches!(last, Ok(Outcome::Sent)) && pieces < cut.count() {
        let length = cut.write(pieces, room);
        last = send(&room[..length]);
        pieces += usize::from(matches!(last, Ok(Outcome::Sent)));
    }
    counters.copied += 1;
    counters.segments += pieces as u64;
    match last? {
        // Its first pieces are gone already, so it cannot be offered again.
        Outcome::Full if pieces > 0 => Ok(Outcome::Refused(drop::NO_MEMORY)),
        outcome => Ok(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frames, Meta};
    use super::*;
    use wire::build::{Ends, build_udp};
    use wire::offload::{Offload, Partial, SegmentKind, Segments, partial_of};
    use wire::repair::{Check, check};

    fn datagram() -> Vec<u8> {
        let ends = Ends {
            macs: ([2; 6], [4; 6]),
            addresses: ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
            ports: (1, 2),
        };
        build_udp(&ends, &[7; 100]).unwrap()
    }

    fn with(
        frame: &[u8],
        meta: Meta,
        work: impl FnOnce(&mut Slot, &mut TransmitCounters),
    ) -> TransmitCounters {
        let mut frames = Frames::new(1, 2000);
        assert!(frames.push(frame, meta));
        let mut counters = TransmitCounters::default();
        work(&mut frames.batch().slots()[0], &mut counters);
        counters
    }

    #[test]
    fn a_checksum_is_completed_once_and_the_description_follows() {
        let mut frame = datagram();
        let partial = partial_of(&frame);
        // As a sender leaves it: the sum of the pseudo header, and no more.
        frame[40..42].copy_from_slice(&[0x14, 0x80]);
        let offload = Offload { partial, ..Offload::NONE };
        let counters = with(&frame, Meta { offload, ..Meta::default() }, |slot, counters| {
            assert!(matches!(finish(slot, counters), Finished::Whole(_)));
            assert!(slot.meta.offload.is_complete());
            let Finished::Whole(bytes) = finish(slot, counters) else { panic!("it is whole") };
            assert_eq!(check(bytes).transport.unwrap().1, Check::Right);
        });
        assert_eq!(counters.completed_checksums, 1);
    }

    #[test]
    fn what_cannot_be_finished_is_refused_by_name() {
        let frame = datagram();
        let far = Offload { partial: Some(Partial { start: 5000, offset: 0 }), ..Offload::NONE };
        let tcp = Segments { kind: SegmentKind::Tcp4, size: 10, header: 0, ecn: false };
        let not_tcp = Offload { segments: Some(tcp), ..Offload::NONE };
        let whole = Offload { partial: partial_of(&frame), ..Offload::NONE };
        for (offload, wire_length, name) in
            [(far, 0, "unfinished"), (not_tcp, 0, "super_frame"), (whole, 1000, "unfinished")]
        {
            with(&frame, Meta { offload, wire_length, ..Meta::default() }, |slot, counters| {
                assert!(matches!(finish(slot, counters), Finished::Refused(why) if why == name));
            });
        }
    }

    #[test]
    fn a_super_frame_becomes_pieces() {
        let frame = datagram();
        let segments = Some(Segments { kind: SegmentKind::Udp, size: 30, header: 42, ecn: false });
        let offload = Offload { segments, partial: partial_of(&frame), verified: false };
        with(&frame, Meta { offload, ..Meta::default() }, |slot, counters| {
            let Finished::Pieces(cut) = finish(slot, counters) else { panic!("it is a super-frame") };
            assert_eq!((cut.count(), cut.length(0), cut.length(3)), (4, 72, 52));
        });
    }
}
