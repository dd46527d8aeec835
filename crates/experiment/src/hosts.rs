//! A test to another host, observed on both: the counters of the flow, what the kernels dropped, the ledger between two hosts.
//!
//! **What.** [`HostsObserver`] watches this host and asks the other one to watch itself; [`HostsObserver::conclude`] closes the ledger,
//! [`HostsObserver::facts`] tells what the doctor judges at each of them.
//!
//! **Price.** The other host must be willing (`pathlab serve --observe`), and both must be permitted to count. Where one is not, the test
//! goes on and the reason is said.

pub mod remote;

use crate::doctor;
use linux::observe::next_hop;
use linux::sys::clock;
use load::conversation::controller::{self, ViaLink};
use load::conversation::facts::{FactsWatch, Host};
use load::conversation::observation::{HostWatch, Nodes, flow};
use load::protocol::message::FactsWindow;
use load::protocol::setup::{ClockRelation, EndRole};
use load::{AgentLink, DataPorts, Outcome};
use record::{
    Facts, FlowObservation, Hop, HostFacts, HostObservation, NodeRole, Path, Problem, Result, TestRecord,
    TestSpec, ViaHost, Witness, WitnessStatus,
};
use serde::Serialize;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use study::criteria::Criteria;
use study::doctor::measured::of_hosts;
use study::doctor::{DoctorReport, Goal};
use study::ledger::{Ports, WitnessInput};
use study::test::{self, Evidence};

/// This host and another one, under the names that a plan's path has for them.
#[derive(Debug, Clone)]
pub struct HostPair {
    /// The other host as it was named: HOST or HOST:PORT.
    pub name: String,
    /// The node that is this host.
    pub near: String,
    /// The node that is the other one.
    pub far: String,
    /// Hosts between the two that are to observe, in the order from this one: HOST[:PORT], with NAME= before it or not.
    pub via: Vec<String>,
}

impl HostPair {
    /// This host and that one, between which a test of this kind goes: from here to there, or in `reverse`.
    pub fn of(name: &str, spec: &TestSpec, reverse: bool) -> HostPair {
        let (mut near, mut far) = (spec.from.clone(), spec.to.clone());
        if reverse {
            std::mem::swap(&mut near, &mut far);
        }
        HostPair { name: name.into(), near, far, via: vec![] }
    }

    /// The same, with hosts between the two, in the order from this one.
    ///
    /// # Errors
    /// Input: one has the name of another node.
    pub fn through(mut self, via: &[String]) -> Result<HostPair> {
        remote::named_apart(via, [&self.near, &self.far])?;
        self.via = via.to_vec();
        Ok(self)
    }

    /// The end that this host is of a test between the two.
    pub fn near_end(&self, spec: &TestSpec) -> EndRole {
        if self.near == spec.from { EndRole::Sender } else { EndRole::Receiver }
    }

    /// The address at which the other host answers tests of that IP version.
    ///
    /// # Errors
    /// Input: it has none.
    pub fn address(&self, family: u8) -> Result<SocketAddr> {
        remote::resolve(&self.name, Some(family))
    }

    /// The version of IP of a test that says none: 4 where the other host has it.
    pub fn family(&self) -> u8 {
        if remote::usual(&self.name).is_ok_and(|address| address.is_ipv6()) { 6 } else { 4 }
    }

    /// The interface of this host that leads to the other one, or of another node that leads here.
    ///
    /// # Errors
    /// Input: no such node. Host: there is no route, or the other host does not tell.
    pub fn interface(&self, node: &str) -> Result<String> {
        let Some(host) = self.elsewhere(node)? else {
            return next_hop::interface_to(remote::usual(&self.name)?.ip());
        };
        let no_way = || Problem::host(format!("{host} knows no way to this host"));
        remote::knobs(host)?.about()?.interface.ok_or_else(no_way)
    }

    /// The host that is a node, as it was named, where that is not this one: the other end, or one on the way.
    ///
    /// # Errors
    /// Input: no such node.
    pub fn elsewhere(&self, node: &str) -> Result<Option<&str>> {
        let HostPair { name, near, far, via } = self;
        let mut between = via.iter().map(|text| remote::named(text));
        match node {
            node if node == near => Ok(None),
            node if node == far => Ok(Some(name)),
            _ => {
                between.clone().find(|(name, _)| *name == node).map(|(_, host)| Some(host)).ok_or_else(|| {
                    let between: String =
                        between.by_ref().map(|(name, host)| format!(", '{name}' is {host}")).collect();
                    Problem::input(format!("there is no node '{node}'"))
                        .help(format!("'{near}' is this host, '{far}' is {name}{between}"))
                })
            }
        }
    }
}

/// As a topology: two nodes, between which nothing is known.
impl fmt::Display for HostPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostPair { name, near, far, via } = self;
        write!(f, "# {near} is this host, {far} is {name}")?;
        if !via.is_empty() {
            write!(f, ", observed between them: {}", via.join(", "))?;
        }
        write!(f, "\nnode {near} {far}\n")
    }
}

/// The end of a test that this host is, and where the other one is.
#[derive(Debug, Clone, Copy)]
pub struct HostEnds {
    /// The end.
    pub near: EndRole,
    /// The address of the other host.
    pub far: IpAddr,
}

impl HostEnds {
    /// Runs a test between an agent of this host and the other host's.
    ///
    /// # Errors
    /// As [`controller::run`]. Host: there is no route.
    pub fn run(
        self,
        spec: &TestSpec,
        own: &mut AgentLink,
        other: &mut AgentLink,
        observer: &mut dyn load::Observer,
    ) -> Result<Outcome> {
        match self.near {
            EndRole::Sender => controller::run(spec, own, other, self.far, observer),
            EndRole::Receiver => {
                controller::run(spec, other, own, next_hop::own_address(self.far)?, observer)
            }
        }
    }

    /// What is this host's and what the other one's, as what is the sender's and what the receiver's, or the other way round.
    fn ordered<T>(self, near: T, far: T) -> [T; 2] {
        if self.near == EndRole::Sender { [near, far] } else { [far, near] }
    }

    /// The name of the other host in a test.
    fn far_name(self, spec: &TestSpec) -> &str {
        let [_, far] = self.ordered(spec.from.as_str(), &spec.to);
        far
    }
}

/// How long to wait at the end for frames that still move.
const SETTLE_NS: u64 = 2_000_000_000;
/// How long what the sender sent last is on its way at least.
const LAST_NS: u64 = 100_000_000;

/// Observes both hosts of a test.
pub struct HostsObserver<'a> {
    spec: &'a TestSpec,
    ends: HostEnds,
    /// The process of this host's end.
    process: u32,
    host: Arc<Host>,
    watch: Option<HostWatch>,
    wants_facts: bool,
    facts: Option<Result<FactsWatch>>,
    near_facts: Option<std::result::Result<Facts, String>>,
    near: Option<HostObservation>,
    far: Option<HostObservation>,
    /// The hosts between the two, in the order from this one, each with what it saw.
    via: Vec<(ViaLink, Option<Result<HostObservation>>)>,
    /// Why this host is not observed.
    why: Option<String>,
    /// Why the other one is not.
    far_why: Option<String>,
}

impl<'a> HostsObserver<'a> {
    /// Observes these nodes of this host, of which the first one is this process's own; or the reason why none can be. `process` is
    /// that of this host's end. Facts are taken where the doctor is to judge them.
    pub fn new(
        spec: &'a TestSpec,
        ends: HostEnds,
        process: u32,
        nodes: std::result::Result<Nodes, String>,
        wants_facts: bool,
    ) -> Self {
        let (nodes, why) = match nodes {
            Ok(nodes) => (nodes, None),
            Err(why) => (vec![], Some(why)),
        };
        let host = Arc::new(doctor::host(nodes));
        HostsObserver {
            spec,
            ends,
            process,
            host,
            watch: None,
            wants_facts,
            facts: None,
            near_facts: None,
            near: None,
            far: None,
            via: vec![],
            why,
            far_why: None,
        }
    }

    /// Lets these hosts between the two observe the test, too; in the order from this one.
    #[must_use]
    pub fn through(self, via: Vec<ViaLink>) -> Self {
        let via = via.into_iter().map(|host| (host, None)).collect();
        HostsObserver { via, ..self }
    }

    /// What the doctor judges, of each host in the order from the sender, or why it is not known; of several in one namespace one, none where it was not
    /// asked for.
    pub fn facts(&self) -> Vec<FactsOf> {
        if !self.wants_facts {
            return vec![];
        }
        let is_same = |one: &HostObservation, other: &HostObservation| {
            one.namespace == other.namespace && one.host.boot_id == other.host.boot_id
        };
        let unknown = || "the test ended before they were taken".to_owned();
        let near = self.near_facts.clone().unwrap_or_else(|| Err(unknown()));
        let [near_name, far_name] = self.ends.ordered(&self.spec.from, &self.spec.to);
        let far = self.far.as_ref().ok_or_else(|| self.far_why.clone().unwrap_or_else(unknown));
        let via = self.via.iter().map(|(host, told)| match told {
            Some(told) => (&host.name, told.as_ref().map_err(Problem::to_string)),
            None => (&host.name, Err(unknown())),
        });
        let mut others: Vec<(&String, SeenOr<'_>)> = vec![(far_name, far)];
        others.extend(via);
        let mut known: Vec<&HostObservation> = self.near.iter().collect();
        others.retain(|(_, seen)| {
            let seen = seen.as_ref().ok().copied();
            let is_known = seen.is_some_and(|seen| known.iter().any(|other| is_same(seen, other)));
            known.extend(seen);
            !is_known
        });
        let is_far_first = others.first().is_some_and(|(name, _)| *name == far_name);
        others.rotate_left(usize::from(is_far_first));
        let others = others.into_iter().map(|(name, seen)| (name.clone(), seen.and_then(told_facts)));
        let mut hosts: Vec<FactsOf> = std::iter::once((near_name.clone(), near)).chain(others).collect();
        if self.ends.near == EndRole::Receiver {
            hosts.reverse();
        }
        hosts
    }

    /// Makes sure that of the nodes beside this process's own none is observed by the other host, too: what happens there would be counted
    /// twice.
    ///
    /// # Errors
    /// Input: one is.
    pub fn observes_apart(&self) -> Result<()> {
        match self.seen_twice().filter(|at| *at > 0) {
            Some(at) => Err(Problem::input(format!(
                "{} observes {} itself",
                self.ends.far_name(self.spec),
                self.name(at)
            ))),
            None => Ok(()),
        }
    }

    /// Which node of this host the other one observes, too.
    fn seen_twice(&self) -> Option<usize> {
        let (near, far) = self.near.as_ref().zip(self.far.as_ref())?;
        observed_by_both(near, far)
    }

    fn name(&self, at: usize) -> &str {
        self.host.nodes.get(at).map_or("", |(name, _)| name)
    }

    /// When: the middle of the test.
    fn window(&self) -> FactsWindow {
        let length_ms = load::length_ms(self.spec);
        FactsWindow { delay_ms: length_ms / 4, window_ms: doctor::window_ms(length_ms) }
    }

    /// The record of the test with its ledger, where both hosts were observed; else why there is none.
    ///
    /// # Errors
    /// The sentence why.
    pub fn conclude(self, outcome: &Outcome) -> std::result::Result<TestRecord, String> {
        let twice = self.seen_twice().map(|at| format!("both hosts observe {}", self.name(at)));
        let far_why = self.far_why.map(|why| format!("{}: {why}", self.ends.far_name(self.spec)));
        let (near, far) = match (self.why.or(far_why), self.near, self.far) {
            (Some(why), ..) => return Err(why),
            (None, Some(near), Some(far)) => (near, far),
            _ => return Err("the test ended before the counters were read".into()),
        };
        let (spec, ends) = (self.spec, self.ends);
        let is_one_host = outcome.clock == ClockRelation::Shared;
        if is_one_host && near.namespace == far.namespace {
            return Err("both ends are in one network namespace".into());
        }
        if let Some(why) = twice {
            return Err(why);
        }
        let path = path(spec, ends, far.interface.clone());
        let (mut via, mut all) = on_the_way(self.via, spec, ends, [near, far]);
        let mut seen = joined(spec, &mut via, &mut all);
        let mut hosts: Vec<HostFacts> = all.iter().map(|(_, seen)| seen.host.clone()).collect();
        // The ends stand first.
        hosts[1..].rotate_right(1);
        seen.conditions.iter_mut().for_each(|one| one.ends = addresses(ends.far));
        let mut test = TestRecord {
            name: spec.kind.to_string(),
            spec: spec.clone(),
            path,
            sender: outcome.sender.clone(),
            receiver: outcome.receiver.clone(),
            before: seen.before,
            after: seen.after,
            flow: Some(seen.flow),
            conditions: seen.conditions,
            hosts,
            via,
            ..TestRecord::default()
        };
        test.actors = test::actors(&test.before, &test.after, [&outcome.sender, &outcome.receiver]);
        let DataPorts { sender, receiver, icmp_id } = &outcome.ports;
        let ports = Ports {
            sender: sender.first().copied().or(*icmp_id).unwrap_or(0),
            receiver: receiver.unwrap_or(0),
        };
        let witness = match seen.no_witness {
            Some(absent) => WitnessInput::Absent(absent),
            None => WitnessInput::Counted { details: seen.drops, lost: seen.lost },
        };
        test::conclude(&mut test, evidence(witness, ports));
        Ok(test)
    }
}

/// The first namespace of the one that the other one observes, too, by its place there.
fn observed_by_both(one: &HostObservation, other: &HostObservation) -> Option<usize> {
    let is_one_boot = !one.host.boot_id.is_empty() && one.host.boot_id == other.host.boot_id;
    let theirs = |own: &u64| *own == other.namespace || other.namespaces.contains(own);
    one.namespaces.iter().position(theirs).filter(|_| is_one_boot)
}

/// Why the flow was not counted at every interface of a host, if so.
fn uncounted(flow: &FlowObservation) -> Option<String> {
    flow.absent.clone().or_else(|| flow.missing.first().cloned())
}

/// What a host saw, or why it tells nothing.
type SeenOr<'a> = std::result::Result<&'a HostObservation, String>;

/// What the doctor judges of a host, or why it is not known.
fn told_facts(seen: &HostObservation) -> std::result::Result<Facts, String> {
    let none = || "its pathlab tells none: use the same version on all hosts".to_owned();
    seen.facts.clone().ok_or_else(|| seen.no_facts.clone().unwrap_or_else(none))
}

/// A host between the ends by its name, and what it saw.
type Seen = (String, HostObservation);

/// What hosts saw as one observation. Where that is no whole way, those between the ends are left out, and it is said why.
fn joined(spec: &TestSpec, via: &mut [ViaHost], all: &mut Vec<Seen>) -> HostObservation {
    let seen = study::hosts::joined(all.clone());
    if all.len() < 3 || study::hosts::is_whole(&seen, [&spec.from, &spec.to]) {
        return seen;
    }
    for host in via.iter_mut().filter(|host| host.unseen.is_none()) {
        let why = "more frames came in than were counted out of the host before: do they pass it twice, or \
                   only some of them?";
        host.unseen = Some(why.into());
    }
    all.drain(1..all.len() - 1);
    study::hosts::joined(all.clone())
}

/// The hosts between the ends in the order from the sender, each with why the ledger has nothing of it, if so; and what the others and the ends saw, in
/// that order.
fn on_the_way(
    mut asked: Vec<(ViaLink, Option<Result<HostObservation>>)>,
    spec: &TestSpec,
    ends: HostEnds,
    [near, far]: [HostObservation; 2],
) -> (Vec<ViaHost>, Vec<Seen>) {
    if ends.near == EndRole::Receiver {
        asked.reverse();
    }
    let [sender, receiver] = ends.ordered(near, far);
    let mut seen: Vec<Seen> = vec![(spec.from.clone(), sender), (spec.to.clone(), receiver)];
    let mut hosts: Vec<ViaHost> = vec![];
    for (host, told) in asked {
        let told = told.unwrap_or_else(|| Err(Problem::measured("the test ended before it told anything")));
        let told = told.map_err(|problem| problem.to_string()).and_then(|told| {
            let is_twice = seen.iter().any(|(_, other)| observed_by_both(&told, other).is_some());
            match (uncounted(&told.flow), is_twice) {
                (_, true) => Err("another one of the hosts observes the same network namespace".into()),
                (Some(why), _) => Err(why),
                _ if !study::hosts::is_crossed(&told) => Err("no frame of the test came there".into()),
                _ => Ok(told),
            }
        });
        let unseen = told.as_ref().err().cloned();
        hosts.push(ViaHost { name: host.name.clone(), unseen, facts: None });
        let behind = seen.len() - 1;
        seen.splice(behind..behind, told.ok().map(|told| (host.name, told)));
    }
    let order = study::hosts::order_of_frames(&seen.iter().map(|(_, seen)| seen).collect::<Vec<_>>());
    let mut seen: Vec<Option<Seen>> = seen.into_iter().map(Some).collect();
    let seen: Vec<Seen> = order.into_iter().filter_map(|host| seen[host].take()).collect();
    // Those that tell something are told of in the order of their frames.
    let mut names = seen.iter().skip(1).map(|(name, _)| name);
    for host in hosts.iter_mut().filter(|host| host.unseen.is_none()) {
        host.name = names.next().cloned().unwrap_or_default();
    }
    (hosts, seen)
}

fn evidence(witness: WitnessInput, ports: Ports) -> Evidence<'static> {
    let criteria = Criteria::default();
    Evidence { idle: None, witness, ports, arrival: None, planned: None, seconds: None, criteria }
}

/// What the two ends measured of a test by themselves: there is no ledger, and nobody can tell whether the figures are valid.
pub fn unobserved(spec: &TestSpec, ends: HostEnds, outcome: &Outcome, why: &str) -> TestRecord {
    let mut test = TestRecord {
        name: spec.kind.to_string(),
        spec: spec.clone(),
        path: path(spec, ends, None),
        sender: outcome.sender.clone(),
        receiver: outcome.receiver.clone(),
        ..TestRecord::default()
    };
    let witness = WitnessInput::Absent(Witness::absent(WitnessStatus::Unavailable, why));
    test::conclude(&mut test, evidence(witness, Ports { sender: 0, receiver: 0 }));
    test.ledger = None;
    test
}

/// A host of a test by its name, and what the doctor judges there, or why it is not known.
pub type FactsOf = (String, std::result::Result<Facts, String>);

/// What the doctor finds at one host of a test.
#[derive(Debug, Serialize)]
pub struct Examined {
    /// The host.
    pub host: String,
    /// What is found there; none where nothing is known.
    pub report: Option<DoctorReport>,
    /// What was judged.
    pub facts: Option<Facts>,
    /// Why nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// What the rules say of each host ([`of_hosts`]).
pub fn examined(hosts: Vec<FactsOf>, observed: Option<&TestRecord>, goal: Goal) -> Vec<Examined> {
    let known: Vec<(&str, Option<&Facts>)> =
        hosts.iter().map(|(name, facts)| (name.as_str(), facts.as_ref().ok())).collect();
    let reports = of_hosts(&known, observed, goal);
    let of = |((host, facts), report): (FactsOf, Option<DoctorReport>)| {
        let (facts, unknown) = facts.map_or_else(|why| (None, Some(why)), |facts| (Some(facts), None));
        Examined { host, report, facts, unknown }
    };
    hosts.into_iter().zip(reports).map(of).collect()
}

/// The addresses of the two ends, as far as a route tells.
fn addresses(far: IpAddr) -> Vec<String> {
    let own = next_hop::own_address(far).ok();
    [Some(far), own].into_iter().flatten().map(|address| address.to_string()).collect()
}

/// The two ends, as far as the sender's route tells, which the other host tells of itself; the frames tell more.
fn path(spec: &TestSpec, ends: HostEnds, far: Option<String>) -> Path {
    let hop = |node: &str, role, egress| Hop { node: node.into(), role, ingress: None, egress, bridge: None };
    let [out, _] = ends.ordered(next_hop::interface_to(ends.far).ok(), far);
    let forward = vec![hop(&spec.from, NodeRole::Sender, out), hop(&spec.to, NodeRole::Receiver, None)];
    let is_both_ways = spec.kind.is_round_trip() || spec.kind.is_tcp();
    let back = if is_both_ways {
        vec![hop(&spec.to, NodeRole::Sender, None), hop(&spec.from, NodeRole::Receiver, None)]
    } else {
        vec![]
    };
    Path { forward, back, source: "route".into() }
}

impl load::Observer for HostsObserver<'_> {
    fn before(&mut self, ports: &DataPorts, stream: u8) -> Result<()> {
        if self.why.is_none() {
            let end = (self.process, self.ends.near);
            match HostWatch::start(&self.host.nodes, &flow(self.spec, ports, stream), Some(end)) {
                Ok(watch) => self.watch = Some(watch),
                Err(problem) => self.why = Some(problem.what),
            }
        }
        // Where the two ends have no ledger, nobody between them has.
        let is_wanted = self.why.is_none() || self.wants_facts;
        let facts = self.wants_facts.then(|| self.window());
        for (host, told) in self.via.iter_mut().filter(|_| is_wanted) {
            *told = host.observe(self.spec, ports, stream, facts).err().map(Err);
        }
        Ok(())
    }

    fn far_end(&self) -> Option<EndRole> {
        let is_wanted = (self.why.is_none() || self.wants_facts) && self.far_why.is_none();
        let [_, far] = self.ends.ordered(EndRole::Sender, EndRole::Receiver);
        is_wanted.then_some(far)
    }

    fn is_interrupted(&self) -> bool {
        linux::sys::process::interrupted()
    }

    fn wants_facts(&self) -> Option<FactsWindow> {
        self.wants_facts.then(|| self.window())
    }

    fn starting(&mut self) {
        if self.wants_facts {
            self.facts = Some(FactsWatch::start(&self.host, self.window()));
        }
    }

    fn told(&mut self, seen: Result<HostObservation>) {
        match seen {
            Ok(seen) => self.far = Some(seen),
            Err(problem) => self.far_why = Some(problem.to_string()),
        }
    }

    fn settled(&mut self) -> Result<()> {
        if let Some(watch) = &mut self.watch {
            watch.settle();
        }
        let begun = clock::monotonic_ns();
        clock::sleep_until(begun + LAST_NS);
        while let Some(watch) = &self.watch
            && clock::monotonic_ns() < begun + SETTLE_NS
            && !watch.rests()?
        {}
        Ok(())
    }

    fn after(&mut self) -> Result<()> {
        self.near = self.watch.take().map(HostWatch::end).transpose()?;
        for (host, told) in self.via.iter_mut().filter(|(_, refused)| refused.is_none()) {
            *told = Some(host.observed());
        }
        let facts = self.facts.take().map(|watch| watch.and_then(FactsWatch::end));
        self.near_facts = facts.map(|facts| facts.map_err(|problem| problem.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames taken by XDP are not counted as the flow: without the interface of a sender elsewhere its port and its link were unknown.
    #[test]
    fn a_sender_elsewhere_tells_by_which_interface_it_sends() {
        let (far, told) = ([127, 0, 0, 1].into(), Some("d0".to_owned()));
        for (near, expected) in [(EndRole::Sender, "lo"), (EndRole::Receiver, "d0")] {
            let path = path(&TestSpec::default(), HostEnds { near, far }, told.clone());
            assert_eq!(path.forward[0].egress.as_deref(), Some(expected));
            assert_eq!(path.forward[1].ingress, None);
        }
    }
}
