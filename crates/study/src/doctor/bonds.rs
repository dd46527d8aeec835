//! Rules about bonds, time stamps, captures, virtual machines and control groups (BND-01 … CG-01).

use std::collections::BTreeMap;

use super::look::{WORK, any_moved, becomes, count, most, percent, uneven, when};
use super::{Advice, At, DoctorRule};

/// Where the card has no clock of its own.
const NO_STAMPS: Advice =
    Advice::Say("measure with a card that stamps ('ethtool -T'), or take the stamps for what they are");

/// Where the card has one queue.
const NO_MORE_QUEUES: Advice =
    Advice::Say("let the hypervisor offer more queues (QEMU: queues=N, vectors=2N+2)");

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "BND-01",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "bond")],
        inputs: &["bond.xmit_hash_policy", "bond.mode", "bond.tx_packets"],
        condition: "hash policy layer2, and a port with over 1.5 times the mean",
        meaning: "flows between few addresses all take one port",
        advice: Advice::Run(
            "ip link set IF type bond xmit_hash_policy layer3+4",
            "ip link set IF type bond xmit_hash_policy {bond.xmit_hash_policy}",
        ),
        effect: "the sum of the ports",
        risk: "fragments out of order; not what LACP asks for",
        source: "general knowledge",
        look: |look| {
            let (policy, ports) = (look.text("bond.xmit_hash_policy")?, look.moves("bond.tx_packets")?);
            let hashes =
                matches!(look.text("bond.mode")?.as_str(), "balance-xor" | "802.3ad" | "balance-tlb");
            let ratio = uneven(&ports);
            let evidence = format!("{policy}: {} sent {ratio:.1} times the mean", most(&ports).0);
            when(hashes && policy.starts_with("layer2") && ratio > 1.5, 1.0 - 1.0 / ratio, evidence)
        },
    },
    DoctorRule {
        id: "BND-02",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "bond")],
        inputs: &["bond.mode", "tcp.reord_seen"],
        condition: "balance-rr, and connections that saw reordering",
        meaning: "this mode reorders by design",
        advice: Advice::Say(
            "make the bond anew with mode 802.3ad: the kernel changes the mode only while a bond is down and has no ports",
        ),
        effect: "order is kept",
        risk: "one flow has one link",
        source: "kernel, networking/bonding.rst",
        look: |look| {
            let (mode, seen) = (look.text("bond.mode")?, look.moved("tcp.reord_seen")?);
            when(
                mode == "balance-rr" && seen > 0.0,
                0.2,
                format!("{mode}, reordering seen {} times", count(seen)),
            )
        },
    },
    DoctorRule {
        id: "BND-03",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "bond")],
        inputs: &["bond.rx_nohandler", "bond.aggregators", "bond.failures"],
        condition: "a port in reserve receives, ports are in different aggregators, or a monitor saw a failure",
        meaning: "the switch and the bond do not agree",
        advice: Advice::Say("correct the switch's side of the bond"),
        effect: "",
        risk: "",
        source: "kernel, if_link.h",
        look: |look| {
            let (idle, failures) = (look.moved("bond.rx_nohandler")?, look.moved("bond.failures")?);
            let aggregators = look.number("bond.aggregators")?;
            let evidence = format!(
                "{} frames at ports in reserve, {aggregators} aggregators, {} failures",
                count(idle),
                count(failures)
            );
            when(idle > 0.0 || aggregators > 1.0 || failures > 0.0, 0.3, evidence)
        },
    },
    DoctorRule {
        id: "BND-04",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "bond")],
        inputs: &["mtu", "bond.mtus", "feature.tx-tcp-segmentation", "bond.tso"],
        condition: "ports differ in MTU or segmentation, or the bond has lost what its ports have",
        meaning: "one port takes it from all",
        advice: Advice::Say(
            "the same MTU and offloads at all ports: pathlab tune set PORT feature.tx-tcp-segmentation=on",
        ),
        effect: "less CPU time",
        risk: "",
        source: "general knowledge",
        look: |look| {
            let mtus = look.numbers("bond.mtus")?;
            let odd = mtus.iter().find(|(_, mtu)| mtus.iter().any(|(_, other)| other != mtu));
            let ports = look.numbers("bond.tso")?;
            let without = ports.iter().find(|(_, on)| *on == 0.0);
            let lost = without.is_none() && !look.is_on("feature.tx-tcp-segmentation")?;
            let evidence = match (odd, without) {
                (Some((port, mtu)), _) => format!(
                    "{port} has MTU {mtu}, another port has another; the bond {}",
                    look.number("mtu")?
                ),
                (None, Some((port, _))) => format!("{port} has no segmentation offload"),
                _ => "the bond has no segmentation offload, its ports have".into(),
            };
            when(odd.is_some() || without.is_some() || lost, 0.3, evidence)
        },
    },
    DoctorRule {
        id: "BND-05",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "bond")],
        inputs: &["flows.active", "bond.tx_packets"],
        condition: "fewer flows than ports",
        meaning: "one link is measured, not the bond",
        advice: Advice::Say("8 flows or more"),
        effect: "",
        risk: "",
        source: "arithmetic",
        look: |look| {
            let (flows, ports) = (look.number("flows.active")?, look.moves("bond.tx_packets")?.len() as f64);
            when(
                flows > 0.0 && flows < ports,
                1.0 - flows / ports.max(1.0),
                format!("{flows} flows over {ports} ports"),
            )
        },
    },
    DoctorRule {
        id: "TS-01",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["stamps.hardware"],
        condition: "no time stamps of the hardware",
        meaning: "stamps of the kernel have the interrupt and the soft interrupt in them: no accuracy of a microsecond",
        advice: Advice::Run("hwstamp_ctl -i IF -t 1 -r 1", "hwstamp_ctl -i IF -t 0 -r 0"),
        effect: "stamps of nanoseconds",
        risk: "some cards stamp PTP only",
        source: "netsniff-ng; libpcap #1701",
        look: |look| {
            let is_off = !look.is_on("stamps.hardware")?;
            match look.text("stamps.hardware")?.contains("fixed") {
                true => {
                    Ok(when(is_off, 0.02, "the card stamps no frames")?
                        .map(|found| found.advising(NO_STAMPS)))
                }
                false => when(is_off, 0.02, "the card stamps no frames, or it is switched off"),
            }
        },
    },
    DoctorRule {
        id: "TS-02",
        goals: "M",
        at: At::Interface,
        given: &[("stamps.hardware", "on")],
        inputs: &["phc.offset_ns"],
        condition: "the card's clock is more than 1 µs from the system's",
        meaning: "one-way delays between clocks mean nothing (TAI and UTC are 37 s apart)",
        advice: Advice::Say("phc2sys, ptp4l or chrony"),
        effect: "",
        risk: "",
        source: "libpcap #1701",
        look: |look| {
            let offset_ns = look.number("phc.offset_ns")?;
            when(offset_ns.abs() > 1000.0, 0.3, format!("{} off", record::unit::time_ns(offset_ns.abs())))
        },
    },
    DoctorRule {
        id: "TS-03",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["coalesce.rx-usecs", "arrivals.at_period_share"],
        condition: "over a fifth of the times between arrivals are 0 or rx-usecs",
        meaning: "moderation of interrupts can be seen in the times",
        advice: Advice::Say("see IRQ-01, or time stamps of the hardware (TS-01)"),
        effect: "",
        risk: "",
        source: "PAM 2004",
        look: |look| {
            let (usecs, share) =
                (look.number("coalesce.rx-usecs")?, look.number("arrivals.at_period_share")?);
            when(
                usecs > 0.0 && share > 0.2,
                0.1,
                format!("{} of the times are 0 or {usecs} µs", percent(share)),
            )
        },
    },
    DoctorRule {
        id: "TS-04",
        goals: "M",
        at: At::Host,
        given: &[],
        inputs: &["clock.step_ns", "clock.slew_ppm"],
        condition: "the clock was set, or ran more than 100 ppm off, in the window",
        meaning: "lengths of time are wrong",
        advice: Advice::Say("CLOCK_MONOTONIC_RAW; repeat when the clock is steady"),
        effect: "",
        risk: "",
        source: "clock_gettime(2), adjtimex(2)",
        look: |look| {
            let (step, slew) = (look.number("clock.step_ns")?, look.number("clock.slew_ppm")?);
            let evidence = format!("stepped by {}, {slew:.1} ppm off", record::unit::time_ns(step.abs()));
            when(step.abs() > 1e6 || slew.abs() > 100.0, 0.2, evidence)
        },
    },
    DoctorRule {
        id: "CAP-01",
        goals: "C",
        at: At::Node,
        given: &[],
        inputs: &["packet_socket.drops"],
        condition: "a packet socket dropped frames",
        meaning: "the ring of a capture was full",
        advice: Advice::Say("more or larger blocks, a faster reader, fanout, a shorter snapshot"),
        effect: "fewer drops",
        risk: "memory",
        source: "measured with this program",
        look: |look| {
            let drops = look.moves("packet_socket.drops")?;
            let ((socket, most), all) = (most(&drops), look.moved("packet_socket.drops")?);
            when(all > 0.0, 0.4, format!("{} frames, most at {socket}: {}", count(all), count(most)))
        },
    },
    DoctorRule {
        id: "CAP-02",
        goals: "C",
        at: At::Node,
        given: &[],
        inputs: &["packet_socket.block_ms"],
        condition: "a capture holds a block for more than 10 ms",
        meaning: "frames reach the program late when there are few",
        advice: Advice::Say("retire_blk_tov of 1 to 10 ms, smaller blocks"),
        effect: "shorter times",
        risk: "CPU time",
        source: "libtrace, history of its ring format",
        look: |look| {
            let times = look.numbers("packet_socket.block_ms")?;
            let (socket, ms) = most(&times);
            when(ms > 10.0, 0.05, format!("{socket}: {ms} ms"))
        },
    },
    DoctorRule {
        id: "CAP-03",
        goals: "C",
        at: At::Node,
        given: &[],
        inputs: &["packet_socket.fanout_frames", "packet_socket.fanout_group", "packet_socket.fanout_mode"],
        condition: "a socket of a fanout group gets 1.9 times the mean or more; not of one that rolls over",
        meaning: "the group's mode does not fit the traffic",
        advice: Advice::Say("by CPU or queue with pinned RSS; or by hash with defragmentation"),
        effect: "",
        risk: "",
        source: "Suricata",
        look: |look| {
            let (frames, modes) =
                (look.moves_by("packet_socket.fanout_frames")?, look.texts("packet_socket.fanout_mode")?);
            let modes: BTreeMap<String, String> = modes.into_iter().collect();
            let mut groups: BTreeMap<u32, Vec<(String, f64)>> = BTreeMap::new();
            for (socket, group) in look.numbers("packet_socket.fanout_group")? {
                let got =
                    frames.get(&socket).filter(|_| modes.get(&socket).is_some_and(|mode| mode != "rollover"));
                groups.entry(group as u32).or_default().extend(got.map(|got| (socket, *got)));
            }
            groups.retain(|_, sockets| sockets.iter().map(|(_, got)| got).sum::<f64>() >= WORK);
            let worst = groups.iter().max_by(|a, b| uneven(a.1).total_cmp(&uneven(b.1)));
            let Some((group, sockets)) = worst else { return Ok(None) };
            let (ratio, mode) = (uneven(sockets), modes.get(most(sockets).0));
            let evidence = format!(
                "{} got {ratio:.1} times the mean of the {} of group {group} ({})",
                most(sockets).0,
                sockets.len(),
                mode.map_or("", String::as_str)
            );
            when(ratio >= 1.9, 1.0 - 1.0 / ratio, evidence)
        },
    },
    DoctorRule {
        id: "VM-01",
        goals: "TL",
        at: At::Interface,
        given: &[("kind", "card"), ("driver", "virtio_net|vmxnet3|hv_netvsc|xen_netfront|ena|gve")],
        inputs: &["queues.rx", "cpus"],
        condition: "one queue in a virtual machine with more than two CPUs",
        meaning: "one thread of the hypervisor moves everything",
        advice: Advice::Knob("channels.combined", "NEW"),
        effect: "frame rate times the queues; the hypervisor must offer them (queues=N)",
        risk: "",
        source: "i40e README, virtual machines",
        look: |look| {
            let (queues, cpus) = (look.number("queues.rx")?, look.number("cpus")?);
            let most = look.number("channels.combined-max").unwrap_or(cpus).min(cpus);
            let found =
                becomes(queues == 1.0 && cpus > 2.0, 0.4, format!("{queues} queue, {cpus} CPUs"), most)?;
            Ok(found.map(|found| if most > 1.0 { found } else { found.advising(NO_MORE_QUEUES) }))
        },
    },
    DoctorRule {
        id: "VM-02",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card"), ("driver", "ena|gve")],
        inputs: &["allowance.exceeded"],
        condition: "an allowance of the instance was exceeded",
        meaning: "the provider shapes: the figure is of the contract",
        advice: Advice::Say("a larger instance"),
        effect: "",
        risk: "",
        source: "ena driver, statistics",
        look: |look| any_moved(look, &["allowance.exceeded"], 0.5),
    },
    DoctorRule {
        id: "CG-01",
        goals: "TL",
        at: At::Host,
        given: &[],
        inputs: &["cgroup.throttled"],
        condition: "a control group was throttled",
        meaning: "its programs stood still until the next period",
        advice: Advice::Run("echo max > /sys/fs/cgroup/GROUP/cpu.max", "write back what cpu.max had"),
        effect: "shorter tails",
        risk: "",
        source: "kernel, cgroup-v2.rst",
        look: |look| {
            let groups = look.moves("cgroup.throttled")?;
            let (group, periods) = most(&groups);
            when(periods > 0.0, 0.3, format!("{group}: {} periods", count(periods)))
        },
    },
];
