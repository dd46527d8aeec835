//! Settings of interfaces that are changed for a while: time stamps, queues, up and down.
//!
//! **What.** [`stamps`], [`queues`] and [`down`] each change one thing; what was before is in a journal by then, and is put back by a
//! guard, or after a `kill -9` by the next command ([`Step`]).
//!
//! **Why one room.** All of them find the interface again in the same way: by the namespace's inode, and by number and name in it. Where
//! another interface has that number or name now, nothing is done.
//!
//! **Price.** A namespace that nobody can be found in any more is not searched for its interfaces.

pub mod down;
pub mod queues;
pub mod stamps;

use std::io;
use std::os::fd::AsFd;

use record::Result;
use serde::{Deserialize, Serialize};

use crate::journal::{self, Journal};
use crate::namespace;
use crate::netlink::{LinkState, Netlink};
use crate::sys::netns;
use crate::sys::packet::StampConfig;

/// A change that is put back when this is dropped.
#[derive(Debug)]
pub struct Change {
    journal: Option<Journal>,
}

impl From<Journal> for Change {
    fn from(journal: Journal) -> Change {
        Change { journal: Some(journal) }
    }
}

impl Change {
    /// Puts back what was before.
    ///
    /// # Errors
    /// A host problem when the kernel refuses; the journal is then kept.
    pub fn put_back(mut self) -> Result<()> {
        self.journal.take().map_or(Ok(()), Journal::undo)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // Who wants to hear of trouble calls `put_back`; the journal stays, and 'pathlab undo' says it again.
        let _ = self.journal.take().map_or(Ok(()), Journal::undo);
    }
}

/// Does something to the interface of that number and name in that namespace; nothing where there is none or another one now.
fn at_interface(
    inode: u64,
    index: u32,
    name: &str,
    put_back: impl FnOnce(&mut Netlink, &LinkState) -> io::Result<()> + Send,
) -> io::Result<()> {
    let Some(space) = namespace::find(inode) else { return Ok(()) };
    netns::within(space.as_fd(), || {
        let mut netlink = Netlink::open();
        let links = netlink.links().map_err(|refusal| io::Error::other(refusal.to_string()))?;
        let found = links.iter().find(|link| link.index == index && link.name == name);
        found.map_or(Ok(()), |link| put_back(&mut netlink, link))
    })?
}

/// A setting that can be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// An interface is told to stamp frames: tell it what it did before.
    Stamps {
        /// Inode of its namespace.
        netns: u64,
        /// Its number there.
        index: i32,
        /// Its name.
        name: String,
        /// What was set before.
        was: StampConfig,
        /// Which frames; a journal that does not say it is about those that come in.
        #[serde(default)]
        side: stamps::Side,
    },
    /// An interface gets queues (an HTB with the handle that is ours alone): take them away.
    Queues {
        /// Inode of its namespace.
        netns: u64,
        /// Its number there.
        index: u32,
        /// Its name.
        name: String,
    },
    /// An interface is taken down: put it up.
    Down {
        /// Inode of its namespace.
        netns: u64,
        /// Its number there.
        index: u32,
        /// Its name.
        name: String,
    },
}

impl journal::Step for Step {
    fn undo(&self) -> std::result::Result<(), String> {
        match self {
            Step::Stamps { netns, index, name, was, side } => stamps::undo(*netns, *index, name, *was, *side)
                .map_err(|error| format!("cannot put back the time stamps of {name}: {error}")),
            Step::Queues { netns, index, name } => queues::undo(*netns, *index, name)
                .map_err(|error| format!("cannot take away the queues of {name}: {error}")),
            Step::Down { netns, index, name } => {
                down::undo(*netns, *index, name).map_err(|error| format!("cannot put {name} up: {error}"))
            }
        }
    }

    /// Interfaces have their settings from the boot on.
    fn outlives_boot(&self) -> bool {
        false
    }
}
