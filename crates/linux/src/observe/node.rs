//! The sources of one node: sockets and files that were opened inside its namespace and stay bound to it.
//!
//! A `/proc/net` file belongs to the namespace of the thread that opened it, so everything is opened once on a thread
//! inside, and read from the start afterwards, from any thread. An open source keeps its namespace alive.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::BorrowedFd;

use record::snapshot::NodeSnapshot;

use super::packet_sockets::Owners;
use super::quick::Quick;
use super::{filters, links, neighbours, packet_sockets, protocols, qdiscs, sockets};
use crate::netlink::{Dump, Family, Netlink};
use crate::sys::netns;

/// Room for a file under `/proc`; longer ones get more.
const ROOM_BYTES: usize = 16 * 1024;

/// A file under `/proc`, read anew each time.
#[derive(Debug)]
pub(super) struct Source {
    name: String,
    file: io::Result<File>,
}

impl Source {
    /// Opens `/proc/thread-self/net/NAME` in the namespace of the calling thread.
    pub fn net(name: &str) -> Source {
        Self::open(name, &format!("/proc/thread-self/net/{name}"))
    }

    pub fn open(name: &str, path: &str) -> Source {
        Source { name: name.to_owned(), file: File::open(path) }
    }

    /// Gives the text to `work`, or says why there is none. A source that this kernel does not have says nothing: it
    /// was noted when it was opened.
    pub fn read(&self, missing: &mut Vec<String>, work: impl FnOnce(&str)) {
        let Ok(file) = &self.file else { return };
        match read_from_start(file) {
            Ok(bytes) => work(&String::from_utf8_lossy(&bytes)),
            Err(error) => missing.push(format!("{}: {error}", self.name)),
        }
    }

    fn absence(&self) -> Option<String> {
        self.file.as_ref().err().map(|error| format!("{}: {error}", self.name))
    }
}

/// Reads until the end; what was read of a file under `/proc` up to its end is one state for short files and a walk for long
/// tables.
fn read_from_start(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(ROOM_BYTES);
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub name: String,
    netlink: Netlink,
    snmp: Source,
    netstat: Source,
    snmp6: Source,
    sockets: Vec<Source>,
}

impl Node {
    /// Opens everything inside that namespace.
    pub fn enter(name: &str, namespace: BorrowedFd<'_>) -> io::Result<Node> {
        netns::within(namespace, || Node::here(name))?
    }

    /// Opens everything in the namespace of the calling thread.
    pub fn here(name: &str) -> io::Result<Node> {
        let mut netlink = Netlink::open();
        netlink.prepare(Family::Route)?;
        // Where a kernel lacks one of these, every dump says so.
        let _ = (netlink.prepare(Family::Netfilter), netlink.prepare(Family::SockDiag));
        Ok(Node {
            name: name.to_owned(),
            netlink,
            snmp: Source::net("snmp"),
            netstat: Source::net("netstat"),
            snmp6: Source::net("snmp6"),
            sockets: sockets::FILES.iter().map(|name| Source::net(name)).collect(),
        })
    }

    /// Reads everything.
    pub fn snapshot(&mut self, missing: &mut Vec<String>) -> NodeSnapshot {
        let files = [&self.snmp, &self.netstat, &self.snmp6].into_iter().chain(&self.sockets);
        let mut own: Vec<String> = files.filter_map(Source::absence).collect();
        let mut hidden = vec![];
        let mut snapshot = self.read(&mut own, &mut hidden);
        self.netstat.read(&mut own, |text| protocols::parse_pairs(text, &mut snapshot.protocols));
        self.read_filters(&mut snapshot, &mut own);
        missing.extend(own.into_iter().chain(hidden).map(|why| format!("{}: {why}", self.name)));
        snapshot
    }

    /// Reads what [`Quick`] compares.
    pub fn quick(&mut self, owners: &Owners, quick: &mut Quick, missing: &mut Vec<String>) {
        // Where the kernel does not show packet sockets, a snapshot has said so.
        let found = self.read(missing, &mut vec![]);
        quick.add_node(&self.name, &found, owners);
    }

    /// Reads all that may move; `hidden` gets why packet sockets are not shown.
    fn read(&mut self, missing: &mut Vec<String>, hidden: &mut Vec<String>) -> NodeSnapshot {
        let mut found = NodeSnapshot::default();
        self.snmp.read(missing, |text| protocols::parse_pairs(text, &mut found.protocols));
        self.snmp6.read(missing, |text| protocols::parse_lines(text, &mut found.protocols));
        for source in &self.sockets {
            source.read(missing, |text| found.sockets.extend(sockets::parse(&source.name, text)));
        }
        found.links = self.list(("links", &links::DUMP), missing, links::parse);
        let names = found.links.iter().map(|link| (link.index, link.name.clone())).collect();
        let qdisc = |message: &[u8]| qdiscs::parse(message, &names);
        found.qdiscs = self.list(("qdiscs", &qdiscs::DUMP), missing, qdisc);
        let packet_socket = |message: &[u8]| packet_sockets::parse(message, &names);
        found.packet_sockets = self.list(("packet sockets", &packet_sockets::DUMP), hidden, packet_socket);
        let neighbour = |message: &[u8]| neighbours::parse(message, &names);
        found.neighbours = self.list(("neighbours", &neighbours::DUMP), missing, neighbour);
        found
    }

    /// One dump as a list; a failure leaves the list empty and says why.
    fn list<T>(
        &mut self,
        (what, request): (&str, &Dump<'_>),
        missing: &mut Vec<String>,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Vec<T> {
        self.netlink.dump(request, parse).unwrap_or_else(|error| {
            missing.push(format!("{what}: {error}"));
            vec![]
        })
    }

    fn read_filters(&mut self, snapshot: &mut NodeSnapshot, missing: &mut Vec<String>) {
        let failed = missing.len();
        let chains = self.list(("filters", &filters::CHAINS), missing, filters::parse_chain);
        if missing.len() > failed || chains.is_empty() {
            return;
        }
        let rules = self.list(("filters", &filters::RULES), missing, filters::parse_rule);
        snapshot.filters = filters::samples(&chains, &rules);
    }
}
