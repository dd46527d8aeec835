//! Links: made, joined, switched, listed, deleted.
//!
//! **Why a nest is pushed by hand.** The peer of a veth is not in the kernel's YNL description; a peer that is made in the other
//! namespace at once costs 1 ms, one that is moved there 10 to 20 ms (`synchronize_net`).

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_bindings::rt_link::{self, Ifinfomsg, PushLinkAttrs};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{finalize_nested_header, push_nested_header};

use super::{Answer, Netlink};

/// `IFLA_INFO_DATA` and `VETH_INFO_PEER` (`if_link.h`, `veth.h`).
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;

/// An interface that is to be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewLink<'a> {
    /// Index in its namespace.
    pub index: u32,
    /// Name.
    pub name: &'a str,
    /// MTU in bytes; none: as the kernel gives.
    pub mtu: Option<u32>,
    /// Transmit queue length in frames; none: as the kernel gives.
    pub tx_queue_len: Option<u32>,
    /// Transmit and receive queues each; none: one.
    pub queues: Option<u32>,
    /// Hardware address; none: as the kernel gives.
    pub mac: Option<[u8; 6]>,
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
    /// Its frames begin with an Ethernet header.
    pub ethernet: bool,
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
    /// What of a bridge port differs from the kernel's default: `isolated`, `locked`, `no_flood`, `no_learning`.
    pub port_flags: Vec<&'static str>,
    /// Frames sent and received.
    pub frames: (u64, u64),
}

impl Netlink {
    /// Makes both ends of a veth, `a` here and `b` in the other namespace.
    pub fn create_veth(&mut self, a: &NewLink<'_>, b: &NewLink<'_>, other: BorrowedFd<'_>) -> Answer {
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header(a.index));
        let mut info = end_attributes(request.encode(), a).nested_linkinfo().push_kind(c"veth");
        let buffer = info.as_vec_mut();
        let data = push_nested_header(buffer, INFO_DATA);
        let peer = push_nested_header(buffer, VETH_PEER);
        buffer.extend(header(b.index).as_slice());
        end_attributes(PushLinkAttrs::new(&mut *buffer), b).push_net_ns_fd(other.as_raw_fd() as u32);
        finalize_nested_header(buffer, peer);
        finalize_nested_header(buffer, data);
        drop(info);
        self.acknowledged(&request)
    }

    /// Makes a bridge that sends nothing of its own: no spanning tree, no delay, no multicast snooping.
    pub fn create_bridge(&mut self, new: &NewLink<'_>) -> Answer {
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header(new.index));
        end_attributes(request.encode(), new)
            .nested_linkinfo()
            .nested_data_bridge()
            .push_stp_state(0)
            .push_forward_delay(0)
            .push_mcast_snooping(0);
        self.acknowledged(&request)
    }

    /// Makes an interface a port of a bridge.
    pub fn set_master(&mut self, port: u32, bridge: u32) -> Answer {
        self.change(header(port), |attributes| drop(attributes.push_master(bridge)))
    }

    /// Changes the MTU of an interface.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Answer {
        self.change(header(index), |attributes| drop(attributes.push_mtu(mtu)))
    }

    /// Gives an interface another name; it must be switched off.
    pub fn set_name(&mut self, index: u32, name: &str) -> Answer {
        self.change(header(index), |attributes| drop(attributes.push_ifname_bytes(name.as_bytes())))
    }

    /// Switches an interface on.
    pub fn set_up(&mut self, index: u32) -> Answer {
        let up = libc::IFF_UP as u32;
        self.change(Ifinfomsg { ifi_flags: up, ifi_change: up, ..header(index) }, |_| {})
    }

    /// Switches an interface off.
    pub fn set_down(&mut self, index: u32) -> Answer {
        self.change(Ifinfomsg { ifi_change: libc::IFF_UP as u32, ..header(index) }, |_| {})
    }

    /// Moves an interface into another namespace, where it is what is said of the new one; an index of 0 lets it keep its own if it can.
    pub fn move_link(&mut self, index: u32, new: &NewLink<'_>, other: BorrowedFd<'_>) -> Answer {
        self.change(header(index), |attributes| {
            let attributes = end_attributes(attributes, new).push_net_ns_fd(other.as_raw_fd() as u32);
            if new.index != 0 {
                attributes.push_new_ifindex(new.index as i32);
            }
        })
    }

    fn change(&mut self, header: Ifinfomsg, say: impl FnOnce(PushLinkAttrs<&mut Vec<u8>>)) -> Answer {
        let mut request = rt_link::Request::new().op_setlink_do(&header);
        say(request.encode());
        self.acknowledged(&request)
    }

    /// Deletes a link (with its other end); one that does not exist is as good as deleted.
    pub fn delete(&mut self, index: u32) -> Answer {
        let request = rt_link::Request::new().op_dellink_do(&header(index));
        match self.acknowledged(&request) {
            Err(refusal) if refusal.errno == Some(libc::ENODEV) => Ok(()),
            answer => answer,
        }
    }

    /// Lets the kernel act at once on a change of carrier that waits for its turn: whoever asks for a single link does so
    /// (`linkwatch_sync_dev`, Linux 6.8; before that nothing happens).
    pub fn settle(&mut self, index: u32) -> Answer {
        let request = rt_link::Request::new().op_getlink_do(&header(index));
        self.replies(&request, |_| None::<()>).map(drop)
    }

    /// Every link of the namespace.
    pub fn links(&mut self) -> Answer<Vec<LinkState>> {
        let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::default());
        self.replies(&request, |(header, attributes)| Some(link_state(&header, &attributes)))
    }
}

/// What a message about an interface begins with.
pub(super) fn header(index: u32) -> Ifinfomsg {
    Ifinfomsg { ifi_index: index as i32, ..Default::default() }
}

impl LinkState {
    /// Decodes one reply to `RTM_GETLINK`.
    pub fn parse(message: &[u8]) -> LinkState {
        let (header, attributes) = rt_link::OpGetlinkDump::decode_request(message);
        link_state(&header, &attributes)
    }
}

/// What is said of an interface when it is made.
pub(super) fn end_attributes<P: Pusher>(mut push: PushLinkAttrs<P>, new: &NewLink<'_>) -> PushLinkAttrs<P> {
    push = push.push_ifname_bytes(new.name.as_bytes());
    if let Some(mtu) = new.mtu {
        push = push.push_mtu(mtu);
    }
    if let Some(length) = new.tx_queue_len {
        push = push.push_txqlen(length);
    }
    if let Some(queues) = new.queues {
        push = push.push_num_tx_queues(queues).push_num_rx_queues(queues);
    }
    if let Some(mac) = new.mac {
        push = push.push_address(&mac);
    }
    push
}

fn port_flags(port: &rt_link::IterableLinkinfoBrportAttrs<'_>) -> Vec<&'static str> {
    let flags = [
        ("isolated", port.get_isolated().is_ok_and(|set| set != 0)),
        ("locked", port.get_locked().is_ok_and(|set| set != 0)),
        ("no_flood", port.get_unicast_flood().is_ok_and(|set| set == 0)),
        ("no_learning", port.get_learning().is_ok_and(|set| set == 0)),
    ];
    flags.into_iter().filter(|(_, is_so)| *is_so).map(|(name, _)| name).collect()
}

fn link_state(header: &Ifinfomsg, attributes: &rt_link::IterableLinkAttrs<'_>) -> LinkState {
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    let info = attributes.get_linkinfo();
    let port = info.as_ref().ok().and_then(|info| match info.get_slave_data() {
        Ok(rt_link::LinkinfoMemberDataMsg::Bridge(port)) => Some(port),
        _ => None,
    });
    let stats = attributes.get_stats64();
    LinkState {
        index: header.ifi_index as u32,
        name: attributes.get_ifname().map(text).unwrap_or_default(),
        kind: info.ok().and_then(|info| info.get_kind().ok().map(text)).unwrap_or_default(),
        address: attributes.get_address().ok().and_then(|bytes| bytes.try_into().ok()),
        ethernet: [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&header.ifi_type),
        up: header.ifi_flags & libc::IFF_UP as u32 != 0,
        carrier: header.ifi_flags & libc::IFF_LOWER_UP as u32 != 0,
        operational: attributes.get_operstate().is_ok_and(|state| state == 6 || state == 0),
        mtu: attributes.get_mtu().unwrap_or(0),
        tx_queue_len: attributes.get_txqlen().unwrap_or(0),
        qdisc: attributes.get_qdisc().map(text).unwrap_or_default(),
        peer: attributes.get_link().unwrap_or(0),
        peer_netns: attributes.get_link_netnsid().ok().filter(|&id| id >= 0),
        master: attributes.get_master().unwrap_or(0),
        port_state: port.as_ref().and_then(|port| port.get_state().ok()),
        port_flags: port.as_ref().map(port_flags).unwrap_or_default(),
        frames: stats.map(|stats| (stats.tx_packets, stats.rx_packets)).unwrap_or_default(),
    }
}
