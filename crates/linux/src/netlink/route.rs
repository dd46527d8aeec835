//! Routes: added, listed, and asked for.
//!
//! **Why next hops by hand.** `RTA_MULTIPATH` is a list of `struct rtnexthop` (`rtnetlink.h`), each with attributes of its own behind it;
//! the kernel's YNL description knows it as bytes only.

use std::fmt;
use std::net::IpAddr;

use netlink_bindings::rt_route;

use super::address::{Prefix, family_of};
use super::attributes::{Attributes, attribute, u16_at};
use super::{Answer, Netlink, unless};

/// The table that the kernel looks in when no policy rule says another (`RT_TABLE_MAIN`).
pub const MAIN_TABLE: u32 = libc::RT_TABLE_MAIN as u32;
/// The table of the node's own addresses, which the kernel fills (`RT_TABLE_LOCAL`).
pub const LOCAL_TABLE: u32 = libc::RT_TABLE_LOCAL as u32;
/// `RTN_LOCAL`, `RTN_UNICAST` (`rtnetlink.h`).
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// `RTPROT_REDIRECT`, `RTPROT_KERNEL`, `RTPROT_RA`: routes that nobody set.
const BY_ITSELF: [u8; 3] = [1, 2, 9];
/// `RTA_GATEWAY`, and the bytes of a `struct rtnexthop`.
const RTA_GATEWAY: u16 = 5;
const NEXT_HOP_BYTES: usize = 8;
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

/// How a datagram is refused instead of forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteType {
    /// Dropped without a word.
    Blackhole,
    /// Answered with "host unreachable".
    Unreachable,
    /// Answered with "administratively prohibited".
    Prohibit,
}

impl RouteType {
    /// Every type.
    pub const ALL: [RouteType; 3] = [RouteType::Blackhole, RouteType::Unreachable, RouteType::Prohibit];

    /// The word in a topology, and the number of routes (`RTN_…`, `rtnetlink.h`) and of policy rules (`FR_ACT_…`, `fib_rules.h`):
    /// they are the same.
    fn row(self) -> (&'static str, u8) {
        match self {
            RouteType::Blackhole => ("blackhole", 6),
            RouteType::Unreachable => ("unreachable", 7),
            RouteType::Prohibit => ("prohibit", 8),
        }
    }

    /// The word in a topology.
    pub fn word(self) -> &'static str {
        self.row().0
    }

    /// The kernel's number.
    pub(super) fn number(self) -> u8 {
        self.row().1
    }

    /// The type whose routes the kernel answers with that error (`fib_props` in `net/ipv4/fib_semantics.c`).
    fn of_error(errno: i32) -> Option<RouteType> {
        match errno {
            libc::EINVAL => Some(RouteType::Blackhole),
            libc::EHOSTUNREACH => Some(RouteType::Unreachable),
            libc::EACCES => Some(RouteType::Prohibit),
            _ => None,
        }
    }

    /// The type of that number.
    pub(super) fn of(number: u8) -> Option<RouteType> {
        RouteType::ALL.into_iter().find(|known| known.number() == number)
    }
}

/// One of the neighbours that a route leads over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextHop {
    /// The neighbour.
    pub via: IpAddr,
    /// Its share of the traffic, 1 to 256, in proportion to the others.
    pub weight: u32,
}

/// What a route does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteAction {
    /// Forwards to one of these; a list without any is a network on an interface of the node.
    Via(Vec<NextHop>),
    /// Refuses.
    Refuse(RouteType),
}

/// A route that somebody set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticRoute {
    /// Where to; length 0 is the default route.
    pub to: Prefix,
    /// Number of the table that it is in.
    pub table: u32,
    /// What it does.
    pub action: RouteAction,
}

impl StaticRoute {
    /// One of the main table with one next hop, from `10.0.2.0/24 via 10.0.1.1` or `default via fd00::1`.
    pub fn parse(text: &str) -> Option<StaticRoute> {
        let (to, via) = text.split_once(" via ")?;
        let via: IpAddr = via.parse().ok()?;
        let everything = Prefix::parse(if via.is_ipv6() { "::/0" } else { "0.0.0.0/0" })?;
        let to = if to == "default" { everything } else { Prefix::parse(to)? };
        let action = RouteAction::Via(vec![NextHop { via, weight: 1 }]);
        let route =
            StaticRoute { to: if to.length == 0 { everything } else { to }, table: MAIN_TABLE, action };
        (to.version() == everything.version()).then_some(route)
    }

    /// Whether that is all that is said of it.
    pub fn is_plain(&self) -> bool {
        StaticRoute::parse(&self.to_string()).as_ref() == Some(self)
    }
}

impl fmt::Display for StaticRoute {
    /// As a topology says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            RouteAction::Via(_) if self.to.length == 0 => write!(f, "default")?,
            _ => write!(f, "{}", self.to)?,
        }
        match &self.action {
            RouteAction::Via(hops) => hops.iter().try_for_each(|hop| write_hop(f, hop))?,
            RouteAction::Refuse(kind) => write!(f, " {}", kind.word())?,
        }
        if self.table == MAIN_TABLE { Ok(()) } else { write!(f, " table {}", self.table) }
    }
}

fn write_hop(f: &mut fmt::Formatter<'_>, hop: &NextHop) -> fmt::Result {
    write!(f, " via {}", hop.via)?;
    if hop.weight == 1 { Ok(()) } else { write!(f, " weight {}", hop.weight) }
}

impl Netlink {
    /// Adds a route.
    pub fn add_route(&mut self, route: &StaticRoute) -> Answer {
        let header = rt_route::Rtmsg {
            rtm_family: family_of(route.to.address),
            rtm_dst_len: route.to.length,
            // What does not fit is told by the attribute alone.
            rtm_table: u8::try_from(route.table).unwrap_or(libc::RT_TABLE_UNSPEC),
            rtm_protocol: libc::RTPROT_STATIC,
            rtm_scope: libc::RT_SCOPE_UNIVERSE,
            rtm_type: match route.action {
                RouteAction::Via(_) => RTN_UNICAST,
                RouteAction::Refuse(kind) => kind.number(),
            },
            ..Default::default()
        };
        let mut request = rt_route::Request::new().set_create().set_excl().op_newroute_do(&header);
        let mut attributes = request.encode().push_table(route.table);
        if route.to.length > 0 {
            attributes = attributes.push_dst(route.to.address);
        }
        attributes = match &route.action {
            RouteAction::Via(hops) if hops.len() > 1 => attributes.push_multipath(&next_hops(hops)),
            RouteAction::Via(hops) => hops.iter().fold(attributes, |to, hop| to.push_gateway(hop.via)),
            RouteAction::Refuse(_) => attributes,
        };
        drop(attributes);
        self.acknowledged(&request)
    }

    /// Every route that somebody set, in all tables.
    pub fn static_routes(&mut self) -> Answer<Vec<StaticRoute>> {
        let mut routes = vec![];
        for family in [libc::AF_INET, libc::AF_INET6] {
            let header = rt_route::Rtmsg { rtm_family: family as u8, ..Default::default() };
            let request = rt_route::Request::new().op_getroute_dump(&header);
            routes.extend(self.replies(&request, |(header, attributes)| static_route(&header, &attributes))?);
        }
        Ok(routes)
    }

    /// The type of the route that refuses frames to this address; none when no route does.
    pub fn refuses(&mut self, to: IpAddr) -> Answer<Option<RouteType>> {
        let header = question(to);
        let mut request = rt_route::Request::new().op_getroute_do(&header);
        request.encode().push_dst(to);
        match self.replies(&request, |(header, _)| RouteType::of(header.rtm_type)) {
            Err(refusal) => match refusal.errno.and_then(RouteType::of_error) {
                Some(kind) => Ok(Some(kind)),
                None if refusal.errno.is_some_and(|errno| NO_ROUTE.contains(&errno)) => Ok(None),
                None => Err(refusal),
            },
            answer => answer.map(|mut replies| replies.pop()),
        }
    }

    /// Where frames to this address leave; none when there is no route.
    pub fn route(&mut self, to: IpAddr) -> Answer<Option<Route>> {
        let header = question(to);
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

/// The question for the route to an address.
fn question(to: IpAddr) -> rt_route::Rtmsg {
    let bits = if to.is_ipv4() { 32 } else { 128 };
    rt_route::Rtmsg { rtm_family: family_of(to), rtm_dst_len: bits, ..Default::default() }
}

/// One reply to a dump of routes; none for what the kernel set by itself.
fn static_route(
    header: &rt_route::Rtmsg,
    attributes: &rt_route::IterableRouteAttrs<'_>,
) -> Option<StaticRoute> {
    let table = attributes.get_table().unwrap_or(u32::from(header.rtm_table));
    if BY_ITSELF.contains(&header.rtm_protocol) || table == LOCAL_TABLE {
        return None;
    }
    let everything = if header.rtm_family == libc::AF_INET as u8 { [0; 4].into() } else { [0; 16].into() };
    let to = Prefix { address: attributes.get_dst().unwrap_or(everything), length: header.rtm_dst_len };
    let one = || attributes.get_gateway().ok().map(|via| NextHop { via, weight: 1 });
    let action = match RouteType::of(header.rtm_type) {
        Some(kind) => RouteAction::Refuse(kind),
        None => RouteAction::Via(match attributes.get_multipath() {
            Ok(bytes) => read_next_hops(bytes),
            Err(_) => one().into_iter().collect(),
        }),
    };
    Some(StaticRoute { to, table, action })
}

/// The bytes of an address, as they lie in a frame.
pub(super) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address of these bytes; none when they are neither 4 nor 16.
pub(super) fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or(<[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn next_hops(hops: &[NextHop]) -> Vec<u8> {
    let hop = |hop: &NextHop| {
        let gateway = attribute(RTA_GATEWAY, &address_bytes(hop.via));
        let length = ((NEXT_HOP_BYTES + gateway.len()) as u16).to_ne_bytes();
        // No flags; the kernel finds the interface by the neighbour's address.
        let rest = [0, hop.weight.saturating_sub(1) as u8, 0, 0, 0, 0];
        [&length[..], &rest, &gateway].concat()
    };
    hops.iter().flat_map(hop).collect()
}

/// The next hops that have an address. Ends at the first that does not fit.
fn read_next_hops(mut bytes: &[u8]) -> Vec<NextHop> {
    let mut hops = vec![];
    while let Some(length) = u16_at(bytes, 0).map(usize::from) {
        let Some(attributes) = bytes.get(NEXT_HOP_BYTES..length) else { break };
        let via = Attributes(attributes).get(RTA_GATEWAY).and_then(address_of);
        hops.extend(via.map(|via| NextHop { via, weight: u32::from(bytes[3]) + 1 }));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_with_one_next_hop_is_read_as_it_is_written() {
        for (text, written) in [
            ("10.0.2.0/24 via 10.0.1.1", Some("10.0.2.0/24 via 10.0.1.1")),
            ("default via fd00::1", Some("default via fd00::1")),
            ("10.0.0.0/0 via 10.0.1.1", Some("default via 10.0.1.1")),
            ("10.0.2.0/24 via fd00::1", None),
            ("10.0.2.0/24", None),
            ("10.0.2.0/33 via 10.0.1.1", None),
            ("default via 10.0.1.1 via 10.0.1.2", None),
        ] {
            let route = StaticRoute::parse(text);
            assert_eq!(route.as_ref().map(ToString::to_string).as_deref(), written, "{text}");
            assert!(route.is_none_or(|route| route.is_plain()));
        }
    }
    use proptest::prelude::*;

    /// Two hops as `ip route add … nexthop via 10.0.0.2 weight 3 nexthop via 10.0.0.3` sends them, seen with `strace -e sendmsg`.
    #[test]
    fn next_hops_are_those_of_iproute2() {
        let hops = [("10.0.0.2", 3), ("10.0.0.3", 1)]
            .map(|(via, weight)| NextHop { via: via.parse().unwrap(), weight });
        let wanted = [
            [16, 0, 0, 2, 0, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 2],
            [16, 0, 0, 0, 0, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 3],
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(next_hops(&hops), wanted.concat());
        }
        assert_eq!(read_next_hops(&next_hops(&hops)), hops);
    }

    proptest! {
        #[test]
        fn noise_is_no_next_hop_that_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_next_hops(&noise);
        }

        #[test]
        fn next_hops_read_back(v6: bool, some in prop::collection::vec((any::<u128>(), 1u32..=256), 0..9)) {
            let address = |bits: u128| if v6 { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) };
            let hops: Vec<_> = some.into_iter().map(|(bits, weight)| NextHop { via: address(bits), weight }).collect();
            prop_assert_eq!(read_next_hops(&next_hops(&hops)), hops);
        }
    }
}
