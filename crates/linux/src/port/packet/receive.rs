//! The receiving end of `int:`: `recvmmsg` into buffers that are made once.

use super::super::batch::{Batch, Home, MAX_BATCH, Meta, Slot};
use super::super::stamps;
use super::super::{PortError, PortOptions, ReceiveCounters, Receiver, Stamp, StampSource, Uri, Wait};
use super::Asked;
use super::shared::{self, Finish, LinkWatch, refused, switch};
use crate::port::told::setting;
use crate::sys::packet::{self, Mapping};
use crate::sys::{clock, socket};
use record::{PlaceDrop, PortSetting, Result, drop};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use wire::offload;

/// Bytes free before a frame: a header may be added; the kernel's virtio header lies at their end.
const HEADROOM: usize = 64;
/// The longest super-frame: 64 KiB of IP, Ethernet header and two tags. Longer ones (BIG TCP) are cut, and counted.
const LONGEST: usize = 65_535 + 14 + 8;
/// Room for the control messages: auxiliary data and time stamps.
const CONTROL: usize = 192;

/// A control buffer aligned as `cmsghdr` needs it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// The receiving end.
pub struct PacketReceiver {
    fd: OwnedFd,
    watch: LinkWatch,
    finish: Finish,
    vnet: bool,
    memory: Mapping,
    stride: usize,
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_ll>,
    controls: Vec<Control>,
    /// Headers that the kernel has written to and that must be made new.
    used: usize,
    slots: Vec<Slot>,
    counters: ReceiveCounters,
    losses: packet::Losses,
    settings: Vec<PortSetting>,
}

// SAFETY: the raw pointers in `headers` and `pieces` point into this value's own heap memory and mapping, which move
// with it; nothing else holds them.
unsafe impl Send for PacketReceiver {}

impl PacketReceiver {
    /// Opens it as asked.
    pub fn open(uri: &Uri, wish: &PortOptions, asked: &Asked) -> Result<PacketReceiver> {
        let (fd, facts) = shared::socket(uri)?;
        let mut settings = vec![];
        socket::set_buffer(&fd, socket::Direction::Receive, asked.buffer)
            .map_err(refused(uri, "the socket buffer"))?;
        let buffer = socket::buffer(&fd, socket::Direction::Receive).unwrap_or(0);
        let note = if buffer < u64::from(asked.buffer) {
            "net.core.rmem_max caps it for who lacks CAP_NET_ADMIN"
        } else {
            "the kernel doubles what is asked, and counts its own overhead: 768 B for a 60 B frame"
        };
        settings.push(setting("buffer", format!("{} B", asked.buffer), format!("{buffer} B"), note));
        packet::set(&fd, libc::PACKET_AUXDATA, 1).map_err(refused(uri, "auxiliary data"))?;
        if asked.vnet {
            packet::set(&fd, libc::PACKET_VNET_HDR, 1).map_err(refused(uri, "virtio headers"))?;
        }
        let note = if asked.vnet { "" } else { "super-frames are not described: how they are cut is lost" };
        settings.push(setting("vnet", "", switch(asked.vnet), note));
        settings.push(setting("batch", "", format!("{} frames", asked.batch), ""));
        settings.extend(shared::listen(&fd, &facts, uri, wish, asked.fanout)?);
        settings.extend(stamps::enable(&fd, wish.stamps, stamps::StampLocation::Message));
        Self::new(fd, &facts, wish, asked, settings).map_err(refused(uri, "memory for the frames"))
    }

    fn new(
        fd: OwnedFd,
        facts: &packet::InterfaceFacts,
        wish: &PortOptions,
        asked: &Asked,
        settings: Vec<PortSetting>,
    ) -> io::Result<PacketReceiver> {
        let capacity = LONGEST.min(wish.snap.map_or(LONGEST, |snap| snap as usize).max(14));
        let stride = (HEADROOM + capacity + 64).next_multiple_of(64);
        let memory = Mapping::anonymous(asked.batch * stride)?;
        // SAFETY: all zeros is a valid value of these C structs.
        let zero = || unsafe {
            (
                MaybeUninit::<libc::mmsghdr>::zeroed().assume_init(),
                MaybeUninit::<libc::sockaddr_ll>::zeroed().assume_init(),
            )
        };
        let mut receiver = PacketReceiver {
            fd,
            watch: LinkWatch::new(facts),
            finish: Finish::new(wish),
            vnet: asked.vnet,
            memory,
            stride,
            headers: (0..asked.batch).map(|_| zero().0).collect(),
            pieces: vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; asked.batch],
            names: (0..asked.batch).map(|_| zero().1).collect(),
            controls: vec![Control([0; CONTROL]); asked.batch],
            used: asked.batch,
            slots: Vec::with_capacity(MAX_BATCH),
            counters: ReceiveCounters::default(),
            losses: packet::Losses::default(),
            settings,
        };
        receiver.aim(capacity);
        Ok(receiver)
    }

    /// Points the message headers at their buffers, once: none of them moves.
    fn aim(&mut self, capacity: usize) {
        let before = if self.vnet { offload::HEADER } else { 0 };
        for index in 0..self.headers.len() {
            // SAFETY: the offset lies inside the mapping, with `capacity` bytes and more behind it.
            let start = unsafe { self.frame(index).sub(before) };
            self.pieces[index] = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: capacity + before };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.pieces[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_control = (&raw mut self.controls[index]).cast();
        }
    }

    /// Where the frame of buffer `index` begins.
    fn frame(&self, index: usize) -> NonNull<u8> {
        // SAFETY: there are as many strides in the mapping as headers.
        unsafe { self.memory.base().add(index * self.stride + HEADROOM) }
    }

    /// One `recvmmsg`; 0: nothing there.
    fn pull(&mut self, limit: usize) -> io::Result<usize> {
        for header in &mut self.headers[..self.used] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL as _;
            header.msg_hdr.msg_flags = 0;
        }
        self.used = 0;
        let limit = limit.min(self.headers.len());
        // SAFETY: the headers are live and exclusive; each points to one piece, one name and one control buffer of this
        // value.
        let received = unsafe {
            socket::receive_many(self.fd.as_fd(), self.headers.as_mut_ptr(), limit, libc::MSG_DONTWAIT)
        };
        match received.map_err(|error| (error.kind(), error)) {
            Ok(count) => {
                self.used = count;
                Ok(count)
            }
            Err((io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _)) => Ok(0),
            Err((_, error)) => Err(error),
        }
    }

    /// Makes a slot of message `index`; none when the filter does not want it.
    fn slot(&mut self, index: usize, now: u64) -> Option<Slot> {
        let beside = Beside::read(&self.headers[index].msg_hdr);
        let data = self.frame(index);
        let before = if self.vnet { offload::HEADER } else { 0 };
        let length = (self.headers[index].msg_len as usize).saturating_sub(before) as u32;
        let meta = Meta {
            wire_length: beside.length.max(length),
            stamp: beside.stamp.unwrap_or(Stamp { ns: now, source: StampSource::User }),
            way: shared::way(self.names[index].sll_pkttype),
            // SAFETY: the kernel has written `length` bytes there, and the virtio header before them.
            offload: unsafe { shared::offload_of(data, length, self.vnet, beside.status) },
            ..Meta::default()
        };
        let mut slot = Slot {
            data,
            length,
            headroom: HEADROOM as u32,
            tailroom: (self.stride - HEADROOM) as u32 - length,
            home: Home::Lent,
            meta,
        };
        // SAFETY: the buffer is this receiver's own and not lent.
        unsafe { self.finish.apply(&mut slot, beside.tag) }.then_some(slot)
    }

    fn gather(&mut self, count: usize) {
        let now = clock::realtime_ns();
        self.slots.clear();
        for index in 0..count {
            if let Some(slot) = self.slot(index, now) {
                self.counters.bytes += u64::from(slot.meta.wire_length);
                self.counters.cut += u64::from(slot.meta.wire_length > slot.length);
                self.slots.push(slot);
            }
        }
        self.losses.count(&self.fd, &mut self.counters.frames, self.slots.len());
    }
}

impl Receiver for PacketReceiver {
    fn receive(&mut self, limit: usize, wait: Wait) -> Result<Batch<'_>, PortError> {
        self.slots.clear();
        self.watch.check()?;
        let limit = limit.min(MAX_BATCH);
        if limit == 0 {
            return Ok(Batch::new(&mut self.slots));
        }
        let mut deadline = None;
        loop {
            let count = match self.pull(limit) {
                Ok(count) => count,
                Err(error) => return Err(self.watch.explain(&self.fd, error)),
            };
            if count > 0 {
                self.watch.passes();
                self.gather(count);
                if !self.slots.is_empty() {
                    break;
                }
            }
            // The clock is read only when there is nothing to do.
            deadline = deadline.or_else(|| shared::deadline(wait));
            if deadline.is_none() || !self.watch.wait(self.fd.as_fd(), deadline)? {
                break;
            }
        }
        if self.slots.is_empty() && self.watch.is_down() {
            self.watch.wait(self.fd.as_fd(), None)?;
        }
        Ok(Batch::new(&mut self.slots))
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.losses.read(&self.fd);
        let lost = PlaceDrop::new("socket", drop::BUFFER_FULL, self.losses.drops);
        ReceiveCounters { drops: vec![lost], ..self.counters.clone() }
    }

    fn settings(&self) -> &[PortSetting] {
        &self.settings
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// What came beside a frame.
#[derive(Debug, Default)]
struct Beside {
    status: u32,
    /// Bytes on the wire, without a tag that was taken out.
    length: u32,
    tag: Option<[u8; 4]>,
    stamp: Option<Stamp>,
}

impl Beside {
    fn read(header: &libc::msghdr) -> Beside {
        let mut beside = Beside::default();
        // SAFETY: `msg_control` points to this receiver's own control buffer, and each kind has the content that is read.
        unsafe {
            socket::control_messages(header, |level, kind, data| match (level, kind) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    let data = data.cast::<libc::tpacket_auxdata>().read_unaligned();
                    beside.status = data.tp_status;
                    beside.length = data.tp_len;
                    beside.tag = shared::tag(data.tp_status, data.tp_vlan_tci, data.tp_vlan_tpid);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                    beside.stamp = stamps::read(&data.cast::<[libc::timespec; 3]>().read_unaligned());
                }
                _ => {}
            });
        }
        beside
    }
}
