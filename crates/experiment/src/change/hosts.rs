//! Knobs of the hosts of a test: those of this one, and those of the other one and of hosts on the way where these let us.
//!
//! **What.** [`HostPair`] is [`Tunable`]: its near node is this host ([`ThisHost`]); what is held at another one is held by a control connection of its own, and is put back
//! there when that ends, for whatever reason. [`for_a_controller`] is the other side of it.

use super::{Changed, Holding, LabChange, Tunable, located};
use crate::hosts::{HostPair, remote};
use linux::journal::Journals;
use linux::namespace::OWN;
use linux::netlink::Netlink;
use linux::tune::kept::{self, Ask};
use load::conversation::knobs::{Knobs, RemoteKnobs};
use load::protocol::message::{Tune, TuneAction};
use record::knob::KnobChange;
use record::{Problem, Result};
use std::fmt;

/// This host as a node.
struct ThisHost {
    node: String,
}

impl Tunable for ThisHost {
    fn hold(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Box<dyn Holding>> {
        let held = kept::hold(journals, OWN, &change.asks, may_flap);
        let (held, _) = held.map_err(|problem| located(problem, change))?;
        Ok(Box::new(held))
    }

    fn set(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Vec<KnobChange>> {
        kept::set(journals, OWN, &change.asks, may_flap).map_err(|problem| located(problem, change))
    }

    fn compare(&self, change: &LabChange) -> Result<Vec<KnobChange>> {
        kept::compare(OWN, &change.asks).map_err(|problem| located(problem, change))
    }

    fn passing(&self) -> Result<Vec<(String, String)>> {
        let refused = |why| Problem::host(format!("the links of this host cannot be listed: {why}"));
        let links = Netlink::open().links().map_err(refused)?;
        let passing = links.into_iter().filter(|link| link.carrier && link.operational);
        Ok(passing.map(|link| (self.node.clone(), link.name)).collect())
    }
}

/// Knobs that are held at another host.
struct HeldThere(RemoteKnobs);

impl Holding for HeldThere {
    fn put_back(mut self: Box<Self>) -> Result<()> {
        self.0.put_back()
    }
}

impl fmt::Debug for HeldThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldThere")
    }
}

impl HostPair {
    fn here(&self) -> ThisHost {
        ThisHost { node: self.near.clone() }
    }

    /// The host of a change, where it is not this one.
    fn host(&self, change: &LabChange) -> Result<Option<&str>> {
        self.elsewhere(&change.node).map_err(|problem| problem.at(&change.text))
    }
}

/// Asks another host to do something with the knobs of a change; the connection holds what it holds.
fn there(
    host: &str,
    change: &LabChange,
    action: TuneAction,
    may_flap: bool,
) -> Result<(RemoteKnobs, Vec<KnobChange>)> {
    let mut knobs = remote::knobs(host)?;
    let asked = Tune { knobs: change.asks.iter().map(Ask::to_string).collect(), action, may_flap };
    let mut changes = knobs.tune(asked).map_err(|problem| problem.at(&change.text))?;
    changes.iter_mut().for_each(|change| change.namespace = Some(host.to_owned()));
    Ok((knobs, changes))
}

impl Tunable for HostPair {
    fn hold(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Box<dyn Holding>> {
        let Some(host) = self.host(change)? else {
            return self.here().hold(journals, change, may_flap);
        };
        let (knobs, _) = there(host, change, TuneAction::Hold, may_flap)?;
        Ok(Box::new(HeldThere(knobs)))
    }

    fn set(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Vec<KnobChange>> {
        let Some(host) = self.host(change)? else {
            return self.here().set(journals, change, may_flap);
        };
        Ok(there(host, change, TuneAction::Keep, may_flap)?.1)
    }

    fn compare(&self, change: &LabChange) -> Result<Vec<KnobChange>> {
        let Some(host) = self.host(change)? else { return self.here().compare(change) };
        Ok(there(host, change, TuneAction::Compare, true)?.1)
    }

    fn passing(&self) -> Result<Vec<(String, String)>> {
        self.here().passing()
    }
}

/// Knobs of this host that are changed for a controller at another one.
struct ForController {
    host: ThisHost,
    held: Vec<Changed>,
}

/// Begins to change knobs of this host for a controller; what is held is put back when this is dropped.
pub fn for_a_controller() -> Box<dyn Knobs> {
    Box::new(ForController { host: ThisHost { node: OWN.into() }, held: vec![] })
}

impl Knobs for ForController {
    fn tune(&mut self, asked: &Tune) -> Result<Vec<KnobChange>> {
        let asks = asked.knobs.iter().map(|knob| Ask::parse(knob, None)).collect::<Result<_>>()?;
        let change = LabChange { node: OWN.into(), asks, text: asked.knobs.join("+") };
        let journals = linux::undo::journals()?;
        match asked.action {
            TuneAction::Hold => {
                let differing = self.host.compare(&change)?;
                self.held.push(Changed::make(&journals, &self.host, &[change], asked.may_flap)?);
                Ok(differing)
            }
            TuneAction::Keep => self.host.set(&journals, &change, asked.may_flap),
            TuneAction::Compare => self.host.compare(&change),
        }
    }

    fn put_back(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held).into_iter().rev();
        let all: Vec<Result<()>> = held.map(|changed| changed.put_back(&self.host)).collect();
        all.into_iter().collect()
    }
}

impl Drop for ForController {
    fn drop(&mut self) {
        // What cannot be put back has its journal, and 'pathlab tune undo' says so.
        let _ = self.put_back();
    }
}
