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

use super::TransmitCounters;
use super::batch::{Home, Slot};
use record::{PlaceDrop, drop};
use wire::offload::{Cut, complete};

/// What is to be sent for a frame.
#[derive(Debug)]
pub(in crate::port) enum Finished<'a> {
    /// The bytes as they lie there.
    Whole(&'a [u8]),
    /// These pieces instead.
    Pieces(Cut<'a>),
    /// Nothing: it was refused, and counted by name.
    Refused,
}

/// Finishes frames and counts.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::port) struct Finisher {
    /// Checksums completed.
    completed_checksums: u64,
    /// Pieces made.
    segments: u64,
    /// Super-frames that could not be cut.
    super_frame: u64,
    /// Checksums that could not be completed.
    unfinished: u64,
}

impl Finisher {
    /// What is to be sent for this frame. Pieces are counted by [`Finisher::sent_pieces`], because a port that has no
    /// room for them will ask again.
    pub fn finish<'a>(&mut self, slot: &'a mut Slot) -> Finished<'a> {
        debug_assert!(slot.home != Home::Taken);
        let offload = slot.meta.offload;
        // SAFETY: the batch was promised that these bytes are valid and ours as long as it is borrowed, and the
        // exclusive borrow of the slot makes this the only reference.
        let bytes = unsafe { std::slice::from_raw_parts_mut(slot.data.as_ptr(), slot.length as usize) };
        if offload.is_complete() {
            return Finished::Whole(bytes);
        }
        let is_cut = slot.meta.wire_length > slot.length;
        if offload.segments.is_some() {
            return match Cut::new(bytes, &offload) {
                Ok(cut) if !is_cut => Finished::Pieces(cut),
                _ => refused(&mut self.super_frame),
            };
        }
        match offload.partial.map(|partial| complete(bytes, partial)) {
            Some(Ok(())) if !is_cut => {
                self.completed_checksums += 1;
                slot.meta.offload.partial = None;
                Finished::Whole(bytes)
            }
            _ => refused(&mut self.unfinished),
        }
    }

    /// Counts the pieces of a super-frame that was sent.
    pub fn sent_pieces(&mut self, count: usize) {
        self.segments += count as u64;
    }

    /// Puts what was counted where it belongs.
    pub fn report(&self, counters: &mut TransmitCounters) {
        counters.completed_checksums += self.completed_checksums;
        counters.segments += self.segments;
        for (name, count) in [(drop::SUPER_FRAME, self.super_frame), (drop::UNFINISHED, self.unfinished)] {
            counters.drops.push(PlaceDrop::new("port", name, count));
        }
    }
}

fn refused<'a>(counter: &mut u64) -> Finished<'a> {
    *counter += 1;
    Finished::Refused
}

#[cfg(test)]
mod tests {
    use super::super::{Frames, Meta};
    use super::*;
    use wire::frame::{Ends, build_udp};
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

    fn with(frame: &[u8], meta: Meta, work: impl FnOnce(&mut Slot, &mut Finisher)) -> TransmitCounters {
        let mut frames = Frames::new(1, 2000);
        assert!(frames.push(frame, meta));
        let mut finisher = Finisher::default();
        work(&mut frames.batch().slots()[0], &mut finisher);
        let mut counters = TransmitCounters::default();
        finisher.report(&mut counters);
        counters
    }

    #[test]
    fn a_checksum_is_completed_once_and_the_description_follows() {
        let mut frame = datagram();
        let partial = partial_of(&frame);
        // As a sender leaves it: the sum of the pseudo header, and no more.
        frame[40..42].copy_from_slice(&[0x14, 0x80]);
        let offload = Offload { partial, ..Offload::NONE };
        let counters = with(&frame, Meta { offload, ..Meta::default() }, |slot, finisher| {
            assert!(matches!(finisher.finish(slot), Finished::Whole(_)));
            assert!(slot.meta.offload.is_complete());
            let Finished::Whole(bytes) = finisher.finish(slot) else { panic!("it is whole") };
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
            let counters =
                with(&frame, Meta { offload, wire_length, ..Meta::default() }, |slot, finisher| {
                    assert!(matches!(finisher.finish(slot), Finished::Refused));
                });
            let count = counters.drops.iter().find(|drop| drop.name == name).unwrap().count;
            assert_eq!(count, 1, "{name}");
        }
    }

    #[test]
    fn a_super_frame_becomes_pieces() {
        let frame = datagram();
        let segments = Some(Segments { kind: SegmentKind::Udp, size: 30, header: 42, ecn: false });
        let offload = Offload { segments, partial: partial_of(&frame), verified: false };
        let counters = with(&frame, Meta { offload, ..Meta::default() }, |slot, finisher| {
            let Finished::Pieces(cut) = finisher.finish(slot) else { panic!("it is a super-frame") };
            assert_eq!((cut.count(), cut.length(0), cut.length(3)), (4, 72, 52));
            finisher.sent_pieces(4);
        });
        assert_eq!(counters.segments, 4);
    }
}
