//! What the kernel is asked about links, in the namespace of the calling thread: one netlink request each.
//!
//! **What.** [`Netlink`] makes, changes, lists and deletes links, addresses, routes, shapers and offloads.
//!
//! **Why two things are done by hand.** The peer of a veth is not in the kernel's YNL description, so its nest is
//! pushed here; a peer that is made in the other namespace at once costs 1 ms, one that is moved there 10 to 20 ms
//! (`synchronize_net`). And netlink-bindings 0.3.5 counts ethtool's notifications among its commands, so its command
//! numbers are wrong from the third one on; [`Ethtool`] holds the right ones.
//!
//! **Price.** A socket belongs to the namespace that its thread was in when it was opened: make a `Netlink` inside
//! `Node::within` and do not carry it out.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_bindings::rt_link::{Ifinfomsg, PushLinkAttrs};
use netlink_bindings::traits::NetlinkRequest;
use netlink_bindings::utils::{Pusher, finalize_nested_header, push_nested_header};
use netlink_bindings::{ethtool, netdev, rt_addr, rt_link, rt_route, tc};
use netlink_socket2::{NetlinkSocket, ReplyError};
use record::snapshot::TC_ROOT;

use super::topology::{InterfaceSpec, Offload, Prefix, Shaper};

/// Requests of the ethtool family as `include/uapi/linux/ethtool_netlink.h` numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ethtool {
    /// `ETHTOOL_MSG_FEATURES_GET`.
    FeaturesGet = 11,
    /// `ETHTOOL_MSG_FEATURES_SET`.
    FeaturesSet = 12,
    /// `ETHTOOL_MSG_CHANNELS_GET`.
    ChannelsGet = 17,
}

/// `IFLA_INFO_DATA` and `VETH_INFO_PEER` (`if_link.h`, `veth.h`).
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
/// `IFA_F_NODAD` (`if_addr.h`): the address is usable at once and asks nobody.
const NO_DAD: u32 = 0x02;
/// `RTN_LOCAL`, `RTN_UNICAST` (`rtnetlink.h`).
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;

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

impl From<ReplyError> for Refusal {
    fn from(error: ReplyError) -> Self {
        let text = error.to_string().replace(" (no extended ack)", "");
        Refusal { errno: error.as_io_error().raw_os_error(), text }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal { errno: error.raw_os_error(), text: error.to_string() }
    }
}

/// A link as the kernel shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Index in its namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// `veth`, `bridge`, …; empty if the kernel tells none.
    pub kind: String,
    /// Ethernet address; none for a link without one.
    pub address: Option<[u8; 6]>,
    /// Administratively up.
    pub up: bool,
    /// Carrier present.
    pub carrier: bool,
    /// The kernel passes traffic (`IF_OPER_UP`, or `IF_OPER_UNKNOWN` of a device whose carrier never changed).
    pub operational: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Transmit queue length in frames.
    pub tx_queue_len: u32,
    /// Name of the root qdisc.
    pub qdisc: String,
    /// Index of the other end, in the other end's namespace; 0 if there is none.
    pub peer: u32,
    /// Which namespace the other end is in (`IFLA_LINK_NETNSID`); none when it is this one or there is no other end.
    pub peer_netns: Option<i32>,
    /// Index of the bridge that it is a port of, 0 if none.
    pub master: u32,
    /// State of the bridge port (3 is forwarding), if it is one.
    pub port_state: Option<u8>,
    /// Frames sent and received.
    pub frames: (u64, u64),
}

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

/// Requests to the kernel in the namespace of the thread that opened it.
pub struct Netlink {
    socket: NetlinkSocket,
}

type Answer<T = ()> = Result<T, Refusal>;

impl Default for Netlink {
    fn default() -> Self {
        Self::open()
    }
}

impl Netlink {
    /// Prepares requests to the namespace of the calling thread.
    pub fn open() -> Self {
        Netlink { socket: NetlinkSocket::new() }
    }

    /// Sends a request and waits for the kernel's yes or no.
    pub(crate) fn acknowledged<R: NetlinkRequest>(&mut self, request: &R) -> Answer {
        Ok(self.socket.request(request)?.recv_ack()?)
    }

    fn each<R: NetlinkRequest>(&mut self, request: &R, mut take: impl FnMut(R::ReplyType<'_>)) -> Answer {
        let mut replies = self.socket.request(request)?;
        while let Some(reply) = replies.recv() {
            take(reply?);
        }
        Ok(())
    }

    /// Makes both ends of a veth, `a` here and `b` in the other namespace.
    pub fn create_veth(
        &mut self,
        a: (&InterfaceSpec, u32),
        b: (&InterfaceSpec, u32),
        other: BorrowedFd<'_>,
    ) -> Answer {
        let header = Ifinfomsg { ifi_index: a.1 as i32, ..Default::default() };
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header);
        let mut info = end_attributes(request.encode(), a.0).nested_linkinfo().push_kind(c"veth");
        let buffer = info.as_vec_mut();
        let data = push_nested_header(buffer, INFO_DATA);
        let peer = push_nested_header(buffer, VETH_PEER);
        buffer.extend(Ifinfomsg { ifi_index: b.1 as i32, ..Default::default() }.as_slice());
        end_attributes(PushLinkAttrs::new(&mut *buffer), b.0).push_net_ns_fd(other.as_raw_fd() as u32);
        finalize_nested_header(buffer, peer);
        finalize_nested_header(buffer, data);
        drop(info);
        self.acknowledged(&request)
    }

    /// Makes a bridge that sends nothing of its own: no spanning tree, no delay, no multicast snooping.
    pub fn create_bridge(&mut self, spec: &InterfaceSpec, index: u32) -> Answer {
        let header = Ifinfomsg { ifi_index: index as i32, ..Default::default() };
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header);
        end_attributes(request.encode(), spec)
            .nested_linkinfo()
            .nested_data_bridge()
            .push_stp_state(0)
            .push_forward_delay(0)
            .push_mcast_snooping(0);
        self.acknowledged(&request)
    }

    /// Makes an interface a port of a bridge.
    pub fn set_master(&mut self, port: u32, bridge: u32) -> Answer {
        let header = Ifinfomsg { ifi_index: port as i32, ..Default::default() };
        let mut request = rt_link::Request::new().op_setlink_do(&header);
        request.encode().push_master(bridge);
        self.acknowledged(&request)
    }

    /// Changes the MTU of an interface.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Answer {
        let header = Ifinfomsg { ifi_index: index as i32, ..Default::default() };
        let mut request = rt_link::Request::new().op_setlink_do(&header);
        request.encode().push_mtu(mtu);
        self.acknowledged(&request)
    }

    /// Switches an interface on.
    pub fn set_up(&mut self, index: u32) -> Answer {
        self.set_flags(index, libc::IFF_UP as u32)
    }

    /// Switches an interface off.
    pub fn set_down(&mut self, index: u32) -> Answer {
        self.set_flags(index, 0)
    }

    fn set_flags(&mut self, index: u32, ifi_flags: u32) -> Answer {
        let ifi_change = libc::IFF_UP as u32;
        let header = Ifinfomsg { ifi_index: index as i32, ifi_flags, ifi_change, ..Default::default() };
        let request = rt_link::Request::new().op_setlink_do(&header);
        self.acknowledged(&request)
    }

    /// Deletes a link (with its other end); one that does not exist is as good as deleted.
    pub fn delete(&mut self, index: u32) -> Answer {
        let header = Ifinfomsg { ifi_index: index as i32, ..Default::default() };
        let request = rt_link::Request::new().op_dellink_do(&header);
        match self.acknowledged(&request) {
            Err(refusal) if refusal.errno == Some(libc::ENODEV) => Ok(()),
            answer => answer,
        }
    }

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
        let mut found = None;
        let answer = self.each(&request, |(header, attributes)| {
            let usable = [RTN_UNICAST, RTN_LOCAL].contains(&header.rtm_type);
            if let (true, Ok(interface)) = (usable, attributes.get_oif()) {
                let via = attributes.get_gateway().or(attributes.get_via()).ok();
                found = Some(Route { local: header.rtm_type == RTN_LOCAL, interface, via });
            }
        });
        match answer {
            Err(refusal) if refusal.errno.is_some_and(|errno| NO_ROUTE.contains(&errno)) => Ok(None),
            Err(refusal) => Err(refusal),
            Ok(()) => Ok(found),
        }
    }

    /// Limits the rate of what leaves an interface.
    pub fn set_shaper(&mut self, index: u32, shaper: Shaper) -> Answer {
        let bytes_per_second = shaper.rate_bps / 8;
        let header =
            tc::Tcmsg { ifindex: index as i32, handle: 0x1_0000, parent: TC_ROOT, ..Default::default() };
        let mut parameters = tc::TcTbfQopt { limit: shaper.limit_bytes, ..Default::default() };
        parameters.rate.linklayer = 1; // TC_LINKLAYER_ETHERNET: no rate table is needed
        parameters.rate.rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
        let mut request = tc::Request::new().set_create().set_replace().op_newqdisc_do(&header);
        request
            .encode()
            .nested_options_tbf()
            .push_parms(parameters)
            .push_rate64(bytes_per_second)
            .push_burst(shaper.burst_bytes);
        self.acknowledged(&request)
    }

    /// The rate limits at the roots of all interfaces, by index; `burst_bytes` is as near as the kernel's ticks tell.
    pub fn shapers(&mut self) -> Answer<BTreeMap<u32, Shaper>> {
        let request = tc::Request::new().op_getqdisc_dump(&tc::Tcmsg::default());
        let mut shapers = BTreeMap::new();
        self.each(&request, |(header, attributes)| {
            let Ok(tc::OptionsMsg::Tbf(options)) = attributes.get_options() else { return };
            let Ok(parameters) = options.get_parms() else { return };
            let rate = options.get_rate64().unwrap_or(u64::from(parameters.rate.rate));
            if header.parent == TC_ROOT {
                // A psched tick is 64 ns (include/net/pkt_sched.h, PSCHED_SHIFT 6).
                let burst = u128::from(parameters.buffer) * 64 * u128::from(rate) / 1_000_000_000;
                let shaper = Shaper {
                    rate_bps: rate.saturating_mul(8),
                    limit_bytes: parameters.limit,
                    burst_bytes: u32::try_from(burst).unwrap_or(u32::MAX),
                };
                shapers.insert(header.ifindex as u32, shaper);
            }
        })?;
        Ok(shapers)
    }

    /// Switches offloads; those that the device does not let change stay as they are.
    pub fn set_offloads(&mut self, index: u32, offloads: &BTreeMap<Offload, bool>) -> Answer {
        let mut request = ethtool::Request::new().op_features_set_do();
        request.header_mut().cmd = Ethtool::FeaturesSet as u8;
        let mut bits =
            request.encode().nested_header().push_dev_index(index).end_nested().nested_wanted().nested_bits();
        for (offload, &on) in offloads {
            for feature in offload.features() {
                let mut bit = bits.nested_bit().push_name_bytes(feature.as_bytes());
                if on {
                    bit = bit.push_value(());
                }
                bits = bit.end_nested();
            }
        }
        drop(bits);
        self.each(&request, |_| {})
    }

    /// Which offloads are on. An offload that stands for several features is on when one of them is.
    pub fn offloads(&mut self, index: u32) -> Answer<BTreeMap<Offload, bool>> {
        let mut request = ethtool::Request::new().op_features_get_do();
        request.header_mut().cmd = Ethtool::FeaturesGet as u8;
        request.encode().nested_header().push_dev_index(index);
        let mut on = BTreeMap::new();
        self.each(&request, |features| {
            let Ok(bits) = features.get_active().and_then(|active| active.get_bits()) else { return };
            let names: Vec<Vec<u8>> =
                bits.get_bit().filter_map(|bit| Some(bit.get_name().ok()?.to_bytes().to_vec())).collect();
            for offload in Offload::ALL {
                let active = offload.features().iter().any(|f| names.iter().any(|name| name == f.as_bytes()));
                on.insert(offload, active);
            }
        })?;
        Ok(on)
    }

    /// Receive and transmit queues in use; none when the device does not tell.
    pub fn queues(&mut self, index: u32) -> Answer<Option<(u32, u32)>> {
        let mut request = ethtool::Request::new().op_channels_get_do();
        request.header_mut().cmd = Ethtool::ChannelsGet as u8;
        request.encode().nested_header().push_dev_index(index);
        let mut queues = None;
        let answer = self.each(&request, |channels| {
            let both = channels.get_combined_count().unwrap_or(0);
            queues = Some((
                both + channels.get_rx_count().unwrap_or(0),
                both + channels.get_tx_count().unwrap_or(0),
            ));
        });
        match answer {
            Err(refusal) if refusal.errno == Some(libc::EOPNOTSUPP) => Ok(None),
            answer => answer.map(|()| queues),
        }
    }

    /// What the interface's driver can do with XDP (`enum netdev_xdp_act`, Linux 6.3); none when the kernel does not tell.
    pub fn xdp_features(&mut self, index: u32) -> Answer<Option<u64>> {
        let mut request = netdev::Request::new().op_dev_get_do();
        request.encode().push_ifindex(index);
        let mut features = None;
        let answer = self.each(&request, |device| features = device.get_xdp_features().ok());
        match answer {
            // Before Linux 6.3 there is no such family.
            Err(refusal) if matches!(refusal.errno, Some(libc::ENOENT | libc::EOPNOTSUPP)) => Ok(None),
            answer => answer.map(|()| features),
        }
    }

    /// Every link of the namespace.
    pub fn links(&mut self) -> Answer<Vec<LinkState>> {
        let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::default());
        let mut links = vec![];
        self.each(&request, |(header, attributes)| links.push(link_state(&header, &attributes)))?;
        Ok(links)
    }

    /// Every address of the namespace that others can reach (no loopback, no link-local), with the index of its
    /// interface, in the kernel's order.
    pub fn addresses(&mut self) -> Answer<Vec<(u32, Prefix)>> {
        let mut addresses = vec![];
        for family in [libc::AF_INET, libc::AF_INET6] {
            let header = rt_addr::Ifaddrmsg { ifa_family: family as u8, ..Default::default() };
            let request = rt_addr::Request::new().op_getaddr_dump(&header);
            self.each(&request, |(header, attributes)| {
                let global = header.ifa_scope == libc::RT_SCOPE_UNIVERSE;
                if let (true, Ok(address)) = (global, attributes.get_local().or(attributes.get_address())) {
                    addresses.push((header.ifa_index, Prefix { address, length: header.ifa_prefixlen }));
                }
            })?;
        }
        Ok(addresses)
    }
}

/// Errors that mean "no way there", not "the question was wrong".
const NO_ROUTE: [i32; 5] =
    [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL, libc::EAFNOSUPPORT];

fn family_of(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// What is said of an interface when it is made.
fn end_attributes<P: Pusher>(mut push: PushLinkAttrs<P>, spec: &InterfaceSpec) -> PushLinkAttrs<P> {
    push = push.push_ifname_bytes(spec.name.as_bytes());
    if let Some(mtu) = spec.mtu {
        push = push.push_mtu(mtu);
    }
    if let Some(length) = spec.tx_queue_len {
        push = push.push_txqlen(length);
    }
    if let Some(queues) = spec.queues {
        push = push.push_num_tx_queues(queues).push_num_rx_queues(queues);
    }
    if let Some(mac) = spec.mac {
        push = push.push_address(&mac.0);
    }
    push
}

fn link_state(header: &Ifinfomsg, attributes: &rt_link::IterableLinkAttrs<'_>) -> LinkState {
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    let info = attributes.get_linkinfo();
    let port = info.as_ref().ok().and_then(|info| match info.get_slave_data() {
        Ok(rt_link::LinkinfoMemberDataMsg::Bridge(port)) => port.get_state().ok(),
        _ => None,
    });
    let stats = attributes.get_stats64();
    LinkState {
        index: header.ifi_index as u32,
        name: attributes.get_ifname().map(text).unwrap_or_default(),
        kind: info.ok().and_then(|info| info.get_kind().ok().map(text)).unwrap_or_default(),
        address: attributes.get_address().ok().and_then(|bytes| bytes.try_into().ok()),
        up: header.ifi_flags & libc::IFF_UP as u32 != 0,
        carrier: header.ifi_flags & libc::IFF_LOWER_UP as u32 != 0,
        operational: attributes.get_operstate().is_ok_and(|state| state == 6 || state == 0),
        mtu: attributes.get_mtu().unwrap_or(0),
        tx_queue_len: attributes.get_txqlen().unwrap_or(0),
        qdisc: attributes.get_qdisc().map(text).unwrap_or_default(),
        peer: attributes.get_link().unwrap_or(0),
        peer_netns: attributes.get_link_netnsid().ok().filter(|&id| id >= 0),
        master: attributes.get_master().unwrap_or(0),
        port_state: port,
        frames: stats.map(|stats| (stats.tx_packets, stats.rx_packets)).unwrap_or_default(),
    }
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
    use std::net::Ipv4Addr;

    /// The numbers of `include/uapi/linux/ethtool_netlink.h`, where every request counts once and no notification.
    #[test]
    fn ethtool_requests_have_the_numbers_of_the_kernel() {
        let names = [
            "STRSET_GET",
            "LINKINFO_GET",
            "LINKINFO_SET",
            "LINKMODES_GET",
            "LINKMODES_SET",
            "LINKSTATE_GET",
            "DEBUG_GET",
            "DEBUG_SET",
            "WOL_GET",
            "WOL_SET",
            "FEATURES_GET",
            "FEATURES_SET",
            "PRIVFLAGS_GET",
            "PRIVFLAGS_SET",
            "RINGS_GET",
            "RINGS_SET",
            "CHANNELS_GET",
        ];
        let number = |wanted: &str| names.iter().position(|name| *name == wanted).unwrap() as u8 + 1;
        assert_eq!(Ethtool::FeaturesGet as u8, number("FEATURES_GET"));
        assert_eq!(Ethtool::FeaturesSet as u8, number("FEATURES_SET"));
        assert_eq!(Ethtool::ChannelsGet as u8, number("CHANNELS_GET"));
    }

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
    fn a_link_local_address_names_its_interface() {
        assert_eq!(link_local(0x1a).to_string(), "fe80::1a/64");
    }
}
