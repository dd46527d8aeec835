//! Two ports between which a frame would go round for ever.

use super::Uri;
use super::interface::Interface;
use record::Result;

/// What a port's frames come from and go to, as far as it decides whether they come back.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Interface(String),
    Memory(String),
    Other,
}

fn place(uri: &str) -> Result<Place> {
    let uri = Uri::parse(uri)?;
    Ok(match uri.kind.as_str() {
        "int" | "ring" | "xdp" => Place::Interface(uri.rest),
        "mem" => Place::Memory(uri.rest),
        "fault" => return place(&uri.rest),
        _ => Place::Other,
    })
}

/// Why a forwarder between these two ports would get its own frames again; none when it would not. `one_way`: it moves
/// frames of the first to the second only.
///
/// # Errors
/// Input: no such port, or no such interface. Host: the kernel cannot be asked.
pub fn circle(first: &str, second: &str, one_way: bool) -> Result<Option<String>> {
    let places = (place(first)?, place(second)?);
    let (a, b) = match &places {
        (Place::Interface(a), Place::Interface(b)) => {
            (Interface::find(a, first)?, Interface::find(b, second)?)
        }
        (Place::Memory(a), Place::Memory(b)) if a == b => {
            return Ok(Some(format!("both ports are ends of mem:{a}")));
        }
        _ => return Ok(None),
    };
    let same = a.link.index == b.link.index;
    // Whatever is sent by the loopback interface is received by it.
    let loopback = same && a.link.name == "lo";
    if same && (loopback || !one_way) {
        return Ok(Some(format!("both ports are the interface {}", a.link.name)));
    }
    let joined = !same && a.link.peer == b.link.index && a.link.peer_netns.is_none();
    Ok(joined.then(|| format!("{} and {} are the two ends of one veth pair", a.link.name, b.link.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_twice_is_a_circle_whatever_the_kind_of_port() {
        for (first, second) in
            [("ring:lo", "ring:lo"), ("int:lo", "fault:ring:lo?lose=1%"), ("mem:x", "mem:x")]
        {
            assert!(circle(first, second, false).unwrap().is_some(), "{first} {second}");
        }
        assert!(circle("int:lo", "ring:lo", true).unwrap().unwrap().contains("the interface lo"));
        for (first, second) in [("mem:x", "mem:y"), ("int:lo", "mem:lo"), ("pcap:x", "int:lo")] {
            assert_eq!(circle(first, second, false).unwrap(), None, "{first} {second}");
        }
        assert!(circle("int:nosuch", "int:lo", false).is_err());
    }
}
