//! One way to die at a time: the rows of `docs/counters.md`.
//!
//! Each case sends 100 datagrams, half of them before and half after something may happen midway, and then demands that
//! the named counters and the witness say exactly how many did not arrive. Reasons, interfaces and functions are the
//! kernel's own and change between versions: on other kernels than 6.18 a difference is printed, not failed.

use std::os::fd::AsFd;

use linux::sys::bpf;
use nix::sys::socket::{setsockopt, sockopt};
use record::ledger::WitnessDrop;

use crate::world::*;

const PAIR: &str = "10.0.0.2";
const BEYOND: &str = "10.0.1.2";

/// Where the witness must see the loss: reason, node, interface, function.
type Seen = (&'static str, &'static str, Option<&'static str>, &'static str);

struct Case {
    name: &'static str,
    world: fn() -> Option<World>,
    to: &'static str,
    size: usize,
    plant: fn(&World) -> Option<bpf::Attachment>,
    midway: fn(&World),
    /// Receive buffer of the receiving socket; 0 leaves it.
    receive_buffer: usize,
    /// Counters that grow by exactly the number of lost datagrams.
    counters: &'static [&'static str],
    /// Where the witness sees them; none where no buffer exists.
    seen: Option<Seen>,
}

const PLAIN: Case = Case {
    name: "nothing planted",
    world: World::pair,
    to: PAIR,
    size: 100,
    plant: |_| None,
    midway: |_| (),
    receive_buffer: 0,
    counters: &[],
    seen: None,
};

macro_rules! run {
    ($node:literal, $($line:expr),+) => {
        |world| { $(world.run($node, $line);)+ None }
    };
}

macro_rules! midway {
    ($node:literal, $line:expr) => {
        |world| world.run($node, $line)
    };
}

macro_rules! nft {
    ($node:literal, $family:literal, $hook:literal, $verdict:literal) => {
        |world| {
            world.nft(
                $node,
                concat!(
                    "table ",
                    $family,
                    " t { chain c { type filter hook ",
                    $hook,
                    " priority 0; udp dport 5201 counter ",
                    $verdict,
                    "; }; }"
                ),
            );
            None
        }
    };
}

const REFUSED_BY_PEER: Option<Seen> = Some(("NOT_SPECIFIED", "a", Some("eth0"), "__dev_forward_skb2"));
const SMALL_TBF: &str = "rate 10mbit burst 3000 limit 5000";

fn at_the_sender() -> Vec<Case> {
    vec![
        Case {
            name: "row 1: tbf full at the sender",
            size: 1000,
            plant: |world| {
                world.run("a", &format!("tc qdisc add dev eth0 root tbf {SMALL_TBF}"));
                None
            },
            counters: &["a eth0 tbf drops", "a Udp.SndbufErrors", "a Ip.OutDiscards"],
            seen: Some(("QDISC_DROP", "a", Some("eth0"), "__dev_queue_xmit")),
            ..PLAIN
        },
        Case {
            name: "row 1: short pfifo under a tbf",
            size: 1000,
            plant: run!(
                "a",
                "tc qdisc add dev eth0 root handle 1: tbf rate 10mbit burst 3000 limit 500000",
                "tc qdisc add dev eth0 parent 1:1 pfifo limit 2"
            ),
            counters: &["a eth0 tbf drops", "a eth0 pfifo drops"],
            seen: Some(("QDISC_DROP", "a", Some("eth0"), "__dev_queue_xmit")),
            ..PLAIN
        },
        Case {
            name: "row 3: frames longer than the burst",
            size: 1400,
            plant: run!("a", "tc qdisc add dev eth0 root tbf rate 10mbit burst 1000 limit 50000"),
            counters: &["a eth0 tbf drops"],
            seen: Some(("QDISC_DROP", "a", Some("eth0"), "__dev_queue_xmit")),
            ..PLAIN
        },
        Case {
            name: "row 12: own interface down",
            midway: midway!("a", "ip link set eth0 down"),
            counters: &["a Ip.OutNoRoutes"],
            ..PLAIN
        },
        Case {
            name: "row 17: neighbour unresolved",
            plant: |world| {
                world.run("b", "ip link set eth0 arp off");
                world.run("a", "ip neigh flush all");
                None
            },
            counters: &["a Udp.OutDatagrams"],
            seen: Some(("NEIGH_FAILED", "a", Some("eth0"), "neigh_invalidate")),
            ..PLAIN
        },
        Case {
            name: "row 23: nft drop in output",
            plant: nft!("a", "ip", "output", "drop"),
            counters: &["a t/c output counted", "a Ip.OutDiscards"],
            seen: Some(("NETFILTER_DROP", "a", None, "nft_do_chain")),
            ..PLAIN
        },
        Case {
            name: "row 24: nft drop in postrouting",
            plant: nft!("a", "ip", "postrouting", "drop"),
            counters: &["a t/c postrouting counted", "a Ip.OutDiscards"],
            seen: Some(("NETFILTER_DROP", "a", Some("eth0"), "nft_do_chain")),
            ..PLAIN
        },
        Case {
            name: "row 29: tcx drop at egress",
            plant: |world| Some(world.shoot("a", bpf::TCX_EGRESS)),
            counters: &["a Udp.SndbufErrors", "a Ip.OutDiscards"],
            seen: Some(("TC_EGRESS", "a", Some("eth0"), "__dev_queue_xmit")),
            ..PLAIN
        },
    ]
}

fn on_the_way() -> Vec<Case> {
    vec![
        Case {
            name: "row 4: receiver's MTU too small",
            size: 1400,
            plant: run!("b", "ip link set eth0 mtu 1000"),
            counters: &["a eth0 tx_dropped", "b eth0 rx_dropped", "a Udp.SndbufErrors", "a Ip.OutDiscards"],
            seen: REFUSED_BY_PEER,
            ..PLAIN
        },
        Case {
            name: "row 5: receiver's MTU too small, sender with a qdisc",
            size: 1400,
            plant: |world| {
                world.run("b", "ip link set eth0 mtu 1000");
                world.run("a", "tc qdisc add dev eth0 root pfifo");
                None
            },
            counters: &[
                "a eth0 tx_dropped",
                "b eth0 rx_dropped",
                "a eth0 pfifo packets",
                "a Udp.OutDatagrams",
            ],
            seen: REFUSED_BY_PEER,
            ..PLAIN
        },
        Case {
            name: "row 6: receiver's MTU too small behind a bridge",
            world: World::bridge,
            size: 1400,
            plant: run!("b", "ip link set eth0 mtu 1000"),
            counters: &["s p2 tx_dropped", "b eth0 rx_dropped", "s p1 rx_packets"],
            seen: Some(("NOT_SPECIFIED", "s", Some("p2"), "__dev_forward_skb2")),
            ..PLAIN
        },
        Case {
            name: "row 7: bridge egress port with a small MTU",
            world: World::bridge,
            size: 1400,
            plant: run!("s", "ip link set p2 mtu 1000"),
            counters: &["s p1 rx_packets"],
            seen: Some(("NOT_SPECIFIED", "s", Some("p2"), "br_nf_dev_queue_xmit")),
            ..PLAIN
        },
        Case {
            name: "row 8: bridge ingress port with a small MTU",
            world: World::bridge,
            size: 1400,
            plant: run!("s", "ip link set p1 mtu 1000"),
            counters: &["a eth0 tx_dropped", "s p1 rx_dropped"],
            seen: REFUSED_BY_PEER,
            ..PLAIN
        },
        Case {
            name: "row 9: router egress MTU too small, DF set",
            world: World::router,
            to: BEYOND,
            size: 1400,
            plant: run!("r", "ip link set eth1 mtu 1000"),
            counters: &["r Ip.FragFails"],
            seen: Some(("PKT_TOO_BIG", "r", Some("eth0"), "ip_forward")),
            ..PLAIN
        },
        Case {
            name: "row 10: peer goes down",
            midway: midway!("b", "ip link set eth0 down"),
            counters: &["a eth0 tx_dropped", "b eth0 rx_dropped", "a Udp.SndbufErrors"],
            seen: REFUSED_BY_PEER,
            ..PLAIN
        },
        Case {
            name: "row 13: bridge port goes down",
            world: World::bridge,
            midway: midway!("s", "ip link set p2 down"),
            seen: Some(("NO_TX_TARGET", "s", Some("p1"), "br_handle_frame_finish")),
            ..PLAIN
        },
        Case {
            name: "row 15: bridge goes down",
            world: World::bridge,
            midway: midway!("s", "ip link set br0 down"),
            seen: Some(("BRIDGE_INGRESS_STP_STATE", "s", Some("p1"), "br_handle_frame")),
            ..PLAIN
        },
        Case {
            name: "row 26: nft drop in the bridge",
            world: World::bridge,
            plant: nft!("s", "bridge", "forward", "drop"),
            counters: &["s t/c forward counted", "s p1 rx_packets"],
            seen: Some(("NETFILTER_DROP", "s", Some("p2"), "nft_do_chain")),
            ..PLAIN
        },
        Case {
            name: "row 2: tbf full at a bridge port",
            world: World::bridge,
            size: 1000,
            plant: |world| {
                world.run("s", &format!("tc qdisc add dev p2 root tbf {SMALL_TBF}"));
                None
            },
            counters: &["s p2 tbf drops"],
            seen: Some(("QDISC_DROP", "s", Some("p2"), "__dev_queue_xmit")),
            ..PLAIN
        },
    ]
}

fn at_a_router() -> Vec<Case> {
    const ROUTED: Case = Case { world: World::router, to: BEYOND, ..PLAIN };
    vec![
        Case {
            name: "row 2: tbf full at a router",
            size: 1000,
            plant: |world| {
                world.run("r", &format!("tc qdisc add dev eth1 root tbf {SMALL_TBF}"));
                None
            },
            counters: &["r eth1 tbf drops"],
            seen: Some(("QDISC_DROP", "r", Some("eth1"), "__dev_queue_xmit")),
            ..ROUTED
        },
        Case {
            name: "row 16: router's interface goes down",
            midway: midway!("r", "ip link set eth1 down"),
            counters: &["r IpExt.InNoRoutes"],
            seen: Some(("IP_INNOROUTES", "r", Some("eth0"), "ip_error")),
            ..ROUTED
        },
        Case {
            name: "row 18: neighbour unresolved at the router",
            plant: |world| {
                world.run("b", "ip link set eth0 arp off");
                world.run("r", "ip neigh flush dev eth1");
                None
            },
            counters: &["r Ip.ForwDatagrams"],
            seen: Some(("NEIGH_FAILED", "r", Some("eth1"), "neigh_invalidate")),
            ..ROUTED
        },
        Case {
            name: "row 22: nft drop in forward",
            plant: nft!("r", "ip", "forward", "drop"),
            counters: &["r t/c forward counted", "r Ip.ForwDatagrams"],
            seen: Some(("NETFILTER_DROP", "r", Some("eth0"), "nft_do_chain")),
            ..ROUTED
        },
        Case {
            name: "row 34: TTL ends",
            plant: run!("a", "sysctl -qw net.ipv4.ip_default_ttl=1"),
            counters: &["r Ip.InHdrErrors"],
            seen: Some(("IP_INHDR", "r", Some("eth0"), "ip_forward")),
            ..ROUTED
        },
        Case {
            name: "row 35: no route",
            plant: run!("r", "ip route del 10.0.1.0/24 dev eth1"),
            counters: &["r IpExt.InNoRoutes"],
            seen: Some(("IP_INNOROUTES", "r", Some("eth0"), "ip_error")),
            ..ROUTED
        },
        Case {
            name: "row 36: blackhole route",
            plant: run!("r", "ip route replace blackhole 10.0.1.2/32"),
            counters: &["r Ip.InReceives"],
            seen: Some(("NOT_SPECIFIED", "r", Some("eth0"), "ip_error")),
            ..ROUTED
        },
        Case {
            name: "row 37: no forwarding",
            plant: run!("r", "sysctl -qw net.ipv4.ip_forward=0"),
            counters: &["r Ip.InAddrErrors"],
            seen: Some(("IP_INADDRERRORS", "r", Some("eth0"), "ip_error")),
            ..ROUTED
        },
    ]
}

fn at_the_receiver() -> Vec<Case> {
    vec![
        Case {
            name: "row 19: wrong hardware address",
            plant: run!("a", "ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev eth0"),
            counters: &["b eth0 rx_otherhost_dropped", "b eth0 rx_packets"],
            seen: Some(("OTHERHOST", "b", Some("eth0"), "ip_rcv_core")),
            ..PLAIN
        },
        Case {
            name: "row 20: rp_filter",
            plant: run!(
                "b",
                "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1",
                "ip route del 10.0.0.0/24 dev eth0"
            ),
            counters: &["b TcpExt.IPReversePathFilter"],
            seen: Some(("IP_RPFILTER", "b", Some("eth0"), "ip_rcv_finish_core")),
            ..PLAIN
        },
        Case {
            name: "row 21: nft drop in input",
            plant: nft!("b", "ip", "input", "drop"),
            counters: &["b t/c input counted", "b Ip.InReceives"],
            seen: Some(("NETFILTER_DROP", "b", Some("eth0"), "nft_do_chain")),
            ..PLAIN
        },
        Case {
            name: "row 25: nft reject in input",
            plant: nft!("b", "ip", "input", "reject"),
            counters: &["b t/c input counted"],
            seen: Some(("NETFILTER_DROP", "b", Some("eth0"), "nft_do_chain")),
            ..PLAIN
        },
        Case {
            name: "row 27: nft drop at netdev ingress",
            plant: nft!("b", "netdev", "ingress device eth0", "drop"),
            counters: &["b t/c ingress counted", "b eth0 rx_packets"],
            seen: Some(("NETFILTER_DROP", "b", Some("eth0"), "nft_do_chain")),
            ..PLAIN
        },
        Case {
            name: "row 28: tcx drop at ingress",
            plant: |world| Some(world.shoot("b", bpf::TCX_INGRESS)),
            counters: &["b eth0 rx_packets"],
            seen: Some(("TC_INGRESS", "b", Some("eth0"), "__netif_receive_skb_core")),
            ..PLAIN
        },
        Case {
            name: "row 32: receive buffer full",
            receive_buffer: 2304,
            counters: &["b Udp.RcvbufErrors", "b Udp.InErrors", "b udp 5201 drops"],
            seen: Some(("SOCKET_RCVBUFF", "b", Some("eth0"), "udp_queue_rcv_one_skb")),
            ..PLAIN
        },
        Case {
            name: "row 37: address gone",
            plant: run!("b", "ip addr del 10.0.0.2/24 dev eth0"),
            counters: &["b Ip.InAddrErrors"],
            seen: Some(("IP_INADDRERRORS", "b", Some("eth0"), "ip_error")),
            ..PLAIN
        },
    ]
}

#[test]
fn nothing_planted_loses_and_accuses_nothing() {
    let Some(lost) = play(&PLAIN) else { return };
    assert_eq!(lost, 0);
}

#[test]
fn causes_at_the_sender() {
    at_the_sender().iter().for_each(demand);
}

#[test]
fn causes_on_the_way() {
    on_the_way().iter().for_each(demand);
}

#[test]
fn causes_at_a_router() {
    at_a_router().iter().for_each(demand);
}

#[test]
fn causes_at_the_receiver() {
    at_the_receiver().iter().for_each(demand);
}

/// A case loses something, and that has its causes.
fn demand(case: &Case) {
    let Some(lost) = play(case) else { return };
    assert!(lost > 0, "{}: nothing was lost, the case tests nothing", case.name);
}

/// Plays a case, once more, twice at most, when the witness says itself that it missed drops: how many datagrams were lost; none if it could
/// not be played.
fn play(case: &Case) -> Option<i64> {
    let once = || {
        let played = play_once(case);
        let why = played.as_ref().err().cloned();
        (played, why)
    };
    let played = crate::again::play("causes, the witness missed drops", case.name, 3, once);
    played.unwrap_or_else(|why| panic!("{}: {why}", case.name))
}

/// Plays it once; an error says how many drops the witness missed, as it says itself.
fn play_once(case: &Case) -> Result<Option<i64>, String> {
    let Some(world) = (case.world)() else { return Ok(None) };
    // Such a program needs what the witness needs, and the witness says why it is not permitted.
    if case.name.contains("tcx") && world.witness().is_none() {
        return Ok(None);
    }
    world.introduce("a", ("b", case.to));
    let receiver = world.udp("b", case.to, PORT);
    receiver.set_nonblocking(true).expect("a socket");
    if case.receive_buffer > 0 {
        setsockopt(&receiver.as_fd(), sockopt::RcvBuf, &case.receive_buffer).expect("a socket");
    }
    let sender = world.udp("a", "0.0.0.0", 40000);
    let _held = (case.plant)(&world);
    let mut observer = world.observer();
    let witness = world.witness();
    settle(&mut observer);
    let before = observer.snapshot(&[]).expect("readable");
    let mut received = 0;
    let data = vec![7u8; case.size];
    for i in 0..100 {
        if i == 50 {
            (case.midway)(&world);
        }
        let _ = sender.send_to(&data, (case.to, PORT));
        if case.receive_buffer == 0 {
            received += drain(&receiver);
        }
    }
    settle(&mut observer);
    received += drain(&receiver);
    let after = observer.snapshot(&[]).expect("readable");
    let lost = 100 - received;
    let changes = changes(&before, &after);
    for counter in case.counters {
        assert_eq!(grew(&changes, counter), lost, "{}: {counter} of {changes:?}", case.name);
    }
    if let Some(count) = witness.map(|witness| witness.read().expect("readable")) {
        if count.lost > 0 {
            return Err(format!("the witness missed {} drops, as it says", count.lost));
        }
        assert_eq!(count.unparsed, 0, "{}: {count:?}", case.name);
        judge(case, &count.details, lost);
    }
    println!("{}: {lost} lost, as the counters and the witness say", case.name);
    Ok(Some(lost))
}

fn judge(case: &Case, details: &[WitnessDrop], lost: i64) {
    let total: u64 = details.iter().map(|drop| drop.frames).sum();
    let Some((reason, node, interface, location)) = case.seen else {
        return assert_eq!(details, [], "{}", case.name);
    };
    assert_eq!(total as i64, lost, "{}: {details:?}", case.name);
    let [drop] = details else { panic!("{}: one place expected: {details:?}", case.name) };
    assert_eq!(drop.node, node, "{}", case.name);
    let found = (drop.reason.as_str(), drop.interface.as_deref(), drop.location.as_deref());
    if found != (reason, interface, Some(location)) {
        let text = format!("{}: documented {:?}, this kernel says {found:?}", case.name, case.seen);
        assert!(!linux::observe::host_facts().kernel.starts_with("6.18"), "{text}");
        println!("NOTE: {text}");
    }
}
