//! Labs on this machine: frames arrive, nothing moves by itself, changes by others do no harm, nothing is left.
//!
//! Needs root; otherwise every test prints why it is skipped. (`tests/lab.rs` of the program covers users without root
//! and killed commands.)

mod support;

use linux::lab::{Lab, Lifetime, Node, Topology};
use linux::sys::clock::monotonic_ns;
use record::NodeRole;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;
use support::{may_run, skip};

fn name(test: &str) -> String {
    format!("t{}-{test}", std::process::id())
}

fn up(file: &str, test: &str) -> Lab {
    Lab::up(
        &linux::undo::journals().unwrap(),
        &Topology::load(file).unwrap(),
        &name(test),
        Lifetime::Ephemeral,
    )
    .unwrap()
}

/// Sends datagrams from one node to another and back; returns how many made the whole way.
fn exchange(lab: &Lab, from: &str, to: &str, family: u8, count: usize, size: usize) -> usize {
    let target = lab.address_of(to, family).unwrap();
    let any = if family == 4 { "0.0.0.0:0" } else { "[::]:0" };
    let bind = |node: &Node| node.within(|| UdpSocket::bind(any).unwrap()).unwrap();
    let (sender, receiver) = (bind(lab.node(from).unwrap()), bind(lab.node(to).unwrap()));
    for socket in [&sender, &receiver] {
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    }
    let port = receiver.local_addr().unwrap().port();
    let mut buffer = vec![0; 65536];
    let mut done = 0;
    for _ in 0..count {
        sender.send_to(&vec![7; size], SocketAddr::new(target, port)).unwrap();
        let Ok((_, back)) = receiver.recv_from(&mut buffer) else { break };
        receiver.send_to(&buffer[..size], back).unwrap();
        done += usize::from(sender.recv(&mut buffer).is_ok());
    }
    done
}

fn frames(lab: &Lab) -> Vec<(String, (u64, u64))> {
    let links = |node: &Node| {
        let links = node.links().unwrap();
        links
            .into_iter()
            .map(|link| (format!("{}:{}", node.name(), link.name), link.frames))
            .collect::<Vec<_>>()
    };
    lab.nodes().iter().flat_map(links).collect()
}

#[test]
fn every_shipped_lab_carries_both_families_the_way_it_says() {
    if !may_run("shipped labs") {
        return;
    }
    let ways = [
        ("pair", "a b"),
        ("bridge", "a s b"),
        ("router", "a r b"),
        ("bottleneck", "a r b"),
        ("line3", "a r1 r2 r3 b"),
        ("bridge-address", "a r r b"),
    ];
    for (file, way) in ways {
        let begun = monotonic_ns();
        let lab = up(file, &format!("ship-{file}"));
        println!("{file}: built in {:.1} ms", (monotonic_ns() - begun) as f64 / 1e6);
        for family in [4, 6] {
            assert_eq!(exchange(&lab, "a", "b", family, 3, 1000), 3, "{file} IPv{family}");
            for (from, to) in [("a", "b"), ("b", "a")] {
                let path = lab.path(from, to, family).unwrap();
                assert_eq!(path.source, "routes", "{file} IPv{family} {path:?}");
                let mut nodes: Vec<_> = path.forward.iter().map(|hop| hop.node.as_str()).collect();
                if from == "b" {
                    nodes.reverse();
                }
                assert_eq!(nodes.join(" "), way, "{file}");
                assert_eq!(path.forward[0].role, NodeRole::Sender);
                assert_eq!(path.forward.last().unwrap().role, NodeRole::Receiver);
            }
        }
        for line in lab.check().unwrap() {
            assert!(line.differences.is_empty(), "{file} {line:?}");
        }
        assert!(
            lab.offloads()
                .contains(&"a:eth0 tso on, gso on, gro off, tx-checksum on, rx-checksum on".to_string())
        );
        lab.down().unwrap();
    }
}

#[test]
fn an_idle_lab_does_not_send() {
    if !may_run("idle labs") {
        return;
    }
    let labs = [
        "pair",
        "bridge",
        "router",
        "bottleneck",
        "line3",
        "ecmp",
        "rule",
        "vxlan",
        "macvlan",
        "bridge-address",
    ]
    .map(|file| up(file, &format!("idle-{file}")));
    let silent_for = |duration: Duration, when: &str| {
        let before = labs.each_ref().map(frames);
        std::thread::sleep(duration);
        for (lab, before) in labs.iter().zip(before) {
            let after = frames(lab);
            let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
            assert!(moved.is_empty(), "{} {when}: {moved:?}", lab.name());
        }
    };
    silent_for(Duration::from_secs(2), "before any traffic");
    for lab in &labs {
        for family in [4, 6] {
            assert_eq!(exchange(lab, "a", "b", family, 1, 64), 1);
        }
    }
    // Neighbours would be asked again after 5 s.
    silent_for(Duration::from_secs(6), "after traffic");
}

#[test]
fn every_option_of_the_language_takes_effect() {
    if !may_run("options") {
        return;
    }
    let text = "
        node a b
        router r
        link a:e0 -- r:e0 mtu 9000 queues 2 txqueuelen 77
        link r:e1 -- b:e0 offload off
        bridge br0 on r ports e1
        interface a:e0 address 10.0.1.2/24 10.0.9.2/24 fd00:1::2/64 mac 02:00:00:00:00:0a gro on
        interface r:e0 address 10.0.1.1/24 fd00:1::1/64 rate 1.5mbit limit 20kB burst 10kB
        interface r:br0 address 10.0.2.1/24 fd00:2::1/64 mtu 1400
        interface b:e0 address 10.0.2.2/24 fd00:2::2/64
        route on a 10.0.2.0/24 via 10.0.1.1
        route on a default via fd00:1::1
        route on b default via 10.0.2.1
        route on b default via fd00:2::1
        sysctl on a net.ipv4.tcp_rmem=4096 5000 6000
        sysctl on b net.ipv4.conf.e0.rp_filter=2
        sysctl on b net.ipv4.conf.default.rp_filter=2
    ";
    let topology = Topology::parse(text, "options").unwrap();
    let lab =
        Lab::up(&linux::undo::journals().unwrap(), &topology, &name("options"), Lifetime::Ephemeral).unwrap();
    for line in lab.check().unwrap() {
        assert!(line.differences.is_empty(), "{line:?}");
    }
    for family in [4, 6] {
        assert_eq!(exchange(&lab, "a", "b", family, 2, 1000), 2, "IPv{family}");
        let hops = lab.path("a", "b", family).unwrap().forward;
        let roles: Vec<_> = hops.iter().map(|hop| hop.role).collect();
        assert_eq!(
            roles,
            [NodeRole::Sender, NodeRole::Router, NodeRole::Bridge, NodeRole::Receiver],
            "{hops:?}"
        );
        assert_eq!((hops[2].ingress.as_deref(), hops[2].egress.as_deref()), (Some("br0"), Some("e1")));
    }
    let a = lab.node("a").unwrap();
    let read =
        |path: &str| a.within(|| std::fs::read_to_string(path).unwrap()).unwrap().trim().replace('\t', " ");
    assert_eq!(read("/proc/sys/net/ipv4/tcp_rmem"), "4096 5000 6000");
    assert_eq!(read("/proc/sys/net/ipv4/ip_forward"), "0");
    assert_eq!(a.addresses(4), ["10.0.1.2".parse::<IpAddr>().unwrap(), "10.0.9.2".parse().unwrap()]);
    let check = lab.check().unwrap();
    let a_line = check.iter().find(|line| line.node == "a").unwrap();
    assert_eq!(
        (a_line.mtu, a_line.tx_queue_len, a_line.rx_queues, a_line.tx_queues),
        (9000, 77, Some(2), Some(2))
    );
    assert!(a_line.offloads["gro"] && a_line.offloads["tso"]);
    let b_line = check.iter().find(|line| line.node == "b").unwrap();
    for word in ["tso", "gso", "gro", "tx", "sg", "uso"] {
        assert!(!b_line.offloads[word], "{word}: {b_line:?}");
    }
}

#[test]
fn a_setting_that_the_kernel_does_not_have_is_the_users_mistake_and_leaves_nothing() {
    if !may_run("settings") {
        return;
    }
    for (setting, wanted) in [
        ("net.ipv4.no_such_thing=1", "this kernel has no setting 'net.ipv4.no_such_thing'"),
        ("net.ipv4.tcp_rmem=fast", "the setting 'net.ipv4.tcp_rmem' does not take the value 'fast'"),
    ] {
        let topology =
            Topology::parse(&format!("node a b\nlink a:x -- b:x\nsysctl on a {setting}"), "x").unwrap();
        let problem =
            Lab::up(&linux::undo::journals().unwrap(), &topology, &name("setting"), Lifetime::Ephemeral)
                .unwrap_err();
        assert_eq!(problem.kind, record::ProblemKind::Input);
        assert!(problem.to_string().contains(wanted), "{problem}");
        assert!(!Lab::list(&linux::undo::open().unwrap()).iter().any(|lab| lab.name == name("setting")));
    }
}

#[test]
fn a_lab_can_be_opened_by_name_and_two_do_not_meet() {
    if !may_run("two labs") {
        return;
    }
    let (first, second) = (name("one"), name("two"));
    let topology = Topology::load("pair").unwrap();
    drop(Lab::up(&linux::undo::journals().unwrap(), &topology, &first, Lifetime::Persistent).unwrap());
    let other = Lab::up(&linux::undo::journals().unwrap(), &topology, &second, Lifetime::Ephemeral).unwrap();
    let taken =
        Lab::up(&linux::undo::journals().unwrap(), &topology, &first, Lifetime::Ephemeral).unwrap_err();
    let wanted = format!("there is already a lab named '{first}'");
    assert_eq!((taken.kind, taken.what), (record::ProblemKind::Input, wanted));
    let opened = Lab::open(&linux::undo::open().unwrap(), &first).unwrap();
    assert_eq!(opened.topology(), &topology);
    let quiet = frames(&other);
    assert_eq!(exchange(&opened, "a", "b", 4, 5, 100), 5);
    assert_eq!(frames(&other), quiet, "frames of one lab in the other");
    let missing = opened.node("z").unwrap_err().to_string();
    assert!(missing.ends_with("unknown node 'z'; the nodes are a, b"), "{missing}");
    let inode = opened.node("a").unwrap().inode();
    let status = opened.node("a").unwrap().command("readlink").arg("/proc/self/ns/net").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&status.stdout).trim(), format!("net:[{inode}]"));
    opened.down().unwrap();
    assert!(
        Lab::open(&linux::undo::open().unwrap(), &first)
            .unwrap_err()
            .to_string()
            .contains("there is no lab named")
    );
    assert!(!std::path::Path::new(&format!("/run/netns/pathlab-{first}-a")).exists());
    drop(other);
    assert!(!std::path::Path::new(&format!("/run/netns/pathlab-{second}-a")).exists());
    assert!(
        !Lab::list(&linux::undo::open().unwrap()).iter().any(|lab| [&first, &second].contains(&&lab.name))
    );
}

#[test]
fn what_others_changed_inside_is_named_and_harms_nothing() {
    if !may_run("changes") {
        return;
    }
    let lab = up("bridge", "changed");
    let tool = |node: &str, command: &str| {
        let words: Vec<_> = command.split(' ').collect();
        let Ok(output) = lab.node(node).unwrap().command(words[0]).args(&words[1..]).output() else {
            return false;
        };
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        true
    };
    if !tool("a", "ip link set eth0 mtu 1300") {
        skip("changes", "iproute2 is not installed");
        return;
    }
    tool("a", "ip address flush dev eth0");
    tool("a", "ip address add 192.168.7.1/24 dev eth0");
    tool("b", "ip address add 192.168.7.2/24 dev eth0");
    tool("b", "ip address del 10.0.0.2/24 dev eth0");
    tool("b", "tc qdisc add dev eth0 root tbf rate 1mbit limit 3000 burst 2000");
    tool("s", "ip link set p2 down");
    tool("s", "ip link set p2 name renamed");
    tool("s", "ip link set renamed up");
    assert_eq!(lab.address_of("b", 4), Some("192.168.7.2".parse().unwrap()));
    // The kernel tells that a link is up some time after it was set up.
    let soon = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let path = loop {
        let path = lab.path("a", "b", 4).unwrap();
        if path.source == "routes" || std::time::Instant::now() > soon {
            break path;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let egress: Vec<_> = path.forward.iter().map(|hop| hop.egress.as_deref().unwrap_or("-")).collect();
    assert_eq!((path.source.as_str(), egress), ("routes", vec!["eth0", "renamed", "-"]));
    let check = lab.check().unwrap();
    let said = |place: &str| {
        let line = check.iter().find(|line| format!("{}:{}", line.node, line.interface) == place).unwrap();
        line.differences.join("; ")
    };
    assert!(said("a:eth0").contains("mtu is 1300, the topology says 1500; address 10.0.0.1/24 is missing"));
    assert!(
        said("b:eth0").contains("it has a rate limit of 1000000 bit/s limit 3000 B"),
        "{}",
        said("b:eth0")
    );
    assert_eq!(said("s:p1"), "");
    assert_eq!(said("s:p2"), "the interface is gone");
    tool("s", "ip link del br0");
    let without = lab.path("a", "b", 4).unwrap();
    assert_eq!((without.source.as_str(), without.forward.len()), ("topology", 3));
    lab.down().unwrap();
}

#[test]
fn a_lab_goes_and_a_process_inside_it_stays() {
    if !may_run("processes inside") {
        return;
    }
    let name = name("inhabited");
    drop(
        Lab::up(
            &linux::undo::journals().unwrap(),
            &Topology::load("pair").unwrap(),
            &name,
            Lifetime::Persistent,
        )
        .unwrap(),
    );
    let mut process = Lab::open(&linux::undo::open().unwrap(), &name)
        .unwrap()
        .node("a")
        .unwrap()
        .command("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let inside = linux::lab::take_down(&linux::undo::open().unwrap(), &name).unwrap();
    assert_eq!(inside.len(), 1, "{inside:?}");
    assert_eq!(
        (inside[0].node.as_str(), inside[0].pid, inside[0].process.as_str()),
        ("a", process.id(), "sleep")
    );
    assert!(process.try_wait().unwrap().is_none(), "it still runs");
    let links = std::fs::read_to_string(format!("/proc/{}/net/dev", process.id())).unwrap();
    assert!(!links.contains("eth0"), "the links are gone all the same: {links}");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_child_dies_with_the_thread_that_started_it() {
    if !may_run("children") {
        return;
    }
    let lab = up("pair", "child");
    let node = lab.node("a").unwrap().clone();
    let mut child =
        std::thread::spawn(move || node.command("sleep").arg("60").spawn().unwrap()).join().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
}
