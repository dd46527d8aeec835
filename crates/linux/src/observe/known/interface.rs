//! Facts of an interface: what netlink, ethtool and sysfs keep of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use record::facts::{Fact, Known};
use record::snapshot::{LinkSample, QdiscSample, TC_ROOT};

use super::device;
use super::files::{count, counter, numbered, text, word, words};
use crate::netlink::settings::{CHANNELS, COALESCE, EEE, Group, PAUSE, RINGS, RSS};
use crate::netlink::{Attributes, Dump, Netlink, Prefix, after, u32_at};
use crate::observe::page_pools::{self, PoolPages};
use crate::observe::{links, llstat, pause};
use crate::sys::packet;

/// A setting of a group: the fact, the attribute (`include/uapi/linux/ethtool_netlink.h`), and whether it is on or off.
type Setting = (&'static str, u16, bool);
/// Settings by group.
const SETTINGS: [(Group, &[Setting]); 6] = [
    (
        RINGS,
        &[("ring.rx-max", 2, false), ("ring.tx-max", 5, false), ("ring.rx", 6, false), ("ring.tx", 9, false)],
    ),
    (
        CHANNELS,
        &[
            ("channels.combined-max", 5, false),
            ("channels.rx", 6, false),
            ("channels.tx", 7, false),
            ("channels.combined", 9, false),
        ],
    ),
    (
        COALESCE,
        &[
            ("coalesce.rx-usecs", 2, false),
            ("coalesce.rx-frames", 3, false),
            ("coalesce.tx-usecs", 6, false),
            ("coalesce.adaptive-rx", 11, true),
            ("coalesce.adaptive-tx", 12, true),
        ],
    ),
    (PAUSE, &[("pause.autoneg", 2, true), ("pause.rx", 3, true), ("pause.tx", 4, true)]),
    (EEE, &[("eee.active", 4, true), ("eee.enabled", 5, true)]),
    (RSS, &[("rss.function", 3, false), ("rss.input-transformation", 6, false)]),
];
/// Features that rules ask for; one that an interface does not know is off for good.
const FEATURES: [&str; 10] = [
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
    "tx-checksum-ipv4",
    "tx-checksum-ip-generic",
    "tx-nocache-copy",
    "tx-vlan-hw-insert",
    "rx-checksum",
    "rx-gro",
    "rx-lro",
];
/// What nothing here measures, and why.
const UNMEASURED: [(&str, &str); 5] = [
    ("polls.full_run", "interrupts and polls were not timed"),
    ("stall.p99_us", "interrupts and polls were not timed"),
    ("stall.most_us", "interrupts and polls were not timed"),
    ("arrivals.at_period_share", "interrupts and polls were not timed"),
    ("mtu.other", "the other end of the link is not among the nodes"),
];

/// A link with what else its message tells.
pub(super) struct Link {
    pub sample: LinkSample,
    pub max_mtu: Option<u32>,
    /// The link below or at the other end (`IFLA_LINK`), and whether that is in another namespace.
    pub below: Option<(u32, bool)>,
    xdp: u8,
}

const IFLA_LINK: u16 = 5;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_XDP_ATTACHED: u16 = 2;
/// `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;

/// All links of the namespace.
pub(super) fn list(netlink: &mut Netlink) -> std::io::Result<Vec<Link>> {
    let dump = Dump { family: links::DUMP.family, kind: links::DUMP.kind, body: links::DUMP.body };
    netlink.dump(&dump, link)
}

fn link(message: &[u8]) -> Option<Link> {
    let attributes = after(message, HEADER_BYTES);
    let number = |number| attributes.get(number).and_then(|content| u32_at(content, 0));
    let xdp =
        attributes.get(IFLA_XDP).and_then(|all| Attributes(all).get(IFLA_XDP_ATTACHED)?.first().copied());
    Some(Link {
        sample: links::parse(message)?,
        max_mtu: number(IFLA_MAX_MTU),
        below: number(IFLA_LINK).map(|below| (below, attributes.get(IFLA_LINK_NETNSID).is_some())),
        xdp: xdp.unwrap_or(0),
    })
}

/// Everything of the namespace that its interfaces need.
pub(super) struct Around<'a> {
    pub links: &'a [Link],
    pub qdiscs: &'a [QdiscSample],
    pub sysfs: Result<PathBuf, String>,
    pub taps: Result<String, String>,
    /// Each with the number of its interface.
    pub addresses: Result<Vec<(u32, Prefix)>, String>,
    pub interrupts: &'a [record::llstat::InterruptCount],
}

/// Reads one.
pub(super) fn read(netlink: &mut Netlink, link: &Link, around: &Around<'_>) -> Known {
    let sample = &link.sample;
    let mut known: Known =
        UNMEASURED.iter().map(|(name, why)| ((*name).to_owned(), Fact::unknown(*why))).collect();
    known.extend(of_link(link, around));
    known.extend(of_qdiscs(&sample.name, &sample.qdisc, around.qdiscs));
    known.extend(settings(netlink, sample.index));
    known.extend(features(netlink, sample.index, "feature."));
    let kind = kind(link, around);
    match &around.sysfs {
        Ok(root) => {
            let folder = root.join("class/net").join(&sample.name);
            known.extend(of_sysfs(&folder));
            known.extend(device::read(netlink, &folder, kind == "card", &sample.name, around.interrupts));
            if kind == "bond" {
                known.extend(bond(&folder, around));
            }
        }
        Err(why) => {
            for name in
                ["speed_mbps", "duplex", "queues.rx", "queues.tx", "rps_cpus", "xps_cpus", "tx_timeout"]
            {
                known.insert(name.into(), Fact::unknown(format!("no /sys of the namespace: {why}")));
            }
        }
    }
    if kind == "card" {
        known.insert("speed.max_mbps".into(), common_speed(netlink, sample.index));
        known.extend(pool_pages(netlink, sample.index));
        let paused = pause::read(netlink, sample.index, &sample.name);
        let paused = paused.map_or_else(Fact::unknown, |(received, _)| count(received));
        known.insert("pause.frames_received".into(), paused);
    }
    if kind == "vlan" {
        known.extend(lower(netlink, link, around));
    }
    known.insert("kind".into(), Fact::Text(kind));
    known.insert("stamps.hardware".into(), stamps(&sample.name));
    known.entry("phc.offset_ns".into()).or_insert_with(|| Fact::unknown("it has no clock"));
    known
}

/// `card` for what has a device, else the kernel's kind.
fn kind(link: &Link, around: &Around<'_>) -> String {
    let name = &link.sample.name;
    let device = |root: &PathBuf| root.join("class/net").join(name).join("device").exists();
    match (link.sample.kind.as_str(), around.sysfs.as_ref().is_ok_and(device)) {
        ("", true) => "card".into(),
        ("", false) if name == "lo" => "loopback".into(),
        ("", false) => "other".into(),
        (kind, _) => kind.to_owned(),
    }
}

fn of_link(link: &Link, around: &Around<'_>) -> Known {
    let sample = &link.sample;
    let stats = sample.counters.iter().map(|(name, value)| (format!("stats.{name}"), count(*value)));
    let master = around.links.iter().find(|other| other.sample.index == sample.master && sample.master != 0);
    let attached = ["none", "driver", "generic", "hardware", "several"];
    let taps = around.taps.as_ref().map(|text| Fact::Number(f64::from(taps(text, &sample.name))));
    let mut known: Known = stats.collect();
    known.extend([
        ("mtu".into(), Fact::Number(sample.mtu.into())),
        (
            "mtu.max".into(),
            link.max_mtu
                .map_or_else(|| Fact::unknown("the kernel does not tell"), |mtu| Fact::Number(mtu.into())),
        ),
        ("txqueuelen".into(), Fact::Number(sample.tx_queue_len.into())),
        ("master".into(), Fact::Text(master.map_or("none", |master| &master.sample.name).to_owned())),
        ("carrier.changes".into(), count(sample.carrier_changes)),
        ("xdp".into(), Fact::Text((*attached.get(usize::from(link.xdp)).unwrap_or(&"several")).to_owned())),
        ("taps".into(), taps.unwrap_or_else(Fact::unknown)),
        ("addresses".into(), addresses(sample.index, around)),
        ("link.index".into(), Fact::Number(sample.index.into())),
    ]);
    if let Some((below, true)) = link.below.filter(|_| sample.kind == "veth") {
        known.insert("link.other".into(), Fact::Number(below.into()));
    }
    known
}

/// Its addresses with the lengths of their prefixes, a blank between two.
fn addresses(index: u32, around: &Around<'_>) -> Fact {
    let own = |all: &Vec<(u32, Prefix)>| {
        let own = all.iter().filter(|(of, _)| *of == index).map(|(_, prefix)| prefix.to_string());
        Fact::Text(own.collect::<Vec<_>>().join(" "))
    };
    around.addresses.as_ref().map_or_else(Fact::unknown, own)
}

/// Taps of all frames (`ALL`) at an interface or at all, from `/proc/net/ptype`.
fn taps(text: &str, interface: &str) -> u32 {
    let taps = text.lines().filter(|line| line.starts_with("ALL"));
    let here = |line: &&str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // Without an interface the second word is the function.
        words.len() < 3 || words[1] == interface
    };
    taps.filter(here).count() as u32
}

fn of_qdiscs(name: &str, root_kind: &str, all: &[QdiscSample]) -> Known {
    let own: Vec<&QdiscSample> = all.iter().filter(|qdisc| qdisc.interface == name).collect();
    let root = own.iter().find(|qdisc| qdisc.parent == TC_ROOT);
    let of = |part: fn(&QdiscSample) -> u64| root.map_or(0, |root| part(root));
    let mut kinds: Vec<&str> = own.iter().map(|qdisc| qdisc.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    Known::from([
        ("qdisc.kind".into(), Fact::Text(root.map_or(root_kind, |root| &root.kind).to_owned())),
        (
            "qdisc.kinds".into(),
            Fact::Text(if kinds.is_empty() { root_kind.to_owned() } else { kinds.join(" ") }),
        ),
        ("qdisc.packets".into(), count(of(|root| root.packets))),
        ("qdisc.drops".into(), count(of(|root| root.drops))),
        ("qdisc.requeues".into(), count(of(|root| root.requeues))),
        ("qdisc.backlog_bytes".into(), Fact::Number(of(|root| root.backlog_bytes) as f64)),
    ])
}

/// What ethtool's groups have; an attribute that a driver leaves out is unknown.
fn settings(netlink: &mut Netlink, index: u32) -> Known {
    let mut known = Known::new();
    for (group, rows) in SETTINGS {
        let told = netlink.settings(group, index).map_err(|refusal| match refusal.errno {
            Some(libc::EOPNOTSUPP) => "the driver does not have it".to_owned(),
            _ => refusal.to_string(),
        });
        for (name, number, is_switch) in rows {
            let fact = match &told {
                // Of moderation the kernel tells all that the driver has (`coalesce_fill_reply`, net/ethtool/coalesce.c).
                Ok(bytes) if group == COALESCE && *is_switch && Attributes(bytes).get(*number).is_none() => {
                    Fact::Text("off (fixed)".into())
                }
                Ok(bytes) => setting(Attributes(bytes).get(*number), *is_switch),
                Err(why) => Fact::unknown(why),
            };
            known.insert((*name).to_owned(), fact);
        }
    }
    known.insert("rss.symmetric".into(), symmetric(known.get("rss.input-transformation")));
    known
}

fn setting(content: Option<&[u8]>, is_switch: bool) -> Fact {
    let absent = || Fact::unknown("the driver does not tell");
    match content {
        Some([value]) if is_switch => Fact::Flag(*value != 0),
        Some(bytes) => u32_at(bytes, 0).map_or_else(absent, |value| Fact::Number(value.into())),
        None => absent(),
    }
}

/// `RXH_XFRM_SYM_XOR`, `RXH_XFRM_SYM_OR_XOR`.
fn symmetric(transformation: Option<&Fact>) -> Fact {
    match transformation {
        Some(Fact::Number(bits)) => Fact::Flag(*bits as u32 & 3 != 0),
        other => other.cloned().unwrap_or_else(|| Fact::unknown("the driver does not tell")),
    }
}

fn features(netlink: &mut Netlink, index: u32, begin: &str) -> Known {
    let name = |feature: &str| format!("{begin}{feature}");
    match netlink.features(index) {
        Ok(all) => {
            let fixed = FEATURES.iter().filter(|feature| !all.contains_key(**feature));
            let fixed = fixed.map(|feature| (name(feature), Fact::Text("off (fixed)".into())));
            let found = all.iter().map(|(feature, state)| match (state.active, state.changeable) {
                (true, false) => (name(feature), Fact::Text("on (fixed)".into())),
                (false, false) => (name(feature), Fact::Text("off (fixed)".into())),
                (active, true) => (name(feature), Fact::Flag(active)),
            });
            fixed.chain(found).collect()
        }
        Err(refusal) => {
            FEATURES.iter().map(|feature| (name(feature), Fact::unknown(refusal.to_string()))).collect()
        }
    }
}

/// Queues, their masks and limits, and the rate.
fn of_sysfs(folder: &Path) -> Known {
    let queues = folder.join("queues");
    let (receive, transmit) = (numbered(&queues, "rx-"), numbered(&queues, "tx-"));
    let each = |names: &[(u32, String)], file: &str, of: fn(&Path) -> Fact| {
        Fact::each(
            names
                .iter()
                .map(|(_, name)| (name.clone(), of(&queues.join(name).join(file))))
                .collect::<Vec<_>>(),
        )
    };
    // The kernel answers ENOENT where there is one queue: there is nothing to map.
    let map = |path: &Path| if transmit_is_one(path) { Fact::Text("0".into()) } else { words(path) };
    let maps = transmit.iter().map(|(_, name)| (name.clone(), map(&queues.join(name).join("xps_cpus"))));
    let limits = llstat::queue_limits(&queues);
    let limit = |of: fn(&record::llstat::QueueLimit) -> u64| {
        Fact::each(
            limits
                .iter()
                .map(|one| (format!("tx-{}", one.queue), Fact::Number(of(one) as f64)))
                .collect::<Vec<_>>(),
        )
    };
    Known::from([
        ("queues.rx".into(), Fact::Number(receive.len() as f64)),
        ("queues.tx".into(), Fact::Number(transmit.len() as f64)),
        ("rps_cpus".into(), each(&receive, "rps_cpus", words)),
        ("rps_flow_cnt".into(), each(&receive, "rps_flow_cnt", word)),
        ("xps_cpus".into(), Fact::each(maps.collect::<Vec<_>>())),
        ("tx_timeout".into(), each(&transmit, "tx_timeout", counter)),
        ("bql.limit_bytes".into(), limit(|one| one.limit_bytes)),
        ("bql.inflight_bytes".into(), limit(|one| one.inflight_bytes)),
        ("napi_defer_hard_irqs".into(), word(&folder.join("napi_defer_hard_irqs"))),
        ("gro_flush_timeout".into(), word(&folder.join("gro_flush_timeout"))),
        ("threaded".into(), word(&folder.join("threaded"))),
        ("duplex".into(), words(&folder.join("duplex"))),
        ("speed_mbps".into(), speed(&folder.join("speed"))),
    ])
}

/// True where a map cannot be read because there is one transmit queue only.
fn transmit_is_one(map: &Path) -> bool {
    let folder = map.parent().and_then(Path::parent);
    folder.is_some_and(|folder| numbered(folder, "tx-").len() == 1)
}

fn speed(path: &Path) -> Fact {
    match text(path).map(|text| text.parse::<f64>()) {
        Ok(Ok(speed)) if speed > 0.0 => Fact::Number(speed),
        Ok(_) => Fact::unknown("the driver tells no speed"),
        Err(_) => Fact::unknown("the link has no speed: it is down, or it has none"),
    }
}

/// Pages for what the card receives.
fn pool_pages(netlink: &mut Netlink, index: u32) -> Known {
    let pages = page_pools::read(netlink, index);
    let of = |part: fn(&PoolPages) -> u64| match &pages {
        Ok(pages) => count(part(pages)),
        Err(why) => Fact::unknown(why.clone()),
    };
    Known::from([
        ("page_pool.fast".into(), of(|pages| pages.fast)),
        ("page_pool.slow".into(), of(|pages| pages.slow)),
    ])
}

/// What both ends of the link can.
fn common_speed(netlink: &mut Netlink, index: u32) -> Fact {
    match netlink.common_speed(index) {
        Ok(Some(speed)) => Fact::Number(speed.into()),
        Ok(None) => Fact::unknown("the driver does not tell what the other end offers"),
        Err(error) => Fact::unknown(format!("the modes of the link cannot be read: {error}")),
    }
}

/// What is below a VLAN.
fn lower(netlink: &mut Netlink, link: &Link, around: &Around<'_>) -> Known {
    let index = link.below.filter(|(_, away)| !away).map(|(index, _)| index);
    let Some(lower) = around.links.iter().find(|other| Some(other.sample.index) == index) else {
        let why = || Fact::unknown("what is below is in another namespace");
        return ["mtu", "tx-tcp-segmentation", "tx-vlan-hw-insert"]
            .map(|name| (format!("lower.{name}"), why()))
            .into();
    };
    let mut known = features(netlink, lower.sample.index, "lower.");
    known.insert("lower.mtu".into(), Fact::Number(lower.sample.mtu.into()));
    known
}

/// The ports of a bond and how it uses them.
fn bond(folder: &Path, around: &Around<'_>) -> Known {
    let own = folder.join("bonding");
    // `balance-rr 0`: the word and its number.
    let first = |name: &str| match text(&own.join(name)) {
        Ok(text) => Fact::Text(text.split(' ').next().unwrap_or_default().to_owned()),
        Err(why) => Fact::unknown(why),
    };
    let names = text(&own.join("slaves")).unwrap_or_default();
    let ports: Vec<&Link> =
        around.links.iter().filter(|link| names.split(' ').any(|name| name == link.sample.name)).collect();
    let each = |of: &dyn Fn(&Link) -> Fact| {
        Fact::each(ports.iter().map(|port| (port.sample.name.clone(), of(port))).collect::<Vec<_>>())
    };
    let counted = |name: &'static str| {
        each(&|port: &Link| {
            port.sample
                .counters
                .get(name)
                .map_or_else(|| Fact::unknown("it is not counted"), |value| count(*value))
        })
    };
    let sibling =
        |port: &Link, file: &str| folder.with_file_name(&port.sample.name).join("bonding_slave").join(file);
    let aggregators: std::collections::BTreeSet<String> =
        ports.iter().filter_map(|port| text(&sibling(port, "ad_aggregator_id")).ok()).collect();
    let tso = |port: &Link| {
        let told = Netlink::open().features(port.sample.index);
        let on = told.map(|all| all.get("tx-tcp-segmentation").is_some_and(|state| state.active));
        on.map_or_else(|refusal| Fact::unknown(refusal.to_string()), Fact::Flag)
    };
    Known::from([
        ("bond.mode".into(), first("mode")),
        ("bond.xmit_hash_policy".into(), first("xmit_hash_policy")),
        ("bond.tx_packets".into(), counted("tx_packets")),
        ("bond.rx_nohandler".into(), counted("rx_nohandler")),
        ("bond.mtus".into(), each(&|port: &Link| Fact::Number(port.sample.mtu.into()))),
        ("bond.failures".into(), each(&|port: &Link| counter(&sibling(port, "link_failure_count")))),
        ("bond.aggregators".into(), Fact::Number(aggregators.len() as f64)),
        ("bond.tso".into(), each(&tso)),
    ])
}

/// Whether received frames get time stamps of the hardware; `off (fixed)` where the card has none.
fn stamps(name: &str) -> Fact {
    let socket = packet::any_socket();
    match socket.and_then(|socket| packet::stamp_config(&socket, name)) {
        Ok(config) if config.receive != 0 => Fact::Flag(true),
        Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => Fact::unknown(error.to_string()),
        // Not every driver tells what is switched on.
        _ if can_stamp(name) => Fact::Flag(false),
        _ => Fact::Text("off (fixed)".into()),
    }
}

/// Whether the driver says that the interface stamps what it receives.
fn can_stamp(name: &str) -> bool {
    let facts = packet::any_socket().and_then(|socket| packet::stamp_facts(&socket, name));
    facts.is_ok_and(|facts| facts.flags & libc::SOF_TIMESTAMPING_RX_HARDWARE != 0)
}

/// Names of links by number.
pub(super) fn names(links: &[Link]) -> BTreeMap<u32, String> {
    links.iter().map(|link| (link.sample.index, link.sample.name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTYPE: &str = "Type Device      Function\nALL  eth0     packet_rcv\nALL           tpacket_rcv\n0800          ip_rcv\n";

    #[test]
    fn taps_are_of_one_interface_or_of_all() {
        assert_eq!((taps(PTYPE, "eth0"), taps(PTYPE, "eth1"), taps("", "eth0")), (2, 1, 0));
    }

    #[test]
    fn an_attribute_that_is_left_out_is_unknown() {
        assert_eq!(setting(Some(&[1]), true), Fact::Flag(true));
        assert_eq!(setting(Some(&512u32.to_ne_bytes()), false), Fact::Number(512.0));
        assert!(setting(None, false).why_unknown().is_some());
        assert_eq!(symmetric(Some(&Fact::Number(2.0))), Fact::Flag(true));
        assert!(symmetric(None).why_unknown().is_some());
    }
}
