//! Faults of bridges and of links.

use super::innocents::THREE_HOSTS;
use super::plan::{Fault, Truth};

pub fn all() -> Vec<Fault> {
    let mut all = of_bridges();
    all.extend(of_links());
    all.extend(of_programs());
    all
}

fn of_bridges() -> Vec<Fault> {
    let at_bridge = |name, drop, line| {
        let counted = Fault::new(name, "bridge").counted().in_mid_run("s", line);
        counted.guilty("s", "bridge br0", drop, Truth::Between)
    };
    let closed = "port_not_forwarding";
    vec![
        at_bridge(
            "ports isolated from each other",
            "port_isolated",
            "bridge link set dev p1 isolated on && bridge link set dev p2 isolated on",
        )
        .beside_strangers(),
        at_bridge("a port that is disabled", closed, "bridge link set dev p2 state 0").beside_strangers(),
        at_bridge("an entry port that is disabled", closed, "bridge link set dev p1 state 0"),
        at_bridge("a port that left the bridge", closed, "ip link set p2 nomaster"),
        at_bridge(
            "an entry port that left the bridge",
            "otherhost|port_not_forwarding",
            "ip link set p1 nomaster",
        ),
        // The kernel disables the ports of a bridge that goes down.
        at_bridge("a bridge that is down", closed, "ip link set br0 down"),
        at_bridge(
            "a locked port",
            "port_locked",
            "bridge link set dev p1 learning off && ip link set br0 type bridge fdb_flush && \
             bridge link set dev p1 locked on",
        )
        .beside_strangers(),
        at_bridge(
            "no flood to an unknown address",
            closed,
            "bridge link set dev p2 flood off && bridge link set dev p2 learning off && \
             ip link set br0 type bridge fdb_flush",
        ),
        Fault::new("an address pinned to the wrong port", THREE_HOSTS)
            .counted()
            .in_mid_run(
                "s",
                "mac=$(bridge fdb show dev p2 | grep -v permanent | head -1 | cut -d' ' -f1) && \
                 bridge fdb del $mac dev p2 master; bridge fdb add $mac dev p3 master static",
            )
            .guilty("c", "*", "otherhost", Truth::Between)
            .sees(&["c:eth0"]),
        Fault::new("MTU hole at a bridge port", "bridge")
            .large()
            .plant("s", "ip link set p2 mtu 1000 && ip link set br0 mtu 1500")
            .guilty("s", "bridge br0", "mtu_exceeded", Truth::Between)
            .beside_strangers(),
    ]
}

fn of_links() -> Vec<Fault> {
    let down = |name, node, line, at, station| {
        let counted = Fault::new(name, "bridge").counted().in_mid_run(node, line);
        counted.guilty(at, station, "link_down", Truth::Between)
    };
    vec![
        Fault::new("MTU hole behind a bridge", "bridge")
            .large()
            .plant("b", "ip link set eth0 mtu 1000")
            .guilty("s", "link p2", "mtu_exceeded", Truth::Between)
            .beside_strangers(),
        down("the receiver's link down", "b", "ip link set eth0 down", "s", "*").beside_strangers(),
        down("a bridge's port down", "s", "ip link set p2 down", "s", "*").beside_strangers(),
        Fault::new("an entry port down", "bridge").counted().in_mid_run("s", "ip link set p1 down").guilty(
            "a",
            "*",
            "link_down|neighbour_unresolved",
            Truth::Between,
        ),
        Fault::new("a router's way out down", "router")
            .counted()
            .in_mid_run("r", "ip link set eth1 down")
            .guilty("r", "*", "link_down", Truth::Between)
            .beside_strangers(),
        Fault::new("the middle of three routers cut off", "line3")
            .counted()
            .in_mid_run("r3", "ip link set eth0 down")
            .guilty("r2", "*", "link_down|neighbour_unresolved", Truth::Between),
    ]
}

fn of_programs() -> Vec<Fault> {
    macro_rules! program {
        ($arguments:literal) => {
            concat!("python3 ", env!("CARGO_MANIFEST_DIR"), "/tests/faults/drop_program.py ", $arguments)
        };
    }
    vec![
        Fault::new("an XDP program that drops", "bridge")
            .counted()
            .plant("b", program!("eth0 xdp"))
            .needs("python3")
            .guilty("s", "link p2", "tc", Truth::Between)
            .without_bpf("b", "ip in")
            .beside_strangers(),
        Fault::new("a tc program that drops at a bridge's port", "bridge")
            .counted()
            .plant("s", program!("p1 tc"))
            .needs("python3")
            .guilty("s", "bridge br0", "tc", Truth::Between)
            .beside_strangers(),
    ]
}
