//! The numbers that a namespace has for others.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::attributes::{after, u32_at};
use super::socket::{self, Failure, Message};
use super::{Family, Netlink};

// include/uapi/linux/rtnetlink.h, net_namespace.h
const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
/// `struct rtgenmsg`, padded.
const HEADER_BYTES: usize = 4;

impl Netlink {
    /// The number that this namespace has for another one; none when it has none.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn number_of(&mut self, namespace: BorrowedFd<'_>) -> io::Result<Option<i32>> {
        let attribute = [8u16.to_ne_bytes(), NETNSA_FD.to_ne_bytes()].concat();
        let body = [&[0; HEADER_BYTES][..], &attribute, &namespace.as_raw_fd().to_ne_bytes()].concat();
        let request = Message { kind: RTM_GETNSID, flags: socket::ACKNOWLEDGE, body: &body };
        let number = |reply: &[u8]| u32_at(after(reply, HEADER_BYTES).get(NETNSA_NSID)?, 0);
        let found = self.socket(Family::Route)?.collect(&request, number).map_err(Failure::into_io)?;
        Ok(found.first().map(|number| *number as i32).filter(|number| *number >= 0))
    }
}
