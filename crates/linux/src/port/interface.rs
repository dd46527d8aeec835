//! The interface under a port: what is known of it at the opening, and whether it is still there.

use super::{PortError, PortResult};
use crate::netlink::{LinkState, Netlink};
use crate::sys::packet;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use record::unit::some_names;
use record::{Problem, Result};
use std::os::fd::OwnedFd;

/// `NETDEV_XDP_ACT_NDO_XMIT`: frames that were redirected to the interface can leave through it.
const XDP_TRANSMIT: u64 = 1 << 2;

/// What the kernel told of an interface.
#[derive(Debug, Clone)]
pub(in crate::port) struct Interface {
    pub link: LinkState,
    /// Receive queues in use; 1 where the driver does not tell.
    pub queues: u32,
    /// `enum netdev_xdp_act`; none where the kernel does not tell.
    pub xdp: Option<u64>,
}

impl Interface {
    /// Asks in the namespace of the calling thread. `place` is what the user wrote.
    pub fn find(name: &str, place: &str) -> Result<Interface> {
        let refused = |e| Problem::host(format!("cannot ask for the interfaces: {e}")).at(place);
        let mut netlink = Netlink::open();
        let links = netlink.links().map_err(refused)?;
        let Some(link) = links.iter().find(|link| link.name == name) else {
            let asked = packet::any_socket()
                .and_then(|socket| packet::name_of(&socket, packet::interface_named(&socket, name)?.index));
            if let Ok(real) = asked {
                return Err(alternative(name, &real).at(place));
            }
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(Problem::input(format!("there is no interface '{name}' here"))
                .at(place)
                .help(format!("the interfaces of this namespace are {}", some_names(&names))));
        };
        let queues = netlink.queues(link.index).ok().flatten().map_or(1, |(receive, _)| receive.max(1));
        let xdp = netlink.xdp_features(link.index).ok().flatten();
        Ok(Interface { link: link.clone(), queues, xdp })
    }

    /// Whether frames that are redirected to it can leave: a driver may lack the function, and a veth has it only
    /// while its other end has an XDP program or GRO. None where the kernel does not tell.
    pub fn takes_redirected(&self) -> Option<bool> {
        self.xdp.map(|features| features & XDP_TRANSMIT != 0)
    }
}

/// The refusal of an alternative name: the kernel opens an interface by it, but counters, links and what others say of the
/// interface are found by its name alone.
pub(in crate::port) fn alternative(name: &str, real: &str) -> Problem {
    Problem::input(format!("'{name}' is an alternative name of the interface '{real}'"))
        .help(format!("use '{real}'"))
}

/// How an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::port) enum Health {
    Up,
    Down,
    Gone,
}

/// Asks after an interface again and again, from whatever namespace the thread is in.
#[derive(Debug)]
pub(in crate::port) struct Probe {
    socket: OwnedFd,
    index: u32,
    last: Health,
}

impl Probe {
    /// A probe for an interface of the calling thread's namespace.
    pub fn open(index: u32) -> Result<Probe> {
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|e| Problem::host(format!("cannot open a socket: {e}")))?;
        Ok(Probe { socket, index, last: Health::Up })
    }

    /// How it was when [`Probe::check`] asked last.
    pub fn last(&self) -> Health {
        self.last
    }

    /// How it is now; by its index, for it may have been given another name.
    pub fn health(&self) -> Health {
        match packet::is_running(&self.socket, self.index as i32) {
            Ok(true) => Health::Up,
            Ok(false) => Health::Down,
            Err(_) => Health::Gone,
        }
    }

    /// An error when the interface is gone, from then on always, or when it went down since the last time that was said.
    pub fn check(&mut self) -> PortResult<()> {
        if self.last == Health::Gone {
            return Err(PortError::Gone);
        }
        let before = self.last;
        self.last = self.health();
        match self.last {
            Health::Gone => Err(PortError::Gone),
            Health::Down if before != Health::Down => Err(PortError::Down),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netns;
    use std::os::fd::AsFd;
    use std::process::Command;
    use std::time::{Duration, Instant};

    fn ip(arguments: &str) {
        let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip is installed");
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn index(name: &str) -> u32 {
        Interface::find(name, "test").expect("it was made").link.index
    }

    #[test]
    fn an_interface_with_a_carrier_is_never_called_down_and_one_without_is() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: health: needs root (network namespaces)");
        };
        netns::within(inside.as_fd(), || {
            for round in 0..20 {
                ip("link add h0 type veth peer name h1");
                ip("link set h1 up");
                let probe = Probe::open(index("h0")).unwrap();
                assert_eq!(probe.health(), Health::Down);
                ip("link set h0 up");
                // The link watch may not have seen it yet.
                assert_eq!(probe.health(), Health::Up, "round {round}");
                ip("link set h1 down");
                let until = Instant::now() + Duration::from_secs(60);
                while probe.health() == Health::Up {
                    assert!(Instant::now() < until, "a carrier that is gone is not noticed");
                    std::thread::sleep(Duration::from_millis(5));
                }
                ip("link del h0");
                assert_eq!(probe.health(), Health::Gone);
            }
        })
        .unwrap();
    }

    #[test]
    fn an_interface_that_gets_another_name_is_not_gone() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: health: needs root (network namespaces)");
        };
        netns::within(inside.as_fd(), || {
            ip("link add h0 type veth peer name h1");
            ip("link set h1 up");
            ip("link set h0 up");
            let probe = Probe::open(index("h0")).unwrap();
            let line =
                "for i in $(seq 50); do ip link set h0 name h9 && ip link set h9 name h0 || exit 1; done";
            let mut renaming = Command::new("sh").args(["-c", line]).spawn().unwrap();
            let status = loop {
                assert_eq!(probe.health(), Health::Up);
                if let Some(status) = renaming.try_wait().unwrap() {
                    break status;
                }
            };
            assert!(status.success());
        })
        .unwrap();
    }

    #[test]
    fn an_alternative_name_is_refused_with_the_name_that_counts() {
        let inside = nix::unistd::geteuid().is_root().then(netns::create);
        let Some(Ok(inside)) = inside else {
            return println!("SKIP: alternative names: needs root (network namespaces)");
        };
        netns::within(inside.as_fd(), || {
            ip("link add h0 type veth peer name h1");
            ip("link property add dev h0 altname enx1");
            for kind in ["int", "ring", "xdp"] {
                let uri = format!("{kind}:enx1");
                let refused = crate::port::open(&uri, &Default::default()).unwrap_err().to_string();
                assert_eq!(
                    refused,
                    format!("{uri}: 'enx1' is an alternative name of the interface 'h0'; use 'h0'")
                );
            }
        })
        .unwrap();
    }
}
