//! The configuration of a switch: its ports, its controllers, where it listens.
//!
//! **What.** A file with one word and its values on a line, or the same from flags; several `switch` lines make several
//! logical switches in one process.
//!
//! ```text
//! switch s1
//!   dpid 0x1
//!   port 1 int:eth1
//!   port 2 int:eth2
//!   local tap:s1
//!   controller tcp:127.0.0.1:6653
//!   listen punix:/run/s1.sock
//!   listen ptcp:6654:127.0.0.1 connections=8
//!   controller ssl:controller.example:6653
//!   private-key /etc/pathlab/s1-key.pem
//!   certificate /etc/pathlab/s1-cert.pem
//!   ca-cert /etc/pathlab/ca.pem
//!   fail secure
//!   engine native
//!   shadow auto
//! ```
//!
//! **Price.** Names and numbers are checked here; whether an interface exists shows when the port is opened.

use crate::datapath;
use crate::engines::ENGINES;
use crate::packet_ins::Limit;
use crate::programs::EngineKind;
use crate::queue_config::{self, QueueConfig};
use crate::shadow::ShadowRate;
use crate::tls::TlsFiles;
use flow::port::PortNo;
use record::{Problem, Result, line, unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The port that IANA gave to OpenFlow.
pub const OPENFLOW_PORT: u16 = 6653;
/// The highest number of a port (`OFPP_MAX` is 0xffffff00; OVS and its tools stop at 65279 in OpenFlow 1.0 only).
const HIGHEST_PORT: u32 = 0xffff_ff00;

/// Words that a switch may have several times.
const SEVERAL: [&str; 6] = ["switch", "port", "controller", "listen", "queue", "speed"];
/// Auxiliary connections of a controller: their number in the features reply has 8 bits, and 0 is the main one.
const MOST_AUXILIARY: usize = 255;
/// Connections that a place takes at once when it is not said.
pub const CONNECTIONS: usize = 64;

/// One logical switch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SwitchConfig {
    /// Its name, for people.
    pub name: String,
    /// Its datapath identifier.
    pub dpid: u64,
    /// Number and port name (`int:eth1`), in order.
    pub ports: Vec<(PortNo, String)>,
    /// The port name of `LOCAL`, usually a tap.
    pub local: Option<String>,
    /// The controllers that it connects to.
    pub controllers: Vec<ControllerConfig>,
    /// Where it may be called.
    pub listen: Vec<ListenConfig>,
    /// What it does while no controller is there.
    pub fail: FailMode,
    /// What carries the pipeline out.
    pub engine: EngineKind,
    /// Which frames are compared with the interpreter.
    pub shadow: ShadowRate,
    /// Rules that a table holds at most.
    pub rules: usize,
    /// Queues of ports that are to be made.
    pub queues: Vec<QueueConfig>,
    /// How many packet-ins go to the controllers, if that is limited.
    pub packet_ins: Option<Limit>,
    /// What ports carry, in bits per second.
    pub speeds: Vec<(PortNo, u64)>,
    /// Key and certificates, for controllers and clients over TLS.
    pub tls: TlsFiles,
}

/// What a switch does while it has no controller (OpenFlow 1.3.5 section 6.3, Connection Interruption).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailMode {
    /// It goes on with the rules that it has.
    #[default]
    Secure,
    /// It behaves as a learning bridge.
    Standalone,
}

/// A host and a TCP port. A name is looked up when it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// An address or a name.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// Where byte streams go to, or come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint<A> {
    /// TCP.
    Tcp(A),
    /// TLS over TCP.
    Tls(A),
    /// A unix socket.
    Unix(PathBuf),
}

/// A peer to call: `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]` or `unix:PATH`.
pub type Remote = Endpoint<HostPort>;

/// Where to be called: `ptcp:[PORT][:IP]` (every address of this host when none is said), `pssl:[PORT][:IP]` or `punix:PATH`.
pub type Listen = Endpoint<SocketAddr>;

/// A controller to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Where the main connection goes.
    pub to: Remote,
    /// Where the auxiliary connections 1, 2, … go (1.3.5, "Auxiliary Connections").
    pub auxiliary: Vec<Remote>,
}

/// A place to be called, and by how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    /// The place.
    pub at: Listen,
    /// Connections that are taken at once; the next caller is sent away.
    pub connections: usize,
}

impl From<Listen> for ListenConfig {
    fn from(at: Listen) -> ListenConfig {
        ListenConfig { at, connections: CONNECTIONS }
    }
}

impl fmt::Display for ListenConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.connections {
            CONNECTIONS => self.at.fmt(f),
            connections => write!(f, "{},connections={connections}", self.at),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Tcp(place) => write!(f, "tcp:{place}"),
            Remote::Tls(place) => write!(f, "ssl:{place}"),
            Remote::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for ControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        self.auxiliary.iter().try_for_each(|to| write!(f, ",aux={to}"))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "ptcp:{}:{}", address.port(), address.ip()),
            Listen::Tls(address) => write!(f, "pssl:{}:{}", address.port(), address.ip()),
            Listen::Unix(path) => write!(f, "punix:{}", path.display()),
        }
    }
}

impl HostPort {
    /// Reads `IP`, `IP:PORT`, `NAME` or `NAME:PORT`; an IPv6 address before a port stands in brackets.
    fn parse(text: &str) -> Option<HostPort> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Some(HostPort { host: address.ip().to_string(), port: address.port() });
        }
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Some(HostPort { host: ip.to_string(), port: OPENFLOW_PORT });
        }
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        let port = if port.is_empty() { OPENFLOW_PORT } else { port.parse().ok()? };
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        // 10.0.0.256 is no name: the last label of a name is not a number (RFC 1123 section 2.1).
        let last = host.rsplit('.').next().unwrap_or_default();
        let is_name = host.bytes().all(letter) && last.bytes().any(|byte| !byte.is_ascii_digit());
        is_name.then(|| HostPort { host: host.to_owned(), port })
    }
}

impl<A> Endpoint<A> {
    /// Of a kind, at a place; none for a kind that there is not.
    fn of(kind: &str, place: &str, address: impl Fn(&str) -> Result<A>) -> Result<Option<Self>> {
        Ok(match kind {
            "tcp" => Some(Endpoint::Tcp(address(place)?)),
            "ssl" | "tls" => Some(Endpoint::Tls(address(place)?)),
            "unix" if !place.is_empty() => Some(Endpoint::Unix(place.into())),
            _ => None,
        })
    }

    /// Whether it takes key and certificates.
    pub fn is_tls(&self) -> bool {
        matches!(self, Endpoint::Tls(_))
    }
}

impl Remote {
    /// Reads `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]` or `unix:PATH`.
    ///
    /// # Errors
    /// Input: what is wrong.
    pub fn parse(text: &str) -> Result<Remote> {
        let bad = |what: &str| {
            Problem::input(format!("'{text}': {what}")).help("tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH")
        };
        let (kind, rest) = text.split_once(':').unwrap_or_default();
        let place = |rest: &str| HostPort::parse(rest).ok_or_else(|| bad("this is not an address"));
        Endpoint::of(kind, rest, place)?.ok_or_else(|| bad("this is not a peer"))
    }
}

impl ControllerConfig {
    /// Reads a peer and its auxiliary connections: `tcp:HOST,aux=2` has two more to the same place, `tcp:HOST,aux=unix:PATH` one to
    /// another. In a file a blank may stand for the comma.
    ///
    /// # Errors
    /// Input: what is wrong.
    pub fn parse(text: &str) -> Result<ControllerConfig> {
        let text = text.replace(" aux=", ",aux=");
        let mut parts = text.split(",aux=");
        let to = Remote::parse(parts.next().unwrap_or_default())?;
        let mut auxiliary = vec![];
        for part in parts {
            match part.parse::<usize>() {
                Ok(count) => auxiliary.extend(std::iter::repeat_n(to.clone(), count.min(MOST_AUXILIARY + 1))),
                Err(_) => auxiliary.push(Remote::parse(part)?),
            }
        }
        if auxiliary.len() > MOST_AUXILIARY {
            let what = format!("'{text}': there are at most {MOST_AUXILIARY} auxiliary connections");
            return Err(Problem::input(what).help("their number has 8 bits, and 0 is the main connection"));
        }
        Ok(ControllerConfig { to, auxiliary })
    }

    /// Whether it takes key and certificates.
    pub fn is_tls(&self) -> bool {
        self.to.is_tls() || self.auxiliary.iter().any(Remote::is_tls)
    }
}

impl Listen {
    /// Reads `ptcp:[PORT][:IP]`, `pssl:[PORT][:IP]` or `punix:PATH`.
    ///
    /// # Errors
    /// Input: what is wrong.
    pub fn parse(text: &str) -> Result<Listen> {
        let bad = |what: &str| {
            Problem::input(format!("'{text}': {what}"))
                .help("ptcp:[PORT][:IP], pssl:[PORT][:IP] or punix:PATH")
        };
        let address = |rest: &str| {
            let (port, ip) = rest.split_once(':').unwrap_or((rest, ""));
            let port = if port.is_empty() { Ok(OPENFLOW_PORT) } else { port.parse() };
            let ip = ip.trim_start_matches('[').trim_end_matches(']');
            let ip = if ip.is_empty() { Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) } else { ip.parse() };
            match (port, ip) {
                (Ok(port), Ok(ip)) => Ok(SocketAddr::new(ip, port)),
                (Err(_), _) => Err(bad("this is not a TCP port")),
                (_, Err(_)) => Err(bad("this is not an address")),
            }
        };
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let found = Endpoint::of(kind.strip_prefix('p').unwrap_or_default(), rest, address)?;
        found.ok_or_else(|| bad("this is not a place to listen"))
    }
}

impl ListenConfig {
    /// Reads a place and how many connections it takes: `punix:PATH,connections=8`. In a file a blank may stand for the comma.
    ///
    /// # Errors
    /// Input: what is wrong.
    pub fn parse(text: &str) -> Result<ListenConfig> {
        let text = text.replace(" connections=", ",connections=");
        let Some((at, number)) = text.rsplit_once(",connections=") else {
            return Ok(Listen::parse(&text)?.into());
        };
        let connections = unit::amount(number).ok().and_then(|number| number.try_into().ok());
        let connections = connections.filter(|connections| *connections > 0);
        let connections = connections
            .ok_or_else(|| Problem::input(format!("'{number}' is not a number of connections above 0")))?;
        Ok(ListenConfig { at: Listen::parse(at)?, connections })
    }
}

/// Reads a datapath identifier: `0x` and hexadecimal digits, 12 or 16 hexadecimal digits as other tools write them, or
/// decimal digits.
///
/// # Errors
/// Input: it is not a number, or it is 0, which would be the same for every switch without one.
pub fn dpid(text: &str) -> Result<u64> {
    let plain = text.replace(':', "");
    let number = if let Some(digits) = plain.strip_prefix("0x") {
        u64::from_str_radix(digits, 16).ok()
    } else if plain.len() == 12 || plain.len() == 16 {
        u64::from_str_radix(&plain, 16).ok()
    } else {
        plain.parse().ok()
    };
    number.filter(|&number| number > 0).ok_or_else(|| {
        Problem::input(format!("'{text}' is not a datapath identifier"))
            .help("a number above 0, as 1, 0x1 or 0000000000000001")
    })
}

/// Reads `NUMBER=PORT`, or a port alone, which gets the next number.
///
/// # Errors
/// Input: it is not a number, or the number is taken.
pub fn add_port(ports: &mut Vec<(PortNo, String)>, text: &str) -> Result<()> {
    let (number, uri) = match text.split_once('=') {
        Some((number, uri)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            (number.parse::<u32>().unwrap_or(0), uri)
        }
        _ => (ports.iter().map(|(number, _)| number.0 + 1).max().unwrap_or(1), text),
    };
    if !(1..HIGHEST_PORT).contains(&number) {
        return Err(Problem::input(format!("'{text}': a port has a number from 1 to {}", HIGHEST_PORT - 1)));
    }
    if ports.iter().any(|(taken, _)| taken.0 == number) {
        return Err(Problem::input(format!("there are two ports {number}")).at(text.to_owned()));
    }
    ports.push((PortNo(number), uri.to_owned()));
    Ok(())
}

impl SwitchConfig {
    /// A switch without ports and controllers.
    pub fn new(name: &str, dpid: u64) -> SwitchConfig {
        let rules = flow::pipeline::RULE_LIMIT;
        SwitchConfig { name: name.to_owned(), dpid, rules, ..SwitchConfig::default() }
    }

    /// Reads a file of switches; `place` is its name, for errors.
    ///
    /// # Errors
    /// Input: the line and what is wrong with it.
    pub fn parse(text: &str, place: &str) -> Result<Vec<SwitchConfig>> {
        let mut all: Vec<SwitchConfig> = vec![];
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for line in line::lines(text) {
            let words: Vec<&str> = line.words.iter().map(|word| word.text).collect();
            let (word, values) = (words[0], &words[1..]);
            let at = || format!("{place}:{}", line.number);
            let is_again = !seen.insert(word) && !SEVERAL.contains(&word);
            let done = if word == "switch" {
                seen.clear();
                one(values).and_then(name).map(|name| all.push(SwitchConfig::new(name, 0)))
            } else if is_again {
                Err(Problem::input(format!("'{word}' stands twice in one switch")))
            } else if let Some(switch) = all.last_mut() {
                switch.line(word, values)
            } else {
                Err(Problem::input("the first line must be 'switch NAME'"))
            };
            done.map_err(|problem| problem.at(at()))?;
        }
        check(&mut all).map_err(|problem| problem.at(place.to_owned()))?;
        Ok(all)
    }

    /// Whether a controller or a listener takes key and certificates.
    pub fn needs_tls(&self) -> bool {
        self.controllers.iter().any(ControllerConfig::is_tls)
            || self.listen.iter().any(|listen| listen.at.is_tls())
    }

    fn line(&mut self, word: &str, values: &[&str]) -> Result<()> {
        match word {
            "dpid" => self.dpid = dpid(one(values)?)?,
            "port" => {
                let text = match values {
                    [number, uri] => format!("{number}={uri}"),
                    _ => one(values)?.to_owned(),
                };
                add_port(&mut self.ports, &text)?;
            }
            "local" => self.local = Some(one(values)?.to_owned()),
            "controller" => self.controllers.push(ControllerConfig::parse(&values.join(" "))?),
            "listen" => self.listen.push(ListenConfig::parse(&values.join(" "))?),
            "fail" => self.fail = fail(one(values)?)?,
            "engine" => self.engine = engine(one(values)?)?,
            "shadow" => self.shadow = ShadowRate::parse(one(values)?)?,
            "queue" => self.queues.push(QueueConfig::parse(&values.join(" "))?),
            "packet-ins" => self.packet_ins = Some(Limit::parse(&values.join(" "))?),
            "speed" => self.speeds.push(queue_config::speed(one(values)?)?),
            "rules" => {
                let text = one(values)?;
                let number = unit::amount(text).ok().and_then(|rules| usize::try_from(rules).ok());
                let number = number.filter(|rules| *rules > 0);
                self.rules = number
                    .ok_or_else(|| Problem::input(format!("'{text}' is not a number of rules above 0")))?;
            }
            "private-key" => self.tls.private_key = Some(one(values)?.into()),
            "certificate" => self.tls.certificate = Some(one(values)?.into()),
            "ca-cert" => self.tls.ca_cert = Some(one(values)?.into()),
            _ => {
                return Err(Problem::input(format!("there is no word '{word}'")).help(
                    "switch, dpid, port, local, controller, listen, fail, engine, shadow, rules, packet-ins, queue, speed, private-key, certificate, ca-cert",
                ));
            }
        }
        Ok(())
    }
}

/// Reads the name of a switch, which controllers see in `dp_desc`: 256 bytes, the last of them zero.
///
/// # Errors
/// Input: nobody could read it there, or in what the switch reports.
pub fn name(text: &str) -> Result<&str> {
    let why = match text.len() {
        0 => "the name of a switch cannot be empty",
        256.. => "the name of a switch has at most 255 bytes",
        _ if text.contains(char::is_control) => "the name of a switch cannot have control characters",
        _ => return Ok(text),
    };
    Err(Problem::input(why))
}

/// Reads `secure` or `standalone`.
///
/// # Errors
/// Input: it is neither.
pub fn fail(text: &str) -> Result<FailMode> {
    match text {
        "secure" => Ok(FailMode::Secure),
        "standalone" => Ok(FailMode::Standalone),
        _ => Err(Problem::input(format!("'{text}' is not a way to fail")).help("secure or standalone")),
    }
}

/// Reads the name of an engine.
///
/// # Errors
/// Input: there is none of that name.
pub fn engine(text: &str) -> Result<EngineKind> {
    let found = ENGINES.iter().find(|engine| engine.name == text).copied();
    let names = || ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| {
        Problem::input(format!("there is no engine '{text}'")).help(format!("the engines are: {}", names()))
    })
}

fn one<'a>(values: &[&'a str]) -> Result<&'a str> {
    match values {
        [value] => Ok(value),
        _ => Err(Problem::input(format!("one value belongs here, not {}", values.len()))),
    }
}

/// Refuses an interface that would be two ports, of one switch or of two: each of them would hear what is for the other, and a frame could leave by
/// the interface that it came in by.
///
/// # Errors
/// Input: which one.
pub fn check_interfaces(all: &[SwitchConfig]) -> Result<()> {
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for switch in all {
        let ports = switch.ports.iter().map(|(number, uri)| (number.to_string(), uri));
        let local = switch.local.iter().map(|uri| ("LOCAL".to_owned(), uri));
        for (number, uri) in ports.chain(local).filter(|(_, uri)| datapath::has_interface(uri)) {
            let name = datapath::name_of(uri);
            let place = format!("port {number} of '{}' ({uri})", switch.name);
            if let Some(other) = taken.insert(name.clone(), place.clone()) {
                let what = format!("the interface {name} is {other} and {place}");
                return Err(Problem::input(what).help("an interface can be one port only"));
            }
        }
    }
    Ok(())
}

/// Refuses a controller that stands twice: it would meet the same datapath on two main connections.
///
/// # Errors
/// Input: which one.
pub fn check_controllers(switch: &SwitchConfig) -> Result<()> {
    let mut found = BTreeSet::new();
    let mut places = switch.controllers.iter().map(|controller| controller.to.to_string());
    match places.find(|place| !found.insert(place.clone())) {
        Some(place) => {
            Err(Problem::input(format!("the controller {place} of '{}' stands twice", switch.name))
                .help("aux=N gives it more connections"))
        }
        None => Ok(()),
    }
}

/// Gives numbers to switches that have none; names and numbers must be different.
fn check(all: &mut [SwitchConfig]) -> Result<()> {
    if all.is_empty() {
        return Err(Problem::input("it has no switches").help("begin with 'switch NAME'"));
    }
    let highest = all.iter().map(|switch| switch.dpid).max().unwrap_or(0);
    let missing = all.iter_mut().filter(|switch| switch.dpid == 0);
    for (switch, dpid) in missing.zip(highest.saturating_add(1)..) {
        switch.dpid = dpid;
    }
    check_interfaces(all)?;
    for (i, switch) in all.iter().enumerate() {
        check_controllers(switch)?;
        queue_config::check(&switch.ports, &switch.queues, &switch.speeds)?;
        for other in &all[..i] {
            if other.name == switch.name {
                return Err(Problem::input(format!("there are two switches '{}'", switch.name)));
            }
            if other.dpid == switch.dpid {
                let what = format!("'{}' and '{}' have the same dpid", other.name, switch.name);
                return Err(Problem::input(what));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_makes_switches() {
        let text = "# two\nswitch a\n dpid 0x10\n port 3 int:eth1\n port ring:eth2\n local tap:a\n \
                    controller tcp:127.0.0.1\n controller unix:/c\n controller ssl:c.example\n \
                    controller ssl:[::1]:7 aux=2 aux=unix:/a\n private-key k\n certificate c\n ca-cert a\n listen ptcp:\n listen ptcp:7:::1\n \
                    listen punix:/l\n listen pssl:8:::1 connections=3\n fail standalone\n engine interpreter\n shadow 7\n rules 9\n packet-ins rate=1000 burst=9\n queue 3:10 min=10mbit max=50mbit\n speed 3=1gbit\nswitch b\n";
        let all = SwitchConfig::parse(text, "f").unwrap();
        let a = &all[0];
        assert_eq!((a.dpid, all[1].dpid, a.rules, a.fail), (16, 17, 9, FailMode::Standalone));
        assert_eq!(a.ports, [(PortNo(3), "int:eth1".into()), (PortNo(4), "ring:eth2".into())]);
        assert_eq!((a.packet_ins, all[1].packet_ins), (Some(Limit { rate: 1000, burst: 9 }), None));
        assert_eq!((a.shadow, all[1].shadow), (ShadowRate::OneOf(7), ShadowRate::Auto));
        let queue = &a.queues[0];
        assert_eq!((queue.port, queue.wanted.id, queue.wanted.max_bps), (PortNo(3), 10, Some(50_000_000)));
        assert_eq!(a.speeds, [(PortNo(3), 1_000_000_000)]);
        let words = |items: Vec<String>| items.join(" ");
        let controllers = words(a.controllers.iter().map(ControllerConfig::to_string).collect());
        assert_eq!(
            controllers,
            "tcp:127.0.0.1:6653 unix:/c ssl:c.example:6653 ssl:[::1]:7,aux=ssl:[::1]:7,aux=ssl:[::1]:7,aux=unix:/a"
        );
        let files = [&a.tls.private_key, &a.tls.certificate, &a.tls.ca_cert];
        assert_eq!(files.map(|file| file.clone().unwrap().display().to_string()), ["k", "c", "a"]);
        assert!(a.needs_tls() && !all[1].needs_tls());
        let connections: Vec<usize> = a.listen.iter().map(|listen| listen.connections).collect();
        assert_eq!(connections, [CONNECTIONS, CONNECTIONS, CONNECTIONS, 3]);
        assert_eq!(
            words(a.listen.iter().map(ListenConfig::to_string).collect()),
            "ptcp:6653:0.0.0.0 ptcp:7:::1 punix:/l pssl:8:::1,connections=3"
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, expected) in [
            ("", "no switch"),
            ("port int:a", "f:1"),
            ("switch a\nport 1 int:a\nport 1 int:b", "two ports 1"),
            ("switch a\nport 0 int:a", "from 1"),
            ("switch a\nswitch a", "two switches"),
            ("switch a\ndpid 1\nswitch b\ndpid 1", "same dpid"),
            ("switch a\ndpid 0", "not a datapath identifier"),
            ("switch a\nfoo 1", "no word 'foo'"),
            ("switch a\ncontroller 127.0.0.1", "not a peer"),
            ("switch a\nlisten ptcp:x", "not a TCP port"),
            ("switch a\nlisten pssl:x", "not a TCP port"),
            ("switch a\nlisten punix:/a connections=0", "not a number of connections"),
            ("switch a\nlisten punix:/a connections=b", "not a number of connections"),
            ("switch a\nlisten ptcp:7 8", "not a TCP port"),
            ("switch a\ncontroller tcp:10.0.0.256", "not an address"),
            ("switch a\ncontroller ssl:a:b", "not an address"),
            ("switch a\ncontroller ssl:", "not an address"),
            ("switch a\ncontroller tcp:a aux=300", "at most 255"),
            ("switch a\ncontroller tcp:a aux=b", "not a peer"),
            ("switch a\ncontroller tcp:a b", "not an address"),
            ("switch a\nfail open", "not a way to fail"),
            ("switch a\nengine steam", "the engines are: interpreter, native"),
            ("switch a\nshadow 0", "no part of the frames"),
            ("switch a b", "one value"),
            ("switch a\nrules 0", "above 0"),
            ("switch a\nfail standalone\nfail secure", "f:3"),
            ("switch a\nengine native\nswitch b\nengine native\nengine tcx", "'engine' stands twice"),
            ("switch a\ncontroller tcp:c\ncontroller tcp:c:6653 aux=1", "tcp:c:6653 of 'a' stands twice"),
            (
                "switch a\nport 1 int:p\nport 2 ring:p?batch=9",
                "the interface p is port 1 of 'a' (int:p) and port 2",
            ),
            ("switch a\nport 1 int:p\nlocal fault:xdp:p?lose=1%", "port LOCAL"),
            ("switch a\nport 1 int:p\nswitch b\nport 1 int:p", "port 1 of 'b'"),
            ("switch a\nqueue 1:0", "f:2"),
            ("switch a\npacket-ins 1000", "neither"),
            ("switch a\nport 1 int:a\nqueue 2:1", "no port 2"),
        ] {
            let problem = SwitchConfig::parse(text, "f").unwrap_err().to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
        for (text, expected) in [("", "empty"), ("a\nb", "control"), (&"n".repeat(256), "at most 255 bytes")]
        {
            assert!(name(text).unwrap_err().to_string().contains(expected), "{text}");
        }
        assert_eq!(name("rack 7, left").unwrap(), "rack 7, left");
        assert_eq!(dpid("00:00:00:00:00:00:00:0a").unwrap(), 10);
        assert_eq!(dpid("00000000000a").unwrap(), 10);
    }
}
