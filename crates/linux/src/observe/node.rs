//! The sources of one node: sockets and files that were opened inside its namespace and stay bound to it.
//!
//! A `/proc/net` file belongs to the namespace of the thread that opened it, so everything is opened once on a thread
//! inside, and read with `pread` from offset 0 afterwards, from any thread. An open source keeps its namespace alive.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use record::snapshot::{
    Counters, LinkSample, NeighbourSample, NodeSnapshot, PacketSocketSample, QdiscSample, SocketSample,
};

use super::packet_sockets::Owners;
use super::quick::Quick;
use super::{filters, links, neighbours, packet_sockets, protocols, qdiscs, sockets};
use crate::netlink::{BUFFER_BYTES, Dump, Family, Netlink};
use crate::sys::netns;

/// Buffers that all sources share.
#[derive(Debug)]
pub(super) struct Buffers {
    pub bytes: Vec<u8>,
}

impl Buffers {
    pub fn new() -> Self {
        Buffers { bytes: vec![0; BUFFER_BYTES] }
    }
}

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
    pub fn read(&self, buffers: &mut Buffers, missing: &mut Vec<String>, mut work: impl FnMut(&str)) {
        let Ok(file) = &self.file else { return };
        match read_from_start(file, &mut buffers.bytes) {
            Ok(length) => work(&String::from_utf8_lossy(&buffers.bytes[..length])),
            Err(error) => missing.push(format!("{}: {error}", self.name)),
        }
    }

    fn absence(&self) -> Option<String> {
        self.file.as_ref().err().map(|error| format!("{}: {error}", self.name))
    }
}

/// Reads until the end, growing the buffer as needed; what was read of a file under `/proc` up to its end is one state
/// for short files and a walk for long tables.
fn read_from_start(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => return Ok(length),
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
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
    pub fn snapshot(&mut self, buffers: &mut Buffers, missing: &mut Vec<String>) -> NodeSnapshot {
        let mut snapshot = NodeSnapshot::default();
        let mut own = self.absences();
        self.read_protocols(buffers, &mut own, &mut snapshot.protocols);
        snapshot.sockets = self.read_sockets(buffers, &mut own);
        snapshot.links = self.read_links(buffers, &mut own);
        let names = index(&snapshot.links);
        snapshot.qdiscs = self.read_qdiscs(buffers, &mut own, &names);
        snapshot.packet_sockets = self.read_packet_sockets(buffers, &mut own, &names);
        snapshot.neighbours = self.read_neighbours(buffers, &mut own, &names);
        self.read_filters(buffers, &mut snapshot, &mut own);
        missing.extend(own.into_iter().map(|why| format!("{}: {why}", self.name)));
        snapshot
    }

    /// Reads what [`Quick`] compares.
    pub fn quick(
        &mut self,
        buffers: &mut Buffers,
        owners: &Owners,
        quick: &mut Quick,
        missing: &mut Vec<String>,
    ) {
        let mut counters = Counters::new();
        self.snmp.read(buffers, missing, |text| protocols::parse_pairs(text, &mut counters));
        self.snmp6.read(buffers, missing, |text| protocols::parse_lines(text, &mut counters));
        quick.add_protocols(&self.name, &counters);
        self.read_sockets(buffers, missing).iter().for_each(|socket| quick.add_socket(&self.name, socket));
        let links = self.read_links(buffers, missing);
        links.iter().for_each(|link| quick.add_link(&self.name, link));
        let names = index(&links);
        let qdiscs = self.read_qdiscs(buffers, missing, &names);
        qdiscs.iter().for_each(|qdisc| quick.add_qdisc(&self.name, qdisc));
        // Where the kernel does not show packet sockets, a snapshot has said so.
        let sockets = self.read_packet_sockets(buffers, &mut vec![], &names);
        let of_programs = sockets.iter().filter(|socket| owners.is_of_a_program(socket));
        of_programs.for_each(|socket| quick.add_packet_socket(&self.name, socket));
        let neighbours = self.read_neighbours(buffers, missing, &names);
        neighbours.iter().for_each(|neighbour| quick.add_neighbour(&self.name, neighbour));
    }

    fn read_protocols(&self, buffers: &mut Buffers, missing: &mut Vec<String>, into: &mut Counters) {
        self.snmp.read(buffers, missing, |text| protocols::parse_pairs(text, into));
        self.netstat.read(buffers, missing, |text| protocols::parse_pairs(text, into));
        self.snmp6.read(buffers, missing, |text| protocols::parse_lines(text, into));
    }

    fn read_sockets(&self, buffers: &mut Buffers, missing: &mut Vec<String>) -> Vec<SocketSample> {
        let mut found = Vec::new();
        for source in &self.sockets {
            source.read(buffers, missing, |text| found.extend(sockets::parse(&source.name, text)));
        }
        found
    }

    fn read_links(&mut self, buffers: &mut Buffers, missing: &mut Vec<String>) -> Vec<LinkSample> {
        let parse = |found: &mut Vec<LinkSample>, message: &[u8]| found.extend(links::parse(message));
        dump(&mut self.netlink, buffers, ("links", &links::DUMP), missing, parse)
    }

    fn read_qdiscs(
        &mut self,
        buffers: &mut Buffers,
        missing: &mut Vec<String>,
        names: &BTreeMap<u32, String>,
    ) -> Vec<QdiscSample> {
        let parse =
            |found: &mut Vec<QdiscSample>, message: &[u8]| found.extend(qdiscs::parse(message, names));
        dump(&mut self.netlink, buffers, ("qdiscs", &qdiscs::DUMP), missing, parse)
    }

    fn read_packet_sockets(
        &mut self,
        buffers: &mut Buffers,
        missing: &mut Vec<String>,
        names: &BTreeMap<u32, String>,
    ) -> Vec<PacketSocketSample> {
        let parse = |found: &mut Vec<PacketSocketSample>, message: &[u8]| {
            found.extend(packet_sockets::parse(message, names))
        };
        dump(&mut self.netlink, buffers, ("packet sockets", &packet_sockets::DUMP), missing, parse)
    }

    fn read_neighbours(
        &mut self,
        buffers: &mut Buffers,
        missing: &mut Vec<String>,
        names: &BTreeMap<u32, String>,
    ) -> Vec<NeighbourSample> {
        let parse = |found: &mut Vec<NeighbourSample>, message: &[u8]| {
            found.extend(neighbours::parse(message, names))
        };
        dump(&mut self.netlink, buffers, ("neighbours", &neighbours::DUMP), missing, parse)
    }

    fn read_filters(
        &mut self,
        buffers: &mut Buffers,
        snapshot: &mut NodeSnapshot,
        missing: &mut Vec<String>,
    ) {
        let failed = missing.len();
        let chains =
            |found: &mut Vec<filters::Chain>, message: &[u8]| found.extend(filters::parse_chain(message));
        let chains = dump(&mut self.netlink, buffers, ("filters", &filters::CHAINS), missing, chains);
        if missing.len() > failed || chains.is_empty() {
            return;
        }
        let rules =
            |found: &mut Vec<filters::Rule>, message: &[u8]| found.extend(filters::parse_rule(message));
        let rules = dump(&mut self.netlink, buffers, ("filters", &filters::RULES), missing, rules);
        snapshot.filters = filters::samples(&chains, &rules);
    }
}

/// One dump into a list; a failure leaves the list empty and says why.
fn dump<T>(
    netlink: &mut Netlink,
    buffers: &mut Buffers,
    (what, request): (&str, &Dump<'_>),
    missing: &mut Vec<String>,
    each: impl Fn(&mut Vec<T>, &[u8]),
) -> Vec<T> {
    let mut found = Vec::new();
    if let Err(error) = netlink.dump(request, &mut buffers.bytes, &mut found, Vec::clear, each) {
        missing.push(format!("{what}: {error}"));
        found.clear();
    }
    found
}

fn index(links: &[LinkSample]) -> BTreeMap<u32, String> {
    links.iter().map(|link| (link.index, link.name.clone())).collect()
}
