//! The one table of knobs.
//!
//! **What.** A row for each knob: its name, where it is, what it can be set to, what a change of it risks, and how it is read and written
//! ([`Access`]). A `*` in a name stands for a part: a queue, an interrupt, a CPU, a feature, a route, the name of a sysctl.
//!
//! **Why.** One more knob is one more row here; how to read, set, read back, undo, list, save and document it follows from it.
//!
//! **Price.** What a change does to the link depends on the driver; a row says what the worst of them does.

use super::row::{Access, Kind, PART, Risk, Row, Where, knob};
use super::{down, queues, stamps};
use crate::netlink::settings::{CHANNELS, COALESCE, EEE, Group, PAUSE, RINGS};

const fn sysctl(name: &'static str, kind: Kind, meaning: &'static str) -> Row {
    knob(name, Where::Namespace, kind, Risk::Safe, Access::Sysctl, meaning)
}

const fn number(
    name: &'static str,
    group: Group,
    attribute: u16,
    most: u16,
    risk: Risk,
    unit: &'static str,
    meaning: &'static str,
) -> Row {
    knob(name, Where::Interface, Kind::Number(unit), risk, Access::Ethtool(group, attribute, most), meaning)
}

const fn switch(name: &'static str, group: Group, attribute: u16, risk: Risk, meaning: &'static str) -> Row {
    knob(name, Where::Interface, Kind::Switch, risk, Access::Ethtool(group, attribute, 0), meaning)
}

const fn moderation(name: &'static str, attribute: u16, unit: &'static str, meaning: &'static str) -> Row {
    number(name, COALESCE, attribute, 0, Risk::Safe, unit, meaning)
}

const fn queue(name: &'static str, kind: Kind, file: &'static str, meaning: &'static str) -> Row {
    knob(name, Where::Queue, kind, Risk::Safe, Access::Interface(file), meaning)
}

const fn metric(name: &'static str, kind: Kind, number: u16, per: u32, meaning: &'static str) -> Row {
    knob(name, Where::Route, kind, Risk::Safe, Access::Metric(number, per), meaning)
}

use Kind::{Cpus, Number, Numbers, Switch, Text};
use Risk::{LinkFlap, Safe, Security};

/// Three sizes of the buffer of a socket.
const SIZES: Kind = Numbers("least, usual and largest number of bytes");
const BYTES: Kind = Number("bytes");

/// Every setting that is ever changed. The names of sysctls come first that are known; any other is `sysctl *`.
#[rustfmt::skip] // a row is a line
pub static KNOBS: &[Row] = &[
    stamps::RECEIVE, stamps::TRANSMIT, queues::KNOB, down::KNOB,
    sysctl("sysctl net.core.rmem_max", BYTES, "the largest receive buffer that a program may ask for"),
    sysctl("sysctl net.core.wmem_max", BYTES, "the largest send buffer that a program may ask for"),
    sysctl("sysctl net.core.rmem_default", BYTES, "the receive buffer of sockets that ask for none; it counts for UDP too"),
    sysctl("sysctl net.core.wmem_default", BYTES, "the send buffer of sockets that ask for none"),
    sysctl("sysctl net.core.optmem_max", BYTES, "memory of a socket beside its buffers: filters, zero-copy notices"),
    sysctl("sysctl net.core.netdev_max_backlog", Number("frames"), "frames that wait for a CPU behind RPS, veth, loopback and tunnels"),
    sysctl("sysctl net.core.netdev_budget", Number("frames"), "frames that one round of polls may take"),
    sysctl("sysctl net.core.netdev_budget_usecs", Number("µs"), "time that one round of polls may take"),
    sysctl("sysctl net.core.dev_weight", Number("frames"), "frames that one poll of the backlog may take"),
    sysctl("sysctl net.core.dev_weight_rx_bias", Number(""), "factor of the weight on the receive side"),
    sysctl("sysctl net.core.netdev_tstamp_prequeue", Number(""), "1: a frame is stamped before RPS, 0: after it"),
    sysctl("sysctl net.core.rps_sock_flow_entries", Number("flows"), "RFS: flows whose program's CPU is known"),
    sysctl("sysctl net.core.busy_poll", Number("µs"), "busy poll: how long poll and select look at the queue themselves"),
    sysctl("sysctl net.core.busy_read", Number("µs"), "busy poll: how long a read looks at the queue itself"),
    sysctl("sysctl net.core.default_qdisc", Text("name of a qdisc"), "the qdisc of interfaces that come up from now on"),
    sysctl("sysctl net.core.somaxconn", Number("connections"), "the longest queue of connections that a program has not accepted"),
    sysctl("sysctl net.core.flow_limit_cpu_bitmap", Text("mask"), "CPUs whose backlog drops the largest flow first"),
    sysctl("sysctl net.ipv4.tcp_rmem", SIZES, "receive buffer of a TCP connection"),
    sysctl("sysctl net.ipv4.tcp_wmem", SIZES, "send buffer of a TCP connection"),
    sysctl("sysctl net.ipv4.tcp_mem", Numbers("three numbers of pages"), "memory of all TCP connections: easy, under pressure, most"),
    sysctl("sysctl net.ipv4.udp_mem", Numbers("three numbers of pages"), "memory of all UDP sockets: easy, under pressure, most"),
    sysctl("sysctl net.ipv4.tcp_congestion_control", Text("name"), "the congestion control of connections that ask for none"),
    sysctl("sysctl net.ipv4.tcp_timestamps", Number(""), "TCP timestamps: 1 on, 0 off"),
    sysctl("sysctl net.ipv4.tcp_sack", Number(""), "selective acknowledgements: 1 on, 0 off"),
    sysctl("sysctl net.ipv4.tcp_window_scaling", Number(""), "windows above 64 KiB: 1 on, 0 off"),
    sysctl("sysctl net.ipv4.tcp_ecn", Number(""), "explicit congestion notification: 0 never, 1 ask, 2 answer"),
    sysctl("sysctl net.ipv4.tcp_mtu_probing", Number(""), "search for the path's MTU: 0 never, 1 after a black hole, 2 always"),
    sysctl("sysctl net.ipv4.tcp_slow_start_after_idle", Number(""), "1: the window falls back after a pause"),
    sysctl("sysctl net.ipv4.tcp_notsent_lowat", BYTES, "unsent data above which a socket is not writable"),
    sysctl("sysctl net.ipv4.tcp_limit_output_bytes", BYTES, "what a connection may have in qdisc and driver"),
    sysctl("sysctl net.ipv4.tcp_no_metrics_save", Number(""), "1: nothing is remembered from one connection for the next"),
    sysctl("sysctl net.ipv4.tcp_max_syn_backlog", Number("connections"), "connections that are not complete yet"),
    sysctl("sysctl net.ipv4.tcp_fastopen", Number(""), "TCP Fast Open, a mask: 1 as client, 2 as server"),
    sysctl("sysctl net.ipv4.tcp_reordering", Number("segments"), "segments out of order that are not taken for a loss yet"),
    sysctl("sysctl net.ipv4.tcp_autocorking", Number(""), "1: small writes wait for others while segments are on their way"),
    sysctl("sysctl net.ipv4.ip_local_port_range", Text("first and last port"), "ports that a connection may come from"),
    sysctl("sysctl net.ipv4.fib_multipath_hash_policy", Number(""), "what spreads flows over next hops: 0 addresses, 1 ports too, 2 inner headers, 3 chosen fields"),
    sysctl("sysctl net.ipv4.ipfrag_high_thresh", BYTES, "memory of datagrams whose fragments are not complete"),
    sysctl("sysctl net.ipv4.udp_rmem_min", BYTES, "receive buffer that a UDP socket always has"),
    sysctl("sysctl net.netfilter.nf_conntrack_max", Number("connections"), "connections that the firewall remembers"),
    knob("sysctl kernel.numa_balancing", Where::Machine, Number(""), Safe, Access::Sysctl, "1: pages move to the CPUs that use them, which costs time now and then"),
    knob("sysctl vm.min_free_kbytes", Where::Machine, Number("KiB"), Safe, Access::Sysctl, "memory that is kept free for those who cannot wait: drivers"),
    knob("sysctl vm.swappiness", Where::Machine, Number(""), Safe, Access::Sysctl, "how gladly memory of programs is swapped out"),
    knob("sysctl *", Where::Namespace, Text("as the kernel writes it"), Security, Access::Sysctl, "any other setting below net., vm. or kernel. that can be read and written"),
    number("ring.rx", RINGS, 6, 2, LinkFlap, "frames", "slots of each receive ring"),
    number("ring.rx-mini", RINGS, 7, 3, LinkFlap, "frames", "slots of each ring of small frames"),
    number("ring.rx-jumbo", RINGS, 8, 4, LinkFlap, "frames", "slots of each ring of large frames"),
    number("ring.tx", RINGS, 9, 5, LinkFlap, "frames", "slots of each transmit ring"),
    switch("ring.tx-push", RINGS, 13, LinkFlap, "the driver writes descriptors to the device itself"),
    switch("ring.rx-push", RINGS, 14, LinkFlap, "the same on the receive side"),
    moderation("coalesce.rx-usecs", 2, "µs", "how long an interrupt waits for more received frames"),
    moderation("coalesce.rx-frames", 3, "frames", "received frames after which an interrupt comes at once"),
    moderation("coalesce.rx-usecs-irq", 4, "µs", "the same while an interrupt is handled"),
    moderation("coalesce.rx-frames-irq", 5, "frames", "the same while an interrupt is handled"),
    moderation("coalesce.tx-usecs", 6, "µs", "how long an interrupt waits for more sent frames"),
    moderation("coalesce.tx-frames", 7, "frames", "sent frames after which an interrupt comes at once"),
    moderation("coalesce.tx-usecs-irq", 8, "µs", "the same while an interrupt is handled"),
    moderation("coalesce.tx-frames-irq", 9, "frames", "the same while an interrupt is handled"),
    moderation("coalesce.stats-block-usecs", 10, "µs", "how often the driver reads its counters"),
    switch("coalesce.adaptive-rx", COALESCE, 11, Safe, "the driver chooses the receive values by the traffic"),
    switch("coalesce.adaptive-tx", COALESCE, 12, Safe, "the driver chooses the transmit values by the traffic"),
    moderation("coalesce.pkt-rate-low", 13, "frames/s", "below this rate the low values hold"),
    moderation("coalesce.rx-usecs-low", 14, "µs", "rx-usecs at a low rate"),
    moderation("coalesce.rx-frames-low", 15, "frames", "rx-frames at a low rate"),
    moderation("coalesce.tx-usecs-low", 16, "µs", "tx-usecs at a low rate"),
    moderation("coalesce.tx-frames-low", 17, "frames", "tx-frames at a low rate"),
    moderation("coalesce.pkt-rate-high", 18, "frames/s", "above this rate the high values hold"),
    moderation("coalesce.rx-usecs-high", 19, "µs", "rx-usecs at a high rate"),
    moderation("coalesce.rx-frames-high", 20, "frames", "rx-frames at a high rate"),
    moderation("coalesce.tx-usecs-high", 21, "µs", "tx-usecs at a high rate"),
    moderation("coalesce.tx-frames-high", 22, "frames", "tx-frames at a high rate"),
    moderation("coalesce.sample-interval", 23, "s", "how often the rate is measured"),
    switch("coalesce.cqe-mode-tx", COALESCE, 24, Safe, "the time of tx-usecs begins anew with each completion"),
    switch("coalesce.cqe-mode-rx", COALESCE, 25, Safe, "the time of rx-usecs begins anew with each completion"),
    moderation("coalesce.tx-aggr-max-bytes", 26, "bytes", "the largest aggregate that is sent"),
    moderation("coalesce.tx-aggr-max-frames", 27, "frames", "the most frames of an aggregate"),
    moderation("coalesce.tx-aggr-time-usecs", 28, "µs", "how long an aggregate waits"),
    number("channels.rx", CHANNELS, 6, 2, LinkFlap, "queues", "receive queues"),
    number("channels.tx", CHANNELS, 7, 3, LinkFlap, "queues", "transmit queues"),
    number("channels.other", CHANNELS, 8, 4, LinkFlap, "queues", "queues for other things"),
    number("channels.combined", CHANNELS, 9, 5, LinkFlap, "queues", "queues that receive and transmit"),
    switch("pause.autoneg", PAUSE, 2, LinkFlap, "whether both ends agree on pause frames"),
    switch("pause.rx", PAUSE, 3, LinkFlap, "pause frames of the other end are obeyed"),
    switch("pause.tx", PAUSE, 4, LinkFlap, "pause frames are sent when the ring is full"),
    switch("eee.enabled", EEE, 5, LinkFlap, "Energy-Efficient Ethernet: the link sleeps between frames"),
    switch("eee.tx-lpi", EEE, 6, LinkFlap, "this end sends the link to sleep"),
    number("eee.tx-timer", EEE, 7, 0, LinkFlap, "µs", "how long before it does"),
    knob("feature.*", Where::Interface, Switch, Safe, Access::Feature, "an offload or other feature by the kernel's name: tx-tcp-segmentation, rx-gro, …"),
    knob("rss.table", Where::Interface, Text("queues 0,1,0,1,… or equal N"), Safe, Access::HashTable, "which queue the frames of a hash go to"),
    knob("rss.key", Where::Interface, Text("bytes 6d:5a:…"), Safe, Access::HashKey, "the key of the hash"),
    knob("rss.fields.*", Where::Interface, Text("letters of sdfnvtmer"), Safe, Access::HashFields, "what is hashed of tcp4, udp4, sctp4, tcp6, udp6, sctp6, ip4, ip6: s, d addresses, f, n ports, v VLAN, t protocol"),
    knob("mtu", Where::Interface, Number("bytes"), LinkFlap, Access::Link(4), "the largest datagram"),
    knob("txqueuelen", Where::Interface, Number("frames"), Safe, Access::Link(13), "frames that a simple qdisc lets wait"),
    knob("qdisc", Where::Interface, Text("kind, or default"), Safe, Access::Root, "the qdisc at the root; one with classes or filters is left alone"),
    knob("threaded", Where::Interface, Number(""), Safe, Access::Interface("threaded"), "1: threads poll in place of soft interrupts"),
    knob("napi_defer_hard_irqs", Where::Interface, Number("polls"), Safe, Access::Interface("napi_defer_hard_irqs"), "empty polls before interrupts are on again"),
    knob("gro_flush_timeout", Where::Interface, Number("ns"), Safe, Access::Interface("gro_flush_timeout"), "how long polls and merged frames wait for more"),
    queue("rps_cpus@*", Cpus, "queues/*/rps_cpus", "RPS: CPUs that take the frames of a receive queue"),
    queue("rps_flow_cnt@*", Number("flows"), "queues/*/rps_flow_cnt", "RFS: flows that a receive queue remembers"),
    queue("xps_cpus@*", Cpus, "queues/*/xps_cpus", "XPS: CPUs that send by a transmit queue"),
    queue("xps_rxqs@*", Cpus, "queues/*/xps_rxqs", "XPS: receive queues whose answers leave by a transmit queue"),
    knob("irq.affinity@*", Where::Interrupt, Cpus, Safe, Access::Machine("/proc/irq/*/smp_affinity_list"), "CPUs that take an interrupt, which has a number or a name; local: those beside its device"),
    knob("cpu.governor@*", Where::Cpu, Text("name"), Safe, Access::Machine("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"), "what chooses the clock of a CPU: performance, schedutil, …"),
    knob("cpu.cstate-limit-us", Where::Machine, Number("µs"), Safe, Access::Latency, "the longest time in which a CPU may wake up; only tune hold can set it"),
    metric("route.mtu@*", Number("bytes"), 2, 1, "the largest datagram on a route"),
    metric("route.window@*", Number("bytes"), 3, 1, "the largest window that is offered"),
    metric("route.rtt@*", Number("ms"), 4, 8, "round-trip time that a connection begins with"),
    metric("route.rttvar@*", Number("ms"), 5, 4, "its variation"),
    metric("route.cwnd@*", Number("segments"), 7, 1, "the largest congestion window"),
    metric("route.advmss@*", Number("bytes"), 8, 1, "the segment size that is offered"),
    metric("route.initcwnd@*", Number("segments"), 11, 1, "the congestion window that a connection begins with"),
    metric("route.rto_min@*", Number("ms"), 13, 1, "the shortest time before a segment is sent again"),
    metric("route.initrwnd@*", Number("segments"), 14, 1, "the receive window that a connection begins with"),
    metric("route.quickack@*", Number(""), 15, 1, "1: every segment is acknowledged at once"),
    metric("route.congctl@*", Text("name"), 16, 0, "the congestion control of connections on a route"),
];

/// The row of a name and the part that it speaks of: a name that stands there as it is comes first.
pub fn row(name: &str) -> Option<(&'static Row, String)> {
    let whole = KNOBS.iter().find(|row| row.name == name && !name.contains(PART));
    whole.map(|row| (row, whole_part(row))).or_else(|| {
        KNOBS.iter().find_map(|row| {
            let (before, after) = row.name.split_once(PART)?;
            let part = name.strip_prefix(before)?.strip_suffix(after)?;
            (!part.is_empty()).then(|| (row, part.to_owned()))
        })
    })
}

/// Whether the part of a name is a `*` that stands for each queue or CPU that there is.
pub(super) fn is_each(row: &Row, part: &str) -> bool {
    part.chars().eq([PART]) && matches!(row.place, Where::Queue | Where::Cpu)
}

/// Whether a name means a knob: it is the knob's own, or has a `*` for each queue or CPU.
pub fn means(name: &str, knob: &str) -> bool {
    let is_same = |(each, part): (&Row, String)| {
        is_each(each, &part) && row(knob).is_some_and(|(row, _)| std::ptr::eq(row, each))
    };
    name == knob || row(name).is_some_and(is_same)
}

/// The part of a name without one: of a sysctl its own name.
fn whole_part(row: &Row) -> String {
    row.name.strip_prefix("sysctl ").unwrap_or_default().to_owned()
}
