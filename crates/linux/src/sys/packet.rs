//! Packet sockets (`AF_PACKET`, packet(7)): frames of one interface, headers included.
//!
//! A socket is made for no protocol at all, so that it sees no frame before its filter, its ring and its options stand;
//! [`bind`] with [`EVERYTHING`] then opens the tap. Facts of an interface are asked through the socket itself
//! (`ioctl`), because a thread may since have left the namespace that the socket lives in.

use super::socket::{self, zeroed};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use nix::sys::socket::{self as nixsock, AddressFamily, MsgFlags, SockFlag, SockType};
use std::ffi::c_void;
use std::io;
use std::net::UdpSocket;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Every protocol, in and out (`ETH_P_ALL`), as [`bind`] takes it.
pub const EVERYTHING: u16 = libc::ETH_P_ALL as u16;

const SIOCETHTOOL: u32 = 0x8946;
/// `ETHTOOL_GDRVINFO`.
const GET_DRIVER: u32 = 0x03;

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

/// A packet socket that is bound to nothing and never blocks.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`.
pub fn open() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(nixsock::socket(AddressFamily::Packet, SockType::Raw, flags, None)?)
}

/// Binds to an interface, and to a protocol: 0 to send only.
///
/// # Errors
/// What bind(2) says.
pub fn bind(fd: impl AsFd, index: i32, protocol: u16) -> io::Result<()> {
    let mut address: libc::sockaddr_ll = zeroed();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a live struct of that size.
    let rc = unsafe { libc::bind(fd.as_fd().as_raw_fd(), (&raw const address).cast(), length) };
    Ok(Errno::result(rc).map(drop)?)
}

/// The number of the interface that the socket is bound to; −1 once the interface was removed.
///
/// # Errors
/// What getsockname(2) says.
pub fn bound_to(fd: impl AsFd) -> io::Result<i32> {
    // nix wants an address of full length, which the kernel does not tell.
    let mut address: libc::sockaddr_ll = zeroed();
    let mut length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into a live struct of that size.
    let rc = unsafe { libc::getsockname(fd.as_fd().as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    Ok(Errno::result(rc).map(|_| address.sll_ifindex)?)
}

/// A request about the interface of that name; `ENODEV` for a name that no interface can have.
pub(super) fn request(name: &str) -> io::Result<libc::ifreq> {
    let mut request: libc::ifreq = zeroed();
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Puts a request that reads and writes one `ifreq`, and what that points to.
pub(super) fn ask(fd: impl AsFd, what: u32, request: &mut libc::ifreq) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the request is live and exclusive, and so is what it points to ([`ask_about`]).
    let rc = unsafe { libc::ioctl(fd, what as libc::Ioctl, std::ptr::from_mut(request)) };
    Ok(Errno::result(rc).map(drop)?)
}

/// The counters that the driver of the interface keeps under names of its own (`ETHTOOL_GSTRINGS`, `ETHTOOL_GSTATS`); none where
/// it keeps none.
///
/// # Errors
/// `ENODEV` when there is no such interface in the namespace of the socket, `EOPNOTSUPP`.
pub fn driver_counters(fd: impl AsFd, name: &str) -> io::Result<Vec<(String, u64)>> {
    const STRINGS: u64 = 0x1b;
    const STATS: u64 = 0x1d;
    /// The set of names of counters, in the upper half of the first word.
    const OF_STATS: u64 = 1;
    const NAME: usize = 32;
    let bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
    let first = |command: u64, second: u64| {
        let halves = [(command as u32).to_ne_bytes(), (second as u32).to_ne_bytes()].concat();
        u64::from_ne_bytes(halves.try_into().expect("eight bytes"))
    };
    // A driver does not change how many it keeps while its interface is there; more than this none has.
    let count = driver_info(&fd, name)?.counters.min(16_384) as usize;
    // Room for as many more, so that the kernel never writes behind the end if it did.
    let mut names = vec![0u64; 2 + 2 * count * NAME / 8];
    names[0] = first(STRINGS, OF_STATS);
    let mut values = vec![0u64; 2 + 2 * count];
    values[0] = first(STATS, count as u64);
    ask_words(&fd, name, &mut names)?;
    ask_words(&fd, name, &mut values)?;
    let names = bytes(&names);
    let text = |index: usize| {
        let name = names.get(12 + index * NAME..).and_then(|rest| rest.get(..NAME)).unwrap_or_default();
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    };
    Ok((0..count).map(|index| (text(index), values[1 + index])).collect())
}

/// What a driver says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// Its name.
    pub driver: String,
    /// Its version.
    pub version: String,
    /// Version of the device's firmware; empty without one.
    pub firmware: String,
    /// Address on the bus; empty without one.
    pub bus: String,
    /// How many counters it keeps under names of its own.
    pub counters: u32,
}

/// Asks the driver of an interface (`ETHTOOL_GDRVINFO`, `struct ethtool_drvinfo` of linux/ethtool.h).
///
/// # Errors
/// As [`driver_counters`].
pub fn driver_info(fd: impl AsFd, name: &str) -> io::Result<DriverInfo> {
    /// Where `struct ethtool_drvinfo` has its texts of 32 bytes, and `n_stats`.
    const TEXTS: usize = 4;
    const COUNT: usize = 180;
    let mut about = [0u64; 25];
    let command = GET_DRIVER.to_ne_bytes();
    about[0] = u64::from_ne_bytes([command, [0; 4]].concat().try_into().expect("eight bytes"));
    ask_about(&fd, name, SIOCETHTOOL, &mut about)?;
    let bytes: Vec<u8> = about.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = |field: usize| {
        let bytes = &bytes[TEXTS + field * 32..][..32];
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(&bytes[..end]).trim().to_owned();
        if text == "N/A" { String::new() } else { text }
    };
    let counters = u32::from_ne_bytes(bytes[COUNT..][..4].try_into().expect("four bytes"));
    Ok(DriverInfo { driver: text(0), version: text(1), firmware: text(2), bus: text(3), counters })
}

/// A socket of the calling thread's namespace, which requests about interfaces are put to.
///
/// # Errors
/// What the kernel says.
pub fn any_socket() -> io::Result<UdpSocket> {
    // Without an interface that is up, loopback has no address either.
    UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))
}

/// The same request with words of any number.
pub(super) fn ask_words(fd: impl AsFd, name: &str, words: &mut [u64]) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    ask(fd, SIOCETHTOOL, &mut request)
}

/// Puts a request about an interface that reads or writes the struct which belongs to it.
fn ask_about<T>(fd: impl AsFd, name: &str, what: u32, data: &mut T) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(data).cast();
    ask(fd, what, &mut request)
}

fn facts(fd: BorrowedFd<'_>, request: &mut libc::ifreq) -> io::Result<InterfaceFacts> {
    let mut get = |what: libc::c_ulong| ask(fd, what as u32, request).map(|()| request.ifr_ifru);
    // SAFETY: the kernel has just written the member that belongs to each request.
    unsafe {
        let index = get(libc::SIOCGIFINDEX)?.ifru_ifindex;
        let mtu = get(libc::SIOCGIFMTU)?.ifru_mtu.max(0) as usize;
        let up = i32::from(get(libc::SIOCGIFFLAGS)?.ifru_flags) & libc::IFF_UP != 0;
        let address = get(libc::SIOCGIFHWADDR)?.ifru_hwaddr;
        let mac = std::array::from_fn(|i| address.sa_data[i] as u8);
        Ok(InterfaceFacts { index, mtu, up, hardware: address.sa_family, mac })
    }
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
    facts(fd.as_fd(), &mut named(&fd, index)?)
}

/// Whether the interface of that number is up and has a carrier.
///
/// `IFF_RUNNING` is the operational state of RFC 2863, which the kernel's link watch sets some time after the carrier came
/// (up to a second), so an interface without it is asked for its carrier itself before it is called down.
///
/// # Errors
/// `ENODEV` when there is none in the namespace of the socket.
pub fn is_running(fd: impl AsFd, index: i32) -> io::Result<bool> {
    let mut request = named(&fd, index)?;
    if ask(&fd, libc::SIOCGIFFLAGS as u32, &mut request).is_err() {
        // While it gets another name, the kernel finds it by neither of them for milliseconds (`dev_change_name`), but still by its number. Nothing
        // says then that its link went.
        return named(&fd, index).map(|_| true);
    }
    // SAFETY: the kernel has just written this member.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    let running = flags & libc::IFF_RUNNING != 0;
    Ok(flags & libc::IFF_UP != 0 && (running || has_carrier(&fd, &mut request)))
}

/// Whether the interface that is named in the request has a carrier; false where its driver does not tell. Takes the
/// kernel's lock of all interfaces, so it is asked only in doubt.
fn has_carrier(fd: impl AsFd, request: &mut libc::ifreq) -> bool {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const ETHTOOL_GLINK: u32 = 0x0a;
    let mut value = Value { command: ETHTOOL_GLINK, data: 0 };
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    ask(fd, SIOCETHTOOL, request).is_ok() && value.data != 0
}

/// The name of the interface of that number; the kernel finds it by its alternative names, too (`ip link property`).
///
/// # Errors
/// `ENODEV` when there is none in the namespace of the socket.
pub fn name_of(fd: impl AsFd, index: i32) -> io::Result<String> {
    let name = named(fd, index)?.ifr_name;
    let bytes: Vec<u8> = name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A request about the interface of that number.
fn named(fd: impl AsFd, index: i32) -> io::Result<libc::ifreq> {
    let mut request: libc::ifreq = zeroed();
    request.ifr_ifru.ifru_ifindex = index;
    ask(fd, libc::SIOCGIFNAME as u32, &mut request).map(|()| request)
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

/// The sums of a socket's counters, which have only 32 bits and begin anew with each reading.
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
        // `struct tpacket_stats_v3`: frames, drops and freezes (which TPACKET_V3 alone counts).
        let mut bytes = [0; 12];
        if socket::get(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut bytes).is_ok() {
            let (words, _) = bytes.as_chunks();
            self.add(u32::from_ne_bytes(words[1]), u32::from_ne_bytes(words[2]));
        }
    }

    /// Reads the socket's counters long before their 32 bits could come round: `frames` were received, `more` of them now.
    pub fn look(&mut self, fd: impl AsFd, frames: u64, more: usize) {
        if (frames - more as u64) >> 24 != frames >> 24 {
            self.read(fd);
        }
    }

    fn add(&mut self, drops: u32, freezes: u32) {
        self.drops += u64::from(drops);
        self.freezes += u64::from(freezes);
    }
}

/// Bytes (the kernel's buffers, not frames' bytes) that were sent and not yet freed by the interface.
///
/// # Errors
/// What ioctl(2) says.
pub fn unsent(fd: impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int`.
    Errno::result(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.max(0) as u64)
}

/// The error that a socket was left with (`SO_ERROR`); reading clears it.
///
/// # Errors
/// What getsockopt(2) says.
pub fn take_error(fd: impl AsFd) -> io::Result<Option<io::Error>> {
    let errno = socket::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
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
    let mut facts = StampFacts { command: GET_TS_INFO, clock: -1, ..StampFacts::default() };
    ask_about(fd, name, SIOCETHTOOL, &mut facts)?;
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
    ask_about(fd, name, SIOCGHWTSTAMP, &mut config)?;
    Ok(config)
}

/// Says which frames the interface shall stamp (`SIOCSHWTSTAMP`); it may take more. Whoever calls this changes the
/// machine: only `crate::tune::stamps` does.
///
/// # Errors
/// `EOPNOTSUPP`, `ERANGE` (not this filter), `EPERM`, or what ioctl(2) says.
pub fn set_stamp_config(fd: impl AsFd, name: &str, mut config: StampConfig) -> io::Result<()> {
    const SIOCSHWTSTAMP: u32 = 0x89b0;
    ask_about(fd, name, SIOCSHWTSTAMP, &mut config)
}

/// Sends one frame as it is; the socket must be bound.
///
/// # Errors
/// What send(2) says.
pub fn send(fd: impl AsFd, frame: &[u8]) -> io::Result<()> {
    Ok(nixsock::send(fd.as_fd().as_raw_fd(), frame, MsgFlags::empty()).map(drop)?)
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
    let mut header: libc::msghdr = zeroed();
    (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
    (header.msg_control, header.msg_controllen) = ((&raw mut control).cast(), 256 as _);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to one live piece and one live, aligned control buffer.
    let rc = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut header, flags) };
    match Errno::result(rc) {
        Err(Errno::EAGAIN) => return Ok(None),
        received => received?,
    };
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
    /// New memory, filled with zeros, that takes pages only once they are touched (unless `MAP_POPULATE` is among the flags).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn anonymous(bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        Mapping::of(bytes, |length, access| {
            // SAFETY: a new anonymous mapping at a place of the kernel's choice touches nothing that exists.
            unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_PRIVATE | flags) }
        })
    }

    /// The ring (of a packet socket: or both rings, receive first) that was set up on a socket, `place` in its file.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn ring(fd: impl AsFd, bytes: usize, place: libc::off_t) -> io::Result<Mapping> {
        Mapping::of(bytes, |length, access| {
            // SAFETY: a new shared mapping at a place of the kernel's choice touches nothing that exists.
            unsafe { mmap(None, length, access, MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE, fd, place) }
        })
    }

    /// Memory that the kernel shows at that place of a file, to be read only.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn shown(fd: impl AsFd, bytes: usize, place: libc::off_t) -> io::Result<Mapping> {
        Mapping::of(bytes, |length, _| {
            // SAFETY: a new shared mapping at a place of the kernel's choice touches nothing that exists.
            unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, fd, place) }
        })
    }

    fn of(
        bytes: usize,
        map: impl FnOnce(NonZeroUsize, ProtFlags) -> nix::Result<NonNull<c_void>>,
    ) -> io::Result<Mapping> {
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let base = map(length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
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
            losses.add(drops, freezes);
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
