//! Settings of interfaces that ethtool knows: rings, channels, coalescing, pause frames, energy saving, receive hashing, features.
//!
//! **What.** A [`Group`] of settings is read with one request and set with another; both carry the same attributes. [`Netlink::settings`] gives the
//! attributes of the answer, [`Netlink::set_setting`] sets one of them.
//!
//! **Why by hand.** A knob is a row: a group, the number of an attribute and its width. The generated code has a function for each attribute,
//! which a row cannot name, and counts notifications among the commands ([`super::ethtool`]).
//!
//! **Price.** An interface that lacks a setting leaves its attribute out; one that lacks all of a group answers `EOPNOTSUPP`.

use std::collections::BTreeMap;

use super::attributes::{Attributes, after, attribute, u32_at};
use super::{Answer, Family, Netlink};

/// `ETHTOOL_GENL_VERSION`.
const VERSION: u8 = 1;
/// Bytes of `struct genlmsghdr`.
const HEADER_BYTES: usize = 4;
/// `ETHTOOL_A_…_HEADER` of every request, and `ETHTOOL_A_HEADER_DEV_INDEX` in it.
const HEADER: u16 = 1;
const DEV_INDEX: u16 = 1;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

/// `ETHTOOL_MSG_FEATURES_GET`, `ETHTOOL_MSG_FEATURES_SET`, and what they carry (`ETHTOOL_A_FEATURES_…`).
const FEATURES: Group = Group { get: 11, set: 12 };
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;
/// `ETHTOOL_MSG_LINKMODES_GET`, `…_SET`, and the sets of modes in them: what this end can and offers, and what the other end offers.
const LINK_MODES: Group = Group { get: 4, set: 5 };
const LINK_MODES_OURS: u16 = 3;
const LINK_MODES_PEER: u16 = 4;
/// `ETHTOOL_A_BITSET_BITS`, `ETHTOOL_A_BITSET_BITS_BIT`, and of a bit its name and that it is set.
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// Settings that are read and set together, by the numbers of `include/uapi/linux/ethtool_netlink.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The request that reads.
    pub get: u8,
    /// The request that sets.
    pub set: u8,
}

/// `ETHTOOL_MSG_RINGS_GET`, `…_SET`.
pub const RINGS: Group = Group { get: 15, set: 16 };
/// `ETHTOOL_MSG_CHANNELS_GET`, `…_SET`.
pub const CHANNELS: Group = Group { get: 17, set: 18 };
/// `ETHTOOL_MSG_COALESCE_GET`, `…_SET`.
pub const COALESCE: Group = Group { get: 19, set: 20 };
/// `ETHTOOL_MSG_PAUSE_GET`, `…_SET`.
pub const PAUSE: Group = Group { get: 21, set: 22 };
/// `ETHTOOL_MSG_EEE_GET`, `…_SET`.
pub const EEE: Group = Group { get: 23, set: 24 };
/// `ETHTOOL_MSG_RSS_GET`, and `…_SET` since Linux 6.17.
pub const RSS: Group = Group { get: 38, set: 48 };
/// `ETHTOOL_A_RSS_INDIR`, the queues of the table, and `ETHTOOL_A_RSS_HKEY`.
pub const RSS_TABLE: u16 = 4;
/// The bytes of the key.
pub const RSS_KEY: u16 = 5;

/// Something that the kernel may do to frames, as the kernel's bits say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureState {
    /// It is done.
    pub active: bool,
    /// It was asked for; what it depends on may be off.
    pub wanted: bool,
    /// It can be switched.
    pub changeable: bool,
}

/// The request about one interface.
fn request(command: u8, index: u32, attributes: &[u8]) -> Vec<u8> {
    let device = attribute(DEV_INDEX, &index.to_ne_bytes());
    [&[command, VERSION, 0, 0][..], &attribute(HEADER | NESTED, &device), attributes].concat()
}

impl Netlink {
    fn ethtool(&mut self, body: &[u8]) -> Answer<Vec<Vec<u8>>> {
        let kind = self.generic_family(b"ethtool")?;
        self.plain((Family::Generic, kind, 0), body, |reply| Some(reply.get(HEADER_BYTES..)?.to_vec()))
    }

    /// The attributes of a group of an interface, as bytes.
    pub fn settings(&mut self, group: Group, index: u32) -> Answer<Vec<u8>> {
        Ok(self.ethtool(&request(group.get, index, &[]))?.pop().unwrap_or_default())
    }

    /// Sets one attribute of a group.
    pub fn set_setting(&mut self, group: Group, index: u32, number: u16, value: &[u8]) -> Answer {
        self.ethtool(&request(group.set, index, &attribute(number, value))).map(drop)
    }

    /// The features of an interface by the kernel's names, those that it can never have among them.
    pub fn features(&mut self, index: u32) -> Answer<BTreeMap<String, FeatureState>> {
        Ok(features(&self.settings(FEATURES, index)?))
    }

    /// The highest speed that both ends of a link can do, in Mbit/s; none where the driver does not tell what the other end offers.
    pub fn common_speed(&mut self, index: u32) -> Answer<Option<u32>> {
        Ok(common_speed(&self.settings(LINK_MODES, index)?))
    }

    /// Asks for a feature, or no more.
    pub fn set_feature(&mut self, index: u32, name: &str, on: bool) -> Answer {
        self.ethtool(&request(FEATURES.set, index, &wanted(name, on))).map(drop)
    }
}

/// What is asked of one feature.
fn wanted(name: &str, on: bool) -> Vec<u8> {
    let mut bit = attribute(BIT_NAME, &[name.as_bytes(), &[0]].concat());
    if on {
        bit.extend(attribute(BIT_VALUE, &[]));
    }
    let bits = attribute(BITS | NESTED, &attribute(BIT | NESTED, &bit));
    attribute(FEATURES_WANTED | NESTED, &bits)
}

fn features(reply: &[u8]) -> BTreeMap<String, FeatureState> {
    let set = |number| bits(Attributes(reply).get(number).unwrap_or_default());
    let mut found: BTreeMap<String, FeatureState> = BTreeMap::new();
    // The only set that names every bit, and says of each whether it is set.
    for (name, is_set) in set(FEATURES_HW) {
        found.entry(name).or_default().changeable = is_set;
    }
    let mut mark = |number, mark: fn(&mut FeatureState)| {
        set(number).into_iter().for_each(|(name, _)| mark(found.entry(name).or_default()));
    };
    mark(FEATURES_WANTED, |state| state.wanted = true);
    mark(FEATURES_ACTIVE, |state| state.active = true);
    mark(FEATURES_NOCHANGE, |state| state.changeable = false);
    // Some bits have no name on some kernels.
    found.remove("");
    found
}

fn common_speed(reply: &[u8]) -> Option<u32> {
    let set = |number| bits(Attributes(reply).get(number).unwrap_or_default());
    let ours = set(LINK_MODES_OURS);
    let both = set(LINK_MODES_PEER).into_iter().filter(|(mode, _)| ours.iter().any(|(own, _)| own == mode));
    // "1000baseT/Full"; among the modes are also kinds of ports and of pauses.
    both.filter_map(|(mode, _)| mode.split_once("base")?.0.parse().ok()).max()
}

/// The names of the bits that a set lists, and whether it says of each that it is set; a set without a mask lists only those.
fn bits(set: &[u8]) -> Vec<(String, bool)> {
    let bits = Attributes(Attributes(set).get(BITS).unwrap_or_default());
    let bits = bits.filter(|(number, _)| *number == BIT).map(|(_, bit)| Attributes(bit));
    bits.filter_map(|bit| Some((text(bit.get(BIT_NAME)?), bit.get(BIT_VALUE).is_some()))).collect()
}

/// Text that ends with a zero byte.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The link's number of an attribute of 32 bits (`IFLA_MTU`, `IFLA_TXQLEN`), and what sets it.
impl Netlink {
    /// Sets an attribute of 32 bits of a link (`RTM_SETLINK`).
    pub fn set_link_number(&mut self, index: u32, number: u16, value: u32) -> Answer {
        /// `RTM_SETLINK`.
        const SET_LINK: u16 = 19;
        let body = [&link_header(index)[..], &attribute(number, &value.to_ne_bytes())].concat();
        self.plain((Family::Route, SET_LINK, 0), &body, |_| None::<()>).map(drop)
    }

    /// An attribute of 32 bits of a link (`RTM_GETLINK`).
    pub fn link_number(&mut self, index: u32, number: u16) -> Answer<Option<u32>> {
        /// `RTM_GETLINK`.
        const GET_LINK: u16 = 18;
        let read = |reply: &[u8]| after(reply, LINK_BYTES).get(number).and_then(|value| u32_at(value, 0));
        Ok(self.plain((Family::Route, GET_LINK, 0), &link_header(index), read)?.pop())
    }
}

/// Bytes of `struct ifinfomsg`.
const LINK_BYTES: usize = 16;

fn link_header(index: u32) -> [u8; LINK_BYTES] {
    let mut header = [0; LINK_BYTES];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A set of these names; a `+` before one says that it is set.
    fn set(names: &[&str]) -> Vec<u8> {
        let bit = |name: &&str| {
            let plain = name.trim_start_matches('+');
            let value = if plain == *name { vec![] } else { attribute(BIT_VALUE, &[]) };
            let name = attribute(BIT_NAME, &[plain.as_bytes(), &[0]].concat());
            attribute(BIT | NESTED, &[name, value].concat())
        };
        attribute(BITS | NESTED, &names.iter().flat_map(bit).collect::<Vec<_>>())
    }

    #[test]
    fn features_are_what_their_four_sets_say() {
        let reply = [
            attribute(
                FEATURES_HW,
                &set(&["+rx-gro", "+tx-nocache-copy", "+highdma", "rx-lro", "", "netns-local"]),
            ),
            attribute(FEATURES_WANTED, &set(&["rx-gro"])),
            attribute(FEATURES_ACTIVE, &set(&["highdma", "tx-lockless"])),
            attribute(FEATURES_NOCHANGE, &set(&["highdma", "netns-local"])),
        ];
        let found = features(&reply.concat());
        let state = |name: &str| found.get(name).map(|s| (s.active, s.wanted, s.changeable));
        assert_eq!(state("rx-gro"), Some((false, true, true)));
        assert_eq!(state("tx-nocache-copy"), Some((false, false, true)));
        assert_eq!(state("highdma"), Some((true, false, false)));
        assert_eq!(state("tx-lockless"), Some((true, false, false)));
        assert_eq!(state("rx-lro"), Some((false, false, false)), "neither there nor possible");
        assert_eq!((state("netns-local"), state("")), (Some((false, false, false)), None));
    }

    #[test]
    fn the_common_speed_is_of_a_mode_that_both_ends_can() {
        let reply = |ours: &[&str], peer: &[&str]| {
            [attribute(LINK_MODES_OURS, &set(ours)), attribute(LINK_MODES_PEER, &set(peer))].concat()
        };
        // Offered or not, this end can do 1000.
        let ours = ["+10baseT/Half", "+100baseT/Full", "1000baseT/Full", "+Autoneg", "+TP"];
        let fast = ["100baseT/Full", "1000baseT/Full", "10000baseT/Full", "Autoneg", "Pause"];
        assert_eq!(common_speed(&reply(&ours, &fast)), Some(1000));
        assert_eq!(common_speed(&reply(&ours, &["100baseT/Full", "Autoneg"])), Some(100));
        assert_eq!(common_speed(&reply(&ours, &["40000baseCR4/Full", "Autoneg"])), None);
        assert_eq!(common_speed(&attribute(LINK_MODES_OURS, &set(&ours))), None, "the other end is not told");
    }

    /// Written out by hand from `include/uapi/linux/ethtool_netlink.h`: rx 512 of interface 7, and a feature `ab`.
    #[test]
    fn requests_are_those_of_the_kernel_s_header() {
        let rx = request(RINGS.set, 7, &attribute(6, &512u32.to_ne_bytes()));
        let expected: &[u8] = &[16, 1, 0, 0, 12, 0, 1, 128, 8, 0, 1, 0, 7, 0, 0, 0, 8, 0, 6, 0, 0, 2, 0, 0];
        assert_eq!(rx, expected);
        let on = wanted("ab", true);
        let expected: &[u8] =
            &[24, 0, 3, 128, 20, 0, 3, 128, 16, 0, 1, 128, 7, 0, 2, 0, 97, 98, 0, 0, 4, 0, 3, 0];
        assert_eq!(on, expected);
        assert_eq!(wanted("ab", false).len(), on.len() - 4);
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (features(&noise), common_speed(&noise), text(&noise));
        }
    }
}
