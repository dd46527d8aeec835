//! Innocents: what stands on a path and loses nothing. Nobody may be accused, nothing may be left unexplained, and the frames must be
//! seen where they went.

use super::{Fault, SMALL, SMALL_IN, SMALL_OUT, TestLab, lost_between_ours, until_received};
use std::path::Path;

/// Two routers with two links between them.
const TWO_WAYS: &str = "node a
router r1 r2
node b
link a:eth0 -- r1:eth0
link r1:eth1 -- r2:eth1
link r1:eth2 -- r2:eth2
link r2:eth0 -- b:eth0
interface a:eth0 address 10.0.1.2/24
interface r1:eth0 address 10.0.1.1/24
interface r1:eth1 address 10.1.0.1/24
interface r2:eth1 address 10.1.0.2/24
interface r1:eth2 address 10.2.0.1/24
interface r2:eth2 address 10.2.0.2/24
interface r2:eth0 address 10.0.2.1/24
interface b:eth0 address 10.0.2.2/24
route on a default via 10.0.1.1
route on b default via 10.0.2.1
route on r1 10.0.2.0/24 via 10.1.0.2
route on r2 10.0.1.0/24 via 10.1.0.1
";

/// A bridge with a third host.
const THREE_HOSTS: &str = "node a s b c
link a:eth0 -- s:p1
link b:eth0 -- s:p2
link c:eth0 -- s:p3
bridge br0 on s ports p1 p2 p3
interface a:eth0 address 10.0.0.1/24
interface b:eth0 address 10.0.0.2/24
interface c:eth0 address 10.0.0.3/24
";

/// Requests and their answers, told apart from the probes by their length.
const REQUESTS: &str = "test udp-rr size 64 count 3000 receive-buffer 16777216";

const fn innocent(
    name: &'static str,
    topology: &'static str,
    plant: &'static [(&'static str, &'static str)],
) -> Fault {
    Fault {
        name,
        topology,
        tests: SMALL,
        needs: &["ip", "nft"],
        plant,
        during: None,
        guilty: None,
        truth: lost_between_ours,
        beside: None,
        sees: &[],
    }
}

pub fn innocents() -> Vec<Fault> {
    let mut all = on_the_way();
    all.extend(around());
    all
}

/// What changes the way.
fn on_the_way() -> Vec<Fault> {
    vec![
        Fault {
            sees: &["r1:eth2", "r2:eth2"],
            beside: Some(lost_between_ours),
            ..innocent(
                "policy route by the entry",
                TWO_WAYS,
                &[
                    SMALL_OUT,
                    SMALL_IN,
                    ("r1", "ip rule add iif eth0 table 7 && ip route add 10.0.2.0/24 via 10.2.0.2 table 7"),
                ],
            )
        },
        Fault {
            tests: REQUESTS,
            sees: &["r1:eth1", "r2:eth2"],
            beside: Some(lost_between_ours),
            ..innocent(
                "another way back",
                TWO_WAYS,
                &[
                    SMALL_OUT,
                    SMALL_IN,
                    (
                        "r2",
                        "ip rule add from 10.0.2.2 table 7 && ip route add 10.0.1.0/24 via 10.2.0.1 table 7",
                    ),
                ],
            )
        },
        innocent(
            "two next hops by ports",
            TWO_WAYS,
            &[
                SMALL_OUT,
                SMALL_IN,
                (
                    "r1",
                    "sysctl -qw net.ipv4.fib_multipath_hash_policy=1 && \
                     ip route replace 10.0.2.0/24 nexthop via 10.1.0.2 nexthop via 10.2.0.2",
                ),
            ],
        ),
        Fault {
            during: Some(change_the_route),
            sees: &["r1:eth1", "r1:eth2"],
            beside: Some(lost_between_ours),
            ..innocent("route changed in mid-run", TWO_WAYS, &[SMALL_OUT, SMALL_IN])
        },
        Fault {
            sees: &["a:vx", "b:vx"],
            beside: Some(lost_between_ours),
            ..innocent(
                "VXLAN over a router",
                "router",
                &[
                    SMALL_OUT,
                    SMALL_IN,
                    (
                        "a",
                        "ip link add vx type vxlan id 7 local 10.0.1.2 remote 10.0.2.77 dstport 4789 dev eth0 && \
                         ip addr add 10.9.0.1/24 dev vx && ip link set vx up && ip route add 10.0.2.2/32 via 10.9.0.2",
                    ),
                    (
                        "b",
                        "ip addr add 10.0.2.77/24 dev eth0 && \
                         ip link add vx type vxlan id 7 local 10.0.2.77 remote 10.0.1.2 dstport 4789 dev eth0 && \
                         ip addr add 10.9.0.2/24 dev vx && ip link set vx up && \
                         sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.vx.rp_filter=0",
                    ),
                ],
            )
        },
        Fault {
            sees: &["b:br0"],
            beside: Some(lost_between_ours),
            ..innocent(
                "address on a bridge",
                "pair",
                &[
                    SMALL_OUT,
                    SMALL_IN,
                    (
                        "b",
                        "ip link add br0 type bridge mcast_snooping 0 && ip -4 addr flush dev eth0 && \
                         ip link set eth0 master br0 && ip link set br0 up && ip addr add 10.0.0.2/24 dev br0",
                    ),
                ],
            )
        },
        Fault {
            sees: &["b:m0"],
            ..innocent(
                "address on a macvlan",
                "pair",
                &[
                    SMALL_OUT,
                    SMALL_IN,
                    (
                        "b",
                        "sysctl -qw net.ipv4.conf.eth0.arp_ignore=1 && \
                         ip link add m0 link eth0 type macvlan mode bridge && ip -4 addr flush dev eth0 && \
                         ip link set m0 up && ip addr add 10.0.0.2/24 dev m0",
                    ),
                    ("a", "ip neigh flush all"),
                ],
            )
        },
    ]
}

fn change_the_route(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 2000)?;
    lab.inside("r1", "ip route replace 10.0.2.0/24 via 10.2.0.2").map(drop)
}

/// What is beside the way.
fn around() -> Vec<Fault> {
    vec![
        Fault {
            needs: &["ip", "nft", "tc"],
            sees: &["c:eth0"],
            ..innocent(
                "mirror to a third host",
                THREE_HOSTS,
                &[
                    SMALL_OUT,
                    SMALL_IN,
                    (
                        "s",
                        "tc qdisc add dev p1 clsact && \
                         tc filter add dev p1 ingress protocol ip u32 match u32 0 0 action mirred egress mirror dev p3",
                    ),
                ],
            )
        },
        Fault {
            needs: &["ip", "nft", "bridge"],
            sees: &["c:eth0"],
            ..innocent(
                "flood by a bridge that does not learn",
                THREE_HOSTS,
                &[
                    SMALL_OUT,
                    SMALL_IN,
                    ("s", "bridge link set dev p2 learning off && ip link set br0 type bridge fdb_flush"),
                ],
            )
        },
        Fault {
            needs: &["ip", "nft", "tcpdump"],
            during: Some(listen_on_the_way),
            ..innocent("capture on the way", "bridge", &[SMALL_OUT, SMALL_IN])
        },
        Fault {
            during: Some(rename_a_port),
            ..innocent("a port renamed in mid-run", "bridge", &[SMALL_OUT, SMALL_IN])
        },
        Fault {
            during: Some(come_and_go),
            beside: Some(lost_between_ours),
            ..innocent("interfaces that come and go", "bridge", &[SMALL_OUT, SMALL_IN])
        },
        Fault {
            tests: "test udp-stream size 64 gso 16 rate 50kpps duration 600ms receive-buffer 16777216",
            beside: Some(|_, _| Some(0)),
            truth: |_, _| Some(0),
            ..innocent("super-frames over a router", "router", &[])
        },
        Fault {
            tests: "test udp-stream size 64 family 6 rate 20kpps duration 600ms receive-buffer 16777216",
            beside: Some(|_, _| Some(0)),
            truth: |_, _| Some(0),
            ..innocent("IPv6 over a router", "router", &[])
        },
        Fault {
            tests: "test ping size 56 count 3000",
            beside: Some(|_, _| Some(0)),
            truth: |_, _| Some(0),
            ..innocent("echoes over a router", "router", &[])
        },
        Fault {
            tests: "test udp-stream size 4000 rate 3kpps duration 600ms receive-buffer 16777216",
            truth: |_, _| Some(0),
            ..innocent("fragments over a router", "router", &[])
        },
        Fault {
            tests: REQUESTS,
            truth: |_, _| Some(0),
            ..innocent(
                "a namespace and an address of somebody else",
                "bridge",
                &[
                    (
                        "s",
                        "ip addr add 10.0.0.9/24 dev br0 && ip link add x0 type veth peer name x1 && ip link set x0 up",
                    ),
                    ("b", "ip addr add 10.0.0.22/24 dev eth0 && ip rule add from 10.0.0.99 table 9"),
                ],
            )
        },
    ]
}

fn listen_on_the_way(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 500)?;
    lab.inside("s", "timeout 2 tcpdump -q -i br0 -c 2000 -w /dev/null 2>&1; true").map(drop)
}

fn rename_a_port(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 1000)?;
    lab.inside("s", "ip link set p2 name q2").map(drop)
}

fn come_and_go(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 500)?;
    let line = "for i in 1 2 3; do ip link add y0 type veth peer name y1 && ip link set y0 up && ip link del y0; done";
    lab.inside("s", line).map(drop)
}
