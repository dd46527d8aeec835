//! Who else looks at the frames of a node: packet sockets, and programs and filters at its interfaces, that are not of the test.
//!
//! **What.** A packet socket gets a copy of every frame (`tcpdump`); a program at XDP or tc runs for every frame. Both take time that the figure
//! then contains. **Whose.** Those that processes of the test have open, by the inodes of sockets and by the programs in `/proc/PID/fdinfo`, are not
//! foreign.
//!
//! **Price.** A dump of packet sockets and one of links for each node, two questions for each interface; a walk over `/proc` when a foreign
//! socket is seen for the first time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::AsFd;

use record::conditions::{ForeignProgram, Tap};

use super::packet_sockets;
use crate::netlink::{Attributes, Dump, Family, Netlink, after, u32_at};
use crate::sys::bpf::{self, TCX_EGRESS, TCX_INGRESS};

/// `RTM_GETLINK` of every link.
const LINKS: Dump<'static> = Dump { family: Family::Route, kind: 18, body: &[0; 16] };
const RTM_GETTFILTER: u16 = 46;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROG_ID: u16 = 4;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `TCA_BPF_ID`, `TCA_BPF_NAME` (`pkt_cls.h`).
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
/// The parents of filters at `clsact`: `TC_H_CLSACT` with `TC_H_MIN_INGRESS` and `TC_H_MIN_EGRESS`.
const PARENTS: [(u32, &str); 2] = [(0xffff_fff2, "tc ingress"), (0xffff_fff3, "tc egress")];
/// Where tcx programs are.
const PLACES: [(u32, &str); 2] = [(TCX_INGRESS, "tcx ingress"), (TCX_EGRESS, "tcx egress")];

/// What processes of the test have open.
#[derive(Debug, Default)]
pub struct Own {
    sockets: BTreeSet<u64>,
    programs: BTreeSet<u32>,
}

impl Own {
    /// What these processes have open now.
    pub fn of(pids: &[u32]) -> Own {
        Own {
            sockets: pids.iter().flat_map(|pid| packet_sockets::inodes(*pid)).collect(),
            programs: pids.iter().flat_map(|pid| programs_of(*pid)).collect(),
        }
    }
}

/// The numbers of the programs that a process has open, itself or by a link; none when it is gone or may not be looked at.
pub fn programs_of(pid: u32) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    files.filter_map(|file| program_in(&fs::read_to_string(file.path()).ok()?)).collect()
}

/// The program in the text of a `fdinfo` file.
fn program_in(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok()
}

/// A program or a filter at an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attached {
    interface: String,
    hook: &'static str,
    id: u32,
    name: String,
}

/// What is at a node, or why it cannot be told.
#[derive(Debug, Default)]
pub struct Present {
    /// Packet sockets: the interface, empty for all, and the inode.
    pub sockets: Vec<(String, u64)>,
    /// Programs and filters.
    pub programs: Vec<Attached>,
    /// Why packet sockets cannot be listed.
    pub no_sockets: Option<String>,
    /// Why programs cannot be listed.
    pub no_programs: Option<String>,
}

impl Present {
    /// Looks at the namespace of the calling thread, with netlink sockets of the same.
    pub fn look(netlink: &mut Netlink, names: &BTreeMap<u32, String>) -> Present {
        let mut present = Present::default();
        let socket = |message: &[u8]| packet_sockets::parse(message, names);
        match netlink.dump(&packet_sockets::DUMP, socket) {
            Ok(found) => present.sockets = found.into_iter().map(|one| (one.interface, one.inode)).collect(),
            Err(error) => present.no_sockets = Some(error.to_string()),
        }
        if let Err(error) = present.programs(netlink, names) {
            present.no_programs = Some(error.to_string());
        }
        present
    }

    fn programs(&mut self, netlink: &mut Netlink, names: &BTreeMap<u32, String>) -> io::Result<()> {
        let xdp = netlink.dump(&LINKS, |message| {
            let id = Attributes(after(message, 16).get(IFLA_XDP)?).get(IFLA_XDP_PROG_ID)?;
            Some((u32_at(message, 4)?, u32_at(id, 0)?))
        })?;
        for (index, id) in xdp {
            self.add(names, index, "xdp", id, name_of(id));
        }
        let mut clsacts = netlink.dump(&super::qdiscs::DUMP, clsact)?;
        clsacts.dedup();
        for (parent, hook) in PARENTS {
            for index in &clsacts {
                for (id, name) in filters(netlink, *index, parent)? {
                    self.add(names, *index, hook, id, name);
                }
            }
        }
        for (place, hook) in PLACES {
            for index in names.keys() {
                match bpf::programs_at(*index, place) {
                    Ok(ids) => {
                        ids.into_iter().for_each(|id| self.add(names, *index, hook, id, String::new()))
                    }
                    // It was deleted meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, names: &BTreeMap<u32, String>, index: u32, hook: &'static str, id: u32, name: String) {
        let interface = super::links::name_of(index, names);
        self.programs.push(Attached { interface, hook, id, name });
    }
}

/// The interface of a `clsact` or `ingress` qdisc.
fn clsact(message: &[u8]) -> Option<u32> {
    let kind = after(message, 20).get(TCA_KIND)?;
    matches!(kind, b"clsact\0" | b"ingress\0").then(|| u32_at(message, 4))?
}

/// The filters of an interface below a parent: number of the program and name, or kind.
fn filters(netlink: &mut Netlink, index: u32, parent: u32) -> io::Result<BTreeSet<(u32, String)>> {
    let body = [[0; 4], index.to_ne_bytes(), [0; 4], parent.to_ne_bytes(), [0; 4]].concat();
    let dump = Dump { family: Family::Route, kind: RTM_GETTFILTER, body: &body };
    match netlink.dump(&dump, filter) {
        // `ingress` has no egress.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(BTreeSet::new()),
        found => Ok(found?.into_iter().collect()),
    }
}

/// One filter; none for a message that only names a chain of them.
fn filter(message: &[u8]) -> Option<(u32, String)> {
    let attributes = after(message, 20);
    let (kind, options) = (attributes.get(TCA_KIND)?, Attributes(attributes.get(TCA_OPTIONS)?));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let id = options.get(TCA_BPF_ID).filter(|_| kind == b"bpf\0").and_then(|id| u32_at(id, 0));
    let name = options.get(TCA_BPF_NAME).filter(|_| id.is_some()).unwrap_or(kind);
    Some((id.unwrap_or(0), text(name)))
}

/// The name that a program was loaded with; empty where that is not permitted to know.
fn name_of(id: u32) -> String {
    bpf::program_by_id(id).and_then(|program| bpf::program_name(program.as_fd())).unwrap_or_default()
}

/// What of others was seen so far, at all nodes.
#[derive(Debug, Default)]
pub struct Foreign {
    own: Own,
    /// Packet sockets.
    pub taps: Vec<Tap>,
    /// Programs and filters.
    pub programs: Vec<ForeignProgram>,
}

impl Foreign {
    /// Adds what is at a node and was not there before; `pids` are the processes of the test.
    pub fn add(&mut self, node: &str, present: Present, pids: &[u32], was_there: bool) {
        let is_known = |own: &Own| {
            present.sockets.iter().all(|(_, inode)| own.sockets.contains(inode))
                && present.programs.iter().all(|one| own.programs.contains(&one.id))
        };
        if !is_known(&self.own) {
            let now = Own::of(pids);
            self.own.sockets.extend(now.sockets);
            self.own.programs.extend(now.programs);
        }
        for (interface, inode) in present.sockets {
            let seen = self.taps.iter().any(|tap| tap.node == node && tap.inode == inode);
            if !seen && !self.own.sockets.contains(&inode) {
                let process = process_with(inode).unwrap_or_default();
                self.taps.push(Tap { node: node.to_owned(), interface, inode, process, was_there });
            }
        }
        for one in present.programs {
            self.add_program(node, one, was_there);
        }
    }

    fn add_program(&mut self, node: &str, one: Attached, was_there: bool) {
        let Attached { interface, hook, id, name } = one;
        let seen = |it: &ForeignProgram| {
            (it.node.as_str(), &it.interface, it.hook.as_str(), it.id) == (node, &interface, hook, id)
        };
        if self.own.programs.contains(&id) || self.programs.iter().any(seen) {
            return;
        }
        let name = if name.is_empty() && id > 0 { name_of(id) } else { name };
        let (node, hook) = (node.to_owned(), hook.to_owned());
        self.programs.push(ForeignProgram { node, interface, hook, id, name, was_there });
    }
}

/// Who has that socket open: `tcpdump (4711)`; none when nobody that can be looked at.
fn process_with(inode: u64) -> Option<String> {
    let names =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut pids = names.filter_map(|name| name.parse::<u32>().ok());
    let pid = pids.find(|pid| packet_sockets::inodes(*pid).contains(&inode))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("{} ({pid})", name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    fn of_tc(kind: &[u8], options: &[u8]) -> Vec<u8> {
        let mut header = [0u8; 20];
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        join(&[&header, &attribute(TCA_KIND, kind), &attribute(TCA_OPTIONS, options)])
    }

    #[test]
    fn filters_have_a_program_or_a_kind() {
        let options =
            join(&[&attribute(TCA_BPF_NAME, b"probe.o:[tc]\0"), &attribute(TCA_BPF_ID, &9u32.to_ne_bytes())]);
        assert_eq!(filter(&of_tc(b"bpf\0", &options)), Some((9, "probe.o:[tc]".into())));
        assert_eq!(filter(&of_tc(b"u32\0", &[])), Some((0, "u32".into())));
        assert_eq!(filter(&of_tc(b"u32\0", &[])[..28]), None, "a chain");
        assert_eq!((clsact(&of_tc(b"clsact\0", &[])), clsact(&of_tc(b"tbf\0", &[]))), (Some(7), None));
    }

    #[test]
    fn a_program_is_read_from_fdinfo() {
        assert_eq!(program_in("pos:\t0\nflags:\t02\nlink_type:\ttcx\nlink_id:\t3\nprog_id:\t41\n"), Some(41));
        assert_eq!(program_in("pos:\t0\n"), None);
    }

    #[test]
    fn what_others_have_is_said_once_and_own_things_are_not() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = packet_sockets::inodes(std::process::id())[0];
        let mut foreign = Foreign::default();
        let present = || Present {
            sockets: vec![("eth0".into(), own), (String::new(), u64::MAX)],
            programs: vec![Attached {
                interface: "eth0".into(),
                hook: "tc ingress",
                id: 0,
                name: "u32".into(),
            }],
            ..Present::default()
        };
        foreign.add("a", present(), &[std::process::id()], true);
        foreign.add("a", present(), &[std::process::id()], false);
        assert_eq!(
            foreign.taps.iter().map(|tap| (tap.inode, tap.was_there)).collect::<Vec<_>>(),
            [(u64::MAX, true)]
        );
        assert_eq!(foreign.programs.len(), 1);
        assert_eq!(foreign.programs[0].name, "u32");
        let me = process_with(own).unwrap();
        assert!(me.contains(&format!("({})", std::process::id())), "{me}");
        drop(socket);
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (filter(&noise), clsact(&noise));
        }
    }
}
