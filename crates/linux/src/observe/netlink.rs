//! Dumps over netlink, and the attributes inside them.
//!
//! **What.** A socket that stays in the namespace where it was opened, a dump request with its replies, and a walk over
//! type-length-value attributes that never reads beyond what it was given.
//!
//! **Why not the crate that builds labs.** Observing only ever sends a few fixed requests and must not cost more than it
//! has to: one buffer for all sockets (64 KiB, twice what the kernel ever puts into one reply, so that nothing is cut
//! short), no allocation per attribute, and a decoder that is a plain function of bytes.
//!
//! **Price.** Attribute numbers are written out in the modules that use them, each with its header.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// Room for the largest reply: the kernel builds at most 32 KiB at a time (`netlink_dump`).
pub const BUFFER_BYTES: usize = 64 * 1024;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;

/// How often a dump is repeated that changed under the reader.
const ATTEMPTS: u32 = 5;

/// What netlink speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Links, neighbours, qdiscs (`NETLINK_ROUTE`).
    Route,
    /// Netfilter (`NETLINK_NETFILTER`).
    Netfilter,
    /// Everything that has no family of its own (`NETLINK_GENERIC`).
    Generic,
    /// Sockets (`NETLINK_SOCK_DIAG`).
    SockDiag,
}

/// A netlink socket of the namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

/// What one received block of messages says about the dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    More,
    Done { interrupted: bool },
    Failed(i32),
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel was built without this family.
    pub fn open(family: Family) -> io::Result<Netlink> {
        let protocol = match family {
            Family::Route => SockProtocol::NetlinkRoute,
            Family::Netfilter => SockProtocol::NetlinkNetFilter,
            Family::Generic => SockProtocol::NetlinkGeneric,
            Family::SockDiag => SockProtocol::NetlinkSockDiag,
        };
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        // The kernel answers within the call; the time-out only keeps a broken one from stopping a run.
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(2, 0))?;
        Ok(Netlink { fd, sequence: 0 })
    }

    /// Sends a dump request and gives the body of every reply to `each`. A dump that changed under the reader is
    /// repeated: `restart` is called first and must forget what `each` has collected.
    ///
    /// # Errors
    /// What the kernel answers, e.g. `EPERM`, `EOPNOTSUPP`.
    pub fn dump<S>(
        &mut self,
        buffer: &mut [u8],
        kind: u16,
        body: &[u8],
        state: &mut S,
        restart: impl Fn(&mut S),
        each: impl Fn(&mut S, &[u8]),
    ) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            restart(state);
            if !self.dump_once(buffer, kind, body, &mut |message| each(state, message))? {
                return Ok(());
            }
        }
        Err(io::Error::other("it changed each time it was read"))
    }

    /// One dump; true if it was interrupted by a change.
    fn dump_once(
        &mut self,
        buffer: &mut [u8],
        kind: u16,
        body: &[u8],
        each: &mut dyn FnMut(&[u8]),
    ) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, self.sequence, body);
        send(self.fd.as_raw_fd(), &request, MsgFlags::empty())?;
        loop {
            let length = match recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC) {
                Err(nix::errno::Errno::EINTR) => continue,
                other => other?,
            };
            let block =
                buffer.get(..length).ok_or_else(|| io::Error::other("a reply was larger than 64 KiB"))?;
            match walk(block, self.sequence, each) {
                Progress::More => {}
                Progress::Done { interrupted } => return Ok(interrupted),
                Progress::Failed(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

fn request(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(body);
    message
}

/// Gives the bodies of all messages with this sequence number to `each`. Bytes that are no message end the block.
fn walk(block: &[u8], sequence: u32, each: &mut dyn FnMut(&[u8])) -> Progress {
    let mut rest = block;
    while rest.len() >= HEADER_BYTES {
        let length = u32_at(rest, 0).unwrap_or(0) as usize;
        let Some(message) = rest.get(HEADER_BYTES..length) else { break };
        let (kind, flags) = (u16_at(rest, 4).unwrap_or(0), u16_at(rest, 6).unwrap_or(0));
        let ours = u32_at(rest, 8) == Some(sequence);
        let errno = u32_at(message, 0).map_or(0, |code| (code as i32).wrapping_neg());
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        match kind {
            _ if !ours => {}
            NLMSG_DONE | NLMSG_ERROR if errno > 0 => return Progress::Failed(errno),
            NLMSG_DONE | NLMSG_ERROR => return Progress::Done { interrupted: flags & NLM_F_DUMP_INTR != 0 },
            _ => each(message),
        }
    }
    Progress::More
}

/// A walk over attributes: number and content. Ends at the first that does not fit.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u16_at(self.0, 0)? as usize;
        // The two top bits say "nested" and "big-endian" and are not part of the number.
        let number = u16_at(self.0, 2)? & 0x3fff;
        let content = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((number, content))
    }
}

/// The attributes after a fixed header of that many bytes; none if the message is shorter.
pub fn after(message: &[u8], header: usize) -> Attributes<'_> {
    Attributes(message.get(header..).unwrap_or(&[]))
}

/// Two bytes in the host's order.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Four bytes in the host's order.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Eight bytes in the host's order.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A name that ends at the first zero byte.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Builds messages for the tests of the decoders.
#[cfg(test)]
pub mod build {
    /// One attribute, padded.
    pub fn attribute(number: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = ((content.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Several byte strings as one.
    pub fn join(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = request(kind, sequence, body);
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn replies_of_this_request_are_given_until_done() {
        let mut block = message(16, 2, 7, b"first");
        block.extend(message(16, 2, 6, b"old"));
        block.extend(message(16, 2, 7, b"second"));
        block.extend(message(NLMSG_DONE, NLM_F_DUMP_INTR, 7, &0u32.to_ne_bytes()));
        let mut seen = Vec::new();
        let progress = walk(&block, 7, &mut |body| seen.push(body.to_vec()));
        assert_eq!(progress, Progress::Done { interrupted: true });
        assert_eq!(seen, [b"first".to_vec(), b"second".to_vec()]);
        let failed = message(NLMSG_ERROR, 0, 7, &(-1i32).to_ne_bytes());
        assert_eq!(walk(&failed, 7, &mut |_| {}), Progress::Failed(1));
        assert_eq!(walk(&block[..20], 7, &mut |_| {}), Progress::More, "a message cut short is not given");
    }

    #[test]
    fn attributes_are_walked_with_padding_and_flags() {
        let bytes =
            build::join(&[&build::attribute(3 | 0x8000, b"eth0\0"), &build::attribute(4, &[1, 2, 3, 4])]);
        let found: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(found, [(3, &b"eth0\0"[..]), (4, &[1, 2, 3, 4][..])]);
        assert_eq!(text(found[0].1), "eth0");
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300), sequence in 0u32..3) {
            let _ = walk(&noise, sequence, &mut |body| { Attributes(body).count(); });
            Attributes(&noise).for_each(|(_, content)| { let _ = (text(content), u64_at(content, 0)); });
        }
    }
}
