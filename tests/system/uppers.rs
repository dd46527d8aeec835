//! Interfaces over others, and bridges with addresses, as the kernel tells of them to iproute2.

use crate::beside;
use crate::routing::{answers, as_said_and_gone, check, lab, told};
use crate::support::{TestLab, command, finish, run, skip, start};
use serde_json::{Value, json};
use std::time::Duration;

/// What the kernel says of an interface: its kind, its data, and all else.
fn link(lab: &TestLab, node: &str, name: &str) -> Value {
    told(lab, node, &format!("ip -d -j link show dev {name}"))[0].clone()
}

/// A kind of interface that this kernel makes.
fn has(kind: &str) -> bool {
    let line = format!(
        "ip link set lo up && ip link add v0 type veth peer name v1 && ip link add x link v0 type {kind}"
    );
    let mut tool = command("unshare");
    tool.args(["-n", "sh", "-c", &line]);
    finish(start(tool), Duration::from_secs(60)).status.success()
}

#[test]
fn two_bridges_are_joined_by_vxlan_over_a_router() {
    let _turn = beside();
    let Some(lab) = lab("vxlan", "vxlan") else { return };
    let vx0 = link(&lab, "va", "vx0");
    let data = &vx0["linkinfo"]["info_data"];
    assert_eq!(vx0["linkinfo"]["info_kind"], "vxlan");
    for (key, wanted) in [
        ("id", json!(42)),
        ("local", json!("10.0.1.2")),
        ("remote", json!("10.0.2.2")),
        ("port", json!(4789)),
        ("link", json!("eth0")),
    ] {
        assert_eq!(data[key], wanted, "{key}: {data}");
    }
    assert_eq!((&vx0["mtu"], &vx0["master"]), (&json!(1450), &json!("br0")));
    let ports = told(&lab, "va", "bridge -j link");
    assert!(ports.iter().all(|port| port["master"] == "br0" && port["state"] == "forwarding"), "{ports:?}");
    answers(&lab, "a", &["10.9.0.2", "fd09::2"]);
    // What is too large for the tunnel is refused at a, not lost in it.
    answers(&lab, "a", &["-M do -s 1422 10.9.0.2"]);
    lab.inside("a", "ping -c 1 -W 1 -M do -s 1423 10.9.0.2").unwrap_err();
    let forwarding = told(&lab, "vb", "bridge -j fdb show dev vx0");
    assert!(forwarding.iter().any(|entry| entry["dst"] == "10.0.1.2"), "{forwarding:?}");
    as_said_and_gone(lab);
}

/// A tunnel between two hosts, without bridges: over routes alone, with IPv6 outside, and another port and number.
const TUNNEL: &str = "node a b\nlink a:eth0 -- b:eth0\ninterface a:eth0 address fd00::1/64\ninterface b:eth0 address fd00::2/64\n\
    vxlan vx on a id 16777215 remote fd00::2 port 8472\nvxlan vx on b id 16777215 remote fd00::1 port 8472\n\
    interface a:vx address 10.9.0.1/24 mtu 1400 mac 02:00:00:00:00:0a rate 10mbit limit 30kB burst 5kB\n\
    interface b:vx address 10.9.0.2/24 mtu 1400\n";

#[test]
fn a_vxlan_has_addresses_and_options_of_its_own() {
    let _turn = beside();
    let Some(lab) = lab(TUNNEL, "tunnel") else { return };
    let vx = link(&lab, "a", "vx");
    assert_eq!(
        (&vx["mtu"], &vx["address"], &vx["qdisc"]),
        (&json!(1400), &json!("02:00:00:00:00:0a"), &json!("tbf"))
    );
    let data = &vx["linkinfo"]["info_data"];
    assert_eq!(
        (&data["id"], &data["port"], &data["remote6"]),
        (&json!(16777215), &json!(8472), &json!("fd00::2"))
    );
    answers(&lab, "a", &["10.9.0.2"]);
    as_said_and_gone(lab);
}

#[test]
fn an_interface_that_somebody_put_in_its_place_is_found() {
    let _turn = beside();
    let Some(lab) = lab(TUNNEL, "replaced") else { return };
    lab.must("a", "ip link del vx && ip link add vx type vxlan id 9 remote fd00::2 dstport 8472 && ip link set vx mtu 1400 up");
    let (code, found) = check(&lab);
    let vx = found["interfaces"].as_array().unwrap().iter().find(|line| line["interface"] == "vx").unwrap();
    let wanted = "it is vxlan id 9 remote fd00::2 port 8472, the topology says vxlan id 16777215 remote fd00::2 port 8472";
    assert_eq!(code, 1);
    assert!(vx["differences"].as_array().unwrap().contains(&json!(wanted)), "{vx}");
}

#[test]
fn a_process_that_stays_keeps_no_tunnel() {
    let _turn = beside();
    let Some(lab) = lab(TUNNEL, "stays") else { return };
    let mut tool = command("ip");
    tool.args(["netns", "exec", &lab.netns("a"), "sleep", "60"]);
    let stays = crate::support::Kept::new(start(tool));
    let pid = stays.id().to_string();
    while lab.pids("a").is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(lab);
    let mut tool = command("nsenter");
    tool.args(["-t", &pid, "-n", "ip", "-j", "link"]);
    let left = finish(start(tool), Duration::from_secs(60)).stdout;
    let left: Vec<Value> = serde_json::from_slice(&left).unwrap();
    assert!(left.iter().all(|link| link["ifname"] == "lo"), "{left:?}");
}

#[test]
fn containers_have_macvlans_over_the_wire_of_their_host() {
    let _turn = beside();
    let Some(lab) = lab("macvlan", "macvlan") else { return };
    for (node, name) in [("a", "eth0"), ("c", "eth0"), ("h", "mv0")] {
        let info = link(&lab, node, name)["linkinfo"].clone();
        assert_eq!((&info["info_kind"], &info["info_data"]["mode"]), (&json!("macvlan"), &json!("bridge")));
    }
    assert_eq!(link(&lab, "h", "mv0")["link"], "eth0");
    assert_ne!(link(&lab, "a", "eth0")["address"], link(&lab, "h", "eth0")["address"]);
    answers(&lab, "a", &["10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::2", "fd00::3", "fd00::4"]);
    answers(&lab, "b", &["10.0.0.1", "10.0.0.3", "fd00::4"]);
    as_said_and_gone(lab);
}

/// Two macvlans of this mode beside each other, and a third node on the wire.
fn two_macvlans(mode: &str, more: &str) -> String {
    format!(
        "node a c h b\nlink h:eth0 -- b:eth0\nmacvlan m on a over h:eth0 mode {mode}\ninterface b:eth0 address 10.0.0.2/24\n\
         interface a:m address 10.0.0.1/24\n{more}"
    )
}

#[test]
fn each_mode_of_a_macvlan_is_the_kernels() {
    let _turn = beside();
    for (mode, second, meet) in
        [("private", true, false), ("vepa", true, false), ("bridge", true, true), ("passthru", false, false)]
    {
        let more = format!("macvlan m on c over h:eth0 mode {mode}\ninterface c:m address 10.0.0.3/24\n");
        let Some(lab) = lab(&two_macvlans(mode, if second { &more } else { "" }), mode) else { return };
        assert_eq!(link(&lab, "a", "m")["linkinfo"]["info_data"]["mode"], mode);
        answers(&lab, "a", &["10.0.0.2"]);
        let met = lab.inside("a", "ping -c 1 -W 1 10.0.0.3").is_ok();
        assert_eq!(met, meet, "{mode}");
        as_said_and_gone(lab);
    }
}

#[test]
fn a_macvlan_lies_over_a_bridge_and_is_a_port_of_one() {
    let _turn = beside();
    let text = "node a h b c\nlink a:eth0 -- h:p1\nlink b:eth0 -- h:p2\nbridge br0 on h ports p1\nbridge br1 on h ports p2 m2\n\
        macvlan m1 on c over h:br0\nmacvlan m2 on h over br0 mode passthru\n";
    let both = text.replace("macvlan m1 on c over h:br0\n", "");
    let more =
        "interface a:eth0 address 10.0.0.1/24 fd00::1/64\ninterface b:eth0 address 10.0.0.2/24 fd00::2/64\n";
    let Some(lab) = lab(&(both + more), "stacked") else { return };
    answers(&lab, "a", &["10.0.0.2", "fd00::2"]);
    as_said_and_gone(lab);
    let over = text.replace("macvlan m2 on h over br0 mode passthru\n", "").replace(" m2\n", "\n");
    let Some(lab) =
        crate::routing::lab(&format!("{over}{more}interface c:m1 address 10.0.0.3/24 fd00::3/64\n"), "over")
    else {
        return;
    };
    answers(&lab, "a", &["10.0.0.3", "fd00::3"]);
    as_said_and_gone(lab);
}

#[test]
fn a_bridge_waits_for_what_its_only_port_lies_over() {
    let _turn = beside();
    let text = "node a h\nlink a:eth0 -- h:p1\nbridge br1 on h ports m\nbridge br0 on h ports p1\n\
        macvlan m on h over br0 mode passthru\ninterface a:eth0 address 10.0.0.1/24\ninterface h:br1 address 10.0.0.2/24\n";
    let Some(lab) = lab(text, "high") else { return };
    answers(&lab, "a", &["10.0.0.2"]);
    as_said_and_gone(lab);
    // Each bridge is a port of the other one's.
    let circle = "node a\nbridge b1 on a ports m1\nbridge b2 on a ports m2\nmacvlan m1 on a over b2\nmacvlan m2 on a over b1\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("circle.lab");
    std::fs::write(&file, circle).unwrap();
    let output = run(&["lab", "up", &file.display().to_string()]);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("circle.lab:4:22: a:m1 would be over itself"), "{err}");
}

/// A lab that this kernel cannot have: why is said, and nothing of it is left.
fn is_refused(lab: &str, place: &str, lacking: &str) {
    if !crate::support::is_root() {
        return;
    }
    let name = format!("none-of-{lab}");
    let output = run(&["lab", "up", lab, "--name", &name]);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains(place) && err.contains(&format!("this kernel lacks {lacking}")), "{err}");
    let labs = String::from_utf8_lossy(&run(&["lab", "list"]).stdout).into_owned();
    assert!(!labs.contains(&name), "{labs}");
}

/// What happens on the way is tested in a virtual machine, too (`vm.rs`), whose kernel has netem.
#[test]
fn a_long_way_is_as_said_or_the_host_is_said_to_have_none() {
    let _turn = beside();
    let mut tool = command("unshare");
    tool.args(["-n", "sh", "-c", "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"]);
    if !finish(start(tool), Duration::from_secs(60)).status.success() {
        is_refused("wan", "interface r:eth0", "netem (CONFIG_NET_SCH_NETEM)");
        return skip("a long way on this host", "this kernel has no netem (CONFIG_NET_SCH_NETEM)");
    }
    let Some(lab) = lab("wan", "wan") else { return };
    let qdiscs = told(&lab, "r", "tc -j qdisc show dev eth1");
    let kinds: Vec<_> = qdiscs.iter().map(|qdisc| qdisc["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["netem", "tbf"], "{qdiscs:?}");
    let options = &qdiscs[0]["options"];
    assert_eq!((&options["delay"]["delay"], &options["loss-random"]["loss"]), (&json!(0.02), &json!(0.001)));
    as_said_and_gone(lab);
}

#[test]
fn containers_have_ipvlans_or_the_host_is_said_to_have_none() {
    let _turn = beside();
    if !has("ipvlan") {
        is_refused("ipvlan", "ipvlan a:eth0", "ipvlan (CONFIG_IPVLAN)");
        return skip("frames over ipvlan", "this kernel has none (CONFIG_IPVLAN)");
    }
    for mode in ["l2", "l3", "l3s"] {
        let text =
            std::fs::read_to_string("labs/ipvlan.lab").unwrap().replace("mode l2", &format!("mode {mode}"));
        let Some(lab) = lab(&text, "ipvlan") else { return };
        assert_eq!(link(&lab, "a", "eth0")["linkinfo"]["info_data"]["mode"], mode);
        assert_eq!(link(&lab, "a", "eth0")["address"], link(&lab, "h", "eth0")["address"]);
        answers(&lab, "a", &["10.0.0.3", "fd00::3"]);
        if mode == "l2" {
            answers(&lab, "a", &["10.0.0.2", "fd00::2"]);
        }
        as_said_and_gone(lab);
    }
}

#[test]
fn the_node_of_a_bridge_is_an_end_and_a_router() {
    let _turn = beside();
    let Some(lab) = lab("bridge-address", "address") else { return };
    let found = told(&lab, "r", "ip -j addr show dev br0");
    let addresses: Vec<&Value> =
        found[0]["addr_info"].as_array().unwrap().iter().map(|one| &one["local"]).collect();
    assert!(
        addresses.contains(&&json!("10.0.1.1")) && addresses.contains(&&json!("fd00:1::1")),
        "{addresses:?}"
    );
    let ports = told(&lab, "r", "bridge -j link");
    assert_eq!(ports.iter().filter(|port| port["master"] == "br0").count(), 2, "{ports:?}");
    answers(&lab, "a", &["10.0.1.1", "10.0.1.3", "10.0.2.2", "fd00:1::1", "fd00:1::3", "fd00:2::2"]);
    answers(&lab, "r", &["10.0.1.2", "10.0.2.2", "fd00:1::3"]);
    as_said_and_gone(lab);
}
