//! What is known of the kinds of ports ([`PORT_KINDS`]), and what a port says of itself: what was asked of it, what took effect, where its frames were
//! lost.

use crate::drop;
use serde::{Deserialize, Serialize};

/// What the frames of a port go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// A packet socket of an interface: the kernel filters for it and shows it what the interface sends, and what it sends goes through
    /// the qdisc if it is not told otherwise.
    PacketSocket,
    /// The driver of an interface, past the qdisc.
    Driver,
    /// A tap: what the kernel sends there is what its reader receives.
    Tap,
    /// A file.
    File,
    /// Memory of this process.
    Memory,
    /// Another port, whose name follows.
    Port,
}

/// A kind of port: what is known before one is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortKind {
    /// What stands before the colon of a port's name.
    pub name: &'static str,
    /// What its frames go through.
    pub through: Through,
    /// Frames that it sends lie in pages of its own, not in the head of a socket buffer.
    pub in_pages: bool,
    /// It can be received from.
    pub receives: bool,
    /// Frames that it receives come as messages of `recvmmsg`.
    pub in_messages: bool,
    /// What it is, in one line.
    pub about: &'static str,
}

/// Every kind of port. Whatever else depends on the kind is a question to its row.
pub const PORT_KINDS: &[PortKind] = {
    const fn kind(name: &'static str, through: Through, about: &'static str) -> PortKind {
        PortKind { name, through, in_pages: false, receives: true, in_messages: false, about }
    }
    &[
        PortKind {
            in_messages: true,
            ..kind(
                "int",
                Through::PacketSocket,
                "an interface by a packet socket, one system call for a batch",
            )
        },
        PortKind {
            in_pages: true,
            ..kind("ring", Through::PacketSocket, "an interface by a ring that is shared with the kernel")
        },
        kind("xdp", Through::Driver, "an interface by AF_XDP"),
        kind("tap", Through::Tap, "a tap, which is made if it is not there"),
        kind("pcap", Through::File, "a capture file"),
        kind("mem", Through::Memory, "a wire inside this process"),
        kind("fault", Through::Port, "another port, with faults between"),
        PortKind { receives: false, ..kind("live", Through::Driver, "frames that the kernel itself makes") },
    ]
};

impl PortKind {
    /// The kind of that name.
    pub fn named(name: &str) -> Option<&'static PortKind> {
        PORT_KINDS.iter().find(|kind| kind.name == name)
    }

    /// The kind of a port by the port's whole name, `ring` of `ring:eth0?frames=512`; of faults that of the port inside.
    pub fn of(port: &str) -> Option<&'static PortKind> {
        let (name, rest) = port.split_once(':')?;
        let kind = Self::named(name)?;
        if kind.through == Through::Port { Self::of(rest) } else { Some(kind) }
    }

    /// The interface of a port by the port's whole name, `eth0` of `fault:ring:eth0?frames=512`; none where it has none.
    pub fn interface_of(port: &str) -> Option<&str> {
        let (name, rest) = port.split_once(':')?;
        match Self::named(name)? {
            kind if kind.through == Through::Port => Self::interface_of(rest),
            kind if kind.has_interface() => rest.split('?').next(),
            _ => None,
        }
    }

    /// It is an interface of the kernel that frames of others go through, too.
    pub fn has_interface(&self) -> bool {
        matches!(self.through, Through::PacketSocket | Through::Driver)
    }

    /// It can carry the frames of a link, both ways.
    pub fn carries_links(&self) -> bool {
        self.has_interface() && self.receives
    }

    /// The names of those kinds, in the order of the table.
    pub fn names(which: impl Fn(&PortKind) -> bool) -> Vec<&'static str> {
        PORT_KINDS.iter().filter(|kind| which(kind)).map(|kind| kind.name).collect()
    }
}

/// One setting of a port, read back after it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSetting {
    /// Its name, e.g. `buffer`, `block`, `mode`.
    pub name: String,
    /// What was asked for; empty when nothing was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// What took effect, with its unit.
    pub effective: String,
    /// What the reader should know about it; empty when there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Frames lost at one place for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceDrop {
    /// Where: `nic`, `kernel`, `ring`, `socket`, `queue`, `disk`, `port`.
    pub place: String,
    /// Why, e.g. `ring_full`, `buffer_full`, `oversize`, `link_down`.
    pub name: String,
    /// How many frames.
    pub count: u64,
}

impl PlaceDrop {
    /// So many frames lost at a place for a reason, one of [`crate::drop`] as a rule.
    pub fn new(place: &str, name: &str, count: u64) -> PlaceDrop {
        PlaceDrop { place: place.into(), name: name.into(), count }
    }

    /// Whether the kernel may have counted these frames below the port, too ([`drop::is_counted_below`]).
    pub fn is_counted_below(&self) -> bool {
        drop::is_counted_below(&self.name)
    }

    /// What a station calls it: `ring` and `ring_full` is `ring_full`; `socket` and `buffer_full` is `socket_buffer_full`.
    pub fn at_station(&self) -> String {
        if self.name.starts_with(&self.place) {
            self.name.clone()
        } else {
            format!("{}_{}", self.place, self.name)
        }
    }
}

/// Which time stamps an interface really delivers, by probing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampReport {
    /// The interface.
    pub interface: String,
    /// The source that was wanted: `software`, `hardware_raw`, `hardware_system`.
    pub wanted: String,
    /// True when a stamp of that source was seen on a frame.
    pub delivered: bool,
    /// What the driver says it can do; a claim, not a proof.
    pub claims: Vec<String>,
    /// Number of the interface's own clock (`/dev/ptpN`); none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_index: Option<u32>,
    /// What frames that came in carried: source and how many.
    pub receive: Vec<StampSeen>,
    /// What frames that were sent carried: step or source and how many.
    pub transmit: Vec<StampSeen>,
    /// Frames that were sent to find out.
    pub probes: u32,
    /// The clock of the stamps that were seen.
    pub clock: String,
    /// The greatest step that all stamps seen are multiples of, in nanoseconds; none without stamps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<u64>,
    /// What the reader should know: one sentence each.
    pub notes: Vec<String>,
}

/// How many stamps of one source were seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampSeen {
    /// `none`, `software`, `hardware_raw`, `hardware_system`; on the way out also `scheduled`.
    pub source: String,
    /// How many.
    pub count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_in_the_name_of_a_port() {
        let name = |port: &str| PortKind::of(port).map(|kind| kind.name);
        assert_eq!(name("ring:eth0?frames=512"), Some("ring"));
        assert_eq!(name("fault:fault:xdp:a0?lose=1%"), Some("xdp"));
        assert_eq!((name("eth0"), name("nothing:eth0"), name("fault:eth0")), (None, None, None));
        assert_eq!(PortKind::interface_of("ring:eth0?frames=512"), Some("eth0"));
        assert_eq!(PortKind::interface_of("fault:fault:xdp:a0?lose=1%"), Some("a0"));
        assert_eq!((PortKind::interface_of("eth0"), PortKind::interface_of("pcap:x.pcap")), (None, None));
    }

    #[test]
    fn kinds_have_names_of_their_own_and_facts_that_agree() {
        for (at, kind) in PORT_KINDS.iter().enumerate() {
            assert!(PORT_KINDS[..at].iter().all(|other| other.name != kind.name));
        }
        assert_eq!(PortKind::names(PortKind::carries_links), ["int", "ring", "xdp"]);
        assert_eq!(PortKind::names(PortKind::has_interface), ["int", "ring", "xdp", "live"]);
    }
}
