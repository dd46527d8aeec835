//! Taking an interface down, and up again.
//!
//! **What.** [`take`] clears `IFF_UP`; what would undo it is in an undo journal by then ([`crate::journal`]). [`Change::put_back`] sets it again, and so does
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

use super::{Change, Step, at_interface};
use crate::journal::Door;
use crate::netlink::Netlink;
use crate::sys::netns;

/// What the names of these journals begin with: [`Door::clean_some`] puts up what a process that was killed has left down.
pub const JOURNAL: &str = "port-down-";

/// Takes an interface of the calling thread's namespace down; none when it is down already.
///
/// # Errors
/// Host: the interface is not there, or this user may not.
pub fn take(door: &Door, interface: &str, index: u32) -> Result<Option<Change>> {
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
    let name = format!("{JOURNAL}{}-{inode}-{index}", std::process::id());
    let mut journal = door.begin(&name, false)?.ok_or_else(|| told("its journal is there already"))?;
    let step = Step::Down { netns: inode, index, name: link.name.clone() };
    if let Err(problem) = journal.will([step]) {
        let _ = journal.forget();
        return Err(problem);
    }
    match netlink.set_down(index) {
        Ok(()) => Ok(Some(journal.into())),
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

/// Puts an interface up, if it is still the one that was taken down.
pub(super) fn undo(inode: u64, index: u32, name: &str) -> io::Result<()> {
    at_interface(inode, index, name, |netlink, link| match link.up {
        true => Ok(()),
        false => netlink.set_up(index).map_err(|refusal| io::Error::other(refusal.to_string())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Entry;

    #[test]
    fn an_interface_goes_down_and_comes_up_with_its_guard() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: down: needs root (network namespaces)");
        };
        let temporary = tempfile::tempdir().unwrap();
        let steps = |entry: &Entry| entry.step::<Step>().ok().map(|step| Box::new(step) as _);
        let door = Door::at(&temporary.path().join("state"), steps).unwrap();
        netns::within(inside.as_fd(), || {
            let is_up = || Netlink::open().links().unwrap().iter().any(|link| link.index == 1 && link.up);
            Netlink::open().set_up(1).unwrap();
            let guard = take(&door, "lo", 1).unwrap().expect("it was up");
            assert!(!is_up());
            assert!(take(&door, "lo", 1).unwrap().is_none(), "it is down already");
            drop(guard);
            assert!(is_up());
            take(&door, "lo", 1).unwrap().unwrap().put_back().unwrap();
            assert!(is_up());
            assert!(take(&door, "nobody", 99).is_err());
        })
        .unwrap();
    }
}
