//! Routes: added, and asked for.

use std::net::IpAddr;

use netlink_bindings::rt_route;

use super::address::{Prefix, family_of};
use super::{Answer, Netlink, unless};

/// `RTN_LOCAL`, `RTN_UNICAST` (`rtnetlink.h`).
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// Errors that mean "no way there", not "the question was wrong".
const NO_ROUTE: [i32; 5] =
    [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL, libc::EAFNOSUPPORT];

/// What the routing table says about a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// True when the destination is an address of this node.
    pub local: bool,
    /// Index of the interface where frames go out.
    pub interface: u32,
    /// The next node's address, none when the destination itself is the neighbour.
    pub via: Option<IpAddr>,
}

impl Netlink {
    /// Adds a static route.
    pub fn add_route(&mut self, to: Prefix, via: IpAddr) -> Answer {
        let header = rt_route::Rtmsg {
            rtm_family: family_of(via),
            rtm_dst_len: to.length,
            rtm_table: libc::RT_TABLE_MAIN,
            rtm_protocol: libc::RTPROT_STATIC,
            rtm_scope: libc::RT_SCOPE_UNIVERSE,
            rtm_type: RTN_UNICAST,
            ..Default::default()
        };
        let mut request = rt_route::Request::new().set_create().set_excl().op_newroute_do(&header);
        let mut attributes = request.encode().push_gateway(via);
        if to.length > 0 {
            attributes = attributes.push_dst(to.address);
        }
        drop(attributes);
        self.acknowledged(&request)
    }

    /// Where frames to this address leave; none when there is no route.
    pub fn route(&mut self, to: IpAddr) -> Answer<Option<Route>> {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let header = rt_route::Rtmsg { rtm_family: family_of(to), rtm_dst_len: bits, ..Default::default() };
        let mut request = rt_route::Request::new().op_getroute_do(&header);
        request.encode().push_dst(to);
        let answer = self.replies(&request, |(header, attributes)| {
            let usable = [RTN_UNICAST, RTN_LOCAL].contains(&header.rtm_type);
            let interface = attributes.get_oif().ok().filter(|_| usable)?;
            let via = attributes.get_gateway().or(attributes.get_via()).ok();
            Some(Route { local: header.rtm_type == RTN_LOCAL, interface, via })
        });
        unless(answer, &NO_ROUTE)
    }
}
