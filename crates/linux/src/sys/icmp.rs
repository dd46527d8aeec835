//! Sockets for ICMP echo: a ping socket where the host allows it, a raw socket where not.
//!
//! A ping socket (`SOCK_DGRAM`, `IPPROTO_ICMP`, Linux 3.0; allowed by `net.ipv4.ping_group_range`) is preferred even
//! for root: the kernel delivers each reply to it alone. A raw socket gets a *copy*, and the kernel then drops the
//! original for want of a ping socket (`NO_SOCKET` in `ping_rcv`), one drop per reply that a witness would count.

use super::socket;
use nix::sys::socket as nixsock;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// How echo requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// An unprivileged ping socket; the kernel owns the identifier.
    PingSocket,
    /// A raw socket (`CAP_NET_RAW`).
    Raw,
}

/// A socket that sends echo requests to one address and receives its replies.
pub struct EchoSocket {
    socket: UdpSocket,
    /// How it sends.
    pub method: Method,
    /// The identifier in its requests, and so in the replies.
    pub identifier: u16,
    v6: bool,
}

impl AsFd for EchoSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl EchoSocket {
    /// Opens and connects one. `identifier` is used by a raw socket; a ping socket gets its own from the kernel.
    /// The error is that of the raw socket, the last resort.
    pub fn open(target: IpAddr, identifier: u16) -> io::Result<EchoSocket> {
        let v6 = target.is_ipv6();
        let (socket, method, identifier) = match Self::ping_socket(v6) {
            Ok((socket, identifier)) => (socket, Method::PingSocket, identifier),
            Err(_) => (Self::raw_socket(v6)?, Method::Raw, identifier),
        };
        socket.connect(SocketAddr::new(target, 0))?;
        Ok(EchoSocket { socket, method, identifier, v6 })
    }

    /// What std calls a UDP socket is any that sends messages to addresses of IP.
    fn socket(v6: bool, kind: SockType) -> io::Result<UdpSocket> {
        let (family, protocol) = match v6 {
            true => (AddressFamily::Inet6, SockProtocol::IcmpV6),
            false => (AddressFamily::Inet, SockProtocol::Icmp),
        };
        Ok(nixsock::socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?.into())
    }

    fn ping_socket(v6: bool) -> io::Result<(UdpSocket, u16)> {
        let socket = Self::socket(v6, SockType::Datagram)?;
        let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        // Binding to port 0 makes the kernel choose the identifier now, so that it can be told before the test.
        nixsock::bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(any, 0)))?;
        let identifier = socket.local_addr()?.port();
        Ok((socket, identifier))
    }

    fn raw_socket(v6: bool) -> io::Result<UdpSocket> {
        let socket = Self::socket(v6, SockType::Raw)?;
        // Let echo replies through and nothing else (a set bit blocks). Both filters act before a copy of the frame
        // is made, so what they refuse is not counted as a drop, as a BPF filter's refusal would be.
        if v6 {
            const ICMPV6_FILTER: i32 = 1;
            let mut filter = [u32::MAX; 8];
            filter[129 / 32] &= !(1 << (129 % 32));
            socket::set(&socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &filter)?;
        } else {
            const ICMP_FILTER: i32 = 1;
            socket::set(&socket, libc::SOL_RAW, ICMP_FILTER, &!1u32)?;
        }
        Ok(socket)
    }

    /// True for ICMPv6.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// The ICMP message in received bytes: a raw IPv4 socket puts the IP header in front of it.
    #[inline]
    pub fn message<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if self.method == Method::Raw && !self.v6 {
            let header = bytes.first().map_or(0, |byte| usize::from(byte & 15) * 4);
            bytes.get(header..).unwrap_or_default()
        } else {
            bytes
        }
    }

    /// Local address.
    pub fn local(&self) -> io::Result<IpAddr> {
        Ok(self.socket.local_addr()?.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket::{Direction, set_timeout};
    use crate::sys::udp::{ReceiveBatch, SendBatch, Wait};
    use std::time::Duration;
    use wire::icmp::{self, Echo};

    fn echo_over(target: &str) {
        let socket = match EchoSocket::open(target.parse().unwrap(), 4711) {
            Ok(socket) => socket,
            Err(error) => return println!("SKIP: no ICMP socket to {target}: {error}"),
        };
        set_timeout(&socket, Direction::Receive, Some(Duration::from_secs(30))).unwrap();
        let mut out = SendBatch::new(1, icmp::HEADER + 5);
        out.buffer(0)[icmp::HEADER..].copy_from_slice(b"hello");
        let kind = if socket.is_v6() { icmp::V6_REQUEST } else { icmp::V4_REQUEST };
        icmp::write_echo(out.buffer(0), kind, socket.identifier, 9);
        assert_eq!(out.send(&socket, 0..1).unwrap(), 1);
        let mut into = ReceiveBatch::new(1, 2000);
        assert_eq!(into.receive(&socket, Wait::ForOne).unwrap(), 1);
        let echo = Echo::parse(socket.message(into.bytes(0))).unwrap();
        assert_eq!((echo.identifier(), echo.sequence()), (socket.identifier, 9));
        assert_eq!(echo.data(), b"hello");
    }

    #[test]
    fn an_echo_over_loopback_comes_back() {
        echo_over("127.0.0.1");
        echo_over("::1");
    }
}
