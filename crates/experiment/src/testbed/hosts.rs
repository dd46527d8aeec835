//! This host and another one, which answers tests (`pathlab serve`), as a testbed.
//!
//! **What.** The first node of a plan's path is this host, the second the other one, or in reverse. Each test has a control connection and a sending process of its own; both hosts
//! are observed as by `pathlab test` ([`crate::hosts`]), and where one cannot be, the test has the figures of its ends alone.
//!
//! **Price.** As of `pathlab test`.

use super::{Testbed, Tried, Wanted};
use crate::hosts::{HostEnds, HostPair, HostsObserver, remote, unobserved};
use crate::measure;
use crate::notices::Notices;
use crate::plan::{Plan, Planned};
use record::facts::Facts;
use record::{Problem, ProblemKind, Result, RunRecord, TestRecord, ViaHost};
use std::collections::BTreeSet;

/// Why a host on the way is not in the ledger where there is none.
const NO_LEDGER: &str = "there is no ledger between the two ends";

/// Two hosts under measurement.
pub struct HostsBed<'a> {
    pair: &'a HostPair,
    /// Why hosts are not observed, each reason once.
    said: BTreeSet<String>,
}

impl<'a> HostsBed<'a> {
    /// Looks whether the tests of a plan can go between the two.
    ///
    /// # Errors
    /// Input: the plan wants what only a lab has; the other host has no address of its IP version. Host: this host cannot send such a test.
    pub fn open(pair: &'a HostPair, plan: &Plan) -> Result<HostsBed<'a>> {
        plan.extra.is_of_hosts()?;
        for test in &plan.tests {
            load::check_host(&test.spec, pair.near_end(&test.spec))
                .map_err(|problem| problem.at(&test.name))?;
            let other = if test.spec.family == 4 { 6 } else { 4 };
            pair.address(test.spec.family).map_err(|problem| match pair.address(other) {
                Ok(_) => problem.at(&test.name).help(format!("say 'family {other}' in the plan")),
                Err(_) => problem.at(&test.name),
            })?;
        }
        Ok(HostsBed { pair, said: BTreeSet::new() })
    }

    fn test(&mut self, planned: &Planned, wanted: &Wanted, notices: &dyn Notices) -> Result<TestRecord> {
        let spec = &planned.spec;
        let address = self.pair.address(spec.family)?;
        let ends = HostEnds { near: self.pair.near_end(spec), far: address.ip() };
        let mut other = remote::connect(address, &self.pair.name)?;
        let mut agent = measure::start_here()?;
        let own = linux::namespace::open(".").map(|own| vec![own]).map_err(|problem| problem.to_string());
        let via = remote::via(&self.pair.via)?;
        let mut observer = HostsObserver::new(spec, ends, agent.pid(), own, wanted.facts).through(via);
        let outcome = measure::interruptible(&[agent.pid()], || {
            ends.run(spec, &mut agent.link, &mut other, &mut observer)
        });
        if linux::sys::process::interrupted() {
            return Err(Problem::input("interrupted").help("what was changed is put back"));
        }
        let outcome = outcome?;
        let facts = observer.facts();
        let mut test = observer.conclude(&outcome).unwrap_or_else(|why| {
            if self.said.insert(why.clone()) {
                notices.note(&format!("no ledger between the hosts: {why}"));
            }
            unobserved(spec, ends, &outcome, &why)
        });
        for (host, why) in test.via.iter().filter_map(|host| Some((host, host.unseen.as_ref()?))) {
            if self.said.insert(format!("{}: {why}", host.name)) {
                notices.note(&format!("{} is not in the ledger: {why}", host.name));
            }
        }
        for (host, facts) in facts {
            let facts = self.known(facts, &host, notices);
            let between = test.via.iter_mut().find(|one| one.name == host);
            match between {
                _ if host == spec.from => test.facts = facts,
                _ if host == spec.to => test.far_facts = facts,
                Some(between) => between.facts = facts,
                // Without a ledger.
                None => test.via.push(ViaHost { name: host, unseen: Some(NO_LEDGER.into()), facts }),
            }
        }
        test.criteria = study::criteria::judge(planned.criteria, &test);
        Ok(test)
    }

    /// Facts of a host, whose own namespace has the name of its node; where nothing is known, that is said.
    fn known(
        &mut self,
        facts: std::result::Result<Facts, String>,
        node: &str,
        notices: &dyn Notices,
    ) -> Option<Facts> {
        match facts {
            Ok(facts) => Some(named(facts, node)),
            Err(why) => {
                if self.said.insert(format!("{node}: {why}")) {
                    notices.note(&format!("{node}: the doctor sees no facts: {why}"));
                }
                None
            }
        }
    }
}

/// Facts of a host whose own namespace has the name of a node.
fn named(mut facts: Facts, node: &str) -> Facts {
    if let Some(own) = facts.nodes.remove(linux::namespace::OWN) {
        facts.nodes.insert(node.to_owned(), own);
    }
    facts
}

impl Testbed for HostsBed<'_> {
    fn describe(&self, header: &mut RunRecord) {
        header.host = linux::observe::host_facts();
        header.topology = self.pair.to_string();
    }

    fn measure(
        &mut self,
        planned: &Planned,
        test: TestRecord,
        wanted: Wanted,
        notices: &dyn Notices,
    ) -> Result<Tried> {
        match self.test(planned, &wanted, notices) {
            Ok(measured) => {
                let TestRecord { name, repetition, order, place, begun, .. } = test;
                let measured = TestRecord { name, repetition, order, place, begun, ..measured };
                Ok(Tried::Measured(Box::new(measured)))
            }
            Err(why) if why.kind == ProblemKind::Measured => Ok(Tried::NotMade { why, told: vec![] }),
            Err(problem) => Err(problem),
        }
    }
}
