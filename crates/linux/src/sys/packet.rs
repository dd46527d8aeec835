//! Packet sockets (`AF_PACKET`, packet(7)): frames of one interface, headers included.
//!
//! A socket is made for no protocol at all, so that it sees no frame before its filter, its ring and its options stand;
//! [`bind`] with [`EVERYTHING`] then opens the tap. Facts of an interface are asked through the socket itself
//! (`ioctl`), because a thread may since have left the namespace that the socket lives in.

use super::socket;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// Every protocol, in and out (`ETH_P_ALL`), as [`bind`] takes it.
pub const EVERYTHING: u16 = libc::ETH_P_ALL as u16;

/// What the kernel tells about an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Its number in the namespace of the socket.
    pub index: i32,
    /// Bytes that a frame may carry behind its Ethernet header.
    pub mtu: usize,
    /// Set up by the administrator (`IFF_UP`).
    pub up: bool,
    /// Kind of link header (`ARPHRD_…`).
    pub hardware: u16,
    /// Its hardware address.
    pub mac: [u8; 6],
}

impl InterfaceFacts {
    /// True when its frames begin with an Ethernet header.
    pub fn is_ethernet(&self) -> bool {
        matches!(self.hardware, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK)
    }
}

fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// A packet socket that is bound to nothing and never blocks.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`.
pub fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain call; the descriptor is new and ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?)) }
}

/// Binds to an interface, and to a protocol: 0 to send only.
///
/// # Errors
/// What bind(2) says.
pub fn bind(fd: impl AsFd, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeros is a valid address of this C struct.
    let mut address: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a live struct of that size.
    let rc = unsafe { libc::bind(fd.as_fd().as_raw_fd(), (&raw const address).cast(), length) };
    check(rc).map(drop)
}

/// The number of the interface that the socket is bound to; −1 once the interface was removed.
///
/// # Errors
/// What getsockname(2) says.
pub fn bound_to(fd: impl AsFd) -> io::Result<i32> {
    // SAFETY: all zeros is a valid address of this C struct.
    let mut address: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into a live struct of that size.
    let rc = unsafe { libc::getsockname(fd.as_fd().as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    check(rc).map(|_| address.sll_ifindex)
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid value of this C struct.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ask(fd: BorrowedFd<'_>, what: u32, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests used here read and write one `ifreq`, which is live and exclusive.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as libc::Ioctl, std::ptr::from_mut(request)) }).map(drop)
}

fn facts(fd: BorrowedFd<'_>, request: &mut libc::ifreq) -> io::Result<InterfaceFacts> {
    // SAFETY (all unions here): the kernel has just written the member that belongs to the request.
    ask(fd, libc::SIOCGIFINDEX as u32, request)?;
    // SAFETY: as above.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    ask(fd, libc::SIOCGIFMTU as u32, request)?;
    // SAFETY: as above.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu }.max(0) as usize;
    ask(fd, libc::SIOCGIFFLAGS as u32, request)?;
    // SAFETY: as above.
    let up = i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0;
    ask(fd, libc::SIOCGIFHWADDR as u32, request)?;
    // SAFETY: as above.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mac = std::array::from_fn(|i| address.sa_data[i] as u8);
    Ok(InterfaceFacts { index, mtu, up, hardware: address.sa_family, mac })
}

/// What is known of the interface of that name.
///
/// # Errors
/// `ENODEV` when there is none in the namespace of the socket.
pub fn interface_named(fd: impl AsFd, name: &str) -> io::Result<InterfaceFacts> {
    facts(fd.as_fd(), &mut request(name)?)
}

/// What is known of the interface of that number, whatever its name is now.
///
/// # Errors
/// `ENODEV` when there is none in the namespace of the socket.
pub fn interface_numbered(fd: impl AsFd, index: i32) -> io::Result<InterfaceFacts> {
    // SAFETY: all zeros is a valid value of this C struct.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    request.ifr_ifru.ifru_ifindex = index;
    ask(fd.as_fd(), libc::SIOCGIFNAME as u32, &mut request)?;
    facts(fd.as_fd(), &mut request)
}

/// Sets an option of a packet socket whose value is a C `int`.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set(fd: impl AsFd, name: i32, value: i32) -> io::Result<()> {
    socket::set_int(fd, libc::SOL_PACKET, name, value)
}

/// Sees frames for other stations too, until the socket is closed.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_promiscuous(fd: impl AsFd, index: i32) -> io::Result<()> {
    let member = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    socket::set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)
}

/// Attaches a classic BPF program, or exchanges the one that is there.
///
/// # Errors
/// `EINVAL` for a program that the kernel refuses, `ENOMEM` for one beyond `net.core.optmem_max`.
pub fn attach_filter(fd: impl AsFd, program: &[wire::filter::FilterInstruction]) -> io::Result<()> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.if_true, jf: i.if_false, k: i.k })
        .collect();
    let length = u16::try_from(code.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: code.as_mut_ptr() };
    socket::set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// What the kernel counted since the last call: this *clears* the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Frames that passed the filter, those that were dropped included.
    pub frames: u32,
    /// Of these, how many found no room.
    pub drops: u32,
    /// How often the ring was so full that the kernel stopped using it (TPACKET_V3 alone counts it).
    pub freezes: u32,
}

/// The sums of such counters, which have only 32 bits and begin anew with each reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Frames that found no room.
    pub drops: u64,
    /// How often the ring was full.
    pub freezes: u64,
}

impl Losses {
    /// Reads and clears the socket's counters and adds them up. One that cannot be read (the interface is gone) adds
    /// nothing.
    pub fn read(&mut self, fd: impl AsFd) {
        if let Ok(counted) = statistics(fd) {
            self.add(counted);
        }
    }

    /// Reads the socket's counters long before their 32 bits could come round: `frames` were received, `more` of them now.
    pub fn look(&mut self, fd: impl AsFd, frames: u64, more: usize) {
        if (frames - more as u64) >> 24 != frames >> 24 {
            self.read(fd);
        }
    }

    fn add(&mut self, counted: Statistics) {
        self.drops += u64::from(counted.drops);
        self.freezes += u64::from(counted.freezes);
    }
}

/// Reads and clears the counters.
///
/// # Errors
/// What getsockopt(2) says.
pub fn statistics(fd: impl AsFd) -> io::Result<Statistics> {
    let mut bytes = [0; 12];
    socket::get(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut bytes)?;
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok(Statistics { frames: word(0), drops: word(4), freezes: word(8) })
}

/// Bytes (the kernel's buffers, not frames' bytes) that were sent and not yet freed by the interface.
///
/// # Errors
/// What ioctl(2) says.
pub fn unsent(fd: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int`.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.max(0) as u64)
}

/// The error that a socket was left with (`SO_ERROR`); reading clears it.
///
/// # Errors
/// What getsockopt(2) says.
pub fn take_error(fd: impl AsFd) -> io::Result<Option<io::Error>> {
    let mut bytes = [0; 4];
    socket::get(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut bytes)?;
    let errno = i32::from_ne_bytes(bytes);
    Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
}

/// What poll(2) saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PollResult {
    /// It can be read (or written, when that was asked).
    pub ready: bool,
    /// It was left with an error.
    pub failed: bool,
}

/// Waits, at most so long, until the descriptor can be read or fails. Nothing seen: the time is over, or a signal came.
///
/// # Errors
/// What ppoll(2) says.
pub fn poll(fd: impl AsFd, events: i16, time: Duration) -> io::Result<PollResult> {
    let mut polled = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events, revents: 0 };
    let time =
        libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: libc::c_long::from(time.subsec_nanos()) };
    // SAFETY: one live pollfd and a live timespec; the signal mask is left alone.
    let rc = unsafe { libc::ppoll(&raw mut polled, 1, &raw const time, std::ptr::null()) };
    match check(rc) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(PollResult::default()),
        Err(error) => Err(error),
        Ok(_) => Ok(PollResult {
            ready: polled.revents & events != 0,
            failed: polled.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0,
        }),
    }
}

/// What a driver says of its time stamps (`struct ethtool_ts_info`, linux/ethtool.h).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct StampFacts {
    command: u32,
    /// `SOF_TIMESTAMPING_…` bits.
    pub flags: u32,
    /// Number of its clock (`/dev/ptpN`); −1 without one.
    pub clock: i32,
    /// Kinds of transmit stamps (`HWTSTAMP_TX_…`), one bit each.
    pub transmit: u32,
    reserved: [u32; 3],
    /// Filters of receive stamps (`HWTSTAMP_FILTER_…`), one bit each.
    pub receive: u32,
    reserved_too: [u32; 3],
}

/// Asks the driver of the interface which stamps it knows (`ETHTOOL_GET_TS_INFO`).
///
/// # Errors
/// `EOPNOTSUPP` or what ioctl(2) says.
pub fn stamp_facts(fd: impl AsFd, name: &str) -> io::Result<StampFacts> {
    const GET_TS_INFO: u32 = 0x41;
    const SIOCETHTOOL: u32 = 0x8946;
    let mut facts = StampFacts { command: GET_TS_INFO, clock: -1, ..StampFacts::default() };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut facts).cast();
    ask(fd.as_fd(), SIOCETHTOOL, &mut request)?;
    Ok(facts)
}

/// Which frames an interface stamps (`struct hwtstamp_config`, linux/net_tstamp.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[repr(C)]
pub struct StampConfig {
    /// `HWTSTAMP_FLAG_…`.
    pub flags: i32,
    /// Frames that it sends (`HWTSTAMP_TX_…`: 0 none).
    pub transmit: i32,
    /// Frames that it receives (`HWTSTAMP_FILTER_…`: 0 none, 1 all).
    pub receive: i32,
}

/// Asks which frames the interface stamps (`SIOCGHWTSTAMP`).
///
/// # Errors
/// `EOPNOTSUPP`: it cannot stamp; or what ioctl(2) says.
pub fn stamp_config(fd: impl AsFd, name: &str) -> io::Result<StampConfig> {
    const SIOCGHWTSTAMP: u32 = 0x89b1;
    let mut config = StampConfig::default();
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut config).cast();
    ask(fd.as_fd(), SIOCGHWTSTAMP, &mut request)?;
    Ok(config)
}

/// Says which frames the interface shall stamp (`SIOCSHWTSTAMP`); it may take more. Whoever calls this changes the
/// machine: only `crate::tune::stamps` does.
///
/// # Errors
/// `EOPNOTSUPP`, `ERANGE` (not this filter), `EPERM`, or what ioctl(2) says.
pub fn set_stamp_config(fd: impl AsFd, name: &str, mut config: StampConfig) -> io::Result<()> {
    const SIOCSHWTSTAMP: u32 = 0x89b0;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut config).cast();
    ask(fd.as_fd(), SIOCSHWTSTAMP, &mut request)
}

/// Sends one frame as it is; the socket must be bound.
///
/// # Errors
/// What send(2) says.
pub fn send(fd: impl AsFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `len` bytes of a live slice.
    let rc = unsafe { libc::send(fd.as_fd().as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A stamp that the kernel made of a frame on its way out.
#[derive(Debug, Clone, Copy)]
pub struct SentStamp {
    /// Which step of the way (`SCM_TSTAMP_…`: 0 sent, 1 scheduled).
    pub step: u32,
    /// The number of the frame, if the socket numbers them (`SOF_TIMESTAMPING_OPT_ID`); it wraps.
    pub key: u32,
    /// Its times, as `SCM_TIMESTAMPING` has them.
    pub times: [libc::timespec; 3],
}

/// Takes one stamp of a frame that was sent from the socket's error queue; none: there is none.
///
/// # Errors
/// What recvmsg(2) says.
pub fn take_sent_stamp(fd: impl AsFd) -> io::Result<Option<SentStamp>> {
    #[repr(C, align(8))]
    struct Control([u8; 256]);
    let (mut bytes, mut control) = ([0u8; 256], Control([0; 256]));
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid value of this C struct.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
    (header.msg_control, header.msg_controllen) = ((&raw mut control).cast(), 256 as _);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to one live piece and one live, aligned control buffer.
    let rc = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) };
    if rc < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let (mut times, mut step, mut key) = (None, 0, 0);
    // SAFETY: the control buffer is live, and each kind has the content that is read.
    unsafe {
        socket::control_messages(&header, |level, kind, data| {
            if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
                times = Some(data.cast::<[libc::timespec; 3]>().read_unaligned());
            } else if (level, kind) == (libc::SOL_PACKET, libc::PACKET_TX_TIMESTAMP) {
                let told = data.cast::<libc::sock_extended_err>().read_unaligned();
                (step, key) = (told.ee_info, told.ee_data);
            }
        });
    }
    Ok(times.map(|times| SentStamp { step, key, times }))
}

/// Memory of whole pages: anonymous, or a ring that the kernel shares.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that belongs to this value; who touches it is decided by its owner.
unsafe impl Send for Mapping {}

impl Mapping {
    /// New memory, filled with zeros, that takes pages only once they are touched.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE)? };
        Ok(Mapping { base: base.cast(), bytes })
    }

    /// The ring (or both rings, receive first) that was set up on a packet socket.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn ring(fd: impl AsFd, bytes: usize) -> io::Result<Mapping> {
        use nix::sys::mman::{MapFlags, ProtFlags, mmap};
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new shared mapping at a place of the kernel's choice touches nothing that exists.
        let base =
            unsafe { mmap(None, length, access, MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE, fd, 0)? };
        Ok(Mapping { base: base.cast(), bytes })
    }

    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this type with this size; whoever borrowed from it is gone.
        let _ = unsafe { nix::sys::mman::munmap(self.base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_add_up_beyond_32_bits() {
        let mut losses = Losses::default();
        let fed = [(u32::MAX, 1), (u32::MAX, u32::MAX), (2, u32::MAX), (0, 0), (7, 3)];
        for (drops, freezes) in fed {
            losses.add(Statistics { frames: u32::MAX, drops, freezes });
        }
        let expected = Losses { drops: 2 * 0xffff_ffff + 9, freezes: 2 * 0xffff_ffff + 4 };
        assert_eq!(losses, expected);
        assert!(losses.drops > 1 << 33);
    }

    /// `struct hwtstamp_config` of linux/net_tstamp.h: flags, tx_type, rx_filter, each an int.
    #[test]
    fn a_stamp_configuration_has_the_kernels_layout() {
        assert_eq!((size_of::<StampConfig>(), align_of::<StampConfig>()), (12, 4));
        assert_eq!(std::mem::offset_of!(StampConfig, transmit), 4);
        assert_eq!(std::mem::offset_of!(StampConfig, receive), 8);
    }
}
