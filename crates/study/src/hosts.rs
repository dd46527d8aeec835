//! A test between two hosts: what each saw becomes one observation.
//!
//! **What.** [`joined`] puts the nodes of both hosts side by side, and makes one link of the interface by which most frames left the one
//! and the interface by which most came to the other. What is between them nobody sees: a loss there is the link's.
//!
//! **Price.** Two clocks: the order of first frames holds on each host; between them it is that of the leg. Of the receive loops
//! those of the host that frames of the forward leg come to are kept, because CPU numbers are the same on both.

use crate::way::is_open;
use record::flow::Hook;
use record::validity::Unwatched;
use record::{
    Conditions, Finding, FlowInterface, FlowObservation, FlowPlace, HostFacts, HostInterface,
    HostObservation, Severity, Snapshot, TestRecord,
};
use std::collections::BTreeSet;

/// The name that a host has for its own namespace.
pub const OWN: &str = "host";

/// Both hosts as one: that of the sender, called `names[0]`, and that of the receiver, called `names[1]`; further nodes keep their names,
/// those of the second host behind its own.
pub fn joined(
    mut near: HostObservation,
    mut far: HostObservation,
    names: [&str; 2],
    is_one_host: bool,
) -> HostObservation {
    rename(&mut near, &|node| if node == OWN { names[0].into() } else { node.into() });
    rename(&mut far, &|node| if node == OWN { names[1].into() } else { format!("{}/{node}", names[1]) });
    join_flows(&mut near.flow, &mut far.flow, "forward", is_one_host);
    join_flows(&mut far.flow, &mut near.flow, "back", is_one_host);
    for seen in [&mut near, &mut far] {
        let cpu = seen.after.cpus_since(&seen.before);
        seen.conditions.iter_mut().for_each(|one| one.cpu.clone_from(&cpu));
    }
    for (near, far) in [(&mut near.before, far.before), (&mut near.after, far.after)] {
        join_snapshots(near, far, is_one_host);
    }
    near.conditions = join_conditions([near.conditions, far.conditions], names, is_one_host);
    near.flow.interfaces.extend(far.flow.interfaces);
    near.flow.missing.extend(far.flow.missing);
    near.flow.program_ns = near.flow.program_ns.max(far.flow.program_ns);
    near.flow.absent = of_host(near.flow.absent, names[0]).or(of_host(far.flow.absent, names[1]));
    near.drops.extend(far.drops);
    near.lost = near.lost.saturating_add(far.lost);
    near.no_witness = near.no_witness.or(far.no_witness);
    near
}

/// In what the two ends of a test differ although a comparison takes them for alike: kernel, pathlab, CPU, and of the interfaces that the
/// test used driver, firmware and offloads. Empty where only one end told what it is.
pub fn differences(test: &TestRecord) -> Vec<Finding> {
    let [near, far] = &test.hosts[..] else { return vec![] };
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
    let joins = |one: &&FlowInterface| {
        one.node == spec.from && one.other.as_ref().is_some_and(|other| other.node == spec.to)
    };
    let link = flow.as_ref()?.interfaces.iter().find(joins)?;
    let described = |host: usize, name: &str| hosts.get(host)?.interfaces.iter().find(|one| one.name == name);
    Some((described(0, &link.interface)?, described(1, &link.other.as_ref()?.interface)?))
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

/// The conditions of both hosts, each with the name of its host where they are two.
fn join_conditions(both: [Vec<Conditions>; 2], names: [&str; 2], is_one_host: bool) -> Vec<Conditions> {
    let mut joined = vec![];
    for (of_host, name) in both.into_iter().zip(names) {
        let host = if is_one_host { String::new() } else { name.to_owned() };
        if of_host.is_empty() {
            let why = "its pathlab does not watch them".to_owned();
            let missing = vec![Unwatched { what: crate::validity::CONDITIONS.to_owned(), why, at: None }];
            joined.push(Conditions { host: name.to_owned(), missing, ..Conditions::default() });
        }
        joined.extend(of_host.into_iter().map(|one| Conditions { host: host.clone(), ..one }));
    }
    joined
}

fn join_snapshots(near: &mut Snapshot, far: Snapshot, is_one_host: bool) {
    near.nodes.extend(far.nodes);
    near.missing.extend(far.missing);
    near.processes.extend(far.processes);
    if !is_one_host {
        near.softnet = far.softnet;
    }
}

/// Makes one link of where a leg leaves one host and enters the other.
fn join_flows(from: &mut FlowObservation, to: &mut FlowObservation, leg: &str, is_one_host: bool) {
    if !is_one_host {
        let last = first_ns(from, leg).max().unwrap_or(0);
        let begin = first_ns(to, leg).min().unwrap_or(0);
        let counts = to.interfaces.iter_mut().flat_map(|interface| &mut interface.counts);
        for count in counts.filter(|count| count.leg == leg) {
            count.first_ns = count.first_ns - begin + last + 1;
        }
    }
    let (near, far) = (nodes_seen(from), nodes_seen(to));
    let out = busiest(from, Hook::Egress, leg, &far);
    let Some((out, into)) = out.zip(busiest(to, Hook::Ingress, leg, &near)) else {
        return;
    };
    let (here, there) = (place(&from.interfaces[out]), place(&to.interfaces[into]));
    lead(from, out, leg, there);
    lead(to, into, leg, here);
}

fn nodes_seen(flow: &FlowObservation) -> BTreeSet<String> {
    flow.interfaces.iter().map(|interface| interface.node.clone()).collect()
}

/// Lets an interface lead to a place. One that leads elsewhere, as the other leg takes another way, is told once more with what was
/// counted of this leg.
fn lead(flow: &mut FlowObservation, index: usize, leg: &str, to: FlowPlace) {
    let known = &mut flow.interfaces[index];
    if known.other.get_or_insert_with(|| to.clone()) == &to {
        return;
    }
    let (of_leg, rest) = std::mem::take(&mut known.counts).into_iter().partition(|count| count.leg == leg);
    known.counts = rest;
    let again = FlowInterface { counts: of_leg, other: Some(to), ..known.clone() };
    flow.interfaces.push(again);
}

fn place(interface: &FlowInterface) -> FlowPlace {
    FlowPlace { node: interface.node.clone(), interface: interface.interface.clone() }
}

fn first_ns(flow: &FlowObservation, leg: &str) -> impl Iterator<Item = u64> {
    let counts = flow.interfaces.iter().flat_map(|interface| &interface.counts);
    counts.filter(move |count| count.leg == leg).map(|count| count.first_ns)
}

/// The interface that leads outside, or to those nodes, by which most frames of a leg passed.
fn busiest(flow: &FlowObservation, hook: Hook, leg: &str, to: &BTreeSet<String>) -> Option<usize> {
    let frames = |interface: &FlowInterface| interface.count(hook, leg).map_or(0, |count| count.frames);
    let leads = |interface: &FlowInterface| {
        is_open(interface) || interface.other.as_ref().is_some_and(|other| to.contains(&other.node))
    };
    let open = flow.interfaces.iter().enumerate().filter(|(_, one)| leads(one) && frames(one) > 0);
    open.max_by_key(|(_, one)| frames(one)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::way::{Nodes, sections};
    use record::FlowCount;

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
            let seen = joined(near, far, ["here", "there"], false);
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
        let seen = joined(near, far, ["here", "there"], false);
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

    #[test]
    fn nodes_of_the_second_host_stand_behind_its_name_and_reasons_tell_the_host() {
        let mut far = host(&[]);
        far.before.nodes.insert("vm1".into(), Default::default());
        far.flow.absent = Some("no permission".into());
        let seen = joined(host(&[]), far, ["local", "b"], false);
        assert_eq!(seen.before.nodes.keys().collect::<Vec<_>>(), ["b", "b/vm1", "local"]);
        assert_eq!(seen.flow.absent.as_deref(), Some("b: no permission"));
    }
}
