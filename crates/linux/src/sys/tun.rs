//! Tap interfaces (`/dev/net/tun`; `Documentation/networking/tuntap.rst`): frames of an interface whose wire ends here.

use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::sys::uio::{readv, writev};

use super::packet::{ask, request};

// include/uapi/linux/if_tun.h
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO: u32 = 0x02 | 0x04 | 0x08;
const TUN_F_USO: u32 = 0x20 | 0x40;

/// What the kernel may leave to the reader of a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offloads {
    /// Nothing: every frame comes complete.
    None,
    /// Checksums and TCP super-frames.
    Tcp,
    /// Checksums, TCP super-frames and UDP super-frames (Linux 6.2).
    TcpAndUdp,
}

/// How a queue is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The interface may have several queues; all of them must say so.
    pub many: bool,
    /// A `struct virtio_net_hdr` stands before each frame.
    pub header: bool,
    /// It must not exist yet.
    pub new: bool,
}

/// Opens a queue for a tap interface of the calling thread's namespace; not attached to any yet, never blocks.
///
/// # Errors
/// What open(2) says: there may be no such device file.
pub fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    Ok(OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/net/tun")?.into())
}

/// Attaches a queue to the tap interface of that name, which is made if it does not exist and vanishes with its last
/// queue. The name must have fewer than 16 bytes.
///
/// # Errors
/// `EPERM`, `EBUSY` (exists, or has its one queue already), `EINVAL` (not a tap, or not of that shape), `E2BIG`.
pub fn attach(fd: impl AsFd, name: &str, shape: Shape) -> io::Result<()> {
    let mut request = request(name).map_err(|_| Errno::EINVAL)?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    for (wanted, flag) in [
        (shape.many, libc::IFF_MULTI_QUEUE),
        (shape.header, libc::IFF_VNET_HDR),
        (shape.new, libc::IFF_TUN_EXCL),
    ] {
        flags |= if wanted { flag } else { 0 };
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ask(fd, TUNSETIFF, &mut request)
}

/// Says what the reader can deal with; the kernel changes the features of the interface accordingly.
///
/// # Errors
/// `EINVAL` from a kernel that does not know all of it.
pub fn set_offloads(fd: impl AsFd, offloads: Offloads) -> io::Result<()> {
    let bits = match offloads {
        Offloads::None => 0,
        Offloads::Tcp => TUN_F_CSUM | TUN_F_TSO,
        Offloads::TcpAndUdp => TUN_F_CSUM | TUN_F_TSO | TUN_F_USO,
    };
    // SAFETY: this request takes a number, no pointer.
    let rc = unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), TUNSETOFFLOAD as libc::Ioctl, libc::c_ulong::from(bits))
    };
    Ok(Errno::result(rc).map(drop)?)
}

/// Reads one frame, its header into `header` (which may be empty); the length of both.
///
/// # Errors
/// `WouldBlock` when there is none, `EBADFD` when the interface is gone.
pub fn read(queue: impl AsFd, header: &mut [u8], frame: &mut [u8]) -> io::Result<usize> {
    Ok(readv(queue, &mut [IoSliceMut::new(header), IoSliceMut::new(frame)])?)
}

/// Writes one frame with its header (which may be empty).
///
/// # Errors
/// `EIO` when the interface is switched off, `EINVAL` for what is no frame, `EBADFD` when the interface is gone.
pub fn write(queue: impl AsFd, header: &[u8], frame: &[u8]) -> io::Result<()> {
    Ok(writev(queue, &[IoSlice::new(header), IoSlice::new(frame)]).map(drop)?)
}
