//! Network cards whose wires lead out of a machine: to a tap interface of this host, or to another machine.
//!
//! **What.** A [`Wire`] says where one leads and which addresses its card has; [`Wire::plug`] makes the host's end of it, of which QEMU is given the
//! descriptor.
//!
//! **Why.** What two kernels, two drivers or two kinds of offload make of each other is seen only where the two ends of a path are two kernels.
//!
//! **Price.** QEMU copies each frame. A socket between two machines needs no rights; a tap belongs to root or to the user whom its maker named.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use record::problem::system_words;
use record::{Problem, Result};

use crate::netlink::Prefix;
use crate::port::tap;
use crate::sys::boot;

/// The most wires of a machine: each takes a place of its bus.
pub const MOST_WIRES: usize = 8;

/// Where a wire leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireEnd {
    /// To a tap interface of the namespace in which the program runs.
    Tap(String),
    /// To another machine: through a socket of this name, which the first of the two makes.
    Socket(PathBuf),
}

/// A card of a machine whose wire leads out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    /// What the card is called in the machine; none: `wire0`, `wire1`, ….
    pub name: Option<String>,
    /// Where to.
    pub to: WireEnd,
    /// The addresses of the card, in the machine.
    pub addresses: Vec<Prefix>,
}

impl Wire {
    /// From `tap:NAME` or `unix:PATH`, with `=ADDRESS/LENGTH,…` behind it or not, and with `CARD@` before it or not.
    ///
    /// # Errors
    /// Input, with what is wrong.
    pub fn parse(text: &str) -> Result<Wire> {
        let (name, text) = match text.split_once('@') {
            Some((name, text)) if !name.contains(':') => (Some(card_name(name)?), text),
            _ => (None, text),
        };
        let (place, addresses) = text.rsplit_once('=').map_or((text, None), |(place, it)| (place, Some(it)));
        let to = match place.split_once(':') {
            Some(("tap", name)) if !name.is_empty() => WireEnd::Tap(name.to_owned()),
            Some(("unix", path)) if !path.is_empty() => WireEnd::Socket(path.into()),
            _ => {
                return Err(Problem::input(format!("'{place}' is no end of a wire"))
                    .help("write tap:NAME for a tap of this host, or unix:PATH for another machine"));
            }
        };
        let address = |text: &str| {
            Prefix::parse(text).ok_or_else(|| {
                Problem::input(format!("'{text}' is not an address with a prefix length"))
                    .help("write for example tap:t0=10.0.0.2/24")
            })
        };
        let addresses = addresses.map_or(Ok(vec![]), |list| list.split(',').map(address).collect())?;
        Ok(Wire { name, to, addresses })
    }

    /// What the card is called in the machine, and to QEMU where nobody says a name.
    pub fn card(&self, number: usize) -> String {
        self.name.clone().unwrap_or_else(|| Wire::id(number))
    }

    /// What QEMU calls it.
    pub(super) fn id(number: usize) -> String {
        format!("wire{number}")
    }

    /// The hardware address of the card: of this process, so that those of two machines on one wire differ.
    pub(super) fn mac(number: usize) -> String {
        let [_, a, b, c] = std::process::id().to_be_bytes();
        format!("52:54:{:02x}:{a:02x}:{b:02x}:{c:02x}", number + 1)
    }

    /// Makes the host's end; `reconnect` is how this QEMU is told to call again where nobody answers any more.
    ///
    /// # Errors
    /// Input: no such tap, or a name that no socket can have. Host: the tap is in use or belongs to somebody else.
    pub(super) fn plug(&self, number: usize, reconnect: &str) -> Result<Plugged> {
        let card = Wire::id(number);
        let inherited = |fd: OwnedFd, backend: &str, made| {
            boot::hand_down(&fd)
                .map_err(|error| Problem::host(format!("no wire for the machine: {error}")))?;
            Ok(Plugged { backend: format!("{backend}{},id={card}", fd.as_raw_fd()), fd: Some(fd), made })
        };
        match &self.to {
            WireEnd::Tap(name) => inherited(tap::existing_queue(name)?, "tap,fd=", None),
            WireEnd::Socket(path) => match listen_unless_answered(path)? {
                Some(fd) => inherited(fd, "stream,server=on,addr.type=fd,addr.str=", Some(path.clone())),
                None => {
                    // A comma ends a value unless there are two.
                    let path = path.display().to_string().replace(',', ",,");
                    let backend =
                        format!("stream,server=off,addr.type=unix,addr.path={path},{reconnect},id={card}");
                    Ok(Plugged { backend, fd: None, made: None })
                }
            },
        }
    }
}

/// The name of a card, as an interface may be called.
fn card_name(name: &str) -> Result<String> {
    let is_one = (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && ![".", "..", "lo"].contains(&name);
    match is_one {
        true => Ok(name.to_owned()),
        false => Err(Problem::input(format!("'{name}' is no name for a network card"))
            .help("write for example eth0@tap:t0=10.0.0.2/24")),
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            WireEnd::Tap(name) => write!(f, "tap {name}"),
            WireEnd::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The host's end of a wire, as long as the machine runs.
pub(super) struct Plugged {
    /// What QEMU is told.
    pub backend: String,
    /// What it inherits.
    #[cfg_attr(not(test), expect(dead_code, reason = "open as long as the machine runs"))]
    fd: Option<OwnedFd>,
    /// The socket's name, which goes with it.
    made: Option<PathBuf>,
}

impl Drop for Plugged {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

/// The socket of that name, which waits for the other machine; none: somebody answers there already.
fn listen_unless_answered(path: &Path) -> Result<Option<OwnedFd>> {
    let no_socket = |what: &str, error: std::io::Error| {
        Problem::input(format!("{what}: {}", system_words(&error))).at(path.display().to_string())
    };
    match UnixStream::connect(path) {
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // Of one that was killed, its socket's name is left.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            if !fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
                return Err(Problem::input("this is a file, and no socket that a wire may end at")
                    .at(path.display().to_string())
                    .help("name a file that is not there: the first of two machines makes it"));
            }
            fs::remove_file(path)
                .map_err(|error| no_socket("cannot take the place of an old socket", error))?;
        }
        Err(error) => return Err(no_socket("cannot call the machine at the other end of the wire", error)),
    }
    let listener =
        UnixListener::bind(path).map_err(|error| no_socket("cannot make the socket of a wire", error))?;
    Ok(Some(listener.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const AGAIN: &str = "reconnect=1";

    #[test]
    fn a_wire_says_where_it_leads_and_what_addresses_its_card_has() {
        let wire = Wire::parse("tap:t0=10.0.0.2/24,fd00::2/64").unwrap();
        assert_eq!(wire.to, WireEnd::Tap("t0".into()));
        let addresses: Vec<String> = wire.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.2/24", "fd00::2/64"]);
        let named = Wire::parse("eth0@tap:t0=10.0.0.2/24").unwrap();
        assert_eq!((named.card(3), &named.to, wire.card(3)), ("eth0".into(), &wire.to, "wire3".into()));
        let at = Wire::parse("unix:/tmp/a@b").unwrap();
        assert_eq!((at.name, at.to), (None, WireEnd::Socket("/tmp/a@b".into())));
        let wire = Wire::parse("unix:/tmp/a=b/w=10.0.0.1/8").unwrap();
        assert_eq!((wire.to, wire.addresses.len()), (WireEnd::Socket("/tmp/a=b/w".into()), 1));
        assert_eq!(
            Wire::parse("unix:w").unwrap(),
            Wire { name: None, to: WireEnd::Socket("w".into()), addresses: vec![] }
        );
        for (text, wanted) in [
            ("t0", "'t0' is no end of a wire"),
            ("lo@tap:t0", "'lo' is no name for a network card"),
            ("a b@tap:t0", "'a b' is no name for a network card"),
            ("tap:", "'tap:' is no end of a wire"),
            ("udp:7", "'udp:7' is no end of a wire"),
            ("tap:t0=", "'' is not an address with a prefix length"),
            ("tap:t0=10.0.0.2", "'10.0.0.2' is not an address with a prefix length"),
            ("tap:t0=10.0.0.2/33", "'10.0.0.2/33' is not"),
        ] {
            let refused = Wire::parse(text).unwrap_err().to_string();
            assert!(refused.contains(wanted), "{text}: {refused}");
        }
    }

    #[test]
    fn the_first_of_two_machines_waits_and_the_other_one_calls() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        // The name of one that was killed.
        drop(UnixListener::bind(&path).unwrap());
        let wire = Wire { name: None, to: WireEnd::Socket(path.clone()), addresses: vec![] };
        let first = wire.plug(0, AGAIN).unwrap();
        assert!(first.backend.starts_with("stream,server=on,addr.type=fd,addr.str="), "{}", first.backend);
        let second = wire.plug(1, AGAIN).unwrap();
        let calls =
            format!("stream,server=off,addr.type=unix,addr.path={},reconnect=1,id=wire1", path.display());
        assert_eq!((second.backend.as_str(), second.fd.is_none()), (calls.as_str(), true));
        // What asked whether somebody answers came first, and is gone.
        let listener = UnixListener::from(first.fd.as_ref().unwrap().try_clone().unwrap());
        assert_eq!(listener.accept().unwrap().0.read(&mut [0]).unwrap(), 0);
        drop(second);
        assert!(path.exists());
        drop(first);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        let refused = wire.plug(0, AGAIN).err().unwrap().to_string();
        assert!(refused.contains("this is a file, and no socket"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_tap_is_made_by_its_owner() {
        let wire = Wire { name: None, to: WireEnd::Tap("pathlab-none".into()), addresses: vec![] };
        let refused = wire.plug(0, AGAIN).err().unwrap().to_string();
        assert!(refused.contains("there is no tap 'pathlab-none'"), "{refused}");
    }
}
