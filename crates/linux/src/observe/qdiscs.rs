//! Queueing disciplines: `RTM_GETQDISC`.
//!
//! `TCA_STATS2` gives 64-bit counts since Linux 5.5 (`TCA_STATS_PKT64`); the 32-bit ones of older kernels wrap after
//! minutes at a million frames a second. `noqueue` has no counters, and `mq` repeats the sum of its children.

use std::collections::BTreeMap;

use netlink_bindings::tc::{self, IterableTcaStatsAttrs, OptionsMsg};
use netlink_bindings::traits::NetlinkRequest;
use record::snapshot::QdiscSample;

use super::links::name_of;
use crate::netlink::{Dump, Family};

/// `RTM_GETQDISC` with `struct tcmsg`, all zero: every interface.
pub const DUMP: Dump<'static> = Dump { family: Family::Route, kind: 38, body: &[0; HEADER_BYTES] };

/// Bytes of `struct tcmsg`.
const HEADER_BYTES: usize = 20;

/// Decodes one reply; `names` are the interfaces by index.
pub fn parse(message: &[u8], names: &BTreeMap<u32, String>) -> Option<QdiscSample> {
    let (header, attributes) = tc::OpGetqdiscDump::decode_reply(message);
    let mut qdisc = QdiscSample {
        interface: name_of(header.ifindex as u32, names),
        kind: attributes.get_kind().ok()?.to_string_lossy().into_owned(),
        handle: header.handle,
        parent: header.parent,
        ..QdiscSample::default()
    };
    if let Ok(counted) = attributes.get_stats2() {
        statistics(&counted, &mut qdisc);
    }
    match attributes.get_options() {
        Ok(OptionsMsg::Tbf(options)) => {
            if let Ok(parameters) = options.get_parms() {
                let rate = options.get_rate64().unwrap_or(parameters.rate.rate.into());
                (qdisc.rate_bytes_per_second, qdisc.limit) = (Some(rate), Some(parameters.limit.into()));
            }
        }
        // The limit alone, in frames or bytes.
        Ok(OptionsMsg::Pfifo(fifo) | OptionsMsg::Bfifo(fifo) | OptionsMsg::PfifoHeadDrop(fifo)) => {
            qdisc.limit = Some(fifo.limit.into());
        }
        Ok(OptionsMsg::Netem(options, _)) => qdisc.limit = Some(options.limit.into()),
        _ => {}
    }
    (!qdisc.kind.is_empty()).then_some(qdisc)
}

fn statistics(counted: &IterableTcaStatsAttrs<'_>, qdisc: &mut QdiscSample) {
    let basic = counted.get_basic().unwrap_or_default();
    let queue = counted.get_queue().unwrap_or_default();
    qdisc.bytes = basic.bytes;
    qdisc.packets = counted.get_pkt64().unwrap_or(basic.packets.into());
    (qdisc.qlen, qdisc.backlog_bytes) = (queue.qlen.into(), queue.backlog.into());
    (qdisc.drops, qdisc.requeues) = (queue.drops.into(), queue.requeues.into());
    qdisc.overlimits = queue.overlimits.into();
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    // include/uapi/linux/rtnetlink.h, gen_stats.h, pkt_sched.h; a class has the same attributes (`crate::tune::queues`).
    pub(crate) const TCA_KIND: u16 = 1;
    pub(crate) const TCA_OPTIONS: u16 = 2;
    pub(crate) const TCA_STATS2: u16 = 7;
    pub(crate) const STATS_BASIC: u16 = 1;
    pub(crate) const STATS_QUEUE: u16 = 3;
    pub(crate) const STATS_PKT64: u16 = 8;
    const TBF_PARMS: u16 = 1;
    /// `struct tc_ratespec` ends with the rate.
    pub(crate) const RATE_AT: usize = 8;

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
