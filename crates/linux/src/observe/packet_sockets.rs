//! Packet sockets (`AF_PACKET`): `SOCK_DIAG_BY_FAMILY` with `PACKET_SHOW_INFO` and `PACKET_SHOW_MEMINFO`, as `ss -0 -m`.
//!
//! **What.** A program that takes frames from an interface by a packet socket loses what does not fit into the socket's
//! buffer, and no counter of the interface or of IP tells: this is the only place where the kernel does. The count is
//! cumulative and not cleared by whoever asks for `PACKET_STATISTICS`.
//!
//! **Whose.** A capture beside the program has a packet socket too, and what that loses is no loss of the path. A socket
//! belongs to a process of the test or of the lab when it is among the files that the process has open ([`Owners`]).
//!
//! **Price.** One dump for each node; one walk over the open files of those processes when a socket is seen for the first
//! time. A receive ring does not count its losses here (`tpacket_rcv` counts in `PACKET_STATISTICS` alone), so of a program
//! with rings only the program itself can tell.

use std::collections::BTreeMap;
use std::fs;

use record::snapshot::PacketSocketSample;

use super::Actor;
use super::links::name_of;
use crate::netlink::{Dump, Family, after, u32_at};

/// What is asked of each: what it is bound to, and its memory.
pub const DUMP: Dump<'static> = dump(&request(SHOW_INFO | SHOW_MEMINFO));

/// `SOCK_DIAG_BY_FAMILY` (`include/uapi/linux/sock_diag.h`).
pub(super) const fn dump(request: &'static [u8]) -> Dump<'static> {
    Dump { family: Family::SockDiag, kind: 20, body: request }
}

/// `struct packet_diag_req` (`include/uapi/linux/packet_diag.h`): the family `AF_PACKET`; what is to be shown.
pub(super) const fn request(show: u32) -> [u8; 20] {
    let show = show.to_ne_bytes();
    [AF_PACKET, 0, 0, 0, 0, 0, 0, 0, show[0], show[1], show[2], show[3], 0, 0, 0, 0, 0, 0, 0, 0]
}

/// The first byte of requests and replies.
pub(super) const AF_PACKET: u8 = 17;
// What can be shown (`PACKET_SHOW_…`).
pub(super) const SHOW_INFO: u32 = 1;
pub(super) const SHOW_RINGS: u32 = 4;
pub(super) const SHOW_FANOUT: u32 = 8;
pub(super) const SHOW_MEMINFO: u32 = 0x10;
/// Places in `struct packet_diag_msg`, and its length.
pub(super) const INODE: usize = 4;
pub(super) const COOKIE: usize = 8;
pub(super) const HEADER_BYTES: usize = 16;
// Attributes (`PACKET_DIAG_…`).
pub(super) const INFO: u16 = 0;
pub(super) const RECEIVE_RING: u16 = 2;
pub(super) const FANOUT: u16 = 4;
pub(super) const MEMINFO: u16 = 6;
// Offsets into `MEMINFO` (`SK_MEMINFO_RMEM_ALLOC`, `SK_MEMINFO_RCVBUF`, `SK_MEMINFO_DROPS`).
const RMEM_ALLOC: usize = 0;
const RCVBUF: usize = 4;
pub(super) const DROPS: usize = 32;

/// Decodes one reply; the owner is not known yet. None when it is of another family or is not complete.
pub fn parse(message: &[u8], names: &BTreeMap<u32, String>) -> Option<PacketSocketSample> {
    if *message.first()? != AF_PACKET {
        return None;
    }
    let attributes = after(message, HEADER_BYTES);
    let memory = attributes.get(MEMINFO)?;
    let index = u32_at(attributes.get(INFO)?, 0)?;
    let interface = if index == 0 { String::new() } else { name_of(index, names) };
    Some(PacketSocketSample {
        interface,
        inode: u64::from(u32_at(message, INODE)?),
        owner: String::new(),
        receive_queue_bytes: u64::from(u32_at(memory, RMEM_ALLOC)?),
        receive_buffer_bytes: u64::from(u32_at(memory, RCVBUF)?),
        drops: u32_at(memory, DROPS)?,
    })
}

/// Which processes of the test and of the lab have which sockets open. An inode of a socket is not given again before 2^32
/// others were (`get_next_ino`), so what is known of one stays true.
#[derive(Debug, Default)]
pub struct Owners {
    /// By inode: the role of the process, empty for anybody else's, and whether it hands frames on.
    known: BTreeMap<u64, (String, bool)>,
}

impl Owners {
    /// Names the owners of a node's sockets. Open files are looked through only when there is a socket that was not looked
    /// for before.
    pub fn name(&mut self, node: &str, sockets: &mut [PacketSocketSample], actors: &[Actor]) {
        let here = || actors.iter().filter(|actor| actor.node == node);
        if here().next().is_some() && sockets.iter().any(|socket| !self.known.contains_key(&socket.inode)) {
            for actor in here() {
                let open = inodes(actor.pid).into_iter();
                self.known.extend(open.map(|inode| (inode, (actor.role.clone(), actor.is_program()))));
            }
            for socket in sockets.iter() {
                self.known.entry(socket.inode).or_default();
            }
        }
        for socket in sockets {
            socket.owner = self.known.get(&socket.inode).cloned().unwrap_or_default().0;
        }
    }

    /// True for a socket of a program that hands frames on: it will read by itself what waits there.
    pub fn is_of_a_program(&self, socket: &PacketSocketSample) -> bool {
        self.known.get(&socket.inode).is_some_and(|(_, is_program)| *is_program)
    }
}

/// The inodes of the sockets that a process has open; none when it is gone or may not be looked at.
pub(super) fn inodes(pid: u32) -> Vec<u64> {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return vec![] };
    let inode = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    open.flatten().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::build::{attribute, join};
    use proptest::prelude::*;

    fn message(index: u32, memory: [u32; 9]) -> Vec<u8> {
        let memory: Vec<u8> = memory.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let info = [index.to_ne_bytes(), [0; 4], [0; 4], [0; 4], [0; 4], [0; 4]].concat();
        let header = [&[17, 3, 3, 0][..], &4711u32.to_ne_bytes(), &[0; 8]].concat();
        join(&[&header, &attribute(INFO, &info), &attribute(MEMINFO, &memory)])
    }

    #[test]
    fn interface_queue_and_drops_are_read() {
        let names = [(7, "p1".to_owned())].into();
        let bytes = message(7, [2304, 212_992, 1, 2, 3, 4, 5, 6, 69_444]);
        let found = parse(&bytes, &names).unwrap();
        assert_eq!((found.interface.as_str(), found.inode, found.drops), ("p1", 4711, 69_444));
        assert_eq!((found.receive_queue_bytes, found.receive_buffer_bytes), (2304, 212_992));
        assert_eq!(parse(&message(0, [0; 9]), &names).unwrap().interface, "", "of every interface");
        assert_eq!(parse(&bytes[..bytes.len() - 8], &names), None);
    }

    #[test]
    fn a_socket_belongs_to_who_has_it_open() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        // Other tests of this process open and close sockets meanwhile.
        let inode = std::fs::File::from(std::os::fd::OwnedFd::from(socket.try_clone().unwrap()));
        let inode = std::os::unix::fs::MetadataExt::ino(&inode.metadata().unwrap());
        let mut owners = Owners::default();
        let sample = |inode| PacketSocketSample { inode, ..PacketSocketSample::default() };
        let mut sockets = [sample(inode), sample(1)];
        let actor = |node: &str| Actor { pid: std::process::id(), role: "ovs".into(), node: node.into() };
        owners.name("s", &mut sockets, &[actor("other")]);
        assert_eq!(sockets[0].owner, "", "it is another node's");
        owners.name("s", &mut sockets, &[actor("s")]);
        assert_eq!((sockets[0].owner.as_str(), sockets[1].owner.as_str()), ("ovs", ""));
        assert!(owners.is_of_a_program(&sockets[0]) && !owners.is_of_a_program(&sockets[1]));
        drop(socket);
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&noise, &BTreeMap::new());
        }
    }
}
