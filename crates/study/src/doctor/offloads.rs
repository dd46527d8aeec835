//! Rules about offloads, MTU, VLANs and queueing disciplines (OFF-01 … QD-07).

use super::look::{Look, Missing, WORK, any_moved, becomes, busiest, count, percent, when};
use super::{Advice, At, DoctorRule};
use std::cmp::Ordering;

/// A finding when a feature is not as it should be, which costs CPU time.
fn feature(look: &Look<'_>, name: &str, should: bool, loss: f64) -> super::Answer {
    let on = look.is_on(name)?;
    let (is, word) = (if on { "on" } else { "off" }, name.trim_start_matches("feature."));
    // What cannot be switched is as it should be for this card.
    let fixed = look.text(name)?.contains("fixed");
    of_cpu(look, when(on != should && !fixed, loss, format!("{word} is {is}")))
}

/// The same answer about what costs CPU time only.
fn of_cpu(look: &Look<'_>, answer: super::Answer) -> super::Answer {
    Ok(answer?.map(|found| found.of_cpu(look)))
}

/// Frames of an interface in a second.
fn frames_per_s(look: &Look<'_>) -> Result<f64, Missing> {
    Ok(look.per_s("stats.rx_packets")? + look.per_s("stats.tx_packets")?)
}

/// Bytes of the longest acknowledgement without data: headers of Ethernet, IPv6 (RFC 8200, section 3) and TCP with all its options
/// (RFC 9293, section 3.1).
const ACKNOWLEDGEMENT_BYTES: f64 = 14.0 + 40.0 + 60.0;

/// Whether this interface sends, and almost nothing that could be cut: frames are half as long again as an acknowledgement at most, on average.
fn only_small(look: &Look<'_>) -> Result<bool, Missing> {
    let (frames, bytes) = (look.moved("stats.tx_packets")?, look.moved("stats.tx_bytes")?);
    Ok(frames >= WORK && bytes / frames < 1.5 * ACKNOWLEDGEMENT_BYTES)
}

/// Frames did not fit although both ends of this link agree.
const ELSEWHERE: Advice = Advice::Say(
    "look for the smaller MTU further along the path ('pathlab doctor' there, or 'ping -M do -s SIZE'); net.ipv4.tcp_mtu_probing=1 at the \
     senders gets TCP through meanwhile",
);

/// A knob and its value.
type Wanted = (&'static str, &'static str);

const RECEIVE: Wanted = ("feature.rx-checksum", "on");
const GENERIC: Wanted = ("feature.tx-checksum-ip-generic", "on");
const IPV4: Wanted = ("feature.tx-checksum-ipv4", "on");
const IPV6: Wanted = ("feature.tx-checksum-ipv6", "on");
const GATHER: Wanted = ("feature.tx-scatter-gather", "on");
const CUT: Wanted = ("feature.tx-tcp-segmentation", "on");
const CUT6: Wanted = ("feature.tx-tcp6-segmentation", "on");

/// The kernel cuts no segments where frames are not gathered, and gathers none without a checksum by the card, which has one for both
/// families or one for each (`netdev_fix_features`, net/core/dev.c): what is off first, and all that is then switched on, where IPv6 has its
/// segments cut already or cannot, and where it has not.
const SEGMENTATION_NEEDS: [(&str, [&[Wanted]; 2]); 3] = [
    (GENERIC.0, [&[GENERIC, GATHER, CUT], &[GENERIC, GATHER, CUT, CUT6]]),
    (IPV4.0, [&[IPV4, GATHER, CUT], &[IPV4, IPV6, GATHER, CUT, CUT6]]),
    (GATHER.0, [&[GATHER, CUT], &[GATHER, CUT, CUT6]]),
];

/// Queueing disciplines in whose place `fq` is not advised: itself, none, and those that shape, delay or keep times, which it does not.
const NOT_REPLACED_BY_FQ: [&str; 10] =
    ["fq", "noqueue", "tbf", "htb", "hfsc", "cake", "netem", "taprio", "etf", "mqprio"];

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "OFF-01",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card|veth|bond|vlan|bridge")],
        inputs: &["feature.tx-tcp-segmentation", "stats.tx_packets", "stats.tx_bytes"],
        condition: "TCP segmentation offload is off, and not only acknowledgements and other small frames are sent",
        meaning: "the stack is crossed once for each segment instead of once for 64 KiB",
        advice: Advice::Knob("feature.tx-tcp-segmentation", "on"),
        effect: "a third to an eighth of the CPU time at 10 Gbit/s and more",
        risk: "a driver with defects; bursts",
        source: "ESnet fasterdata script",
        look: |look| {
            let found = feature(look, CUT.0, true, 0.6)?;
            // Those of which nothing is known are as they should be; a card has one of the checksums.
            let is_off = |name: &str| look.text(name).is_ok_and(|now| now == "off");
            let six = is_off(CUT6.0);
            // Who sends IPv4 alone loses nothing by it.
            let found = match found {
                None if six => feature(look, CUT6.0, true, 0.3)?,
                found => found,
            };
            if only_small(look)? {
                return Ok(None);
            }
            let has_checksum =
                SEGMENTATION_NEEDS[..2].iter().any(|(first, _)| look.is_on(first).unwrap_or(false));
            let needs = SEGMENTATION_NEEDS.iter().skip(if has_checksum { 2 } else { 0 });
            let needs = needs.into_iter().find(|(first, _)| is_off(first));
            let both: &[Wanted] = &[CUT, CUT6];
            let knobs = needs.map(|(_, knobs)| knobs[usize::from(six)]).or(six.then_some(both));
            Ok(found.map(|found| knobs.map_or(found.clone(), |knobs| found.advising(Advice::Knobs(knobs)))))
        },
    },
    DoctorRule {
        id: "OFF-02",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["feature.rx-gro"],
        condition: "generic receive offload is off",
        meaning: "the stack is crossed once for each frame that arrives",
        advice: Advice::Knob("feature.rx-gro", "on"),
        effect: "2 to 5 times the rate of one flow",
        risk: "forwarding and capture want it off",
        source: "ESnet fasterdata script",
        look: |look| feature(look, "feature.rx-gro", true, 0.5),
    },
    DoctorRule {
        id: "OFF-03",
        goals: "RC",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["feature.rx-lro", "sysctl net.ipv4.ip_forward", "master"],
        condition: "large receive offload is on, and the host forwards or the interface is a port of a bridge",
        meaning: "headers of merged frames are lost: what is forwarded or captured is not what came",
        advice: Advice::Knob("feature.rx-lro", "off"),
        effect: "frames are forwarded as they came",
        risk: "CPU time",
        source: "Suricata; ESnet fasterdata",
        look: |look| {
            let (lro, routes) = (look.is_on("feature.rx-lro")?, look.is_on("sysctl net.ipv4.ip_forward")?);
            let master = look.text("master")?;
            let evidence = format!(
                "rx-lro {}, ip_forward {}, master {master}",
                look.text("feature.rx-lro")?,
                u8::from(routes)
            );
            when(lro && (routes || master != "none"), 0.5, evidence)
        },
    },
    DoctorRule {
        id: "OFF-04",
        goals: "C",
        at: At::Interface,
        given: &[("kind", "card|veth")],
        inputs: &["feature.rx-gro", "feature.rx-lro"],
        condition: "frames are merged on arrival (GRO, LRO) where they are captured",
        meaning: "captured frames are merged: larger than the MTU, their sizes and times are not those of the wire",
        advice: Advice::Knobs(&[("feature.rx-gro", "off"), ("feature.rx-lro", "off")]),
        effect: "true sizes",
        risk: "CPU time",
        source: "Suricata",
        look: |look| {
            let (gro, lro) = (look.is_on("feature.rx-gro")?, look.is_on("feature.rx-lro")?);
            when(
                gro || lro,
                0.2,
                format!("rx-gro {}, rx-lro {}", look.text("feature.rx-gro")?, look.text("feature.rx-lro")?),
            )
        },
    },
    DoctorRule {
        id: "OFF-05",
        goals: "TM",
        at: At::Interface,
        given: &[("kind", "card|veth")],
        inputs: &["feature.tx-checksum-ipv4|feature.tx-checksum-ip-generic", "feature.rx-checksum"],
        condition: "checksums are not left to the card",
        meaning: "the CPU computes every checksum; without it no segmentation offload either",
        advice: Advice::Knobs(&[RECEIVE, GENERIC, IPV4, IPV6]),
        effect: "5 to 20 % less CPU time",
        risk: "",
        source: "ethtool; kernel, networking/segmentation-offloads.rst",
        look: |look| {
            let on = |name: &str| look.is_on(name).unwrap_or(false);
            let tx = on("feature.tx-checksum-ipv4") || on("feature.tx-checksum-ip-generic");
            let rx = look.is_on("feature.rx-checksum")?;
            let word = |on| if on { "on" } else { "off" };
            let evidence = format!("transmit checksum {}, receive checksum {}", word(tx), word(rx));
            // What cannot be switched is as it should be for this card.
            let can = |name: &str| look.text(name).is_ok_and(|now| now == "off");
            let (tx, rx) = (tx || ![GENERIC.0, IPV4.0].into_iter().any(can), rx || !can(RECEIVE.0));
            of_cpu(look, when(!tx || !rx, if tx { 0.1 } else { 0.4 }, evidence))
        },
    },
    DoctorRule {
        id: "OFF-06",
        goals: "M",
        at: At::Node,
        given: &[],
        inputs: &["Udp.InCsumErrors", "Tcp.InCsumErrors"],
        condition: "datagrams or segments with a wrong checksum",
        meaning: "data is corrupted, or a card or tunnel is faulty",
        advice: Advice::Say(
            "capture them; replace cable or card (i40e counts tunnels that are not UDP as bad)",
        ),
        effect: "",
        risk: "",
        source: "i40e README",
        look: |look| any_moved(look, &["Udp.InCsumErrors", "Tcp.InCsumErrors"], 0.2),
    },
    DoctorRule {
        id: "OFF-07",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card|veth")],
        inputs: &["feature.tx-nocache-copy"],
        condition: "tx-nocache-copy is on",
        meaning: "copies go past the cache: slower on today's CPUs",
        advice: Advice::Knob("feature.tx-nocache-copy", "off"),
        effect: "a few percent",
        risk: "",
        source: "mlnx_tune",
        look: |look| feature(look, "feature.tx-nocache-copy", false, 0.03),
    },
    DoctorRule {
        id: "OFF-08",
        goals: "M",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["feature.rx-gro", "coalesce.rx-usecs", "stamps.hardware"],
        condition: "GRO or moderation of interrupts without time stamps of the hardware",
        meaning: "times between frames are those of batches, not of the wire",
        advice: Advice::Knobs(&[("feature.rx-gro", "off"), ("coalesce.rx-usecs", "0")]),
        effect: "dispersion that means something",
        risk: "CPU time",
        source: "PAM 2004, interrupt coalescing",
        look: |look| {
            let (gro, usecs) = (look.is_on("feature.rx-gro")?, look.number("coalesce.rx-usecs")?);
            let evidence =
                format!("rx-gro {}, rx-usecs {usecs}, no hardware time stamps", look.text("feature.rx-gro")?);
            when((gro || usecs > 0.0) && !look.is_on("stamps.hardware")?, 0.05, evidence)
        },
    },
    DoctorRule {
        id: "MTU-01",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["mtu", "mtu.max", "speed_mbps"],
        condition: "an MTU of 1500 at 25 Gbit/s or more, and the card can do 9000",
        meaning: "six times the frames",
        advice: Advice::Knob("mtu", "9000"),
        effect: "40 % less CPU time, if all hops have it",
        risk: "a black hole if one hop has not",
        source: "ESnet fasterdata",
        look: |look| {
            let (mtu, max, speed) =
                (look.number("mtu")?, look.number("mtu.max")?, look.number("speed_mbps")?);
            let small = mtu <= 1500.0 && max >= 9000.0 && speed >= 25_000.0;
            of_cpu(look, when(small, 0.2, format!("MTU {mtu} at {} Gbit/s", speed / 1000.0)))
        },
    },
    DoctorRule {
        id: "MTU-02",
        goals: "MT",
        at: At::Interface,
        given: &[],
        inputs: &[
            "mtu",
            "mtu.other",
            "stats.rx_length_errors",
            "stats.rx_over_errors",
            "TcpExt.TCPMTUPFail",
            "Ip.FragFails",
        ],
        condition: "the other end of the link has another MTU, or frames did not fit (then the smaller one is elsewhere)",
        meaning: "small messages arrive, full-size ones vanish",
        advice: Advice::Knob("mtu", "NEW"),
        effect: "no hanging transfers",
        risk: "",
        source: "ESnet fasterdata; kernel, if_link.h",
        look: |look| {
            let (mtu, other) = (look.number("mtu")?, look.number("mtu.other")?);
            let odd =
                ["stats.rx_length_errors", "stats.rx_over_errors", "TcpExt.TCPMTUPFail", "Ip.FragFails"];
            let moved = super::look::any_of(look, &odd)?;
            let more = if moved.is_empty() { String::new() } else { format!("; {moved}") };
            // Which of both was meant nobody can see; what carries more is the first to be tried.
            let loss = match mtu.total_cmp(&other) {
                Ordering::Less => 0.95,
                Ordering::Greater => 0.9,
                Ordering::Equal => 0.3,
            };
            let evidence = format!("MTU {mtu}, the other end of the link has {other}{more}");
            let found = becomes(mtu != other || !moved.is_empty(), loss, evidence, other)?;
            Ok(found.map(|found| if mtu == other { found.advising(ELSEWHERE) } else { found }))
        },
    },
    DoctorRule {
        id: "MTU-03",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "vlan")],
        inputs: &["mtu", "lower.mtu", "stats.tx_dropped", "stats.tx_errors"],
        condition: "the VLAN's MTU leaves no room for the tag (4 bytes) and full frames were lost",
        meaning: "full-size tagged frames are dropped, small ones pass",
        advice: Advice::Knob("mtu", "NEW"),
        effect: "full frames pass",
        risk: "",
        source: "general knowledge",
        look: |look| {
            let (mtu, lower) = (look.number("mtu")?, look.number("lower.mtu")?);
            let lost = look.moved("stats.tx_dropped")? + look.moved("stats.tx_errors")?;
            let evidence = format!("MTU {mtu} over one of {lower}, {} frames lost", count(lost));
            becomes(mtu > lower || (mtu > lower - 4.0 && lost > 0.0), 0.8, evidence, lower - 4.0)
        },
    },
    DoctorRule {
        id: "VLAN-01",
        goals: "T",
        at: At::Interface,
        given: &[("kind", "vlan")],
        inputs: &["feature.tx-tcp-segmentation", "lower.tx-tcp-segmentation", "lower.tx-vlan-hw-insert"],
        condition: "the card below does not insert tags, or the VLAN has lost segmentation that the card has",
        meaning: "tags and segments are made by the CPU",
        advice: Advice::Run("ethtool -K LOWER rxvlan on txvlan on", "ethtool -K LOWER rxvlan off txvlan off"),
        effect: "less CPU time",
        risk: "switches with quirks",
        source: "general knowledge",
        look: |look| {
            let (tso, lower) =
                (look.is_on("feature.tx-tcp-segmentation")?, look.is_on("lower.tx-tcp-segmentation")?);
            let insert = look.is_on("lower.tx-vlan-hw-insert")?;
            let word = |on| if on { "on" } else { "off" };
            let evidence = format!(
                "segmentation {} over {}, insertion of tags {}",
                word(tso),
                word(lower),
                word(insert)
            );
            of_cpu(look, when((lower && !tso) || !insert, 0.3, evidence))
        },
    },
    DoctorRule {
        id: "QD-01",
        goals: "TLM",
        at: At::Interface,
        given: &[],
        inputs: &["qdisc.drops", "qdisc.packets", "qdisc.kind"],
        condition: "a qdisc dropped frames",
        meaning: "the sender lost them itself; UDP is not told",
        advice: Advice::Say("a larger limit, pacing (fq maxrate), or accept it as the result"),
        effect: "",
        risk: "longer times",
        source: "measured with this program",
        look: |look| {
            let (drops, sent) = (look.moved("qdisc.drops")?, look.moved("qdisc.packets")?);
            let share = drops / (drops + sent).max(1.0);
            let evidence =
                format!("{}: {} frames dropped ({})", look.text("qdisc.kind")?, count(drops), percent(share));
            when(drops > 0.0, (share * 5.0).max(0.02), evidence)
        },
    },
    DoctorRule {
        id: "QD-02",
        goals: "L",
        at: At::Interface,
        given: &[],
        inputs: &["qdisc.kind", "qdisc.backlog_bytes", "txqueuelen", "speed_mbps"],
        condition: "pfifo_fast with a queue of 1,000 frames at 1 Gbit/s or less, or more than 5 ms wait in the qdisc",
        meaning: "bufferbloat in the host",
        advice: Advice::Knob("qdisc", "fq_codel"),
        effect: "90 % less delay under load",
        risk: "a little CPU time",
        source: "general knowledge",
        look: |look| {
            let (kind, speed) = (look.text("qdisc.kind")?, look.number("speed_mbps")?);
            let wait_ms = look.number("qdisc.backlog_bytes")? * 8.0 / (speed * 1e3).max(1.0);
            let length = look.number("txqueuelen")?;
            let fifo = kind.starts_with("pfifo") && length >= 1000.0 && speed <= 1000.0;
            when(
                fifo || wait_ms > 5.0,
                if wait_ms > 5.0 { 0.6 } else { 0.2 },
                format!("{kind}, {length} frames long, {wait_ms:.1} ms wait now"),
            )
        },
    },
    DoctorRule {
        id: "QD-03",
        goals: "T",
        at: At::Interface,
        given: &[],
        inputs: &[
            "qdisc.kind",
            "sysctl net.ipv4.tcp_congestion_control",
            "sysctl net.ipv4.ip_forward",
            "tcp.congestion",
            "tcp.rtt_us",
            "tcp.bytes_retrans",
        ],
        condition: "no fq where connections of the node use BBR (or would, on a host that does not forward) and the queue does not shape; or retransmissions over long round trips (> 20 ms) without it",
        meaning: "bursts: pacing is left to timers of TCP, or there is none",
        advice: Advice::Knob("qdisc", "fq"),
        effect: "fewer losses by bursts",
        risk: "",
        source: "ESnet fasterdata",
        look: |look| {
            let (kind, control) =
                (look.text("qdisc.kind")?, look.text("sysctl net.ipv4.tcp_congestion_control")?);
            let (uses, forwards) = (look.texts("tcp.congestion")?, look.is_on("sysctl net.ipv4.ip_forward")?);
            let paces = match uses.is_empty() {
                true => control == "bbr" && !forwards,
                false => uses.iter().any(|(_, name)| name == "bbr"),
            };
            let again = look.moves_by("tcp.bytes_retrans")?;
            let far = look
                .numbers("tcp.rtt_us")?
                .into_iter()
                .find(|(who, us)| *us > 20_000.0 && again.get(who).is_some_and(|bytes| *bytes > 0.0));
            let evidence = match &far {
                Some((who, us)) => {
                    format!("{who}: sent again over a round trip of {:.0} ms, qdisc {kind}", us / 1000.0)
                }
                None => format!("bbr with qdisc {kind}"),
            };
            // An interface without a queue has none that a burst could overflow.
            let holds = !NOT_REPLACED_BY_FQ.contains(&kind.as_str()) && (paces || far.is_some());
            when(holds, if far.is_some() { 0.15 } else { 0.05 }, evidence)
        },
    },
    DoctorRule {
        id: "QD-04",
        goals: "TR",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["qdisc.kind", "queues.tx", "cpu.busy", "cpu.total", "stats.rx_packets", "stats.tx_packets"],
        condition: "one qdisc for several transmit queues, and more than 100,000 frames/s",
        meaning: "one lock for all CPUs",
        advice: Advice::Knob("qdisc", "mq"),
        effect: "more frames sent",
        risk: "shaping is lost",
        source: "kernel, sysctl/net.rst",
        look: |look| {
            let (kind, queues, frames) =
                (look.text("qdisc.kind")?, look.number("queues.tx")?, frames_per_s(look)?);
            let single = !matches!(kind.as_str(), "mq" | "mqprio" | "noqueue" | "taprio");
            let evidence = format!(
                "{kind} for {queues} queues, {} frames/s, the busiest CPU {}",
                count(frames),
                percent(busiest(look)?)
            );
            let found = when(single && queues > 1.0 && frames > 100_000.0, 0.2, evidence)?;
            // What has classes is no knob.
            let replace = Advice::Run("tc qdisc replace dev IF root mq", "make it again: {qdisc.kinds}");
            let is_tree = ["htb", "hfsc", "drr", "qfq", "prio", "ets"].contains(&kind.as_str());
            Ok(found.map(|found| if is_tree { found.advising(replace) } else { found }))
        },
    },
    DoctorRule {
        id: "QD-05",
        goals: "TL",
        at: At::Interface,
        given: &[],
        inputs: &["txqueuelen", "qdisc.drops"],
        condition: "txqueuelen < 1,000 and drops, or > 20,000",
        meaning: "too short for bursts, or a standing queue",
        advice: Advice::Knob("txqueuelen", "1000"),
        effect: "fewer drops, or shorter times",
        risk: "10 to 25 thousand are for data transfer nodes only",
        source: "ESnet fasterdata script",
        look: |look| {
            let (length, drops) = (look.number("txqueuelen")?, look.moved("qdisc.drops")?);
            let short = length < 1000.0 && drops > 0.0;
            when(
                short || length > 20_000.0,
                if short { 0.1 } else { 0.05 },
                format!("txqueuelen {length}, {} drops", count(drops)),
            )
        },
    },
    DoctorRule {
        id: "QD-06",
        goals: "L",
        at: At::Interface,
        given: &[("kind", "card")],
        inputs: &["bql.limit_bytes", "bql.inflight_bytes", "speed_mbps"],
        condition: "a transmit queue holds over a millisecond at its limit, or has no byte queue limit",
        meaning: "a queue below the qdisc, where no qdisc can help",
        advice: Advice::Say(
            "a driver with byte queue limits; a shorter transmit ring: pathlab tune set IF ring.tx=256 --allow-link-flap",
        ),
        effect: "shorter times",
        risk: "throughput",
        source: "general knowledge",
        look: |look| {
            let limits = look.numbers("bql.limit_bytes")?;
            let per_ms = look.number("speed_mbps")? * 125.0;
            let inflight = look.numbers("bql.inflight_bytes")?;
            let full = limits
                .iter()
                .zip(&inflight)
                .find(|((_, limit), (_, now))| *limit > per_ms && *now >= 0.9 * limit);
            let evidence = match &full {
                Some(((queue, limit), (_, now))) => {
                    format!("{queue}: {now} of {limit} bytes below the qdisc")
                }
                None => "no transmit queue has a byte queue limit".into(),
            };
            when(full.is_some() || limits.is_empty(), if full.is_some() { 0.3 } else { 0.05 }, evidence)
        },
    },
    DoctorRule {
        id: "QD-07",
        goals: "M",
        at: At::Interface,
        given: &[],
        inputs: &["qdisc.kinds"],
        condition: "a qdisc that delays, drops or shapes: netem, tbf, htb, police",
        meaning: "somebody's shaper: the result is of the shaper",
        advice: Advice::Run("tc qdisc del dev IF root", "add it again: {qdisc.kinds}"),
        effect: "",
        risk: "it may be there on purpose",
        source: "general knowledge",
        look: |look| {
            let kinds = look.text("qdisc.kinds")?;
            let shapers = ["netem", "tbf", "htb", "hfsc", "police", "cbs"];
            let found: Vec<&str> = kinds.split(' ').filter(|kind| shapers.contains(kind)).collect();
            when(!found.is_empty(), 0.3, found.join(", "))
        },
    },
];
