//! Classes from bytes, and from the kernel of a namespace.

use super::*;
use crate::netlink::attributes::build::{attribute, join};
use crate::observe::qdiscs::tests::{
    RATE_AT, STATS_BASIC, STATS_PKT64, STATS_QUEUE, TCA_KIND, TCA_OPTIONS, TCA_STATS2,
};
use proptest::prelude::*;

// include/uapi/linux/pkt_sched.h
const HTB_PARMS: u16 = 1;
const HTB_RATE64: u16 = 6;
/// `struct tc_htb_opt`: two rate specifications of 12 bytes that end with the rate ([`RATE_AT`]), then buffer, cbuffer,
/// quantum, level.
const CEIL_AT: usize = 12 + RATE_AT;
const LEVEL_AT: usize = 36;

/// A message as the kernel builds one.
fn class(handle: u32, parent: u32, level: u32, rate: u32, wide: Option<u64>) -> Vec<u8> {
    let mut parameters = [0; 44];
    parameters[RATE_AT..RATE_AT + 4].copy_from_slice(&rate.to_ne_bytes());
    parameters[CEIL_AT..CEIL_AT + 4].copy_from_slice(&rate.saturating_mul(2).to_ne_bytes());
    parameters[LEVEL_AT..LEVEL_AT + 4].copy_from_slice(&level.to_ne_bytes());
    let mut options = attribute(HTB_PARMS, &parameters);
    options.extend(wide.iter().flat_map(|rate| attribute(HTB_RATE64, &rate.to_ne_bytes())));
    let basic = [&700u64.to_ne_bytes()[..], &7u32.to_ne_bytes(), &[0; 4]].concat();
    let queue = [0u32, 0, 3, 0, 0].map(u32::to_ne_bytes).concat();
    let statistics = join(&[
        &attribute(STATS_BASIC, &basic),
        &attribute(STATS_QUEUE, &queue),
        &attribute(STATS_PKT64, &(1u64 << 33).to_ne_bytes()),
    ]);
    let mut message = at(5, 0, 0).as_slice().to_vec();
    message[8..12].copy_from_slice(&handle.to_ne_bytes());
    message[12..16].copy_from_slice(&parent.to_ne_bytes());
    join(&[
        &message,
        &attribute(TCA_KIND, b"htb\0"),
        &attribute(TCA_OPTIONS, &options),
        &attribute(TCA_STATS2, &statistics),
    ])
}

#[test]
fn a_class_is_read_with_rates_and_counters_of_both_widths() {
    let message = class(0x1_000a, 0x1_ffff, 0, 125_000, None);
    let expected = Class {
        handle: 0x1_000a,
        parent: 0x1_ffff,
        level: 0,
        min_bps: 1_000_000,
        max_bps: 2_000_000,
        frames: 1 << 33,
        bytes: 700,
        dropped: 3,
    };
    assert_eq!(parse_class(&message, 5), Some(expected));
    assert_eq!(expected.id(), 10);
    assert_eq!(parse_class(&message, 6), None, "of another interface");
    let wide = parse_class(&class(1, 0, 0, u32::MAX, Some(12_500_000_000)), 5).unwrap();
    assert_eq!(wide.min_bps, 100_000_000_000);
}

#[test]
fn queues_are_the_leaves_and_the_speed_is_the_ceiling_of_the_only_top() {
    let read = |classes: &[Vec<u8>]| {
        let classes: Vec<Class> = classes.iter().filter_map(|one| parse_class(one, 5)).collect();
        htb(HANDLE, &classes)
    };
    let top = class(WHOLE, TC_ROOT, 7, 1000, None);
    let [ten, others] = [HANDLE | 10, OTHERS].map(|handle| class(handle, WHOLE, 0, 500, None));
    let found = read(&[others.clone(), ten.clone(), top.clone()]);
    assert_eq!(found.queues.iter().map(Class::id).collect::<Vec<_>>(), [10]);
    assert_eq!(found.speed_bps, Some(16_000));
    assert_eq!(read(&[top.clone(), top]).speed_bps, None, "two tops say nothing");
    assert_eq!(read(&[class(0x1_0001, TC_ROOT, 0, 1, None)]).speed_bps, None, "nor does a leaf");
}

#[test]
fn a_burst_is_four_milliseconds_of_the_rate() {
    let parameters = parameters(1_250_000, 12_500_000_000);
    // 5000 + 1600 bytes at 1.25 MB/s are 5.28 ms.
    assert_eq!(parameters.buffer, 82_500);
    assert_eq!((parameters.rate.rate, parameters.ceil.rate), (1_250_000, u32::MAX));
    assert_eq!(parameters.rate.linklayer, 1);
}

#[test]
fn the_root_is_known_by_its_parent() {
    let mut message = at(5, 0, 0).as_slice().to_vec();
    message[8..12].copy_from_slice(&HANDLE.to_ne_bytes());
    message[12..16].copy_from_slice(&TC_ROOT.to_ne_bytes());
    let whole = join(&[&message, &attribute(TCA_KIND, b"htb\0")]);
    assert_eq!(parse_root(&whole, 5), Some(("htb".into(), HANDLE)));
    assert_eq!(parse_root(&whole, 4), None);
    message[12] ^= 1;
    assert_eq!(parse_root(&join(&[&message, &attribute(TCA_KIND, b"htb\0")]), 5), None);
}

proptest! {
    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..120, byte: u8) {
        let _ = (parse_class(&noise, 5), parse_root(&noise, 5));
        let mut message = class(1, 2, 0, 3, Some(4));
        if let Some(place) = message.get_mut(at) {
            *place = byte;
        }
        let _ = (parse_class(&message, 5), parse_root(&message, 5));
    }
}
