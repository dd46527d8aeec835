//! Rules about UDP and IP (UDP-01 … UDP-05, IP-01 … IP-07).

use super::look::{any_moved, any_of, becomes, count, most, percent, when};
use super::{Advice, At, DoctorRule};

/// Rows.
pub(super) const RULES: &[DoctorRule] = &[
    DoctorRule {
        id: "UDP-01",
        goals: "TC",
        at: At::Node,
        given: &[],
        inputs: &["Udp.RcvbufErrors", "Udp.InDatagrams", "udp.socket_drops", "sysctl net.core.rmem_max"],
        condition: "a receive buffer was full",
        meaning: "the reader is too slow, or its buffer too small",
        advice: Advice::Knob("sysctl net.core.rmem_max", "NEW"),
        effect: "no drops there, if the application asks for it (SO_RCVBUF) or reads faster (recvmmsg, GRO, reuseport)",
        risk: "longer times",
        source: "measured with this program; i40e README",
        look: |look| {
            let (lost, read) = (look.moved("Udp.RcvbufErrors")?, look.moved("Udp.InDatagrams")?);
            let sockets = look.moves("udp.socket_drops")?;
            let ((socket, drops), share) = (most(&sockets), lost / (lost + read).max(1.0));
            let who = if drops > 0.0 { format!(", {} at {socket}", count(drops)) } else { String::new() };
            let now = look.number("sysctl net.core.rmem_max")?;
            becomes(
                lost > 0.0,
                share.max(0.05),
                format!("{} datagrams lost ({}){who}", count(lost), percent(share)),
                now * 4.0,
            )
        },
    },
    DoctorRule {
        id: "UDP-02",
        goals: "TM",
        at: At::Node,
        given: &[],
        inputs: &["Udp.SndbufErrors", "Ip.OutDiscards", "Udp.OutDatagrams"],
        condition: "datagrams were lost on the way out",
        meaning: "a local qdisc or driver dropped them after send() had succeeded: the sent count is not what left",
        advice: Advice::Say("IP_RECVERR at the sender, pace it, and count these"),
        effect: "an honest count of what was sent",
        risk: "",
        source: "measured with this program",
        look: |look| {
            let lost = look.moved("Udp.SndbufErrors")?.max(look.moved("Ip.OutDiscards")?);
            let share = lost / (lost + look.moved("Udp.OutDatagrams")?).max(1.0);
            when(lost > 0.0, share.max(0.02), any_of(look, &["Udp.SndbufErrors", "Ip.OutDiscards"])?)
        },
    },
    DoctorRule {
        id: "UDP-03",
        goals: "T",
        at: At::Node,
        given: &[],
        inputs: &["Udp.MemErrors", "sysctl net.ipv4.udp_mem"],
        condition: "UDP's limit of memory was reached",
        meaning: "all sockets together hold too much",
        advice: Advice::Say("raise net.ipv4.udp_mem; faster readers"),
        effect: "",
        risk: "memory",
        source: "kernel, snmp.h",
        look: |look| any_moved(look, &["Udp.MemErrors"], 0.2),
    },
    DoctorRule {
        id: "UDP-04",
        goals: "T",
        at: At::Node,
        given: &[],
        inputs: &["Udp.NoPorts", "Udp.InDatagrams"],
        condition: "datagrams came to a port where nobody listens",
        meaning: "the receiver was not there for a part of the time",
        advice: Advice::Say("start the receiver first, stop it last"),
        effect: "",
        risk: "",
        source: "kernel, snmp.h",
        look: |look| {
            let (lost, read) = (look.moved("Udp.NoPorts")?, look.moved("Udp.InDatagrams")?);
            when(
                lost > 0.0,
                lost / (lost + read).max(1.0) / 2.0,
                format!("{} datagrams, {} were read", count(lost), count(read)),
            )
        },
    },
    DoctorRule {
        id: "UDP-05",
        goals: "T",
        at: At::Node,
        given: &[],
        inputs: &["Udp.OutDatagrams", "Udp.InDatagrams", "udp.syscalls"],
        condition: "about one system call for each datagram at over 100,000 datagrams/s",
        meaning: "the program spends its time in system calls",
        advice: Advice::Say("UDP_SEGMENT and UDP_GRO, sendmmsg and recvmmsg"),
        effect: "2 to 4 times the datagrams of a CPU",
        risk: "bursts on the wire",
        source: "general knowledge",
        look: |look| {
            let datagrams = look.per_s("Udp.OutDatagrams")? + look.per_s("Udp.InDatagrams")?;
            let calls = look.per_s("udp.syscalls")? / datagrams.max(1.0);
            when(
                datagrams > 100_000.0 && calls > 0.8,
                0.3,
                format!("{} datagrams/s, {calls:.2} system calls for each", count(datagrams)),
            )
        },
    },
    DoctorRule {
        id: "IP-01",
        goals: "R",
        at: At::Node,
        given: &[],
        inputs: &["TcpExt.IPReversePathFilter", "sysctl net.ipv4.conf.all.rp_filter"],
        condition: "the reverse path filter dropped datagrams",
        meaning: "routes are not symmetric: what comes another way is dropped",
        advice: Advice::Knob("sysctl net.ipv4.conf.all.rp_filter", "2"),
        effect: "they pass",
        risk: "forged sources pass, too",
        source: "kernel, snmp.h and ip-sysctl.rst",
        look: |look| {
            let (lost, mode) =
                (look.moved("TcpExt.IPReversePathFilter")?, look.text("sysctl net.ipv4.conf.all.rp_filter")?);
            when(lost > 0.0, 0.5, format!("{} datagrams dropped, conf.all.rp_filter {mode}", count(lost)))
        },
    },
    DoctorRule {
        id: "IP-02",
        goals: "M",
        at: At::Node,
        given: &[],
        inputs: &[
            "subnets.shared",
            "sysctl net.ipv4.conf.all.arp_filter",
            "sysctl net.ipv4.conf.all.arp_ignore",
        ],
        condition: "two interfaces in one subnet without arp_filter and arp_ignore",
        meaning: "each answers for the other: traffic comes in by the wrong card",
        advice: Advice::Knobs(&[
            ("sysctl net.ipv4.conf.all.arp_filter", "1"),
            ("sysctl net.ipv4.conf.all.arp_ignore", "1"),
        ]),
        effect: "traffic goes the way that is meant",
        risk: "",
        source: "i40e README",
        look: |look| {
            let shared = look.texts("subnets.shared")?;
            let filters = look.is_on("sysctl net.ipv4.conf.all.arp_filter")?
                || look.is_on("sysctl net.ipv4.conf.all.arp_ignore")?;
            let first = shared.first().map(|(subnet, names)| format!("{subnet}: {names}"));
            when(first.is_some() && !filters, 0.3, first.unwrap_or_default())
        },
    },
    DoctorRule {
        id: "IP-03",
        goals: "R",
        at: At::Node,
        given: &[],
        inputs: &["neighbours", "sysctl net.ipv4.neigh.default.gc_thresh3", "arp.table_fulls"],
        condition: "over 90 % of the neighbour table in use, or it overflowed",
        meaning: "datagrams wait for addresses that cannot be stored",
        advice: Advice::Knob("sysctl net.ipv4.neigh.default.gc_thresh3", "NEW"),
        effect: "",
        risk: "memory",
        source: "kernel, dropreason-core.h",
        look: |look| {
            let (now, limit) =
                (look.number("neighbours")?, look.number("sysctl net.ipv4.neigh.default.gc_thresh3")?);
            let full = look.moved("arp.table_fulls")?;
            becomes(
                now >= 0.9 * limit || full > 0.0,
                0.4,
                format!("{now} of {limit} neighbours, {} overflows", count(full)),
                limit * 4.0,
            )
        },
    },
    DoctorRule {
        id: "IP-04",
        goals: "R",
        at: At::Node,
        given: &[("conntrack", "there")],
        inputs: &["conntrack.count", "conntrack.max", "conntrack.drop", "conntrack.insert_failed"],
        condition: "over 90 % of the table of connections in use, or drops",
        meaning: "new flows are dropped",
        advice: Advice::Run(
            "sysctl net.netfilter.nf_conntrack_max=NEW",
            "sysctl net.netfilter.nf_conntrack_max={conntrack.max}",
        ),
        effect: "new flows pass; or NOTRACK for those that need none",
        risk: "memory",
        source: "netdata; Cloudflare",
        look: |look| {
            let (now, limit) = (look.number("conntrack.count")?, look.number("conntrack.max")?);
            let lost = look.moved("conntrack.drop")? + look.moved("conntrack.insert_failed")?;
            becomes(
                now >= 0.9 * limit && limit > 0.0 || lost > 0.0,
                0.4,
                format!("{now} of {limit} connections, {} lost", count(lost)),
                limit * 4.0,
            )
        },
    },
    DoctorRule {
        id: "IP-05",
        goals: "TR",
        at: At::Host,
        given: &[],
        inputs: &["perf.nft_share"],
        condition: "rules of a firewall take over 10 % of the soft interrupts",
        meaning: "every frame is matched against too many rules",
        advice: Advice::Say("NOTRACK, a flowtable, sets instead of lists, XDP"),
        effect: "more frames",
        risk: "security",
        source: "Cloudflare 2018-07",
        look: |look| {
            let share = look.number("perf.nft_share")?;
            let found = when(share > 0.1, share, format!("{} of the soft interrupts", percent(share)))?;
            Ok(found.map(|found| found.of_busiest(look)))
        },
    },
    DoctorRule {
        id: "IP-06",
        goals: "M",
        at: At::Node,
        given: &[],
        inputs: &["Ip.ReasmFails", "Ip.FragFails"],
        condition: "fragments could not be made or put together",
        meaning: "the test sends more than the MTU",
        advice: Advice::Say("send smaller messages"),
        effect: "",
        risk: "",
        source: "general knowledge",
        look: |look| any_moved(look, &["Ip.ReasmFails", "Ip.FragFails"], 0.3),
    },
    DoctorRule {
        id: "IP-07",
        goals: "T",
        at: At::Node,
        given: &[],
        inputs: &[
            "sysctl net.ipv4.ip_local_port_range",
            "TcpExt.TCPTimeWaitOverflow",
            "sockstat.tcp_timewait",
        ],
        condition: "TIME-WAIT overflowed, or holds over 90 % of the ports",
        meaning: "new connections run out of ports",
        advice: Advice::Knob("sysctl net.ipv4.ip_local_port_range", "1024 65535"),
        effect: "more connections; or net.ipv4.tcp_tw_reuse, more addresses",
        risk: "",
        source: "kernel, snmp.h",
        look: |look| {
            let range = look.text("sysctl net.ipv4.ip_local_port_range")?;
            let ends: Vec<f64> =
                range.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
            let ports = ends.last().copied().unwrap_or(0.0) - ends.first().copied().unwrap_or(0.0) + 1.0;
            let (waits, lost) =
                (look.number("sockstat.tcp_timewait")?, look.moved("TcpExt.TCPTimeWaitOverflow")?);
            when(
                lost > 0.0 || waits > 0.9 * ports,
                0.3,
                format!("{waits} of {ports} ports in TIME-WAIT, {} overflows", count(lost)),
            )
        },
    },
];
