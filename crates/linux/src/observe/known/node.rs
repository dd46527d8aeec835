//! Facts of a namespace: its settings, protocol counters, connections, neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use record::facts::{Fact, Known};
use record::snapshot::Counters;

use super::files::{count, settings, text, word};
use crate::netlink::{Netlink, after, u32_at};
use crate::observe::{TcpSockets, neighbours, protocols, sockets, tcp_sockets};

/// Settings that a namespace has for itself, or shows.
const SETTINGS: [&str; 26] = [
    "net.core.rmem_max",
    "net.core.rmem_default",
    "net.core.wmem_max",
    "net.core.somaxconn",
    "net.core.busy_read",
    "net.core.busy_poll",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_comp_sack_nr",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.all.arp_filter",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.tcp_mtu_probing",
];

/// Texts that are kept as they are.
pub(super) const TEXTS: [&str; 5] = ["snmp", "netstat", "snmp6", "sockstat", "softnet_stat"];

/// Reads them in the namespace of the calling thread.
pub(super) fn read(netlink: &mut Netlink, names: &BTreeMap<u32, String>) -> Known {
    let root = Path::new("/");
    let mut known = settings(root, &SETTINGS);
    // A setting that a namespace does not show is the host's.
    known.retain(|_, fact| fact.why_unknown().is_none());
    known.extend(protocol_counters(root));
    known.extend(sockstat(root));
    known.extend(conntrack(root));
    known.extend(connections());
    known.insert("subnets.shared".into(), shared_subnets(root));
    known.insert("udp.socket_drops".into(), udp_drops(root));
    let found = netlink.dump(&neighbours::DUMP, |message| neighbours::parse(message, names));
    let number = found.map(|all| Fact::Number(all.len() as f64));
    known.insert("neighbours".into(), number.unwrap_or_else(|error| Fact::unknown(error.to_string())));
    known.insert("arp.table_fulls".into(), column(root, "arp_cache", "table_fulls"));
    known
}

fn net(root: &Path, name: &str) -> std::path::PathBuf {
    root.join("proc/thread-self/net").join(name)
}

/// Counters of IP, ICMP, UDP and TCP. One that the kernel does not have is not among them.
fn protocol_counters(root: &Path) -> Known {
    let mut counters = Counters::new();
    for name in ["snmp", "netstat"] {
        protocols::parse_pairs(&text(&net(root, name)).unwrap_or_default(), &mut counters);
    }
    counters.into_iter().map(|(name, value)| (name, count(value))).collect()
}

fn sockstat(root: &Path) -> Known {
    let all = text(&net(root, "sockstat"));
    let number = |name: &str| match &all {
        Ok(text) => sockstat_number(text, name)
            .map_or_else(|| Fact::unknown("sockstat does not have it"), Fact::Number),
        Err(why) => Fact::unknown(why),
    };
    Known::from([
        ("sockstat.tcp_mem_pages".into(), number("mem")),
        ("sockstat.tcp_timewait".into(), number("tw")),
    ])
}

/// A number of the line of TCP.
fn sockstat_number(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP: "))?;
    let mut words = line.split(' ').skip_while(|word| *word != name);
    words.nth(1)?.parse().ok()
}

/// Whether connections are tracked, how many there are and may be, and what was lost.
fn conntrack(root: &Path) -> Known {
    let at = |name: &str| root.join("proc/sys/net/netfilter").join(name);
    let there = at("nf_conntrack_max").exists();
    Known::from([
        ("conntrack".into(), Fact::Text(if there { "there" } else { "not loaded" }.into())),
        ("conntrack.count".into(), word(&at("nf_conntrack_count"))),
        ("conntrack.max".into(), word(&at("nf_conntrack_max"))),
        ("conntrack.drop".into(), column(root, "nf_conntrack", "drop")),
        ("conntrack.insert_failed".into(), column(root, "nf_conntrack", "insert_failed")),
    ])
}

/// The sum over CPUs of a column of `/proc/net/stat/NAME`, whose first line has the names and whose numbers are hexadecimal.
fn column(root: &Path, file: &str, name: &str) -> Fact {
    let sum = |text: &str| {
        let mut lines = text.lines();
        let place = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
        let value = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(place)?, 16).ok();
        lines.map(value).sum::<Option<u64>>()
    };
    match text(&net(root, &format!("stat/{file}"))) {
        Ok(text) => sum(&text).map_or_else(|| Fact::unknown(format!("{file} has no {name}")), count),
        Err(why) => Fact::unknown(why),
    }
}

/// Subnets that two interfaces have, with the names of those.
fn shared_subnets(root: &Path) -> Fact {
    let table = match text(&net(root, "route")) {
        Ok(text) => text,
        Err(why) => return Fact::unknown(why),
    };
    Fact::each(shared(&table).into_iter().map(|(subnet, names)| (subnet, Fact::Text(names))))
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask …`, addresses in hexadecimal of the host's order.
fn shared(table: &str) -> Vec<(String, String)> {
    let mut at: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for line in table.lines().skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, to, "00000000", _, _, _, _, mask, ..] = words[..] else { continue };
        let hex = |word: &str| u32::from_str_radix(word, 16).ok();
        if let (Some(to), Some(mask)) = (hex(to), hex(mask)).to_owned()
            && to != 0
        {
            let subnet = format!("{}/{}", std::net::Ipv4Addr::from(to.to_ne_bytes()), mask.count_ones());
            at.entry(subnet).or_default().insert(name);
        }
    }
    at.retain(|_, names| names.len() > 1);
    at.into_iter().map(|(subnet, names)| (subnet, names.into_iter().collect::<Vec<_>>().join(" "))).collect()
}

fn udp_drops(root: &Path) -> Fact {
    let read = |protocol: &str| text(&net(root, protocol)).map(|text| sockets::parse(protocol, &text));
    let all = match (read("udp"), read("udp6")) {
        (Ok(four), Ok(six)) => four.into_iter().chain(six).collect::<Vec<_>>(),
        (Ok(four), Err(_)) => four,
        (Err(why), _) => return Fact::unknown(why),
    };
    let place = |one: &record::snapshot::SocketSample| {
        format!("{} port {} ({})", one.protocol, one.local_port, one.inode)
    };
    Fact::each(all.iter().map(|one| (place(one), count(one.drops))).collect::<Vec<_>>())
}

/// Bit of the established state.
const ESTABLISHED: u32 = 1 << 1;
/// `INET_DIAG_SKMEMINFO`, and in it the buffers (`SK_MEMINFO_RCVBUF`, `SK_MEMINFO_SNDBUF`).
const MEMORY: u16 = 7;
const BUFFERS: [(&str, usize); 2] = [("tcp.rcvbuf", 4), ("tcp.sndbuf", 12)];
/// Counters of a connection: the fact, the field of `tcp_info`.
const COUNTERS: [(&str, &str); 10] = [
    ("tcp.busy_us", "busy_time"),
    ("tcp.rwnd_limited_us", "rwnd_limited"),
    ("tcp.sndbuf_limited_us", "sndbuf_limited"),
    ("tcp.bytes_sent", "bytes_sent"),
    ("tcp.bytes_retrans", "bytes_retrans"),
    ("tcp.reord_seen", "reord_seen"),
    ("tcp.rcv_ooopack", "rcv_ooopack"),
    ("tcp.segs_out", "segs_out"),
    ("tcp.segs_in", "segs_in"),
    ("tcp.data_segs_out", "data_segs_out"),
];
/// Values of a connection: the fact, the field, what one of its units is of the fact's.
const VALUES: [(&str, &str, f64); 8] = [
    ("tcp.rtt_us", "rtt", 1.0),
    ("tcp.min_rtt_us", "min_rtt", 1.0),
    ("tcp.mss", "snd_mss", 1.0),
    ("tcp.cwnd", "snd_cwnd", 1.0),
    ("tcp.notsent_bytes", "notsent_bytes", 1.0),
    ("tcp.delivery_bps", "delivery_rate", 8.0),
    ("tcp.rto_ms", "rto", 0.001),
    ("tcp.last_send_ms", "last_data_sent", 1.0),
];
/// `TCPI_OPT_WSCALE`.
const WINDOW_SCALE: u64 = 4;

/// Every connection of the namespace.
fn connections() -> Known {
    let names = COUNTERS.iter().map(|(name, _)| *name).chain(VALUES.iter().map(|(name, ..)| *name));
    let names = names.chain(BUFFERS.iter().map(|(name, _)| *name)).chain(["tcp.wscale", "tcp.congestion"]);
    match TcpSockets::here("", ESTABLISHED).and_then(|mut sockets| sockets.read()) {
        Ok(all) => {
            let mut known: BTreeMap<&str, BTreeMap<String, Fact>> =
                names.map(|name| (name, BTreeMap::new())).collect();
            all.iter().for_each(|one| connection(one, &mut known));
            known.into_iter().map(|(name, each)| (name.to_owned(), Fact::Each { each })).collect()
        }
        Err(error) => names
            .map(|name| (name.to_owned(), Fact::unknown(format!("connections cannot be listed: {error}"))))
            .collect(),
    }
}

fn connection(one: &record::connection::Reading, known: &mut BTreeMap<&str, BTreeMap<String, Fact>>) {
    let place = format!("{} → {}", plain(one.connection.local), plain(one.connection.peer));
    let told = tcp_sockets::describe(&one.attributes);
    let mut know = |name: &str, fact: Fact| {
        known.get_mut(name).map(|each| each.insert(place.clone(), fact));
    };
    let absent = |field: &str| Fact::unknown(format!("this kernel's tcp_info has no {field}"));
    for (name, field) in COUNTERS {
        know(name, told.info.get(field).map_or_else(|| absent(field), |value| count(*value)));
    }
    for (name, field, unit) in VALUES {
        let value = told.info.get(field).map(|value| Fact::Number(*value as f64 * unit));
        know(name, value.unwrap_or_else(|| absent(field)));
    }
    let memory = after(&one.attributes, 0).get(MEMORY);
    for (name, at) in BUFFERS {
        let bytes = memory.and_then(|memory| u32_at(memory, at)).map(|bytes| Fact::Number(f64::from(bytes)));
        know(name, bytes.unwrap_or_else(|| absent("memory")));
    }
    let options = told.info.get("options").map(|options| Fact::Flag(options & WINDOW_SCALE != 0));
    know("tcp.wscale", options.unwrap_or_else(|| absent("options")));
    know("tcp.congestion", told.congestion.map_or_else(|| absent("name of congestion control"), Fact::Text));
}

/// An end as people know it: a server that listens for both versions of IP has its IPv4 peers at mapped addresses (RFC 4291 section 2.5.5.2).
fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUTES: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        eth1\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";

    #[test]
    fn two_interfaces_in_one_subnet_are_seen() {
        assert_eq!(shared(ROUTES), [("10.0.0.0/24".to_owned(), "eth0 eth1".to_owned())]);
        assert_eq!(sockstat_number("TCP: inuse 1 orphan 0 tw 7 alloc 9 mem 3\nUDP: mem 5", "mem"), Some(3.0));
    }

    #[test]
    fn a_mapped_end_is_told_as_ipv4() {
        let told = |text: &str| plain(text.parse().unwrap()).to_string();
        assert_eq!(told("[::ffff:10.0.0.2]:5300"), "10.0.0.2:5300");
        assert_eq!([told("[fd00::2]:53"), told("10.0.0.1:9")], ["[fd00::2]:53", "10.0.0.1:9"]);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "([a-z0-9\t ]{0,40}\n){0,4}") {
            let _ = (shared(&text), sockstat_number(&text, "mem"));
        }
    }
}
