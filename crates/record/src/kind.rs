//! THE table of the kinds of traffic: what everybody must know of a kind who does not make its traffic.
//!
//! **What.** One row a kind: its name, what it carries and which way, what it takes and what it is when nobody says. The
//! plan, the checks, the ledger, the verdict and the tables for people ask the row; whoever opens sockets has a table of its
//! own beside it (`load::kind`).
//!
//! **Why.** One more kind is its own file and a row in either table. A place that names a kind would have to be found again.
//!
//! **Price.** What a row does not say is what most kinds are, so whoever adds one reads the usual row as well.

use crate::rate::Rate;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The kind of traffic between two nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficKind {
    /// Bulk bytes over TCP, one direction.
    #[default]
    TcpStream,
    /// Datagrams over UDP, one direction, at a rate or as fast as the sender can.
    UdpStream,
    /// One request, one response, over one TCP connection.
    TcpRr,
    /// One request, one response, over UDP.
    UdpRr,
    /// ICMP echo, flood (next request when the reply came, or after 10 ms) or paced.
    Ping,
    /// UDP datagrams as raw frames, one direction: sent and received by ports, past the sockets of both ends.
    Frames,
}

/// The protocol whose frames carry a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP, which repairs its losses and counts its bytes itself: no ledger.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echo: no ports.
    Icmp,
}

/// Which way messages go, and so what is counted and timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Bytes without borders, one way: the receiver counts them, nothing is timed.
    Bytes,
    /// Messages one way: the receiver counts and times them.
    OneWay,
    /// A request and its response: the sender counts and times the responses.
    RoundTrip,
}

/// What only some kinds take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// A size of the response.
    Response,
    /// Parallel connections.
    Streams,
    /// UDP's segmentation offloads.
    Segmentation,
}

/// What is true of a kind.
#[derive(Debug)]
pub struct KindFacts {
    /// The kind.
    pub kind: TrafficKind,
    /// The name on the command line, in plans and in JSON.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// What carries it.
    pub transport: Transport,
    /// Which way it goes.
    pub shape: Shape,
    /// Its frames leave and arrive by ports, past the sockets of both ends.
    pub by_port: bool,
    /// The kernel of the other end answers: there is no receiver.
    pub kernel_answers: bool,
    /// Payload of a message in bytes when nobody says, over IPv4 and over IPv6.
    pub sizes: [u32; 2],
    /// The rate that `pathlab test` asks for when nobody says; a plan asks for none.
    pub gentle_rate: Option<Rate>,
    /// What a test without a rate does, in words.
    pub unpaced: &'static str,
    /// What it takes that others do not.
    pub takes: &'static [Takes],
}

/// What is true of most kinds, and of each whose row says nothing else.
const USUAL: KindFacts = KindFacts {
    kind: TrafficKind::UdpStream,
    name: "",
    about: "",
    transport: Transport::Udp,
    shape: Shape::OneWay,
    by_port: false,
    kernel_answers: false,
    sizes: [64, 64],
    gentle_rate: None,
    unpaced: "as fast as possible",
    takes: &[],
};

/// The table, in the order of [`TrafficKind`].
pub const KINDS: &[KindFacts] = &[
    KindFacts {
        kind: TrafficKind::TcpStream,
        name: "tcp-stream",
        about: "bulk bytes over TCP, one direction",
        transport: Transport::Tcp,
        shape: Shape::Bytes,
        sizes: [0, 0],
        takes: &[Takes::Streams],
        ..USUAL
    },
    KindFacts {
        kind: TrafficKind::UdpStream,
        name: "udp-stream",
        about: "datagrams over UDP, one direction",
        takes: &[Takes::Segmentation],
        ..USUAL
    },
    KindFacts {
        kind: TrafficKind::TcpRr,
        name: "tcp-rr",
        about: "one request, one response, over one TCP connection",
        transport: Transport::Tcp,
        shape: Shape::RoundTrip,
        unpaced: "one at a time",
        takes: &[Takes::Response],
        ..USUAL
    },
    KindFacts {
        kind: TrafficKind::UdpRr,
        name: "udp-rr",
        about: "one request, one response, over UDP",
        shape: Shape::RoundTrip,
        unpaced: "one at a time",
        takes: &[Takes::Response],
        ..USUAL
    },
    KindFacts {
        kind: TrafficKind::Ping,
        name: "ping",
        about: "ICMP echo",
        transport: Transport::Icmp,
        shape: Shape::RoundTrip,
        kernel_answers: true,
        sizes: [56, 56],
        gentle_rate: Some(Rate::MessagesPerSecond(10.0)),
        unpaced: "flood",
        ..USUAL
    },
    KindFacts {
        kind: TrafficKind::Frames,
        name: "frames",
        about: "UDP datagrams as raw frames, one direction, by ports",
        by_port: true,
        // The shortest that carry a message.
        sizes: [60, 80],
        ..USUAL
    },
];

impl TrafficKind {
    /// Every kind, in the order of the table, where each stands at its own place.
    pub const ALL: [TrafficKind; KINDS.len()] = {
        let mut all = [TrafficKind::TcpStream; KINDS.len()];
        let mut at = 0;
        while at < all.len() {
            assert!(KINDS[at].kind as usize == at, "every row stands at its kind");
            all[at] = KINDS[at].kind;
            at += 1;
        }
        all
    };

    /// Its row.
    pub fn facts(self) -> &'static KindFacts {
        &KINDS[self as usize]
    }

    /// The name on the command line and in JSON, e.g. `tcp-stream`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// True when every message crosses the path both ways (request and response).
    pub fn is_round_trip(self) -> bool {
        self.facts().shape == Shape::RoundTrip
    }

    /// True for messages that only go one way and are timed on it: the receiver's count and latency are the result.
    pub fn is_one_way(self) -> bool {
        self.facts().shape == Shape::OneWay
    }

    /// True for bytes without borders: there is no message to count or to time.
    pub fn is_bytes(self) -> bool {
        self.facts().shape == Shape::Bytes
    }

    /// True when frames leave and arrive by ports, past the sockets of both ends.
    pub fn is_by_port(self) -> bool {
        self.facts().by_port
    }

    /// True when it is carried by TCP.
    pub fn is_tcp(self) -> bool {
        self.facts().transport == Transport::Tcp
    }

    /// True when its frames are ICMP echo.
    pub fn is_echo(self) -> bool {
        self.facts().transport == Transport::Icmp
    }

    /// True when the ledger counts single frames of this kind (TCP is counted in bytes by TCP itself).
    pub fn has_ledger(self) -> bool {
        !self.is_tcp()
    }

    /// True when it takes this.
    pub fn takes(self, what: Takes) -> bool {
        self.facts().takes.contains(&what)
    }

    /// Payload of a message in bytes when nobody says, over this version of IP; 0 for a `write` of the usual length.
    pub fn default_size(self, family: u8) -> u32 {
        self.facts().sizes[usize::from(family == 6)]
    }

    /// The names of the kinds of which this is true, in words, with `last` before the last: `tcp-rr and udp-rr`.
    pub fn names_where(is: impl Fn(TrafficKind) -> bool, last: &str) -> String {
        let names: Vec<_> =
            TrafficKind::ALL.into_iter().filter(|&kind| is(kind)).map(TrafficKind::name).collect();
        match names.split_last() {
            Some((name, rest)) if !rest.is_empty() => format!("{} {last} {name}", rest.join(", ")),
            _ => names.concat(),
        }
    }
}

impl fmt::Display for TrafficKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TrafficKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        TrafficKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<_> = TrafficKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("unknown test kind '{text}' (one of {})", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_at_its_kind_and_has_the_name_of_the_record() {
        for (at, row) in KINDS.iter().enumerate() {
            assert_eq!((row.kind as usize, row.kind.facts().name), (at, row.name));
            assert_eq!(serde_json::to_string(&row.kind).unwrap(), format!("\"{}\"", row.name));
            assert_eq!(row.name.parse(), Ok(row.kind));
        }
    }

    #[test]
    fn kinds_are_named_by_what_they_take() {
        let takes = |what| TrafficKind::names_where(|kind: TrafficKind| kind.takes(what), "and");
        assert_eq!((&*takes(Takes::Response), &*takes(Takes::Streams)), ("tcp-rr and udp-rr", "tcp-stream"));
        assert!(TrafficKind::names_where(|_| true, "or").starts_with("tcp-stream, udp-stream, tcp-rr"));
        assert_eq!(TrafficKind::names_where(|_| false, "or"), "");
    }
}
