//! Addresses with their prefixes: given to interfaces, listed.

use std::net::{IpAddr, Ipv6Addr};

use netlink_bindings::rt_addr;
pub use record::Prefix;

use super::{Answer, Netlink};

/// `IFA_F_NODAD` (`if_addr.h`): the address is usable at once and asks nobody.
const NO_DAD: u32 = 0x02;

impl Netlink {
    /// Gives an address to an interface, usable at once.
    pub fn add_address(&mut self, index: u32, prefix: Prefix) -> Answer {
        let header = rt_addr::Ifaddrmsg {
            ifa_family: family_of(prefix.address),
            ifa_prefixlen: prefix.length,
            ifa_index: index,
            ..Default::default()
        };
        let mut request = rt_addr::Request::new().set_create().set_excl().op_newaddr_do(&header);
        let mut attributes = request.encode().push_local(prefix.address).push_address(prefix.address);
        match prefix.address {
            IpAddr::V6(_) => attributes = attributes.push_flags(NO_DAD),
            IpAddr::V4(v4) if prefix.length < 31 => {
                let last = u32::from(v4) | (u32::MAX >> prefix.length);
                attributes = attributes.push_broadcast(last.into());
            }
            IpAddr::V4(_) => {}
        }
        drop(attributes);
        self.acknowledged(&request)
    }

    /// Every address of the namespace that others can reach (no loopback, no link-local), with the index of its
    /// interface, in the kernel's order.
    pub fn addresses(&mut self) -> Answer<Vec<(u32, Prefix)>> {
        let mut addresses = vec![];
        for family in [libc::AF_INET, libc::AF_INET6] {
            let header = rt_addr::Ifaddrmsg { ifa_family: family as u8, ..Default::default() };
            let request = rt_addr::Request::new().op_getaddr_dump(&header);
            addresses.extend(self.replies(&request, |(header, attributes)| {
                let global = header.ifa_scope == libc::RT_SCOPE_UNIVERSE;
                let address = attributes.get_local().or(attributes.get_address()).ok().filter(|_| global)?;
                Some((header.ifa_index, Prefix { address, length: header.ifa_prefixlen }))
            })?);
        }
        Ok(addresses)
    }
}

/// The number of the address family (`AF_INET`, `AF_INET6`).
pub(super) fn family_of(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// The link-local address that a lab gives to an interface with this index: neighbour discovery needs one, and the
/// index makes it different from all others of the lab.
pub fn link_local(index: u32) -> Prefix {
    let address = Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(index));
    Prefix { address: IpAddr::V6(address), length: 64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_names_its_interface() {
        assert_eq!(link_local(0x1a).to_string(), "fe80::1a/64");
    }
}
