//! The walk on data: bridges in a row, routers, circles; and the slow twin for labs as they are shipped.

use super::*;
use std::net::Ipv4Addr;

/// Nodes, and what each answers for each address.
#[derive(Default)]
struct Told {
    seen: Vec<Seen>,
    routes: BTreeMap<(usize, IpAddr), Route>,
}

fn walk(told: &Told, from: usize, to: usize, address: IpAddr) -> Option<Vec<Hop>> {
    let route = |node, to| told.routes.get(&(node, to)).copied();
    Machine { nodes: told.seen.clone(), route: &route }.walk(from, to, address)
}

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

impl Told {
    fn node(&mut self, name: &str) -> usize {
        self.seen.push(Seen { name: name.into(), ..Default::default() });
        self.seen.len() - 1
    }
    fn wire(&mut self, a: (usize, u32), b: (usize, u32)) {
        for (end, other) in [(a, b), (b, a)] {
            let link = LinkState {
                index: end.1,
                name: format!("v{}", end.1),
                kind: "veth".into(),
                peer: other.1,
                ..Default::default()
            };
            self.seen[end.0].links.insert(end.1, link);
        }
    }
    fn bridge(&mut self, node: usize, index: u32, ports: &[u32]) {
        let bridge =
            LinkState { index, name: format!("br{index}"), kind: "bridge".into(), ..Default::default() };
        self.seen[node].links.insert(index, bridge);
        for port in ports {
            let link = self.seen[node].links.get_mut(port).unwrap();
            (link.master, link.port_state) = (index, Some(3));
        }
    }
    fn own(&mut self, node: usize, interface: u32, address: IpAddr) {
        self.seen[node].addresses.push((interface, address));
        self.routes.insert((node, address), Route { local: true, interface: 1, via: None });
    }
    fn leads(&mut self, node: usize, to: IpAddr, interface: u32, via: Option<IpAddr>) {
        self.routes.insert((node, to), Route { local: false, interface, via });
    }
}

fn text(hops: &[Hop]) -> Vec<String> {
    let end = |end: &Option<String>| end.clone().unwrap_or_else(|| "-".into());
    let role = |hop: &Hop| format!("{:?}", hop.role).to_lowercase();
    hops.iter().map(|h| format!("{} {} {}>{}", h.node, role(h), end(&h.ingress), end(&h.egress))).collect()
}

/// a – s(br) – t(br) – b, with a dead-end branch and a circle between s and t.
fn switched() -> Told {
    let mut m = Told::default();
    let (a, s, t, b) = (m.node("a"), m.node("s"), m.node("t"), m.node("b"));
    m.wire((a, 10), (s, 11));
    m.wire((s, 12), (t, 13));
    m.wire((s, 14), (t, 15));
    m.wire((t, 16), (b, 17));
    m.bridge(s, 20, &[11, 12, 14]);
    m.bridge(t, 21, &[13, 15, 16]);
    m.own(a, 10, ip(1));
    m.own(b, 17, ip(2));
    m.leads(a, ip(2), 10, None);
    m
}

#[test]
fn bridges_in_a_row_are_found_even_with_a_circle_of_wires() {
    let way = walk(&switched(), 0, 3, ip(2)).unwrap();
    assert_eq!(text(&way), ["a sender ->v10", "s bridge v11>v12", "t bridge v13>v16", "b receiver v17>-"]);
    assert_eq!(way[1].bridge.as_deref(), Some("br20"));
}

#[test]
fn a_blocked_port_is_not_a_way() {
    let mut m = switched();
    m.seen[1].links.get_mut(&12).unwrap().port_state = Some(4);
    let way = walk(&m, 0, 3, ip(2)).unwrap();
    assert_eq!(text(&way)[1..3], ["s bridge v11>v14", "t bridge v15>v16"]);
    m.seen[1].links.get_mut(&14).unwrap().port_state = Some(0);
    assert!(walk(&m, 0, 3, ip(2)).is_none());
}

#[test]
fn routers_are_asked_and_a_circle_of_routes_ends() {
    let mut m = Told::default();
    let (a, r, b) = (m.node("a"), m.node("r"), m.node("b"));
    m.wire((a, 10), (r, 11));
    m.wire((r, 12), (b, 13));
    m.own(a, 10, ip(1));
    m.own(r, 11, ip(3));
    m.own(r, 12, ip(4));
    m.own(b, 13, ip(2));
    m.leads(a, ip(2), 10, Some(ip(3)));
    m.leads(r, ip(2), 12, None);
    let way = walk(&m, a, b, ip(2)).unwrap();
    assert_eq!(text(&way), ["a sender ->v10", "r router v11>v12", "b receiver v13>-"]);
    m.leads(r, ip(2), 11, Some(ip(1)));
    assert!(walk(&m, a, b, ip(2)).is_none(), "a and r send it to each other");
    m.routes.remove(&(r, ip(2)));
    assert!(walk(&m, a, b, ip(2)).is_none(), "no route");
}

#[test]
fn a_bridge_with_an_address_is_an_ip_interface_of_its_node() {
    let mut m = Told::default();
    let (a, s, b) = (m.node("a"), m.node("s"), m.node("b"));
    m.wire((a, 10), (s, 11));
    m.wire((s, 12), (b, 13));
    m.bridge(s, 20, &[11]);
    m.own(a, 10, ip(1));
    m.own(s, 20, ip(3));
    m.own(b, 13, ip(2));
    m.leads(a, ip(2), 10, Some(ip(3)));
    m.leads(s, ip(2), 12, None);
    let there = walk(&m, a, b, ip(2)).unwrap();
    assert_eq!(
        text(&there),
        ["a sender ->v10", "s bridge v11>br20", "s router br20>v12", "b receiver v13>-"]
    );
    m.leads(b, ip(1), 13, Some(ip(3)));
    m.leads(s, ip(1), 20, None);
    let back = walk(&m, b, a, ip(1)).unwrap();
    assert_eq!(text(&back), ["b sender ->v13", "s router v12>br20", "s bridge br20>v11", "a receiver v10>-"]);
}

#[test]
fn the_topology_alone_knows_a_way_through_every_shipped_lab() {
    let stations = [("pair", 2), ("bridge", 3), ("router", 3), ("bottleneck", 3), ("line3", 5)];
    for (name, hops) in stations {
        let topology = Topology::load(name).unwrap();
        let there = shortest(&topology, "a", "b").unwrap();
        assert_eq!(there.len(), hops, "{name}");
        let back = shortest(&topology, "b", "a").unwrap();
        let turned: Vec<_> =
            back.iter().rev().map(|h| (h.node.clone(), h.egress.clone(), h.ingress.clone())).collect();
        let forward: Vec<_> =
            there.iter().map(|h| (h.node.clone(), h.ingress.clone(), h.egress.clone())).collect();
        assert_eq!(turned, forward, "{name}");
    }
    let alone = Topology::parse("node a b c\nlink a:x -- b:x", "x").unwrap();
    assert!(shortest(&alone, "a", "c").is_none());
}
