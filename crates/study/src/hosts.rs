//! A test between two hosts, and hosts between them: what each saw becomes one observation.
//!
//! **What.** [`joined`] puts the nodes of all hosts side by side, and makes a link of the interface by which most frames left the one
//! and the interface by which most came to the next, of those by which the second most did, and so on. What is between them nobody sees: a loss there is the link's.
//!
//! **Price.** Two clocks: the order of first frames holds on each host; between them it is that of the leg. Of the receive loops
//! those of the host that frames of the forward leg come to are kept, because CPU numbers are the same on both.

use crate::way::{Nodes, is_open, sections};
use record::flow::Hook;
use record::validity::Unwatched;
use record::{
    Conditions, Finding, FlowCount, FlowInterface, FlowObservation, FlowPlace, HostFacts, HostInterface,
    HostObservation, Severity, Snapshot, TestRecord, ViaHost,
};
use std::collections::BTreeSet;

/// The name that a host has for its own namespace.
pub const OWN: &str = "host";

/// Hosts as one, with their names: that of the sender first, that of the receiver last, and those between them in the order of the way, which frames
/// may pass by. Further nodes of the sender's host keep their names, those of another one stand behind its own.
pub fn joined(mut hosts: Vec<(String, HostObservation)>) -> HostObservation {
    for (index, (name, seen)) in hosts.iter_mut().enumerate() {
        let further = |node: &str| if index == 0 { node.into() } else { format!("{name}/{node}") };
        rename(seen, &|node| if node == OWN { name.clone() } else { further(node) });
        let cpu = seen.after.cpus_since(&seen.before);
        seen.conditions.iter_mut().for_each(|one| one.cpu.clone_from(&cpu));
    }
    join_legs(&mut hosts);
    let is_one_host = hosts.windows(2).all(|pair| is_one_boot(&pair[0].1, &pair[1].1));
    let mut hosts = hosts.into_iter();
    let Some((name, first)) = hosts.next() else { return HostObservation::default() };
    let label = |conditions, name: &str| labelled(conditions, name, is_one_host);
    let (mut near, conditions) = taken(first);
    near.conditions = label(conditions, &name);
    near.flow.absent = of_host(near.flow.absent, &name);
    for (name, next) in hosts {
        let (far, conditions) = taken(next);
        join_snapshots(&mut near.before, far.before, is_one_host);
        join_snapshots(&mut near.after, far.after, is_one_host);
        near.conditions.extend(label(conditions, &name));
        near.flow.interfaces.extend(far.flow.interfaces);
        near.flow.missing.extend(far.flow.missing);
        near.flow.program_ns = near.flow.program_ns.max(far.flow.program_ns);
        near.flow.absent = near.flow.absent.or(of_host(far.flow.absent, &name));
        near.drops.extend(far.drops);
        near.lost = near.lost.saturating_add(far.lost);
        near.no_witness = near.no_witness.or(far.no_witness);
    }
    near
}

fn taken(mut seen: HostObservation) -> (HostObservation, Vec<Conditions>) {
    let conditions = std::mem::take(&mut seen.conditions);
    (seen, conditions)
}

/// Whether two hosts are one machine, with one clock.
fn is_one_boot(one: &HostObservation, other: &HostObservation) -> bool {
    !one.host.boot_id.is_empty() && one.host.boot_id == other.host.boot_id
}

/// Whether any frame of the flow was counted there.
pub fn is_crossed(seen: &HostObservation) -> bool {
    seen.flow.interfaces.iter().any(|interface| !interface.counts.is_empty())
}

/// The order from the sender in which frames passed hosts, by their places in the given one. That is right unless a link of it lets out more frames than
/// were counted into it; then it is that of their frames, where that explains all. Where nothing is lost nobody can tell.
pub fn order_of_frames(hosts: &[&HostObservation]) -> Vec<usize> {
    let most = |seen: &HostObservation, hook| {
        let counts = seen.flow.interfaces.iter().filter_map(|interface| interface.count(hook, "forward"));
        counts.map(|count| count.frames).max().unwrap_or(0)
    };
    let passed: Vec<[u64; 2]> =
        hosts.iter().map(|seen| [Hook::Ingress, Hook::Egress].map(|hook| most(seen, hook))).collect();
    let fits = |order: &[usize]| order.windows(2).all(|pair| passed[pair[1]][0] <= passed[pair[0]][1]);
    let given: Vec<usize> = (0..hosts.len()).collect();
    let mut by_frames = given.clone();
    if let [_, between @ .., _] = &mut by_frames[..] {
        between.sort_by_key(|&host| std::cmp::Reverse(passed[host]));
    }
    if !fits(&given) && fits(&by_frames) { by_frames } else { given }
}

/// Whether what was counted is a whole way between these ends, on each leg that has frames: no link lets out more than was counted into it.
pub fn is_whole(seen: &HostObservation, ends: [&str; 2]) -> bool {
    let [from, to] = ends;
    let emulated = crate::way::emulated(&seen.after);
    let is_leg = |leg: &str, from, to| {
        let nodes = Nodes { from, to, programs: &[], emulated: &emulated };
        first_ns(&seen.flow, leg).next().is_none() || sections(&seen.flow, leg, nodes).is_some()
    };
    is_leg("forward", from, to) && is_leg("back", to, from)
}

/// Links hosts that frames of a leg went to in turn; one between the ends that none came to is passed by.
fn join_legs(hosts: &mut [(String, HostObservation)]) {
    let nodes: Vec<BTreeSet<String>> = hosts.iter().map(|(_, seen)| nodes_seen(&seen.flow)).collect();
    let all: BTreeSet<String> = nodes.iter().flatten().cloned().collect();
    let outside: Vec<BTreeSet<FlowPlace>> =
        hosts.iter().zip(&nodes).map(|((_, seen), own)| leading_out(&seen.flow, own, &all)).collect();
    for (leg, is_forward) in [("forward", true), ("back", false)] {
        let last = hosts.len().saturating_sub(1);
        let is_on = |at: &usize| [0, last].contains(at) || first_ns(&hosts[*at].1.flow, leg).next().is_some();
        let mut way: Vec<usize> = (0..hosts.len()).filter(is_on).collect();
        if !is_forward {
            way.reverse();
        }
        for step in way.windows(2) {
            let Ok([(_, from), (_, to)]) = hosts.get_disjoint_mut([step[0], step[1]]) else { continue };
            let is_one_clock = is_one_boot(from, to);
            join_flows(
                &mut from.flow,
                &mut to.flow,
                leg,
                is_one_clock,
                [&outside[step[0]], &outside[step[1]]],
            );
        }
    }
}

/// In what the two ends of a test differ although a comparison takes them for alike: kernel, pathlab, CPU, and of the interfaces that the
/// test used driver, firmware and offloads. Empty where only one end told what it is.
pub fn differences(test: &TestRecord) -> Vec<Finding> {
    let [near, far, ..] = &test.hosts[..] else { return vec![] };
    if far.kernel.is_empty() || near.kernel.is_empty() {
        return vec![];
    }
    let ends = [test.spec.from.as_str(), test.spec.to.as_str()];
    let host = |what: &'static str, of: fn(&HostFacts) -> &str| (what.to_owned(), [of(near), of(far)]);
    let mut facts = vec![
        host("kernel", |host| &host.kernel),
        host("build of the kernel", |host| &host.kernel_version),
        host("pathlab", |host| &host.pathlab),
        host("CPU", |host| &host.cpu_model),
    ];
    let both = used_interfaces(test);
    let of_both = |(ours, theirs): &'_ (&HostInterface, &HostInterface)| -> Vec<(String, [String; 2])> {
        let what = |of: &str| format!("{of} of {} and {}", ours.name, theirs.name);
        let texts = |of: fn(&HostInterface) -> &String| [of(ours).clone(), of(theirs).clone()];
        // Versions of two drivers cannot be compared.
        let is_one = ours.driver == theirs.driver;
        let version = if is_one { texts(|one| &one.version) } else { Default::default() };
        vec![
            (what("driver"), texts(|one| &one.driver)),
            (what("version of the driver"), version),
            (what("firmware"), texts(|one| &one.firmware)),
            (what("offloads"), offloads(ours, theirs)),
        ]
    };
    let of_interfaces: Vec<(String, [String; 2])> = both.iter().flat_map(of_both).collect();
    facts.extend(
        of_interfaces.iter().map(|(what, values)| (what.clone(), values.each_ref().map(String::as_str))),
    );
    let differs = |(_, values): &(String, [&str; 2])| values[0] != values[1];
    let said = |(what, values): (String, [&str; 2])| difference(&test.name, &what, ends, values);
    facts.into_iter().filter(differs).map(said).collect()
}

/// The hosts between the two ends of which the ledger has nothing, each with the reason.
pub fn unseen(test: &TestRecord) -> Option<String> {
    let of_host = |host: &ViaHost| {
        let why = host.unseen.as_ref()?;
        // A host that is gone is the subject of its reason.
        Some(if why.starts_with(&host.name) { why.clone() } else { format!("{}: {why}", host.name) })
    };
    let told: Vec<String> = test.via.iter().filter_map(of_host).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn difference(test: &str, what: &str, ends: [&str; 2], values: [&str; 2]) -> Finding {
    let value = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    Finding {
        severity: Severity::Note,
        test: test.into(),
        claim: format!("the two ends differ: {what}"),
        evidence: format!("{} at {}, {} at {}", value(values[0]), ends[0], value(values[1]), ends[1]),
        advice:
            "make both ends equal, or keep it in mind: a comparison of directions or hosts compares this, too"
                .into(),
    }
}

/// The offloads whose state is another one at the other interface.
fn offloads(ours: &HostInterface, theirs: &HostInterface) -> [String; 2] {
    let only = |one: &HostInterface, other: &HostInterface| {
        let differing = one.offloads.iter().filter(|state| !other.offloads.contains(state));
        differing.cloned().collect::<Vec<_>>().join(", ")
    };
    let is_told = !ours.offloads.is_empty() && !theirs.offloads.is_empty();
    if is_told { [only(ours, theirs), only(theirs, ours)] } else { Default::default() }
}

/// The interfaces by which most frames left the one end and came to the other, as both hosts describe them.
fn used_interfaces(test: &TestRecord) -> Option<(&HostInterface, &HostInterface)> {
    let TestRecord { spec, flow, hosts, .. } = test;
    let interfaces = &flow.as_ref()?.interfaces;
    let joined = |node: &str, hook: Hook| {
        let frames = |one: &FlowInterface| one.count(hook, "forward").map_or(0, |count| count.frames);
        let leads_out = |one: &&FlowInterface| {
            one.node == node && one.other.as_ref().is_some_and(|other| other.node != node)
        };
        interfaces.iter().filter(leads_out).max_by_key(|one| frames(one))
    };
    let left = joined(&spec.from, Hook::Egress)?;
    let is_direct = |other: &&FlowPlace| other.node == spec.to;
    let came = match left.other.as_ref().filter(is_direct) {
        Some(other) => &other.interface,
        None => &joined(&spec.to, Hook::Ingress)?.interface,
    };
    let described = |host: usize, name: &str| hosts.get(host)?.interfaces.iter().find(|one| one.name == name);
    Some((described(0, &left.interface)?, described(1, came)?))
}

fn of_host(why: Option<String>, host: &str) -> Option<String> {
    why.map(|why| format!("{host}: {why}"))
}

fn rename(seen: &mut HostObservation, name: &dyn Fn(&str) -> String) {
    for snapshot in [&mut seen.before, &mut seen.after] {
        let nodes = std::mem::take(&mut snapshot.nodes);
        snapshot.nodes = nodes.into_iter().map(|(node, counters)| (name(&node), counters)).collect();
        snapshot.processes.iter_mut().for_each(|process| process.node = name(&process.node));
    }
    for interface in &mut seen.flow.interfaces {
        interface.node = name(&interface.node);
        if let Some(other) = &mut interface.other {
            other.node = name(&other.node);
        }
    }
    for drop in &mut seen.drops {
        drop.node = name(&drop.node);
    }
    seen.conditions.iter_mut().flat_map(nodes_of).for_each(|node| *node = name(node));
}

/// Every name of a node in the conditions of a host.
fn nodes_of(one: &mut Conditions) -> impl Iterator<Item = &mut String> {
    let readings = [&mut one.before, &mut one.after].into_iter().flat_map(|reading| {
        let interrupts = reading.interrupts.iter_mut().map(|one| &mut one.node);
        interrupts.chain(reading.pauses.iter_mut().map(|one| &mut one.node))
    });
    let watched = one.nodes.iter_mut();
    let changes = one.changes.iter_mut().map(|one| &mut one.node);
    let others =
        one.taps.iter_mut().map(|one| &mut one.node).chain(one.programs.iter_mut().map(|one| &mut one.node));
    let missing = one.missing.iter_mut().filter_map(|one| Some(&mut one.at.as_mut()?.node));
    readings.chain(watched).chain(changes).chain(others).chain(missing)
}

/// The conditions of a host, with its name where hosts are several machines.
fn labelled(conditions: Vec<Conditions>, name: &str, is_one_host: bool) -> Vec<Conditions> {
    let host = if is_one_host { String::new() } else { name.to_owned() };
    if conditions.is_empty() {
        let why = "its pathlab does not watch them".to_owned();
        let missing = vec![Unwatched { what: crate::validity::CONDITIONS.to_owned(), why, at: None }];
        return vec![Conditions { host: name.to_owned(), missing, ..Conditions::default() }];
    }
    conditions.into_iter().map(|one| Conditions { host: host.clone(), ..one }).collect()
}

fn join_snapshots(near: &mut Snapshot, far: Snapshot, is_one_host: bool) {
    near.nodes.extend(far.nodes);
    near.missing.extend(far.missing);
    near.processes.extend(far.processes);
    if !is_one_host {
        near.softnet = far.softnet;
    }
}

/// Makes a link of where a leg leaves one host and enters the next one, by interfaces that lead out of each; where it does so by several, of those with the
/// most frames, of the next ones, and so on.
fn join_flows(
    from: &mut FlowObservation,
    to: &mut FlowObservation,
    leg: &str,
    is_one_clock: bool,
    outside: [&BTreeSet<FlowPlace>; 2],
) {
    if !is_one_clock {
        let last = first_ns(from, leg).max().unwrap_or(0);
        let begin = first_ns(to, leg).min().unwrap_or(0);
        let counts = to.interfaces.iter_mut().flat_map(|interface| &mut interface.counts);
        for count in counts.filter(|count| count.leg == leg) {
            count.first_ns = count.first_ns - begin + last + 1;
        }
    }
    let out = by_frames(from, Hook::Egress, leg, outside[0]);
    let into = by_frames(to, Hook::Ingress, leg, outside[1]);
    for (out, into) in out.into_iter().zip(into) {
        let (here, there) = (place(&from.interfaces[out]), place(&to.interfaces[into]));
        lead(from, out, (Hook::Egress, leg), there);
        lead(to, into, (Hook::Ingress, leg), here);
    }
}

fn nodes_seen(flow: &FlowObservation) -> BTreeSet<String> {
    flow.interfaces.iter().map(|interface| interface.node.clone()).collect()
}

/// Lets an interface lead to a place. One that leads elsewhere with other frames, as the other leg takes another way, or a host between two others has one
/// interface for both, is told once more with what was counted at that hook of this leg.
fn lead(flow: &mut FlowObservation, index: usize, (hook, leg): (Hook, &str), to: FlowPlace) {
    let known = &mut flow.interfaces[index];
    if known.other.get_or_insert_with(|| to.clone()) == &to {
        return;
    }
    let is_meant = |count: &FlowCount| count.leg == leg && count.hook == hook;
    let (meant, rest) = std::mem::take(&mut known.counts).into_iter().partition(is_meant);
    known.counts = rest;
    let again = FlowInterface { counts: meant, other: Some(to), ..known.clone() };
    let is_same = |one: &&mut FlowInterface| {
        (&one.node, &one.interface, &one.other) == (&again.node, &again.interface, &again.other)
    };
    match flow.interfaces.iter_mut().find(is_same) {
        Some(told) => told.counts.extend(again.counts),
        None => flow.interfaces.push(again),
    }
}

fn place(interface: &FlowInterface) -> FlowPlace {
    FlowPlace { node: interface.node.clone(), interface: interface.interface.clone() }
}

fn first_ns(flow: &FlowObservation, leg: &str) -> impl Iterator<Item = u64> {
    let counts = flow.interfaces.iter().flat_map(|interface| &interface.counts);
    counts.filter(move |count| count.leg == leg).map(|count| count.first_ns)
}

/// The interfaces that lead outside of a host with these nodes, or to nodes of another one.
fn leading_out(
    flow: &FlowObservation,
    own: &BTreeSet<String>,
    all: &BTreeSet<String>,
) -> BTreeSet<FlowPlace> {
    let leads = |interface: &&FlowInterface| {
        let is_anothers = |other: &FlowPlace| all.contains(&other.node) && !own.contains(&other.node);
        is_open(interface) || interface.other.as_ref().is_some_and(is_anothers)
    };
    flow.interfaces.iter().filter(leads).map(place).collect()
}

/// Those of these interfaces that frames of a leg passed by, where most did first.
fn by_frames(flow: &FlowObservation, hook: Hook, leg: &str, of: &BTreeSet<FlowPlace>) -> Vec<usize> {
    let frames = |interface: &FlowInterface| interface.count(hook, leg).map_or(0, |count| count.frames);
    let found = flow.interfaces.iter().enumerate();
    let found = found.filter(|(_, one)| frames(one) > 0 && of.contains(&place(one)));
    let mut found: Vec<(usize, u64)> = found.map(|(index, one)| (index, frames(one))).collect();
    found.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
    found.into_iter().map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(counts: &[(&str, Hook, &str, u64, u64)]) -> HostObservation {
        let mut seen = HostObservation::default();
        seen.before.nodes.insert(OWN.into(), Default::default());
        for &(interface, hook, leg, frames, first_ns) in counts {
            let count = FlowCount {
                hook,
                leg: leg.into(),
                frames,
                buffers: frames,
                bytes: 0,
                later_fragments: 0,
                first_ns,
            };
            let interfaces = &mut seen.flow.interfaces;
            match interfaces.iter_mut().find(|known| known.interface == interface) {
                Some(known) => known.counts.push(count),
                None => interfaces.push(FlowInterface {
                    node: OWN.into(),
                    interface: interface.into(),
                    counts: vec![count],
                    ..FlowInterface::default()
                }),
            }
        }
        seen
    }

    fn named<const N: usize>(hosts: [(&str, HostObservation); N]) -> Vec<(String, HostObservation)> {
        hosts.into_iter().map(|(name, seen)| (name.to_owned(), seen)).collect()
    }

    /// What entered and left each section of a leg between those ends.
    fn sums(seen: &HostObservation, leg: &str, [from, to]: [&str; 2]) -> Vec<(String, u64, u64)> {
        let nodes = Nodes { from, to, programs: &[], emulated: &[] };
        let found = sections(&seen.flow, leg, nodes).expect("a way");
        found.into_iter().map(|one| (one.hop.node, one.entered, one.left)).collect()
    }

    #[test]
    fn what_differs_between_the_ends_is_said_once_each() {
        let interface = |name: &str, firmware: &str, gro: &str| HostInterface {
            name: name.into(),
            driver: "ixgbe".into(),
            firmware: firmware.into(),
            offloads: vec!["tso on".into(), gro.into()],
            ..HostInterface::default()
        };
        let host = |kernel: &str, interface| HostFacts {
            kernel: kernel.into(),
            interfaces: vec![HostInterface { name: "lan".into(), ..HostInterface::default() }, interface],
            ..HostFacts::default()
        };
        let mut test = TestRecord::default();
        (test.spec.from, test.spec.to) = ("local".into(), "b".into());
        assert_eq!(differences(&test), []);
        let link = FlowInterface {
            node: "local".into(),
            interface: "eth0".into(),
            other: Some(FlowPlace { node: "b".into(), interface: "wan".into() }),
            ..FlowInterface::default()
        };
        test.flow = Some(FlowObservation { interfaces: vec![link], ..FlowObservation::default() });
        test.hosts = vec![
            host("6.1", interface("eth0", "4.40", "gro on")),
            host("6.1", interface("wan", "4.40", "gro on")),
        ];
        assert_eq!(differences(&test), []);
        // Versions of two drivers are no versions of one.
        (test.hosts[1].interfaces[1].driver, test.hosts[1].interfaces[1].version) =
            ("tun".into(), "1.6".into());
        assert_eq!(differences(&test).len(), 1);
        test.hosts[1] = host("6.18", interface("wan", "", "gro off"));
        let said: Vec<(String, String)> =
            differences(&test).into_iter().map(|one| (one.claim, one.evidence)).collect();
        let said: Vec<(&str, &str)> = said
            .iter()
            .map(|(claim, evidence)| (claim.trim_start_matches("the two ends differ: "), evidence.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                ("kernel", "6.1 at local, 6.18 at b"),
                ("firmware of eth0 and wan", "4.40 at local, none at b"),
                ("offloads of eth0 and wan", "gro on at local, gro off at b"),
            ]
        );
        // One that does not tell what it is differs in nothing.
        test.hosts[1] = HostFacts::default();
        assert_eq!(differences(&test), []);
    }

    /// Whatever the two clocks say, the way goes from the one host to the other, and back.
    #[test]
    fn two_hosts_are_one_way_whatever_their_clocks_say() {
        for (near_ns, far_ns) in [(5, 1_000_000), (1_000_000, 5), (u64::MAX / 2, 7)] {
            let near = host(&[
                ("eth0", Hook::Egress, "forward", 10, near_ns),
                ("eth0", Hook::Ingress, "back", 8, near_ns + 9),
            ]);
            let far = host(&[
                ("wan", Hook::Ingress, "forward", 9, far_ns),
                ("wan", Hook::Egress, "back", 9, far_ns + 2),
                ("lan", Hook::Egress, "forward", 1, far_ns + 1),
            ]);
            let seen = joined(named([("here", near), ("there", far)]));
            assert!(seen.before.nodes.contains_key("here") && seen.before.nodes.contains_key("there"));
            for (leg, ends, sums) in [
                ("forward", ["here", "there"], vec![(0, 10), (10, 9), (9, 1), (1, 0)]),
                ("back", ["there", "here"], vec![(0, 9), (9, 8), (8, 0)]),
            ] {
                let nodes = Nodes { from: ends[0], to: ends[1], programs: &[], emulated: &[] };
                let found = sections(&seen.flow, leg, nodes).expect("a way");
                let found: Vec<_> = found.iter().map(|one| (one.entered, one.left)).collect();
                assert_eq!(found, sums, "{leg} {near_ns} {far_ns}");
            }
        }
    }

    /// What comes back may leave by another interface than it came by: it has a way of its own.
    #[test]
    fn the_way_back_may_be_another_one() {
        let near = host(&[("eth0", Hook::Egress, "forward", 10, 5), ("eth0", Hook::Ingress, "back", 8, 14)]);
        let far = host(&[("wan", Hook::Ingress, "forward", 9, 50), ("lan", Hook::Egress, "back", 9, 52)]);
        let seen = joined(named([("here", near), ("there", far)]));
        for (leg, ends, sums) in [
            ("forward", ["here", "there"], [(0, 10), (10, 9), (9, 0)]),
            ("back", ["there", "here"], [(0, 9), (9, 8), (8, 0)]),
        ] {
            let nodes = Nodes { from: ends[0], to: ends[1], programs: &[], emulated: &[] };
            let found = sections(&seen.flow, leg, nodes).expect("a way");
            let found: Vec<_> = found.iter().map(|one| (one.entered, one.left)).collect();
            assert_eq!(found, sums, "{leg}");
        }
    }

    /// A router between the two, whose clock says anything: what it lost is its own, on both legs, whether it has an interface for each side or one for both.
    #[test]
    fn what_a_host_between_the_ends_lost_is_its_own() {
        for (left, right, router_ns) in [("lan", "wan", 3), ("lan", "lan", 3), ("lan", "wan", u64::MAX / 2)] {
            let near =
                host(&[("eth0", Hook::Egress, "forward", 10, 5), ("eth0", Hook::Ingress, "back", 6, 14)]);
            let router = host(&[
                (left, Hook::Ingress, "forward", 10, router_ns),
                (right, Hook::Egress, "forward", 8, router_ns + 1),
                (right, Hook::Ingress, "back", 7, router_ns + 2),
                (left, Hook::Egress, "back", 6, router_ns + 3),
            ]);
            let far =
                host(&[("eth0", Hook::Ingress, "forward", 7, 50), ("eth0", Hook::Egress, "back", 7, 52)]);
            let seen = joined(named([("here", near), ("r", router), ("there", far)]));
            let told = |leg, ends| -> Vec<(String, u64, u64)> { sums(&seen, leg, ends) };
            let of = |all: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
                all.iter().map(|&(node, entered, left)| (node.to_owned(), entered, left)).collect()
            };
            let forward = [("here", 0, 10), ("here", 10, 10), ("r", 10, 8), ("r", 8, 7), ("there", 7, 0)];
            assert_eq!(told("forward", ["here", "there"]), of(&forward), "{left} {right} {router_ns}");
            let back = [("there", 0, 7), ("there", 7, 7), ("r", 7, 6), ("r", 6, 6), ("here", 6, 0)];
            assert_eq!(told("back", ["there", "here"]), of(&back), "{left} {right} {router_ns}");
        }
    }

    /// Somebody named two routers the wrong way round: what the second one lost shows it.
    #[test]
    fn hosts_stand_in_the_order_of_their_frames() {
        let one = |came, left| {
            host(&[("in", Hook::Ingress, "forward", came, 1), ("out", Hook::Egress, "forward", left, 2)])
        };
        let (near, far) = (one(0, 10), one(7, 0));
        let [whole, lossy, last] = [one(10, 10), one(10, 8), one(8, 7)];
        let order =
            |between: &[&HostObservation]| order_of_frames(&[&[&near][..], between, &[&far]].concat());
        for between in [[&whole, &lossy, &last], [&whole, &whole, &whole]] {
            assert_eq!(order(&between), [0, 1, 2, 3, 4]);
        }
        assert_eq!(order(&[&last, &lossy, &whole]), [0, 3, 2, 1, 4]);
        assert_eq!(order(&[&lossy, &whole, &last]), [0, 2, 1, 3, 4]);
        // A copy that is made on the way fits no order.
        assert_eq!(order(&[&last, &one(12, 12)]), [0, 1, 2, 3]);
        assert_eq!((order(&[]), order_of_frames(&[])), (vec![0, 1], vec![]));
    }

    /// Two links between the same two hosts, by which frames go side by side, are two links.
    #[test]
    fn several_links_between_two_hosts_are_linked_one_by_one() {
        let near = host(&[("eth0", Hook::Egress, "forward", 4, 5), ("eth1", Hook::Egress, "forward", 6, 6)]);
        let far = host(&[("lan", Hook::Ingress, "forward", 6, 50), ("wan", Hook::Ingress, "forward", 3, 51)]);
        let seen = joined(named([("here", near.clone()), ("there", far)]));
        let found = sums(&seen, "forward", ["here", "there"]);
        let of = |node: &str, entered, left| (node.to_owned(), entered, left);
        assert_eq!(found, [of("here", 0, 10), of("here", 4, 3), of("here", 6, 6), of("there", 9, 0)]);
        assert!(is_whole(&seen, ["here", "there"]));
        // Two that become one in between are not.
        let far = host(&[("lan", Hook::Ingress, "forward", 10, 50)]);
        assert!(!is_whole(&joined(named([("here", near), ("there", far)])), ["here", "there"]));
    }

    /// The way back leaves a router out, and another one is on no way at all.
    #[test]
    fn a_host_that_no_frame_came_to_is_passed_by() {
        let near = host(&[("eth0", Hook::Egress, "forward", 10, 5), ("eth0", Hook::Ingress, "back", 10, 14)]);
        let router =
            host(&[("lan", Hook::Ingress, "forward", 10, 7), ("wan", Hook::Egress, "forward", 10, 8)]);
        let far = host(&[("eth0", Hook::Ingress, "forward", 10, 50), ("eth1", Hook::Egress, "back", 10, 52)]);
        let idle = host(&[]);
        assert!(is_crossed(&router) && !is_crossed(&idle));
        let seen = joined(named([("here", near), ("idle", idle), ("r", router), ("there", far)]));
        let nodes = |leg, ends| -> Vec<String> {
            sums(&seen, leg, ends).into_iter().map(|(node, ..)| node).collect()
        };
        assert_eq!(nodes("forward", ["here", "there"]), ["here", "here", "r", "r", "there"]);
        assert_eq!(nodes("back", ["there", "here"]), ["there", "there", "here"]);
    }

    #[test]
    fn nodes_of_the_second_host_stand_behind_its_name_and_reasons_tell_the_host() {
        let mut far = host(&[]);
        far.before.nodes.insert("vm1".into(), Default::default());
        far.flow.absent = Some("no permission".into());
        let seen = joined(named([("local", host(&[])), ("b", far)]));
        assert_eq!(seen.before.nodes.keys().collect::<Vec<_>>(), ["b", "b/vm1", "local"]);
        assert_eq!(seen.flow.absent.as_deref(), Some("b: no permission"));
    }
}
