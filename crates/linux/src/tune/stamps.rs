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
use std::os::fd::OwnedFd;

use record::{Problem, Result};

use super::row::{Row, for_a_while};
use super::{Change, Knob, Place, Wish, change, put_back_from};
use crate::journal::Journals;
use crate::netlink::{Answer, Refusal};
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

/// Stamps of frames that come in.
pub(super) const RECEIVE: Row = for_a_while(
    "stamps_receive",
    "hardware timestamps of frames that come in (capture --timestamps hardware)",
    FAILED,
    |at, was| put_back_from(Stamps::open(&at.name, Side::Receive)?, was),
);

/// Stamps of frames that go out.
pub(super) const TRANSMIT: Row = for_a_while(
    "stamps_transmit",
    "hardware timestamps of frames that go out (send --timestamps hardware)",
    FAILED,
    |at, was| put_back_from(Stamps::open(&at.name, Side::Transmit)?, was),
);

const FAILED: &str = "cannot put back the time stamps of IF";

impl Side {
    /// Its setting.
    pub(super) fn row(self) -> &'static Row {
        match self {
            Side::Receive => &RECEIVE,
            Side::Transmit => &TRANSMIT,
        }
    }

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
trait Card {
    fn get(&mut self) -> io::Result<StampConfig>;
    fn set(&mut self, config: StampConfig) -> io::Result<()>;
}

/// An interface of the namespace of a socket.
struct Interface<'a> {
    socket: OwnedFd,
    name: &'a str,
}

impl Card for Interface<'_> {
    fn get(&mut self) -> io::Result<StampConfig> {
        packet::stamp_config(&self.socket, self.name)
    }

    fn set(&mut self, config: StampConfig) -> io::Result<()> {
        packet::set_stamp_config(&self.socket, self.name, config)
    }
}

/// The stamps of one side.
struct Stamps<C> {
    card: C,
    side: Side,
}

impl<'a> Stamps<Interface<'a>> {
    fn open(name: &'a str, side: Side) -> io::Result<Self> {
        Ok(Stamps { card: Interface { socket: packet::open()?, name }, side })
    }
}

impl<C: Card> Knob for Stamps<C> {
    type Value = StampConfig;

    fn read(&mut self) -> Answer<StampConfig> {
        Ok(self.card.get()?)
    }

    fn write(&mut self, config: StampConfig) -> Answer {
        Ok(self.card.set(config)?)
    }

    /// A driver may stamp more or less than it was asked for: it is said what.
    fn took(&self, _wanted: &StampConfig, _now: &StampConfig) -> bool {
        true
    }

    /// The other side is never changed here: if it is another, somebody else has set up the interface since.
    fn is_theirs(&self, was: &StampConfig, now: &StampConfig) -> bool {
        self.side.other(*now) != self.side.other(*was)
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
pub fn switch_on(journals: &Journals, interface: &str, side: Side) -> Result<Stamping> {
    let told = |error: io::Error| Problem::host(format!("cannot ask about stamps: {error}")).at(interface);
    let stamps = Stamps::open(interface, side).map_err(told)?;
    let facts = packet::interface_named(&stamps.card.socket, interface).map_err(told)?;
    let at = Place::here(facts.index.unsigned_abs(), interface).map_err(told)?;
    on(stamps, at, journals)
}

fn on<C: Card>(mut stamps: Stamps<C>, at: Place, journals: &Journals) -> Result<Stamping> {
    let (side, name) = (stamps.side, at.name.clone());
    let was = stamps.read().map_err(|refusal| refused(&name, side, &refusal))?;
    let which = side.words();
    if side.is_on(was) {
        let said = format!("{name} stamps all frames {which} already, and was left as it is");
        return Ok(Stamping { change: None, said });
    }
    let journal = journals.begin(&format!("stamps-{name}-{}", std::process::id()), false)?;
    let journal = journal
        .ok_or_else(|| Problem::host("this process is switching its stamps already").at(name.clone()))?;
    let wish = Wish { at, knob: stamps, was, wanted: side.on(was) };
    let (change, now) = change(journal, side.row(), &mut [wish], |_, refusal| refused(&name, side, refusal))?;
    let all = now.iter().all(|now| side.is_on(*now));
    let filter = now.iter().map(|now| format!(" (filter {})", now.receive));
    let filter: String = filter.filter(|_| !all).collect();
    let all = if all { "all frames" } else { "only some frames" };
    let said = format!("{name} stamps {all} {which}{filter}; it is put back at the end");
    Ok(Stamping { change: Some(change), said })
}

fn refused(name: &str, side: Side, error: &Refusal) -> Problem {
    let problem = match error.errno {
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

#[cfg(test)]
#[path = "stamps_tests.rs"]
mod tests;
