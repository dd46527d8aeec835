//! Addresses with the lengths of their networks' prefixes (RFC 4632 section 3.1, RFC 4291 section 2.3): read, written, and compared.

use std::fmt;
use std::net::IpAddr;

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address; of a route, the network.
    pub address: IpAddr,
    /// Bits that name the network.
    pub length: u8,
}

impl Prefix {
    /// From `ADDRESS/LENGTH`; none where it is not that.
    pub fn parse(text: &str) -> Option<Prefix> {
        let (address, length) = text.split_once('/')?;
        let prefix = Prefix { address: address.parse().ok()?, length: length.parse().ok()? };
        (prefix.length <= Prefix::host(prefix.address).length && !text.contains('+')).then_some(prefix)
    }

    /// The network that has this address alone.
    pub fn host(address: IpAddr) -> Prefix {
        Prefix { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The address with all bits after the prefix cleared.
    pub fn network(self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
        }
    }

    /// The version of IP: 4 or 6.
    pub fn version(self) -> u8 {
        if self.address.is_ipv4() { 4 } else { 6 }
    }

    /// The network itself, without the host's part.
    pub fn whole(self) -> Prefix {
        Prefix { address: self.network(), ..self }
    }

    /// True when the address lies in this network (and is of the same family).
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Prefix { address, ..self }.network() == self.network()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_an_address_and_a_length_that_it_can_have() {
        for text in ["10.0.0.1/24", "0.0.0.0/0", "192.0.2.1/32", "fd00::1/64", "::/0", "::1/128"] {
            assert_eq!(Prefix::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1/",
            "10.0.0.1/33",
            "10.0.0.1/+8",
            "fd00::1/129",
            "10.0.0/8",
            "a/8",
            "1.2.3.4/8/8",
        ] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        let holds =
            |prefix: &str, address: &str| Prefix::parse(prefix).unwrap().contains(address.parse().unwrap());
        assert!(holds("10.1.2.3/16", "10.1.255.255") && !holds("10.1.2.3/16", "10.2.0.0"));
        assert!(holds("0.0.0.0/0", "255.1.1.1") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00:1::/32", "fd00:1:ffff::1") && !holds("fd00:1::/32", "fd00:2::1"));
        assert!(holds("::1/128", "::1") && !holds("::1/128", "::2"));
        assert_eq!(Prefix::parse("10.1.2.3/16").unwrap().whole().to_string(), "10.1.0.0/16");
        assert_eq!(Prefix::host("fd00::1".parse().unwrap()).to_string(), "fd00::1/128");
    }
}
