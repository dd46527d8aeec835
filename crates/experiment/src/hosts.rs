//! A test to another host, observed on both: the counters of the flow, what the kernels dropped, the ledger between two hosts.
//!
//! **What.** [`HostsObserver`] watches this host and asks the other one to watch itself; [`HostsObserver::conclude`] closes the ledger.
//!
//! **Price.** The other host must be willing (`pathlab serve --observe`), and both must be permitted to count. Where one is not, the test
//! goes on and the reason is said.

use linux::observe::next_hop;
use linux::sys::clock;
use load::conversation::observation::{HostWatch, Nodes, flow};
use load::protocol::setup::ClockRelation;
use load::{DataPorts, Outcome};
use record::{Hop, HostObservation, NodeRole, Path, Problem, Result, TestRecord, TestSpec};
use std::net::IpAddr;
use study::criteria::Criteria;
use study::ledger::{Ports, WitnessInput};
use study::test::{self, Evidence};

/// How long to wait at the end for frames that still move.
const SETTLE_NS: u64 = 2_000_000_000;
/// How long what the sender sent last is on its way at least.
const LAST_NS: u64 = 100_000_000;

/// Observes both hosts of a test.
pub struct HostsObserver<'a> {
    spec: &'a TestSpec,
    /// The process that sends.
    sender: u32,
    nodes: Nodes,
    watch: Option<HostWatch>,
    near: Option<HostObservation>,
    far: Option<HostObservation>,
    /// Why there is no ledger.
    why: Option<String>,
}

impl<'a> HostsObserver<'a> {
    /// Observes these nodes of this host, of which the first one is this process's own; or the reason why none can be. `sender` is the
    /// process that sends.
    pub fn new(spec: &'a TestSpec, sender: u32, nodes: std::result::Result<Nodes, String>) -> Self {
        let (nodes, why) = match nodes {
            Ok(nodes) => (nodes, None),
            Err(why) => (vec![], Some(why)),
        };
        HostsObserver { spec, sender, nodes, watch: None, near: None, far: None, why }
    }

    /// The record of the test with its ledger, where both hosts were observed; else why there is none.
    ///
    /// # Errors
    /// The sentence why.
    pub fn conclude(self, outcome: &Outcome, address: IpAddr) -> std::result::Result<TestRecord, String> {
        let (near, far) = match (self.why, self.near, self.far) {
            (Some(why), ..) => return Err(why),
            (None, Some(near), Some(far)) => (near, far),
            _ => return Err("the test ended before the counters were read".into()),
        };
        let spec = self.spec;
        let is_one_host = outcome.clock == ClockRelation::Shared;
        if is_one_host && near.namespace == far.namespace {
            return Err("both ends are in one network namespace".into());
        }
        let hosts = vec![near.host.clone(), far.host.clone()];
        let mut seen = study::hosts::joined(near, far, [&spec.from, &spec.to], is_one_host);
        seen.conditions.iter_mut().for_each(|one| one.ends = ends(address));
        let mut test = TestRecord {
            name: spec.kind.to_string(),
            spec: spec.clone(),
            path: path(spec, address),
            sender: outcome.sender.clone(),
            receiver: outcome.receiver.clone(),
            before: seen.before,
            after: seen.after,
            flow: Some(seen.flow),
            conditions: seen.conditions,
            hosts,
            ..TestRecord::default()
        };
        let DataPorts { sender, receiver, icmp_id } = &outcome.ports;
        let ports = Ports {
            sender: sender.first().copied().or(*icmp_id).unwrap_or(0),
            receiver: receiver.unwrap_or(0),
        };
        let witness = match seen.no_witness {
            Some(absent) => WitnessInput::Absent(absent),
            None => WitnessInput::Counted { details: seen.drops, lost: seen.lost },
        };
        let evidence = Evidence {
            idle: None,
            witness,
            ports,
            arrival: None,
            planned: None,
            seconds: None,
            criteria: Criteria::default(),
        };
        test::conclude(&mut test, evidence);
        Ok(test)
    }
}

/// The addresses of the two ends, as far as a route tells.
fn ends(address: IpAddr) -> Vec<String> {
    let own = next_hop::own_address(address).ok();
    [Some(address), own].into_iter().flatten().map(|address| address.to_string()).collect()
}

/// The two ends, as far as a route tells; the frames tell more.
fn path(spec: &TestSpec, address: IpAddr) -> Path {
    let hop = |node: &str, role, egress: Option<String>| Hop {
        node: node.into(),
        role,
        ingress: None,
        egress,
        bridge: None,
    };
    let egress = next_hop::interface_to(address).ok();
    let forward = vec![hop(&spec.from, NodeRole::Sender, egress), hop(&spec.to, NodeRole::Receiver, None)];
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
            match HostWatch::start(&self.nodes, &flow(self.spec, ports, stream), &[self.sender]) {
                Ok(watch) => self.watch = Some(watch),
                Err(problem) => self.why = Some(problem.what),
            }
        }
        Ok(())
    }

    fn wants_host(&self) -> bool {
        self.why.is_none()
    }

    fn told(&mut self, seen: Result<HostObservation>) {
        match seen {
            Ok(seen) => self.far = Some(seen),
            Err(problem) => self.why = Some(sentence(&self.spec.to, &problem)),
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
        Ok(())
    }
}

fn sentence(host: &str, problem: &Problem) -> String {
    let help = if problem.advice.is_empty() { String::new() } else { format!("; {}", problem.advice) };
    format!("{host}: {}{help}", problem.what)
}
