//! From a topology to namespaces and links that are up and silent.
//!
//! **What.** [`build`] does in order: settings, links, ports and offloads, up, wait until every carrier is there,
//! addresses and routes, wait until nothing moves.
//!
//! **Why silent.** The ledger compares counters exactly, so the lab itself must not send: no duplicate address
//! detection, no router solicitation, no spanning tree, no multicast snooping, IPv6 off where there is no IPv6 address
//! (bridge ports), neighbour discovery's link-local address given instead of generated, neighbours once found believed
//! for an hour. What remains is one multicast listener report when an IPv6 address appears; it is let out at once, before
//! the lab counts as up. IPv4 is complete before the first IPv6 address: a report may be for a tunnel (VXLAN), whose node would
//! look for a neighbour where it has no route yet.
//!
//! **Price.** About 50 ms of waiting with IPv6, none without.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use record::{Problem, Result};

use super::cables::{self, Cable};
use super::node::{Node, lacking, refused, write_sysctl};
use super::routing;
use super::topology::{BridgeSpec, InterfaceSpec, LinkSpec, SysctlSpec, Topology, UpperSpec};
use crate::netlink::{LinkState, Netlink, Refusal, link_local};
use crate::sys::process;

/// Longest wait for a carrier, which the two ends of a cable agree about, and for silence.
pub const LINK_DEADLINE: Duration = Duration::from_secs(15);
/// More interfaces than that over each other no kernel makes (`MAX_NEST_DEV`).
const MOST_HEIGHT: usize = 8;
/// Pause between two looks at the kernel's state.
const LOOK: Duration = Duration::from_millis(1);
/// A multicast report waits two ticks (`mld_ifc_start_work`), 20 ms on the slowest kernels; silence is longer.
const SILENCE: Duration = Duration::from_millis(30);
/// How long a lab may take to become silent because the CPUs are busy.
const PATIENCE: Duration = Duration::from_millis(500);

/// Builds the topology into fresh namespaces.
///
/// # Errors
/// A host problem when the kernel refuses something, an input problem when it does not know a setting or a value.
pub(super) fn build(topology: &Topology, nodes: &[Node], cables: &[Cable]) -> Result<()> {
    let waves = waves(topology);
    run(topology, nodes, &[prepare])?;
    match cables {
        [] => run(topology, nodes, &[links])?,
        _ => cables::lay(topology, nodes, cables)?,
    }
    furnish(topology, nodes, &waves, Waiting::UntilUp)?;
    if topology.has_family(6) { wait_silent(nodes) } else { Ok(()) }
}

/// What must be there before the cards of a machine that is a node by itself.
pub(super) fn prepare_here(topology: &Topology, node: &Node) -> Result<()> {
    run(topology, std::slice::from_ref(node), &[prepare])
}

/// All that a machine is given that is a node by itself and has its cards.
pub(super) fn furnish_here(topology: &Topology, node: &Node) -> Result<()> {
    furnish(topology, std::slice::from_ref(node), &waves(topology), Waiting::Not)
}

/// Whether interfaces are waited for until they pass traffic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    UntilUp,
    Not,
}

/// All that is made when the ends of the links are there.
fn furnish(
    topology: &Topology,
    nodes: &[Node],
    waves: &[Vec<&InterfaceSpec>],
    waiting: Waiting,
) -> Result<()> {
    stack(topology, nodes, waves)?;
    run(topology, nodes, &[interfaces])?;
    switch_on(topology, nodes, waves, waiting)?;
    run(topology, nodes, &[settle, routing::policies, addresses::<4>, routing::routes::<4>])?;
    match topology.has_family(6) {
        true => run(topology, nodes, &[addresses::<6>, routing::routes::<6>]),
        false => Ok(()),
    }
}

/// What is done inside each node.
type StepOfNode = fn(&Topology, &[Node], &Node, &mut Netlink) -> Result<()>;

fn run(topology: &Topology, nodes: &[Node], steps: &[StepOfNode]) -> Result<()> {
    for step in steps {
        for node in nodes {
            refuse_when_interrupted()?;
            node.within(|| step(topology, nodes, node, &mut Netlink::open()))??;
        }
    }
    Ok(())
}

fn refuse_when_interrupted() -> Result<()> {
    if process::interrupted() {
        return Err(Problem::host("interrupted while the lab was built; it is taken down again"));
    }
    Ok(())
}

/// Settings that must be there before the first interface, and the loopback.
fn prepare(topology: &Topology, _: &[Node], node: &Node, netlink: &mut Netlink) -> Result<()> {
    let router = topology.node(node.name()).is_some_and(|spec| spec.router);
    quiet_settings(router, topology.has_family(6))
        .map_err(|problem| problem.at(format!("node {}", node.name())))?;
    apply(topology, node, true)?;
    // The loopback is the first interface of every namespace.
    netlink.set_up(1).map_err(|refusal| node.host_problem(format!("cannot switch on lo: {refusal}")))
}

/// A setting of `conf/default` works only on interfaces that are made later.
fn is_default(key: &str) -> bool {
    key.split(['.', '/']).any(|part| part == "default")
}

fn quiet_settings(router: bool, v6: bool) -> Result<()> {
    let forwarding = if router { "1" } else { "0" };
    // A namespace inherits the host's settings for IPv4 (`net.core.devconf_inherit_init_net`): say what counts.
    // Ping sockets are closed to everybody by default. With one, an echo reply is delivered once; with a raw socket it is
    // delivered as a copy, and the original counts as a drop for want of a socket.
    let v4_settings = [
        ("ip_forward", forwarding),
        ("conf.all.rp_filter", "0"),
        ("conf.default.rp_filter", "0"),
        ("ping_group_range", "0 0"),
    ];
    for (key, value) in v4_settings {
        own_setting(&format!("net.ipv4.{key}"), value)?;
    }
    if !Path::new("/proc/sys/net/ipv6").exists() {
        let problem = Problem::host("this kernel has no IPv6").help("use a topology without IPv6 addresses");
        return if v6 { Err(problem) } else { Ok(()) };
    }
    let v6_settings = [
        ("conf.all.disable_ipv6", "0"),
        ("conf.default.disable_ipv6", "0"),
        ("conf.all.forwarding", forwarding),
        ("conf.default.forwarding", forwarding),
        ("conf.default.accept_dad", "0"),
        ("conf.default.dad_transmits", "0"),
        ("conf.default.accept_ra", "0"),
        ("conf.default.router_solicitations", "0"),
        ("conf.default.addr_gen_mode", "1"),
        ("conf.default.mldv1_unsolicited_report_interval", "1"),
        ("conf.default.mldv2_unsolicited_report_interval", "1"),
        ("mld_qrv", "1"),
    ];
    v6_settings.iter().try_for_each(|(key, value)| own_setting(&format!("net.ipv6.{key}"), value))
}

/// A setting that the lab wants for itself; a kernel that does not have it does not need it.
fn own_setting(key: &str, value: &str) -> Result<()> {
    match write_sysctl(key, value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Problem::host(format!(
            "cannot set {key}={value}: {error}"
        ))
        .help(match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "this needs CAP_NET_ADMIN",
            _ => "/proc/sys must be writable; in a container it may be mounted read-only",
        })),
        _ => Ok(()),
    }
}

/// The settings that the topology asks for, early those for interfaces that are made later.
fn apply(topology: &Topology, node: &Node, early: bool) -> Result<()> {
    let mine = |setting: &&SysctlSpec| setting.node == node.name() && is_default(&setting.key) == early;
    topology.sysctls.iter().filter(mine).try_for_each(|SysctlSpec { node, key, value }| {
        let told = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                Problem::input(format!("this kernel has no setting '{key}' in a namespace"))
            }
            io::ErrorKind::InvalidInput => {
                Problem::input(format!("the setting '{key}' does not take the value '{value}'"))
            }
            _ => Problem::host(format!("cannot set {key}={value}: {error}")),
        };
        write_sysctl(key, value).map_err(|error| told(error).at(format!("node {node}")))
    })
}

/// The index of an interface of the topology.
fn number(topology: &Topology, spec: &InterfaceSpec) -> u32 {
    topology.index_of(&spec.node, &spec.name).unwrap_or(0)
}

/// Makes the links whose first end is in this node.
fn links(topology: &Topology, nodes: &[Node], node: &Node, netlink: &mut Netlink) -> Result<()> {
    let mut mine = topology.links.iter().filter(|link| link.ends[0].node == node.name());
    mine.try_for_each(|LinkSpec { ends: [a, b] }| {
        let other =
            Node::named(nodes, &b.node).ok_or_else(|| node.host_problem("the link's other node is gone"))?;
        let [first, second] = [a, b].map(|end| end.link(number(topology, end)));
        let made = netlink.create_veth(&first, &second, other.netns().as_fd());
        made.map_err(|refusal| refused(&format!("link {} -- {}", a.place(), b.place()), refusal))
    })
}

/// The interfaces by how many lie below them at most: ends of links, what is over those, and so on.
fn waves(topology: &Topology) -> Vec<Vec<&InterfaceSpec>> {
    let mut waves: BTreeMap<usize, Vec<&InterfaceSpec>> = BTreeMap::new();
    for spec in topology.all_interfaces() {
        waves.entry(height(topology, &spec.node, &spec.name, MOST_HEIGHT)).or_default().push(spec);
    }
    waves.into_values().collect()
}

/// How many interfaces lie below this one at most. A circle, which a topology is refused for, ends at `most`.
fn height(topology: &Topology, node: &str, name: &str, most: usize) -> usize {
    let over = topology.upper(node, name).and_then(|upper| upper.over.as_ref());
    let lower = over.iter().map(|(node, name)| (node.as_str(), name.as_str()));
    let ports = topology.bridge(node, name).into_iter().flat_map(|bridge| &bridge.ports);
    let below = lower.chain(ports.map(|port| (node, port.as_str()))).take_while(|_| most > 0);
    below.map(|(node, name)| height(topology, node, name, most - 1) + 1).max().unwrap_or(0)
}

/// Makes bridges and interfaces over others, those below first: hardware address and MTU come from below.
fn stack(topology: &Topology, nodes: &[Node], waves: &[Vec<&InterfaceSpec>]) -> Result<()> {
    for (spec, node) in waves.iter().flatten().flat_map(|spec| nodes.iter().map(move |node| (spec, node))) {
        let upper = topology.upper(&spec.node, &spec.name).filter(|upper| upper.made_in() == node.name());
        let bridge = topology.bridge(&spec.node, &spec.name).filter(|_| spec.node == node.name());
        refuse_when_interrupted()?;
        let make = |netlink: &mut Netlink| {
            upper.map_or(Ok(()), |upper| make_upper(topology, nodes, node, netlink, upper))?;
            bridge.map_or(Ok(()), |bridge| make_bridge(topology, netlink, bridge))
        };
        if upper.is_some() || bridge.is_some() {
            node.within(|| make(&mut Netlink::open()))??;
        }
    }
    Ok(())
}

/// Makes an interface over one of this node, in its own node.
fn make_upper(
    topology: &Topology,
    nodes: &[Node],
    node: &Node,
    netlink: &mut Netlink,
    UpperSpec { interface, over, kind }: &UpperSpec,
) -> Result<()> {
    let own = Node::named(nodes, &interface.node).ok_or_else(|| node.host_problem("the node is gone"))?;
    let other = (own.name() != node.name()).then(|| own.netns());
    let lower = over.as_ref().and_then(|(node, name)| topology.index_of(node, name));
    let made = netlink.create_upper(&interface.link(number(topology, interface)), *kind, lower, other);
    let word = kind.word();
    made.map_err(|refusal| {
        let part = format!("{word} (CONFIG_{})", word.to_uppercase());
        lacking(&format!("{word} {}", interface.place()), refusal, &part)
    })
}

fn make_bridge(topology: &Topology, netlink: &mut Netlink, bridge: &BridgeSpec) -> Result<()> {
    let spec = &bridge.interface;
    let own = number(topology, spec);
    let mut make = || -> Result<(), Refusal> {
        match bridge.bond {
            Some(mode) => netlink.create_bond(&spec.link(own), mode)?,
            None => netlink.create_bridge(&spec.link(own))?,
        }
        for port in &bridge.ports {
            netlink.set_master(topology.index_of(&spec.node, port).unwrap_or(0), own)?;
        }
        // A bridge takes the smallest MTU of its ports until it is told one.
        spec.mtu.map_or(Ok(()), |mtu| netlink.set_mtu(own, mtu))
    };
    let place = format!("{} {}", bridge.word(), spec.place());
    make().map_err(|refusal| match bridge.bond {
        Some(_) => lacking(&place, refusal, "bond (CONFIG_BONDING)"),
        None => refused(&place, refusal),
    })
}

/// Offloads, shapers and settings of this node's interfaces, all still down.
fn interfaces(topology: &Topology, _: &[Node], node: &Node, netlink: &mut Netlink) -> Result<()> {
    for spec in topology.interfaces(node.name()) {
        configure(topology, netlink, spec)?;
    }
    apply(topology, node, false)
}

fn configure(topology: &Topology, netlink: &mut Netlink, spec: &InterfaceSpec) -> Result<()> {
    let index = number(topology, spec);
    if !spec.has_family(6) {
        own_setting(&format!("net/ipv6/conf/{}/disable_ipv6", spec.name), "1")?;
    }
    // A neighbour that was learned from its own request is asked again 5 s later, and every 30 s after that: frames in
    // the middle of a measurement. In a lab neighbours do not go away.
    for version in ["ipv4", "ipv6"] {
        for (key, value) in [("base_reachable_time_ms", "3600000"), ("delay_first_probe_time", "3600")] {
            own_setting(&format!("net/{version}/neigh/{}/{key}", spec.name), value)?;
        }
    }
    let place = format!("interface {}", spec.place());
    let is_emulated = !spec.emulation.is_nothing();
    if is_emulated {
        let lacks = |refusal| lacking(&place, refusal, "netem (CONFIG_NET_SCH_NETEM)");
        netlink.set_emulation(index, &spec.emulation).map_err(lacks)?;
    }
    let mut set = || -> Result<(), Refusal> {
        if !spec.offloads.is_empty() {
            netlink.set_offloads(index, &spec.offloads)?;
        }
        spec.shaper.map_or(Ok(()), |shaper| netlink.set_shaper(index, shaper, is_emulated))
    };
    set().map_err(|refusal| refused(&place, refusal))
}

/// Switches all interfaces on, those below first, and waits until they pass traffic. One that is switched on when what is below
/// already passes traffic has its carrier at once; the other way round the kernel reports the change up to a second later
/// (`linkwatch_nextevent`).
fn switch_on(
    topology: &Topology,
    nodes: &[Node],
    waves: &[Vec<&InterfaceSpec>],
    waiting: Waiting,
) -> Result<()> {
    let mut on: Vec<&InterfaceSpec> = vec![];
    for specs in waves {
        for node in nodes {
            refuse_when_interrupted()?;
            let mut mine = specs.iter().filter(|spec| spec.node == node.name());
            node.ask(|netlink| mine.try_for_each(|spec| netlink.set_up(number(topology, spec))))?;
        }
        on.extend(specs);
        if waiting == Waiting::Not {
            continue;
        }
        nodes.iter().try_for_each(|node| wait_up(topology, node, &on))?;
    }
    Ok(())
}

/// Waits until those of a node have a carrier and pass traffic, and ports of bridges that are on forward.
fn wait_up(topology: &Topology, node: &Node, on: &[&InterfaceSpec]) -> Result<()> {
    let of_on = |spec: &InterfaceSpec| {
        topology.bridge_of(&spec.node, &spec.name).is_some_and(|bridge| on.contains(&&bridge.interface))
    };
    let own = on.iter().filter(|spec| spec.node == node.name());
    let wanted: Vec<(&InterfaceSpec, bool)> = own.map(|spec| (*spec, of_on(spec))).collect();
    let deadline = Instant::now() + LINK_DEADLINE;
    // One thread and one socket for each node, however often it looks.
    node.within(|| {
        let mut netlink = Netlink::open();
        loop {
            let links = netlink.links().map_err(|refusal| node.host_problem(refusal))?;
            let is_ready = |(spec, port): &(&InterfaceSpec, bool)| {
                links.iter().any(|link| link.name == spec.name && passes(link, *port))
            };
            let Some((waiting, _)) = wanted.iter().find(|one| !is_ready(one)) else { return Ok(()) };
            refuse_when_interrupted()?;
            if Instant::now() > deadline {
                let what =
                    format!("{} did not come up within {} s", waiting.place(), LINK_DEADLINE.as_secs());
                return Err(Problem::host(what).help("see 'dmesg' for what the kernel says of it"));
            }
            std::thread::sleep(LOOK);
        }
    })?
}

/// It has a carrier and passes traffic; with `port`, also to and from its bridge.
fn passes(link: &LinkState, port: bool) -> bool {
    link.carrier && link.operational && (!port || link.port_state.is_none_or(|state| state == 3))
}

/// A bridge that got its ports while it was off has a change of carrier before it which the kernel reports up to a second later, and
/// IPv6 answers with reports.
fn settle(topology: &Topology, _: &[Node], node: &Node, netlink: &mut Netlink) -> Result<()> {
    let mine =
        topology.bridges.iter().map(|bridge| &bridge.interface).filter(|spec| spec.node == node.name());
    let settled = mine.map(|spec| netlink.settle(number(topology, spec)));
    settled.collect::<Result<(), Refusal>>().map_err(|refusal| node.host_problem(refusal))
}

/// Gives this node's interfaces their addresses of one version of IP, the link-local one first.
fn addresses<const VERSION: u8>(
    topology: &Topology,
    _: &[Node],
    node: &Node,
    netlink: &mut Netlink,
) -> Result<()> {
    for spec in topology.interfaces(node.name()) {
        let index = number(topology, spec);
        let own = (VERSION == 6 && spec.has_family(6)).then(|| link_local(index));
        let said = spec.addresses.iter().copied().filter(|prefix| prefix.version() == VERSION);
        for prefix in own.into_iter().chain(said) {
            let added = netlink.add_address(index, prefix);
            added.map_err(|refusal| {
                refused(&format!("interface {} address {prefix}", spec.place()), refusal)
            })?;
        }
    }
    Ok(())
}

/// Waits until no counter has moved for a while: the listener reports are out. Who sends them waits for a CPU as this thread does, so a
/// silence in which this one waited long for its turn is no proof and is waited for again, until [`PATIENCE`] has passed.
fn wait_silent(nodes: &[Node]) -> Result<()> {
    let begun = Instant::now();
    let deadline = begun + LINK_DEADLINE;
    let mut last = BTreeMap::new();
    let mut since = begun;
    while since.elapsed() < SILENCE {
        let mut now = BTreeMap::new();
        for node in nodes {
            for link in node.links()? {
                now.insert((node.inode(), link.index), link.frames);
            }
        }
        if now != last {
            last = now;
            since = Instant::now();
        }
        refuse_when_interrupted()?;
        if Instant::now() > deadline {
            return Err(Problem::host("the new lab does not become silent")
                .help("something else on this machine sends into its namespaces"));
        }
        let asleep = Instant::now();
        std::thread::sleep(SILENCE / 8);
        if asleep.elapsed() > SILENCE / 2 && begun.elapsed() < PATIENCE {
            since = Instant::now();
        }
    }
    Ok(())
}
