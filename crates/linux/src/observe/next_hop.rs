//! Where a frame to an address has to go first: by which interface, from and to which hardware addresses.
//!
//! **What.** Whoever makes whole frames does what the kernel does for sockets: asks the routing table for the interface
//! and the next node, and the neighbour table for that node's hardware address.
//!
//! **Why only asked.** Nothing is resolved here: one datagram through a socket makes the kernel resolve the neighbour,
//! and warms the bridges on the way.
//!
//! **Price.** The answer is true now. A neighbour that later moves to another hardware address is not followed.

use std::net::IpAddr;

use netlink_bindings::rt_neigh;
use netlink_bindings::traits::NetlinkRequest;
use nix::ifaddrs::getifaddrs;
use record::{Problem, Result};
use wire::frame::Mac;

use super::neighbours;
use crate::netlink::{LinkState, Netlink, Route};

/// States in which the kernel itself would use the hardware address (`NUD_VALID` of `include/net/neighbour.h`).
const VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// The first step of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    /// The interface it leaves by.
    pub interface: String,
    /// Hardware address of that interface.
    pub source: Mac,
    /// Hardware address of the next node; zeros on loopback, which needs none.
    pub destination: Mac,
}

/// Whether there is an interface of that name, in the network namespace of the calling thread. Not asked of `/sys`, which may be
/// that of another namespace (`nsenter --net`) or not there.
///
/// # Errors
/// Host: the interfaces cannot be listed.
pub fn is_interface(name: &str) -> Result<bool> {
    let links = Netlink::open().links().map_err(|refusal| cannot("list the interfaces", &refusal))?;
    Ok(links.iter().any(|link| link.name == name))
}

/// The interface that leads to an address, in the network namespace of the calling thread.
///
/// # Errors
/// Host: no route.
pub fn interface_to(to: IpAddr) -> Result<String> {
    Ok(route(to)?.0.name)
}

/// The address that datagrams to an address carry as their source, in the network namespace of the calling thread.
///
/// # Errors
/// Host: no route.
pub fn own_address(to: IpAddr) -> Result<IpAddr> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asked = std::net::UdpSocket::bind(any).and_then(|socket| {
        // Nothing is sent: connecting asks the routing table. The port is that of the discard protocol.
        socket.connect((to, 9))?;
        socket.local_addr()
    });
    asked.map(|own| own.ip()).map_err(|error| Problem::host(format!("there is no way to {to}: {error}")))
}

/// The interface that has this address, in the network namespace of the calling thread.
///
/// # Errors
/// Host: none has it.
pub fn interface_with(address: IpAddr) -> Result<String> {
    let mut addresses = getifaddrs().map_err(|error| cannot("list the addresses", &error))?;
    let found = addresses.find(|entry| {
        let ip = entry.address.as_ref().and_then(|storage| {
            let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        });
        ip == Some(address)
    });
    found.map(|entry| entry.interface_name).ok_or_else(|| {
        Problem::host(format!("no interface of this host has the address {address}"))
            .help("name an address that the receiving host itself has")
    })
}

/// The whole first step to an address, in the network namespace of the calling thread.
///
/// # Errors
/// Host: no route, or the next node's hardware address is not known (yet).
pub fn next_hop(to: IpAddr) -> Result<NextHop> {
    let (LinkState { name: interface, address, .. }, found) = route(to)?;
    let source = address.ok_or_else(|| {
        Problem::host(format!("{interface} has no Ethernet address"))
            .help("frames need an Ethernet interface")
    })?;
    if interface == "lo" || found.local {
        return Ok(NextHop { interface, source, destination: [0; 6] });
    }
    let neighbour = found.via.unwrap_or(to);
    let known = neighbours()?.into_iter().rfind(|(key, _)| *key == (found.interface, neighbour));
    let (_, destination) = known.ok_or_else(|| {
        Problem::host(format!("{neighbour} on {interface} does not tell its hardware address"))
            .help("look whether that node is up and on the same link: ip neighbour show")
    })?;
    Ok(NextHop { interface, source, destination })
}

fn cannot(what: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::host(format!("cannot {what}: {error}"))
}

fn route(to: IpAddr) -> Result<(LinkState, Route)> {
    let mut netlink = Netlink::open();
    let asked = netlink.route(to).map_err(|refusal| cannot("ask for a route", &refusal))?;
    let route = asked.ok_or_else(|| {
        Problem::host(format!("there is no route to {to}")).help("look at: ip route get ADDRESS")
    })?;
    let links = netlink.links().map_err(|refusal| cannot("list the interfaces", &refusal))?;
    let interface = links.into_iter().find(|link| link.index == route.interface);
    let interface = interface.ok_or_else(|| Problem::host("the interface of the route is gone"))?;
    Ok((interface, route))
}

/// The hardware addresses of all neighbours that the kernel would use, each with its interface and address.
///
/// # Errors
/// Host: the kernel cannot be asked.
pub fn neighbours() -> Result<Vec<((u32, IpAddr), Mac)>> {
    let known = Netlink::open().dump(&neighbours::DUMP, parse);
    known.map_err(|error| cannot("read the neighbour table", &error))
}

/// One neighbour entry that has a usable hardware address.
fn parse(message: &[u8]) -> Option<((u32, IpAddr), Mac)> {
    let (header, attributes) = rt_neigh::OpGetneighDump::decode_reply(message);
    let hardware = Mac::try_from(attributes.get_lladdr().ok()?).ok()?;
    let key = (header.ndm_ifindex as u32, attributes.get_dst().ok()?);
    (header.ndm_state & VALID != 0).then_some((key, hardware))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    const NDM_BYTES: usize = 12;
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;

    fn message(state: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut header = vec![0; NDM_BYTES];
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        header[8..10].copy_from_slice(&state.to_ne_bytes());
        attributes.iter().for_each(|attribute| header.extend(join(&[attribute])));
        header
    }

    #[test]
    fn only_entries_that_the_kernel_would_use_are_known() {
        let address = attribute(NDA_DST, &[10, 0, 0, 2]);
        let hardware = attribute(NDA_LLADDR, &[2, 0, 0, 0, 0, 2]);
        let both = [address.clone(), hardware];
        let known = Some(((7, "10.0.0.2".parse().unwrap()), [2, 0, 0, 0, 0, 2]));
        assert_eq!(parse(&message(0x02, &both)), known, "reachable");
        assert_eq!(parse(&message(0x80, &both)), known, "permanent");
        assert_eq!(parse(&message(0x20, &both)), None, "failed");
        assert_eq!(parse(&message(0x02, &[address])), None, "no hardware address");
    }

    #[test]
    fn loopback_is_found_by_its_address_and_needs_no_neighbour() {
        let address = "127.0.0.1".parse().unwrap();
        assert_eq!(interface_with(address).unwrap(), "lo");
        assert!(is_interface("lo").unwrap() && !is_interface("127.0.0.1").unwrap());
        assert_eq!(next_hop(address).unwrap().interface, "lo");
        let nowhere = interface_with("192.0.2.1".parse().unwrap()).unwrap_err();
        assert!(nowhere.to_string().contains("192.0.2.1"), "{nowhere}");
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&bytes);
        }
    }
}
