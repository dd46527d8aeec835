//! Faults of queueing disciplines.

use super::plan::{Fault, Truth, segments};

pub fn all() -> Vec<Fault> {
    vec![
        Fault::new("tbf with a small limit", "bridge")
            .large()
            .plant("s", "tc qdisc add dev p2 root tbf rate 50mbit burst 5kb limit 10kb")
            .guilty("s", "qdisc p2", "qdisc_full", Truth::Between)
            .beside_strangers(),
        Fault::new("tbf at the sender", "pair")
            .large()
            .plant("a", "tc qdisc add dev eth0 root tbf rate 50mbit burst 5kb limit 10kb")
            .guilty("a", "qdisc eth0", "qdisc_full", Truth::Between)
            .beside_strangers(),
        Fault::new("tbf at a router", "router")
            .large()
            .plant("r", "tc qdisc add dev eth1 root tbf rate 50mbit burst 5kb limit 10kb")
            .guilty("r", "qdisc eth1", "qdisc_full", Truth::Between)
            .beside_strangers(),
        Fault::new("tbf at the last of three routers", "line3")
            .large()
            .plant("r3", "tc qdisc add dev eth1 root tbf rate 60mbit burst 5kb limit 10kb")
            .guilty("r3", "qdisc eth1", "qdisc_full", Truth::Between),
        Fault::new("tbf at a router, IPv6", "router")
            .v6()
            .plant("r", "tc qdisc add dev eth1 root tbf rate 8mbit burst 5kb limit 5kb")
            .guilty("r", "qdisc eth1", "qdisc_full", Truth::Between),
        Fault::new("txqueuelen 2 under a shaper", "bridge")
            .large()
            .plant(
                "s",
                "ip link set p2 txqueuelen 2 && tc qdisc add dev p2 root handle 1: htb default 10 && \
                 tc class add dev p2 parent 1: classid 1:10 htb rate 50mbit quantum 1514",
            )
            .guilty("s", "qdisc p2", "qdisc_full", Truth::Between)
            .beside_strangers(),
        Fault::new("bfifo under a shaper at a router", "router")
            .large()
            .plant(
                "r",
                "tc qdisc add dev eth1 root handle 1: htb default 10 && \
                 tc class add dev eth1 parent 1: classid 1:10 htb rate 50mbit quantum 1514 && \
                 tc qdisc add dev eth1 parent 1:10 bfifo limit 6000",
            )
            .guilty("r", "qdisc eth1", "qdisc_full", Truth::Between),
        Fault::new("a class of its own with a short queue", "router")
            .large()
            .plant(
                "r",
                "tc qdisc add dev eth1 root handle 1: htb default 20 && \
                 tc class add dev eth1 parent 1: classid 1:10 htb rate 40mbit quantum 1514 && \
                 tc class add dev eth1 parent 1: classid 1:20 htb rate 1gbit quantum 1514 && \
                 tc qdisc add dev eth1 parent 1:10 pfifo limit 3 && \
                 tc filter add dev eth1 parent 1: protocol ip u32 match ip protocol 17 0xff match u16 1500 0xffff at 2 flowid 1:10",
            )
            .guilty("r", "qdisc eth1", "qdisc_full", Truth::Between)
            .beside_strangers(),
        Fault::new("super-frames through a small tbf", "bridge")
            .tests("test udp-stream size 1200 gso 8 rate 10kpps duration 600ms receive-buffer 16777216")
            .plant("a", "nft 'table ip count { chain c { type filter hook postrouting priority 0; udp length > 400 counter; }; }'")
            .plant("b", "nft 'table ip count { chain c { type filter hook input priority 0; udp length > 400 counter; }; }'")
            .plant("s", "tc qdisc add dev p2 root tbf rate 40mbit burst 5kb limit 10kb")
            .guilty(
                "s",
                "qdisc p2",
                "qdisc_full",
                Truth::By(|lab, _| segments(lab, "a")?.checked_sub(segments(lab, "b")?)),
            ),
    ]
}
