//! `pathlab explain`: every counter that can be shown on this kernel has a meaning, and unknown names end with a sentence.

use crate::beside;
use crate::support::{TestLab, installed, is_root, run, run_ok, skip};
use serde_json::Value;

fn explained(arguments: &[&str]) -> Vec<Value> {
    let text = run_ok(&[&["explain", "--json"], arguments].concat());
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], "pathlab/explain/1");
    document["names"].as_array().unwrap().clone()
}

#[test]
fn names_of_all_tables_are_explained_and_others_are_a_sentence() {
    let _turn = beside();
    for (name, kind, word) in [
        ("UdpInDatagrams", "counter", "Reads, not arrivals"),
        ("qdisc_full", "drop", "offer less"),
        ("CPU_BACKLOG", "kernel_reason", "backlog_full"),
        ("stamps_receive", "knob", "pathlab undo"),
        ("udp-rr", "workload", "round trip"),
        ("xdp:", "port", "AF_XDP"),
        ("residual", "word", "station"),
        ("pathlab_softnet_squeezed_total", "series", "softnet:time_squeeze"),
    ] {
        let found = explained(&[name]);
        let one = found.iter().find(|one| one["kind"] == kind);
        assert!(one.is_some_and(|one| one.to_string().contains(word)), "{name}: {found:?}");
    }
    let wrong = run(&["explain", "rx_mised_errors"]);
    let words = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2), "{words}");
    assert!(words.lines().count() == 1 && words.contains("rx_missed_errors"), "{words}");
    assert_eq!(run(&["explain"]).status.code(), Some(2));
    let text = run_ok(&["explain", "--list"]);
    assert!(text.lines().count() > 1000 && text.contains("tcp_info:busy_time"), "{}", text.lines().count());
}

/// Everything that the kernel counts here is in the table: what `export` gathers is what `watch` and snapshots read.
#[test]
fn every_counter_that_this_kernel_tells_has_a_meaning() {
    let _turn = beside();
    let known: Vec<String> =
        explained(&["--list"]).iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    let mut names = vec![];
    for file in ["snmp", "netstat"] {
        let text = std::fs::read_to_string(format!("/proc/net/{file}")).unwrap();
        for line in text.lines().step_by(2) {
            let (group, all) = line.split_once(':').unwrap();
            names.extend(all.split_whitespace().map(|name| format!("{group}.{name}")));
        }
    }
    let text = std::fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
    names.extend(text.lines().filter_map(|line| Some(format!("Ip6.{}", line.split_whitespace().next()?))));
    assert!(names.len() > 250, "{}", names.len());
    let numbered = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned() + "<n>";
    for name in names {
        let is = |known: &String| {
            known.split_once(':').is_some_and(|(_, known)| known == name || known == numbered(&name))
        };
        assert!(known.iter().any(is), "{name} has no row in docs/counters/");
    }
}

/// The strings of the drivers that are here.
#[test]
fn every_string_of_the_drivers_of_this_host_has_a_meaning() {
    let _turn = beside();
    if !is_root() || !installed("ethtool") {
        return skip("strings of drivers", "it needs root and ethtool");
    }
    let lab = TestLab::up("pair", "explain");
    let text = lab.must("a", "ethtool -S eth0");
    let names: Vec<&str> =
        text.lines().skip(1).filter_map(|line| Some(line.trim().rsplit_once(": ")?.0)).collect();
    assert!(names.len() > 5, "{text}");
    for name in names {
        let found = explained(&[&format!("veth:{name}")]);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
    }
}
