//! Queueing disciplines: `RTM_GETQDISC`.
//!
//! `TCA_STATS2` gives 64-bit counts since Linux 5.5 (`TCA_STATS_PKT64`); the 32-bit ones of older kernels wrap after
//! minutes at a million frames a second. `noqueue` has no counters, and `mq` repeats the sum of its children.

use std::collections::BTreeMap;

use record::snapshot::QdiscSample;

use super::links::name_of;
use crate::netlink::{Attributes, Dump, Family, after, text, u32_at, u64_at};

/// `RTM_GETQDISC` with `struct tcmsg`, all zero: every interface.
pub const DUMP: Dump<'static> = Dump { family: Family::Route, kind: 38, body: &[0; HEADER_BYTES] };

/// Bytes of `struct tcmsg`.
pub(crate) const HEADER_BYTES: usize = 20;

// include/uapi/linux/rtnetlink.h, gen_stats.h, pkt_sched.h; a class has the same attributes (`crate::tune::queues`).
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
pub(crate) const TCA_STATS2: u16 = 7;
pub(crate) const STATS_BASIC: u16 = 1;
pub(crate) const STATS_QUEUE: u16 = 3;
pub(crate) const STATS_PKT64: u16 = 8;
const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
/// `struct tc_tbf_qopt`: two rate specifications of twelve bytes, then limit, buffer, mtu.
const TBF_LIMIT_AT: usize = 24;
/// `struct tc_ratespec` ends with the rate.
pub(crate) const RATE_AT: usize = 8;

/// Decodes one reply; `names` are the interfaces by index.
pub fn parse(message: &[u8], names: &BTreeMap<u32, String>) -> Option<QdiscSample> {
    let index = u32_at(message, 4)?;
    let mut qdisc = QdiscSample {
        interface: name_of(index, names),
        handle: u32_at(message, 8)?,
        parent: u32_at(message, 12)?,
        ..QdiscSample::default()
    };
    let mut options: &[u8] = &[];
    for (number, content) in after(message, HEADER_BYTES) {
        match number {
            TCA_KIND => qdisc.kind = text(content),
            TCA_OPTIONS => options = content,
            TCA_STATS2 => statistics(content, &mut qdisc),
            _ => {}
        }
    }
    settings(options, &mut qdisc);
    (!qdisc.kind.is_empty()).then_some(qdisc)
}

/// What `TCA_STATS2` of a qdisc or a class tells.
pub(crate) fn statistics(content: &[u8], qdisc: &mut QdiscSample) {
    let mut wide = None;
    for (number, content) in Attributes(content) {
        let word = |i: usize| u64::from(u32_at(content, i * 4).unwrap_or(0));
        match number {
            STATS_BASIC => (qdisc.bytes, qdisc.packets) = (u64_at(content, 0).unwrap_or(0), word(2)),
            STATS_PKT64 => wide = u64_at(content, 0),
            STATS_QUEUE => {
                (qdisc.qlen, qdisc.backlog_bytes, qdisc.drops) = (word(0), word(1), word(2));
                (qdisc.requeues, qdisc.overlimits) = (word(3), word(4));
            }
            _ => {}
        }
    }
    qdisc.packets = wide.unwrap_or(qdisc.packets);
}

fn settings(options: &[u8], qdisc: &mut QdiscSample) {
    match qdisc.kind.as_str() {
        "tbf" => {
            let options = Attributes(options);
            let Some(parameters) = options.get(TBF_PARMS) else { return };
            let narrow = u32_at(parameters, RATE_AT).map(u64::from);
            qdisc.rate_bytes_per_second =
                options.get(TBF_RATE64).and_then(|content| u64_at(content, 0)).or(narrow);
            qdisc.limit = u32_at(parameters, TBF_LIMIT_AT).map(u64::from);
        }
        // `struct tc_fifo_qopt` is the limit alone, in frames or bytes.
        "pfifo" | "bfifo" | "pfifo_head_drop" => qdisc.limit = u32_at(options, 0).map(u64::from),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    fn names() -> BTreeMap<u32, String> {
        BTreeMap::from([(2, "eth0".to_owned())])
    }

    fn sample(wide: bool) -> Vec<u8> {
        let mut header = [0u8; 20];
        header[4..8].copy_from_slice(&2u32.to_ne_bytes());
        header[8..12].copy_from_slice(&0x8001_0000u32.to_ne_bytes());
        header[12..16].copy_from_slice(&record::snapshot::TC_ROOT.to_ne_bytes());
        let mut parameters = [0u8; 36];
        parameters[8..12].copy_from_slice(&125_000u32.to_ne_bytes());
        parameters[24..28].copy_from_slice(&3000u32.to_ne_bytes());
        let basic = join(&[&5000u64.to_ne_bytes(), &10u32.to_ne_bytes(), &[0; 4]]);
        let queue: Vec<u8> = [1u32, 1514, 7, 2, 9].into_iter().flat_map(u32::to_ne_bytes).collect();
        let mut statistics = join(&[&attribute(STATS_BASIC, &basic), &attribute(STATS_QUEUE, &queue)]);
        if wide {
            statistics.extend(attribute(STATS_PKT64, &(1u64 << 33).to_ne_bytes()));
        }
        join(&[
            &header,
            &attribute(TCA_KIND, b"tbf\0"),
            &attribute(TCA_OPTIONS, &attribute(TBF_PARMS, &parameters)),
            &attribute(TCA_STATS2, &statistics),
        ])
    }

    #[test]
    fn a_shaper_is_read_with_its_counts_rate_and_limit() {
        let qdisc = parse(&sample(false), &names()).expect("well formed");
        assert_eq!(
            (qdisc.interface.as_str(), qdisc.kind.as_str(), qdisc.handle),
            ("eth0", "tbf", 0x8001_0000)
        );
        assert_eq!((qdisc.packets, qdisc.bytes, qdisc.drops, qdisc.qlen), (10, 5000, 7, 1));
        assert_eq!((qdisc.backlog_bytes, qdisc.requeues, qdisc.overlimits), (1514, 2, 9));
        assert_eq!((qdisc.rate_bytes_per_second, qdisc.limit), (Some(125_000), Some(3000)));
        assert_eq!(parse(&sample(true), &names()).map(|qdisc| qdisc.packets), Some(1 << 33), "64 bits win");
    }

    proptest! {
        #[test]
        fn damage_never_panics(cut in 0usize..300, at in 0usize..300, byte: u8) {
            let mut bytes = sample(true);
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(cut);
            let _ = parse(&bytes, &names());
        }
    }
}
