//! Namespaces held only by descriptors, veth pairs between them, and tools run inside: nothing to clean up.

use crate::support::skip;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Command;

use ::bpf::{Assembler, Op, Reg};
use linux::observe::{Flow, FlowProtocol, Observer, Patience, Witness};
use linux::sys::{bpf, clock, netns};
use record::Snapshot;

/// The port of the test's flow.
pub const PORT: u16 = 5201;

pub struct World {
    nodes: Vec<(String, OwnedFd)>,
}

impl World {
    /// Namespaces of these names with loopback up; none (and a visible line) where that is not permitted.
    pub fn new(names: &[&str]) -> Option<World> {
        let mut nodes = Vec::new();
        for name in names {
            match netns::create() {
                Ok(namespace) => nodes.push(((*name).to_owned(), namespace)),
                Err(error) => {
                    let why = format!("no network namespace can be made here: {error}");
                    skip("counters of namespaces", &why);
                    return None;
                }
            }
        }
        let world = World { nodes };
        for name in names {
            // Without IPv6 nothing but the test's own frames moves.
            world.run(
                name,
                "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
            );
            world.run(name, "ip link set lo up");
        }
        Some(world)
    }

    /// `a` and `b` on one veth.
    pub fn pair() -> Option<World> {
        let world = World::new(&["a", "b"])?;
        world.veth(("a", "eth0"), ("b", "eth0"));
        world.address("a", "eth0", "10.0.0.1/24");
        world.address("b", "eth0", "10.0.0.2/24");
        Some(world)
    }

    /// [`World::pair`] with IPv6.
    pub fn pair6() -> Option<World> {
        let world = World::pair()?;
        for (node, address) in [("a", "fd00::1/64"), ("b", "fd00::2/64")] {
            world.run(node, "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.eth0.disable_ipv6=0");
            world.address(node, "eth0", address);
        }
        Some(world)
    }

    /// `a`, a bridge `s` with ports `p1` and `p2`, `b`.
    pub fn bridge() -> Option<World> {
        let world = World::new(&["a", "s", "b"])?;
        world.run("s", "ip link add br0 type bridge mcast_snooping 0");
        world.run("s", "ip link set br0 up");
        for (node, port, address) in [("a", "p1", "10.0.0.1/24"), ("b", "p2", "10.0.0.2/24")] {
            world.veth((node, "eth0"), ("s", port));
            world.run("s", &format!("ip link set {port} master br0"));
            world.address(node, "eth0", address);
        }
        Some(world)
    }

    /// `a`, a router `r`, `b`.
    pub fn router() -> Option<World> {
        let world = World::new(&["a", "r", "b"])?;
        world.veth(("a", "eth0"), ("r", "eth0"));
        world.veth(("b", "eth0"), ("r", "eth1"));
        world.address("a", "eth0", "10.0.0.1/24");
        world.address("r", "eth0", "10.0.0.254/24");
        world.address("r", "eth1", "10.0.1.254/24");
        world.address("b", "eth0", "10.0.1.2/24");
        world.run("r", "sysctl -qw net.ipv4.ip_forward=1");
        world.run("a", "ip route add default via 10.0.0.254");
        world.run("b", "ip route add default via 10.0.1.254");
        Some(world)
    }

    fn namespace(&self, name: &str) -> BorrowedFd<'_> {
        self.nodes.iter().find(|(node, _)| node == name).expect("a node of this world").1.as_fd()
    }

    pub fn borrowed(&self) -> Vec<(String, BorrowedFd<'_>)> {
        self.nodes.iter().map(|(name, namespace)| (name.clone(), namespace.as_fd())).collect()
    }

    pub fn inside<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        netns::within(self.namespace(node), work).expect("the namespace can be entered")
    }

    /// Runs a command line (no quoting) inside a node; it must succeed.
    pub fn run(&self, node: &str, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a command"));
        command.args(words);
        let output = self.inside(node, || command.output()).expect("the tool is installed");
        assert!(output.status.success(), "{node}: {line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn nft(&self, node: &str, ruleset: &str) {
        let mut command = Command::new("nft");
        command.arg(ruleset);
        let output = self.inside(node, || command.output()).expect("nft is installed");
        assert!(output.status.success(), "{node}: {ruleset}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn veth(&self, (a, at_a): (&str, &str), (b, at_b): (&str, &str)) {
        let peer = format!("/proc/{}/fd/{}", std::process::id(), self.namespace(b).as_raw_fd());
        self.run(a, &format!("ip link add {at_a} type veth peer name {at_b} netns {peer}"));
        self.run(a, &format!("ip link set {at_a} up"));
        self.run(b, &format!("ip link set {at_b} up"));
    }

    pub fn address(&self, node: &str, interface: &str, address: &str) {
        // A neighbour is asked again after some seconds: a frame that no case expects.
        let neighbours = format!("net.ipv4.neigh.{interface}");
        self.run(
            node,
            &format!("sysctl -qw {neighbours}.base_reachable_time_ms=3600000 {neighbours}.delay_first_probe_time=3600"),
        );
        let nodad = if address.contains(':') { " nodad" } else { "" };
        self.run(node, &format!("ip addr add {address} dev {interface}{nodad}"));
    }

    pub fn udp(&self, node: &str, address: &str, port: u16) -> UdpSocket {
        let address: IpAddr = address.parse().expect("an address");
        self.inside(node, || UdpSocket::bind(SocketAddr::new(address, port))).expect("the port is free")
    }

    /// Makes both ends know each other's hardware address.
    pub fn introduce(&self, from: &str, to: (&str, &str)) {
        let receiver = self.udp(to.0, to.1, 9);
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a time-out");
        let any = if to.1.contains(':') { "::" } else { "0.0.0.0" };
        let sender = self.udp(from, any, 0);
        sender.send_to(b"hello", (to.1, 9)).expect("a way there");
        let mut byte = [0u8; 8];
        let (_, back) = receiver.recv_from(&mut byte).expect("the path is whole");
        receiver.send_to(b"hello", back).expect("a way back");
        sender.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a time-out");
        sender.recv(&mut byte).expect("the way back is whole");
    }

    /// Drops everything at `eth0` of that node by a tcx program, until what is returned is dropped.
    pub fn shoot(&self, node: &str, place: u32) -> bpf::Attachment {
        const TC_ACT_SHOT: i32 = 2;
        let mut assembler = Assembler::new();
        assembler.op(Op::Move, Reg::R0, TC_ACT_SHOT);
        assembler.exit();
        let code = assembler.finish().expect("no jumps");
        let program =
            bpf::load_program(bpf::PROG_SCHED_CLS, &code, c"Dual MIT/GPL", "shoot").expect("accepted");
        let index = self.inside(node, || nix::net::if_::if_nametoindex("eth0")).expect("eth0");
        self.inside(node, || bpf::attach_to_interface(program.as_fd(), index, place)).expect("tcx")
    }

    pub fn observer(&self) -> Observer {
        Observer::new(&self.borrowed()).expect("the nodes can be observed")
    }

    /// The witness of UDP on [`PORT`]; none (and a visible line) where it is not permitted.
    pub fn witness(&self) -> Option<Witness> {
        self.witness_of(FlowProtocol::Udp, PORT)
    }

    pub fn witness_of(&self, protocol: FlowProtocol, port: u16) -> Option<Witness> {
        match Witness::start(
            &self.borrowed(),
            &Flow { protocol, ports: vec![port], stream: None, ends: None },
        ) {
            Ok(witness) => Some(witness),
            Err(absent) => {
                skip("the witness", &absent.why);
                None
            }
        }
    }
}

/// Waits until nothing moves, at most so long.
pub fn settle(observer: &mut Observer) {
    let settled =
        observer.settle(&[], Patience::until(clock::monotonic_ns() + 60_000_000_000)).expect("readable");
    assert!(settled.quiet, "still moving: {:?}", settled.moving);
}

/// Every counter that changed, as `a Udp.InDatagrams +5`, `b eth0 rx_packets +5`.
pub fn changes(before: &Snapshot, after: &Snapshot) -> Vec<(String, i64)> {
    let (before, after) = (flatten(before), flatten(after));
    let changed = |(name, value): &(String, u64)| {
        let old = before.iter().find(|(other, _)| other == name).map_or(0, |(_, old)| *old);
        (*value != old).then(|| (name.clone(), *value as i64 - old as i64))
    };
    after.iter().filter_map(changed).collect()
}

/// How much one of [`changes`] grew; zero if it did not.
pub fn grew(changes: &[(String, i64)], name: &str) -> i64 {
    changes.iter().find(|(other, _)| other == name).map_or(0, |(_, growth)| *growth)
}

fn flatten(snapshot: &Snapshot) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for (node, counters) in &snapshot.nodes {
        let group = |name: &String| format!("{node} {name}");
        all.extend(counters.protocols.iter().map(|(name, &value)| (group(name), value)));
        for link in &counters.links {
            let place = format!("{node} {}", link.name);
            all.push((format!("{place} carrier_changes"), link.carrier_changes));
            all.extend(link.counters.iter().map(|(name, &value)| (format!("{place} {name}"), value)));
        }
        for qdisc in &counters.qdiscs {
            let place = format!("{node} {} {}", qdisc.interface, qdisc.kind);
            all.push((format!("{place} packets"), qdisc.packets));
            all.push((format!("{place} drops"), qdisc.drops));
            all.push((format!("{place} qlen"), qdisc.qlen));
        }
        for socket in &counters.sockets {
            let place = format!("{node} {} {}", socket.protocol, socket.local_port);
            all.push((format!("{place} drops"), socket.drops));
            all.push((format!("{place} receive queue"), socket.receive_queue_bytes));
        }
        for filter in &counters.filters {
            all.push((
                format!("{node} {} {} counted", filter.chain, filter.hook),
                filter.counted.unwrap_or(0),
            ));
        }
    }
    for row in &snapshot.softnet {
        all.push((format!("cpu{} backlog dropped", row.cpu), row.dropped));
    }
    all
}

/// Reads what a non-blocking socket holds and says how many datagrams that was.
pub fn drain(socket: &UdpSocket) -> i64 {
    let mut buffer = [0u8; 65536];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count() as i64
}
