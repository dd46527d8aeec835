//! Changes of knobs in the nodes of a lab, for as long as one arm of a trial is measured, or for good.
//!
//! **What.** [`LabChange`] is one knob at one node. [`Changed`] holds several, each with its undo on disk ([`linux::tune::kept::hold`]), and puts
//! them back; [`keep`] makes them stay.
//!
//! **Price.** Both arms of a trial are the same lab, so every measurement of the other arm changes the knobs first. What a change leaves in its
//! wake (a link that comes up, a cache that is cold) is part of what it costs.

pub mod search;
pub mod suspects;
pub mod usual;

use crate::trial::TrialSide;
use linux::journal::Journals;
use linux::lab::{Lab, Node};
use linux::sys::netns;
use linux::tune::kept::{self, Ask, Held};
use record::knob::KnobChange;
use record::{Problem, Result};
use std::os::fd::AsFd;

/// A knob at a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabChange {
    /// The node.
    pub node: String,
    /// The knob, and what to set it to.
    pub ask: Ask,
    /// As it was written.
    pub text: String,
}

impl LabChange {
    /// Reads `NODE/NAME=VALUE` or `NODE/IF:NAME=VALUE`.
    ///
    /// # Errors
    /// Input: it is none.
    pub fn parse(text: &str) -> Result<LabChange> {
        let parts = text.split_once('/').filter(|(node, _)| !node.is_empty());
        let (node, rest) = parts.ok_or_else(|| no_change(text))?;
        let ask = Ask::parse(rest, None)?;
        Ok(LabChange { node: node.into(), ask, text: text.into() })
    }
}

fn no_change(text: &str) -> Problem {
    Problem::input(format!("'{text}' is no change")).help(
        "NODE/NAME=VALUE or NODE/IF:NAME=VALUE, as in a/eth0:mtu=9000 or b/net.ipv4.tcp_window_scaling=0",
    )
}

/// Changes that are in place.
#[derive(Debug, Default)]
pub struct Changed(Vec<Held>);

impl Changed {
    /// Makes them, in this order; all or none.
    ///
    /// # Errors
    /// Input: no such node, knob or value. Host: the kernel refuses.
    pub fn make(journals: &Journals, lab: &Lab, changes: &[LabChange], may_flap: bool) -> Result<Changed> {
        let hold = |change: &LabChange| {
            let asks = std::slice::from_ref(&change.ask);
            let (held, _) = inside(lab.node(&change.node)?, change, |namespace| {
                kept::hold(journals, namespace, asks, may_flap)
            })?;
            Ok(held)
        };
        Ok(Changed(changes.iter().map(hold).collect::<Result<_>>()?))
    }

    /// Puts all back, the last first.
    ///
    /// # Errors
    /// Host: one cannot be put back; its journal stays.
    pub fn put_back(self) -> Result<()> {
        let all: Vec<Result<()>> = self.0.into_iter().rev().map(Held::put_back).collect();
        all.into_iter().collect()
    }
}

/// The changes that arm B of a trial has and arm A has not: made before B is measured, put back before A is.
#[derive(Debug)]
pub struct ChangedArm<'a> {
    journals: &'a Journals,
    lab: &'a Lab,
    changes: &'a [LabChange],
    may_flap: bool,
    held: Option<Changed>,
}

impl<'a> ChangedArm<'a> {
    /// Nothing is changed yet.
    pub fn new(journals: &'a Journals, lab: &'a Lab, changes: &'a [LabChange], may_flap: bool) -> Self {
        ChangedArm { journals, lab, changes, may_flap, held: None }
    }

    /// Makes the lab what that arm needs; what it is already stays.
    ///
    /// # Errors
    /// As [`Changed::make`] and [`Changed::put_back`].
    pub fn enter(&mut self, side: TrialSide) -> Result<()> {
        match (side, self.held.take()) {
            (TrialSide::B, None) => {
                self.held = Some(Changed::make(self.journals, self.lab, self.changes, self.may_flap)?);
            }
            (TrialSide::A, Some(changed)) => changed.put_back()?,
            (_, as_before) => self.held = as_before,
        }
        Ok(())
    }
}

/// Makes changes that stay until 'pathlab tune undo'.
///
/// # Errors
/// As [`Changed::make`].
pub fn keep(
    journals: &Journals,
    lab: &Lab,
    changes: &[LabChange],
    may_flap: bool,
) -> Result<Vec<KnobChange>> {
    let mut made = vec![];
    for change in changes {
        let asks = std::slice::from_ref(&change.ask);
        made.extend(inside(lab.node(&change.node)?, change, |namespace| {
            kept::set(journals, namespace, asks, may_flap)
        })?);
    }
    Ok(made)
}

/// Does something in the namespace of a node, with the namespace's name.
fn inside<T: Send>(
    node: &Node,
    change: &LabChange,
    work: impl FnOnce(&str) -> Result<T> + Send,
) -> Result<T> {
    let done = netns::within(node.netns().as_fd(), || work(node.name()));
    done.map_err(|error| not_entered(node, &error))?.map_err(|problem| located(problem, change))
}

fn not_entered(node: &Node, error: &std::io::Error) -> Problem {
    Problem::host(format!("cannot enter the namespace of node {}: {error}", node.name()))
}

/// A problem that says for which change it is.
fn located(problem: Problem, change: &LabChange) -> Problem {
    if problem.place.is_empty() { problem.at(change.text.clone()) } else { problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_its_node() {
        let change = LabChange::parse("a/eth0:mtu=9000").unwrap();
        assert_eq!((change.node.as_str(), change.ask.interface.as_deref()), ("a", Some("eth0")));
        assert_eq!((change.ask.name.as_str(), change.ask.value.as_str()), ("mtu", "9000"));
        let sysctl = LabChange::parse("b/net.ipv4.tcp_congestion_control=reno").unwrap();
        assert_eq!(sysctl.ask.name, "sysctl net.ipv4.tcp_congestion_control");
        for text in ["eth0:mtu=9000", "/mtu=1", "a/mtu", "a/=1"] {
            assert!(LabChange::parse(text).is_err(), "{text}");
        }
    }
}
