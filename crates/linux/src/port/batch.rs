//! The currency: frames, many at a time, wherever their bytes happen to lie.
//!
//! **What.** A [`Batch`] is a loan of up to [`MAX_BATCH`] frames. Their bytes may lie in a ring that the kernel shares
//! with us, in a chunk of an [`Area`](super::area::Area), in a receiver's own buffers or in [`Frames`] that a generator
//! filled; whoever works on them sees bytes and what is known about them ([`Meta`]), and need not care.
//!
//! **Why.** A capture reads a ring in place, and a transmitter over the same area takes a frame by its chunk's number.
//! Every other way costs exactly one copy, made by the transmitter, which counts it.
//!
//! **Price.** A batch borrows its receiver: the receiver cannot go on before the batch is dropped, so work that takes
//! long on a batch is loss at the receiver. A frame that is kept longer must be copied.

use super::Stamp;
use std::ops::Range;
use std::ptr::NonNull;
use wire::offload::Offload;
use wire::pcap::Link;

/// The most frames of one batch.
pub const MAX_BATCH: usize = 512;

/// The numbers of all frames of a batch, for a transmitter that shall send them all.
pub static ALL: [u16; MAX_BATCH] = {
    let mut all = [0; MAX_BATCH];
    let mut i = 0;
    while i < MAX_BATCH {
        all[i] = i as u16;
        i += 1;
    }
    all
};

/// Which way a frame passed the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FrameDirection {
    /// It came in (or the port does not know any other way).
    #[default]
    In,
    /// This host sent it.
    Out,
}

/// What is known about a frame besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// Bytes that the frame had before it was cut to a snap length (without FCS); at least the bytes that are here.
    pub wire_length: u32,
    /// When it passed, and whose clock says so.
    pub stamp: Stamp,
    /// What its sender left to the hardware.
    pub offload: Offload,
    /// Which way it went.
    pub way: FrameDirection,
    /// Which interface of a capture file it came from, from 0; 0 everywhere else.
    pub interface: u32,
    /// What its bytes begin with: Ethernet, but in a capture file.
    pub link: Link,
}

/// Where the bytes of a slot live, hence who gets them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::port) enum Home {
    /// In the receiver's own memory, until its next call.
    Lent,
    /// In a chunk of an area (its address tells areas apart); the slot owns the chunk.
    Chunk { area: *const (), number: u32 },
    /// A transmitter took the chunk; the bytes are no longer ours.
    Taken,
}

/// One frame inside a batch.
#[derive(Debug)]
pub(in crate::port) struct Slot {
    /// First byte of the frame.
    pub data: NonNull<u8>,
    /// Bytes of the frame.
    pub length: u32,
    /// Bytes before the first one that may be written.
    pub headroom: u32,
    /// Bytes after the last one that may be written.
    pub tailroom: u32,
    /// Where they live.
    pub home: Home,
    /// What is known about it.
    pub meta: Meta,
}

// SAFETY: a slot is the only handle to its bytes; it is private to the ports, which keep it with what owns the memory.
unsafe impl Send for Slot {}

impl Slot {
    /// A frame in the receiver's own memory, which stays as it is until the next call, with so many bytes free before it.
    #[inline]
    pub fn lent(bytes: &mut [u8], headroom: u32, meta: Meta) -> Slot {
        let length = bytes.len() as u32;
        Slot { data: NonNull::from(bytes).cast(), length, headroom, tailroom: 0, home: Home::Lent, meta }
    }

    /// The bytes of the frame; empty once a transmitter took it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if self.home == Home::Taken {
            return &[];
        }
        // SAFETY: whoever made the slot promised that these bytes are valid and its own as long as it is lent or sent.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.length as usize) }
    }

    /// The bytes of the frame, to be rewritten in place; empty once a transmitter took it.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.home == Home::Taken {
            return &mut [];
        }
        // SAFETY: as in `bytes`; the exclusive borrow of the slot makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.length as usize) }
    }
}

/// A loan of frames. Dropping it gives back whatever no transmitter took.
#[derive(Debug)]
pub struct Batch<'a> {
    slots: &'a mut [Slot],
}

impl<'a> Batch<'a> {
    /// Lends the slots. Their bytes must stay valid, and untouched by others, as long as the borrow lasts.
    pub(in crate::port) fn new(slots: &'a mut [Slot]) -> Self {
        debug_assert!(slots.len() <= MAX_BATCH);
        Batch { slots }
    }

    /// How many frames.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True for a batch without frames: nothing came within the time given.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The numbers of all frames.
    pub fn all(&self) -> &'static [u16] {
        &ALL[..self.slots.len()]
    }

    /// The bytes of a frame; empty once a transmitter took it.
    ///
    /// # Panics
    /// For a number that is not in the batch.
    #[inline]
    pub fn bytes(&self, index: usize) -> &[u8] {
        self.slots[index].bytes()
    }

    /// The bytes of a frame, to be rewritten in place; empty once a transmitter took it.
    ///
    /// # Panics
    /// For a number that is not in the batch.
    #[inline]
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        self.slots[index].bytes_mut()
    }

    /// What is known about a frame.
    ///
    /// # Panics
    /// For a number that is not in the batch.
    #[inline]
    pub fn meta(&self, index: usize) -> &Meta {
        &self.slots[index].meta
    }

    /// Moves the first byte of a frame: `by` > 0 makes room for a header (its bytes are what was there), `by` < 0
    /// removes bytes. False, and nothing changed, when there is not so much room or frame, or the frame was taken.
    pub fn grow_front(&mut self, index: usize, by: i32) -> bool {
        let slot = &mut self.slots[index];
        let (length, headroom) =
            (i64::from(slot.length) + i64::from(by), i64::from(slot.headroom) - i64::from(by));
        if slot.home == Home::Taken || length < 0 || headroom < 0 {
            return false;
        }
        (slot.length, slot.headroom) = (length as u32, headroom as u32);
        // SAFETY: both ends stay within the memory of the slot, as just checked.
        slot.data = unsafe { slot.data.offset(-by as isize) };
        slot.meta.wire_length = slot.meta.wire_length.saturating_add_signed(by);
        true
    }

    /// Sets the length of a frame; bytes that are added are what was there. False, and nothing changed, when there is
    /// not so much room or the frame was taken.
    pub fn set_length(&mut self, index: usize, length: usize) -> bool {
        let slot = &mut self.slots[index];
        let room = slot.length as usize + slot.tailroom as usize;
        if slot.home == Home::Taken || length > room {
            return false;
        }
        slot.tailroom = (room - length) as u32;
        slot.meta.wire_length =
            slot.meta.wire_length - slot.length.min(slot.meta.wire_length) + length as u32;
        slot.length = length as u32;
        true
    }

    /// The memory of a frame that may be written, and where in it the frame lies; nothing once a transmitter took it.
    ///
    /// # Panics
    /// For a number that is not in the batch.
    #[inline]
    pub fn room_mut(&mut self, index: usize) -> (&mut [u8], Range<usize>) {
        let slot = &mut self.slots[index];
        if slot.home == Home::Taken {
            return (&mut [], 0..0);
        }
        let (before, length) = (slot.headroom as usize, slot.length as usize);
        let all = before + length + slot.tailroom as usize;
        // SAFETY: as in `bytes`, and head- and tailroom belong to the slot; the exclusive borrow makes this the only reference.
        let room = unsafe { std::slice::from_raw_parts_mut(slot.data.as_ptr().sub(before), all) };
        (room, before..before + length)
    }

    /// Says where in its memory ([`Batch::room_mut`]) a frame lies now, and what is left to the hardware. False, and nothing changed,
    /// when it does not fit there or the frame was taken.
    ///
    /// # Panics
    /// For a number that is not in the batch.
    #[inline]
    pub fn lies_at(&mut self, index: usize, frame: Range<usize>, offload: Offload) -> bool {
        let slot = &self.slots[index];
        let (Ok(front), Ok(start)) = (i32::try_from(slot.headroom), i32::try_from(frame.start)) else {
            return false;
        };
        if !self.grow_front(index, front - start) {
            return false;
        }
        let fits = self.set_length(index, frame.len());
        if fits {
            self.slots[index].meta.offload = offload;
        } else {
            self.grow_front(index, start - front);
        }
        fits
    }

    /// The slots themselves, for transmitters.
    pub(in crate::port) fn slots(&mut self) -> &mut [Slot] {
        self.slots
    }
}

/// Frames in memory of one's own: what a generator fills, and what a frame is copied into to be kept.
#[derive(Debug)]
pub struct Frames {
    memory: Vec<u8>,
    stride: usize,
    slots: Vec<Slot>,
}

impl Frames {
    /// Bytes left free before every frame.
    const HEADROOM: usize = 64;

    /// Memory for `count` frames of up to `capacity` bytes.
    ///
    /// # Panics
    /// When `count` is more than [`MAX_BATCH`].
    pub fn new(count: usize, capacity: usize) -> Self {
        assert!(count <= MAX_BATCH, "a batch has at most {MAX_BATCH} frames");
        let stride = (Self::HEADROOM + capacity).next_multiple_of(64);
        Frames { memory: vec![0; count * stride], stride, slots: Vec::with_capacity(count) }
    }

    /// Bytes that a frame may have.
    pub fn capacity(&self) -> usize {
        self.stride.saturating_sub(Self::HEADROOM)
    }

    /// How many frames are in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True when none is.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// True when no further frame fits.
    pub fn is_full(&self) -> bool {
        (self.slots.len() + 1) * self.stride > self.memory.len()
    }

    /// Removes all frames; their bytes stay, so a generator need only write what changes.
    pub fn clear(&mut self) {
        self.slots.clear();
    }

    /// Adds a frame. False, and nothing added, when it does not fit.
    pub fn push(&mut self, bytes: &[u8], meta: Meta) -> bool {
        let added = self.add(bytes.len(), meta);
        if let Some(room) = added {
            room.copy_from_slice(bytes);
            return true;
        }
        false
    }

    /// Adds a frame of so many bytes and gives its memory, which holds what was there before; none when it does not
    /// fit.
    pub fn add(&mut self, length: usize, meta: Meta) -> Option<&mut [u8]> {
        let room = self.stride - Self::HEADROOM;
        if self.is_full() || length > room {
            return None;
        }
        let start = self.slots.len() * self.stride + Self::HEADROOM;
        let bytes = &mut self.memory[start..start + room];
        let data = NonNull::from(&mut bytes[..]).cast();
        let wire_length = meta.wire_length.max(length as u32);
        self.slots.push(Slot {
            data,
            length: length as u32,
            headroom: Self::HEADROOM as u32,
            tailroom: (room - length) as u32,
            home: Home::Lent,
            meta: Meta { wire_length, ..meta },
        });
        Some(&mut bytes[..length])
    }

    /// Lends the frames to a transmitter.
    pub fn batch(&mut self) -> Batch<'_> {
        // The pointers are made anew, so that they come from the borrow that the batch holds.
        let base = self.memory.as_mut_ptr();
        for (i, slot) in self.slots.iter_mut().enumerate() {
            let start = (i + 1) * self.stride - slot.tailroom as usize - slot.length as usize;
            debug_assert!(start >= i * self.stride);
            // SAFETY: inside the memory: a slot's length and rooms always add up to its stride.
            slot.data = unsafe { NonNull::new_unchecked(base.add(start)) };
        }
        Batch::new(&mut self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_what_was_pushed_and_grow_within_their_room() {
        let mut frames = Frames::new(3, 100);
        assert!(frames.push(b"first", Meta::default()) && frames.push(b"second", Meta::default()));
        assert!(!frames.push(&[0; 200], Meta::default()), "too long");
        let mut batch = frames.batch();
        assert_eq!((batch.len(), batch.bytes(0), batch.bytes(1)), (2, &b"first"[..], &b"second"[..]));
        assert_eq!(batch.meta(1).wire_length, 6);
        assert!(batch.grow_front(0, 4));
        batch.bytes_mut(0)[..4].copy_from_slice(b"the ");
        assert!(batch.grow_front(1, -3) && batch.set_length(1, 2) && !batch.grow_front(1, -3));
        assert!(!batch.grow_front(0, 1000) && !batch.set_length(0, 1000));

        let mut batch = frames.batch();
        assert_eq!((batch.bytes(0), batch.bytes(1)), (&b"the first"[..], &b"on"[..]));
        assert_eq!((batch.meta(0).wire_length, batch.meta(1).wire_length), (9, 2));

        let (room, place) = batch.room_mut(0);
        assert_eq!(&room[place.clone()], b"the first");
        room[place.start - 5..place.start].copy_from_slice(b"over ");
        let longer = place.start - 5..place.end - 2;
        assert!(batch.lies_at(0, longer, Offload::NONE));
        assert_eq!((batch.bytes(0), batch.meta(0).wire_length), (&b"over the fir"[..], 12));
        assert!(!batch.lies_at(0, 0..10_000, Offload::NONE), "there is not so much room");
        assert_eq!(batch.bytes(0), b"over the fir");
    }
}
