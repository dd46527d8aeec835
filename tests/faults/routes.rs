//! Faults of addresses, routes and neighbours.

use super::innocents::TWO_WAYS;
use super::plan::{Fault, Truth};

pub fn all() -> Vec<Fault> {
    let mut all = of_routes();
    all.extend(of_neighbours());
    all.extend(of_addresses());
    all
}

fn of_routes() -> Vec<Fault> {
    let at_router = |name, drop, line| {
        let counted = Fault::new(name, "router").counted().in_mid_run("r", line);
        counted.guilty("r", "ip forward", drop, Truth::Between)
    };
    let at_router_v6 = |name, drop, line| {
        let counted = Fault::new(name, "router").v6().in_mid_run("r", line);
        counted.guilty("r", "ip forward", drop, Truth::Between)
    };
    vec![
        at_router("blackhole route", "no_route", "ip route add blackhole 10.0.2.2/32").beside_strangers(),
        // The router's ICMP errors reach the sender, whose next call each of them refuses.
        at_router("unreachable route", "no_route", "ip route add unreachable 10.0.2.2/32").may_follow("a", "send_"),
        at_router("prohibited route", "no_route", "ip route add prohibit 10.0.2.2/32").may_follow("a", "send_"),
        at_router("policy rule that drops", "no_route", "ip rule add to 10.0.2.2 blackhole").beside_strangers(),
        at_router("a route that is gone", "no_route", "ip route del 10.0.2.0/24"),
        // For a moment the kernel still looks for a route.
        at_router("forwarding switched off", "address_error|no_route", "sysctl -qw net.ipv4.conf.eth0.forwarding=0"),
        at_router_v6("blackhole route, IPv6", "no_route", "ip -6 route add blackhole fd00:2::2/128"),
        at_router_v6("forwarding switched off, IPv6", "address_error", "sysctl -qw net.ipv6.conf.all.forwarding=0"),
        Fault::new("a TTL that ends at the router", "router")
            .counted()
            .in_mid_run("a", "sysctl -qw net.ipv4.ip_default_ttl=1")
            .guilty("r", "ip forward", "header_error", Truth::Between)
            .beside_strangers(),
        Fault::new("a TTL that ends at the second router", "line3")
            .counted()
            .in_mid_run("a", "sysctl -qw net.ipv4.ip_default_ttl=2")
            .guilty("r2", "ip forward", "header_error", Truth::Between),
        Fault::new("a hop limit that ends at the router", "router")
            .v6()
            .in_mid_run("a", "ip -6 route change default via fd00:1::1 hoplimit 1")
            .guilty("r", "ip forward", "header_error", Truth::Between),
        Fault::new("rp_filter at the receiver", "router")
            .counted()
            .plant(
                "b",
                "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1 && ip -4 route del default",
            )
            .guilty("b", "ip in", "rp_filter", Truth::Between)
            .beside_strangers(),
        Fault::new("rp_filter at a router", "router")
            .counted()
            .plant(
                "a",
                "sysctl -qw net.ipv4.conf.eth0.arp_announce=2 && ip addr add 10.9.9.9/32 dev lo && \
                 ip route change default via 10.0.1.1 src 10.9.9.9",
            )
            .plant("r", "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1")
            .guilty("r", "ip forward", "rp_filter", Truth::Between)
            .beside_strangers(),
        Fault::new("rp_filter on the second of two ways", TWO_WAYS)
            .counted()
            .plant("r2", "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth2.rp_filter=1")
            .in_mid_run("r1", "ip route replace 10.0.2.0/24 via 10.2.0.2")
            .guilty("r2", "ip forward", "rp_filter", Truth::Between)
            .sees(&["r1:eth1", "r1:eth2", "r2:eth2"])
            .beside_strangers(),
    ]
}

fn of_neighbours() -> Vec<Fault> {
    vec![
        Fault::new("missing neighbour entry", "pair")
            .counted()
            .plant("b", "ip link set eth0 arp off")
            .plant("a", "ip neigh flush all")
            .guilty("a", "ip out", "neighbour_unresolved", Truth::Between)
            .beside_strangers(),
        Fault::new("missing neighbour at a router", "router")
            .counted()
            .plant("b", "ip link set eth0 arp off")
            .plant("r", "ip neigh flush all")
            .guilty("r", "ip forward", "neighbour_unresolved", Truth::Between)
            .beside_strangers(),
        Fault::new("a wrong hardware address", "pair")
            .counted()
            .in_mid_run("a", "ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
            .guilty("b", "ip in", "otherhost", Truth::Between)
            .beside_strangers(),
        Fault::new("a wrong hardware address at a router", "router")
            .counted()
            .in_mid_run("r", "ip neigh replace 10.0.2.2 lladdr 02:00:00:00:00:99 dev eth1 nud permanent")
            .guilty("b", "ip in", "otherhost", Truth::Between),
        Fault::new("a wrong hardware address, IPv6", "router")
            .v6()
            .in_mid_run("r", "ip neigh replace fd00:2::2 lladdr 02:00:00:00:00:99 dev eth1 nud permanent")
            .guilty("b", "ip in", "otherhost", Truth::Between),
    ]
}

fn of_addresses() -> Vec<Fault> {
    vec![
        Fault::new("an address that is gone", "pair")
            .counted()
            .in_mid_run("b", "ip addr del 10.0.0.2/24 dev eth0")
            .guilty("b", "ip in", "address_error", Truth::Between),
        Fault::new("an address that moved to another host", super::innocents::THREE_HOSTS)
            .counted()
            .in_mid_run("c", "ip addr add 10.0.0.2/24 dev eth0 && arping -q -c 2 -U -I eth0 10.0.0.2 || true")
            .needs("arping")
            .guilty("c", "*", "no_socket", Truth::Between)
            // The new host says that nobody listens there, which a connected socket hears at its next send.
            .may_follow("a", "send_"),
    ]
}
