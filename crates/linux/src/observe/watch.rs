//! Everything that `pathlab watch` reads, of some nodes and of the host, in one pass.
//!
//! **What.** The snapshot of [`Observer`], and beside it interrupts, TCP connections, queues of interfaces, line rates, and what
//! the programs count of soft interrupts ([`super::polls::PollCounters::softirqs`]).
//!
//! **Price.** That of a snapshot, of a dump of TCP connections, and of some files in sysfs for each interface; every reading
//! states its CPU time.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use record::Result;
use record::connection::Reading;
use record::watch::{LineRate, NodeQueue, ReceiveQueueCount, TcpSocket, WatchReading};

use super::polls::PollCounters;
use super::queues::Queues;
use super::{Observer, TcpSockets, interrupts, llstat};
use crate::namespace::{NamespaceChanges, NamespaceWatch};
use crate::sys::{clock, netns};

/// The sources of a node beside its snapshot.
#[derive(Debug)]
struct Beside {
    node: String,
    /// Or why they cannot be asked for.
    tcp: io::Result<TcpSockets>,
    sysfs: Option<OwnedFd>,
    queues: Option<Queues>,
}

/// All sources.
#[derive(Debug)]
pub struct Watch {
    observer: Observer,
    beside: Vec<Beside>,
    polls: Option<PollCounters>,
    /// None where the nodes stay.
    namespaces: Option<NamespaceWatch>,
    /// What cannot be told, each with its reason.
    pub missing: Vec<String>,
}

impl Watch {
    /// Opens the sources of these nodes, each inside its namespace.
    ///
    /// # Errors
    /// A `Host` problem when a namespace cannot be entered or has no netlink.
    pub fn open(nodes: &[(String, BorrowedFd<'_>)]) -> Result<Watch> {
        let observer = Observer::new(nodes)?;
        let beside = |(name, namespace): &(String, BorrowedFd<'_>)| {
            netns::within(*namespace, || Beside::here(name))
                .map_err(|error| super::unobservable(name, &error))
        };
        Ok(Self::of(observer, nodes.iter().map(beside).collect::<Result<_>>()?))
    }

    /// The same of namespaces that may go, and come again: one that everybody else has left is let go, and told as missing.
    ///
    /// # Errors
    /// As [`Watch::open`].
    pub fn of_namespaces(namespaces: &[(String, OwnedFd)]) -> Result<Watch> {
        let nodes: Vec<_> = namespaces.iter().map(|(name, file)| (name.clone(), file.as_fd())).collect();
        Ok(Watch { namespaces: Some(NamespaceWatch::given(namespaces)), ..Self::open(&nodes)? })
    }

    /// Opens the sources of the namespace of the calling thread, as one node named `host`.
    ///
    /// # Errors
    /// A `Host` problem when there is no netlink.
    pub fn here() -> Result<Watch> {
        Ok(Self::of(Observer::host()?, vec![Beside::here("host")]))
    }

    fn of(observer: Observer, beside: Vec<Beside>) -> Watch {
        let (polls, missing) = match PollCounters::softirqs() {
            Ok(polls) => (Some(polls), vec![]),
            Err(why) => (None, vec![format!("why soft interrupts were squeezed: {why}")]),
        };
        Watch { observer, beside, polls, namespaces: None, missing }
    }

    /// Lets go of namespaces that went, and opens those that came again.
    fn keep_up(&mut self) -> Result<()> {
        let Some(namespaces) = &mut self.namespaces else { return Ok(()) };
        let NamespaceChanges { went, came } = namespaces.changes_in_time();
        let words = |node: &str| format!("{node}: its namespace is gone");
        for node in went {
            self.observer.leave(&node);
            self.beside.retain(|beside| beside.node != node);
            self.missing.push(words(&node));
        }
        for (node, namespace) in came {
            self.observer.enter(&node, namespace.as_fd())?;
            let beside = netns::within(namespace.as_fd(), || Beside::here(&node));
            self.beside.push(beside.map_err(|error| super::unobservable(&node, &error))?);
            self.missing.retain(|missing| *missing != words(&node));
        }
        Ok(())
    }

    /// Reads everything once.
    ///
    /// # Errors
    /// A `Host` problem when a namespace that came again cannot be entered. What cannot be read is named as missing.
    pub fn read(&mut self) -> Result<WatchReading> {
        let cpu = clock::thread_cpu_ns();
        self.keep_up()?;
        let mut reading = WatchReading { snapshot: self.observer.snapshot(&[])?, ..WatchReading::default() };
        match fs::read_to_string("/proc/interrupts") {
            Ok(text) => reading.interrupts = interrupts::parse(&text),
            Err(error) => reading.snapshot.missing.push(format!("/proc/interrupts: {error}")),
        }
        match self.polls.as_ref().map(PollCounters::read).transpose() {
            Ok(polls) => reading.polls = polls,
            Err(error) => reading.snapshot.missing.push(format!("soft interrupts: {error}")),
        }
        self.polls.iter_mut().for_each(PollCounters::end_measuring);
        for beside in &mut self.beside {
            beside.read(&mut reading);
        }
        reading.snapshot.cost_cpu_ns = clock::thread_cpu_ns() - cpu;
        Ok(reading)
    }
}

/// States of connections that have a socket: all but listening, `TCP_TIME_WAIT` and `TCP_NEW_SYN_RECV`.
const CONNECTED: u32 = 0xfff & !(1 << 10) & !(1 << 6) & !1;

/// What a watch shows of a connection; none when the kernel tells nothing of it.
fn socket(reading: Reading) -> Option<TcpSocket> {
    let end = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port()).to_string();
    Some(TcpSocket {
        local: end(reading.connection.local),
        remote: end(reading.connection.peer),
        node: reading.connection.node,
        inode: reading.connection.inode.into(),
        unread_bytes: reading.receive_queue,
        unacknowledged_bytes: reading.send_queue,
        info: reading.sample?,
    })
}

impl Beside {
    /// Opens everything in the namespace of the calling thread.
    fn here(node: &str) -> Beside {
        let tcp = TcpSockets::here(node, CONNECTED);
        Beside { node: node.to_owned(), tcp, sysfs: llstat::sysfs().ok(), queues: Queues::open().ok() }
    }

    fn read(&mut self, reading: &mut WatchReading) {
        let found = match &mut self.tcp {
            Ok(sockets) => sockets.read(),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match found {
            Ok(found) => reading.tcp.extend(found.into_iter().filter_map(socket)),
            Err(error) => reading.snapshot.missing.push(format!("{}: TCP connections: {error}", self.node)),
        }
        let links = reading.snapshot.nodes.get(&self.node).map_or(&[][..], |found| &found.links);
        for link in links {
            let (node, interface) = (self.node.clone(), link.name.clone());
            for found in
                self.queues.as_mut().and_then(|queues| queues.read(link.index).ok()).unwrap_or_default()
            {
                reading.receive_queues.push(ReceiveQueueCount {
                    node: node.clone(),
                    interface: interface.clone(),
                    queue: found.number,
                    counters: found.counters,
                });
            }
            let Some(folder) = self.folder(&interface) else { continue };
            let limits = llstat::queue_limits(&folder.join("queues")).into_iter();
            reading.transmit_queues.extend(limits.map(|limit| NodeQueue {
                node: node.clone(),
                interface: interface.clone(),
                limit,
            }));
            reading.line_rates.extend(line_rate(&folder).map(|rate_bps| LineRate {
                node,
                interface,
                rate_bps,
            }));
        }
    }

    fn folder(&self, interface: &str) -> Option<PathBuf> {
        let root = self.sysfs.as_ref()?.as_raw_fd();
        Some(PathBuf::from(format!("/proc/self/fd/{root}/class/net/{interface}")))
    }
}

/// The line rate of an interface with a device below it. Links without one (veth, tun, bridges) tell a speed that is no wire's.
fn line_rate(folder: &std::path::Path) -> Option<u64> {
    folder.join("device").exists().then_some(())?;
    let mbit: i64 = fs::read_to_string(folder.join("speed")).ok()?.trim().parse().ok()?;
    u64::try_from(mbit).ok().filter(|mbit| *mbit > 0).map(|mbit| mbit * 1_000_000)
}
