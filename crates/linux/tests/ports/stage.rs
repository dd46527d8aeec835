//! Namespaces and interfaces for one test; gone when it ends.

pub use crate::support::may_run;
use linux::lab::topology::{InterfaceSpec, OffloadFeature, Prefix};
use linux::netlink::Netlink;
use linux::port::{Frames, Hand, Meta, Port, PortOptions, Wait, open};
use linux::sys::netns;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

/// A namespace that exists as long as this descriptor, and sends nothing by itself.
pub struct Space(OwnedFd);

impl Space {
    pub fn new() -> Space {
        let space = Space(netns::create().unwrap());
        space.within(|| {
            for file in ["all", "default"] {
                // A kernel without IPv6 has no such file, and nothing to be silenced.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{file}/disable_ipv6"), "1");
            }
        });
        space
    }

    /// Where others find it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        netns::within(self.0.as_fd(), work).unwrap()
    }

    /// Opens a port. A program that another test is just starting holds copies of all our descriptors until its `exec`,
    /// so what was closed a moment ago may still be attached.
    pub fn open(&self, uri: &str, wish: &PortOptions) -> Port {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match self.within(|| open(uri, wish)) {
                Ok(port) => return port,
                Err(problem) if problem.what.contains("is attached") && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(problem) => panic!("{uri}: {problem}"),
            }
        }
    }

    /// `ip ARGUMENTS` inside.
    pub fn ip(&self, arguments: &str) {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let output = self.within(|| {
            Command::new("ip")
                .env("PATH", path)
                .args(arguments.split_whitespace())
                .output()
                .expect("iproute2")
        });
        assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn index(&self, name: &str) -> u32 {
        let links = self.within(|| Netlink::open().links().unwrap());
        links.iter().find(|link| link.name == name).unwrap_or_else(|| panic!("no {name}")).index
    }

    /// Switches all offloads that an interface lets us switch.
    pub fn offloads(&self, name: &str, on: bool) {
        let index = self.index(name);
        self.within(|| {
            let mut netlink = Netlink::open();
            for offload in OffloadFeature::ALL {
                let changed = netlink.set_offloads(index, &[(offload, on)].into());
                // What is fixed in the driver cannot be switched; the two that matter must be.
                if matches!(offload, OffloadFeature::Tso | OffloadFeature::Tx) {
                    changed.unwrap();
                }
            }
            let state = netlink.offloads(index).unwrap();
            assert_eq!(state.get(&OffloadFeature::Tso), Some(&on), "{name}: {state:?}");
        });
    }

    pub fn address(&self, name: &str, address: &str) {
        let index = self.index(name);
        let (address, length) = address.split_once('/').unwrap();
        let prefix = Prefix { address: address.parse().unwrap(), length: length.parse().unwrap() };
        self.within(|| Netlink::open().add_address(index, prefix).unwrap());
    }

    pub fn up(&self, name: &str) {
        let index = self.index(name);
        self.within(|| Netlink::open().set_up(index).unwrap());
    }
}

/// Joins two namespaces by a veth pair and switches both ends on. `on`: their offloads.
pub fn join(a: (&Space, &str), b: (&Space, &str), on: bool) {
    let specs = [InterfaceSpec::new("a", a.1), InterfaceSpec::new("b", b.1)];
    // Indices are per namespace; these are free in a new one.
    let index = |space: &Space| {
        let links = space.within(|| Netlink::open().links().unwrap());
        links.iter().map(|link| link.index).max().unwrap_or(0) + 10
    };
    let (ia, ib) = (index(a.0), index(b.0));
    let other = b.0.0.as_fd();
    a.0.within(|| Netlink::open().create_veth(&specs[0].link(ia), &specs[1].link(ib), other).unwrap());
    for (space, name) in [a, b] {
        space.offloads(name, on);
        space.up(name);
    }
    // Until the kernel has noticed the carrier it drops what is sent and says that all is well; no state that it tells
    // is a proof, only a frame that arrives.
    prove(a, b);
    prove(b, a);
}

/// Sends frames until one arrives.
fn prove(from: (&Space, &str), to: (&Space, &str)) {
    let mut sender = from.0.open(&format!("int:{}", from.1), &PortOptions::default());
    let mut receiver = to.0.open(&format!("int:{}", to.1), &PortOptions::default());
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut probe = Frames::new(1, 64);
    assert!(probe.push(&[0x02; 60], Meta::default()));
    loop {
        let _ = sender.transmitter.as_mut().unwrap().transmit(&mut probe.batch(), &[0], Hand::Copy);
        let came = receiver.receiver.as_mut().unwrap().receive(1, Wait::For(Duration::from_millis(5)));
        if came.is_ok_and(|batch| !batch.is_empty()) {
            return;
        }
        assert!(Instant::now() < deadline, "{} does not come up", from.1);
    }
}
