//! TCP connections of a host as `pathlab tcp` reads them: one reading, a filter of them, and what is said of each.

use crate::line;
use crate::tcp::{TcpDecomposition, TcpSample};
use crate::{Latency, Limit, Prefix, Problem, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// States by the kernel's numbers (`include/net/tcp_states.h`), with the names of RFC 9293 as `ss` writes them.
pub const STATES: [(u8, &str); 12] = [
    (1, "established"),
    (2, "syn-sent"),
    (3, "syn-recv"),
    (4, "fin-wait-1"),
    (5, "fin-wait-2"),
    (6, "time-wait"),
    (7, "closed"),
    (8, "close-wait"),
    (9, "last-ack"),
    (10, "listening"),
    (11, "closing"),
    (12, "new-syn-recv"),
];

/// Those in which a connection carries data or is about to.
const CONNECTED: [u8; 8] = [1, 2, 3, 4, 5, 8, 9, 11];

/// The name of a state.
pub fn state_name(number: u8) -> String {
    let known = STATES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("state {number}"), |(_, name)| (*name).to_owned())
}

/// Which connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The node: the namespace by its name.
    pub node: String,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// The kernel's number of the socket, which no other has.
    pub cookie: u64,
    /// The socket's inode; 0 when no process has it any more.
    pub inode: u32,
    /// Whose it is.
    pub uid: u32,
}

/// One reading of a connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Which.
    pub connection: Connection,
    /// The kernel's number of its state.
    pub state: u8,
    /// Bytes that nobody has read; of a listening socket connections that nobody has accepted.
    pub receive_queue: u32,
    /// Bytes that were not acknowledged; of a listening socket the most connections that can wait.
    pub send_queue: u32,
    /// Its `tcp_info`; none in states that have none.
    pub sample: Option<TcpSample>,
    /// All attributes as the kernel gave them.
    pub attributes: Vec<u8>,
}

/// The attributes of a reading in words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributed {
    /// The congestion control.
    pub congestion: Option<String>,
    /// Every field that the kernel returned, by its name.
    pub info: BTreeMap<String, u64>,
    /// Every attribute by its number, in hex.
    pub raw: BTreeMap<String, String>,
}

/// The lowest and the highest of something that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extremes {
    /// Lowest.
    pub min: u64,
    /// Highest.
    pub max: u64,
}

/// How often something began to hold the connection back that did not before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitChanges {
    /// The application gave nothing to send.
    pub application: u64,
    /// The receiver's window was full.
    pub receiver_window: u64,
    /// The send buffer was too small.
    pub send_buffer: u64,
    /// The network: congestion window, pacing, in flight.
    pub network: u64,
}

/// What is said of a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// The node.
    pub node: String,
    /// Its own end.
    pub local: String,
    /// The other end.
    pub peer: String,
    /// The kernel's number of the socket.
    pub cookie: u64,
    /// The socket's inode; none when no process has it any more.
    pub inode: Option<u32>,
    /// Whose it is.
    pub uid: u32,
    /// Its state when it was last read.
    pub state: String,
    /// It was not there any more at the last sample.
    pub is_gone: bool,
    /// The congestion control.
    pub congestion: Option<String>,
    /// Bytes that nobody had read.
    pub receive_queue: u32,
    /// Bytes that were not acknowledged.
    pub send_queue: u32,
    /// How often it was read.
    pub samples: u64,
    /// Seconds from the first reading to the last.
    pub seconds: f64,
    /// Every field that the kernel returned at the last reading, by its name and in its own unit.
    pub info: BTreeMap<String, u64>,
    /// Every attribute of the last reading by its number, in hex.
    pub raw: BTreeMap<String, String>,
    /// What was read most and least, by the field's name.
    pub extremes: BTreeMap<String, Extremes>,
    /// Smoothed round-trip times that were read, in nanoseconds.
    pub rtt_ns: Option<Latency>,
    /// Where its time went between the first reading and the last; none with one reading.
    pub time: Option<TcpDecomposition>,
    /// How often each of them began; none with one reading.
    pub changes: Option<LimitChanges>,
    /// Bytes sent between the first reading and the last; none when that is not known.
    pub bytes_sent: Option<u64>,
    /// Bytes received meanwhile.
    pub bytes_received: Option<u64>,
    /// What held it back; none when it sent nothing.
    pub limit: Option<Limit>,
}

/// All connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpReport {
    /// `pathlab/tcp/1`.
    pub schema: String,
    /// The nodes that were asked.
    pub nodes: Vec<String>,
    /// The filter; none: every connection.
    pub filter: Option<String>,
    /// Seconds from the first sample to the last.
    pub seconds: f64,
    /// Why it ended: `once`, `duration`, `interrupted`, `reader_gone`.
    pub ended: String,
    /// Time between two samples that was asked for, in nanoseconds; none with one sample.
    pub interval_ns: Option<u64>,
    /// Samples that were taken: each is of all connections.
    pub samples: u64,
    /// Samples whose time passed while the one before was taken, or while nobody gave a CPU.
    pub missed: u64,
    /// What a sample takes, in nanoseconds of the clock.
    pub sample_ns: Option<Latency>,
    /// CPU time of the sampling, in nanoseconds.
    pub cpu_ns: u64,
    /// The connections.
    pub connections: Vec<ConnectionReport>,
}

/// One connection in one sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpSampleLine {
    /// `pathlab/tcp-sample/1`.
    pub schema: String,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// The node.
    pub node: String,
    /// Its own end.
    pub local: String,
    /// The other end.
    pub peer: String,
    /// The kernel's number of the socket.
    pub cookie: u64,
    /// Its state.
    pub state: String,
    /// Bytes that nobody had read.
    pub receive_queue: u32,
    /// Bytes that were not acknowledged.
    pub send_queue: u32,
    /// Every field that the kernel returned, by its name and in its own unit.
    pub info: BTreeMap<String, u64>,
}

/// Which connections are wanted: a word and what it must be, in any number. The same word twice is one or the other, different words are
/// both. Without a `state` those that are connected, or about to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectionFilter {
    text: String,
    ends: Vec<(Which, Vec<End>)>,
    states: Vec<u8>,
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Local,
    Peer,
    Either,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Address(Prefix),
    Port(u16),
}

/// The words for ends; what is an address comes first.
const WORDS: [(&str, Which, bool); 6] = [
    ("address", Which::Either, true),
    ("local", Which::Local, true),
    ("peer", Which::Peer, true),
    ("port", Which::Either, false),
    ("local-port", Which::Local, false),
    ("peer-port", Which::Peer, false),
];

const HELP: &str =
    "address, local, peer ADDRESS or ADDRESS/LENGTH; port, local-port, peer-port N; state NAME";

impl ConnectionFilter {
    /// Reads the words.
    ///
    /// # Errors
    /// Input: a word that is none, or what cannot stand behind it, with its place.
    pub fn parse(text: &str) -> Result<ConnectionFilter> {
        let mut filter = ConnectionFilter { text: text.trim().to_owned(), ..ConnectionFilter::default() };
        let words: Vec<line::Word<'_>> = line::lines(text).flat_map(|line| line.words).collect();
        for pair in words.chunks(2) {
            let wrong = |word: &line::Word<'_>, what: String| word.problem("filter", what).help(HELP);
            let [name, value] = pair else {
                return Err(wrong(&pair[0], format!("'{}' needs something behind it", pair[0].text)));
            };
            let cannot = || wrong(value, format!("'{}' cannot stand behind '{}'", value.text, name.text));
            if name.text == "state" {
                let names = || STATES.map(|(_, name)| name).join(", ");
                let none = || cannot().help(format!("the states are {}", names()));
                let known = STATES.iter().find(|(_, state)| *state == value.text).ok_or_else(none)?;
                filter.states.push(known.0);
                continue;
            }
            let known = WORDS.iter().position(|(word, ..)| *word == name.text);
            let known =
                known.ok_or_else(|| wrong(name, format!("'{}' is no word of a filter", name.text)))?;
            let (_, which, is_address) = WORDS[known];
            let end = if is_address { address(value.text) } else { value.text.parse().ok().map(End::Port) };
            filter.add(which, end.ok_or_else(cannot)?);
        }
        Ok(filter)
    }

    fn add(&mut self, which: Which, end: End) {
        let is_port = |end: &End| matches!(end, End::Port(_));
        let same =
            |(known, ends): &&mut (Which, Vec<End>)| *known == which && is_port(&ends[0]) == is_port(&end);
        match self.ends.iter_mut().find(same) {
            Some((_, ends)) => ends.push(end),
            None => self.ends.push((which, vec![end])),
        }
    }

    /// As it was written; none when it says nothing.
    pub fn text(&self) -> Option<&str> {
        Some(self.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The states that are asked for, a bit each.
    pub fn states(&self) -> u32 {
        let wanted = if self.states.is_empty() { &CONNECTED[..] } else { &self.states };
        wanted.iter().fold(0, |mask, state| mask | 1 << state)
    }

    /// No connection comes into the states that are asked for from another one.
    pub fn has_all_connected(&self) -> bool {
        CONNECTED.iter().all(|state| self.states() & 1 << state != 0)
    }

    /// Whether it wants that connection.
    pub fn wants(&self, connection: &Connection) -> bool {
        self.ends.iter().all(|(which, ends)| {
            let sides: &[&SocketAddr] = match which {
                Which::Local => &[&connection.local],
                Which::Peer => &[&connection.peer],
                Which::Either => &[&connection.local, &connection.peer],
            };
            ends.iter().any(|end| sides.iter().any(|side| is_at(side, *end)))
        })
    }
}

/// An address with a length, or whole; it may stand in brackets.
fn address(text: &str) -> Option<End> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
    let with = |length| Prefix::parse(&format!("{address}/{length}"));
    length.map_or(Some(Prefix::host(address)), with).map(End::Address)
}

fn is_at(side: &SocketAddr, end: End) -> bool {
    match end {
        End::Port(port) => side.port() == port,
        // A socket of IPv6 shows peers of IPv4 as ::ffff:a.b.c.d.
        End::Address(wanted) if wanted.address.is_ipv4() => wanted.contains(side.ip().to_canonical()),
        End::Address(wanted) => wanted.contains(side.ip()),
    }
}

impl std::str::FromStr for ConnectionFilter {
    type Err = Problem;

    fn from_str(text: &str) -> Result<ConnectionFilter> {
        ConnectionFilter::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn between(local: &str, peer: &str) -> Connection {
        let (local, peer) = (local.parse().unwrap(), peer.parse().unwrap());
        Connection { node: "a".into(), local, peer, cookie: 1, inode: 2, uid: 0 }
    }

    #[test]
    fn words_choose_connections() {
        let one = between("10.0.0.1:40000", "10.0.1.2:443");
        let six = between("[fd00::1]:22", "[fd00::9]:5000");
        let mapped = between("[::ffff:10.0.0.1]:80", "[::ffff:10.0.1.2]:9");
        for (text, wanted) in [
            ("", [true, true, true]),
            ("port 443", [true, false, false]),
            ("port 443 port 22", [true, true, false]),
            ("local-port 443", [false, false, false]),
            ("address 10.0.1.2", [true, false, true]),
            ("peer 10.0.0.0/16 peer-port 443", [true, false, false]),
            ("local fd00::/16", [false, true, false]),
            ("local [fd00::1]", [false, true, false]),
            ("peer 0.0.0.0/0", [true, false, true]),
            ("address 10.0.0.1 peer-port 9", [false, false, true]),
        ] {
            let filter = ConnectionFilter::parse(text).unwrap();
            assert_eq!([&one, &six, &mapped].map(|one| filter.wants(one)), wanted, "{text}");
        }
    }

    #[test]
    fn states_are_masks_and_connected_ones_are_meant_without_a_word() {
        let mask = |text: &str| ConnectionFilter::parse(text).unwrap().states();
        assert_eq!(
            (mask("state established"), mask("state listening state time-wait")),
            (1 << 1, 1 << 10 | 1 << 6)
        );
        assert_eq!(mask("port 5"), 0b1011_0011_1110);
        let all = |text: &str| ConnectionFilter::parse(text).unwrap().has_all_connected();
        assert_eq!((all("port 5"), all("state established")), (true, false));
        assert_eq!((state_name(8), state_name(99)), ("close-wait".into(), "state 99".into()));
    }

    #[test]
    fn what_is_no_word_is_told_with_its_place() {
        for (text, place, what) in [
            ("prot 5", "filter:1:1", "'prot'"),
            ("port", "filter:1:1", "needs"),
            ("port 5 peer nobody", "filter:1:13", "'nobody'"),
            ("state awake", "filter:1:7", "the states are established, syn-sent"),
            ("local 10.0.0.1/33", "filter:1:7", "/33"),
            ("port 70000", "filter:1:6", "70000"),
        ] {
            let problem = ConnectionFilter::parse(text).unwrap_err().to_string();
            assert!(problem.contains(place) && problem.contains(what), "{text}: {problem}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in ".{0,60}") {
            let _ = ConnectionFilter::parse(&text);
        }

        /// The slow twin: bit by bit.
        #[test]
        fn a_prefix_is_compared_bit_by_bit(a: u32, b: u32, length in 0u8..=32) {
            let filter = ConnectionFilter::parse(&format!("peer {}/{length}", std::net::Ipv4Addr::from_bits(b))).unwrap();
            let connection = between("1.2.3.4:1", &format!("{}:1", std::net::Ipv4Addr::from_bits(a)));
            let same = (0..length).all(|bit| (a >> (31 - bit)) & 1 == (b >> (31 - bit)) & 1);
            prop_assert_eq!(filter.wants(&connection), same);
        }
    }
}
