//! The language of topologies: what is refused and how, and that every lab prints back to itself.

use super::*;
use proptest::prelude::*;

fn refused(text: &str) -> String {
    Topology::parse(text, "x.lab").unwrap_err().to_string()
}

#[test]
fn the_shipped_labs_parse_and_have_both_families() {
    for name in Topology::builtin_names() {
        let topology = Topology::load(name).unwrap();
        assert!(topology.node("a").is_some() && topology.node("b").is_some(), "{name}");
        for end in ["a", "b"] {
            for family in [4, 6] {
                assert!(topology.interfaces(end).any(|i| i.has_family(family)), "{name} {end} {family}");
            }
        }
        let text = topology.to_string();
        assert_eq!(Topology::parse(&text, name).unwrap(), topology, "{text}");
    }
}

#[test]
fn an_option_of_an_end_wins_over_that_of_its_link() {
    let topology = Topology::parse(
        "interface b:x mtu 9000 gro on\nnode a b\nlink a:x -- b:x mtu 1400 offload off queues 2",
        "x",
    )
    .unwrap();
    let [a, b] = &topology.links[0].ends;
    assert_eq!((a.mtu, b.mtu, a.queues, b.queues), (Some(1400), Some(9000), Some(2), Some(2)));
    assert_eq!((a.offloads[&OffloadFeature::Gro], b.offloads[&OffloadFeature::Gro]), (false, true));
    assert!(!b.offloads[&OffloadFeature::Tso]);
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_would_be_right() {
    let two = "node a b\nlink a:x -- b:x\n";
    let cases = [
        ("node a b\nlink a:x -- c:x", "x.lab:2:13: unknown node 'c'; the nodes are a, b"),
        ("", "x.lab: it has no nodes; begin with 'node a b'"),
        ("nod a", "x.lab:1:1: unknown statement 'nod'; a line begins with one of node, router, null"),
        ("node", "x.lab:1:5: the node's name is missing"),
        ("node a a", "x.lab:1:8: there is already a node 'a'"),
        ("node a-b", "x.lab:1:6: 'a-b' cannot be a node's name"),
        ("node é", "x.lab:1:6: 'é' cannot be a node's name"),
        ("node a b\nlink a:abcdefghijklmnop -- b:x", "has 16 bytes, the kernel takes 15"),
        ("node a b\nlink a:lo -- b:x", "'lo' cannot be an interface name"),
        ("node a b\nlink a:x -- a:x", "both ends of the link are a:x"),
        ("node a b\nlink a:x b:x", "x.lab:2:10: expected '--', found 'b:x'"),
        ("node a b\nlink a:x -- b:x mtu", "x.lab:2:20: the MTU is missing"),
        ("node a b\nlink a:x -- b:x mtu 67", "the MTU is a number from 68 to 65535, not '67'"),
        ("node a b\nlink a:x -- b:x mtu +1500", "not '+1500'"),
        ("node a b\nlink a:x -- b:x mtu 100 mtu 100", "'mtu' is said twice"),
        ("node a b\nlink a:x -- b:x speed 3", "unknown option 'speed'; the options are mtu, "),
        ("node a b\nlink a:x -- b:x address 10.0.0.1/24", "'address' belongs to one end"),
        ("node a b\nlink a:x -- b:x tso maybe", "expected 'on' or 'off', found 'maybe'"),
        ("node a b\nlink a:x -- b:x rate 1mbit", "'limit' is missing; write for example 'rate 100mbit"),
        ("node a b\nlink a:x -- b:x rate fast limit 1kB burst 1kB", "'fast' is not a rate"),
        ("node a b\nlink a:x -- b:x rate 1bit limit 9kB burst 9kB", "a whole number of bytes each second"),
        ("node a b\nlink a:x -- b:x rate 1mbit limit 0B burst 9kB", "'0B' is not a number of bytes"),
        ("node a b\nlink a:x -- b:x delay 20", "'20' is not a time (examples: 250ns, 20us"),
        ("node a b\nlink a:x -- b:x delay 61s", "the delay is at most 60.0 s"),
        ("node a b\nlink a:x -- b:x delay 1ms jitter 2ms", "interface a:x has more jitter than delay"),
        ("node a b\nlink a:x -- b:x reorder 1%", "interface a:x reorders without a delay"),
        ("node a b\nlink a:x -- b:x lose 101%", "x.lab:2:22: '101%' is not a chance (examples: 1%, 0.01)"),
        ("node a b\nlink a:x -- b:x lose 1e-9", "'1e-9' is less than one in a million"),
        ("node a b\nlink a:x -- b:x lose", "x.lab:2:21: a chance, for example 1%, is missing"),
        ("node a b\nlink a:x -- b:x lose 1% lose 2%", "'lose' is said twice"),
        (
            "node a b\nlink a:x -- b:x rate 1mbit limit 9kB burst 1kB",
            "a full frame is 1514 B and would never leave",
        ),
        ("node a b\nbridge br0 on a ports y", "node 'a' has no link with an end 'y'"),
        ("interface a:y mtu 1500\nnode a", "node 'a' has none; make one with 'link a:y -- …'"),
        ("sysctl on a kernel.panic=1\nnode a", "'kernel.panic' is not a setting under 'net'"),
        ("sysctl on a net/../kernel/panic=1\nnode a", "is not a setting under 'net'"),
        ("sysctl on a net.x\nnode a", "'net.x' has no value"),
        ("switch s", "x.lab: node 's' of kind 'switch' has no link"),
        ("node a\nnull s\nlink a:x -- s:x", "node 's' of kind 'null' has 1 links; it needs exactly 2"),
        ("rule on a x\nnode a", "x.lab:1:9: 'rule' is said of 'a', where no program hands frames on"),
        ("rule on s x\nnull s", "x.lab:1:9: 'rule' cannot be said of a node of kind 'null'"),
        ("ports on s ring\novs s", "unknown kind of ports 'ring'; int, xdp"),
        ("engine on s native\novs s", "'engine' cannot be said of a node of kind 'ovs'"),
        ("engine on s steam\nswitch s", "unknown engine 'steam'; interpreter, native"),
        ("rule on s\nswitch s", "x.lab:1:10: the value is missing"),
        ("ports on s pcap\nswitch s", "x.lab:1:12: unknown kind of ports 'pcap'; int, ring, xdp"),
        ("scenario on s sing\nswitch s", "unknown scenario 'sing'; iperf, learning"),
        ("fail on s open\nswitch s", "unknown way to fail 'open'; secure, standalone"),
        ("fail on s secure\nfail on s secure\nswitch s", "'fail' is said twice of node 's'"),
        (
            "node a\nswitch s\nlink a:x -- s:x\ninterface s:x address 10.0.0.1/24",
            "s:x has an address, but a program takes its frames",
        ),
        (
            "node a\nswitch s\nlink a:x -- s:x\nbridge b on s ports x",
            "node 's' of kind 'switch' has a bridge",
        ),
        (
            "node a\nswitch s\nlink a:x -- s:x\nrule on s x\nscenario on s hub",
            "has rules and a scenario, whose controller deletes all rules",
        ),
    ];
    for (text, wanted) in cases {
        let said = refused(text);
        assert!(said.contains(wanted), "{text:?}\n said: {said}\nwanted: {wanted}");
    }
    let more = [
        ("link a:x -- b:y", "x.lab:3:6: there is already an interface a:x"),
        ("bridge br0 on a ports x x", "a:x is already a port of a bridge"),
        ("bridge x on a ports x", "there is already an interface a:x"),
        (
            "bridge q on a ports x\ninterface a:x address 10.0.0.1/24",
            "is a port of a bridge and cannot have an address",
        ),
        ("bridge q on a ports x\ninterface a:q gro on", "'gro' cannot be said of a bridge"),
        ("interface a:x address 10.0.0.0/24", "10.0.0.0/24 cannot be the address of an interface"),
        ("interface a:x address 10.0.0.255/24", "cannot be the address"),
        ("interface a:x address 300.0.0.1/24", "'300.0.0.1/24' is not an address with a prefix length"),
        ("interface a:x address 10.0.0.1/33", "is not an address with a prefix length"),
        ("interface a:x address 10.0.0.1", "is not an address with a prefix length; write for example"),
        ("interface a:x address fe80::1/64", "link-local addresses are given by pathlab"),
        (
            "interface a:x address 10.0.0.1/24\ninterface b:x address 10.0.0.1/24",
            "a:x already has the address 10.0.0.1",
        ),
        ("interface a:x address 10.0.0.1/24 10.0.0.1/24", "a:x already has the address 10.0.0.1"),
        ("interface a:x address fd00::1/64 mtu 1279", "needs an MTU of 1280"),
        ("interface a:x mac 01:00:00:00:00:01", "is not the hardware address of one interface"),
        ("interface a:x mtu 100\ninterface a:x mtu 100", "'mtu' is said twice of a:x"),
        ("route on a default via 10.0.0.1", "10.0.0.1 is in no network of node 'a'"),
        (
            "interface a:x address 10.0.0.2/24\nroute on a 10.1.0.1/24 via 10.0.0.1",
            "an address and not a network; write 10.1.0.0/24",
        ),
        ("interface a:x address 10.0.0.2/24\nroute on a fd00::/64 via 10.0.0.1", "cannot lead over 10.0.0.1"),
        ("interface a:x mtu 100 on", "unknown option 'on'"),
    ];
    all_refused(two, &more);
}

fn all_refused(before: &str, cases: &[(&str, &str)]) {
    for (text, wanted) in cases {
        let said = refused(&format!("{before}{text}"));
        assert!(said.contains(wanted), "{text:?}\n said: {said}\nwanted: {wanted}");
    }
}

#[test]
fn what_is_wrong_with_a_route_is_said() {
    let near = "node a b\nlink a:x -- b:x\ninterface a:x address 10.0.0.2/24 fd00::2/64\nroute on a ";
    all_refused(
        near,
        &[
            ("10.1.0.0/16", "x.lab:4:23: 'via' is missing"),
            (
                "10.1.0.0/16 to",
                "x.lab:4:24: expected 'via', found 'to'; or one of blackhole, unreachable, prohibit",
            ),
            ("10.1.0.0/16 via 10.0.0.1 weight 0", "the weight is a number from 1 to 256, not '0'"),
            ("10.1.0.0/16 via 10.0.0.1 via 10.0.0.1", "10.0.0.1 is said twice; give it a larger weight"),
            ("default via 10.0.0.1 via fd00::1", "the way to default cannot lead over fd00::1"),
            ("default via 10.0.0.1 weight", "the weight is missing"),
            ("default via 10.0.0.1 weight 2 weight 3", "unexpected 'weight'"),
            (
                "default via 10.0.0.1 table x",
                "'x' is not the number of a table; write 'main', or a number from",
            ),
            ("default via 10.0.0.1 table 255", "the kernel keeps a node's own addresses in table 255"),
            ("default via 10.0.0.1 table 0", "'0' is not the number of a table"),
            ("default blackhole", "'default' does not say which version of IP; write 0.0.0.0/0 or ::/0"),
            ("10.1.0.1/16 prohibit", "is an address and not a network; write 10.1.0.0/16"),
            (
                "10.1.0.0/16 via 10.0.0.1 table 7\nroute on a 10.1.0.0/16 blackhole table 7",
                "node 'a' already has a route to 10.1.0.0/16; name all its next hops in one line",
            ),
        ],
    );
}

#[test]
fn routes_print_as_they_are_said() {
    let text = "node a b\nlink a:x -- b:x\ninterface a:x address 10.0.0.2/24 fd00::2/64\n\
                route on a default via 10.0.0.1 weight 256 via 10.0.0.3\nroute on a default via fd00::1 table 100\n\
                route on a 10.1.0.0/16 blackhole\nroute on a 10.1.0.0/16 unreachable table 4294967295\n\
                route on a ::/0 prohibit table 9\n";
    let topology = Topology::parse(text, "x").unwrap();
    assert!(topology.to_string().ends_with(&text[text.find("route").unwrap()..]), "{topology}");
    let plain = text.replace("weight 256", "weight 256 ").replace("table 100", "table main");
    assert_eq!(Topology::parse(&plain, "x").unwrap().routes[1].route.table, 254);
}

#[test]
fn what_is_wrong_with_a_policy_is_said() {
    all_refused(
        "node a b\nlink a:x -- b:x\npolicy on a ",
        &[
            ("", "x.lab:3:1: the policy says nothing to do; end it with 'table N priority N'"),
            ("table 7", "the policy has no priority; rules are tried from the smallest on"),
            ("table 7 priority 0", "the priority is a number from 1 to 32765, not '0'"),
            ("table 7 priority 32766", "the priority is a number from 1 to 32765, not '32766'"),
            (
                "table 7 prohibit priority 5",
                "x.lab:3:21: the policy says two things to do; write two policies",
            ),
            ("table 7 table 8", "'table' is said twice"),
            ("from 10.0.0.1 table 7", "'10.0.0.1' is not an address with a prefix length"),
            ("from 10.0.0.1/24 table 7", "'10.0.0.1/24' is an address and not a network; write 10.0.0.0/24"),
            (
                "from 10.0.0.0/24 to fd00::/64 table 7 priority 1",
                "are of different versions of IP; write two",
            ),
            (
                "iif y table 7",
                "node 'a' has no interface 'y'; its interfaces are x; 'lo' is what the node itself sends",
            ),
            ("fwmark 0x100/0xff table 7", "'0x100/0xff' is not a mark; write for example 7 or 0x10/0xff"),
            ("fwmark 7/0", "'7/0' is not a mark"),
            ("oif x", "unknown word 'oif' in a policy; the words are from, to,"),
            (
                "iif x table 7 priority 3\npolicy on a from fd00::/64 prohibit priority 3",
                "already has a policy with priority 3",
            ),
        ],
    );
}

#[test]
fn policies_print_as_they_are_said() {
    let text = "policy on a from 10.0.0.0/24 to 10.1.0.0/16 iif x fwmark 0x10/0xff table 100 priority 5\n\
                policy on a from fd00::/64 fwmark 0x7 prohibit priority 5\npolicy on b iif lo table main priority 6\n";
    let topology = Topology::parse(&format!("node a b\nlink a:x -- b:x\n{text}"), "x").unwrap();
    assert!(topology.to_string().ends_with(text), "{topology}");
    let same = "policy on a priority 5 fwmark 16/255 table 100 to 10.1.0.0/16 iif x from 10.0.0.0/24";
    let same = Topology::parse(&format!("node a b\nlink a:x -- b:x\n{same}"), "x").unwrap();
    assert_eq!(same.policies[0], topology.policies[0]);
}

#[test]
fn what_is_wrong_with_an_interface_over_another_is_said() {
    let three = "node a b c\nlink a:x -- b:x\nlink a:y -- b:y\nbridge br on b ports x\ninterface a:x address 10.0.0.2/24\n";
    all_refused(
        three,
        &[
            ("vxlan", "x.lab:6:6: the interface's name is missing"),
            (
                "vxlan v on a",
                "x.lab:6:1: the VXLAN has no id; write for example 'vxlan vx0 on a id 42 remote",
            ),
            ("vxlan v on a id 1", "the VXLAN has no remote"),
            ("vxlan v on a id 16777216", "the id is a number from 0 to 16777215, not '16777216'"),
            ("vxlan v on a id 1 id 1", "'id' is said twice"),
            ("vxlan v on a id 1 remote 239.0.0.1", "'239.0.0.1' is not the address of a host"),
            ("vxlan v on a id 1 remote 10.0.0.1 port 0", "the port is a number from 1 to 65535, not '0'"),
            (
                "vxlan v on a id 1 remote 10.0.0.1 local fd00::1",
                "'local' and 'remote' are of different versions",
            ),
            ("vxlan v on a id 1 remote 10.0.0.1 local 10.0.0.9", "10.0.0.9 is no address of node 'a'"),
            (
                "vxlan v on c over a:x id 1 remote 10.0.0.1 local 10.0.0.9",
                "10.0.0.9 is no address of node 'a'",
            ),
            (
                "vxlan v on a id 1 remote 10.0.0.1 mode l2",
                "unknown word 'mode' of a vxlan; the words are over, id, local",
            ),
            ("vxlan x on a id 1 remote 10.0.0.1", "x.lab:6:7: there is already an interface a:x"),
            (
                "macvlan v on c",
                "the macvlan is over no interface; write 'macvlan v on c over IF', or 'over NODE:IF'",
            ),
            ("macvlan v on c over", "the interface below is missing"),
            (
                "macvlan v on c over x",
                "x.lab:6:21: there is no end of a link, no bridge, no bond and no VLAN c:x",
            ),
            ("macvlan v on c over d:x", "unknown node 'd'"),
            ("vlan v on a over w id 1\nvlan w on a over v id 2", "x.lab:6:18: a:v would be over itself"),
            ("vlan v on a over v id 1", "a:v would be over itself"),
            (
                "vlan v on b over bs id 1\nvlan w on b over v id 2\nbridge bs on b ports w y",
                "would be over itself",
            ),
            ("vlan v on a over x id 1 proto 802.1p", "'802.1p' is not a protocol of vlan; 802.1Q, 802.1ad"),
            (
                "vlan v on a over x id 1 proto 802.1ad\nvlan w on a over x id 1 proto 802.1AD",
                "there is already a:w with the id 1 proto 802.1ad over it",
            ),
            (
                "macvlan v on c over a:x mode l2",
                "'l2' is not a mode of macvlan; bridge, private, vepa, passthru",
            ),
            ("ipvlan v on c over a:x mode vepa", "'vepa' is not a mode of ipvlan; l2, l3, l3s"),
            ("macvlan v on c over b:x", "b:x is a port of br, which takes its frames; write 'over b:br'"),
            (
                "macvlan v on b over br\nbridge q on b ports v y\nmacvlan w on b over v",
                "there is no end of a link, no bridge, no bond and no VLAN b:v",
            ),
            (
                "vxlan v on b over bs id 1 remote 10.0.0.1\nbridge bs on b ports v y",
                "b:v would be over the bridge that it is a port of",
            ),
            (
                "macvlan v on c over a:x\nipvlan w on c over a:x",
                "there is already c:w of another kind over it",
            ),
            (
                "ipvlan v on c over a:x\nipvlan w on c over a:x mode l3",
                "there is already c:w of another mode over it",
            ),
            ("macvlan v on c over a:x\nmacvlan w on c over a:x mode passthru", "is alone over it"),
            (
                "vlan v on c over a:x",
                "the VLAN has no id; write for example 'vlan eth0.5 on a over eth0 id 5'",
            ),
            ("vlan v on c id 5", "the vlan is over no interface"),
            ("vlan v on c over a:x id 4095", "the id is a number from 1 to 4094, not '4095'"),
            (
                "vlan v on c over a:x id 5\nvlan w on c over a:x id 5",
                "there is already c:w with the id 5 over it",
            ),
            ("vlan v on b over x id 5", "b:x is a port of br, which takes its frames"),
            (
                "vlan v on c over a:x id 5\nbond q on c ports v",
                "c:v is no end of a link; a bond is over ends of links",
            ),
            (
                "bond q on a ports x mode roundrobin",
                "'roundrobin' is not a mode of bond; balance-rr, active-backup",
            ),
            ("bond q on a ports x mode 802.3ad y", "unexpected 'y'"),
            ("bond q on b ports y\ninterface b:q queues 2", "'queues' cannot be said of a bond"),
            ("bond q on a ports mode", "node 'a' has no link with an end 'mode'"),
            (
                "ipvlan v on b over y\nbridge q on b ports v",
                "b:v is an ipvlan, which has no hardware address of its own",
            ),
            (
                "macvlan v on c over a:x\ninterface c:v queues 2",
                "'queues' cannot be said of a macvlan; say it of the interface below",
            ),
            (
                "ipvlan v on c over a:x\ninterface c:v mac 02:00:00:00:00:01",
                "'mac' cannot be said of an ipvlan",
            ),
            (
                "switch s\nlink a:z -- s:z\nmacvlan v on c over s:z",
                "a program takes all frames of node 's'; put it into another node",
            ),
            (
                "macvlan v on b over y\nbridge q on b ports v\ninterface b:v address 10.3.0.1/24",
                "is a port of a bridge and cannot have",
            ),
        ],
    );
}

#[test]
fn interfaces_over_others_print_as_they_are_said() {
    let text = "node a b c\nlink a:x -- b:x\nlink a:y -- b:y\nbridge br on b ports x m\n\
                vxlan v on a id 0 remote fd00::1 port 4789\nvxlan w on c over a:x id 7 local 10.0.0.2 remote 10.0.0.1 port 1\n\
                macvlan m on b over b:y mode private\nipvlan i on c over a:y mode l3s\n\
                vlan c on a over a:s id 7\nvlan s on a over a:y id 7 proto 802.1ad\n\
                interface a:x address 10.0.0.2/24\ninterface a:v mtu 1400 address fd00:1::1/64\ninterface c:w gro off mac 02:00:00:00:00:01\n";
    let topology = Topology::parse(text, "x").unwrap();
    let printed = topology.to_string();
    assert!(printed.ends_with(&text[text.find("link a:y").unwrap()..]), "{printed}");
    let short = text.replace(" port 4789", "").replace("over b:y", "over y");
    assert_eq!(Topology::parse(&short, "x").unwrap(), topology);
    let modes = "node a b\nlink a:x -- b:x\nmacvlan m on a over x\nipvlan i on b over x\n";
    let modes = Topology::parse(modes, "x").unwrap().to_string();
    assert!(modes.contains("over a:x mode bridge") && modes.contains("over b:x mode l2"), "{modes}");
}

#[test]
fn forwarders_keep_what_was_said_of_them() {
    let text = "node a\nswitch s\novs o\nnull n\nlink a:x -- s:x\nlink a:y -- o:x\nlink s:y -- n:x\nlink o:y -- n:y\n\
                ports on s ring?frames=8\nengine on s native\nports on o xdp\nrule on s priority=9,  tcp   actions=output:2 # crossed\nrules on s f.rules\n\
                fail on o standalone\nscenario on o learning\n";
    let topology = Topology::parse(text, "x").unwrap();
    let s = topology.forwarder("s").unwrap();
    assert_eq!(s.rules, ["priority=9, tcp actions=output:2"]);
    assert_eq!((s.files.len(), s.port("p1").as_str()), (1, "ring:p1?frames=8"));
    assert_eq!(s.engine.as_deref(), Some("native"));
    let o = topology.forwarder("o").unwrap();
    assert_eq!((o.standalone, o.scenario.as_deref()), (true, Some("learning")));
    assert!(topology.forwarder("n").unwrap().rules.is_empty() && topology.forwarder("a").is_none());
    assert_eq!(Topology::parse(&topology.to_string(), "x").unwrap(), topology, "{topology}");
}

/// Options of an end, as text that is right.
fn options() -> impl Strategy<Value = String> {
    let offload = (prop::sample::select(&OffloadFeature::ALL[..]), any::<bool>());
    let offloads = prop::collection::btree_map(offload.clone().prop_map(|o| o.0), any::<bool>(), 0..7);
    let all = prop::option::weighted(0.1, any::<bool>());
    let emulation = (0u64..9_000_000, 0u32..1_000_000, 0u32..1_000_000);
    let shaper = prop::option::of((1u64..10_000_000_000, 1600u32..u32::MAX, 1600u32..100_000_000));
    (
        prop::option::of(1280u32..1586),
        prop::option::of(0u32..5000),
        prop::option::of(1u32..9),
        offloads,
        all,
        shaper,
        prop::option::of(emulation),
    )
        .prop_map(|(mtu, length, queues, offloads, all, shaper, emulation)| {
            let mut text = String::new();
            let switch = |on| if on { "on" } else { "off" };
            text += &mtu.map(|v| format!(" mtu {v}")).unwrap_or_default();
            text += &all.map(|on| format!(" offload {}", switch(on))).unwrap_or_default();
            offloads.iter().for_each(|(o, on)| text += &format!(" {} {}", o.word(), switch(*on)));
            text += &length.map(|v| format!(" txqueuelen {v}")).unwrap_or_default();
            text += &queues.map(|v| format!(" queues {v}")).unwrap_or_default();
            if let Some((rate, limit, burst)) = shaper {
                text += &format!(" rate {}bit limit {limit}B burst {burst}B", rate * 8);
            }
            if let Some((delay, lose, reorder)) = emulation {
                let (lose, reorder) = (f64::from(lose) / 1e4, f64::from(reorder) / 1e6);
                text += &format!(" delay {}ns jitter {delay}ns lose {lose}% reorder {reorder}", delay + 1);
            }
            text
        })
}

/// A whole topology as text that is right: a line of nodes, some joined by bridges.
fn topology_text() -> impl Strategy<Value = String> {
    let link = (options(), options(), options(), any::<bool>(), any::<bool>(), any::<bool>());
    prop::collection::vec(link, 1..7).prop_map(|links| {
        let mut text = String::new();
        for n in 0..=links.len() {
            text += &format!("{} n{n}\n", if n % 3 == 1 { "router" } else { "node" });
        }
        for (n, (both, left, right, v6, mac, bridged)) in links.iter().enumerate() {
            let (a, b) = (format!("n{n}:r"), format!("n{}:l", n + 1));
            text += &format!("link {a} -- {b}{both}\n");
            text += &if left.is_empty() { String::new() } else { format!("interface {a}{left}\n") };
            text += &if right.is_empty() { String::new() } else { format!("interface {b}{right} # end\n") };
            text += &if *mac { format!("interface {a} mac 02:00:00:00:00:{n:02x}\n") } else { String::new() };
            if *bridged && n > 0 {
                text += &format!("bridge br on n{n} ports r l\ninterface n{n}:br address 10.9.{n}.1/24\n");
            } else if !links[..].get(n + 1).is_some_and(|next| next.5) {
                let six = if *v6 { format!(" fd00:{n:x}::2/64") } else { String::new() };
                text += &format!("interface {b} address 10.0.{n}.2/24{six}\n");
                text += &format!("route on n{} default via 10.0.{n}.1\n", n + 1);
                let (hops, kind) = (
                    format!("via 10.0.{n}.3 weight {} via 10.0.{n}.1", 2 + n),
                    ["blackhole", "unreachable", "prohibit"][n % 3],
                );
                text += &format!("route on n{} 10.7.0.0/16 {hops} table {}\n", n + 1, 254 + 2 * n);
                text += &format!("route on n{} 10.8.0.0/16 {kind}\n", n + 1);
                text +=
                    &format!("policy on n{} iif l fwmark {n} table {} priority {}\n", n + 1, 100 + n, 9 + n);
            }
            let (vxlan, mode) = (format!("id {n} remote 10.0.{n}.9"), ["bridge", "private", "vepa"][n % 3]);
            text += &match n % 4 {
                0 => format!(
                    "vxlan u on n{n} {vxlan} port {}\ninterface n{n}:u address 10.8.{n}.1/24\n",
                    n + 1
                ),
                1 if !bridged => {
                    format!("macvlan u on n0 over {a} mode {mode}\n").replace(" u ", &format!(" u{n} "))
                }
                2 => format!("vxlan u on n{n} over r {vxlan}\n"),
                _ => String::new(),
            };
            text += &format!("sysctl on n{n} net.ipv4.tcp_rmem=4096 {n} 6291456\n");
        }
        text
    })
}

proptest! {
    #[test]
    fn a_printed_topology_reads_back_as_itself(text in topology_text()) {
        let topology = Topology::parse(&text, "x").map_err(|p| TestCaseError::fail(format!("{p}\n{text}")))?;
        let printed = topology.to_string();
        let back = Topology::parse(&printed, "x").map_err(|p| TestCaseError::fail(format!("{p}\n{printed}")))?;
        prop_assert_eq!(&back, &topology, "{}", printed);
        prop_assert_eq!(back.to_string(), printed);
    }

    #[test]
    fn any_text_is_a_topology_or_a_sentence(text in "(.|\n){0,200}") {
        let _ = Topology::parse(&text, "x");
    }

    /// Text of the right words in a wrong order reaches far deeper than arbitrary letters.
    #[test]
    fn any_order_of_the_right_words_is_a_topology_or_a_sentence(
        words in prop::collection::vec(prop::sample::select(vec![
            "node", "router", "link", "bridge", "interface", "route", "sysctl", "a", "b", "a:x", "b:x", "--", "on",
            "ports", "x", "via", "default", "mtu", "1500", "rate", "1gbit", "limit", "9kB", "burst", "address",
            "10.0.0.1/24", "fd00::1/64", "0.0.0.0/0", "::/0", "10.0.0.2", "net.ipv4.x=1", "off", "tso", "mac", "\n", "\n",
            "vxlan", "\nvxlan v on a id 1 remote 10.0.0.9", "\nmacvlan m on a over b:x", "ipvlan", "over", "mode", "l3", "vepa",
            "local", "id", "\nbridge q on a ports v", "bond", "\nbond q on b ports x mode 802.3ad", "\nvlan v on a over x id 5", "vlan",
            "10.0.0.0/8", "weight", "7", "table", "100", "policy", "\npolicy on a from 10.0.0.0/8", "fwmark", "iif", "priority 9", "main", "blackhole", "prohibit",
            "\nnode a b\n", "\nlink a:x -- b:x", "\ninterface a:x", "\nroute on a", "#", "é", ":", "/", "=",
        ]), 0..60)
    ) {
        if let Ok(topology) = Topology::parse(&words.join(" "), "x") {
            prop_assert_eq!(Topology::parse(&topology.to_string(), "x").unwrap(), topology);
        }
    }

    /// The slow twin of the prefix arithmetic: compare bit by bit.
    #[test]
    fn a_prefix_contains_what_shares_its_first_bits(a: u128, b: u128, length in 0u8..=128, near: bool) {
        let b = if near { a ^ (b >> 100) } else { b };
        let bits = |value: u128| (0..length).map(|i| value >> (127 - i) & 1).collect::<Vec<_>>();
        let prefix = Prefix { address: IpAddr::V6(a.into()), length };
        prop_assert_eq!(prefix.contains(IpAddr::V6(b.into())), bits(a) == bits(b));
        let (a, b, length) = ((a >> 96) as u32, (b >> 96) as u32, length / 4);
        let bits = |value: u32| (0..length).map(|i| value >> (31 - i) & 1).collect::<Vec<_>>();
        let prefix = Prefix { address: IpAddr::V4(a.into()), length };
        prop_assert_eq!(prefix.contains(IpAddr::V4(b.into())), bits(a) == bits(b));
    }
}
