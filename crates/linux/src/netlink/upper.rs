//! Interfaces that send through another one: VXLAN, macvlan, ipvlan, VLAN; and bonds.
//!
//! **Why attributes by hand.** The kernel's YNL description of links does not know what some of these kinds are told
//! (`IFLA_VXLAN_…`, `IFLA_MACVLAN_…`, `IFLA_IPVLAN_…`, `if_link.h`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_bindings::rt_link;
use netlink_bindings::traits::Pusher;

use super::attributes::{Attributes, after, attribute, u16_at, u32_at};
use super::link::{NewLink, end_attributes, header};
use super::route::{address_bytes, address_of};
use super::{Answer, Dump, Family, Netlink};

/// `RTM_GETLINK` and the bytes of its `struct ifinfomsg`.
const GET_LINK: u16 = 18;
const HEADER_BYTES: usize = 16;
/// `IFLA_LINK`, `IFLA_LINKINFO`, `IFLA_INFO_KIND`, `IFLA_INFO_DATA`.
const LINK: u16 = 5;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
/// `IFLA_MACVLAN_MODE`, `IFLA_IPVLAN_MODE`.
const MODE: u16 = 1;
/// `IFLA_VXLAN_…`.
const VXLAN_ID: u16 = 1;
const VXLAN_GROUP: u16 = 2;
const VXLAN_LINK: u16 = 3;
const VXLAN_LOCAL: u16 = 4;
const VXLAN_PORT: u16 = 15;
const VXLAN_GROUP6: u16 = 16;
const VXLAN_LOCAL6: u16 = 17;

/// `IFLA_VLAN_ID`, `IFLA_VLAN_PROTOCOL`.
const VLAN_ID: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;
/// The types of frames with a tag (`ETH_P_8021Q`, `ETH_P_8021AD`).
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
/// `IFLA_BOND_MODE`, `IFLA_BOND_MIIMON`.
const BOND_MODE: u16 = 1;
const BOND_MIIMON: u16 = 3;
/// How often a bond looks whether its ports have a carrier, in milliseconds (Documentation/networking/bonding.rst advises 100).
const MIIMON_MS: u32 = 100;

/// How a macvlan, ipvlan or bond hands frames on: the word, and the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// The word in a topology, which is iproute2's.
    pub word: &'static str,
    number: u16,
}

const fn mode(word: &'static str, number: u16) -> Mode {
    Mode { word, number }
}

/// `MACVLAN_MODE_…`; the first is what a topology means when it says none.
pub const MACVLAN_MODES: &[Mode] =
    &[mode("bridge", 4), mode("private", 1), mode("vepa", 2), mode("passthru", 8)];
/// `IPVLAN_MODE_…`; the first is what a topology means when it says none.
pub const IPVLAN_MODES: &[Mode] = &[mode("l2", 0), mode("l3", 1), mode("l3s", 2)];

/// `BOND_MODE_…` (uapi/linux/if_bonding.h); the first is what a topology means when it says none, and what the kernel means.
pub const BOND_MODES: &[Mode] = &[
    mode("balance-rr", 0),
    mode("active-backup", 1),
    mode("balance-xor", 2),
    mode("broadcast", 3),
    mode("802.3ad", 4),
    mode("balance-tlb", 5),
    mode("balance-alb", 6),
];

/// Ethernet in UDP to one other host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// Which of the networks that share the two hosts (VNI), 24 bits.
    pub id: u32,
    /// The address that it sends from; none: the kernel takes that of the route.
    pub local: Option<IpAddr>,
    /// The other host.
    pub remote: IpAddr,
    /// UDP port of both.
    pub port: u16,
}

/// What an interface over another one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpperKind {
    /// Ethernet in UDP.
    Vxlan(Vxlan),
    /// A hardware address of its own on the other interface.
    Macvlan(Mode),
    /// An address of its own on the other interface, under that one's hardware address.
    Ipvlan(Mode),
    /// The frames of the other interface that carry this tag.
    Vlan(VlanTag),
}

/// A tag of IEEE 802.1Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// 1 to 4094.
    pub id: u16,
    /// That of a provider (S-tag, 802.1ad), within which customers have tags of their own.
    pub is_service: bool,
}

impl VlanTag {
    fn data(self) -> Vec<u8> {
        // The kernel's own choice need not be said: that one works where the attribute is not known, too.
        let protocol = attribute(VLAN_PROTOCOL, &SERVICE_TAG.to_be_bytes());
        [attribute(VLAN_ID, &self.id.to_ne_bytes()), if self.is_service { protocol } else { vec![] }].concat()
    }

    fn parse(data: &Attributes<'_>) -> Option<VlanTag> {
        let number = |kind| data.get(kind).and_then(|bytes| u16_at(bytes, 0));
        let protocol = number(VLAN_PROTOCOL).map_or(CUSTOMER_TAG, u16::from_be);
        Some(VlanTag { id: number(VLAN_ID)?, is_service: protocol == SERVICE_TAG })
    }
}

impl fmt::Display for VlanTag {
    /// As a topology says it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {}{}", self.id, if self.is_service { " proto 802.1ad" } else { "" })
    }
}

impl UpperKind {
    /// The kernel's word, which is the topology's.
    pub fn word(self) -> &'static str {
        match self {
            UpperKind::Vxlan(_) => "vxlan",
            UpperKind::Macvlan(_) => "macvlan",
            UpperKind::Ipvlan(_) => "ipvlan",
            UpperKind::Vlan(_) => "vlan",
        }
    }

    /// What the kernel is told of it.
    fn data(self, lower: Option<u32>) -> Vec<u8> {
        match self {
            UpperKind::Vxlan(vxlan) => vxlan.data(lower),
            UpperKind::Macvlan(mode) => attribute(MODE, &u32::from(mode.number).to_ne_bytes()),
            UpperKind::Ipvlan(mode) => attribute(MODE, &mode.number.to_ne_bytes()),
            UpperKind::Vlan(tag) => tag.data(),
        }
    }

    /// What the kernel tells of it; none for other kinds of interfaces, and modes that a topology cannot say.
    fn parse(kind: &[u8], data: &[u8]) -> Option<UpperKind> {
        let number = |bytes: &[u8]| u32_at(bytes, 0).or(u16_at(bytes, 0).map(u32::from));
        let mode = |modes: &[Mode]| {
            let number = Attributes(data).get(MODE).and_then(number)?;
            modes.iter().find(|mode| u32::from(mode.number) == number).copied()
        };
        match kind {
            b"vxlan\0" => Vxlan::parse(&Attributes(data)).map(UpperKind::Vxlan),
            b"macvlan\0" => mode(MACVLAN_MODES).map(UpperKind::Macvlan),
            b"ipvlan\0" => mode(IPVLAN_MODES).map(UpperKind::Ipvlan),
            b"vlan\0" => VlanTag::parse(&Attributes(data)).map(UpperKind::Vlan),
            _ => None,
        }
    }
}

impl fmt::Display for UpperKind {
    /// As a topology says it, without its first word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpperKind::Macvlan(mode) | UpperKind::Ipvlan(mode) => write!(f, "mode {}", mode.word),
            UpperKind::Vlan(tag) => tag.fmt(f),
            UpperKind::Vxlan(Vxlan { id, local, remote, port }) => {
                let local = local.map(|local| format!(" local {local}")).unwrap_or_default();
                write!(f, "id {id}{local} remote {remote} port {port}")
            }
        }
    }
}

impl Vxlan {
    fn data(self, lower: Option<u32>) -> Vec<u8> {
        let number = |address: IpAddr, v4, v6| if address.is_ipv4() { v4 } else { v6 };
        let of_address =
            |address: IpAddr, v4, v6| attribute(number(address, v4, v6), &address_bytes(address));
        let local = self.local.map(|local| of_address(local, VXLAN_LOCAL, VXLAN_LOCAL6));
        [
            attribute(VXLAN_ID, &self.id.to_ne_bytes()),
            of_address(self.remote, VXLAN_GROUP, VXLAN_GROUP6),
            local.unwrap_or_default(),
            lower.map(|lower| attribute(VXLAN_LINK, &lower.to_ne_bytes())).unwrap_or_default(),
            attribute(VXLAN_PORT, &self.port.to_be_bytes()),
        ]
        .concat()
    }

    fn parse(data: &Attributes<'_>) -> Option<Vxlan> {
        let address = |v4, v6| data.get(v4).or(data.get(v6)).and_then(address_of);
        let port = data.get(VXLAN_PORT).and_then(|bytes| u16_at(bytes, 0)).map_or(0, u16::from_be);
        let id = u32_at(data.get(VXLAN_ID)?, 0)?;
        let remote = address(VXLAN_GROUP, VXLAN_GROUP6)?;
        Some(Vxlan { id, local: address(VXLAN_LOCAL, VXLAN_LOCAL6), remote, port })
    }
}

/// An interface over another one, as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperState {
    /// Index of the interface.
    pub index: u32,
    /// What it is.
    pub kind: UpperKind,
    /// Index of the interface that it sends through, in the namespace where it was made; none if it has none.
    pub lower: Option<u32>,
}

impl UpperState {
    /// Decodes one reply to `RTM_GETLINK`; none for other kinds of interfaces.
    pub fn parse(message: &[u8]) -> Option<UpperState> {
        let attributes = after(message, HEADER_BYTES);
        let info = Attributes(attributes.get(LINK_INFO)?);
        let data = info.get(INFO_DATA)?;
        let kind = UpperKind::parse(info.get(INFO_KIND)?, data)?;
        let lower = match kind {
            UpperKind::Vxlan(_) => Attributes(data).get(VXLAN_LINK),
            UpperKind::Macvlan(_) | UpperKind::Ipvlan(_) | UpperKind::Vlan(_) => attributes.get(LINK),
        };
        let lower = lower.and_then(|bytes| u32_at(bytes, 0)).filter(|&lower| lower != 0);
        Some(UpperState { index: u32_at(message, 4)?, kind, lower })
    }
}

/// Decodes one reply to `RTM_GETLINK`: the index of a bond and its mode; none for other kinds of interfaces.
fn bond(message: &[u8]) -> Option<(u32, Mode)> {
    let info = Attributes(after(message, HEADER_BYTES).get(LINK_INFO)?);
    let is_bond = info.get(INFO_KIND)?.starts_with(b"bond\0");
    let number = Attributes(info.get(INFO_DATA)?).get(BOND_MODE)?.first().copied()?;
    let mode = BOND_MODES.iter().find(|mode| is_bond && mode.number == u16::from(number))?;
    Some((u32_at(message, 4)?, *mode))
}

impl Netlink {
    /// Whether the kernel has interfaces of this kind (its module is loaded if it can be). It is asked to make one of which nothing is said: what
    /// comes of that stays in the namespace.
    pub fn knows_kind(&mut self, kind: &str) -> bool {
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header(0));
        request.encode().nested_linkinfo().push_kind_bytes(kind.as_bytes());
        let refused = self.acknowledged(&request).err();
        refused.is_none_or(|refusal| refusal.errno != Some(libc::EOPNOTSUPP))
    }

    /// Makes an interface over one of this namespace, in another namespace or (none) here.
    pub fn create_upper(
        &mut self,
        new: &NewLink<'_>,
        kind: UpperKind,
        lower: Option<u32>,
        other: Option<BorrowedFd<'_>>,
    ) -> Answer {
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header(new.index));
        let mut attributes = end_attributes(request.encode(), new);
        if let Some(other) = other {
            attributes = attributes.push_net_ns_fd(other.as_raw_fd() as u32);
        }
        let link = lower.filter(|_| !matches!(kind, UpperKind::Vxlan(_)));
        attributes = link.iter().fold(attributes, |to, lower| to.push_link(*lower));
        let mut info = attributes.nested_linkinfo().push_kind_bytes(kind.word().as_bytes());
        netlink_bindings::utils::align(info.as_vec_mut());
        info.as_vec_mut().extend(attribute(INFO_DATA, &kind.data(lower)));
        drop(info);
        self.acknowledged(&request)
    }

    /// Makes a bond without ports, which looks at their carrier.
    pub fn create_bond(&mut self, new: &NewLink<'_>, mode: Mode) -> Answer {
        let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&header(new.index));
        let mut info = end_attributes(request.encode(), new).nested_linkinfo().push_kind_bytes(b"bond");
        let data =
            [attribute(BOND_MODE, &[mode.number as u8]), attribute(BOND_MIIMON, &MIIMON_MS.to_ne_bytes())];
        netlink_bindings::utils::align(info.as_vec_mut());
        info.as_vec_mut().extend(attribute(INFO_DATA, &data.concat()));
        drop(info);
        self.acknowledged(&request)
    }

    /// Every interface over another one.
    pub fn uppers(&mut self) -> Answer<Vec<UpperState>> {
        let request = Dump { family: Family::Route, kind: GET_LINK, body: &[0; HEADER_BYTES] };
        Ok(self.dump(&request, UpperState::parse)?)
    }

    /// The modes of the bonds of this namespace, by the index of the interface.
    ///
    /// # Errors
    /// As [`Netlink::links`].
    pub fn bonds(&mut self) -> Answer<BTreeMap<u32, Mode>> {
        let request = Dump { family: Family::Route, kind: GET_LINK, body: &[0; HEADER_BYTES] };
        Ok(self.dump(&request, bond)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = UpperKind> {
        let address =
            |v6, bits: u128| if v6 { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) };
        let vxlan = (any::<bool>(), 0u32..1 << 24, any::<Option<u128>>(), any::<u128>(), any::<u16>());
        let vxlan = vxlan.prop_map(move |(v6, id, local, remote, port)| {
            let local = local.map(|bits| address(v6, bits));
            UpperKind::Vxlan(Vxlan { id, local, remote: address(v6, remote), port })
        });
        let macvlan = prop::sample::select(MACVLAN_MODES).prop_map(UpperKind::Macvlan);
        let vlan = (1u16..4095, any::<bool>())
            .prop_map(|(id, is_service)| UpperKind::Vlan(VlanTag { id, is_service }));
        prop_oneof![vxlan, macvlan, vlan, prop::sample::select(IPVLAN_MODES).prop_map(UpperKind::Ipvlan)]
    }

    proptest! {
        #[test]
        fn what_the_kernel_is_told_reads_back(kind in kinds(), lower in prop::option::of(1u32..9), index: u32) {
            let mut message = vec![0; HEADER_BYTES];
            message[4..8].copy_from_slice(&index.to_ne_bytes());
            message.extend(lower.map(|lower| attribute(LINK, &lower.to_ne_bytes())).unwrap_or_default());
            let name = attribute(INFO_KIND, format!("{}\0", kind.word()).as_bytes());
            let info = [name, attribute(INFO_DATA, &kind.data(lower))].concat();
            message.extend(attribute(LINK_INFO, &info));
            prop_assert_eq!(UpperState::parse(&message), Some(UpperState { index, kind, lower }));
        }

        #[test]
        fn the_mode_of_a_bond_reads_back(mode in prop::sample::select(BOND_MODES), index: u32, kind in kinds()) {
            let mut message = vec![0; HEADER_BYTES];
            message[4..8].copy_from_slice(&index.to_ne_bytes());
            let with = |kind: &[u8], data: &[u8]| {
                let info = [attribute(INFO_KIND, kind), attribute(INFO_DATA, data)].concat();
                [message.clone(), attribute(LINK_INFO, &info)].concat()
            };
            let data = [attribute(BOND_MIIMON, &[9; 4]), attribute(BOND_MODE, &[mode.number as u8])].concat();
            prop_assert_eq!(bond(&with(b"bond\0", &data)), Some((index, mode)));
            prop_assert_eq!(bond(&with(b"bridge\0", &data)), None);
            prop_assert_eq!(bond(&with(format!("{}\0", kind.word()).as_bytes(), &kind.data(None))), None);
            prop_assert_eq!(bond(&with(b"bond\0", &attribute(BOND_MODE, &[7]))), None);
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200), kind in kinds()) {
            let _ = UpperState::parse(&noise);
            let _ = bond(&noise);
            let _ = UpperKind::parse(format!("{}\0", kind.word()).as_bytes(), &noise);
        }
    }
}
