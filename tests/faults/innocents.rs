//! Innocents: what stands on a path and loses nothing. Nobody may be accused, nothing may be left unexplained, and the frames must be
//! seen where they went.

use super::plan::{Fault, REQUESTS, SMALL_V6, until_counted, until_received};
use super::support::TestLab;
use std::path::Path;

/// Two routers with two links between them.
pub const TWO_WAYS: &str = "node a
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
pub const THREE_HOSTS: &str = "node a s b c
link a:eth0 -- s:p1
link b:eth0 -- s:p2
link c:eth0 -- s:p3
bridge br0 on s ports p1 p2 p3
interface a:eth0 address 10.0.0.1/24
interface b:eth0 address 10.0.0.2/24
interface c:eth0 address 10.0.0.3/24
";

pub fn all() -> Vec<Fault> {
    let mut all = on_the_way();
    all.extend(around());
    all
}

/// What changes the way.
fn on_the_way() -> Vec<Fault> {
    vec![
        Fault::new("nothing (control)", "bridge").counted().beside_strangers(),
        Fault::new("policy route by the entry", TWO_WAYS)
            .counted()
            .plant("r1", "ip rule add iif eth0 table 7 && ip route add 10.0.2.0/24 via 10.2.0.2 table 7")
            .sees(&["r1:eth2", "r2:eth2"])
            .beside_strangers(),
        Fault::new("another way back", TWO_WAYS)
            .tests(REQUESTS)
            .plant("r2", "ip rule add from 10.0.2.2 table 7 && ip route add 10.0.1.0/24 via 10.2.0.1 table 7")
            .sees(&["r1:eth1", "r2:eth2"])
            .beside_strangers(),
        Fault::new("two next hops by ports", TWO_WAYS).counted().plant(
            "r1",
            "sysctl -qw net.ipv4.fib_multipath_hash_policy=1 && \
             ip route replace 10.0.2.0/24 nexthop via 10.1.0.2 nexthop via 10.2.0.2",
        ),
        Fault::new("route changed in mid-run", TWO_WAYS)
            .counted()
            .in_mid_run("r1", "ip route replace 10.0.2.0/24 via 10.2.0.2")
            .sees(&["r1:eth1", "r1:eth2"])
            .beside_strangers(),
        Fault::new("a link that comes in mid-run", TWO_WAYS)
            .counted()
            .during(another_link)
            .sees(&["r1:eth1", "r1:n0", "r2:n1"])
            .beside_strangers(),
        Fault::new("a tunnel that comes in mid-run", TWO_WAYS)
            .counted()
            .during(another_tunnel)
            .sees(&["r1:eth1", "r1:vx", "r1:eth2", "r2:vx"])
            .beside_strangers(),
        Fault::new("VXLAN over a router", "router")
            .counted()
            .plant(
                "a",
                "ip link add vx type vxlan id 7 local 10.0.1.2 remote 10.0.2.77 dstport 4789 dev eth0 && \
                 ip addr add 10.9.0.1/24 dev vx && ip link set vx up && ip route add 10.0.2.2/32 via 10.9.0.2",
            )
            .plant(
                "b",
                "ip addr add 10.0.2.77/24 dev eth0 && \
                 ip link add vx type vxlan id 7 local 10.0.2.77 remote 10.0.1.2 dstport 4789 dev eth0 && \
                 ip addr add 10.9.0.2/24 dev vx && ip link set vx up && \
                 sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.vx.rp_filter=0",
            )
            .sees(&["a:vx", "b:vx"])
            .beside_strangers(),
        Fault::new("address on a bridge", "pair")
            .counted()
            .plant(
                "b",
                "ip link add br0 type bridge mcast_snooping 0 && ip -4 addr flush dev eth0 && \
                 ip link set eth0 master br0 && ip link set br0 up && ip addr add 10.0.0.2/24 dev br0",
            )
            .sees(&["b:br0"])
            .beside_strangers(),
        Fault::new("address on a macvlan", "pair")
            .counted()
            .plant(
                "b",
                "sysctl -qw net.ipv4.conf.eth0.arp_ignore=1 && \
                 ip link add m0 link eth0 type macvlan mode bridge && ip -4 addr flush dev eth0 && \
                 ip link set m0 up && ip addr add 10.0.0.2/24 dev m0",
            )
            .plant("a", "ip neigh flush all")
            .sees(&["b:m0"]),
        Fault::new("a bridge whose router has an address", "bridge-address").counted().beside_strangers(),
        Fault::new("two ways of a topology's text", "ecmp").counted().beside_strangers(),
        Fault::new("policy rules of a topology's text", "rule").counted().beside_strangers(),
        Fault::new("VXLAN of a topology's text", "vxlan").counted().beside_strangers(),
        Fault::new("macvlan of a topology's text", "macvlan").counted(),
        Fault::new("a router that translates the source", "router")
            .counted()
            .plant("r", "nft 'table ip n { chain c { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }'")
            .beside_strangers(),
        Fault::new("requests through a translated source", "router")
            .tests(REQUESTS)
            .plant("r", "nft 'table ip n { chain c { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }'"),
    ]
}

/// What is beside the way.
fn around() -> Vec<Fault> {
    vec![
        Fault::new("mirror to a third host", THREE_HOSTS)
            .counted()
            .plant(
                "s",
                "tc qdisc add dev p1 clsact && \
                 tc filter add dev p1 ingress protocol ip u32 match u32 0 0 action mirred egress mirror dev p3",
            )
            .sees(&["c:eth0"]),
        Fault::new("flood by a bridge that does not learn", THREE_HOSTS)
            .counted()
            .plant("s", "bridge link set dev p2 learning off && ip link set br0 type bridge fdb_flush")
            .sees(&["c:eth0"]),
        Fault::new("capture on the way", "bridge").counted().needs("tcpdump").during(listen_on_the_way),
        Fault::new("a port renamed in mid-run", "bridge").counted().in_mid_run("s", "ip link set p2 name q2"),
        Fault::new("interfaces that come and go", "bridge")
            .counted()
            .in_mid_run(
                "s",
                "for i in 1 2 3; do ip link add y0 type veth peer name y1 && ip link set y0 up && ip link del y0; done",
            )
            .beside_strangers(),
        Fault::new("super-frames over a router", "router")
            .tests("test udp-stream size 64 gso 16 rate 50kpps duration 600ms receive-buffer 16777216")
            .beside_strangers(),
        Fault::new("IPv6 over a router", "router").tests(SMALL_V6).beside_strangers(),
        Fault::new("echoes over a router", "router").tests("test ping size 56 count 3000").beside_strangers(),
        Fault::new("fragments over a router", "router")
            .tests("test udp-stream size 4000 rate 3kpps duration 600ms receive-buffer 16777216"),
        Fault::new("a namespace and an address of somebody else", "bridge")
            .tests(REQUESTS)
            .plant("s", "ip addr add 10.0.0.9/24 dev br0 && ip link add x0 type veth peer name x1 && ip link set x0 up")
            .plant("b", "ip addr add 10.0.0.22/24 dev eth0 && ip rule add from 10.0.0.99 table 9"),
        Fault::new("connections that are tracked", "router")
            .counted()
            .plant("r", "nft 'table ip k { chain c { type filter hook forward priority 0; ct state new,established counter; }; }'")
            .beside_strangers(),
        Fault::new("a full-rate neighbour", "bridge").counted().needs("iperf3").during(flood),
        Fault::new("filters that drop others", "router")
            .counted()
            .plant("r", "nft 'table ip o { chain c { type filter hook forward priority 0; udp dport 9001-9004 drop; }; }'")
            .beside_strangers(),
    ]
}

/// Another program that sends as fast as it can on the same path, while the test goes on.
fn flood(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 500)?;
    lab.inside("b", "iperf3 -s -1 -D -p 7000 && sleep 0.1")?;
    lab.inside("a", "iperf3 -c 10.0.0.2 -p 7000 -u -b 0 -l 400 -t 1 >/dev/null").map(drop)
}

/// A link between the routers that was not there when the test began; the way goes over it as soon as it is there.
pub fn another_link(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    until_counted(lab, 1000)?;
    let there = lab.netns("r2");
    lab.inside("r1", &format!("ip link add n0 type veth peer name n1 netns {there} && ip link set n0 up && ip addr add 10.7.0.1/30 dev n0"))?;
    lab.inside("r2", "ip link set n1 up && ip addr add 10.7.0.2/30 dev n1")?;
    lab.inside("r1", "ip route replace 10.0.2.0/24 via 10.7.0.2").map(drop)
}

/// The same with a tunnel over a link that was there.
fn another_tunnel(lab: &TestLab, _: u32, _: &Path) -> Result<(), String> {
    until_counted(lab, 1000)?;
    for (node, here, there) in [("r2", 2, 1), ("r1", 1, 2)] {
        let tunnel = format!(
            "ip link add vx type vxlan id 7 local 10.2.0.{here} remote 10.2.0.{there} dstport 4789 dev eth2 && \
             ip link set vx up && ip addr add 10.7.0.{here}/30 dev vx"
        );
        lab.inside(node, &tunnel)?;
    }
    lab.inside("r1", "ip route replace 10.0.2.0/24 via 10.7.0.2").map(drop)
}

fn listen_on_the_way(lab: &TestLab, _run: u32, _: &Path) -> Result<(), String> {
    until_received(lab, "b", "eth0", 500)?;
    lab.inside("s", "timeout 2 tcpdump -q -i br0 -c 2000 -w /dev/null 2>&1; true").map(drop)
}
