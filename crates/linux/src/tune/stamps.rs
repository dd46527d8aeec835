//! Switching on the hardware time stamps of an interface, and back.
//!
//! **What.** [`switch_on`] asks the driver to stamp every frame that comes in, or every frame that goes out
//! (`SIOCSHWTSTAMP` with `HWTSTAMP_FILTER_ALL` or `HWTSTAMP_TX_ON`); what was set before is in an undo journal by then ([`crate::journal`]) and is put back by
//! [`Stamping::put_back`], when the guard is dropped, or after a `kill -9` by the next command that asks for stamps, by
//! `pathlab lab` or by `pathlab undo`.
//!
//! **Why.** Asking a socket for hardware stamps changes nothing in the interface: without this call a card that could
//! stamp delivers none. But the setting belongs to the whole interface (ptp4l may have set it), so it is changed as
//! little as possible: only one [`Side`], and an interface that stamps all its frames already is left alone. Where
//! somebody else has changed the other side meanwhile, the interface is theirs now and nothing is put back.
//!
//! **Price.** Tried with a fake alone: no interface with a clock was at hand (veth, tap and loopback refuse with
//! `EOPNOTSUPP`). A namespace that nobody can be found in any more is not searched for its interfaces.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use record::{Problem, Result};

use super::{Change, Step, at_interface};
use crate::journal::Door;
use crate::sys::netns;
use crate::sys::packet::{self, StampConfig};

/// `HWTSTAMP_FILTER_ALL` of linux/net_tstamp.h.
const ALL: i32 = 1;
/// `HWTSTAMP_TX_OFF` of linux/net_tstamp.h; everything else stamps what is sent.
const OFF: i32 = 0;
/// `HWTSTAMP_TX_ON` of linux/net_tstamp.h.
const ON: i32 = 1;

/// Which frames are stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Those that come in.
    #[default]
    Receive,
    /// Those that go out.
    Transmit,
}

impl Side {
    fn words(self) -> &'static str {
        match self {
            Side::Receive => "that come in",
            Side::Transmit => "that go out",
        }
    }

    /// Whether the interface stamps all of these already.
    fn is_on(self, config: StampConfig) -> bool {
        match self {
            Side::Receive => config.receive == ALL,
            Side::Transmit => config.transmit != OFF,
        }
    }

    /// The same with the stamps on.
    fn on(self, was: StampConfig) -> StampConfig {
        match self {
            Side::Receive => StampConfig { receive: ALL, ..was },
            Side::Transmit => StampConfig { transmit: ON, ..was },
        }
    }

    /// What belongs to others.
    fn other(self, config: StampConfig) -> i32 {
        match self {
            Side::Receive => config.transmit,
            Side::Transmit => config.receive,
        }
    }
}

/// Something whose stamps can be switched: a card, or a test's.
trait Switch {
    fn get(&mut self) -> io::Result<StampConfig>;
    /// What took effect.
    fn set(&mut self, config: StampConfig) -> io::Result<StampConfig>;
}

/// An interface of the namespace of a socket.
struct Card<'a> {
    socket: OwnedFd,
    name: &'a str,
}

impl Switch for Card<'_> {
    fn get(&mut self) -> io::Result<StampConfig> {
        packet::stamp_config(&self.socket, self.name)
    }

    fn set(&mut self, config: StampConfig) -> io::Result<StampConfig> {
        packet::set_stamp_config(&self.socket, self.name, config)
    }
}

/// Stamps that are on; switched back when this is dropped.
#[derive(Debug)]
pub struct Stamping {
    /// None: they were on before, and stay on.
    change: Option<Change>,
    /// What was done, for people.
    pub said: String,
}

impl Stamping {
    /// Puts back what was set before.
    ///
    /// # Errors
    /// A host problem when the kernel refuses; the journal is then kept.
    pub fn put_back(self) -> Result<()> {
        self.change.map_or(Ok(()), Change::put_back)
    }
}

/// Switches stamps on, for an interface of the namespace of the calling thread.
///
/// # Errors
/// Input: no such interface. Host: it cannot stamp, or may not be changed; it is then as it was.
pub fn switch_on(door: &Door, interface: &str, side: Side) -> Result<Stamping> {
    let told = |error: io::Error| Problem::host(format!("cannot ask about stamps: {error}")).at(interface);
    let socket = packet::open().map_err(told)?;
    let facts = packet::interface_named(&socket, interface).map_err(told)?;
    let inode = netns::current().and_then(|netns| netns::inode(netns.as_fd())).map_err(told)?;
    let undo = |was| Step::Stamps { netns: inode, index: facts.index, name: interface.to_owned(), was, side };
    on(&mut Card { socket, name: interface }, interface, side, door, undo)
}

fn on(
    card: &mut dyn Switch,
    name: &str,
    side: Side,
    door: &Door,
    undo: impl Fn(StampConfig) -> Step,
) -> Result<Stamping> {
    let was = card.get().map_err(|error| refused(name, side, &error))?;
    let which = side.words();
    if side.is_on(was) {
        let said = format!("{name} stamps all frames {which} already, and was left as it is");
        return Ok(Stamping { change: None, said });
    }
    let journal = door.begin(&format!("stamps-{name}-{}", std::process::id()), false)?;
    let mut journal = journal
        .ok_or_else(|| Problem::host("this process is switching its stamps already").at(name.to_owned()))?;
    journal.will([undo(was)])?;
    match card.set(side.on(was)) {
        Ok(now) => {
            let all = if side.is_on(now) { "all frames" } else { "only some frames" };
            let filter = if side.is_on(now) { String::new() } else { format!(" (filter {})", now.receive) };
            let said = format!("{name} stamps {all} {which}{filter}; it is put back at the end");
            Ok(Stamping { change: Some(journal.into()), said })
        }
        Err(error) => {
            // Nothing was changed, so there is nothing to be undone but the journal itself.
            journal.forget()?;
            Err(refused(name, side, &error))
        }
    }
}

fn refused(name: &str, side: Side, error: &io::Error) -> Problem {
    let problem = match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Problem::host("the interface has no hardware stamps to be switched on"),
        Some(libc::ERANGE) => {
            Problem::host(format!("the interface cannot stamp all frames {}, only some kinds", side.words()))
        }
        Some(libc::EPERM) => Problem::host("hardware stamps may not be switched on")
            .help("it needs CAP_NET_ADMIN (run as root)"),
        _ => Problem::host(format!("hardware stamps cannot be switched on: {error}")),
    };
    problem.at(name.to_owned())
}

/// Undoes [`switch_on`] for the interface of that number and name in that namespace; where it is not there any more, or
/// is another one, nothing is done.
pub(super) fn undo(inode: u64, index: i32, name: &str, was: StampConfig, side: Side) -> io::Result<()> {
    at_interface(inode, index.unsigned_abs(), name, |_, _| {
        let socket = packet::open()?;
        put_back(&mut Card { socket, name }, was, side)
    })
}

fn put_back(card: &mut dyn Switch, was: StampConfig, side: Side) -> io::Result<()> {
    let now = match card.get() {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
        other => other?,
    };
    // The other side is never changed here: if it is another, somebody else has set up the interface since.
    if now == was || side.other(now) != side.other(was) {
        return Ok(());
    }
    card.set(was).map(drop)
}

#[cfg(test)]
#[path = "stamps_tests.rs"]
mod tests;
