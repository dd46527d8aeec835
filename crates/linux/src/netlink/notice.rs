//! Being told that an interface came, went or changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::Family;
use super::socket::Socket;

/// Is readable when an interface of the namespace came, went or changed (`RTNLGRP_LINK`).
#[derive(Debug)]
pub struct LinkNotice(Socket);

impl LinkNotice {
    /// Listens in the namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> io::Result<LinkNotice> {
        let socket = Socket::open(Family::Route)?;
        socket.join(libc::RTMGRP_LINK as u32)?;
        Ok(LinkNotice(socket))
    }

    /// Throws away what was noticed; true when there was something. What it was has to be asked anew: a notice may
    /// have been lost.
    pub fn take(&self) -> bool {
        self.0.forget()
    }
}

impl AsFd for LinkNotice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
