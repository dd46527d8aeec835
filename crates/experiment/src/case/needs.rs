//! What a case may need that not every kernel has, and whether it is here.
//!
//! **What.** A row each: its name in a case, how it is looked for, and what helps. It is looked for in a lab of two nodes that is built for this and goes
//! again: kinds of interfaces by asking the kernel for one, settings by reading them.

use crate::notices::{Notices, down};
use linux::lab::{Lab, Lifetime, Topology};
use linux::netlink::Netlink;
use linux::sys::netns;
use record::Result;
use record::case::CaseHosts;
use std::os::fd::AsFd;

/// Something that a case needs.
#[derive(Debug)]
pub struct Need {
    /// Its name in a case.
    pub name: &'static str,
    /// What is missing, in words; none when it is here. It runs in the namespace of a node with an interface `eth0`.
    lacking: fn() -> Option<String>,
    /// The same of two hosts; none where only setting it tells.
    pub(super) lacking_between: fn(&CaseHosts) -> Option<String>,
    /// It is built with the topology.
    pub(super) is_built: bool,
    /// What helps.
    pub(super) helps: &'static str,
}

/// All of them.
pub const NEEDS: [Need; 4] = [
    Need {
        name: "bonding",
        lacking: || no_kind("bond", "CONFIG_BONDING"),
        lacking_between: |_| None,
        is_built: true,
        helps: "run it in a virtual machine with another kernel: 'pathlab vm case run …'",
    },
    Need {
        name: "vlan",
        lacking: || no_kind("vlan", "CONFIG_VLAN_8021Q"),
        lacking_between: |_| None,
        is_built: true,
        helps: "run it in a virtual machine with another kernel: 'pathlab vm case run …'",
    },
    Need {
        name: "coalescing",
        lacking: || no_knob("coalesce.rx-usecs", "a lab's interfaces (veth) have no interrupt to hold back"),
        lacking_between: |_| None,
        is_built: false,
        helps: "run it in a virtual machine, whose links are cards: 'pathlab vm case run …'",
    },
    Need {
        name: "two-cpus",
        lacking: one_cpu,
        lacking_between: |hosts| {
            let there = hosts.host.as_ref().filter(|host| host.cpus < 2);
            one_cpu().or(there.map(|_| format!("{} has only one CPU to pin to", hosts.name)))
        },
        is_built: false,
        helps: "run it where pathlab may use two CPUs",
    },
];

/// The one of that name.
pub fn named(name: &str) -> Option<&'static Need> {
    NEEDS.iter().find(|need| need.name == name)
}

fn no_kind(kind: &str, option: &str) -> Option<String> {
    let is_known = Netlink::open().knows_kind(kind);
    (!is_known).then(|| format!("this kernel has no interfaces of the kind '{kind}' ({option})"))
}

fn one_cpu() -> Option<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus < 2).then(|| "there is only one CPU to pin to".into())
}

fn no_knob(name: &str, why: &str) -> Option<String> {
    linux::tune::read(name, Some("eth0")).err().map(|_| why.to_owned())
}

/// The place in which is looked.
pub struct NeedsLab(Lab);

impl NeedsLab {
    /// Builds it.
    ///
    /// # Errors
    /// Host: a lab cannot be built here.
    pub fn build() -> Result<NeedsLab> {
        let name = format!("needs-{}", std::process::id());
        let lab = Lab::up(&linux::undo::journals()?, &Topology::load("pair")?, &name, Lifetime::Ephemeral)?;
        Ok(NeedsLab(lab))
    }

    /// Why a case with these needs cannot be run here, and what helps; none when it can.
    ///
    /// # Errors
    /// Host: the node cannot be entered.
    pub fn lacking(&self, needs: &[&'static Need]) -> Result<Option<String>> {
        let look = || {
            let missing = needs.iter().find_map(|need| Some((need, (need.lacking)()?)));
            missing.map(|(need, what)| format!("{what}; {}", need.helps))
        };
        netns::within(self.0.node("a")?.netns().as_fd(), look)
            .map_err(|error| record::Problem::host(format!("cannot enter a node: {error}")))
    }

    /// Takes it away.
    pub fn leave(self, notices: &dyn Notices) {
        down(self.0, notices);
    }
}
