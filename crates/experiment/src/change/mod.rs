//! Changes of knobs in the nodes of a lab or at the ends of a test between hosts, for as long as one arm of a trial is measured, or for good.
//!
//! **What.** [`LabChange`] is a knob at one node, or several that are set together; whose nodes these are is [`Tunable`]. [`Changed`] holds several, each with its undo on disk
//! ([`linux::tune::kept::hold`]), and puts them back; [`during`] does so around some work; [`keep`] makes them stay.
//!
//! **Price.** Both arms of a trial are the same lab (or hosts), so every measurement of the other arm changes the knobs first. What a change leaves in its
//! wake (a link that comes up, a cache that is cold) is part of what it costs.

mod hosts;
mod links;

pub use hosts::for_a_controller;

use linux::journal::Journals;
use linux::lab::{Lab, Node};
use linux::sys::netns;
use linux::tune::kept::{self, Ask, Held};
use record::knob::{ChangeState, KnobChange};
use record::{Problem, Result};
use std::fmt;
use std::os::fd::AsFd;

/// What has knobs that can be changed, by the names of its nodes: a lab, or two hosts.
pub trait Tunable {
    /// Sets the knobs of a change until they are put back, each with its undo on disk.
    ///
    /// # Errors
    /// Input: no such node, knob or value. Host: the kernel refuses one. All is then as it was.
    fn hold(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Box<dyn Holding>>;

    /// Sets them until 'pathlab tune undo'.
    ///
    /// # Errors
    /// As [`Tunable::hold`].
    fn set(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Vec<KnobChange>>;

    /// Those that are something else now.
    ///
    /// # Errors
    /// As [`Tunable::hold`].
    fn compare(&self, change: &LabChange) -> Result<Vec<KnobChange>>;

    /// The links that pass traffic, with their nodes.
    ///
    /// # Errors
    /// Host: they cannot be listed.
    fn passing(&self) -> Result<Vec<(String, String)>>;
}

/// Knobs that are set until they are put back, or this is dropped.
pub trait Holding: fmt::Debug {
    /// Puts back what was before.
    ///
    /// # Errors
    /// Host: it cannot be put back, and its journal stays; or somebody else has set it since, and what was measured is not known; or what it
    /// is of is gone, or has another name.
    fn put_back(self: Box<Self>) -> Result<()>;
}

impl Holding for Held {
    fn put_back(self: Box<Self>) -> Result<()> {
        let changes = Held::put_back(*self)?;
        changes.iter().find_map(left).map_or(Ok(()), Err)
    }
}

/// Why a change was not put back.
fn left(change: &KnobChange) -> Option<Problem> {
    let of = change.interface.as_ref().map_or(String::new(), |interface| format!("{interface}:"));
    let (name, was, set) = (&change.name, &change.was, &change.set);
    let again = "let nobody change it while it is measured, and measure again";
    match change.state {
        ChangeState::Foreign => {
            let now = change.now.as_deref().unwrap_or_default();
            let what =
                format!("{of}{name} is {now}: somebody else has set it since it was {set}; it is left so");
            Some(Problem::host(what).help(again))
        }
        ChangeState::Gone => {
            let what = format!(
                "{of}{name} was set to {set} and is not put back to {was}: it is gone, or what it is of has another name now"
            );
            Some(Problem::host(what).help(again))
        }
        _ => None,
    }
}

impl Tunable for Lab {
    fn hold(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Box<dyn Holding>> {
        let (held, _) = inside(self.node(&change.node)?, change, |namespace| {
            kept::hold(journals, namespace, &change.asks, may_flap)
        })?;
        Ok(Box::new(held))
    }

    fn set(&self, journals: &Journals, change: &LabChange, may_flap: bool) -> Result<Vec<KnobChange>> {
        inside(self.node(&change.node)?, change, |namespace| {
            kept::set(journals, namespace, &change.asks, may_flap)
        })
    }

    fn compare(&self, change: &LabChange) -> Result<Vec<KnobChange>> {
        inside(self.node(&change.node)?, change, |namespace| kept::compare(namespace, &change.asks))
    }

    fn passing(&self) -> Result<Vec<(String, String)>> {
        let mut all = vec![];
        for node in self.nodes() {
            let links = node.links()?.into_iter().filter(|link| link.carrier && link.operational);
            all.extend(links.map(|link| (node.name().to_owned(), link.name)));
        }
        Ok(all)
    }
}

/// A knob at a node, or several that are one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabChange {
    /// The node.
    pub node: String,
    /// The knobs, and what to set them to; at least one.
    pub asks: Vec<Ask>,
    /// As it was written.
    pub text: String,
}

impl LabChange {
    /// Reads `NODE/NAME=VALUE` or `NODE/IF:NAME=VALUE`; what follows a `+` is another knob of the node.
    ///
    /// # Errors
    /// Input: it is none.
    pub fn parse(text: &str) -> Result<LabChange> {
        let parts = text.split_once('/').filter(|(node, _)| !node.is_empty());
        let (node, rest) = parts.ok_or_else(|| no_change(text))?;
        let ask = |knob: &String| Ask::parse(knob, None).map_err(|problem| problem.at(text));
        let asks = knobs(rest).iter().map(ask).collect::<Result<_>>()?;
        Ok(LabChange { node: node.into(), asks, text: text.into() })
    }

    /// One of its knobs is a knob of the other, too.
    pub fn shares_a_knob(&self, other: &LabChange) -> bool {
        let is_of_other = |ask: &Ask| {
            other.asks.iter().any(|one| (&one.interface, &one.name) == (&ask.interface, &ask.name))
        };
        self.node == other.node && self.asks.iter().any(is_of_other)
    }
}

/// The knobs of a change as they are written; a `+` in a value, behind which there is no `=`, is part of it.
fn knobs(text: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for part in text.split('+') {
        match all.last_mut().filter(|_| !part.contains('=')) {
            Some(before) => *before = format!("{before}+{part}"),
            None => all.push(part.to_owned()),
        }
    }
    all
}

fn no_change(text: &str) -> Problem {
    Problem::input(format!("'{text}' is no change")).help(
        "NODE/NAME=VALUE or NODE/IF:NAME=VALUE, as in a/eth0:mtu=9000 or b/net.ipv4.tcp_window_scaling=0",
    )
}

/// What has knobs, and what they are to be set to.
pub type Settings<'a> = (&'a dyn Tunable, &'a [LabChange]);

/// Changes that are in place.
#[derive(Debug, Default)]
pub struct Changed(Vec<Box<dyn Holding>>);

impl Changed {
    /// Makes them, in this order; all or none. Links that go down with one are back at the end.
    ///
    /// # Errors
    /// Input: no such node, knob or value. Host: the kernel refuses, or a link stays down.
    pub fn make(
        journals: &Journals,
        place: &dyn Tunable,
        changes: &[LabChange],
        may_flap: bool,
    ) -> Result<Changed> {
        if changes.is_empty() {
            return Ok(Changed::default());
        }
        let hold = |change: &LabChange| place.hold(journals, change, may_flap);
        links::back_after(place, || Ok(Changed(changes.iter().map(hold).collect::<Result<_>>()?)))
    }

    /// Puts all back where they were made, the last first.
    ///
    /// # Errors
    /// Host: one cannot be put back, and its journal stays; or a link stays down.
    pub fn put_back(self, place: &dyn Tunable) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        links::back_after(place, || {
            let all: Vec<Result<()>> = self.0.into_iter().rev().map(Holding::put_back).collect();
            all.into_iter().collect()
        })
    }
}

/// Does something while labs or hosts are set like this, and puts all back.
///
/// # Errors
/// As the work, [`Changed::make`] and [`Changed::put_back`].
pub fn during<T>(places: &[Settings<'_>], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut held = vec![];
    for (place, settings) in places.iter().filter(|(_, settings)| !settings.is_empty()) {
        held.push((place, Changed::make(&linux::undo::journals()?, *place, settings, true)?));
    }
    let done = work();
    let back: Vec<Result<()>> =
        held.into_iter().rev().map(|(place, changed)| changed.put_back(*place)).collect();
    let done = done?;
    back.into_iter().collect::<Result<()>>()?;
    Ok(done)
}

/// Makes changes that stay until 'pathlab tune undo'.
///
/// # Errors
/// As [`Changed::make`].
pub fn keep(
    journals: &Journals,
    place: &dyn Tunable,
    changes: &[LabChange],
    may_flap: bool,
) -> Result<Vec<KnobChange>> {
    let mut made = vec![];
    for change in changes {
        made.extend(place.set(journals, change, may_flap)?);
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

    /// An interface that was renamed kept what a trial had set, and nobody said so.
    #[test]
    fn what_is_not_put_back_is_a_problem_whatever_the_reason() {
        let told = |state: ChangeState, now: Option<&str>| {
            let change = KnobChange {
                name: "txqueuelen".into(),
                interface: Some("c0".into()),
                namespace: Some("host".into()),
                was: "1000".into(),
                wanted: "500".into(),
                set: "500".into(),
                now: now.map(Into::into),
                state,
            };
            left(&change).map(|problem| problem.to_string()).unwrap_or_default()
        };
        assert!(
            told(ChangeState::Gone, None)
                .starts_with("c0:txqueuelen was set to 500 and is not put back to 1000")
        );
        assert!(told(ChangeState::Foreign, Some("33")).starts_with("c0:txqueuelen is 33: somebody else"));
        assert_eq!(told(ChangeState::Undone, Some("1000")), "");
    }

    #[test]
    fn a_change_names_its_node() {
        let change = LabChange::parse("a/eth0:mtu=9000").unwrap();
        assert_eq!((change.node.as_str(), change.asks[0].interface.as_deref()), ("a", Some("eth0")));
        assert_eq!((change.asks[0].name.as_str(), change.asks[0].value.as_str()), ("mtu", "9000"));
        let sysctl = LabChange::parse("b/net.ipv4.tcp_congestion_control=reno").unwrap();
        assert_eq!(sysctl.asks[0].name, "sysctl net.ipv4.tcp_congestion_control");
        let two = LabChange::parse("a/eth0:coalesce.adaptive-rx=off+eth0:coalesce.rx-usecs=0").unwrap();
        let both = two.asks.iter().map(|ask| (ask.name.as_str(), ask.value.as_str())).collect::<Vec<_>>();
        assert_eq!(both, [("coalesce.adaptive-rx", "off"), ("coalesce.rx-usecs", "0")]);
        assert_eq!(LabChange::parse("a/eth0:qdisc=x+y").unwrap().asks[0].value, "x+y");
        for text in ["eth0:mtu=9000", "/mtu=1", "a/mtu", "a/=1"] {
            assert!(LabChange::parse(text).is_err(), "{text}");
        }
        let refused = LabChange::parse("b/eth0:nosuch=1").unwrap_err().to_string();
        assert!(refused.starts_with("b/eth0:nosuch=1: there is no knob 'nosuch'"), "{refused}");
    }
}
