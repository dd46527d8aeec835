//! Another host that answers tests: where it is, and how it is reached.

use load::AgentLink;
use load::conversation::controller::ViaLink;
use load::conversation::knobs::RemoteKnobs;
use record::{Problem, Result};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The port of the control connection.
pub const PORT: u16 = 5300;

/// How long a control connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Finds the address of HOST[:PORT], of that IP version if one is asked for.
///
/// # Errors
/// Input: it is no such text, or there is no such host, or it has no such address.
pub fn resolve(text: &str, family: Option<u8>) -> Result<SocketAddr> {
    refuse_link_local(text)?;
    let (host, port) = split(text)?;
    let fits = |address: &SocketAddr| family.is_none_or(|family| (family == 6) == address.is_ipv6());
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        Problem::input(format!("cannot find the host '{host}': {error}")).help("check the name")
    })?;
    let wanted = family.map_or(String::new(), |family| format!(" with IPv{family}"));
    let none = || Problem::input(format!("the host '{host}' has no address{wanted}"));
    let found = addresses.into_iter().find(fits).ok_or_else(none)?;
    refuse_link_local(&found.ip().to_string()).map(|()| found)
}

/// Refuses an IPv6 address that is one of a link alone: it says where only with an interface (`%eth0`), which nothing here takes.
///
/// # Errors
/// Input: it is link-local.
pub fn refuse_link_local(text: &str) -> Result<()> {
    let address = text.trim_start_matches('[').split(['%', ']']).next().unwrap_or_default();
    match address.parse::<Ipv6Addr>() {
        Ok(address) if address.is_unicast_link_local() => Err(Problem::input(format!(
            "'{text}' is an address of one link only, and no interface can be given with it"
        ))
        .help("use a global address of the host, or a unique local one (fd00::/8)")),
        _ => Ok(()),
    }
}

/// Finds the address of the host for tests that say no version of IP, and for its control connections: IPv4 where it has that.
///
/// # Errors
/// As [`resolve`].
pub fn usual(text: &str) -> Result<SocketAddr> {
    resolve(text, Some(4)).or_else(|_| resolve(text, None))
}

/// Opens a control connection; messages call the host by `name`.
///
/// # Errors
/// Host: it does not answer.
pub fn connect(address: SocketAddr, name: &str) -> Result<AgentLink> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| {
        Problem::host(format!("cannot reach {address}: {error}"))
            .help(format!("start 'pathlab serve' on {} and let its port through", address.ip()))
    })?;
    let _ = stream.set_nodelay(true);
    AgentLink::from_stream(stream, name)
}

/// Opens one for the host's knobs.
///
/// # Errors
/// As [`resolve`] and [`connect`].
pub fn knobs(name: &str) -> Result<RemoteKnobs> {
    Ok(RemoteKnobs::new(connect(usual(name)?, name)?))
}

/// Opens one to each host between the two ends of a test, in that order.
///
/// # Errors
/// As [`resolve`] and [`connect`].
pub fn via(hosts: &[String]) -> Result<Vec<ViaLink>> {
    let open = |text: &String| {
        let (name, host) = named(text);
        let link = usual(host).and_then(|address| connect(address, host));
        link.map(|link| ViaLink::new(name, link)).map_err(|problem| problem.at("--via"))
    };
    hosts.iter().map(open).collect()
}

/// Makes sure that hosts between two nodes have names of their own in a ledger.
///
/// # Errors
/// Input: one has the name of a node, or of another one.
pub fn named_apart(via: &[String], nodes: [&str; 2]) -> Result<()> {
    let mut known = BTreeSet::from(nodes);
    match via.iter().map(|text| named(text).0).find(|name| !known.insert(name)) {
        Some(name) => Err(Problem::input(format!("'{name}' is a node of the test already"))
            .at("--via")
            .help("name each host between the two ends once: NAME=HOST")),
        None => Ok(()),
    }
}

/// The name of a host between two ends, and where it is: `NAME=HOST[:PORT]`, or HOST[:PORT], which is its name, too.
pub fn named(text: &str) -> (&str, &str) {
    text.split_once('=').unwrap_or((text, text))
}

/// Splits HOST[:PORT]; an IPv6 address with a port has brackets.
fn split(text: &str) -> Result<(&str, u16)> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed.or_else(|| text.rsplit_once(':')) {
        None => return Ok((text, PORT)),
        Some(_) if text.parse::<IpAddr>().is_ok() => return Ok((text, PORT)),
        Some((host, "")) if bracketed.is_some() => return Ok((host, PORT)),
        Some((host, rest)) if bracketed.is_some() => (host, rest.strip_prefix(':').unwrap_or(rest)),
        Some(split) => split,
    };
    let port = port.parse().map_err(|_| {
        Problem::input(format!("'{port}' in '{text}' is not a port"))
            .help("write HOST, HOST:PORT or [IPV6]:PORT")
    })?;
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        for (text, host, port) in [
            ("b", "b", PORT),
            ("b:1", "b", 1),
            ("10.0.0.1:2", "10.0.0.1", 2),
            ("fd00::1", "fd00::1", PORT),
            ("[fd00::1]", "fd00::1", PORT),
            ("[fd00::1]:3", "fd00::1", 3),
        ] {
            assert_eq!(split(text).unwrap(), (host, port), "{text}");
        }
        assert!(split("b:x").unwrap_err().to_string().contains("'x'"));
    }

    #[test]
    fn an_address_is_of_the_version_that_is_asked_for() {
        assert!(resolve("127.0.0.1", Some(4)).is_ok() && resolve("::1", Some(6)).is_ok());
        assert!(usual("::1").unwrap().is_ipv6() && usual("127.0.0.1").unwrap().is_ipv4());
        let refused = resolve("127.0.0.1", Some(6)).unwrap_err().to_string();
        assert!(refused.contains("has no address with IPv6"), "{refused}");
    }
}
