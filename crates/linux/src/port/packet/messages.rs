//! The receiving end of `int:`: `recvmmsg` into buffers that are made once.

use super::super::batch_builder::BatchBuilder;
use super::super::stamps;
use super::super::{End, PortOptions, Receiver, Stamp, StampSource, Uri};
use super::Asked;
use super::receiver::{Found, SocketReceiver, Source};
use super::shared::{self, refused};
use crate::port::told::setting;
use crate::sys::packet::{self, Mapping};
use crate::sys::{clock, socket};
use nix::sys::mman::MapFlags;
use record::{Result, drop};
use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
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

/// The buffers of a socket whose frames come in messages.
pub struct Messages {
    vnet: bool,
    memory: Mapping,
    stride: usize,
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_ll>,
    controls: Vec<Control>,
    /// Headers that the kernel has written to and that must be made new.
    used: usize,
}

// SAFETY: the raw pointers in `headers` and `pieces` point into this value's own heap memory and mapping, which move
// with it; nothing else holds them.
unsafe impl Send for Messages {}

/// Opens the receiving end as asked.
pub fn open(uri: &Uri, wish: &PortOptions, asked: &Asked) -> Result<End<dyn Receiver>> {
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
    settings.push(shared::vnet_setting(asked.vnet));
    settings.push(setting("batch", "", format!("{} frames", asked.batch), ""));
    settings.extend(shared::listen(&fd, &facts, uri, wish, asked.fanout)?);
    settings.extend(stamps::enable(&fd, wish.stamps, stamps::StampLocation::Message));
    let messages = Messages::new(wish, asked).map_err(refused(uri, "memory for the frames"))?;
    Ok((Box::new(SocketReceiver::new(messages, fd, &facts, wish)), settings))
}

impl Messages {
    fn new(wish: &PortOptions, asked: &Asked) -> io::Result<Messages> {
        let capacity = LONGEST.min(wish.snap.map_or(LONGEST, |snap| snap as usize).max(14));
        let stride = (HEADROOM + capacity + 64).next_multiple_of(64);
        let mut messages = Messages {
            vnet: asked.vnet,
            memory: Mapping::anonymous(asked.batch * stride, MapFlags::empty())?,
            stride,
            headers: std::iter::repeat_with(socket::zeroed).take(asked.batch).collect(),
            pieces: vec![socket::zeroed(); asked.batch],
            names: vec![socket::zeroed(); asked.batch],
            controls: vec![Control([0; CONTROL]); asked.batch],
            used: asked.batch,
        };
        messages.aim(capacity);
        Ok(messages)
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

    /// Adds message `index` to the batch.
    fn lend_one(&self, index: usize, now: u64, batch: &mut BatchBuilder) {
        let beside = Beside::read(&self.headers[index].msg_hdr);
        let before = if self.vnet { offload::HEADER } else { 0 };
        let length = (self.headers[index].msg_len as usize).saturating_sub(before) as u32;
        let found = Found {
            data: self.frame(index),
            length,
            wire_length: beside.length.max(length),
            headroom: HEADROOM as u32,
            tailroom: (self.stride - HEADROOM) as u32 - length,
            status: beside.status,
            tag: beside.tag,
            stamp: beside.stamp.unwrap_or(Stamp { ns: now, source: StampSource::User }),
            kind: self.names[index].sll_pkttype,
        };
        // SAFETY: the buffer is this receiver's own and not lent; the kernel has written `length` bytes there, and the
        // virtio header before them.
        unsafe { found.lend(self.vnet, batch) };
    }
}

impl Source for Messages {
    const LOSS: (&'static str, &'static str) = ("socket", drop::BUFFER_FULL);
    const SEES_ERRORS: bool = true;

    /// One `recvmmsg`.
    fn lend(&mut self, fd: BorrowedFd<'_>, limit: usize, batch: &mut BatchBuilder) -> io::Result<bool> {
        for header in &mut self.headers[..self.used] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL as _;
            header.msg_hdr.msg_flags = 0;
        }
        self.used = 0;
        let limit = limit.min(self.headers.len());
        // SAFETY: the headers are live and exclusive; each points to one piece, one name and one control buffer of this
        // value.
        let received = unsafe { socket::receive_many(fd, &mut self.headers[..limit], libc::MSG_DONTWAIT) };
        match received {
            Ok(count) => self.used = count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let now = clock::realtime_ns();
        (0..self.used).for_each(|index| self.lend_one(index, now, batch));
        Ok(self.used > 0)
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
