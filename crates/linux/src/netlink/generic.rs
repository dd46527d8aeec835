//! The numbers of generic families by their names (`include/uapi/linux/genetlink.h`).

use std::io;

use netlink_bindings::nlctrl;
use netlink_bindings::traits::NetlinkRequest;

use super::{Dump, Family, Netlink};

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

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = family(&noise, b"netdev");
        }
    }
}
