//! The sources of one node: sockets and files that were opened inside its namespace and stay bound to it.
//!
//! A `/proc/net` file belongs to the namespace of the thread that opened it, so everything is opened once on a thread
//! inside, and read from the start afterwards, from any thread. An open source keeps its namespace alive.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::BorrowedFd;

use record::snapshot::{
    Counters, LinkSample, NeighbourSample, NodeSnapshot, PacketSocketSample, QdiscSample, SocketSample,
};

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

    /// Sources that this kernel does not have in this namespace.
    pub fn absences(&self) -> Vec<String> {
        let files = [&self.snmp, &self.netstat, &self.snmp6].into_iter().chain(&self.sockets);
        files.filter_map(Source::absence).collect()
    }

    /// Reads everything.
    pub fn snapshot(&mut self, missing: &mut Vec<String>) -> NodeSnapshot {
        let mut snapshot = NodeSnapshot::default();
        let mut own = self.absences();
        self.read_protocols(&mut own, &mut snapshot.protocols);
        snapshot.sockets = self.read_sockets(&mut own);
        snapshot.links = self.read_links(&mut own);
        let names = index(&snapshot.links);
        snapshot.qdiscs = self.read_qdiscs(&mut own, &names);
        snapshot.packet_sockets = self.read_packet_sockets(&mut own, &names);
        snapshot.neighbours = self.read_neighbours(&mut own, &names);
        self.read_filters(&mut snapshot, &mut own);
        missing.extend(own.into_iter().map(|why| format!("{}: {why}", self.name)));
        snapshot
    }

    /// Reads what [`Quick`] compares.
    pub fn quick(&mut self, owners: &Owners, quick: &mut Quick, missing: &mut Vec<String>) {
        let mut counters = Counters::new();
        self.snmp.read(missing, |text| protocols::parse_pairs(text, &mut counters));
        self.snmp6.read(missing, |text| protocols::parse_lines(text, &mut counters));
        quick.add_protocols(&self.name, &counters);
        self.read_sockets(missing).iter().for_each(|socket| quick.add_socket(&self.name, socket));
        let links = self.read_links(missing);
        links.iter().for_each(|link| quick.add_link(&self.name, link));
        let names = index(&links);
        let qdiscs = self.read_qdiscs(missing, &names);
        qdiscs.iter().for_each(|qdisc| quick.add_qdisc(&self.name, qdisc));
        // Where the kernel does not show packet sockets, a snapshot has said so.
        let sockets = self.read_packet_sockets(&mut vec![], &names);
        let of_programs = sockets.iter().filter(|socket| owners.is_of_a_program(socket));
        of_programs.for_each(|socket| quick.add_packet_socket(&self.name, socket));
        let neighbours = self.read_neighbours(missing, &names);
        neighbours.iter().for_each(|neighbour| quick.add_neighbour(&self.name, neighbour));
    }

    fn read_protocols(&self, missing: &mut Vec<String>, into: &mut Counters) {
        self.snmp.read(missing, |text| protocols::parse_pairs(text, into));
        self.netstat.read(missing, |text| protocols::parse_pairs(text, into));
        self.snmp6.read(missing, |text| protocols::parse_lines(text, into));
    }

    fn read_sockets(&self, missing: &mut Vec<String>) -> Vec<SocketSample> {
        let mut found = Vec::new();
        for source in &self.sockets {
            source.read(missing, |text| found.extend(sockets::parse(&source.name, text)));
        }
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

    fn read_links(&mut self, missing: &mut Vec<String>) -> Vec<LinkSample> {
        self.list(("links", &links::DUMP), missing, links::parse)
    }

    fn read_qdiscs(&mut self, missing: &mut Vec<String>, names: &BTreeMap<u32, String>) -> Vec<QdiscSample> {
        self.list(("qdiscs", &qdiscs::DUMP), missing, |message| qdiscs::parse(message, names))
    }

    fn read_packet_sockets(
        &mut self,
        missing: &mut Vec<String>,
        names: &BTreeMap<u32, String>,
    ) -> Vec<PacketSocketSample> {
        let parse = |message: &[u8]| packet_sockets::parse(message, names);
        self.list(("packet sockets", &packet_sockets::DUMP), missing, parse)
    }

    fn read_neighbours(
        &mut self,
        missing: &mut Vec<String>,
        names: &BTreeMap<u32, String>,
    ) -> Vec<NeighbourSample> {
        self.list(("neighbours", &neighbours::DUMP), missing, |message| neighbours::parse(message, names))
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

fn index(links: &[LinkSample]) -> BTreeMap<u32, String> {
    links.iter().map(|link| (link.index, link.name.clone())).collect()
}
