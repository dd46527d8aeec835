//! The numbers of generic families by their names (`include/uapi/linux/genetlink.h`).

use std::io;

use netlink_bindings::nlctrl;
use netlink_bindings::traits::NetlinkRequest;

use super::{Attributes, Dump, Family, Netlink, after, u32_at};

/// `struct genlmsghdr`, and the attributes of a family's groups (`include/uapi/linux/genetlink.h`).
const HEADER_BYTES: usize = 4;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// The family that tells about families (`GENL_ID_CTRL`).
const CONTROL: u16 = 16;

impl Netlink {
    /// The number of the generic family of that name.
    ///
    /// # Errors
    /// What the kernel answers; `ENOENT` when it has no such family.
    pub(crate) fn generic_family(&mut self, name: &'static [u8]) -> io::Result<u16> {
        if let Some(number) = self.generic.get(name) {
            return Ok(*number);
        }
        let request = nlctrl::Request::new().op_getfamily_dump();
        let dump = Dump { family: Family::Generic, kind: CONTROL, body: request.payload() };
        let found = self.dump(&dump, |message| family(message, name))?;
        let number = *found.first().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        self.generic.insert(name, number);
        Ok(number)
    }

    /// The number of a group of messages of a generic family.
    ///
    /// # Errors
    /// What the kernel answers; `ENOENT` when there is no such family or group.
    pub(crate) fn generic_group(&mut self, name: &[u8], group: &[u8]) -> io::Result<u32> {
        let request = nlctrl::Request::new().op_getfamily_dump();
        let dump = Dump { family: Family::Generic, kind: CONTROL, body: request.payload() };
        let found = self.dump(&dump, |message| group_of(message, name, group))?;
        found.first().copied().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}

/// The number of a group, if the reply is about the family of that name.
fn group_of(message: &[u8], name: &[u8], group: &[u8]) -> Option<u32> {
    family(message, name)?;
    let groups = Attributes(after(message, HEADER_BYTES).get(CTRL_ATTR_MCAST_GROUPS)?);
    let is_it = |one: &Attributes<'_>| {
        one.get(CTRL_ATTR_MCAST_GRP_NAME).is_some_and(|found| found.strip_suffix(b"\0") == Some(group))
    };
    let found = groups.map(|(_, content)| Attributes(content)).find(is_it)?;
    u32_at(found.get(CTRL_ATTR_MCAST_GRP_ID)?, 0)
}

/// The number of a family, if the reply is about the one of that name.
fn family(message: &[u8], name: &[u8]) -> Option<u16> {
    let about = nlctrl::OpGetfamilyDump::decode_reply(message);
    about.get_family_name().ok().filter(|found| found.to_bytes() == name)?;
    about.get_family_id().ok()
}

#[cfg(test)]
mod tests {
    use super::super::attributes::build::{attribute, join};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_family_is_known_by_its_whole_name() {
        let about =
            |name: &[u8]| join(&[&[1, 2, 0, 0], &attribute(1, &27u16.to_ne_bytes()), &attribute(2, name)]);
        assert_eq!(family(&about(b"netdev\0"), b"netdev"), Some(27));
        assert_eq!(family(&about(b"netdev2\0"), b"netdev"), None);
    }

    #[test]
    fn a_group_is_found_in_its_family() {
        let group = |id: u32, name: &[u8]| join(&[&attribute(2, &id.to_ne_bytes()), &attribute(1, name)]);
        let groups = join(&[&attribute(1, &group(5, b"other\0")), &attribute(2, &group(6, b"monitor\0"))]);
        let family = [attribute(1, &27u16.to_ne_bytes()), attribute(2, b"ethtool\0")].concat();
        let message = join(&[&[1, 2, 0, 0], &family, &attribute(7, &groups)]);
        assert_eq!(group_of(&message, b"ethtool", b"monitor"), Some(6));
        assert_eq!(group_of(&message, b"ethtool", b"none"), None);
        assert_eq!(group_of(&message, b"netdev", b"monitor"), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = group_of(&noise, b"netdev", b"x");
            let _ = family(&noise, b"netdev");
        }
    }
}
