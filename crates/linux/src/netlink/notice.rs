//! Being told that an interface came, went or changed, and what of a namespace's configuration did.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::socket::Socket;
use super::{Family, Netlink};

const RTM_DELLINK: u16 = libc::RTM_DELLINK;

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

    /// As [`LinkNotice::take`], but gives the numbers of the interfaces that went (deleted, or moved to another namespace) to `gone`: one that
    /// came back at once has its number again, and whoever asks for it anew does not see that it was away.
    pub fn take_gone(&mut self, gone: &mut dyn FnMut(u32)) -> bool {
        let mut any = false;
        let told = self.0.told(&mut |kind, body| {
            any = true;
            if let (RTM_DELLINK, Some(index)) = (kind, index_of(body)) {
                gone(index);
            }
        });
        told.unwrap_or(false) || any
    }
}

/// The interface that a message is about; none for what a bridge says of its ports.
fn index_of(body: &[u8]) -> Option<u32> {
    let (family, index) = (*body.first()?, body.get(4..8)?);
    (i32::from(family) == libc::AF_UNSPEC).then(|| u32::from_ne_bytes(index.try_into().unwrap_or_default()))
}

impl AsFd for LinkNotice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The groups of rtnetlink (`RTNLGRP_*`, `rtnetlink.h`) whose messages are about configuration: links, neighbours, traffic control, addresses,
/// routes and rules.
const CONFIG_GROUPS: [u32; 9] = [1, 3, 4, 5, 7, 8, 9, 11, 19];

/// Who told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeOf {
    /// rtnetlink; the kind is that of the message.
    Route,
    /// The driver's settings (`ETHTOOL_MSG_*_NTF`); the kind is the number of the notification.
    Ethtool,
}

/// One message about a change of configuration.
#[derive(Debug, Clone, Copy)]
pub struct ConfigNotice<'a> {
    /// Who told it.
    pub of: NoticeOf,
    /// Which message.
    pub kind: u16,
    /// Its body, behind the headers of netlink and of generic netlink.
    pub body: &'a [u8],
}

/// Is readable when something of the configuration of a namespace changed.
#[derive(Debug)]
pub struct ConfigNotices {
    route: Socket,
    ethtool: io::Result<Socket>,
}

impl ConfigNotices {
    /// Listens in the namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel says of rtnetlink; that the drivers cannot be listened to is told by [`Self::deaf`].
    pub fn new() -> io::Result<ConfigNotices> {
        let route = Socket::open(Family::Route)?;
        route.join(CONFIG_GROUPS.iter().map(|group| 1 << (group - 1)).sum())?;
        Ok(ConfigNotices { route, ethtool: ethtool_monitor() })
    }

    /// Why changes of drivers' settings are not told, if so.
    pub fn deaf(&self) -> Option<String> {
        self.ethtool.as_ref().err().map(ToString::to_string)
    }

    /// What can be waited for.
    pub fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.route.as_fd()).chain(self.ethtool.as_ref().ok().map(AsFd::as_fd))
    }

    /// Gives everything that was told since the last call to `each`; true when some of it was lost.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take(&mut self, each: &mut dyn FnMut(ConfigNotice<'_>)) -> io::Result<bool> {
        let mut lost =
            self.route.told(&mut |kind, body| each(ConfigNotice { of: NoticeOf::Route, kind, body }))?;
        if let Ok(socket) = &mut self.ethtool {
            lost |= socket.told(&mut |_, message| {
                let Some((command, _)) = message.split_first() else { return };
                let body = message.get(4..).unwrap_or_default();
                each(ConfigNotice { of: NoticeOf::Ethtool, kind: u16::from(*command), body });
            })?;
        }
        Ok(lost)
    }
}

fn ethtool_monitor() -> io::Result<Socket> {
    let group = Netlink::open().generic_group(b"ethtool", b"monitor")?;
    let socket = Socket::open(Family::Generic)?;
    socket.join_group(group)?;
    Ok(socket)
}
