//! What the kernel is asked over netlink, and told.
//!
//! **What.** One type, [`Netlink`]: it makes, changes, lists and deletes links, addresses, routes, shapers and offloads, and gives the bodies
//! of a [`Dump`]'s replies to whoever decodes them.
//!
//! **Why two ways to speak.** Requests that change something, and questions with one answer, are encoded and decoded by
//! netlink-bindings, which is generated from the kernel's own descriptions. Counters are read by dumps with decoders that are plain functions of
//! bytes: tests feed them fixtures, and reading costs one buffer for all sockets and no allocation per attribute. Both go over the same
//! sockets, so there is one place that knows sequence numbers, interrupted dumps and the kernel's refusals.
//!
//! **Price.** A socket belongs to the namespace that its thread was in when it was opened, which is at the first request of its family:
//! make a `Netlink` inside `Node::within` and do not carry it out, or [`prepare`](Netlink::prepare) it there. Attribute numbers of dumps are
//! written out in the modules that decode them, each with its header.

pub mod address;
pub mod attributes;
pub mod ethtool;
mod generic;
pub mod link;
pub mod route;
mod socket;
pub mod tc;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;

use netlink_bindings::traits::{NetlinkRequest, Protocol};

pub use address::{Prefix, link_local};
pub use attributes::{Attributes, after, text, u16_at, u32_at, u64_at};
pub use ethtool::Offload;
pub use link::{LinkState, NewLink};
pub use route::Route;
pub use socket::BUFFER_BYTES;
pub use tc::Shaper;

use socket::{Failure, Message, Socket};

/// How often a dump is repeated that changed under the reader.
const ATTEMPTS: u32 = 5;

/// What netlink speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Links, neighbours, qdiscs (`NETLINK_ROUTE`).
    Route,
    /// Netfilter (`NETLINK_NETFILTER`).
    Netfilter,
    /// Everything that has no family of its own (`NETLINK_GENERIC`).
    Generic,
    /// Sockets (`NETLINK_SOCK_DIAG`).
    SockDiag,
}

/// A question whose answer is a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dump<'a> {
    /// Whom it is put to.
    pub family: Family,
    /// Number of the request.
    pub kind: u16,
    /// The request without the message header.
    pub body: &'a [u8],
}

/// The kernel's answer when it refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, if it was one.
    pub errno: Option<i32>,
    /// The error in words, with what the kernel adds to it.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal { errno: error.raw_os_error(), text: error.to_string() }
    }
}

type Answer<T = ()> = Result<T, Refusal>;

/// Requests to the kernel, in the namespace of the thread that opened each socket.
#[derive(Debug, Default)]
pub struct Netlink {
    /// A family that could not be opened is not tried again: the thread may be in another namespace by then.
    sockets: BTreeMap<Family, Result<Socket, i32>>,
    /// Numbers of generic families by name.
    generic: HashMap<&'static [u8], u16>,
    /// Room for replies to requests.
    buffer: Vec<u8>,
}

impl Netlink {
    /// Prepares requests to the namespace of the calling thread; each family is opened when it is first asked.
    pub fn open() -> Self {
        Self::default()
    }

    /// Opens a family now, in the namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel was built without this family; each request to it says so then, too.
    pub fn prepare(&mut self, family: Family) -> io::Result<()> {
        self.socket(family).map(drop)
    }

    fn socket(&mut self, family: Family) -> io::Result<&mut Socket> {
        let open = || Socket::open(family).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        let socket = self.sockets.entry(family).or_insert_with(open);
        socket.as_mut().map_err(|errno| io::Error::from_raw_os_error(*errno))
    }

    /// Sends a dump request and gives the body of every reply to `each`. A dump that changed under the reader is
    /// repeated: `restart` is called first and must forget what `each` has collected.
    ///
    /// # Errors
    /// What the kernel answers, e.g. `EPERM`, `EOPNOTSUPP`.
    pub fn dump<S>(
        &mut self,
        dump: &Dump<'_>,
        buffer: &mut [u8],
        state: &mut S,
        restart: impl Fn(&mut S),
        each: impl Fn(&mut S, &[u8]),
    ) -> io::Result<()> {
        let socket = self.socket(dump.family)?;
        let request = Message { kind: dump.kind, flags: socket::DUMP, body: dump.body };
        for _ in 0..ATTEMPTS {
            restart(state);
            let interrupted = socket.ask(buffer, &request, &mut |reply| each(state, reply));
            if !interrupted.map_err(Failure::into_io)? {
                return Ok(());
            }
        }
        Err(io::Error::other("it changed each time it was read"))
    }

    /// Sends a request and waits for the kernel's yes or no.
    pub(crate) fn acknowledged<R: NetlinkRequest>(&mut self, request: &R) -> Answer {
        self.each(request, |_| {})
    }

    fn each<R: NetlinkRequest>(&mut self, request: &R, mut take: impl FnMut(R::ReplyType<'_>)) -> Answer {
        let (family, kind) = self.number(request.protocol())?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(BUFFER_BYTES, 0);
        let message = Message { kind, flags: request.flags() | socket::ACKNOWLEDGE, body: request.payload() };
        let asked = self
            .socket(family)
            .map_err(Failure::from)
            .and_then(|socket| socket.ask(&mut buffer, &message, &mut |reply| take(R::decode_reply(reply))));
        self.buffer = buffer;
        asked.map(drop).map_err(|failure| failure.into_refusal::<R>(request.payload()))
    }

    /// Whom a request is put to, and its number there.
    fn number(&mut self, protocol: Protocol) -> io::Result<(Family, u16)> {
        match protocol {
            Protocol::Raw { protonum, request_type } => {
                let families = [Family::Route, Family::Netfilter, Family::Generic, Family::SockDiag];
                let family = families.into_iter().find(|family| family.number() == i32::from(protonum));
                Ok((family.ok_or(io::ErrorKind::Unsupported)?, request_type))
            }
            Protocol::Generic(name) => Ok((Family::Generic, self.generic_family(name)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn the_loopback_of_this_namespace_answers() {
        let mut netlink = Netlink::open();
        let links = netlink.links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        let offloads = netlink.offloads(lo.index).unwrap();
        assert_eq!(offloads.len(), Offload::ALL.len());
        assert!(offloads[&Offload::Sg], "{offloads:?}");
        let route = netlink.route(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap().unwrap();
        assert!(route.local && route.interface == lo.index, "{route:?}");
    }

    #[test]
    fn a_refusal_says_what_the_kernel_says_and_leaves_the_socket_usable() {
        let mut netlink = Netlink::open();
        let refusal = netlink.set_mtu(0x7fff_ffff, 1500).unwrap_err();
        let permitted = nix::unistd::geteuid().is_root();
        assert_eq!(refusal.errno, Some(if permitted { libc::ENODEV } else { libc::EPERM }), "{refusal}");
        assert_eq!(netlink.queues(0x7fff_ffff).unwrap_err().errno, Some(libc::ENODEV));
        assert!(netlink.links().unwrap().iter().any(|link| link.name == "lo"));
    }
}
