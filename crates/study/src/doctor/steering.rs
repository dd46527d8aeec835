//! Rules about queues, steering and rings (RSS-01 … RNG-05).

use super::look::{
    Look, Missing, SATURATED, becomes, changed, count, cpus_of_list, cpus_of_mask, most, percent,
    ring_time_us, uneven, when,
};
use super::{Advice, At, DoctorRule};

/// CPUs that are near the card.
fn local(look: &Look<'_>) -> Result<f64, Missing> {
    Ok(cpus_of_list(&look.text("local_cpus")?).len() as f64)
}

/// The largest part of a CPU that soft interrupts take.
fn softirq(look: &Look<'_>) -> Result<f64, Missing> {
    Ok(most(&look.shares("cpu.softirq", "cpu.total")?).1)
}

/// What a full ring wants that is as long as the driver can, or that no driver tells.
const NO_LONGER_RING: Advice =
    Advice::Say("less at a time: pacing (fq), byte queue limits; or a faster link");

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "RSS-01",
        goals: "TCR",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["channels.combined", "channels.combined-max", "local_cpus", "cpu.softirq", "cpu.total"],
        condition: "fewer queues than local CPUs and the card allow, and a CPU over 90 % in soft interrupts",
        meaning: "too few queues",
        advice: Advice::Knob("channels.combined", "NEW"),
        effect: "frame rate times the queues",
        risk: "the link flaps; i40e may panic unless it is down",
        source: "kernel, networking/scaling.rst; i40e README",
        look: |look| {
            let queues = look.number("channels.combined")?;
            let could = look.number("channels.combined-max")?.min(local(look)?);
            let busy = softirq(look)?;
            let evidence = format!(
                "{queues} of {could} possible queues, the busiest CPU spends {} in soft interrupts",
                percent(busy)
            );
            becomes(queues < could && busy > SATURATED, 1.0 - queues / could.max(1.0), evidence, could)
        },
    },
    DoctorRule {
        id: "RSS-02",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["channels.combined", "local_cpus", "irq.count", "stats.rx_packets"],
        condition: "more queues than local CPUs, many interrupts and fewer than 8 frames for each",
        meaning: "too many queues: frames come in small batches",
        advice: Advice::Knob("channels.combined", "NEW"),
        effect: "less CPU time",
        risk: "hot spots; the link flaps",
        source: "kernel, networking/scaling.rst: the smallest number of queues without overflow",
        look: |look| {
            let (queues, cpus) = (look.number("channels.combined")?, local(look)?);
            let per_s = look.per_s("irq.count")?;
            let frames = look.moved("stats.rx_packets")? / look.moved("irq.count")?.max(1.0);
            let evidence = format!(
                "{queues} queues for {cpus} local CPUs, {} interrupts/s, {frames:.1} frames for each",
                count(per_s)
            );
            becomes(queues > cpus && per_s > 20_000.0 && frames < 8.0, 0.1, evidence, cpus.max(1.0))
        },
    },
    DoctorRule {
        id: "RSS-03",
        goals: "TC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["queue.rx_packets", "flows.active"],
        condition: "with 100 flows and more one queue gets over twice the mean",
        meaning: "the hash looks at too few fields, or its table is uneven",
        advice: Advice::Run(
            "ethtool -N IF rx-flow-hash udp4 sdfn; ethtool -X IF equal NEW",
            "ethtool -N IF rx-flow-hash udp4 sd; ethtool -X IF default",
        ),
        effect: "even queues",
        risk: "fragments of UDP go another way: reordering",
        source: "Cloudflare; Suricata",
        look: |look| {
            let (queues, flows) = (look.moves("queue.rx_packets")?, look.number("flows.active")?);
            let ((queue, frames), ratio) = (most(&queues), uneven(&queues));
            let evidence =
                format!("{queue} got {} frames, {ratio:.1} times the mean, of {flows} flows", count(frames));
            let loss = 1.0 - 1.0 / ratio.max(1.0);
            becomes(ratio > 2.0 && flows >= 100.0, loss, evidence, queues.len())
        },
    },
    DoctorRule {
        id: "RSS-04",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["flows.active", "channels.combined"],
        condition: "traffic of fewer flows than four for each queue",
        meaning: "luck of the hash decides the result",
        advice: Advice::Say(
            "use 16 flows for each queue, or pin them with ntuple rules; say how many there were",
        ),
        effect: "",
        risk: "",
        source: "arithmetic: balls in bins",
        look: |look| {
            let (flows, queues) = (look.number("flows.active")?, look.number("channels.combined")?);
            let evidence = format!("{flows} flows moved data, {queues} queues");
            when(flows > 0.0 && queues > 1.0 && flows < 4.0 * queues, 0.1, evidence)
        },
    },
    DoctorRule {
        id: "RSS-05",
        goals: "C",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["rss.symmetric", "channels.combined"],
        condition: "several queues and a hash that is not symmetric",
        meaning: "the two directions of a flow come to two queues: captured in the wrong order",
        advice: Advice::Run("ethtool -X IF xfrm symmetric-xor", "ethtool -X IF xfrm none"),
        effect: "stateful capture sees flows whole",
        risk: "less entropy",
        source: "kernel, networking/scaling.rst; Suricata",
        look: |look| {
            let (even, queues) = (look.is_on("rss.symmetric")?, look.number("channels.combined")?);
            when(!even && queues > 1.0, 0.2, format!("{queues} queues, the hash is not symmetric"))
        },
    },
    DoctorRule {
        id: "RSS-06",
        goals: "TC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["queue.rx_packets", "channels.combined", "stats.rx_packets", "tcp.segs_in"],
        condition: "one of several queues gets all frames, and they are not those of one TCP connection of this host",
        meaning: "the card cannot hash what is inside (QinQ, GRE, VXLAN), or it is all one flow",
        advice: Advice::Say("RPS (RPS-01), ntuple rules, or a fanout by flow"),
        effect: "more frames",
        risk: "interrupts between CPUs",
        source: "Suricata, analysis of performance",
        look: |look| {
            let (queues, all) = (look.moves("queue.rx_packets")?, look.moved("queue.rx_packets")?);
            let (queue, frames) = most(&queues);
            let evidence =
                format!("{queue} of {} queues got {} of {} frames", queues.len(), count(frames), count(all));
            let connections = look.moves_by("tcp.segs_in")?;
            let others = frames - connections.into_values().fold(0.0, f64::max);
            let is_all = frames > 0.99 * all && others > 0.1 * all;
            when(queues.len() > 1 && others > 10_000.0 && is_all, 0.4, evidence)
        },
    },
    DoctorRule {
        id: "RPS-01",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card|veth")],
        inputs: &["rps_cpus", "queues.rx", "cpus", "cpu.softirq", "cpu.total"],
        condition: "fewer queues than CPUs, and RPS spreads to none while a CPU is over 90 % in soft interrupts; or RPS sends all to one CPU",
        meaning: "one CPU does the work of receiving",
        advice: Advice::Knob("rps_cpus@*", "NEW"),
        effect: "2 to 4 times the frames",
        risk: "interrupts between CPUs, 5 µs for each frame",
        source: "kernel, networking/scaling.rst; netutils-linux autorps",
        look: |look| {
            let (queues, cpus) = (look.number("queues.rx")?, look.number("cpus")?);
            let masks = look.texts("rps_cpus")?;
            let spread: u32 = masks.iter().map(|(_, mask)| cpus_of_mask(mask)).max().unwrap_or(0);
            let (busy, one) = (softirq(look)?, spread == 1);
            let evidence = format!(
                "{queues} queues, {cpus} CPUs, RPS to {}; the busiest CPU spends {} in soft interrupts",
                record::unit::many(u64::from(spread), "CPU"),
                percent(busy)
            );
            let all = format!("0-{}", cpus - 1.0);
            let holds = queues < cpus && (one || spread == 0 && busy > SATURATED);
            becomes(holds, if one { 0.4 } else { 0.5 }, evidence, all)
        },
    },
    DoctorRule {
        id: "RPS-02",
        goals: "TL",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["rps_cpus", "queues.rx", "cpus"],
        condition: "RPS although there is a queue for each CPU",
        meaning: "an interrupt between CPUs and a backlog that can drop, for nothing",
        advice: Advice::Knob("rps_cpus@*", "none"),
        effect: "5 to 15 % less CPU time",
        risk: "",
        source: "kernel, networking/scaling.rst",
        look: |look| {
            let on = look.texts("rps_cpus")?.iter().filter(|(_, mask)| cpus_of_mask(mask) > 0).count();
            let (queues, cpus) = (look.number("queues.rx")?, look.number("cpus")?);
            when(on > 0 && queues >= cpus, 0.1, format!("RPS at {on} of {queues} queues, {cpus} CPUs"))
        },
    },
    DoctorRule {
        id: "RFS-01",
        goals: "TL",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["sysctl net.core.rps_sock_flow_entries", "rps_flow_cnt", "flows.active", "cpus"],
        condition: "no RFS with many flows and several CPUs",
        meaning: "soft interrupts and the reader are on different CPUs: cache misses",
        advice: Advice::Knobs(&[
            ("sysctl net.core.rps_sock_flow_entries", "32768"),
            ("rps_flow_cnt@*", "NEW"),
        ]),
        effect: "5 to 20 % more",
        risk: "reordering when a reader moves",
        source: "kernel, networking/scaling.rst; ice README (aRFS)",
        look: |look| {
            let (entries, flows) =
                (look.number("sysctl net.core.rps_sock_flow_entries")?, look.number("flows.active")?);
            let queues = look.numbers("rps_flow_cnt")?;
            let off = entries == 0.0 || queues.iter().all(|(_, entries)| *entries == 0.0);
            let holds = off && flows >= 32.0 && look.number("cpus")? > 2.0;
            becomes(
                holds,
                0.1,
                format!("rps_sock_flow_entries {entries}, {flows} flows"),
                (32768.0 / queues.len().max(1) as f64).floor(),
            )
        },
    },
    DoctorRule {
        id: "XPS-01",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card"), ("virtual", "off")],
        inputs: &["xps_cpus", "cpus"],
        condition: "as many transmit queues as CPUs without XPS, or two CPUs at one queue",
        meaning: "CPUs wait for the lock of a queue, or send on another node",
        advice: Advice::Run(
            "set_xps_rps IF, or for each CPU one queue: pathlab tune set IF xps_cpus@tx-N=CPU",
            "write back: {xps_cpus}",
        ),
        effect: "more frames sent",
        risk: "in a virtual machine Intel says: off",
        source: "i40e README; xps_setup.sh",
        look: |look| {
            let masks = look.texts("xps_cpus")?;
            let cpus = look.number("cpus")?;
            let off = masks.iter().all(|(_, mask)| cpus_of_mask(mask) == 0);
            let shared = masks.iter().filter(|(_, mask)| cpus_of_mask(mask) > 1).count();
            let evidence = format!(
                "{} transmit queues, {cpus} CPUs, XPS {}, {shared} queues for several CPUs",
                masks.len(),
                if off { "off" } else { "on" }
            );
            when(masks.len() as f64 >= cpus && cpus > 1.0 && (off || shared > 0), 0.1, evidence)
        },
    },
    DoctorRule {
        id: "RNG-01",
        goals: "CT",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &[
            "ring.rx",
            "ring.rx-max",
            "stats.rx_missed_errors",
            "stats.rx_packets",
            "stats.rx_bytes",
            "speed_mbps",
            "stall.most_us",
        ],
        condition: "frames were missed and the ring is not at its maximum",
        meaning: "the ring is shorter than the CPU's longest stall",
        advice: Advice::Knob("ring.rx", "NEW"),
        effect: "no missed frames",
        risk: "the link flaps; a larger ring takes more cache",
        source: "Intel; Red Hat",
        look: |look| {
            let (ring, max) = (look.number("ring.rx")?, look.number("ring.rx-max")?);
            let (ring_us, stall_us) = (ring_time_us(look)?, look.number("stall.most_us")?);
            let missed = look.moved("stats.rx_missed_errors")?;
            let share = missed / (missed + look.moved("stats.rx_packets")?).max(1.0);
            let evidence = format!(
                "{} frames missed ({}); {ring} of {max} slots hold {ring_us:.0} µs at line rate, the longest wait from interrupt to poll was {stall_us:.0} µs",
                count(missed),
                percent(share)
            );
            let wanted = 2.0 * ring * stall_us / ring_us.max(1.0);
            let new = f64::max(wanted, ring * 2.0).log2().ceil().exp2().min(max);
            becomes(missed > 0.0 && ring < max, (share * 10.0).max(0.1), evidence, new)
        },
    },
    DoctorRule {
        id: "RNG-02",
        goals: "LT",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["ring.rx", "queues.rx", "cache.last_bytes", "stats.rx_missed_errors"],
        condition: "the rings' buffers take over a fifth of the last-level cache, and no frame was missed",
        meaning: "the ring is larger than the cache can hold",
        advice: Advice::Knob("ring.rx", "NEW"),
        effect: "5 to 20 % more frames",
        risk: "bursts may overflow it: see RNG-01",
        source: "Suricata (1024); netutils-linux (2048 at most)",
        look: |look| {
            let (ring, queues) = (look.number("ring.rx")?, look.number("queues.rx")?);
            let share = ring * 2048.0 * queues / look.number("cache.last_bytes")?.max(1.0);
            let evidence = format!(
                "{queues} rings of {ring} buffers of 2 KiB: {} of the last-level cache",
                percent(share)
            );
            becomes(
                share > 0.2 && ring > 1024.0 && look.moved("stats.rx_missed_errors")? == 0.0,
                0.05,
                evidence,
                1024,
            )
        },
    },
    DoctorRule {
        id: "RNG-03",
        goals: "TR",
        at: At::Interface,
        given: &[],
        inputs: &["qdisc.requeues", "tx_timeout"],
        condition: "more than 1,000 requeues/s, or a transmit timeout",
        meaning: "the transmit ring is full",
        advice: Advice::Knob("ring.tx", "{ring.tx-max}"),
        effect: "fewer requeues",
        risk: "a queue below the qdisc",
        source: "mlnx_tune, profile without loss",
        look: |look| {
            let (requeues, timeouts) = (look.per_s("qdisc.requeues")?, look.moved("tx_timeout")?);
            let evidence = format!("{} requeues/s, {} transmit timeouts", count(requeues), count(timeouts));
            let found = when(requeues > 1000.0 || timeouts > 0.0, 0.1, evidence)?;
            let (now, most) = (look.number("ring.tx"), look.number("ring.tx-max"));
            let can_grow = most.is_ok_and(|most| now.is_ok_and(|now| now < most));
            Ok(found.map(|found| if can_grow { found } else { found.advising(NO_LONGER_RING) }))
        },
    },
    DoctorRule {
        id: "RNG-04",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["page_pool.slow|rx.alloc_fail", "page_pool.fast|rx.alloc_fail"],
        condition: "over 5 % of the pages come the slow way, or a buffer could not be allocated",
        meaning: "the ring is refilled too slowly",
        advice: Advice::Say(
            "more free memory (vm.min_free_kbytes), free buffers on the same CPU (RFS), fewer queues",
        ),
        effect: "fewer drops",
        risk: "",
        source: "kernel, netdev.h; i40e counter rx_alloc_fail",
        look: |look| {
            let of = |name: &str| look.moved(name).unwrap_or(0.0);
            let (slow, fast, failed) = (of("page_pool.slow"), of("page_pool.fast"), of("rx.alloc_fail"));
            let share = slow / (slow + fast).max(1.0);
            let evidence = format!(
                "{} of {} pages came the slow way, {} buffers could not be allocated",
                count(slow),
                count(slow + fast),
                count(failed)
            );
            when(failed > 0.0 || slow + fast > 1000.0 && share > 0.05, 0.1, evidence)
        },
    },
    DoctorRule {
        id: "RNG-05",
        goals: "M",
        at: At::Interface,
        given: &[],
        inputs: &["changed"],
        condition: "rings, channels, offloads, coalescing, MTU or qdisc changed in the window",
        meaning: "the link may have flapped: half of the figures are of another setting",
        advice: Advice::Say("discard the figures and repeat"),
        effect: "",
        risk: "",
        source: "general knowledge",
        look: |look| {
            changed(
                look,
                &["ring.", "channels.", "feature.", "coalesce.", "pause.", "mtu", "qdisc.kind", "txqueuelen"],
            )
        },
    },
];
