//! What devlink tells of a device: errors that its driver reported, and the value of a parameter (Documentation/networking/devlink).
//!
//! **What.** Devices are known by bus and address, e.g. `pci` and `0000:01:00.0`. **What is not there.** Only drivers with devlink answer (ice, mlx5, bnxt,
//! …); igb, virtio_net and all that have no device do not, and that is told apart from an answer of none. **Price.** One dump over all devices for each
//! question: older kernels do not choose.
//!
//! Numbers are those of `include/uapi/linux/devlink.h`.

use std::io;

use crate::netlink::attributes::attribute;
use crate::netlink::{Attributes, Dump, Family, Netlink, after, u16_at, u32_at, u64_at};

/// `struct genlmsghdr`: command, version, two bytes for nothing.
const GENERIC_HEADER: usize = 4;
const VERSION: u8 = 1;

const PARAM_GET: u8 = 38;
const HEALTH_REPORTER_GET: u8 = 52;

const BUS_NAME: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const PARAM: u16 = 80;
const PARAM_NAME: u16 = 81;
const PARAM_VALUES_LIST: u16 = 84;
const PARAM_VALUE_DATA: u16 = 86;
const HEALTH_REPORTER: u16 = 114;
const HEALTH_REPORTER_NAME: u16 = 115;
const HEALTH_REPORTER_ERR_COUNT: u16 = 117;

/// A device as devlink names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevlinkDevice {
    /// Its bus, e.g. `pci`.
    pub bus: String,
    /// Where it is on the bus.
    pub address: String,
}

impl DevlinkDevice {
    /// Errors since the driver was loaded by reporter, those of its ports with the port; none where nobody reports.
    ///
    /// # Errors
    /// What the kernel answers; `ENOENT` when it has no devlink.
    pub fn health_errors(&self, netlink: &mut Netlink) -> io::Result<Vec<(String, u64)>> {
        self.dump(netlink, HEALTH_REPORTER_GET, reporter)
    }

    /// A parameter of the device, or none if it has none of that name.
    ///
    /// # Errors
    /// What the kernel answers; `ENOENT` when it has no devlink.
    pub fn parameter(&self, netlink: &mut Netlink, name: &str) -> io::Result<Option<u64>> {
        let found = self.dump(netlink, PARAM_GET, |message| parameter(message, name))?;
        Ok(found.first().copied())
    }

    fn dump<T>(
        &self,
        netlink: &mut Netlink,
        command: u8,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let family = netlink.generic_family(b"devlink")?;
        let text = |number, text: &str| attribute(number, &[text.as_bytes(), b"\0"].concat());
        let names = [text(BUS_NAME, &self.bus), text(DEV_NAME, &self.address)].concat();
        let body = [&[command, VERSION, 0, 0][..], &names].concat();
        let dump = Dump { family: Family::Generic, kind: family, body: &body };
        let told = netlink.dump(&dump, |message| {
            let attributes = after(message, GENERIC_HEADER);
            self.is_meant(&attributes).then(|| read(attributes)).flatten()
        });
        match told {
            // Kernels that choose (Linux 6.5) say so of a device whose driver has no devlink.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(vec![]),
            told => told,
        }
    }

    fn is_meant(&self, attributes: &Attributes<'_>) -> bool {
        words(attributes, BUS_NAME) == Some(&self.bus) && words(attributes, DEV_NAME) == Some(&self.address)
    }
}

/// A text, which ends with a zero.
fn words<'a>(attributes: &Attributes<'a>, number: u16) -> Option<&'a str> {
    std::str::from_utf8(attributes.get(number)?.strip_suffix(b"\0")?).ok()
}

/// A reporter, and how many errors it reported.
fn reporter(attributes: Attributes<'_>) -> Option<(String, u64)> {
    let about = Attributes(attributes.get(HEALTH_REPORTER)?);
    let name = words(&about, HEALTH_REPORTER_NAME)?;
    let port = attributes.get(PORT_INDEX).and_then(|index| u32_at(index, 0));
    let name = port.map_or_else(|| name.to_owned(), |port| format!("{name} of port {port}"));
    Some((name, u64_at(about.get(HEALTH_REPORTER_ERR_COUNT)?, 0)?))
}

/// The first value of the parameter of that name.
fn parameter(attributes: Attributes<'_>, name: &str) -> Option<u64> {
    let about = Attributes(attributes.get(PARAM)?);
    (words(&about, PARAM_NAME)? == name).then_some(())?;
    let (_, value) = Attributes(about.get(PARAM_VALUES_LIST)?).next()?;
    let data = Attributes(value).get(PARAM_VALUE_DATA)?;
    match data.len() {
        1 => data.first().copied().map(u64::from),
        2 => u16_at(data, 0).map(u64::from),
        4 => u32_at(data, 0).map(u64::from),
        _ => u64_at(data, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::join;
    use proptest::prelude::*;

    fn device() -> DevlinkDevice {
        DevlinkDevice { bus: "pci".into(), address: "0000:01:00.0".into() }
    }

    /// The attributes of a message as the kernel builds it.
    fn of(address: &[u8], more: &[&[u8]]) -> Vec<u8> {
        join(&[&attribute(BUS_NAME, b"pci\0"), &attribute(DEV_NAME, address), &more.concat()])
    }

    #[test]
    fn errors_are_told_by_reporter_and_port() {
        let about = join(&[
            &attribute(HEALTH_REPORTER_NAME, b"tx\0"),
            &attribute(HEALTH_REPORTER_ERR_COUNT, &7u64.to_ne_bytes()),
        ]);
        let reports = attribute(HEALTH_REPORTER | 0x8000, &about);
        assert_eq!(reporter(Attributes(&of(b"0000:01:00.0\0", &[&reports]))), Some(("tx".into(), 7)));
        let port = attribute(PORT_INDEX, &2u32.to_ne_bytes());
        let told = reporter(Attributes(&of(b"0000:01:00.0\0", &[&port, &reports])));
        assert_eq!(told, Some(("tx of port 2".into(), 7)));
    }

    #[test]
    fn a_parameter_is_found_by_name_and_device() {
        let value = attribute(85, &join(&[&attribute(PARAM_VALUE_DATA, &[9]), &attribute(87, &[2])]));
        let about = join(&[&attribute(PARAM_NAME, b"tx_layers\0"), &attribute(PARAM_VALUES_LIST, &value)]);
        let message = of(b"0000:01:00.0\0", &[&attribute(PARAM, &about)]);
        assert_eq!(parameter(Attributes(&message), "tx_layers"), Some(9));
        assert_eq!(parameter(Attributes(&message), "other"), None);
        assert!(device().is_meant(&Attributes(&message)));
        assert!(!device().is_meant(&Attributes(&of(b"0000:01:00.1\0", &[]))));
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..160)) {
            let attributes = Attributes(&noise);
            let _ = (reporter(attributes.clone()), parameter(attributes.clone(), "x"), device().is_meant(&attributes));
        }
    }

    #[test]
    fn a_device_that_nobody_knows_reports_nothing() {
        match device().health_errors(&mut Netlink::open()) {
            Ok(errors) => assert_eq!(errors, []),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
        }
    }
}
