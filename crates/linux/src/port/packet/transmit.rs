//! The transmitting end of `int:`: `sendmmsg` from wherever the frames lie.
//!
//! **Exact counts.** `sendmmsg` that is stopped by a frame says how many it sent *before* it and not why it stopped. A
//! full socket buffer (`EAGAIN`: the frame was not tried) and a full qdisc (`ENOBUFS`: it was tried, and dropped) look
//! the same. So a call never gets more frames than surely fit into the socket buffer ([`worst`]): then the frame that
//! stopped it was tried, and is counted as dropped (unless it shows on a second look why it could not be sent: the MTU
//! became smaller meanwhile, or it is no super-frame that could be cut); a single frame tells its reason itself.
//!
//! **Full.** The socket buffer is left at its default (`net.core.wmem_default`), which is less than the 1000 frames of
//! a common qdisc: a sender that is too fast is held back rather than dropped.

use super::super::batch::{ALL, Batch, Home, Meta, Slot};
use super::super::offload::{self, Finished};
use super::super::sending::{ETHERNET, TAG, push_all, refusing};
use super::super::{
    Departure, Frames, Hand, PortError, PortResult, StampSource, TransmitCounters, Transmitted, Transmitter,
    Uri,
};
use super::join::Joiner;
use super::sent::SentStamps;
use super::shared::{self, LinkWatch, refused, switch};
use crate::port::told::setting;
use crate::sys::packet;
use crate::sys::socket;
use record::{PlaceDrop, PortSetting, Result, drop};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::layers::Layers;
use wire::offload::{Cut, HEADER as VNET_HEADER, Partial, Segments};

/// Why frames are refused before the kernel sees them. [`drop::OFFLOAD`]: its sender left work to the hardware, which this
/// port cannot tell the kernel, so it must be finished first; [`drop::INVALID_OFFLOAD`]: what is told of that cannot be.
const REFUSALS: [&str; 5] = [drop::OVERSIZE, drop::RUNT, drop::TAKEN, drop::OFFLOAD, drop::INVALID_OFFLOAD];
/// The most frames of one system call.
const CALL: usize = 64;
/// The socket buffer of a queue, in bytes that are asked for.
const QUEUE_BUFFER: u32 = 8 << 20;
/// How long the pieces of a super-frame wait for room.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest super-frame that the kernel takes.
const LONGEST: usize = 65_535 + ETHERNET;

/// Where a transmitter may send, and how long a frame may be: the same for `int:` and `ring:`.
#[derive(Debug)]
pub(in crate::port) struct SendTarget {
    pub fd: OwnedFd,
    pub watch: LinkWatch,
    pub mtu: usize,
    pub vnet: bool,
    /// What it is called when the qdisc (or, without one, the driver) has no room.
    queue: &'static str,
}

impl SendTarget {
    /// A socket that sends only, on the interface of the URI.
    pub fn open(uri: &Uri, vnet: bool, bypass: bool) -> Result<(SendTarget, Vec<PortSetting>)> {
        let (fd, facts) = shared::socket(uri)?;
        packet::set(&fd, libc::PACKET_QDISC_BYPASS, i32::from(bypass))
            .map_err(refused(uri, "to pass by the qdisc"))?;
        if vnet {
            packet::set(&fd, libc::PACKET_VNET_HDR, 1).map_err(refused(uri, "virtio headers"))?;
        }
        packet::bind(&fd, facts.index, 0).map_err(refused(uri, "to bind to the interface"))?;
        let note = if bypass { "frames pass by the qdisc: a busy driver drops them" } else { "" };
        let settings = vec![
            setting("bypass", "", switch(bypass), note),
            setting("vnet", "", switch(vnet), ""),
            setting("mtu", "", format!("{} B", facts.mtu), ""),
        ];
        let queue = if bypass { drop::DRIVER_BUSY } else { drop::QDISC_FULL };
        Ok((SendTarget { fd, watch: LinkWatch::new(&facts), mtu: facts.mtu, vnet, queue }, settings))
    }

    /// The longest frame without a tag.
    pub fn longest(&self) -> usize {
        self.mtu + ETHERNET
    }

    /// Reads the MTU again: it may be another now.
    fn refresh(&mut self) {
        if let Ok(facts) = packet::interface_numbered(&self.fd, self.watch.index()) {
            self.mtu = facts.mtu;
        }
    }

    /// Why the frame cannot be sent, as far as that shows beforehand.
    #[inline]
    pub fn refusal(&mut self, slot: &Slot) -> Option<&'static str> {
        let length = slot.length as usize;
        if slot.home == Home::Taken {
            return Some(drop::TAKEN);
        }
        if length < ETHERNET {
            return Some(drop::RUNT);
        }
        let offload = &slot.meta.offload;
        if !offload.is_complete() {
            // The kernel cuts by the ethertype: of a super-frame behind MPLS or PBB, which nobody told it where IP begins,
            // `validate_xmit_skb` makes nothing, and the call says ENOMEM.
            if !self.vnet || (offload.segments.is_some() && !Layers::begin_with_ip(slot.bytes())) {
                return Some(drop::OFFLOAD);
            }
            let inside =
                |partial: Partial| usize::from(partial.start) + usize::from(partial.offset) + 2 <= length;
            let cuts = |segments: Segments| segments.size > 0 && usize::from(segments.header) <= length;
            if !offload.partial.is_none_or(inside) || !offload.segments.is_none_or(cuts) {
                return Some(drop::INVALID_OFFLOAD);
            }
        }
        if offload.segments.is_some() {
            return (length > LONGEST).then_some(drop::OVERSIZE);
        }
        if length > self.allowed(slot) {
            self.refresh();
            return (length > self.allowed(slot)).then_some(drop::OVERSIZE);
        }
        None
    }

    /// What the kernel allows for this frame: a tag (802.1Q alone, `packet_extra_vlan_len_allowed`) does not count.
    fn allowed(&self, slot: &Slot) -> usize {
        self.longest() + if slot.bytes()[12..14] == [0x81, 0] { TAG } else { 0 }
    }

    /// Why a frame was refused that the kernel said nothing about.
    fn unsaid_reason(&mut self, slot: &Slot) -> &'static str {
        match packet::interface_numbered(&self.fd, self.watch.index()) {
            Ok(facts) if facts.up => {
                self.mtu = facts.mtu;
                let offload = &slot.meta.offload;
                match offload.segments {
                    // The kernel looks closer at a super-frame than `refusal` does; so does who cuts one here.
                    Some(_) if Cut::new(slot.bytes(), offload).is_err() => drop::INVALID_OFFLOAD,
                    None if slot.length as usize > self.allowed(slot) => drop::OVERSIZE,
                    _ => self.queue,
                }
            }
            _ => drop::LINK_DOWN,
        }
    }

    /// What an error means for the frame that met it: its reason, or that nothing more can be sent now (none), or the
    /// end of the port.
    pub fn judge(&mut self, error: io::Error) -> PortResult<Option<&'static str>> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(None),
            Some(libc::ENOBUFS) => Ok(Some(self.queue)),
            Some(libc::EMSGSIZE) => {
                self.refresh();
                Ok(Some(drop::OVERSIZE))
            }
            Some(libc::EINVAL) => Ok(Some(drop::INVALID_OFFLOAD)),
            Some(libc::ENETDOWN) if self.watch.is_down() => {
                let gone = matches!(self.watch.explain(&self.fd, error), PortError::Gone);
                if gone { Err(PortError::Gone) } else { Ok(Some(drop::LINK_DOWN)) }
            }
            _ => match self.watch.explain(&self.fd, error) {
                PortError::Down => {
                    self.watch.unsaid = true;
                    Ok(None)
                }
                error => Err(error),
            },
        }
    }

    /// Waits until the interface has freed everything; what is left, in frames (an upper limit: the kernel counts
    /// bytes, and no frame takes less than 768).
    pub fn drain(&self, wait: Duration) -> PortResult<usize> {
        let until = Instant::now() + wait;
        loop {
            let left = packet::unsent(&self.fd)?;
            if left == 0 || Instant::now() >= until {
                return Ok(left.div_ceil(768) as usize);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The most that the kernel's buffer for a frame counts (`truesize`): the bytes rounded up to the next size of
/// `kmalloc`, which is less than the double, and what belongs to every buffer.
fn worst(length: u32) -> u64 {
    2 * u64::from(length) + 2048
}

/// The transmitting end.
pub(in crate::port) struct PacketTransmitter {
    pub way: SendTarget,
    buffer: u64,
    headers: Vec<libc::mmsghdr>,
    /// Two for each frame: the virtio header (or nothing) and the bytes.
    pieces: Vec<[libc::iovec; 2]>,
    vnet: Vec<[u8; VNET_HEADER]>,
    /// Joins frames, if that is asked for.
    joiner: Option<Joiner>,
    /// While joined frames are sent: how many frames each slot stands for.
    weights: Vec<u16>,
    /// The pieces of a super-frame.
    cut: Frames,
    /// When frames left, if that is asked for.
    stamps: Option<SentStamps>,
    pub counters: TransmitCounters,
}

// SAFETY: the raw pointers in `headers` and `pieces` are set before every call; nothing else holds them.
unsafe impl Send for PacketTransmitter {}

impl PacketTransmitter {
    /// Opens it as asked.
    pub(in crate::port) fn open(
        uri: &Uri,
        vnet: bool,
        bypass: bool,
        join: usize,
    ) -> Result<(PacketTransmitter, Vec<PortSetting>)> {
        let (way, mut settings) = SendTarget::open(uri, vnet, bypass)?;
        let mut counters = refusing(&REFUSALS);
        counters.drops.extend([drop::LINK_DOWN, way.queue].map(|name| PlaceDrop::new("kernel", name, 0)));
        counters.drops.extend(offload::REFUSALS.map(|name| PlaceDrop::new("port", name, 0)));
        if join > 1 {
            let note = "UDP frames of one flow and length leave as one super-frame, which the kernel cuts";
            settings.push(setting("join", join.to_string(), format!("{join} frames"), note));
        }
        let buffer = socket::buffer(&way.fd, socket::Direction::Send)
            .map_err(refused(uri, "to tell the socket buffer"))?;
        settings.push(setting("send_buffer", "", format!("{buffer} B"), "net.core.wmem_default"));
        let way_longest = way.longest();
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let transmitter = PacketTransmitter {
            way,
            buffer,
            // SAFETY: all zeros is a valid value of this C struct.
            headers: (0..CALL).map(|_| unsafe { MaybeUninit::zeroed().assume_init() }).collect(),
            pieces: vec![[empty; 2]; CALL],
            vnet: vec![[0; VNET_HEADER]; CALL],
            joiner: (join > 1).then(|| Joiner::new(join)),
            weights: vec![],
            cut: if vnet { Frames::new(0, 0) } else { Frames::new(CALL, way_longest + 8) },
            stamps: None,
            counters,
        };
        Ok((transmitter, settings))
    }

    /// Has every frame stamped when it leaves.
    pub(in crate::port) fn stamp(&mut self, uri: &Uri, wish: StampSource) -> Result<PortSetting> {
        let (stamps, setting) = SentStamps::enable(&self.way.fd, uri, wish)?;
        self.stamps = Some(stamps);
        Ok(setting)
    }

    /// Has every frame go into one class of the interface's qdisc, whose frames wait in the socket's buffer: it is made
    /// large enough for the 1000 frames that a common class holds, so that the class drops and counts, not the socket.
    pub(in crate::port) fn enter(&mut self, uri: &Uri, class: u32) -> Result<PortSetting> {
        socket::set_int(&self.way.fd, libc::SOL_SOCKET, libc::SO_PRIORITY, class as i32)
            .and_then(|()| socket::set_buffer(&self.way.fd, socket::Direction::Send, QUEUE_BUFFER))
            .map_err(refused(uri, "to send into a queue"))?;
        self.buffer = socket::buffer(&self.way.fd, socket::Direction::Send)
            .map_err(refused(uri, "to tell the socket buffer"))?;
        let name = format!("{:x}:{:x}", class >> 16, class & 0xffff);
        Ok(setting("queue", "", name, "a class of the interface's qdisc"))
    }

    /// Prepares as many frames for one call as surely fit, at least one; stops before one that must be refused.
    fn prepare(&mut self, slots: &[Slot], which: &[u16]) -> Result<usize, &'static str> {
        let unsent = if which.len() > 1 { packet::unsent(&self.way.fd).unwrap_or(self.buffer) } else { 0 };
        let mut room = self.buffer.saturating_sub(unsent);
        for (count, &index) in which.iter().take(CALL).enumerate() {
            let slot = &slots[usize::from(index)];
            if let Some(reason) = self.way.refusal(slot) {
                return if count == 0 { Err(reason) } else { Ok(count) };
            }
            let fits = worst(slot.length) <= room;
            if !fits && count > 0 {
                return Ok(count);
            }
            self.aim(count, slot);
            if !fits {
                return Ok(1);
            }
            room -= worst(slot.length);
        }
        Ok(which.len().min(CALL))
    }

    fn aim(&mut self, at: usize, slot: &Slot) {
        let pieces = &mut self.pieces[at];
        pieces[1] = libc::iovec { iov_base: slot.data.as_ptr().cast(), iov_len: slot.length as usize };
        let header = &mut self.headers[at].msg_hdr;
        if self.way.vnet {
            self.vnet[at] = slot.meta.offload.write();
            pieces[0] = libc::iovec { iov_base: (&raw mut self.vnet[at]).cast(), iov_len: VNET_HEADER };
            (header.msg_iov, header.msg_iovlen) = (pieces.as_mut_ptr(), 2);
        } else {
            (header.msg_iov, header.msg_iovlen) = (&raw mut pieces[1], 1);
        }
    }

    fn send(&mut self, count: usize) -> io::Result<usize> {
        loop {
            // SAFETY: the first `count` headers are live; their pieces point to a virtio header of this value and to
            // the bytes of a slot that the batch holds.
            let sent = unsafe {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                socket::send_many(self.way.fd.as_fd(), &mut self.headers[..count], flags)
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// How many frames a slot stands for.
    #[inline]
    fn weight(&self, index: u16) -> u64 {
        self.weights.get(usize::from(index)).map_or(1, |&weight| u64::from(weight))
    }

    fn refuse(&mut self, index: u16, reason: &'static str, sent: &mut Transmitted) {
        self.counters.refuse(reason, self.weight(index));
        sent.dealt += 1;
        sent.refused += 1;
    }

    /// Completes a frame, to be sent as it then is, or sends the pieces of a super-frame.
    fn finish(&mut self, slot: &mut Slot, index: u16, sent: &mut Transmitted) {
        let length = u64::from(slot.length);
        match offload::finish(slot, &mut self.counters) {
            Finished::Whole(_) => {}
            Finished::Refused(why) => self.refuse(index, why, sent),
            Finished::Pieces(cut) if cut.longest() > self.way.longest() => {
                self.refuse(index, drop::OVERSIZE, sent);
            }
            Finished::Pieces(cut) => {
                let mut pieces = std::mem::replace(&mut self.cut, Frames::new(0, 0));
                // Where the kernel cuts most super-frames, and where an MTU grew.
                if pieces.capacity() < cut.longest() {
                    pieces = Frames::new(CALL, cut.longest().max(self.way.longest() + 8));
                }
                let all = self.send_pieces(&cut, &mut pieces);
                self.cut = pieces;
                if all {
                    self.counters.accepted += 1;
                    self.counters.bytes += length;
                    sent.dealt += 1;
                } else {
                    self.refuse(index, self.way.queue, sent);
                }
            }
        }
    }

    /// Sends the pieces, waiting a little where there is no room: the frame cannot be taken back once its first piece
    /// is out. Whether all were sent.
    fn send_pieces(&mut self, cut: &Cut<'_>, pieces: &mut Frames) -> bool {
        let before = (self.counters.accepted, self.counters.bytes);
        let mut all = true;
        let mut piece = 0;
        while piece < cut.count() {
            pieces.clear();
            while !pieces.is_full() && piece < cut.count() {
                if let Some(room) = pieces.add(cut.length(piece), Meta::default()) {
                    cut.write(piece, room);
                }
                piece += 1;
            }
            let mut batch = pieces.batch();
            let which = batch.all();
            let slots = batch.slots();
            let until = Instant::now() + PATIENCE;
            let done = push_all(which, |rest, done| {
                let pushed = self.push(slots, rest, done)?;
                if !pushed && Instant::now() < until {
                    std::thread::sleep(Duration::from_micros(50));
                    return Ok(true);
                }
                Ok(pushed)
            });
            all &= done.is_ok_and(|done| done.dealt == which.len() && done.refused == 0);
        }
        self.counters.segments += self.counters.accepted - before.0;
        // The pieces count as pieces; the super-frame counts as one frame.
        (self.counters.accepted, self.counters.bytes) = before;
        all
    }

    /// Counts what was accepted.
    fn count(&mut self, slots: &[Slot], which: &[u16]) {
        for &index in which {
            let (slot, weight) = (&slots[usize::from(index)], self.weight(index));
            let header = slot.meta.offload.segments.map_or(0, |segments| u64::from(segments.header));
            self.counters.accepted += weight;
            self.counters.bytes += u64::from(slot.length) + (weight - 1) * header;
        }
    }

    /// Sends frames, joined where that can be.
    fn transmit_joined(
        &mut self,
        joiner: &mut Joiner,
        slots: &[Slot],
        which: &[u16],
    ) -> PortResult<Transmitted> {
        joiner.fill(slots, which);
        self.weights = std::mem::take(&mut joiner.weights);
        let mut sent = Transmitted::default();
        let joined = push_all(&ALL[..joiner.slots.len()], |rest, done| {
            let (from, refused) = (done.dealt, done.refused);
            let pushed = self.push(&mut joiner.slots, rest, done);
            let weight = |index: usize| usize::from(self.weights[index]);
            sent.dealt += (from..done.dealt).map(weight).sum::<usize>();
            // A push refuses one slot at most: the last that it dealt with.
            if done.refused > refused {
                sent.refused += weight(done.dealt - 1);
            }
            pushed
        });
        joiner.weights = std::mem::take(&mut self.weights);
        joined.map(|_| sent)
    }

    /// The kernel refused a frame; whether it had used up a number for it. `packet_snd` (net/packet/af_packet.c) looks at
    /// the length twice: first with room for a tag, then, behind the stamp's number, without. What is wrong with a frame
    /// it finds before, that a qdisc is full behind.
    fn tried(&mut self, reason: &'static str, slot: &Slot) {
        let is_numbered = match reason {
            reason if reason == self.way.queue => true,
            drop::OVERSIZE => slot.length as usize <= self.way.longest() + TAG,
            _ => false,
        };
        if let Some(stamps) = self.stamps.as_mut().filter(|_| is_numbered) {
            stamps.tried();
        }
    }

    /// Sends some; false: no more can be sent now.
    pub(in crate::port) fn push(
        &mut self,
        slots: &mut [Slot],
        which: &[u16],
        sent: &mut Transmitted,
    ) -> PortResult<bool> {
        let count = match self.prepare(slots, which) {
            Ok(count) => count,
            Err(drop::OFFLOAD) => {
                self.finish(&mut slots[usize::from(which[0])], which[0], sent);
                return Ok(true);
            }
            Err(reason) => {
                self.refuse(which[0], reason, sent);
                return Ok(true);
            }
        };
        let handed_ns = if self.stamps.is_some() { SentStamps::now() } else { 0 };
        let first = self.counters.offered + sent.dealt as u64;
        match self.send(count) {
            Ok(went) => {
                self.way.watch.passes();
                self.count(slots, &which[..went]);
                sent.dealt += went;
                if let Some(stamps) = &mut self.stamps {
                    (first..first + went as u64).for_each(|number| stamps.taken(number, handed_ns));
                }
                if went < count {
                    let slot = &slots[usize::from(which[went])];
                    let reason = self.way.unsaid_reason(slot);
                    self.tried(reason, slot);
                    self.refuse(which[went], reason, sent);
                }
                Ok(true)
            }
            Err(error) => match self.way.judge(error)? {
                Some(reason) => {
                    self.tried(reason, &slots[usize::from(which[0])]);
                    self.refuse(which[0], reason, sent);
                    Ok(true)
                }
                None => Ok(false),
            },
        }
    }
}

impl Transmitter for PacketTransmitter {
    fn transmit(&mut self, batch: &mut Batch<'_>, which: &[u16], _hand: Hand) -> PortResult<Transmitted> {
        self.way.watch.check()?;
        let slots = batch.slots();
        let sent = match self.joiner.take() {
            Some(mut joiner) => {
                let sent = self.transmit_joined(&mut joiner, slots, which);
                self.joiner = Some(joiner);
                sent?
            }
            None => push_all(which, |rest, sent| self.push(slots, rest, sent))?,
        };
        self.counters.offered += sent.dealt as u64;
        self.way.watch.answer(sent)
    }

    fn flush(&mut self, wait: Duration) -> PortResult<usize> {
        self.way.drain(wait)
    }

    fn departures(&mut self, into: &mut Vec<Departure>) -> bool {
        if let Some(stamps) = &mut self.stamps {
            stamps.read(&self.way.fd, into);
        }
        self.stamps.is_some()
    }

    fn counters(&mut self) -> TransmitCounters {
        self.counters.clone()
    }

    fn longest(&self) -> usize {
        self.way.longest()
    }
}
