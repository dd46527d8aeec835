//! Knobs at the two ends of a test between hosts.

use super::{Holding, LabChange, Tunable, located};
use crate::hosts::HostPair;
use linux::journal::Journals;
use linux::namespace::OWN;
use linux::netlink::Netlink;
use linux::tune::kept;
use record::knob::KnobChange;
use record::{Problem, Result};

impl HostPair {
    /// Does something with a change if it is one of this host.
    fn here<T>(&self, change: &LabChange, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let refused = |what: String, help: String| Err(Problem::input(what).at(&change.text).help(help));
        match &change.node {
            node if *node == self.near => work().map_err(|problem| located(problem, change)),
            node if *node == self.far => refused(
                format!("'{node}' is {}, whose knobs cannot be set from here", self.name),
                "run 'pathlab prove' there, or set it there with 'pathlab tune set' for all of this trial"
                    .into(),
            ),
            node => refused(
                format!("there is no node '{node}'"),
                format!("'{}' is this host, '{}' is {}", self.near, self.far, self.name),
            ),
        }
    }
}

impl Tunable for HostPair {
    fn hold(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Box<dyn Holding>> {
        let (held, _) = self.here(change, || kept::hold(journals, OWN, &change.asks, may_flap))?;
        Ok(Box::new(held))
    }

    fn set(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Vec<KnobChange>> {
        self.here(change, || kept::set(journals, OWN, &change.asks, may_flap))
    }

    fn compare(&self, change: &LabChange) -> Result<Vec<KnobChange>> {
        self.here(change, || kept::compare(OWN, &change.asks))
    }

    fn passing(&self) -> Result<Vec<(String, String)>> {
        let refused = |why| Problem::host(format!("the links of this host cannot be listed: {why}"));
        let links = Netlink::open().links().map_err(refused)?;
        let passing = links.into_iter().filter(|link| link.carrier && link.operational);
        Ok(passing.map(|link| (self.near.clone(), link.name)).collect())
    }
}
