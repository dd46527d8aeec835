//! What all sockets share: options by name, buffers, time-outs, drop counts, waiting.
//!
//! Options are read back after they are set, because the kernel changes what it is asked (`SO_SNDBUF` is doubled and
//! capped by `net.core.wmem_max`); what took effect is what a record must say.

use super::notice;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Which way bytes go through a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Out of this host.
    Send,
    /// Into it.
    Receive,
}

/// Errors of `accept` that belong to one connection, not to the listener (accept(2)).
pub fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | HostUnreachable | NetworkUnreachable | WouldBlock
    )
}

/// Bytes that arrived in order and that nobody has read (`FIONREAD`).
pub(crate) fn unread(fd: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int`.
    Errno::result(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut bytes) })?;
    Ok(bytes.max(0) as u32)
}

/// Sets an option whose value is a C `int`.
pub(crate) fn set_int(fd: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set(fd, level, name, &value)
}

/// Sets an option. `T` must be the plain C type that the kernel reads.
pub(crate) fn set<T: Copy>(fd: impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes from a live reference of that size.
    let rc = unsafe {
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    Ok(Errno::result(rc).map(drop)?)
}

/// Reads an option into `buffer`; returns how many bytes the kernel wrote.
pub(crate) fn get(fd: impl AsFd, level: i32, name: i32, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = buffer.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into a live, exclusive buffer of that size.
    let rc = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, buffer.as_mut_ptr().cast(), &raw mut length)
    };
    Errno::result(rc)?;
    Ok((length as usize).min(buffer.len()))
}

/// Reads an option whose value is a C struct.
pub(crate) fn get_struct<T: CStruct>(fd: impl AsFd, level: i32, name: i32) -> io::Result<T> {
    let (mut value, mut length) = (zeroed::<T>(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes into a live struct of that size, of integers and pointers.
    let rc = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    };
    Errno::result(rc)?;
    Ok(value)
}

pub(crate) fn get_int(fd: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let mut bytes = [0; 4];
    get(fd, level, name, &mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

/// Asks for a socket buffer of so many bytes: beyond `net.core.rmem_max` / `wmem_max` where that is permitted
/// (`CAP_NET_ADMIN`), else within it. The kernel doubles the number for its own overhead and caps it silently, so read
/// back what took effect ([`buffer`]).
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_buffer(fd: impl AsFd, direction: Direction, bytes: u32) -> io::Result<()> {
    let (forced, plain) = match direction {
        Direction::Receive => (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        Direction::Send => (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    };
    // The kernel doubles an `int`; half of the largest one is the most that does not overflow.
    let bytes = bytes.min(i32::MAX as u32 / 2) as i32;
    set_int(&fd, libc::SOL_SOCKET, forced, bytes).or_else(|_| set_int(&fd, libc::SOL_SOCKET, plain, bytes))
}

/// Asks for the socket buffers that are given, as [`set_buffer`].
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_buffers(fd: impl AsFd, send: Option<u32>, receive: Option<u32>) -> io::Result<()> {
    let both = [(Direction::Send, send), (Direction::Receive, receive)];
    let mut asked = both.into_iter().filter_map(|(direction, bytes)| Some((direction, bytes?)));
    asked.try_for_each(|(direction, bytes)| set_buffer(&fd, direction, bytes))
}

/// The socket buffer as the kernel keeps it, in bytes.
pub fn buffer(fd: impl AsFd, direction: Direction) -> io::Result<u64> {
    let name = if direction == Direction::Send { libc::SO_SNDBUF } else { libc::SO_RCVBUF };
    Ok(get_int(fd, libc::SOL_SOCKET, name)?.max(0) as u64)
}

/// How long a blocking call may wait before it ends with `EAGAIN`; none waits for ever. The kernel rounds up to a
/// jiffy.
pub fn set_timeout(fd: impl AsFd, direction: Direction, timeout: Option<Duration>) -> io::Result<()> {
    let name = if direction == Direction::Send { libc::SO_SNDTIMEO } else { libc::SO_RCVTIMEO };
    // Zero would mean "for ever", so the shortest wait is one microsecond.
    let timeout = timeout.map_or(Duration::ZERO, |timeout| timeout.max(Duration::from_micros(1)));
    let value = libc::timeval { tv_sec: timeout.as_secs() as _, tv_usec: timeout.subsec_micros() as _ };
    set(fd, libc::SOL_SOCKET, name, &value)
}

/// Frames that this socket dropped since it was opened, as the kernel counts them (`SO_MEMINFO`, `SK_MEMINFO_DROPS`,
/// Linux 4.12; the `d` of `ss -m` and the last column of `/proc/net/udp`).
pub fn drops(fd: impl AsFd) -> io::Result<u64> {
    const SK_MEMINFO_DROPS: usize = 8;
    let mut bytes = [0; 64];
    let length = get(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    let (words, _) = bytes[..length].as_chunks::<4>();
    let word = words.get(SK_MEMINFO_DROPS).ok_or(io::ErrorKind::Unsupported)?;
    Ok(u64::from(u32::from_ne_bytes(*word)))
}

/// Gives level, kind and content of each control message that came with a message to `each`.
///
/// # Safety
/// `msg_control` of the header points to a live control buffer, into which the kernel wrote `msg_controllen` bytes.
pub unsafe fn control_messages(header: &libc::msghdr, mut each: impl FnMut(i32, i32, *const u8)) {
    // SAFETY: the kernel writes whole control messages, and the macros stay inside what the caller promises.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(found) = message.as_ref() {
            each(found.cmsg_level, found.cmsg_type, libc::CMSG_DATA(message));
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
}

/// sendmmsg(2), without the loop of one call a message that musl has in its place.
///
/// musl fills the upper halves of two lengths that the kernel reads whole; they are zero in headers that began as zeros, so
/// the kernel can take them as they are (<https://git.musl-libc.org/cgit/musl/tree/src/network/sendmmsg.c>).
///
/// # Safety
/// The headers are live, began as zeros, and so are the pieces, names and control buffers
/// that they point to.
pub unsafe fn send_many(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr], flags: i32) -> io::Result<usize> {
    let (first, count) = (headers.as_mut_ptr(), headers.len());
    // SAFETY: promised by the caller.
    let sent = unsafe { libc::syscall(libc::SYS_sendmmsg, fd.as_raw_fd(), first, count, flags) };
    Ok(Errno::result(sent)? as usize)
}

/// recvmmsg(2) without a time-out pointer: the kernel's own handling of it is broken (recvmmsg(2), BUGS).
///
/// # Safety
/// As of [`send_many`].
pub unsafe fn receive_many(fd: BorrowedFd<'_>, into: &mut [libc::mmsghdr], flags: i32) -> io::Result<usize> {
    let (first, count, none) = (into.as_mut_ptr(), into.len(), std::ptr::null_mut::<libc::timespec>());
    // SAFETY: promised by the caller.
    let received = unsafe { libc::syscall(libc::SYS_recvmmsg, fd.as_raw_fd(), first, count, flags, none) };
    Ok(Errno::result(received)? as usize)
}

/// Waits until one of the descriptors can be read (or its peer is gone), at most `timeout`; none waits for ever.
/// Says which; all false after a time-out or a signal.
pub fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    notice::poll(&mut polled, timeout)?;
    Ok(polled.map(|fd| fd.any().unwrap_or(true)))
}

/// The name of an errno, e.g. `ENOBUFS`.
pub fn errno_name(errno: i32) -> String {
    format!("{:?}", Errno::from_raw(errno))
}

/// All-zero value of a C struct.
pub(crate) fn zeroed<T: CStruct>() -> T {
    // SAFETY: every type with this marker is a C struct of integers and pointers; all zeros is a valid value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// C structs for which all zeros is a valid value.
pub(crate) trait CStruct {}
impl CStruct for libc::mmsghdr {}
impl CStruct for libc::iovec {}
impl CStruct for libc::sockaddr_ll {}
impl CStruct for libc::sockaddr_storage {}
impl CStruct for libc::ifreq {}
impl CStruct for libc::msghdr {}
impl CStruct for libc::rusage {}
impl CStruct for libc::sockaddr_xdp {}
impl CStruct for libc::xdp_mmap_offsets {}
impl CStruct for libc::xdp_options {}
impl CStruct for libc::xdp_statistics {}
impl CStruct for libc::xdp_umem_reg {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_buffer_is_doubled_and_read_back() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_buffer(&socket, Direction::Receive, 8192).unwrap();
        assert_eq!(buffer(&socket, Direction::Receive).unwrap(), 16384);
    }

    #[test]
    fn a_socket_counts_what_it_drops() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_buffer(&receiver, Direction::Receive, 4096).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        set_timeout(&receiver, Direction::Receive, Some(Duration::from_millis(20))).unwrap();
        let received = std::iter::from_fn(|| receiver.recv(&mut [0; 2000]).ok()).count() as u64;
        assert!(received < 100);
        assert_eq!(drops(&receiver).unwrap() + received, 100);
    }

    #[test]
    fn waiting_says_which_one_is_ready() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let (c, _d) = UnixStream::pair().unwrap();
        let short = Some(Duration::from_millis(1));
        assert_eq!(wait_readable([a.as_fd(), c.as_fd()], short).unwrap(), [false, false]);
        io::Write::write_all(&mut b, b"x").unwrap();
        assert_eq!(wait_readable([a.as_fd(), c.as_fd()], None).unwrap(), [true, false]);
        drop(b);
        assert_eq!(errno_name(libc::ENOBUFS), "ENOBUFS");
    }
}
