//! Two faults at once: both must be found, each with its own count.

use super::plan::{Fault, Truth, drop_one_in_three};

pub fn all() -> Vec<Fault> {
    const INPUT: &str = drop_one_in_three!("ip", "input");
    const FORWARD: &str = drop_one_in_three!("ip", "forward");
    vec![
        Fault::new("forward and input", "router")
            .plant("r", FORWARD)
            .plant("b", INPUT)
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r"))
            .guilty("b", "ip in", "filter_input", Truth::Nft("b"))
            .beside_strangers(),
        Fault::new("the first and the third router", "line3")
            .plant("r1", FORWARD)
            .plant("r3", FORWARD)
            .guilty("r1", "ip forward", "filter_forward", Truth::Nft("r1"))
            .guilty("r3", "ip forward", "filter_forward", Truth::Nft("r3"))
            .beside_strangers(),
        Fault::new("prerouting and postrouting of one router", "router")
            .plant("r", drop_one_in_three!("ip", "prerouting"))
            .plant(
                "r",
                "nft 'table ip u { chain c { type filter hook postrouting priority 0; udp length 72 numgen inc mod 5 0 drop; }; }'",
            )
            .counted()
            .guilty("r", "ip forward", "filter_prerouting", Truth::Nft("r"))
            .guilty("r", "ip forward", "filter_postrouting", Truth::BetweenLess("r")),
        Fault::new("a filter and a shaper", "router")
            .large()
            .plant("r", drop_one_in_three!("ip", "forward", "udp length 1480"))
            .plant("r", "tc qdisc add dev eth1 root tbf rate 40mbit burst 5kb limit 10kb")
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r"))
            .guilty("r", "qdisc eth1", "qdisc_full", Truth::BetweenLess("r"))
            .beside_strangers(),
        Fault::new("a shaper at the sender and one on the way", "bridge")
            .large()
            .plant("a", "tc qdisc add dev eth0 root tbf rate 80mbit burst 5kb limit 10kb")
            .plant("s", "tc qdisc add dev p2 root tbf rate 40mbit burst 5kb limit 10kb")
            .guilty("a", "qdisc eth0", "qdisc_full", Truth::Tc("a", "eth0"))
            .guilty("s", "qdisc p2", "qdisc_full", Truth::Tc("s", "p2")),
        Fault::new("a bridge's filter and a small receive buffer", "bridge")
            .tests("test udp-stream size 64 duration 400ms receive-buffer 2304")
            .plant("s", drop_one_in_three!("bridge", "forward"))
            .guilty("s", "bridge br0", "filter_forward", Truth::Nft("s"))
            .guilty("b", "socket", "socket_buffer_full", Truth::Kernel("b", "Udp:", "RcvbufErrors"))
            .beside_strangers(),
        Fault::new("the sender's output and a router", "router")
            .plant("a", drop_one_in_three!("ip", "output"))
            .plant("r", FORWARD)
            .guilty("a", "app send", "send_EPERM", Truth::Nft("a"))
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r")),
        Fault::new("requests at a router and answers at the sender", "router")
            .tests(super::plan::REQUESTS)
            .plant("r", drop_one_in_three!("ip", "forward", "ip saddr 10.0.1.2 udp length 72"))
            .plant("a", INPUT)
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r"))
            .guilty("a", "ip in", "filter_input", Truth::Nft("a"))
            .beside_strangers(),
        Fault::new("a filter and a route that ends in mid-run", "router")
            .plant("r", FORWARD)
            .counted()
            .in_mid_run("r", "ip route add blackhole 10.0.2.2/32")
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r"))
            .guilty("r", "ip forward", "no_route", Truth::BetweenLess("r")),
        Fault::new("a filter at a port and a link that goes down", "bridge")
            .plant("s", drop_one_in_three!("netdev", "ingress device p1"))
            .counted()
            .in_mid_run("b", "ip link set eth0 down")
            .guilty("s", "bridge br0", "filter_ingress", Truth::Nft("s"))
            .guilty("s", "*", "link_down", Truth::BetweenLess("s")),
        Fault::new("two filters, IPv6", "router")
            .tests(super::plan::SMALL_V6)
            .plant("r", drop_one_in_three!("ip6", "forward"))
            .plant("b", drop_one_in_three!("ip6", "input"))
            .guilty("r", "ip forward", "filter_forward", Truth::Nft("r"))
            .guilty("b", "ip in", "filter_input", Truth::Nft("b")),
    ]
}
