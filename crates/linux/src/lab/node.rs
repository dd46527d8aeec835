//! One host of a lab: a network namespace with a name.

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use record::{Problem, Result};

use super::topology::Prefix;
use crate::netlink::{LinkState, Netlink, Refusal};
use crate::sys::{mount, netns, process};

/// A host of a lab that is up.
#[derive(Debug, Clone)]
pub struct Node {
    name: String,
    netns: Arc<OwnedFd>,
    inode: u64,
    /// Addresses as the topology says, for when the kernel cannot be asked.
    declared: Vec<Prefix>,
}

impl Node {
    pub(super) fn new(name: &str, netns: OwnedFd, declared: Vec<Prefix>) -> io::Result<Self> {
        let inode = netns::inode(netns.as_fd())?;
        Ok(Node { name: name.into(), netns: Arc::new(netns), inode, declared })
    }

    /// The one of that name.
    pub(super) fn named<'a>(nodes: &'a [Node], name: &str) -> Option<&'a Node> {
        nodes.iter().find(|node| node.name() == name)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its network namespace.
    pub fn netns(&self) -> BorrowedFd<'_> {
        self.netns.as_fd()
    }

    /// The number of its namespace, as `lsns` shows it.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Runs `work` inside the node, on a thread of its own that ends with it.
    ///
    /// # Errors
    /// A host problem when the namespace cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        netns::within(self.netns(), work).map_err(|error| {
            Problem::host(format!("cannot enter the node's namespace: {error}"))
                .at(format!("node {}", self.name))
                .help("this needs CAP_SYS_ADMIN; run as the user who built the lab")
        })
    }

    /// Asks the kernel inside the node.
    ///
    /// # Errors
    /// A host problem with the kernel's refusal, and the node as its place.
    pub fn ask<T: Send>(&self, ask: impl FnOnce(&mut Netlink) -> Result<T, Refusal> + Send) -> Result<T> {
        self.within(|| ask(&mut Netlink::open()))?.map_err(|refusal| self.host_problem(refusal))
    }

    pub(super) fn host_problem(&self, what: impl Display) -> Problem {
        Problem::host(what.to_string()).at(format!("node {}", self.name))
    }

    /// A command whose program will run inside the node, and be killed when the thread that started it ends.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        process::enter(&mut command, Arc::clone(&self.netns), false);
        command
    }

    /// Moves the calling process, which must have one thread, into the node, with a `/sys` that shows the node's
    /// interfaces where that is permitted.
    ///
    /// # Errors
    /// A host problem when the namespace cannot be entered.
    pub fn enter(&self) -> Result<()> {
        netns::enter(self.netns()).map_err(|error| {
            self.host_problem(format!("cannot enter its namespace: {error}"))
                .help("this needs CAP_SYS_ADMIN; run as the user who built the lab")
        })?;
        // Programs that read /sys/class/net see the host's interfaces then; most ask by netlink.
        let _ = mount::own_sysfs();
        Ok(())
    }

    /// The addresses (4 or 6) that others can reach, first those that the topology gave and that are still there, then
    /// those that somebody added. As the topology says when the kernel cannot be asked.
    pub fn addresses(&self, family: u8) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self.declared.iter().map(|prefix| prefix.address).collect();
        if let Ok(now) = self.ask(Netlink::addresses) {
            addresses.retain(|address| now.iter().any(|(_, prefix)| prefix.address == *address));
            let added =
                now.iter().map(|(_, prefix)| prefix.address).filter(|address| !addresses.contains(address));
            let added: Vec<IpAddr> = added.collect();
            addresses.extend(added);
        }
        addresses.retain(|address| address.is_ipv4() == (family == 4));
        addresses
    }

    /// Every link of the node, as the kernel shows it.
    ///
    /// # Errors
    /// A host problem when the kernel cannot be asked.
    pub fn links(&self) -> Result<Vec<LinkState>> {
        self.ask(Netlink::links)
    }

    /// The processes inside: id and name. This process is left out, and so are those this user may not look at.
    pub fn processes(&self) -> Vec<(u32, String)> {
        process::in_namespace(self.inode)
    }
}

/// Writes one setting of the namespace of the calling thread. `key` is as in a topology.
pub(crate) fn write_sysctl(key: &str, value: &str) -> io::Result<()> {
    let relative = if key.contains('/') { key.to_string() } else { key.replace('.', "/") };
    fs::write(PathBuf::from("/proc/sys").join(relative), value)
}

pub(super) fn refused(place: &str, refusal: Refusal) -> Problem {
    lacking(place, refusal, "a part (veth, bridge, sch_tbf or IPv6)")
}

/// What the kernel says, and which part it may lack.
pub(super) fn lacking(place: &str, refusal: Refusal, part: &str) -> Problem {
    let problem = Problem::host(format!("the kernel refuses: {refusal}")).at(place);
    match refusal.errno {
        Some(libc::EOPNOTSUPP | libc::ENOENT) => problem.help(format!("this kernel lacks {part}")),
        Some(libc::EPERM) => problem.help("this needs CAP_NET_ADMIN"),
        _ => problem,
    }
}
