//! Faults of filters: every hook of every family of nftables where a frame of the test passes, policies, programs of tc and XDP.

use super::innocents::{TWO_WAYS, another_link};
use super::plan::{Fault, REQUESTS, SMALL_V6, Truth, drop_one_in_three};

pub fn all() -> Vec<Fault> {
    let mut all = of_ip();
    all.extend(of_links());
    all.extend(of_answers());
    all
}

fn of_ip() -> Vec<Fault> {
    let at_router = |name, station, drop, line| {
        Fault::new(name, "router").plant("r", line).guilty("r", station, drop, Truth::Nft("r"))
    };
    let forward = "ip forward";
    vec![
        at_router("drop in forward", forward, "filter_forward", drop_one_in_three!("ip", "forward"))
            .beside_strangers(),
        at_router("drop in prerouting", forward, "filter_prerouting", drop_one_in_three!("ip", "prerouting"))
            .beside_strangers(),
        at_router(
            "drop in postrouting",
            forward,
            "filter_postrouting",
            drop_one_in_three!("ip", "postrouting"),
        )
        .beside_strangers(),
        at_router(
            "a limit on a rate in forward",
            forward,
            "filter_forward",
            "nft 'table inet t { chain c { type filter hook forward priority 0; \
             udp length 72 limit rate over 8000/second counter drop; }; }'",
        )
        .beside_strangers(),
        at_router(
            "a quota in forward",
            forward,
            "filter_forward",
            "nft 'table inet t { chain c { type filter hook forward priority 0; \
             udp length 72 quota over 500 kbytes counter drop; }; }'",
        ),
        at_router(
            "a reverse-path rule in prerouting",
            forward,
            "filter_prerouting",
            "ip route add blackhole 10.0.1.2/32 table 9 && nft 'table ip t { chain c { type filter hook prerouting \
             priority -150; udp length 72 meta mark set numgen inc mod 4; meta mark 3 counter drop; }; }'",
        ),
        Fault::new("drop behind a link that comes in mid-run", TWO_WAYS)
            .counted()
            .plant("r2", drop_one_in_three!("ip", "prerouting", "iifname n1 udp length 72"))
            .during(another_link)
            .guilty("r2", forward, "filter_prerouting", Truth::Nft("r2"))
            .beside_strangers(),
        at_router("drop in forward, IPv6", forward, "filter_forward", drop_one_in_three!("ip6", "forward"))
            .tests(SMALL_V6)
            .beside_strangers(),
        at_router(
            "drop in prerouting, IPv6",
            forward,
            "filter_prerouting",
            drop_one_in_three!("ip6", "prerouting"),
        )
        .tests(SMALL_V6),
        Fault::new("drop in input", "bridge")
            .plant("b", drop_one_in_three!("ip", "input"))
            .guilty("b", "ip in", "filter_input", Truth::Nft("b"))
            .beside_strangers(),
        Fault::new("drop in input, IPv6", "router")
            .tests(SMALL_V6)
            .plant("b", drop_one_in_three!("ip6", "input"))
            .guilty("b", "ip in", "filter_input", Truth::Nft("b")),
        Fault::new("drop in the receiver's prerouting", "bridge")
            .plant("b", drop_one_in_three!("ip", "prerouting"))
            .guilty("b", "ip in", "filter_prerouting", Truth::Nft("b"))
            .beside_strangers(),
        Fault::new("drop at the second of three routers", "line3")
            .plant("r2", drop_one_in_three!("ip", "forward"))
            .guilty("r2", "ip forward", "filter_forward", Truth::Nft("r2"))
            .beside_strangers(),
        Fault::new("a policy of IPsec that blocks", "router")
            .counted()
            .in_mid_run("r", "ip xfrm policy add dir fwd action block")
            .guilty("r", "ip forward", "ipsec_policy", Truth::Between),
    ]
}

fn of_links() -> Vec<Fault> {
    let at_bridge = |name, drop, line| {
        Fault::new(name, "bridge").plant("s", line).guilty("s", "bridge br0", drop, Truth::Nft("s"))
    };
    vec![
        at_bridge("drop in a bridge's forward", "filter_forward", drop_one_in_three!("bridge", "forward"))
            .beside_strangers(),
        at_bridge(
            "drop in a bridge's prerouting",
            "filter_prerouting",
            drop_one_in_three!("bridge", "prerouting"),
        )
        .beside_strangers(),
        at_bridge(
            "drop in a bridge's postrouting",
            "filter_postrouting",
            drop_one_in_three!("bridge", "postrouting"),
        )
        .beside_strangers(),
        at_bridge(
            "drop at a port's ingress",
            "filter_ingress",
            drop_one_in_three!("netdev", "ingress device p1"),
        )
        .beside_strangers(),
        at_bridge(
            "drop at a port's egress",
            "filter_egress",
            drop_one_in_three!("netdev", "egress device p2"),
        ),
        Fault::new("drop at a router's egress", "router")
            .plant("r", drop_one_in_three!("netdev", "egress device eth1"))
            .guilty("r", "ip forward", "filter_egress", Truth::Nft("r"))
            .beside_strangers(),
        Fault::new("drop at the receiver's ingress", "bridge")
            .plant("b", drop_one_in_three!("netdev", "ingress device eth0"))
            .guilty("b", "ip in", "filter_ingress", Truth::Nft("b"))
            .beside_strangers(),
        Fault::new("drop at the sender's egress", "bridge")
            .plant("a", drop_one_in_three!("netdev", "egress device eth0"))
            .guilty("a", "ip out", "filter_egress", Truth::Nft("a")),
    ]
}

/// On the way back.
fn of_answers() -> Vec<Fault> {
    vec![
        Fault::new("drop of answers at a router", "router")
            .tests(REQUESTS)
            .plant("r", drop_one_in_three!("ip", "forward", "ip saddr 10.0.2.2 udp length 72"))
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r"))
            .beside_strangers(),
        Fault::new("drop of requests at a router", "router")
            .tests(REQUESTS)
            .plant("r", drop_one_in_three!("ip", "forward", "ip saddr 10.0.1.2 udp length 72"))
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r")),
        Fault::new("drop of echo requests at a router", "router")
            .tests("test ping size 56 count 600 rate 1kpps")
            .plant("r", drop_one_in_three!("ip", "forward", "icmp type echo-request ip length 84"))
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r"))
            .beside_strangers(),
        Fault::new("drop of answers at the sender", "bridge")
            .tests(REQUESTS)
            .plant("a", drop_one_in_three!("ip", "input"))
            .guilty("a", "ip in", "filter_input", Truth::Nft("a")),
    ]
}
