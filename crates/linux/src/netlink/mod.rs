//! What the kernel is asked over netlink, and told.
//!
//! **What.** One type, [`Netlink`]: it makes, changes, lists and deletes links, addresses, routes, shapers and offloads, and gives the bodies
//! of a [`Dump`]'s replies to whoever decodes them.
//!
//! **Why two ways to speak.** Requests, and most replies, are encoded and decoded by netlink-bindings, which is generated from the kernel's own
//! descriptions. Counters are read by dumps with decoders that are plain functions of bytes: tests feed them fixtures, and reading costs one
//! buffer for all sockets. Both go over the same sockets, so there is one place that knows sequence numbers, interrupted dumps and the
//! kernel's refusals.
//!
//! **Price.** A socket belongs to the namespace that its thread was in when it was opened, which is at the first request of its family:
//! make a `Netlink` inside `Node::within` and do not carry it out, or [`prepare`](Netlink::prepare) it there. What the generated
//! code does not know, or knows in another width, is written out in the modules that decode it, each with its header.

pub mod address;
pub mod attributes;
pub mod ethtool;
mod generic;
pub mod link;
pub mod metrics;
mod namespace;
pub mod netem;
mod notice;
pub mod policy;
pub mod root;
pub mod route;
pub mod settings;
mod socket;
pub mod tc;
pub mod upper;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;

use netlink_bindings::traits::{NetlinkRequest, Protocol};

pub use address::{Prefix, link_local};
pub use attributes::{Attributes, after, u16_at, u32_at, u64_at};
pub use ethtool::OffloadFeature;
pub use link::{LinkState, NewLink};
pub use netem::Emulation;
pub use notice::{ConfigNotice, ConfigNotices, LinkNotice, NoticeOf};
pub use policy::{Mark, PolicyAction, PolicyRule};
pub use route::{LOCAL_TABLE, MAIN_TABLE, NextHop, Route, RouteAction, RouteType, StaticRoute};
pub use tc::Shaper;
pub use upper::{BOND_MODES, IPVLAN_MODES, MACVLAN_MODES, Mode, UpperKind, UpperState, VlanTag, Vxlan};

use socket::{Failure, Message, Socket};

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

/// What comes of a request.
pub(crate) type Answer<T = ()> = Result<T, Refusal>;

/// Requests to the kernel, in the namespace of the thread that opened each socket.
#[derive(Debug, Default)]
pub struct Netlink {
    /// A family that could not be opened is not tried again: the thread may be in another namespace by then.
    sockets: BTreeMap<Family, Result<Socket, i32>>,
    /// Numbers of generic families by name.
    generic: HashMap<&'static [u8], u16>,
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

    /// What `read` makes of the bodies of a dump's replies. A dump that changed under the reader is repeated.
    ///
    /// # Errors
    /// What the kernel answers, e.g. `EPERM`, `EOPNOTSUPP`; or it changed each time.
    pub fn dump<T>(&mut self, dump: &Dump<'_>, read: impl FnMut(&[u8]) -> Option<T>) -> io::Result<Vec<T>> {
        let request = Message { kind: dump.kind, flags: socket::DUMP, body: dump.body };
        self.socket(dump.family)?.collect(&request, read).map_err(Failure::into_io)
    }

    /// Sends a request of bytes and waits for the kernel's yes or no; what `read` makes of the bodies of its replies.
    fn plain<T>(
        &mut self,
        (family, kind, flags): (Family, u16, u16),
        body: &[u8],
        read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Answer<Vec<T>> {
        let message = Message { kind, flags: flags | socket::ACKNOWLEDGE, body };
        self.socket(family)?.collect(&message, read).map_err(Failure::into_plain_refusal)
    }

    /// Sends a request and waits for the kernel's yes or no.
    pub(crate) fn acknowledged<R: NetlinkRequest>(&mut self, request: &R) -> Answer {
        self.replies(request, |_| None::<()>).map(drop)
    }

    /// What `read` makes of the replies to a request, as [`dump`](Self::dump).
    fn replies<R: NetlinkRequest, T>(
        &mut self,
        request: &R,
        mut read: impl FnMut(R::ReplyType<'_>) -> Option<T>,
    ) -> Answer<Vec<T>> {
        let (family, kind) = self.number(request.protocol())?;
        let message = Message { kind, flags: request.flags() | socket::ACKNOWLEDGE, body: request.payload() };
        let found = self.socket(family)?.collect(&message, |reply| read(R::decode_reply(reply)));
        found.map_err(|failure| failure.into_refusal::<R>(request.payload()))
    }

    /// Whom a request is put to, and its number there.
    fn number(&mut self, protocol: Protocol) -> io::Result<(Family, u16)> {
        match protocol {
            Protocol::Raw { protonum: 0, request_type } => Ok((Family::Route, request_type)),
            Protocol::Raw { .. } => Err(io::ErrorKind::Unsupported.into()),
            Protocol::Generic(name) => Ok((Family::Generic, self.generic_family(name)?)),
        }
    }
}

/// The one reply to a question; none where the kernel refuses it with one of these errors.
fn unless<T>(answer: Answer<Vec<T>>, none: &[i32]) -> Answer<Option<T>> {
    match answer {
        Err(refusal) if refusal.errno.is_some_and(|errno| none.contains(&errno)) => Ok(None),
        answer => answer.map(|mut replies| replies.pop()),
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
        assert_eq!(offloads.len(), OffloadFeature::ALL.len());
        assert!(offloads[&OffloadFeature::Sg], "{offloads:?}");
        let route = netlink.route(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap().unwrap();
        assert!(route.local && route.interface == lo.index, "{route:?}");
    }

    /// The kernel marks the first message of the part in which it noticed the change (`nl_dump_check_consistent`), and no other.
    #[test]
    fn links_that_changed_while_they_were_listed_are_listed_anew() {
        use attributes::build::{attribute, join};
        use socket::tests::{message, scripted};
        let link = |sequence, flags: u16, index: u8, name: &[u8]| {
            let header = [0, 0, 0, 0, index, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            message(16, flags | 2, sequence, &join(&[&header, &attribute(3, name)]))
        };
        let done = |sequence| message(3, 2, sequence, &[0; 4]);
        let parts = [
            link(1, 0, 1, b"lo\0"),
            [link(1, 0x10, 3, b"late\0"), link(1, 0, 4, b"later\0")].concat(),
            done(1),
            [link(2, 0, 1, b"lo\0"), link(2, 0, 2, b"new\0"), done(2)].concat(),
        ];
        let (socket, _kernel) = scripted(&parts);
        let mut netlink = Netlink::open();
        netlink.sockets.insert(Family::Route, Ok(socket));
        let names: Vec<_> = netlink.links().unwrap().into_iter().map(|link| link.name).collect();
        assert_eq!(names, ["lo", "new"]);
    }

    /// Some 200 bridges are more than the two parts that the kernel has ready when the first reply is read.
    #[test]
    fn a_bridge_that_comes_while_links_are_listed_is_in_the_list() {
        let inside = nix::unistd::geteuid().is_root().then(crate::sys::netns::create);
        let Some(Ok(inside)) = inside else {
            return println!(
                "SKIP: links that change while they are listed: needs root (network namespaces)"
            );
        };
        crate::sys::netns::within(std::os::fd::AsFd::as_fd(&inside), || {
            let mut netlink = Netlink::open();
            let make = |netlink: &mut Netlink, index: u32| {
                let name = format!("br{index}");
                netlink.create_bridge(&NewLink { index, name: &name, ..NewLink::default() }).unwrap();
            };
            (100..300).for_each(|index| make(&mut netlink, index));
            let (mut other, mut read) = (Netlink::open(), 0);
            let dump = Dump { family: Family::Route, kind: 18, body: &[0; 16] };
            let found = netlink.dump(&dump, |message| {
                read += 1;
                if read == 1 {
                    make(&mut other, 1000);
                }
                u32_at(message, 4)
            });
            let found = found.unwrap();
            assert_eq!((found.len(), found.contains(&1000)), (202, true), "loopback and 201 bridges");
            assert!(read > found.len(), "the first list was whole already: {read} replies");
        })
        .unwrap();
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
