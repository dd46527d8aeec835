//! Taking an interface down, and up again.
//!
//! **What.** [`take`] clears `IFF_UP`; what would undo it is in an undo journal by then ([`crate::undo`]). [`Down::put_up`] sets it again, and so does
//! the end of the guard, or after a `kill -9` the next command that looks into the journals, or `pathlab undo`.
//!
//! **Why.** A controller that closes a port means the cable: what is at the other end shall see that the carrier is gone. But the interface is the
//! host's, and whoever started a switch does not expect it to be down when the switch has ended.
//!
//! **Price.** One journal for each interface, so that each is put back alone. The kernel takes the routes of an interface away when it goes down; they
//! do not come back with it.

use std::io;
use std::os::fd::AsFd;

use record::{Problem, Result};

use crate::lab::link::Netlink;
use crate::stamping::namespace;
use crate::sys::netns;
use crate::undo::{Journal, StateDir, Step};

/// What the names of these journals begin with.
const JOURNAL: &str = "port-down-";

/// An interface that was taken down; it is put up when this is dropped.
#[derive(Debug)]
pub struct Down {
    journal: Option<Journal>,
}

impl Down {
    /// Puts it up.
    ///
    /// # Errors
    /// A host problem when the kernel refuses; the journal is then kept.
    pub fn put_up(mut self) -> Result<()> {
        self.journal.take().map_or(Ok(()), Journal::undo)
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        // Who wants to hear of trouble calls `put_up`; the journal stays, and 'pathlab undo' says it again.
        let _ = self.journal.take().map_or(Ok(()), Journal::undo);
    }
}

/// Takes an interface of the calling thread's namespace down; none when it is down already.
///
/// # Errors
/// Host: the interface is not there, or this user may not.
pub fn take(interface: &str, index: u32) -> Result<Option<Down>> {
    let told =
        |what: &str| Problem::host(format!("it cannot be taken down: {what}")).at(interface.to_owned());
    let mut netlink = Netlink::open();
    let links = netlink.links().map_err(|refusal| told(&refusal.to_string()))?;
    let link = links.iter().find(|link| link.index == index).ok_or_else(|| told("it is gone"))?;
    if !link.up {
        return Ok(None);
    }
    let inode = netns::current().and_then(|netns| netns::inode(netns.as_fd()));
    let inode = inode.map_err(|e| told(&e.to_string()))?;
    let state = StateDir::open()?;
    let name = format!("{JOURNAL}{}-{inode}-{index}", std::process::id());
    let mut journal =
        Journal::begin(&state, &name, false)?.ok_or_else(|| told("its journal is there already"))?;
    let step = Step::Down { netns: inode, index, name: link.name.clone() };
    if let Err(problem) = journal.will([step]) {
        let _ = journal.forget();
        return Err(problem);
    }
    match netlink.set_down(index) {
        Ok(()) => Ok(Some(Down { journal: Some(journal) })),
        Err(refusal) => {
            let _ = journal.forget();
            let problem = told(&refusal.to_string());
            Err(if refusal.errno == Some(libc::EPERM) {
                problem.help("it needs CAP_NET_ADMIN (run as root)")
            } else {
                problem
            })
        }
    }
}

/// Puts up what a process that was killed has left down.
///
/// # Errors
/// A host problem when the kernel refuses; the journal is then kept.
pub fn clean() -> Result<()> {
    // Where no directory can be made, nothing was left.
    let Ok(state) = StateDir::open() else { return Ok(()) };
    let names = state.names().into_iter().filter(|name| name.starts_with(JOURNAL));
    let mut stale = names.filter(|name| state.read(name).ok().flatten().is_some_and(|record| record.stale()));
    stale.try_for_each(|name| state.undo(&name))
}

/// Puts an interface up, if it is still the one that was taken down.
pub(crate) fn undo(inode: u64, index: u32, name: &str) -> io::Result<()> {
    let Some(space) = namespace(inode) else { return Ok(()) };
    netns::within(space.as_fd(), || {
        let mut netlink = Netlink::open();
        let other = |refusal: crate::lab::link::Refusal| io::Error::other(refusal.to_string());
        let links = netlink.links().map_err(other)?;
        match links.iter().find(|link| link.index == index && link.name == name) {
            Some(link) if !link.up => netlink.set_up(index).map_err(other),
            _ => Ok(()),
        }
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_goes_down_and_comes_up_with_its_guard() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: down: needs root (network namespaces)");
        };
        netns::within(inside.as_fd(), || {
            let is_up = || Netlink::open().links().unwrap().iter().any(|link| link.index == 1 && link.up);
            Netlink::open().set_up(1).unwrap();
            let guard = take("lo", 1).unwrap().expect("it was up");
            assert!(!is_up());
            assert!(take("lo", 1).unwrap().is_none(), "it is down already");
            drop(guard);
            assert!(is_up());
            take("lo", 1).unwrap().unwrap().put_up().unwrap();
            assert!(is_up());
            assert!(take("nobody", 99).is_err());
        })
        .unwrap();
    }
}
