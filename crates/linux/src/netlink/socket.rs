//! One socket of one family: a request goes out, replies come back until the kernel says that it is done.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use netlink_bindings::builtin::{IterableNlmsgerrAttrs, NlmsgerrAttrs};
use netlink_bindings::traits::NetlinkRequest;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::attributes::{u16_at, u32_at};
use super::{Family, Refusal};
use crate::sys::socket::set_int;

/// Room for the largest reply: the kernel builds at most 32 KiB at a time (`netlink_dump`), so nothing is cut short.
const BUFFER_BYTES: usize = 64 * 1024;

/// How often a dump is asked for that changes under the reader.
const ATTEMPTS: u32 = 5;

/// `NLM_F_DUMP` and `NLM_F_ACK`.
pub(super) const DUMP: u16 = 0x300;
pub(super) const ACKNOWLEDGE: u16 = 4;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;

impl Family {
    fn protocol(self) -> SockProtocol {
        match self {
            Family::Route => SockProtocol::NetlinkRoute,
            Family::Netfilter => SockProtocol::NetlinkNetFilter,
            Family::Generic => SockProtocol::NetlinkGeneric,
            Family::SockDiag => SockProtocol::NetlinkSockDiag,
        }
    }
}

/// A request without its sequence number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub body: &'a [u8],
}

impl Message<'_> {
    fn bytes(&self, sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.body.len());
        bytes.extend_from_slice(&((HEADER_BYTES + self.body.len()) as u32).to_ne_bytes());
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&(NLM_F_REQUEST | self.flags).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(self.body);
        bytes
    }
}

/// Why a request failed, with what the kernel says about it (`NETLINK_EXT_ACK`).
#[derive(Debug)]
pub(super) struct Failure {
    error: io::Error,
    said: Vec<u8>,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure { error, said: vec![] }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl Failure {
    pub fn into_io(self) -> io::Error {
        self.error
    }

    /// The same in words, for a request that nothing but its bytes is known of.
    pub fn into_plain_refusal(self) -> Refusal {
        let said = NlmsgerrAttrs::new(&self.said);
        let message = said.get_msg().map(|message| format!(": {}", message.to_string_lossy()));
        let text = self.error.to_string() + &message.unwrap_or_default();
        Refusal { errno: self.error.raw_os_error(), text }
    }

    /// The same in words; the request tells which of its attributes is meant.
    pub fn into_refusal<R: NetlinkRequest>(self, request: &[u8]) -> Refusal {
        let mut text = self.error.to_string();
        let said = NlmsgerrAttrs::new(&self.said);
        if let Ok(message) = said.get_msg() {
            text += &format!(": {}", message.to_string_lossy());
        }
        text += &missing::<R>(&said, request).unwrap_or_default();
        text += &invalid::<R>(&said, request).unwrap_or_default();
        Refusal { errno: self.error.raw_os_error(), text }
    }
}

/// Which attribute is missing, and in what.
fn missing<R: NetlinkRequest>(said: &IterableNlmsgerrAttrs<'_>, request: &[u8]) -> Option<String> {
    let offset = (said.get_missing_nest().ok()? as usize).checked_sub(HEADER_BYTES)?;
    let (nests, attribute) = R::lookup(request, offset, said.get_missing_type().ok());
    let missing = attribute.map(|name| format!(": missing {name:?}")).unwrap_or_default();
    Some(nests.iter().fold(missing, |text, (nest, _)| format!("{text} in {nest:?}")))
}

/// Which attribute is wrong, in what, and what the kernel takes.
fn invalid<R: NetlinkRequest>(said: &IterableNlmsgerrAttrs<'_>, request: &[u8]) -> Option<String> {
    let offset = (said.get_offset().ok()? as usize).checked_sub(HEADER_BYTES)?;
    let (names, _) = R::lookup(request, offset, None);
    let wrong = names.first().map(|(name, _)| format!(": attribute {name:?}")).unwrap_or_default();
    let wrong = names.iter().skip(1).fold(wrong, |text, (nest, _)| format!("{text} in {nest:?}"));
    Some(said.get_policy().map_or(wrong.clone(), |policy| format!("{wrong}: {policy:?}")))
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What one received block of messages says about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress<'a> {
    More,
    Done,
    Failed { errno: i32, said: &'a [u8] },
}

/// A netlink socket of the namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    /// Room for replies.
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the namespace of the calling thread.
    pub fn open(family: Family) -> io::Result<Socket> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, family.protocol())?;
        // The kernel answers within the call; the time-out only keeps a broken one from stopping a run.
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(2, 0))?;
        set_int(&fd, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1)?;
        Ok(Socket { fd, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Lets the kernel tell what happens in these groups, as bits.
    pub fn join(&self, groups: u32) -> io::Result<()> {
        Ok(bind(self.fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?)
    }

    /// Throws away what was told and not read yet; true when there was something.
    pub fn forget(&self) -> bool {
        let mut any = false;
        loop {
            match recv(self.fd.as_raw_fd(), &mut [0; 1], MsgFlags::MSG_DONTWAIT) {
                Ok(_) | Err(Errno::ENOBUFS) => any = true,
                Err(Errno::EINTR) => {}
                Err(_) => return any,
            }
        }
    }

    /// What `read` makes of the bodies of all replies. A dump that changed under the reader is repeated, and what it gave is forgotten.
    pub fn collect<T>(
        &mut self,
        request: &Message<'_>,
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Failure> {
        let mut found = vec![];
        for _ in 0..ATTEMPTS {
            found.clear();
            if !self.ask(request, &mut |reply| found.extend(read(reply)))? {
                return Ok(found);
            }
        }
        Err(io::Error::other("it changed each time it was read").into())
    }

    /// Sends a request and gives the body of every reply to `each`; true if a change interrupted the dump.
    fn ask(&mut self, request: &Message<'_>, each: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        self.sequence = self.sequence.wrapping_add(1);
        send(self.fd.as_raw_fd(), &request.bytes(self.sequence), MsgFlags::empty())?;
        let mut interrupted = false;
        loop {
            let length = match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let block = self
                .buffer
                .get(..length)
                .ok_or_else(|| io::Error::other("a reply was larger than 64 KiB"))?;
            match walk(block, self.sequence, &mut interrupted, each) {
                Progress::More => {}
                Progress::Done => return Ok(interrupted),
                Progress::Failed { errno, said } => {
                    return Err(Failure { error: io::Error::from_raw_os_error(errno), said: said.to_vec() });
                }
            }
        }
    }
}

/// Gives the bodies of all messages with this sequence number to `each`. Bytes that are no message end the block.
///
/// Any message may say that a change interrupted the dump: the kernel marks the first of the part in which it noticed
/// (`nl_dump_check_consistent`), and no other.
fn walk<'a>(
    block: &'a [u8],
    sequence: u32,
    interrupted: &mut bool,
    each: &mut dyn FnMut(&[u8]),
) -> Progress<'a> {
    let mut rest = block;
    while rest.len() >= HEADER_BYTES {
        let length = u32_at(rest, 0).unwrap_or(0) as usize;
        let Some(message) = rest.get(HEADER_BYTES..length) else { break };
        let (kind, flags) = (u16_at(rest, 4).unwrap_or(0), u16_at(rest, 6).unwrap_or(0));
        let ours = u32_at(rest, 8) == Some(sequence);
        *interrupted |= ours && flags & NLM_F_DUMP_INTR != 0;
        let errno = u32_at(message, 0).map_or(0, |code| (code as i32).wrapping_neg());
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        match kind {
            _ if !ours => {}
            NLMSG_DONE | NLMSG_ERROR if errno > 0 => {
                return Progress::Failed { errno, said: said(message, kind, flags) };
            }
            NLMSG_DONE | NLMSG_ERROR => return Progress::Done,
            _ => each(message),
        }
    }
    Progress::More
}

/// What the kernel adds to an error number: after the request that it repeats, whole or only its header.
fn said(message: &[u8], kind: u16, flags: u16) -> &[u8] {
    let repeated = match kind {
        NLMSG_DONE => 0,
        _ if flags & NLM_F_CAPPED != 0 => HEADER_BYTES,
        _ => u32_at(message, 4).unwrap_or(0) as usize,
    };
    let at = repeated.checked_add(4).and_then(|at| at.checked_next_multiple_of(4));
    let attributes = at.filter(|_| flags & NLM_F_ACK_TLVS != 0).and_then(|at| message.get(at..));
    attributes.unwrap_or(&[])
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::attributes::build::attribute;
    use super::*;
    use netlink_bindings::rt_link;
    use nix::sys::socket::socketpair;
    use proptest::prelude::*;

    /// A socket whose other end is no kernel: it receives these blocks, and remembers what is sent.
    pub fn scripted(blocks: &[Vec<u8>]) -> (Socket, OwnedFd) {
        let (fd, kernel) =
            socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_NONBLOCK).unwrap();
        for block in blocks {
            send(kernel.as_raw_fd(), block, MsgFlags::empty()).unwrap();
        }
        (Socket { fd, sequence: 0, buffer: vec![0; BUFFER_BYTES] }, kernel)
    }

    /// A message as the kernel writes it.
    pub fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Message { kind, flags, body }.bytes(sequence);
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
        let (mut seen, mut interrupted) = (Vec::new(), false);
        let progress = walk(&block, 7, &mut interrupted, &mut |body| seen.push(body.to_vec()));
        assert_eq!((progress, interrupted), (Progress::Done, true));
        assert_eq!(seen, [b"first".to_vec(), b"second".to_vec()]);
        let failed = message(NLMSG_ERROR, 0, 7, &(-1i32).to_ne_bytes());
        let walk = |block| walk(block, 7, &mut false, &mut |_| {});
        assert_eq!(walk(&failed), Progress::Failed { errno: 1, said: &[] });
        assert_eq!(walk(&block[..20]), Progress::More, "a message cut short is not given");
    }

    #[test]
    fn any_message_of_ours_may_say_that_the_dump_was_interrupted() {
        for (marked, sequence, expected) in
            [(0, 7, true), (1, 7, true), (2, 7, true), (1, 6, false), (3, 7, false)]
        {
            let flags = |at| if at == marked { NLM_F_DUMP_INTR } else { 2 };
            let mut block = message(16, flags(0), 7, b"first");
            block.extend(message(16, flags(1), sequence, b"second"));
            block.extend(message(NLMSG_DONE, flags(2), 7, &[0; 4]));
            let mut interrupted = false;
            assert_eq!(walk(&block, 7, &mut interrupted, &mut |_| {}), Progress::Done);
            assert_eq!(interrupted, expected, "message {marked}");
        }
    }

    #[test]
    fn what_the_kernel_adds_is_found_after_the_request_it_repeats() {
        let words = attribute(1, b"not this way\0");
        let header = 24u32.to_ne_bytes();
        let refused = (-libc::EINVAL).to_ne_bytes();
        let whole = [&refused[..], &header, &[0; 20], &words].concat();
        let capped = [&refused[..], &header, &[0; 12], &words].concat();
        let done = [&refused[..], &words].concat();
        for (body, kind, flags) in
            [(whole, NLMSG_ERROR, 0), (capped, NLMSG_ERROR, NLM_F_CAPPED), (done, NLMSG_DONE, 0)]
        {
            let block = message(kind, flags | NLM_F_ACK_TLVS, 3, &body);
            let Progress::Failed { errno, said } = walk(&block, 3, &mut false, &mut |_| {}) else {
                panic!("{kind}")
            };
            let failure = Failure { error: io::Error::from_raw_os_error(errno), said: said.to_vec() };
            let refusal = failure.into_refusal::<rt_link::OpSetlinkDo<'_>>(&[]);
            assert_eq!(refusal.errno, Some(libc::EINVAL));
            assert_eq!(refusal.text, "Invalid argument (os error 22): not this way");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300), sequence in 0u32..3, kind in 2u16..4, flags: u16) {
            let _ = walk(&noise, sequence, &mut false, &mut |_| {});
            let failure = Failure { error: io::Error::from_raw_os_error(1), said: noise.clone() };
            let _ = (said(&noise, kind, flags), failure.into_refusal::<rt_link::OpSetlinkDo<'_>>(&noise));
        }
    }
}
