//! Many datagrams per system call: `sendmmsg` and `recvmmsg` over buffers that are made once.
//!
//! A batch owns its buffers, addresses and message headers; sending or receiving allocates nothing. The same batches
//! serve UDP and ICMP sockets. With `UDP_SEGMENT` (Linux 4.18) one buffer holds several datagrams that the kernel cuts
//! apart; with `UDP_GRO` (5.0) it hands over several datagrams of one size as one buffer and tells the size in a
//! control message. Price: memory of `messages × capacity` bytes per batch.

use super::packet;
use super::socket::{self, zeroed};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use wire::filter::FilterInstruction;

/// What one UDP datagram can carry over IPv4: 65535 − 20 − 8.
pub const MAX_PAYLOAD: usize = 65_507;

/// Room for one control message with an `int`: header 16, data 4, padding 4 (on 64-bit hosts), with room to spare.
const CONTROL: usize = 64;

/// A control buffer aligned as `cmsghdr` needs it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// A socket bound to `address`, with buffers as asked (what the kernel made of it: [`socket::buffer`]).
pub fn bind(address: SocketAddr, send: Option<u32>, receive: Option<u32>) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket::set_buffers(&socket, send, receive)?;
    Ok(socket)
}

/// From now on the kernel cuts every buffer that is sent into datagrams of `bytes` (`UDP_SEGMENT`).
pub fn set_segment(fd: impl AsFd, bytes: u16) -> io::Result<()> {
    socket::set_int(fd, libc::SOL_UDP, libc::UDP_SEGMENT, i32::from(bytes))
}

/// From now on the kernel throws away whatever arrives at this socket (a filter that takes nothing), and counts it in
/// [`socket::drops`]. The socket still holds its port, so that the kernel does not answer with "port unreachable", and
/// can still send.
pub fn throw_away(fd: impl AsFd) -> io::Result<()> {
    // BPF_RET | BPF_K with k = 0: keep no byte of it.
    packet::attach_filter(fd, &[FilterInstruction { code: 0x06, if_true: 0, if_false: 0, k: 0 }])
}

/// From now on the kernel may merge datagrams of one size (`UDP_GRO`).
pub fn set_merge(fd: impl AsFd) -> io::Result<()> {
    socket::set_int(fd, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Messages, each with one buffer and one address.
struct Messages {
    bytes: Vec<u8>,
    stride: usize,
    pieces: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    names: Vec<libc::sockaddr_storage>,
}

// SAFETY: the raw pointers in `pieces` and `headers` are set before every call to point into this value's own heap
// memory; nothing else holds them.
unsafe impl Send for Messages {}

impl Messages {
    fn new(count: usize, capacity: usize) -> Self {
        let count = count.max(1);
        let mut piece: libc::iovec = zeroed();
        piece.iov_len = capacity;
        Messages {
            bytes: vec![0; count * capacity],
            stride: capacity,
            pieces: vec![piece; count],
            headers: (0..count).map(|_| zeroed()).collect(),
            names: (0..count).map(|_| zeroed()).collect(),
        }
    }

    /// Lets message `index` point to its buffer and its address.
    #[inline]
    fn point(&mut self, index: usize) -> &mut libc::msghdr {
        self.pieces[index].iov_base = self.bytes[index * self.stride..].as_mut_ptr().cast();
        let header = &mut self.headers[index].msg_hdr;
        header.msg_iov = &raw mut self.pieces[index];
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut self.names[index]).cast();
        header
    }
}

/// Buffers and addresses for sending.
pub struct SendBatch(Messages);

impl SendBatch {
    /// `messages` buffers of `capacity` bytes each, filled with zeros and sent whole until a length is set.
    pub fn new(messages: usize, capacity: usize) -> Self {
        SendBatch(Messages::new(messages, capacity))
    }

    /// How many messages it holds.
    pub fn messages(&self) -> usize {
        self.0.headers.len()
    }

    /// The buffer of message `index`. Panics when there is no such message.
    #[inline]
    pub fn buffer(&mut self, index: usize) -> &mut [u8] {
        &mut self.0.bytes[index * self.0.stride..][..self.0.stride]
    }

    /// Sends only the first `length` bytes of message `index` (at most its capacity).
    #[inline]
    pub fn set_length(&mut self, index: usize, length: usize) {
        self.0.pieces[index].iov_len = length.min(self.0.stride);
    }

    /// Sends message `index` to where message `from` of `received` came from.
    #[inline]
    pub fn answer(&mut self, index: usize, received: &ReceiveBatch, from: usize) {
        self.0.names[index] = received.messages.names[from];
        self.0.headers[index].msg_hdr.msg_namelen = received.messages.headers[from].msg_hdr.msg_namelen;
    }

    /// Sends messages `range`, in order; returns how many the kernel accepted. An error means that the first of them
    /// was refused (`sendmmsg` tells an error only if nothing was sent before it), so the caller goes on behind it.
    #[inline]
    pub fn send(&mut self, fd: impl AsFd, range: std::ops::Range<usize>) -> io::Result<usize> {
        let range = range.start.min(self.messages())..range.end.min(self.messages());
        if range.is_empty() {
            return Ok(0);
        }
        for index in range.clone() {
            let header = self.0.point(index);
            if header.msg_namelen == 0 {
                header.msg_name = std::ptr::null_mut();
            }
        }
        let headers = &mut self.0.headers[range];
        // SAFETY: the headers are live and exclusive; each points to one piece inside `bytes` and at most one name.
        unsafe { socket::send_many(fd.as_fd(), headers, libc::MSG_NOSIGNAL) }
    }
}

/// Whether a receive call waits for the first datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until there is one, or the socket's time-out ends the call with `EAGAIN`.
    ForOne,
    /// Not at all.
    No,
}

/// Buffers and addresses for receiving.
pub struct ReceiveBatch {
    messages: Messages,
    controls: Vec<Control>,
}

impl ReceiveBatch {
    /// `messages` buffers of `capacity` bytes each; longer datagrams are cut and say so ([`Self::is_cut`]).
    pub fn new(messages: usize, capacity: usize) -> Self {
        let messages = Messages::new(messages, capacity);
        ReceiveBatch { controls: vec![Control([0; CONTROL]); messages.headers.len()], messages }
    }

    /// How many messages it holds.
    pub fn messages(&self) -> usize {
        self.messages.headers.len()
    }

    /// Receives what is there, at least one when `wait` says so; returns how many messages. `EAGAIN` after the
    /// socket's time-out.
    #[inline]
    pub fn receive(&mut self, fd: impl AsFd, wait: Wait) -> io::Result<usize> {
        for index in 0..self.messages() {
            self.messages.pieces[index].iov_len = self.messages.stride;
            let header = self.messages.point(index);
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_control = (&raw mut self.controls[index]).cast();
            header.msg_controllen = CONTROL as _;
            header.msg_flags = 0;
        }
        let flags = if wait == Wait::ForOne { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        let headers = &mut self.messages.headers;
        // SAFETY: the headers are live and exclusive; each points to one piece, one name and one control buffer of
        // this value.
        unsafe { socket::receive_many(fd.as_fd(), headers, flags) }
    }

    /// The bytes of message `index` of the last receive.
    #[inline]
    pub fn bytes(&self, index: usize) -> &[u8] {
        let Messages { bytes, stride, headers, .. } = &self.messages;
        let length = (headers[index].msg_len as usize).min(*stride);
        &bytes[index * stride..][..length]
    }

    /// True when message `index` was longer than its buffer.
    #[inline]
    pub fn is_cut(&self, index: usize) -> bool {
        self.messages.headers[index].msg_hdr.msg_flags & libc::MSG_TRUNC != 0
    }

    /// The size of one datagram when the kernel merged several into message `index` (`UDP_GRO`).
    #[inline]
    pub fn segment(&self, index: usize) -> Option<usize> {
        let header = &self.messages.headers[index].msg_hdr;
        if header.msg_controllen == 0 {
            return None;
        }
        let mut merged = None;
        // SAFETY: `msg_control` was set by the last `receive` to this value's own control buffer; `UDP_GRO` is an `int`.
        unsafe {
            socket::control_messages(header, |level, kind, data| {
                if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
                    merged = usize::try_from(data.cast::<i32>().read_unaligned()).ok();
                }
            });
        }
        merged.filter(|&size| size > 0)
    }

    /// The datagrams in message `index`: one, or as many as were merged.
    #[inline]
    pub fn datagrams(&self, index: usize) -> std::slice::Chunks<'_, u8> {
        let bytes = self.bytes(index);
        bytes.chunks(self.segment(index).unwrap_or(bytes.len()).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket::Direction;
    use std::time::Duration;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = bind("127.0.0.1:0".parse().unwrap(), None, None).unwrap();
        let sender = bind("127.0.0.1:0".parse().unwrap(), Some(65536), None).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        socket::set_timeout(&receiver, Direction::Receive, Some(Duration::from_secs(30))).unwrap();
        (sender, receiver)
    }

    #[test]
    fn a_batch_arrives_and_is_answered() {
        let (sender, receiver) = pair();
        let mut out = SendBatch::new(3, 40);
        for index in 0..3 {
            out.buffer(index).fill(index as u8);
        }
        out.set_length(2, 20);
        assert_eq!(out.send(&sender, 0..9).unwrap(), 3);
        let mut into = ReceiveBatch::new(8, 30);
        assert_eq!(into.receive(&receiver, Wait::ForOne).unwrap(), 3);
        assert!(into.is_cut(0) && into.bytes(0).len() == 30);
        assert!(!into.is_cut(2));
        assert_eq!(into.datagrams(2).collect::<Vec<_>>(), [&[2; 20][..]]);
        let mut reply = SendBatch::new(1, 5);
        reply.answer(0, &into, 1);
        assert_eq!(reply.send(&receiver, 0..1).unwrap(), 1);
        let mut back = ReceiveBatch::new(1, 30);
        assert_eq!(back.receive(&sender, Wait::ForOne).unwrap(), 1);
        assert_eq!(back.bytes(0), [0; 5]);
        assert_eq!(back.receive(&sender, Wait::No).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn segments_leave_as_one_and_merge_again() {
        let (sender, receiver) = pair();
        set_segment(&sender, 100).unwrap();
        set_merge(&receiver).unwrap();
        let mut out = SendBatch::new(1, 350);
        assert_eq!(out.send(&sender, 0..1).unwrap(), 1);
        let mut into = ReceiveBatch::new(4, 65_535);
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < 350 {
            for index in 0..into.receive(&receiver, Wait::ForOne).unwrap() {
                sizes.extend(into.datagrams(index).map(<[u8]>::len));
            }
        }
        assert_eq!(sizes, [100, 100, 100, 50]);
    }

    #[test]
    fn a_socket_that_throws_away_counts_and_can_still_send() {
        let (sender, receiver) = pair();
        throw_away(&receiver).unwrap();
        for _ in 0..3 {
            sender.send(b"x").unwrap();
        }
        assert_eq!(socket::drops(&receiver).unwrap(), 3);
        let mut into = ReceiveBatch::new(1, 30);
        assert_eq!(into.receive(&receiver, Wait::No).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        receiver.send_to(b"reply", sender.local_addr().unwrap()).unwrap();
        assert_eq!(into.receive(&sender, Wait::ForOne).unwrap(), 1);
    }

    #[test]
    fn a_refused_message_is_told_and_the_rest_goes() {
        let (sender, receiver) = pair();
        let mut out = SendBatch::new(2, MAX_PAYLOAD + 100);
        out.set_length(1, 10);
        let error = out.send(&sender, 0..2).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(out.send(&sender, 1..2).unwrap(), 1);
        drop(receiver);
    }
}
