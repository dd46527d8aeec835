//! NAPI instances and queues of an interface: `NETDEV_CMD_NAPI_GET` and `NETDEV_CMD_QUEUE_GET` of the generic netlink family
//! `netdev` (Linux 6.8).
//!
//! **What.** The number of each instance, its interrupt and its thread where there are some, and the queues that it polls.
//! **What is not there.** Instances that drivers have for what was sent alone have no number and are not listed; an interrupt is
//! told only by drivers that tell the kernel.
//!
//! Numbers are those of `include/uapi/linux/netdev.h`.

use netlink_bindings::netdev;
use netlink_bindings::traits::NetlinkRequest;
use record::llstat::{Napi, Pairing};

use crate::netlink::{Dump, Family, Netlink, after, u32_at};

/// `struct genlmsghdr`: command, version, two bytes for nothing.
const GENERIC_HEADER: usize = 4;

/// Lists the instances of an interface of the calling thread's namespace, in the order of their numbers.
///
/// # Errors
/// Why it cannot be told.
pub fn list(interface: u32) -> Result<Vec<Napi>, String> {
    let mut netlink = Netlink::open();
    let family = netlink.generic_family(b"netdev").map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => "this kernel does not tell its NAPI instances (Linux 6.8 does)".to_owned(),
        _ => format!("generic netlink cannot be asked: {error}"),
    })?;
    let refused = |error: std::io::Error| format!("NAPI instances cannot be listed: {error}");
    let mut request = netdev::Request::new().op_napi_get_dump();
    request.encode().push_ifindex(interface);
    let dump = Dump { family: Family::Generic, kind: family, body: request.payload() };
    let mut found = netlink.dump(&dump, |message| parse_napi(message, interface)).map_err(refused)?;
    let mut request = netdev::Request::new().op_queue_get_dump();
    request.encode().push_ifindex(interface);
    let dump = Dump { family: Family::Generic, kind: family, body: request.payload() };
    let queues = netlink.dump(&dump, |message| parse_queue(message, interface)).map_err(refused)?;
    for (napi, is_transmit, queue) in queues {
        if let Some(one) = found.iter_mut().find(|one| one.id == napi) {
            if is_transmit { &mut one.transmit_queues } else { &mut one.receive_queues }.push(queue);
        }
    }
    found.sort_by_key(|one| one.id);
    Ok(found)
}

fn parse_napi(message: &[u8], interface: u32) -> Option<Napi> {
    let attributes = after(message, GENERIC_HEADER);
    let number = |wanted| attributes.get(wanted).and_then(|content| u32_at(content, 0));
    (number(1)? == interface).then_some(())?;
    let irq = number(3);
    let paired_by = irq.map(|_| Pairing::Kernel);
    Some(Napi { id: number(2)?, irq, thread: number(4), paired_by, ..Napi::default() })
}

/// The instance that polls it, whether it is a transmit queue, its number.
fn parse_queue(message: &[u8], interface: u32) -> Option<(u32, bool, u32)> {
    let attributes = after(message, GENERIC_HEADER);
    let number = |wanted| attributes.get(wanted).and_then(|content| u32_at(content, 0));
    (number(2)? == interface).then_some(())?;
    Some((number(4)?, number(3)? == 1, number(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    fn reply(words: &[(u16, u32)]) -> Vec<u8> {
        let words: Vec<Vec<u8>> =
            words.iter().map(|(number, value)| attribute(*number, &value.to_ne_bytes())).collect();
        join(&[&[11, 1, 0, 0], &words.concat()])
    }

    #[test]
    fn instances_and_queues_are_read_and_what_is_not_told_is_missing() {
        let napi = parse_napi(&reply(&[(1, 4), (2, 8193), (3, 61)]), 4).unwrap();
        assert_eq!(
            (napi.id, napi.irq, napi.thread, napi.paired_by),
            (8193, Some(61), None, Some(Pairing::Kernel))
        );
        assert_eq!(parse_napi(&reply(&[(1, 4), (2, 8193)]), 4).unwrap().irq, None);
        assert!(parse_napi(&reply(&[(1, 5), (2, 8193)]), 4).is_none());
        assert_eq!(parse_queue(&reply(&[(1, 2), (2, 4), (3, 1), (4, 8193)]), 4), Some((8193, true, 2)));
        assert_eq!(parse_queue(&reply(&[(1, 2), (2, 4), (3, 0)]), 4), None, "a queue that nobody polls");
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (parse_napi(&noise, 1), parse_queue(&noise, 1));
        }
    }

    #[test]
    fn loopback_has_no_instance() {
        match list(1) {
            Ok(found) => assert_eq!(found, []),
            Err(why) => println!("SKIP: NAPI instances: {why}"),
        }
    }
}
