//! Taking an interface down, and up again.
//!
//! **What.** [`take`] clears `IFF_UP`; what would undo it is in an undo journal by then ([`crate::journal`]). [`Taken::put_back`] sets it again, and so does
//! the end of the guard, or after a `kill -9` the next command that looks into the journals, or `pathlab undo`.
//!
//! **Why.** A controller that closes a port means the cable: what is at the other end shall see that the carrier is gone. But the interface is the
//! host's, and whoever started a switch does not expect it to be down when the switch has ended.
//!
//! **Price.** One journal for each interface, so that each is put back alone. The kernel takes the routes of an interface away when it goes down; they
//! do not come back with it.

use record::{Problem, Result};

use super::row::{Row, for_a_while};
use super::{Change, Knob, Place, Wish, change, put_back, put_back_from};
use crate::journal::Journals;
use crate::netlink::{Answer, Netlink};

/// What the names of these journals begin with: [`Journals::clean_some`] puts up what a process that was killed has left down.
pub const JOURNAL: &str = "port-down-";

/// Whether an interface is up.
pub(super) const KNOB: Row = for_a_while(
    "up",
    "the interface is up (a controller may close the port of a switch)",
    "cannot put IF up",
    |at, was| put_back_from(Up(at.index), was),
);

/// The interface with that number.
struct Up(u32);

impl Knob for Up {
    type Value = bool;

    fn read(&mut self) -> Answer<bool> {
        Ok(Netlink::open().links()?.iter().any(|link| link.index == self.0 && link.up))
    }

    fn write(&mut self, up: bool) -> Answer {
        let mut netlink = Netlink::open();
        if up { netlink.set_up(self.0) } else { netlink.set_down(self.0) }
    }
}

/// An interface that was taken down. Who took it knows its number, and puts it up also when it has got another name, by which a journal would not know it.
#[derive(Debug)]
pub struct Taken {
    index: u32,
    change: Option<Change>,
}

impl Taken {
    /// Puts it up again, if it is in the namespace of the calling thread still.
    ///
    /// # Errors
    /// As [`Change::put_back`].
    pub fn put_back(mut self) -> Result<()> {
        self.put_up();
        self.change.take().map_or(Ok(()), Change::put_back)
    }

    /// What goes wrong here goes wrong with the journal, too, which tells it.
    fn put_up(&self) {
        let links = Netlink::open().links().unwrap_or_default();
        if links.iter().any(|link| link.index == self.index) {
            let _ = put_back(&mut Up(self.index), true);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.change.is_some() {
            self.put_up();
        }
    }
}

/// Takes an interface of the calling thread's namespace down; none when it is down already.
///
/// # Errors
/// Host: the interface is not there, or this user may not.
pub fn take(journals: &Journals, interface: &str, index: u32) -> Result<Option<Taken>> {
    let told =
        |what: &str| Problem::host(format!("it cannot be taken down: {what}")).at(interface.to_owned());
    let links = Netlink::open().links().map_err(|refusal| told(&refusal.to_string()))?;
    let link = links.iter().find(|link| link.index == index).ok_or_else(|| told("it is gone"))?;
    if !link.up {
        return Ok(None);
    }
    let at = Place::here(index, &link.name).map_err(|e| told(&e.to_string()))?;
    let name = format!("{JOURNAL}{}-{}-{index}", std::process::id(), at.netns);
    let journal = journals.begin(&name, false)?.ok_or_else(|| told("its journal is there already"))?;
    let wish = Wish { at, knob: Up(index), was: true, wanted: false };
    let taken = change(journal, &KNOB, &mut [wish], |_, refusal| {
        let problem = told(&refusal.to_string());
        match refusal.errno {
            Some(libc::EPERM) => problem.help("it needs CAP_NET_ADMIN (run as root)"),
            _ => problem,
        }
    });
    taken.map(|(change, _)| Some(Taken { index, change: Some(change) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netns;
    use crate::tune::TuneStep;
    use serde::Deserialize;
    use serde_json::Value;
    use std::os::fd::AsFd;

    #[test]
    fn an_interface_goes_down_and_comes_up_with_its_guard() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: down: needs root (network namespaces)");
        };
        let temporary = tempfile::tempdir().unwrap();
        let steps = |entry: &Value| TuneStep::deserialize(entry).ok().map(|step| Box::new(step) as _);
        let journals = Journals::at(&temporary.path().join("state"), steps).unwrap();
        netns::within(inside.as_fd(), || {
            let is_up = || Netlink::open().links().unwrap().iter().any(|link| link.index == 1 && link.up);
            Netlink::open().set_up(1).unwrap();
            let guard = take(&journals, "lo", 1).unwrap().expect("it was up");
            assert!(!is_up());
            assert!(take(&journals, "lo", 1).unwrap().is_none(), "it is down already");
            drop(guard);
            assert!(is_up());
            take(&journals, "lo", 1).unwrap().unwrap().put_back().unwrap();
            assert!(is_up());
            assert!(take(&journals, "nobody", 99).is_err());
            let taken = take(&journals, "lo", 1).unwrap().unwrap();
            let ip = std::process::Command::new("ip").args("link set lo name other".split(' ')).status();
            assert!(ip.unwrap().success());
            drop(taken);
            assert!(is_up(), "it is the same interface");
        })
        .unwrap();
    }
}
