//! TCP sockets with their options set before the connection, and `TCP_INFO` by its returned length.
//!
//! Buffers and congestion control are set before `connect` and `listen`, because the window scale is agreed in the
//! handshake. `TCP_INFO` has grown with every kernel: each field is taken only if the kernel returned that far
//! (`include/uapi/linux/tcp.h`; the layout is ABI, only ever appended to).

use super::notice;
use super::socket;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket as nixsock;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage};
use record::TcpSample;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// What to set on a socket before it connects or listens.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `SO_SNDBUF` in bytes; none leaves the kernel's own tuning on.
    pub send_buffer: Option<u32>,
    /// `SO_RCVBUF` in bytes; none leaves the kernel's own tuning on.
    pub receive_buffer: Option<u32>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
    /// `TCP_NODELAY`: send small messages at once.
    pub no_delay: bool,
}

/// A socket, and what was refused of its options, in words.
type Opened<S> = io::Result<(S, Vec<String>)>;

/// A new socket with the options set, and what was refused, in words.
fn open(address: &SocketAddr, options: &Options) -> Opened<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = nixsock::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    socket::set_buffers(&fd, options.send_buffer, options.receive_buffer)?;
    if options.no_delay {
        socket::set_int(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    }
    let mut refused = Vec::new();
    if let Some(name) = &options.congestion
        && let Err(error) = set_congestion(&fd, name)
    {
        refused.push(format!("congestion control '{name}': {error}"));
    }
    Ok((fd, refused))
}

/// A connection to `address`, made within `timeout`, and what was refused of the options, in words.
pub fn connect(address: SocketAddr, options: &Options, timeout: Duration) -> Opened<TcpStream> {
    let (fd, refused) = open(&address, options)?;
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(true)?;
    match nixsock::connect(stream.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) => {}
        Err(nix::errno::Errno::EINPROGRESS) => {
            if !notice::poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)], Some(timeout))? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
        }
        Err(errno) => return Err(errno.into()),
    }
    stream.set_nonblocking(false)?;
    Ok((stream, refused))
}

/// A listening socket at `address` whose connections inherit the options, and what was refused, in words.
pub fn listen(address: SocketAddr, options: &Options, backlog: i32) -> Opened<TcpListener> {
    let (fd, refused) = open(&address, options)?;
    nixsock::bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    let backlog = nixsock::Backlog::new(backlog).unwrap_or(nixsock::Backlog::MAXCONN);
    nixsock::listen(&fd, backlog)?;
    Ok((TcpListener::from(fd), refused))
}

/// Ports below are mostly those of services.
const FIRST_SPARE_PORT: u16 = 20_000;

/// A port, by chance, that the kernel gives to no connection of this network namespace by itself; none where its range
/// (`net.ipv4.ip_local_port_range`) leaves none. It may be in use.
pub fn spare_port() -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = range.split_ascii_whitespace().map(str::parse);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else { return None };
    spare(first, last, fastrand::usize(..))
}

/// One of the ports outside of that range, by a number of any size.
fn spare(first: u16, last: u16, number: usize) -> Option<u16> {
    let ports: Vec<u16> =
        (FIRST_SPARE_PORT..=u16::MAX).filter(|port| !(first..=last).contains(port)).collect();
    ports.get(number.checked_rem(ports.len())?).copied()
}

/// Whether a connection of this network namespace could use that congestion control: tries it on a socket that is thrown away. The
/// kernel loads a module where it may.
///
/// # Errors
/// What setsockopt(2) says: `ENOENT` when there is none, `EPERM` when it may not be used.
pub fn try_congestion(name: &str) -> io::Result<()> {
    let fd = nixsock::socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    set_congestion(&fd, name)
}

fn set_congestion(fd: impl AsFd, name: &str) -> io::Result<()> {
    let mut value = [0u8; 16];
    let bytes = name.as_bytes();
    let Some(room) = value.get_mut(..bytes.len()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    room.copy_from_slice(bytes);
    socket::set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &value)
}

/// The congestion control in use, by name.
pub fn congestion(fd: impl AsFd) -> io::Result<String> {
    let mut value = [0; 16];
    let length = socket::get(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut value)?;
    let name = value[..length].split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// One reading of `TCP_INFO`, and what lies unread. `at_ns` and `stream` are left 0 for the caller.
pub fn sample(fd: impl AsFd) -> io::Result<TcpSample> {
    let mut bytes = [0; 512];
    let length = socket::get(&fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Ok(TcpSample { unread_bytes: socket::unread(&fd).ok(), ..parse(&bytes[..length]) })
}

/// `struct tcp_info` as far as the bytes go; offsets of `include/uapi/linux/tcp.h`, checked against 6.18. `at_ns`, `stream` and what lies
/// unread are left for the caller.
pub fn parse(info: &[u8]) -> TcpSample {
    let u8_at = |at: usize| info.get(at).copied().unwrap_or(0);
    let u16_at = |at: usize| info.get(at..)?.first_chunk().map(|&b| u16::from_ne_bytes(b));
    let u32_at = |at: usize| info.get(at..)?.first_chunk().map(|&b| u32::from_ne_bytes(b));
    let u64_at = |at: usize| info.get(at..)?.first_chunk().map(|&b| u64::from_ne_bytes(b));
    TcpSample {
        at_ns: 0,
        stream: 0,
        ca_state: u8_at(1),
        rtt_us: u32_at(68).unwrap_or(0),
        min_rtt_us: u32_at(148).unwrap_or(0),
        cwnd: u32_at(80).unwrap_or(0),
        ssthresh: u32_at(76).unwrap_or(0),
        snd_mss: u32_at(16).unwrap_or(0),
        snd_wnd: u32_at(228),
        delivery_rate: u64_at(160).unwrap_or(0),
        app_limited: u8_at(7) & 1 != 0,
        pacing_rate: u64_at(104).unwrap_or(0),
        busy_us: u64_at(168).unwrap_or(0),
        rwnd_limited_us: u64_at(176).unwrap_or(0),
        sndbuf_limited_us: u64_at(184).unwrap_or(0),
        bytes_sent: u64_at(200).unwrap_or(0),
        bytes_retrans: u64_at(208).unwrap_or(0),
        bytes_acked: u64_at(120).unwrap_or(0),
        bytes_received: u64_at(128).unwrap_or(0),
        notsent_bytes: u32_at(144).unwrap_or(0),
        total_retrans: u32_at(100).unwrap_or(0),
        total_rto: u16_at(240),
        rcv_ooopack: u32_at(224).unwrap_or(0),
        dsack_dups: u32_at(216).unwrap_or(0),
        reord_seen: u32_at(220).unwrap_or(0),
        rcv_space: u32_at(96).unwrap_or(0),
        rcv_ssthresh: u32_at(64).unwrap_or(0),
        rcv_wnd: u32_at(232),
        pmtu: u32_at(60).unwrap_or(0),
        unread_bytes: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_connection_tells_what_it_did() {
        let options = Options { no_delay: true, congestion: Some("reno".into()), ..Options::default() };
        let (listener, _) = listen("127.0.0.1:0".parse().unwrap(), &options, 4).unwrap();
        let address = listener.local_addr().unwrap();
        let (mut client, refused) = connect(address, &options, Duration::from_secs(2)).unwrap();
        assert_eq!(refused, Vec::<String>::new());
        assert_eq!(congestion(&client).unwrap(), "reno");
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        server.write_all(&[1]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let (sent, got) = (sample(&client).unwrap(), sample(&server).unwrap());
        assert_eq!((sent.bytes_sent, sent.bytes_received), (1000, 1));
        assert_eq!(sent.bytes_acked, 1001, "the SYN counts");
        assert_eq!((got.bytes_received, got.unread_bytes), (1000, Some(0)));
        client.write_all(&[7; 10]).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while sample(&server).unwrap().unread_bytes != Some(10) {
            assert!(std::time::Instant::now() < deadline, "what was sent never lay unread");
        }
        assert!(sent.cwnd > 0 && sent.snd_mss > 0 && sent.rtt_us > 0);
    }

    #[test]
    fn an_unknown_congestion_control_is_refused_in_words() {
        for name in ["nonesuch", "a-name-that-is-longer-than-sixteen"] {
            let options = Options { congestion: Some(name.into()), ..Options::default() };
            let (_, refused) = listen("127.0.0.1:0".parse().unwrap(), &options, 1).unwrap();
            assert!(refused[0].contains(name), "{refused:?}");
        }
    }

    #[test]
    fn an_old_kernel_returns_less() {
        let old = parse(&[1; 104]);
        assert_eq!((old.snd_wnd, old.total_rto, old.busy_us), (None, None, 0));
        assert_eq!(old.total_retrans, 0x0101_0101);
        assert_eq!(parse(&[]).cwnd, 0);
        assert_eq!(parse(&[1; 280]).total_rto, Some(0x0101));
    }

    #[test]
    fn nobody_listening_is_an_error() {
        let (listener, _) = listen("127.0.0.1:0".parse().unwrap(), &Options::default(), 1).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = connect(address, &Options::default(), Duration::from_secs(2)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_spare_port_is_outside_of_the_range() {
        assert_eq!(spare(32_768, 60_999, 0), Some(20_000));
        assert_eq!(spare(32_768, 60_999, 12_768), Some(61_000));
        assert_eq!(spare(32_768, 60_999, 12_767), Some(32_767));
        assert_eq!(spare(1024, 65_535, 7), None);
    }
}
