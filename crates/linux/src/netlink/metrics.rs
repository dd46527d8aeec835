//! What a route says to the transports that use it: initial windows, segment size, round-trip time, congestion control.
//!
//! **What.** [`Netlink::route_metric`] reads one metric (`RTAX_…`) of a route of the main table, [`Netlink::set_route_metric`] changes it and nothing else.
//!
//! **Why bytes.** The kernel knows no change of a metric: a route is replaced by a whole one. So everything that it told of the route is told it
//! again, byte for byte, but for the metrics.
//!
//! **Price.** Two routes to the same prefix in one table are told apart by nothing that a name could say: they are left alone.

use std::net::IpAddr;

use super::address::Prefix;
use super::attributes::{Attributes, after, attribute, u32_at};
use super::route::MAIN_TABLE;
use super::{Answer, Dump, Family, Netlink, Refusal};

/// `RTM_NEWROUTE`, `RTM_GETROUTE`.
const NEW: u16 = 24;
const GET: u16 = 26;
/// `NLM_F_REPLACE`.
const REPLACE: u16 = 0x100;
/// Bytes of `struct rtmsg`; where it has the family, the length of the prefix and the flags.
const HEADER_BYTES: usize = 12;
const LENGTH_AT: usize = 1;
const FLAGS_AT: usize = 8;
/// `RTNH_F_ONLINK`, the only flag that a request may have.
const ON_LINK: u32 = 4;
/// `RTA_DST`, `RTA_METRICS`, `RTA_CACHEINFO`, `RTA_TABLE`.
const DESTINATION: u16 = 1;
const METRICS: u16 = 8;
const CACHE: u16 = 12;
const TABLE: u16 = 15;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;

impl Netlink {
    /// A metric of the route to a prefix, as bytes; none where the route does not say.
    pub fn route_metric(&mut self, to: Prefix, number: u16) -> Answer<Option<Vec<u8>>> {
        Ok(metric(&self.route_to(to)?, number).map(<[u8]>::to_vec))
    }

    /// Sets a metric of the route to a prefix, or takes it away.
    pub fn set_route_metric(&mut self, to: Prefix, number: u16, value: Option<&[u8]>) -> Answer {
        let body = with_metric(&self.route_to(to)?, number, value);
        self.plain((Family::Route, NEW, REPLACE), &body, |_| None::<()>).map(drop)
    }

    /// What the kernel tells of the one route to a prefix.
    fn route_to(&mut self, to: Prefix) -> Answer<Vec<u8>> {
        let family = if to.address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut body = [0; HEADER_BYTES];
        body[0] = family as u8;
        let dump = Dump { family: Family::Route, kind: GET, body: &body };
        let is_it = |message: &[u8]| leads_to(message, to);
        let mut found = self.dump(&dump, |message| is_it(message).then(|| message.to_vec()))?;
        let other = |errno, text: &str| Refusal { errno: Some(errno), text: text.into() };
        match found.len() {
            0 => Err(other(libc::ESRCH, "the main table has no route to it")),
            1 => Ok(found.remove(0)),
            _ => Err(other(libc::EEXIST, "the main table has several routes to it")),
        }
    }
}

fn leads_to(message: &[u8], to: Prefix) -> bool {
    let attributes = after(message, HEADER_BYTES);
    let table = attributes.get(TABLE).and_then(|bytes| u32_at(bytes, 0));
    let address = match to.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let zero = vec![0; address.len()];
    table == Some(MAIN_TABLE)
        && message.get(LENGTH_AT) == Some(&to.length)
        && attributes.get(DESTINATION).unwrap_or(&zero) == address
}

fn metric(route: &[u8], number: u16) -> Option<&[u8]> {
    Attributes(after(route, HEADER_BYTES).get(METRICS)?).get(number)
}

/// The request that makes the route anew with another metric.
fn with_metric(route: &[u8], number: u16, value: Option<&[u8]>) -> Vec<u8> {
    let mut body = route.get(..HEADER_BYTES).unwrap_or_default().to_vec();
    let flags = u32_at(&body, FLAGS_AT).unwrap_or(0) & ON_LINK;
    body.splice(FLAGS_AT.., flags.to_ne_bytes());
    let attributes = after(route, HEADER_BYTES);
    let old = Attributes(attributes.get(METRICS).unwrap_or_default());
    let kept = old.filter(|(known, _)| *known != number).map(|(known, value)| attribute(known, value));
    let metrics: Vec<u8> = kept.chain(value.map(|value| attribute(number, value))).flatten().collect();
    let others = attributes.filter(|(known, _)| ![METRICS, CACHE].contains(known));
    body.extend(others.flat_map(|(known, value)| attribute(known, value)));
    if !metrics.is_empty() {
        body.extend(attribute(METRICS | NESTED, &metrics));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_metric_and_what_the_kernel_alone_knows_change() {
        let window = attribute(11, &20u32.to_ne_bytes());
        let mss = attribute(8, &1400u32.to_ne_bytes());
        let head: [u8; 12] = [2, 24, 0, 0, 254, 3, 0, 1, 0x14, 0, 0, 0];
        let before = attribute(TABLE, &254u32.to_ne_bytes());
        let gateway = attribute(5, &[10, 0, 0, 1]);
        let metrics = attribute(METRICS | NESTED, &[mss.clone(), window.clone()].concat());
        let route = [&head[..], &before, &metrics, &gateway, &attribute(CACHE, &[0; 32])].concat();
        assert_eq!(metric(&route, 11), Some(&20u32.to_ne_bytes()[..]));
        let clean: [u8; 12] = [2, 24, 0, 0, 254, 3, 0, 1, 4, 0, 0, 0];
        let gone = with_metric(&route, 11, None);
        let rest = attribute(METRICS | NESTED, &mss);
        assert_eq!(gone, [&clean[..], &before, &gateway, &rest].concat());
        assert_eq!(
            with_metric(&with_metric(&gone, 8, None), 8, None),
            [&clean[..], &before, &gateway].concat()
        );
        assert_eq!(metric(&with_metric(&gone, 11, Some(&20u32.to_ne_bytes())), 11), metric(&route, 11));
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (metric(&noise, 8), with_metric(&noise, 8, None));
        }
    }
}
