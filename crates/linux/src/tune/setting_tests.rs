//! What a row reads and writes, on what this machine's kernel can make in a namespace; what it cannot is tested as bytes.

use super::super::list::{find, list};
use super::super::rows::{KNOBS, row};
use super::*;
use crate::netlink::attributes::attribute;
use crate::sys::netns;
use std::collections::BTreeSet;
use std::os::fd::AsFd;

/// Runs in a namespace of its own with the veth pair `v0`, `v1` and the tap `t0`.
fn with_interfaces(label: &str, body: impl FnOnce() + Send) {
    let root = nix::unistd::geteuid().is_root();
    let Some(space) = netns::create().ok().filter(|_| root) else {
        return println!("SKIP: {label}: needs root (network namespaces)");
    };
    let made = netns::within(space.as_fd(), || {
        must("ip link add name v0 numtxqueues 2 numrxqueues 2 type veth peer name v1");
        must("ip tuntap add dev t0 mode tap");
        must("ip link set lo up");
        must("ip link set v0 up");
        must("ip link set v1 up");
        must("ip address add 10.9.0.1/24 dev v0");
        must("ip route add 10.8.0.0/16 via 10.9.0.2 dev v0 initrwnd 7 proto static");
        body();
    });
    made.unwrap();
}

fn ip(line: &str) -> std::process::Output {
    let mut words = line.split_whitespace();
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = std::process::Command::new(words.next().unwrap());
    command.env("PATH", path).args(words).output().unwrap()
}

fn must(line: &str) -> String {
    let output = ip(line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every knob of the namespace that is here, as text.
fn all() -> Vec<String> {
    let readings = [None, Some("v0"), Some("v1"), Some("t0"), Some("lo")].map(|name| list(name).unwrap());
    readings.concat().into_iter().map(|one| format!("{:?}", (one.interface, one.name, one.value))).collect()
}

/// Sets a knob, reads it back, and puts it back.
fn there_and_back(name: &str, interface: Option<&str>, value: &str, truth: (&str, &str)) {
    let mut setting = find(name, interface).unwrap();
    let was = setting.read().unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    let wanted = setting.resolve(value).unwrap();
    assert_ne!(was, wanted, "{name}");
    let now = setting.clone().before(&was).set(wanted).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    let (line, words) = truth;
    let seen = must(line);
    assert!(seen.contains(words), "{name} is {now}, and '{line}' says no '{words}': {seen}");
    assert_eq!(setting.set(was.clone()).unwrap_or_else(|refusal| panic!("{name}: {refusal}")), was);
}

#[test]
fn a_knob_is_set_read_back_seen_by_another_tool_and_put_back() {
    with_interfaces("knobs of a namespace", || {
        let sysctl = "/proc/sys/net/ipv4/tcp_rmem";
        let file = |path: &'static str| format!("cat {path}");
        must("ethtool -K v1 gro on");
        let before = all();
        there_and_back(
            "sysctl net.ipv4.tcp_rmem",
            None,
            "4096 90000\t1000000",
            (&file(sysctl), "4096\t90000\t1000000"),
        );
        there_and_back("sysctl net.ipv4.tcp_ecn", None, "1", (&file("/proc/sys/net/ipv4/tcp_ecn"), "1"));
        there_and_back(
            "sysctl net.ipv4.conf.v0.rp_filter",
            None,
            "1",
            (&file("/proc/sys/net/ipv4/conf/v0/rp_filter"), "1"),
        );
        there_and_back(
            "sysctl net.ipv4.tcp_congestion_control",
            None,
            "reno",
            ("cat /proc/sys/net/ipv4/tcp_congestion_control", "reno"),
        );
        there_and_back("mtu", Some("v0"), "1400", ("ip link show dev v0", "mtu 1400"));
        there_and_back("txqueuelen", Some("v0"), "77", ("ip link show dev v0", "qlen 77"));
        there_and_back("qdisc", Some("v0"), "pfifo", ("tc qdisc show dev v0", "pfifo"));
        there_and_back("channels.rx", Some("v0"), "1", ("ethtool -l v0", "RX:\t\t1"));
        there_and_back("channels.tx", Some("v0"), "1", ("ethtool -l v0", "TX:\t\t1"));
        there_and_back("coalesce.rx-frames", Some("t0"), "16", ("ethtool -c t0", "rx-frames: 16"));
        there_and_back(
            "feature.tx-tcp-segmentation",
            Some("v0"),
            "off",
            ("ethtool -k v0", "tx-tcp-segmentation: off"),
        );
        there_and_back("feature.rx-gro", Some("v0"), "on", ("ethtool -k v0", "generic-receive-offload: on"));
        there_and_back("napi_defer_hard_irqs", Some("v0"), "2", ("true", ""));
        there_and_back("gro_flush_timeout", Some("v0"), "20000", ("true", ""));
        there_and_back("threaded", Some("v1"), "1", ("true", ""));
        there_and_back("rps_cpus@rx-0", Some("v0"), "0", ("true", ""));
        there_and_back("rps_flow_cnt@rx-0", Some("v0"), "1000", ("true", ""));
        there_and_back("xps_cpus@tx-0", Some("v0"), "0", ("true", ""));
        there_and_back(
            "route.initcwnd@10.8.0.0/16",
            None,
            "40",
            ("ip route show 10.8.0.0/16", "initcwnd 40"),
        );
        there_and_back("route.rtt@10.8.0.0/16", None, "25", ("ip route show 10.8.0.0/16", "rtt 25ms"));
        there_and_back(
            "route.congctl@10.8.0.0/16",
            None,
            "reno",
            ("ip route show 10.8.0.0/16", "congctl reno"),
        );
        there_and_back(
            "route.initrwnd@10.8.0.0/16",
            None,
            "unset",
            ("ip route show 10.8.0.0/16", "via 10.9.0.2"),
        );
        there_and_back("route.quickack@10.9.0.0/24", None, "1", ("ip route show 10.9.0.0/24", "quickack 1"));
        assert_eq!(all(), before);
    });
}

#[test]
fn a_qdisc_comes_back_with_its_handle_and_every_option() {
    with_interfaces("qdiscs", || {
        must(
            "tc qdisc add dev v0 root handle 77: tbf rate 5mbit burst 20kb latency 30ms peakrate 9mbit minburst 1540",
        );
        let show = || must("tc -d qdisc show dev v0").replace(" refcnt 2", "").replace(" refcnt 3", "");
        let before = show();
        there_and_back("qdisc", Some("v0"), "pfifo", ("tc qdisc show dev v0", "pfifo"));
        there_and_back("qdisc", Some("v0"), "default", ("tc qdisc show dev v0", "noqueue"));
        assert_eq!(show(), before);
        let refused = find("qdisc", Some("v1")).unwrap().set("tbf".into()).unwrap_err();
        assert!(refused.text.contains("a tbf may want options"), "{refused}");
        let refused = find("rps_cpus@rx-0", Some("v0")).unwrap().set("0,1000".into()).unwrap_err();
        assert!(refused.text.contains("a higher number than there can be"), "{refused}");
        let refused = find("sysctl net.ipv4.route.flush", None).unwrap().read().unwrap_err();
        assert!(refused.text.contains("can only be written"), "{refused}");
        // An HTB is told otherwise than it is taken, and counts in its options.
        must("tc qdisc replace dev v0 root handle 1: htb default 10 r2q 20 direct_qlen 7");
        let before = show();
        there_and_back("qdisc", Some("v0"), "pfifo", ("tc qdisc show dev v0", "pfifo"));
        assert_eq!(show(), before);
        must("tc qdisc replace dev v0 root stab overhead 4 tbf rate 5mbit burst 20kb latency 30ms");
        let refused = find("qdisc", Some("v0")).unwrap().set("pfifo".into()).unwrap_err();
        assert!(refused.text.contains("a table of sizes"), "{refused}");
        must("tc qdisc replace dev v1 root handle 9: htb");
        must("tc class add dev v1 parent 9: classid 9:1 htb rate 1mbit");
        let refused = find("qdisc", Some("v1")).unwrap().set("pfifo".into()).unwrap_err();
        assert!(refused.text.contains("classes"), "{refused}");
        assert!(must("tc class show dev v1").contains("9:1"));
    });
}

#[test]
fn a_feature_that_cannot_be_on_yet_says_that_it_was_asked_for() {
    with_interfaces("features", || {
        must("ethtool -K v0 tx-checksum-ip-generic off tx-tcp-segmentation on");
        let mut setting = find("feature.tx-tcp-segmentation", Some("v0")).unwrap();
        assert_eq!(setting.read().unwrap(), ON_IN_VAIN);
        assert_eq!(setting.set("on".into()).unwrap(), ON_IN_VAIN, "whoever sets it looks again at the end");
        setting.set(OFF.into()).unwrap();
        setting.set(ON_IN_VAIN.into()).unwrap();
        assert_eq!(setting.read().unwrap(), ON_IN_VAIN);
        let mut fixed = find("feature.rx-lro", Some("v0")).unwrap();
        assert!(fixed.is_fixed() && fixed.read().unwrap() == OFF && !all().concat().contains("rx-lro"));
        assert!(fixed.set(ON.into()).is_err());
    });
}

#[test]
fn what_would_take_other_things_with_it_is_refused() {
    with_interfaces("harm", || {
        must("ip address add 2001:db8::1/64 dev v0");
        let refused =
            |name: &str, interface, value: &str| find(name, interface).unwrap().resolve(value).unwrap_err();
        assert!(refused("mtu", Some("v0"), "1000").contains("IPv6 addresses of v0"));
        assert!(find("mtu", Some("t0")).unwrap().resolve("1000").is_ok());
        for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv6.conf.v0.disable_ipv6"] {
            refused(&format!("sysctl {name}"), None, "1");
        }
        assert!(refused("mtu", Some("v0"), "unset").contains("unset"));
        for name in ["sysctl net.../x", "sysctl net..x", "sysctl net.a//..x"] {
            assert!(find(name, None).and_then(|mut s| s.read().map_err(|_| unknown())).is_err(), "{name}");
        }
        assert!(find("rps_cpus@../../x", Some("v0")).is_err() && find("irq.affinity@../x", None).is_err());
    });
}

fn unknown() -> record::Problem {
    record::Problem::input("")
}

#[test]
fn every_row_has_its_own_name_and_is_found_by_it() {
    let names: BTreeSet<&str> = KNOBS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), KNOBS.len());
    for known in KNOBS {
        let name = known.named("rx-0");
        let (found, part) = row(&name).unwrap_or_else(|| panic!("{name}"));
        assert!(std::ptr::eq(found, known), "{name} is found as {}", found.name);
        assert_eq!(found.named(&part), name);
        assert!(!known.meaning.is_empty() && !known.meaning.ends_with('.'), "{name}");
        assert_eq!(
            known.place == super::super::Where::Queue,
            known.name.contains("@*") && known.place.is_of_interface()
        );
    }
    assert!(row("nothing").is_none() && row("sysctl ").is_none() && row("feature.*").is_some());
}

#[test]
fn values_of_ethtool_are_bytes_of_the_width_of_their_attribute() {
    let rings =
        [attribute(1, &[0; 4]), attribute(2, &4096u32.to_ne_bytes()), attribute(6, &512u32.to_ne_bytes())]
            .concat();
    assert_eq!(attribute_text(Attributes(&rings).get(6).unwrap()), "512");
    assert_eq!((attribute_text(&[1]), attribute_text(&[0])), ("on".into(), "off".into()));
    assert_eq!(attribute_bytes(Kind::Switch, "on").unwrap(), [1]);
    assert_eq!(attribute_bytes(Kind::Number(""), "512").unwrap(), 512u32.to_ne_bytes());
    assert!(attribute_bytes(Kind::Number(""), "99999999999").is_err());
    assert_eq!(
        table_text(&[0, 0, 0, 0, 1, 0, 0, 0]),
        if cfg!(target_endian = "little") { "0,1" } else { "0,16777216" }
    );
    assert_eq!(latency_text(&2_000_000_000u32.to_ne_bytes()), "2000000000");
}

#[test]
fn a_qdisc_is_written_as_it_is_read() {
    let root = Root { kind: "tbf".into(), handle: 0x77_0000, options: vec![1, 0xab], lost: None };
    let text = root_text(Some(&root));
    assert_eq!(text, "tbf handle 77 options 01:ab");
    assert_eq!(parse_root(&text), Some(root));
    assert_eq!(root_text(Some(&Root { kind: "noqueue".into(), ..Root::default() })), "default");
    for wrong in ["", "a b", "tbf handle 0", "tbf handle 77 options zz", "tbf handle 77 options 01 more"] {
        assert_eq!(parse_root(wrong), None, "{wrong}");
    }
    // As one writes it for tc.
    let refused = asked_root("fq limit 500").unwrap_err().text;
    assert!(refused.contains("a kind alone (fq), or default; options are given with tc"), "{refused}");
    assert_eq!(parse_prefix("default").map(|p| p.length), Some(0));
    assert_eq!(parse_prefix("10.1.2.3/8").map(|p| p.to_string()), Some("10.0.0.0/8".into()));
    assert!(parse_prefix("10.0.0.0/33").is_none() && parse_prefix("x").is_none());
}
